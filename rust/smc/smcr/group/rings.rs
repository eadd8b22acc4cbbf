// SPDX-License-Identifier: GPL-2.0

//! The send rings of a group's connections, for who posts: by the connection's index, under `scheduler`.

use super::{filled, GroupState, LinkGroup, SmcConn};
use crate::host::{clock::now, stats::TrafficDirection};
use kapi::rdma::region::Region;
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};
use smc_proto::group::tokens::MAX_CONNS;

/// One for each connection that has one.
pub(super) struct Rings(KVec<Option<Arc<Region>>>);

impl Rings {
    /// None yet.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(filled(None, MAX_CONNS)?))
    }

    /// Returns the ring of the connection with this index.
    #[inline]
    pub(super) fn get(&self, index: u8) -> Option<&Arc<Region>> {
        self.0.get(usize::from(index))?.as_ref()
    }

    fn take(&mut self, index: u8) -> Option<Arc<Region>> {
        self.0.get_mut(usize::from(index))?.take()
    }
}

impl GroupState {
    /// Tells whether the connection's index is still its own.
    fn holds(&self, conn: &SmcConn) -> bool {
        let place = self.conns.get(usize::from(conn.index()));
        let other = place.and_then(|place| place.as_deref());
        other.is_some_and(|other| core::ptr::eq(other, conn))
    }
}

impl LinkGroup {
    /// Makes a connection's send ring known, unless the connection or the group is over. Returns
    /// whether it has. The end of either will find the ring.
    pub(crate) fn install_ring(&self, conn: &SmcConn, ring: &Arc<Region>) -> bool {
        let mut scheduler = self.link.scheduler.lock();
        // The group's end sets its mark before it takes these locks to look for rings, and a
        // connection is out of the list before its index is free.
        let lives = self.state.lock().holds(conn) && self.ended.load(Relaxed) == 0;
        let place = scheduler.rings.0.get_mut(usize::from(conn.index()));
        let Some(place) = place.filter(|_| lives) else {
            return false;
        };
        *place = Some(ring.clone());
        // With the ring, so that no thread settles the one without the other.
        conn.stats().usage(TrafficDirection::Tx, ring.len() as i64);
        drop(scheduler);
        self.look_later();
        true
    }

    /// Takes the send ring of a connection that is one of the group.
    pub(crate) fn remove_ring(&self, conn: &SmcConn) -> Option<Arc<Region>> {
        let mut scheduler = self.link.scheduler.lock();
        if !self.state.lock().holds(conn) {
            return None;
        }
        let ring = scheduler.rings.take(conn.index())?;
        conn.stats()
            .usage(TrafficDirection::Tx, -(ring.len() as i64));
        Some(ring)
    }

    /// Forgets a connection. Returns its send ring.
    pub(crate) fn remove_conn(self: &Arc<Self>, conn: &Arc<SmcConn>) -> Option<Arc<Region>> {
        let mut scheduler = self.link.scheduler.lock();
        let mut state = self.state.lock();
        let removed = if state.proto.remove_conn(conn.token(), now()) {
            state
                .conns
                .get_mut(usize::from(conn.index()))
                .and_then(Option::take)
        } else {
            None
        };
        drop(state);
        let ring = match &removed {
            Some(_) => scheduler.rings.take(conn.index()),
            None => None,
        };
        if let Some(ring) = &ring {
            conn.stats()
                .usage(TrafficDirection::Tx, -(ring.len() as i64));
        }
        drop(scheduler);
        drop(removed);
        if self.is_quarantine_full() {
            self.kick();
        }
        self.rearm();
        ring
    }

    /// The group has ended: takes the rings from the device.
    pub(super) fn revoke_rings(&self) {
        for index in 0..=u8::MAX {
            let ring = self.link.scheduler.lock().rings.get(index).cloned();
            // A program may keep its socket for ever; the device must not wait for that.
            if let Some(ring) = ring {
                ring.revoke();
            }
        }
    }

    /// Bytes of all send rings.
    pub(super) fn ring_bytes(&self) -> u64 {
        let scheduler = self.link.scheduler.lock();
        let rings = scheduler.rings.0.iter().flatten();
        rings.fold(0, |sum: u64, ring| sum.saturating_add(ring.len() as u64))
    }

    /// Gives rings back that were not used since the last look. Returns whether there are others.
    /// Sleeps.
    pub(super) fn look_at_rings(&self) -> bool {
        let mut from = 0usize;
        while let Some((at, conn)) = self.ring_from(from) {
            if let Some(conn) = conn {
                conn.look_at_ring();
            }
            from = at.saturating_add(1);
        }
        self.link
            .scheduler
            .lock()
            .rings
            .0
            .iter()
            .any(Option::is_some)
    }

    /// The first ring from index `from` on, and its connection.
    fn ring_from(&self, from: usize) -> Option<(usize, Option<Arc<SmcConn>>)> {
        let scheduler = self.link.scheduler.lock();
        let ahead = scheduler.rings.0.get(from..)?;
        let at = ahead.iter().position(Option::is_some)?.saturating_add(from);
        let state = self.state.lock();
        Some((at, state.conns.get(at).cloned().flatten()))
    }

    /// Lets sends that have found no memory try again, after a while. Sleeps.
    pub(crate) fn feed_later(&self) {
        self.state.lock().reclaim.ring_enomem = true;
        self.look_later();
    }

    /// Lets them try.
    pub(super) fn retry_ring(&self) {
        for index in 0..MAX_CONNS {
            let conn = {
                let state = self.state.lock();
                state.conns.get(index).cloned().flatten()
            };
            if let Some(conn) = conn {
                conn.retry_ring();
            }
        }
    }
}
