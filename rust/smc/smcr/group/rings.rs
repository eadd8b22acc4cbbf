// SPDX-License-Identifier: GPL-2.0

//! The send rings of a group's connections, as those have them for who posts ([`super::conn::Locked`]).

use super::{conn::Locked, LinkGroup, SmcConn};
use crate::host::{clock::now, stats::TrafficDirection};
use kapi::rdma::region::Region;
use kernel::sync::{atomic::Relaxed, Arc};
use smc_proto::cursor::RingSize;

impl LinkGroup {
    /// Gives a connection its send ring, unless the connection or the group is over. Returns whether it has. The end of
    /// either will find the ring.
    pub(crate) fn install_ring(&self, conn: &SmcConn, ring: &Arc<Region>) -> bool {
        {
            let mut state = conn.proto.lock();
            // The group's end sets its mark before it takes this lock to look for the ring.
            if state.forgotten || self.ended.load(Relaxed) != 0 {
                return false;
            }
            state.ring = Some(ring.clone());
            // With the ring, so that no thread settles the one without the other.
            conn.stats().usage(TrafficDirection::Tx, ring.len() as i64);
        }
        self.look_later();
        true
    }

    /// Gives a connection another send ring, of `size`, in place of its own, which is empty. Returns that one; `None` if
    /// it stays, because it has bytes or is over.
    pub(crate) fn replace_ring(
        &self,
        conn: &SmcConn,
        ring: &Arc<Region>,
        size: RingSize,
    ) -> Option<Arc<Region>> {
        let mut state = conn.proto.lock();
        // As in `install_ring`.
        let over = state.forgotten || self.ended.load(Relaxed) != 0 || state.ring.is_none();
        if over || !state.conn.replace_send_ring(size) {
            return None;
        }
        let old = state.ring.replace(ring.clone())?;
        let more = (ring.len() as i64).wrapping_sub(old.len() as i64);
        conn.stats().usage(TrafficDirection::Tx, more);
        Some(old)
    }

    /// Takes the send ring of a connection that is one of the group. The next one has the first one's size. `None` if
    /// there is none, or if a message is under way: it may be one without bytes, which needs no writer.
    pub(crate) fn remove_ring(&self, conn: &SmcConn) -> Option<Arc<Region>> {
        let mut state = conn.proto.lock();
        if state.ring.is_none() || !state.conn.replace_send_ring(conn.first_send_ring()) {
            return None;
        }
        take_ring(conn, &mut state)
    }

    /// Forgets a connection. Returns its send ring.
    pub(crate) fn remove_conn(self: &Arc<Self>, conn: &Arc<SmcConn>) -> Option<Arc<Region>> {
        // Before its place is free for another.
        let removed = self.conns.take(conn)?;
        let ring = {
            let mut state = conn.proto.lock();
            state.forgotten = true;
            take_ring(conn, &mut state)
        };
        self.state.lock().proto.remove_conn(conn.token(), now());
        drop(removed);
        if self.is_quarantine_full() {
            self.kick();
        }
        self.rearm();
        ring
    }

    /// The group has ended: takes the rings from the device.
    pub(super) fn revoke_rings(&self) {
        for conn in self.conns.iter() {
            let ring = conn.proto.lock().ring.clone();
            // A program may keep its socket for ever; the device must not wait for that.
            if let Some(ring) = ring {
                ring.revoke();
            }
        }
    }

    /// Bytes of all send rings.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.conns.iter().fold(0, |sum: u64, conn| {
            let bytes = conn.proto.lock().ring.as_ref().map_or(0, |ring| ring.len());
            sum.saturating_add(bytes as u64)
        })
    }

    /// Gives rings back that were not used since the last look, and has large receive rings shrink. Returns whether there
    /// are others. Sleeps.
    pub(super) fn look_at_rings(&self) -> bool {
        let mut more = false;
        for conn in self.conns.iter() {
            more |= conn.look_at_recv_ring();
            let has_ring = || conn.proto.lock().ring.is_some();
            if has_ring() {
                conn.look_at_ring();
                more |= has_ring();
            }
        }
        more
    }

    /// Lets sends that have found no memory try again, after a while. Sleeps.
    pub(crate) fn feed_later(&self) {
        self.state.lock().reclaim.ring_enomem = true;
        self.look_later();
    }

    /// Lets them try.
    pub(super) fn retry_ring(&self) {
        for conn in self.conns.iter() {
            conn.retry_ring();
        }
    }
}

/// Takes the send ring out of the state of `conn`, and out of its statistics.
fn take_ring(conn: &SmcConn, state: &mut Locked) -> Option<Arc<Region>> {
    let ring = state.ring.take()?;
    conn.stats()
        .usage(TrafficDirection::Tx, -(ring.len() as i64));
    Some(ring)
}
