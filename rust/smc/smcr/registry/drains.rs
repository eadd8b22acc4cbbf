// SPDX-License-Identifier: GPL-2.0

//! Closed connections that still have data for their peers, when there are too many of them.
//!
//! Their number has a limit, as that of TCP's orphans has. But here a peer decides how long they stay, so
//! it is not the newest that goes: the oldest of the peer that has most, in the network that has most, gives its place
//! to it. Then a peer that takes nothing cannot keep the others from theirs, whatever addresses it has.

use super::{super::group::Drains, SmcrRegistry};
use crate::host::peer_addr::Network;
use kernel::prelude::*;

/// The drains of a namespace, added up.
#[derive(Default)]
struct Sums {
    peers: KVec<Drains>,
    networks: KVec<(Network, u32)>,
}

impl Sums {
    fn add(&mut self, drains: Drains) -> Result {
        let network = drains.peer_addr.network();
        match self.networks.iter_mut().find(|(of, _)| *of == network) {
            Some((_, count)) => *count = count.saturating_add(drains.count),
            None => self.networks.push((network, drains.count), GFP_KERNEL)?,
        }
        let same = |peer: &&mut Drains| peer.peer_addr == drains.peer_addr;
        match self.peers.iter_mut().find(same) {
            Some(peer) => peer.add(drains),
            None => self.peers.push(drains, GFP_KERNEL)?,
        }
        Ok(())
    }

    /// Returns group, index there and number of the oldest drain of the peer that has most.
    fn chosen(&self) -> Option<(u32, u8, u64)> {
        let (network, _) = self.networks.iter().max_by_key(|(_, count)| *count)?;
        let there = |peer: &&Drains| peer.peer_addr.network() == *network;
        let most = self
            .peers
            .iter()
            .filter(there)
            .max_by_key(|peer| peer.count)?;
        Some((most.group, most.index, most.oldest))
    }
}

impl SmcrRegistry {
    /// Ends the oldest drain, in a namespace, of the peer that has most; false if none was found. Sleeps.
    pub(super) fn shed(&self, namespace: u64) -> bool {
        let Ok(sums) = self.drains(namespace) else {
            return false;
        };
        let Some((group, slot, number)) = sums.chosen() else {
            return false;
        };
        // If it has ended meanwhile, or even its group, it has made room itself.
        if let Some(group) = self.group(group) {
            group.lose_drain(slot, number);
        }
        true
    }

    /// Adds up those of the groups of a namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn drains(&self, namespace: u64) -> Result<Sums> {
        let mut sums = Sums::default();
        let mut result = Ok(());
        self.each_group(|group| {
            if group.peer_addr.namespace != namespace {
                return;
            }
            if let Some(drains) = group.drains() {
                result = result.and(sums.add(drains));
            }
        });
        result.map(|()| sums)
    }
}
