// SPDX-License-Identifier: GPL-2.0

//! The list of a namespace's SMC sockets, which `sock_diag` shows.
//!
//! A socket joins when it is used for the first time (bind, connect, listen, an option, data, accept):
//! until then it differs from a TCP socket in nothing but its operations table, and the family has
//! no memory for it. It leaves when its file is closed.

use crate::socket::Socket;
use kapi::net::socket as file;
use kernel::sync::{atomic::Relaxed, Arc};

/// The sockets of a namespace.
pub(crate) type Registry = kapi::sys::roster::Roster<Socket>;

kapi::member! {
    impl Member for Socket { self.link }
}

impl Socket {
    /// The socket has become `file`'s.
    pub(crate) fn attached(self: &Arc<Self>, file: &file::BsdSocket) {
        self.own_family
            .store(u32::from(file.is_own_family()), Relaxed);
        if let Some(namespace) = &self.namespace {
            namespace.sockets.join(self);
        }
    }

    /// The file is being closed.
    pub(crate) fn detached(&self) {
        if let Some(namespace) = &self.namespace {
            namespace.part(self);
        }
    }
}
