// SPDX-License-Identifier: GPL-2.0

//! Closed connections that still have data for their peers, when there are too many of them.
//!
//! As with TCP's orphans there may be so many and no more. But here a peer decides how long they stay, so
//! it is not the newest that goes: the oldest of the peer that has most gives its place to it. Then a peer
//! that takes nothing cannot keep the others from theirs, whatever it has.

use super::{super::group::Drains, Core};
use kernel::prelude::*;

impl Core {
    /// Ends the oldest drain, in a namespace, of the peer that has most; false if none was found. Sleeps.
    pub(super) fn shed(&self, namespace: u64) -> bool {
        let Ok(peers) = self.drains(namespace) else {
            return false;
        };
        let Some((group, slot, number)) = chosen(&peers) else {
            return false;
        };
        // If it has ended meanwhile, or even its group, it has made room itself.
        if let Some(group) = self.group(group) {
            group.lose_drain(slot, number);
        }
        true
    }

    /// Adds up those of the groups of a namespace, by peer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn drains(&self, namespace: u64) -> Result<KVec<Drains>> {
        let mut peers: KVec<Drains> = KVec::new();
        let mut result = Ok(());
        self.each_group(|group| {
            if group.origin.namespace != namespace {
                return;
            }
            let Some(drains) = group.drains() else {
                return;
            };
            match peers.iter_mut().find(|peer| peer.origin == drains.origin) {
                Some(peer) => peer.add(drains),
                None => result = result.and(peers.push(drains, GFP_KERNEL).map_err(Error::from)),
            }
        });
        result.map(|()| peers)
    }
}

/// Returns group, place there and number of the oldest drain of the peer that has most.
fn chosen(peers: &[Drains]) -> Option<(u32, usize, u64)> {
    let most = peers.iter().max_by_key(|peer| peer.count)?;
    Some((most.group, most.slot, most.oldest))
}
