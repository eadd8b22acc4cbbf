// SPDX-License-Identifier: GPL-2.0

//! The SMC-R connection over which a stream goes, and what it and those before have carried.
//!
//! A connection that has gone back to TCP keeps none: calls enter before they use it ([`Inside`]), and one that is left
//! is dropped when no call is inside. A call that sleeps is inside, too.

use super::Remote;
use crate::smcr::SmcConn;
use core::ops::Deref;
use kapi::sys::gate::{self, Gate, Prepared};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    }, //
};
use smc_proto::{path::Head, promotion::Stage, wire::promotion::RECORD_LEN};

/// The connections.
#[pin_data]
pub(super) struct Carriers {
    #[pin]
    gate: Gate<SmcConn>,
    /// Bytes of those before the present one: gone, of these known to have arrived, and come.
    carried: [Atomic<u64>; 3],
}

impl Carriers {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            gate <- Gate::new(),
            carried: [const { Atomic::new(0) }; 3],
        })
    }

    /// Tells whether there is none at present.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.gate.is_empty()
    }

    /// Tells whether the rings of the present one are left. Any context.
    pub(super) fn are_left(&self) -> bool {
        let is_left = |conn: &Arc<SmcConn>| conn.is_suspended();
        self.gate.with(|conn| conn.is_some_and(is_left))
    }

    /// Makes one the present one, if there is none.
    pub(super) fn publish(&self, prepared: Prepared<SmcConn>) {
        self.gate.publish(prepared);
    }

    /// There is none, after `conn`. Returns false if another call has found that.
    pub(super) fn leave(&self, conn: &Arc<SmcConn>) -> bool {
        self.gate.retire(conn)
    }

    /// Drops those before, if no call is inside.
    pub(super) fn sweep(&self) {
        self.gate.sweep();
    }
}

/// A call that uses the SMC-R connection.
pub(crate) struct Inside<'a> {
    remote: &'a Remote,
    conns: gate::Inside<'a, SmcConn>,
}

impl Deref for Inside<'_> {
    type Target = Remote;

    #[inline]
    fn deref(&self) -> &Remote {
        self.remote
    }
}

impl Inside<'_> {
    /// Leaves with a socket locked.
    pub(crate) fn leave(self) {
        self.conns.leave();
    }

    /// Returns the SMC-R connection, once an end has turned.
    #[inline]
    pub(super) fn current(&self) -> Option<&Arc<SmcConn>> {
        self.conns.get()
    }

    /// Returns the SMC-R connection, while all of the stream goes by its rings.
    #[inline]
    pub(crate) fn promoted(&self) -> Option<&Arc<SmcConn>> {
        match self.is_through() {
            true => self.current(),
            false => None,
        }
    }

    /// Returns the SMC-R connection, if what this end writes goes by its ring.
    #[inline]
    pub(crate) fn turned(&self) -> Option<&Arc<SmcConn>> {
        match self.stage() {
            Stage::Turned => self.carrier(),
            _ => None,
        }
    }

    /// Returns the SMC-R connection, if what is to be read next is in its ring.
    #[inline]
    pub(super) fn behind(&self) -> Option<&Arc<SmcConn>> {
        match self.route().head() {
            Head::Ring => self.carrier(),
            _ => None,
        }
    }

    /// Returns the SMC-R connection, once the way back to TCP is closed, until a reset.
    #[inline]
    pub(crate) fn carrier(&self) -> Option<&Arc<SmcConn>> {
        self.current().filter(|_| self.broken.get() == 0)
    }
}

impl Remote {
    /// Enters: the SMC-R connection stays until the guard is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        Inside {
            remote: self,
            conns: self.carriers.gate.enter(),
        }
    }

    /// Takes note of what `conn` has carried, which is not the present one any more.
    pub(super) fn has_carried(&self, conn: &SmcConn) {
        for (sum, bytes) in self.carriers.carried.iter().zip(conn.carried()) {
            sum.fetch_add(bytes, Relaxed);
        }
    }

    /// Returns the numbers of the program's bytes that have gone, of these of how many it is known that they have arrived,
    /// and that have come, by rings.
    pub(crate) fn carried(&self) -> [u64; 3] {
        let inside = self.enter();
        let mut all = inside.current().map_or([0; 3], |conn| conn.carried());
        for (sum, before) in all.iter_mut().zip(&self.carriers.carried) {
            *sum = sum.saturating_add(before.load(Relaxed));
        }
        all
    }

    /// Returns the number of bytes that have gone, and have come, by TCP and are not the program's.
    pub(crate) fn overhead(&self) -> u64 {
        u64::from(self.returns()).saturating_mul(RECORD_LEN as u64)
    }
}
