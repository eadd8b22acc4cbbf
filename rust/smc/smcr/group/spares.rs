// SPDX-License-Identifier: GPL-2.0

//! Send rings that connections have given back, for those that come.
//!
//! A new ring is sixteen cleared and mapped pages; where connections are short, that is a tenth of
//! what they cost. A ring that was used goes to the same peer only, and only what the next
//! connection writes into it is ever sent, so it need not be cleared.

use super::LinkGroup;
use kapi::rdma::region::Region;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};

/// Most rings that a group keeps.
const MOST: usize = 4;

/// Looks after which a spare ring goes: half a second to a second. It is quickly made.
const PATIENCE: u32 = 2;

/// An unused send ring.
struct Spare {
    ring: Arc<Region>,
    /// Looks that have found it here.
    looks: u32,
}

/// All of them.
pub(super) struct Spares(KVec<Spare>);

impl Spares {
    /// None yet.
    pub(super) fn new() -> Result<Self> {
        // One more while it is decided which one goes.
        Ok(Self(KVec::with_capacity(MOST + 1, GFP_KERNEL)?))
    }

    /// Their pages.
    pub(super) fn pages(&self) -> usize {
        let rings = self.0.iter();
        rings.fold(0, |sum: usize, spare| sum.saturating_add(spare.pages()))
    }

    fn take(&mut self, which: impl Fn(&Spare) -> bool) -> Option<Spare> {
        let at = self.0.iter().position(which)?;
        self.0.remove(at).ok()
    }
}

impl Spare {
    fn pages(&self) -> usize {
        self.ring.len().div_ceil(PAGE_SIZE)
    }
}

impl LinkGroup {
    /// A used ring of `size` bytes.
    pub(crate) fn take_spare(&self, size: usize) -> Option<Arc<Region>> {
        let spare = self
            .state
            .lock()
            .spares
            .take(|spare| spare.ring.len() == size)?;
        Some(spare.ring)
    }

    /// Keeps a ring that no request under way names and no program writes into any more, in place of one
    /// of another size if need be. For a while: a look is to be planned.
    pub(crate) fn keep_spare(&self, ring: &Arc<Region>) {
        let surplus = {
            let mut state = self.state.lock();
            // The end of the group sets its mark before it takes this lock to empty the list.
            let ended = self.ended.load(Relaxed) != 0;
            let spares = &mut state.spares;
            let _ = spares.0.push_within_capacity(Spare {
                ring: ring.clone(),
                looks: 0,
            });
            if ended || spares.0.len() > MOST {
                spares
                    .take(|spare| spare.ring.len() != ring.len())
                    .or_else(|| spares.take(|_| true))
            } else {
                None
            }
        };
        // A socket that the program keeps may hold the ring; the device must not wait for that.
        if let Some(surplus) = surplus {
            surplus.ring.revoke();
        }
    }

    /// Gives those back that have been here for some looks; whether there are others.
    pub(super) fn look_at_spares(&self) -> bool {
        {
            let mut state = self.state.lock();
            for spare in &mut state.spares.0 {
                spare.looks = spare.looks.saturating_add(1);
            }
        }
        self.free(|spare| spare.looks >= PATIENCE, usize::MAX);
        !self.state.lock().spares.0.is_empty()
    }

    /// Gives about `wanted` pages back; returns how many. Any context.
    pub(super) fn free_spares(&self, wanted: usize) -> usize {
        self.free(|_| true, wanted)
    }

    fn free(&self, which: impl Fn(&Spare) -> bool, wanted: usize) -> usize {
        let mut freed = 0usize;
        while freed < wanted {
            let spare = self.state.lock().spares.take(&which);
            let Some(spare) = spare else { break };
            freed = freed.saturating_add(spare.pages());
            spare.ring.revoke();
        }
        freed
    }

    /// The group has ended: takes the rings from the device and gives them back.
    pub(super) fn drop_spares(&self) {
        let _ = self.free_spares(usize::MAX);
    }
}
