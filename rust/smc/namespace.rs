// SPDX-License-Identifier: GPL-2.0

//! What each network namespace has: the SYN hooks, and counters.

use crate::{
    fallback::{Fallback, Role},
    option::Announce, //
};
use kapi::net::{
    netns::{self, Net, PerNet},
    sock::Sock,
    syn::Hooks, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex, //
    }, //
};

/// The state of a network namespace.
#[pin_data]
pub(crate) struct Namespace {
    /// The SYN hooks, from the first SMC socket that connects or listens on. A namespace without
    /// such a socket has none, and its packets pass as if the module were not there.
    #[pin]
    hooks: Mutex<Option<Pin<KBox<Hooks>>>>,
    /// Whether `hooks` is filled, to be read without the lock.
    hooked: Atomic<u32>,
    fallback_client: Atomic<u64>,
    fallback_server: Atomic<u64>,
}

impl Namespace {
    /// The namespace that `sock` is in.
    pub(crate) fn of(sock: &Sock) -> Option<Arc<Self>> {
        netns::Registration::<Self>::of(sock)
    }

    /// Puts the hooks in place.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub(crate) fn hook(&self, sock: &Sock) -> Result {
        if self.hooked.load(Relaxed) != 0 {
            return Ok(());
        }
        let mut hooks = self.hooks.lock();
        if hooks.is_none() {
            *hooks = Some(Hooks::new::<Announce>(sock)?);
            self.hooked.store(1, Relaxed);
        }
        Ok(())
    }

    /// Counts a fallback.
    pub(crate) fn count(&self, fallback: &Fallback) {
        let counter = match fallback.role {
            Role::Client => &self.fallback_client,
            Role::Server => &self.fallback_server,
        };
        counter.fetch_add(1, Relaxed);
    }
}

impl PerNet for Namespace {
    fn new(_net: &Net) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                hooks <- new_mutex!(None, "rsmc::namespace::hooks"),
                hooked: Atomic::new(0),
                fallback_client: Atomic::new(0),
                fallback_server: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    fn exit(this: &Arc<Self>) {
        let hooks = this.hooks.lock().take();
        drop(hooks);
    }
}
