// SPDX-License-Identifier: GPL-2.0

//! Checks an invariant: after a direction has left TCP at sequence number S, no byte after S enters TCP until the
//! direction returns.
//!
//! A byte that another part of the kernel sends by TCP meanwhile would be lost or read too early. So each return to
//! TCP, each read by the slow path and each close compares S with TCP's own count, in all builds, and resets the
//! connection if they differ.

use super::{
    pair::Local, //
    rendezvous::{Rendezvous, RENDEZVOUS},
};
use crate::host::fallback::{Fallback, Role};
use kapi::errno;
use kernel::prelude::*;
use smc_proto::{path::Route, reason::Reason};

impl Local {
    /// Looks for bytes that the writer of this end's direction has given to TCP after the cut; if there
    /// are some the connection is over. The caller keeps writers out.
    #[inline]
    pub(super) fn has_sent_astray(&self) -> bool {
        let direction = self.out();
        let cut = direction.cut();
        if !direction.route().writes_ring() || self.own().sent_to() == cut || self.is_dissolved() {
            return false;
        }
        // A FIN, or a breach.
        let bytes = self.own().lock().sent_beyond(cut);
        self.judge(bytes)
    }

    /// Tells whether there may be bytes after the cut on the way to this end: a hint for a reader that
    /// sleeps in TCP.
    #[inline]
    pub(super) fn seems_astray(&self) -> bool {
        let arrived = self.own().arrived_to();
        let direction = self.inward();
        direction.route().is_ring() && arrived != direction.cut() && !self.is_broken()
    }

    /// Looks for bytes that have come to this end by TCP after the cut. `arrived` is TCP's position from
    /// before `route` was read. The caller keeps readers out.
    #[inline]
    pub(super) fn has_got_astray(&self, route: Route, arrived: u32) -> bool {
        let cut = self.inward().cut();
        let beyond = arrived.wrapping_sub(cut) as i32;
        if !route.writes_ring() || beyond <= 0 || self.is_dissolved() {
            return false;
        }
        let guard = self.own().lock();
        // Of that time, but for the FIN, which changes no more.
        let bytes = guard.arrived_beyond(cut).min(beyond as u32);
        drop(guard);
        self.judge(bytes)
    }

    /// Ends the connection if bytes went astray.
    #[cold]
    fn judge(&self, bytes: u32) -> bool {
        if bytes == 0 {
            return false;
        }
        if self.break_off() {
            let fallback = Fallback::own(Role::of(self.active), Reason::PathBreach);
            let counters = &self.namespace.counters;
            counters.broken(&fallback, &self.own().peer_addr());
            let allow = |all: &Rendezvous| all.rate_limit.allow();
            if let Some(silent) = RENDEZVOUS.get().and_then(|all| allow(&all)) {
                pr_err!(
                    "a connection within this kernel was reset: {bytes} bytes went by TCP where it \
                     had left that ({silent} such lines left out)\n"
                );
            }
        }
        let sock = self.own();
        sock.set_error(errno::ECONNABORTED);
        sock.abort();
        true
    }
}
