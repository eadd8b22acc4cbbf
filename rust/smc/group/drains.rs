// SPDX-License-Identifier: GPL-2.0

//! Closed connections that still have data for their peers, when there are too many of them.
//!
//! As with TCP's orphans there may be so many and no more. But here a peer decides how long they stay, so
//! it is not the newest that goes: the oldest of the peer that has most gives its place to it. Then a peer
//! that takes nothing cannot keep the others from theirs, whatever it has.

use super::LinkGroup;
use crate::{first_contact::Origin, shared::Core};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Such connections of a group.
struct Drains {
    origin: Origin,
    count: u32,
    /// The number of the oldest one.
    oldest: u64,
    group: u32,
    slot: usize,
}

impl LinkGroup {
    /// Ends the oldest drain, in the namespace, of the peer that has most; false if none was found.
    /// Sleeps.
    pub(crate) fn shed_drain(&self) -> bool {
        let Ok(mut all) = self.core.drains(self.origin.namespace) else {
            return false;
        };
        let Some((group, slot, number)) = chosen(&mut all) else {
            return false;
        };
        let Some(group) = self.core.group_after(u64::from(group).saturating_sub(1)) else {
            return false;
        };
        let conn = {
            let state = group.state.lock();
            state.conns.get(slot).cloned().flatten()
        };
        // If it has ended meanwhile, or even its group, it has made room itself.
        if let Some(conn) = conn.filter(|conn| conn.drain_number() == Some(number)) {
            conn.lose_drain();
        }
        true
    }

    fn drains(&self) -> Option<Drains> {
        let state = self.state.lock();
        let mut found: Option<Drains> = None;
        for (slot, conn) in state.conns.iter().enumerate() {
            let Some(number) = conn.as_ref().and_then(|conn| conn.drain_number()) else {
                continue;
            };
            let drains = found.get_or_insert(Drains {
                origin: self.origin,
                count: 0,
                oldest: number,
                group: self.id,
                slot,
            });
            drains.count = drains.count.saturating_add(1);
            if number < drains.oldest {
                (drains.oldest, drains.slot) = (number, slot);
            }
        }
        found
    }
}

impl Core {
    /// What there is in the groups of a namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn drains(&self, namespace: u64) -> Result<KVec<Drains>> {
        let mut all = KVec::new();
        let mut result = Ok(());
        self.each_group(|group: &Arc<LinkGroup>| {
            if group.origin.namespace == namespace {
                if let Some(drains) = group.drains() {
                    result = result.and(all.push(drains, GFP_KERNEL).map_err(Error::from));
                }
            }
        });
        result.map(|()| all)
    }
}

/// Group, place there and number of the oldest drain of the peer that has most.
fn chosen(all: &mut [Drains]) -> Option<(u32, usize, u64)> {
    all.sort_unstable_by_key(|drains| drains.origin);
    let peers = all.chunk_by(|one, other| one.origin == other.origin);
    let count = |groups: &&[Drains]| {
        let each = groups.iter().map(|drains| drains.count);
        each.fold(0, u32::saturating_add)
    };
    let most = peers.max_by_key(count)?;
    let oldest = most.iter().min_by_key(|drains| drains.oldest)?;
    Some((oldest.group, oldest.slot, oldest.oldest))
}
