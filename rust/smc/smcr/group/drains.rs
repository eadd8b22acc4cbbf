// SPDX-License-Identifier: GPL-2.0

//! Drains: closed connections of a group that still have data for their peer.

use super::LinkGroup;
use crate::host::peer_addr::PeerAddr;

/// The drains of a group.
pub(crate) struct Drains {
    pub(crate) peer_addr: PeerAddr,
    pub(crate) count: u32,
    /// The number of the oldest one.
    pub(crate) oldest: u64,
    pub(crate) group: u32,
    pub(crate) index: u8,
}

impl Drains {
    /// Adds those of another group with the same peer.
    pub(crate) fn add(&mut self, other: Self) {
        let count = self.count.saturating_add(other.count);
        if other.oldest < self.oldest {
            *self = other;
        }
        self.count = count;
    }
}

impl LinkGroup {
    /// Gives up what a connection has left for its peer, if the number is still that of its drain.
    /// Sleeps.
    pub(crate) fn lose_drain(&self, index: u8, number: u64) {
        let conn = self.conns.get(index);
        if let Some(conn) = conn.filter(|conn| conn.drain_number() == Some(number)) {
            conn.lose_drain();
        }
    }

    /// Ends the oldest drain, in the group's namespace, of the peer that has most; false if none was
    /// found. Sleeps.
    pub(super) fn shed_drain(&self) -> bool {
        self.owner.shed_drain(self.peer_addr.namespace)
    }

    /// Returns the drains, if there are any.
    pub(crate) fn drains(&self) -> Option<Drains> {
        let mut found: Option<Drains> = None;
        for conn in self.conns.iter() {
            let Some(number) = conn.drain_number() else {
                continue;
            };
            let index = conn.index();
            let drains = found.get_or_insert(Drains {
                peer_addr: self.peer_addr,
                count: 0,
                oldest: number,
                group: self.id,
                index,
            });
            drains.count = drains.count.saturating_add(1);
            if number < drains.oldest {
                (drains.oldest, drains.index) = (number, index);
            }
        }
        found
    }
}
