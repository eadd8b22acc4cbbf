// SPDX-License-Identifier: GPL-2.0

//! Nothing beyond the cut: a direction that has left TCP at S gives TCP no byte behind S until it is back.
//!
//! A byte that did go there, past this module, would be lost or come too early. So whoever turns back,
//! reads by the slow way, or closes looks at TCP's own count, in all builds. Where it is wrong the
//! connection is reset.

use super::{
    pair::Local, //
    rendezvous::{Rendezvous, RENDEZVOUS},
};
use crate::host::fallback::{Fallback, Role};
use kapi::errno;
use kernel::prelude::*;
use smc_proto::{path::Route, reason::Reason};

impl Local {
    /// Looks for bytes that the writer of this end's direction has given to TCP behind the cut; if there
    /// are some the connection is over. The caller keeps writers out.
    #[inline]
    pub(super) fn has_sent_astray(&self) -> bool {
        let way = self.out();
        let cut = way.cut();
        if !way.route().writes_ring() || self.own().sent_to() == cut || self.has_left() {
            return false;
        }
        // A FIN, or a breach.
        let bytes = self.own().lock().sent_beyond(cut);
        self.judge(bytes)
    }

    /// Tells whether there may be bytes behind the cut on the way to this end: a hint for who sleeps there.
    #[inline]
    pub(super) fn seems_astray(&self) -> bool {
        let arrived = self.own().arrived_to();
        let way = self.inward();
        way.route().is_ring() && arrived != way.cut() && !self.is_broken()
    }

    /// Looks for bytes that have come to this end by TCP behind the cut. `arrived` is TCP's position from
    /// before `route` was read. The caller keeps readers out.
    #[inline]
    pub(super) fn has_got_astray(&self, route: Route, arrived: u32) -> bool {
        let cut = self.inward().cut();
        let beyond = arrived.wrapping_sub(cut) as i32;
        if !route.writes_ring() || beyond <= 0 || self.has_left() {
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
