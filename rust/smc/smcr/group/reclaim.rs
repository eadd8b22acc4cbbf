// SPDX-License-Identifier: GPL-2.0

//! Gives unused memory back: send rings of silent connections, spare rings, slabs of receive buffers.
//!
//! The group's timer has it look twice a second as long as there is something to look for, and less often while there
//! are connections that may be idle. A slab goes in
//! three steps: it is taken out of service, the peer is asked to forget its key (C keeps each in a
//! table of 255), and when that has answered, the memory is deregistered.

use super::{super::slab::RmbSlab, LinkGroup, Resources};
use crate::host::clock::now;
use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};
use smc_proto::{
    llc::requests::{Answer, Ask, Settled},
    time::{Instant, Span},
    wire::ids::Rkey, //
};

/// Time between two looks. A send ring is given back at the second look in a row that
/// finds it unused.
const LOOK: Span = Span::from_millis(500);
/// Looks in a row after which an unused slab goes: two seconds.
const PATIENCE: u32 = 4;
/// Slabs that may wait for the peer to forget their keys. A peer that never answers keeps this number; with
/// more, connections that come and go would have it keep ever more.
pub(super) const MOST_LEAVING: usize = 8;
/// Bytes of the largest slab that stays in any case, so that the next connection needs none: four
/// buffers of 64 KiB. There is one in a group.
const HANDFUL: u64 = 256 << 10;

/// When to look, and what has happened since the last look.
pub(super) struct Reclaim {
    next: Option<Instant>,
    /// A send has found no memory.
    pub(super) ring_enomem: bool,
    /// Memory is short: nothing unused may stay.
    pressed: bool,
    /// The peer's answer to a request to forget a key.
    answered: Option<(Rkey, Answer)>,
    /// Pages of slabs that were unused at the last look.
    idle_pages: usize,
    /// Memory is short: connections that are idle are to do without their rings.
    starved: bool,
    /// Pages that those have.
    still_pages: usize,
}

impl Reclaim {
    /// Nothing to look for.
    pub(super) const fn new() -> Self {
        Self {
            next: None,
            ring_enomem: false,
            pressed: false,
            answered: None,
            idle_pages: 0,
            starved: false,
            still_pages: 0,
        }
    }

    /// When to look next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.next
    }
}

impl LinkGroup {
    /// Has the group look for unused memory. Sleeps.
    pub(crate) fn look_later(&self) {
        if self.plan_look(LOOK) {
            self.rearm();
        }
    }

    /// Plans a look after this time. Returns whether none was planned that is as early.
    fn plan_look(&self, distance: Span) -> bool {
        let reclaim = &mut self.state.lock().reclaim;
        let at = now().after(distance);
        let earlier = reclaim.next.is_none_or(|next| at < next);
        if earlier {
            reclaim.next = Some(at);
        }
        earlier
    }

    /// Takes note of the answer to a request. Any context.
    pub(super) fn note_answer(self: &Arc<Self>, settled: Settled) {
        if settled.ask == Ask::Delete {
            self.state.lock().reclaim.answered = Some((settled.rkey, settled.answer));
            self.kick();
        }
    }

    /// Looks, if it is time for that or there is something to do at once. Sleeps.
    pub(super) fn reclaim(self: &Arc<Self>) {
        let (due, ring_enomem, slabs, starved) = {
            let reclaim = &mut self.state.lock().reclaim;
            let due = reclaim.next.is_some_and(|at| now().reached(at));
            if due {
                reclaim.next = None;
            }
            let slabs = due || reclaim.pressed || reclaim.answered.is_some();
            let ring_enomem = due && core::mem::take(&mut reclaim.ring_enomem);
            let starved = core::mem::take(&mut reclaim.starved);
            (due, ring_enomem, slabs, starved)
        };
        let mut more = false;
        if due {
            if ring_enomem {
                self.retry_ring();
            }
            more |= self.look_at_rings();
            more |= self.look_at_spares();
        }
        if slabs {
            more |= self.look_at_slabs(due);
        }
        if more {
            let _ = self.plan_look(LOOK);
        }
        if due || starved {
            self.look_at_idle(starved);
        }
    }

    /// Has connections that are idle go back to TCP, and plans the next look as long as there are some that may.
    fn look_at_idle(&self, starved: bool) {
        let now = now();
        let mut again = None;
        let mut pages = 0usize;
        for conn in self.conns.iter() {
            if let Some(found) = conn.look_at_idle(now, starved) {
                let next = again.unwrap_or(found.again);
                again = Some(found.again.min(next));
                pages = pages.saturating_add(found.pages);
            }
        }
        self.state.lock().reclaim.still_pages = pages;
        if let Some(distance) = again {
            let _ = self.plan_look(distance.max(LOOK));
        }
    }

    /// Retires unused slabs, and frees those whose key the peer has deleted. `due`: this is a
    /// regular look, which counts. Returns whether there may be more.
    fn look_at_slabs(self: &Arc<Self>, due: bool) -> bool {
        // The owner of the lock may be waiting for the device.
        let Some(mut guard) = self.resources.try_lock() else {
            return true;
        };
        let Some(resources) = &mut *guard else {
            return false;
        };
        let (pressed, answered) = {
            let reclaim = &mut self.state.lock().reclaim;
            (
                core::mem::take(&mut reclaim.pressed),
                reclaim.answered.take(),
            )
        };
        let gone = resources.forgotten(answered);
        let count = match (pressed, due) {
            (true, _) => PATIENCE,
            (_, due) => u32::from(due),
        };
        let (mut more, idle) = resources.retire_slabs(count, pressed);
        self.count_slabs(resources);
        let ask = {
            let mut state = self.state.lock();
            state.reclaim.idle_pages = idle;
            let next = resources.leaving.first();
            more |= next.is_some();
            next.and_then(|slab| state.proto.forget(slab.rkey(), now()))
        };
        drop(guard);
        if let Some(slab) = gone {
            slab.revoke();
        }
        if let Some(frame) = ask {
            self.send_llc(frame);
        }
        more
    }

    /// Returns the number of pages that could be given back at once. Callable from
    /// the shrinker.
    pub(crate) fn spare_pages(&self) -> usize {
        let state = self.state.lock();
        state
            .spares
            .pages()
            .saturating_add(state.reclaim.idle_pages)
            .saturating_add(state.reclaim.still_pages)
    }

    /// Frees about `wanted` pages: spare send rings at once, slabs and the rings of idle connections later by the worker.
    /// Returns the number of pages.
    /// The shrinker may call it.
    pub(crate) fn shrink(self: &Arc<Self>, wanted: usize) -> usize {
        let mut freed = self.free_spares(wanted);
        if freed < wanted {
            let idle = {
                let reclaim = &mut self.state.lock().reclaim;
                reclaim.pressed |= reclaim.idle_pages > 0;
                core::mem::take(&mut reclaim.idle_pages)
            };
            if idle > 0 {
                self.kick();
                freed = freed.saturating_add(idle);
            }
        }
        if freed < wanted {
            let still = {
                let reclaim = &mut self.state.lock().reclaim;
                reclaim.starved |= reclaim.still_pages > 0;
                core::mem::take(&mut reclaim.still_pages)
            };
            if still > 0 {
                self.kick();
                freed = freed.saturating_add(still);
            }
        }
        freed
    }
}

impl Resources {
    /// Takes out the slab whose key the peer has deleted, or refused to delete as unknown. A peer that has
    /// not answered is asked again.
    fn forgotten(&mut self, answered: Option<(Rkey, Answer)>) -> Option<Arc<RmbSlab>> {
        let (rkey, answer) = answered?;
        if !matches!(answer, Answer::Done | Answer::Refused) {
            return None;
        }
        let at = self.leaving.iter().position(|slab| slab.rkey() == rkey)?;
        self.leaving.remove(at).ok()
    }

    /// Takes slabs out of service that `PATIENCE` looks in a row have found unused; this one counts for
    /// `count`. Returns whether others will follow, and the pages of unused slabs.
    fn retire_slabs(&mut self, count: u32, all: bool) -> (bool, usize) {
        let mut kept = all;
        let mut more = false;
        let mut idle = 0u64;
        let mut at = 0usize;
        while let Some(slab) = self.slabs.get(at) {
            let Some(looks) = slab.look(count) else {
                at = at.saturating_add(1);
                continue;
            };
            let stays = !kept && slab.bytes() <= HANDFUL;
            kept |= stays;
            let goes = !stays && looks >= PATIENCE && self.leaving.len() < MOST_LEAVING;
            if !goes {
                more |= !stays;
                idle = idle.saturating_add(slab.bytes());
                at = at.saturating_add(1);
                continue;
            }
            if let Ok(slab) = self.slabs.remove(at) {
                let _ = self.leaving.push_within_capacity(slab);
            }
        }
        let pages = idle.checked_div(PAGE_SIZE as u64).unwrap_or(0);
        (more, usize::try_from(pages).unwrap_or(usize::MAX))
    }
}
