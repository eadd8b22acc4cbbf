// SPDX-License-Identifier: GPL-2.0

//! Strict mode: SMC or an error, never TCP.
//!
//! A socket with `RSMC_STRICT` (by default what the sysctl `strict` says when it is used for the
//! first time) that cannot speak SMC with the peer it connects to resets the TCP connection, and
//! connect() fails with `EPROTONOSUPPORT`; a non-blocking one says so by `EPOLLERR` and `SO_ERROR`.
//! The reason is counted and is in `RSMC_INFO`. Servers accept whatever comes.

use super::{
    smc_sock::SmcSock,
    state::{Phase, StateGuard}, //
};
use crate::host::fallback::{Fallback, Role};
use kapi::errno;
use kernel::prelude::*;

impl SmcSock {
    /// Tells whether the socket must not become a TCP socket.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict.get() != 0
    }

    /// Checks whether the connection may fall back; if not, ends it and sets the state back to that
    /// before connect().
    ///
    /// # Errors
    ///
    /// `EPROTONOSUPPORT` when it may not, which is also the error with which a connection under way
    /// ends.
    pub(crate) fn may_fall_back(&self, state: &mut StateGuard<'_>, fallback: &Fallback) -> Result {
        if fallback.role != Role::Client || !self.is_strict() {
            return Ok(());
        }
        let error = errno::EPROTONOSUPPORT;
        if let Some(namespace) = self.namespace() {
            namespace.counters.refused(fallback, &self.sock.peer_addr());
        }
        self.refusal.set(fallback.reason.code());
        // Before the abort wakes those who look at it.
        if let Phase::Connecting = state.set(Phase::Init) {
            self.end_attempt(error);
        }
        Err(error.into())
    }
}
