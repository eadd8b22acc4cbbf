// SPDX-License-Identifier: GPL-2.0

//! Send rings of connections that have ended, for those that come.
//!
//! A new ring is sixteen cleared and mapped pages; where connections are short, that is a tenth of
//! what they cost. A ring that was used goes to the same peer only, and only what the next
//! connection writes into it is ever sent, so it need not be cleared.

use super::LinkGroup;
use kapi::rdma::region::Region;
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};

/// Most rings that a group keeps.
const MOST: usize = 4;

/// Send rings that nobody uses.
pub(super) struct Spares(KVec<Arc<Region>>);

impl Spares {
    /// None yet.
    pub(super) fn new() -> Result<Self> {
        // One more while it is decided which one goes.
        Ok(Self(KVec::with_capacity(MOST + 1, GFP_KERNEL)?))
    }
}

impl LinkGroup {
    /// A used ring of `size` bytes.
    pub(crate) fn take_spare(&self, size: usize) -> Option<Arc<Region>> {
        let mut state = self.state.lock();
        let spares = &mut state.spares.0;
        let at = spares.iter().position(|ring| ring.len() == size)?;
        spares.remove(at).ok()
    }

    /// Keeps a ring that no request under way names and nobody will write into again, in place of one
    /// of another size if need be.
    pub(crate) fn keep_spare(&self, ring: &Arc<Region>) {
        let surplus = {
            let mut state = self.state.lock();
            // The end of the group sets its mark before it takes this lock to empty the list.
            let ended = self.ended.load(Relaxed) != 0;
            let spares = &mut state.spares.0;
            let _ = spares.push_within_capacity(ring.clone());
            if ended || spares.len() > MOST {
                let other = spares.iter().position(|spare| spare.len() != ring.len());
                spares.remove(other.unwrap_or(0)).ok()
            } else {
                None
            }
        };
        // A socket that the program keeps may hold the ring; the device must not wait for that.
        if let Some(surplus) = surplus {
            surplus.revoke();
        }
    }

    /// The group has ended: takes the rings from the device and gives them back.
    pub(super) fn drop_spares(&self) {
        loop {
            let ring = self.state.lock().spares.0.pop();
            let Some(ring) = ring else { return };
            ring.revoke();
        }
    }
}
