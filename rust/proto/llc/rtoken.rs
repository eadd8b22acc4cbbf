// SPDX-License-Identifier: GPL-2.0

//! The peer's memory regions: up to 255, each with a key and address per link.
//!
//! Entries come from CLC accept and confirm and from CONFIRM_RKEY, and go with
//! DELETE_RKEY. Many connections may share one region, so a connection refers to
//! its entry by a [`RtokenRef`] that is no longer valid once the entry was deleted, even if its
//! place has been taken again. The memory of the table is the caller's: an array or a vector.
//!
//! A peer may name 255 keys in one message, and send such messages as fast as it can. So the entries
//! are also listed in the order of their keys, and a search looks at eight of them.

use core::borrow::BorrowMut;

use crate::wire::ids::Rkey;

/// Most regions a group keeps of its peer.
pub const MAX_RTOKENS: usize = 255;

/// Key and address of a region on one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// Remote key.
    pub rkey: Rkey,
    /// Address of the region's first byte, as the peer's device knows it.
    pub addr: u64,
}

/// Names an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtokenRef {
    index: u8,
    generation: u16,
}

/// A place for one region.
#[derive(Clone, Copy, Debug)]
pub struct Entry<const LINKS: usize> {
    generation: u16,
    used: bool,
    on_link: [Option<Region>; LINKS],
    /// For each link an element of a list that the whole table has: places of regions, in the order of
    /// their keys there, and of places where keys are equal.
    order: [u8; LINKS],
}

impl<const LINKS: usize> Entry<LINKS> {
    /// An unused place.
    pub const FREE: Entry<LINKS> = Entry {
        generation: 0,
        used: false,
        on_link: [None; LINKS],
        order: [0; LINKS],
    };
}

/// The table, for groups of up to `LINKS` links (1 to 3), in memory `S`: a mutable list of
/// [`Entry`], of which the first [`MAX_RTOKENS`] are used.
#[derive(Debug)]
pub struct RtokenTable<S, const LINKS: usize> {
    memory: S,
    used: u8,
    /// Length of the list of each link.
    listed: [u8; LINKS],
}

impl<S: BorrowMut<[Entry<LINKS>]>, const LINKS: usize> RtokenTable<S, LINKS> {
    /// A table in `memory`, which holds [`Entry::FREE`] only.
    pub const fn new(memory: S) -> Self {
        RtokenTable {
            memory,
            used: 0,
            listed: [0; LINKS],
        }
    }

    fn entries(&self) -> &[Entry<LINKS>] {
        let all = self.memory.borrow();
        all.get(..MAX_RTOKENS).unwrap_or(all)
    }

    fn at(&mut self, index: usize) -> Option<&mut Entry<LINKS>> {
        if index >= MAX_RTOKENS {
            return None;
        }
        self.memory.borrow_mut().get_mut(index)
    }

    fn refer(&self, index: usize) -> Option<RtokenRef> {
        let e = self.entries().get(index)?;
        Some(RtokenRef {
            index: u8::try_from(index).ok()?,
            generation: e.generation,
        })
    }

    /// The place and the key of element `rank` of the list of `link`; `None` after its end.
    fn element(&self, link: usize, rank: usize) -> Option<(usize, Rkey)> {
        if rank >= usize::from(*self.listed.get(link)?) {
            return None;
        }
        let entries = self.entries();
        let index = usize::from(*entries.get(rank)?.order.get(link)?);
        let region = entries.get(index)?.on_link.get(link).copied().flatten();
        Some((index, region?.rkey))
    }

    /// Number of elements of the list of `link` that are before a region with this key at this place.
    fn rank(&self, link: usize, rkey: Rkey, index: usize) -> usize {
        let mut low = 0usize;
        let mut high = self.listed.get(link).map_or(0, |n| usize::from(*n));
        while low < high {
            let middle = low.midpoint(high);
            match self.element(link, middle) {
                Some((at, key)) if (key.0, at) < (rkey.0, index) => low = middle.saturating_add(1),
                _ => high = middle,
            }
        }
        low
    }

    /// The entry with this key on `link`.
    #[must_use]
    pub fn find(&self, link: usize, rkey: Rkey) -> Option<RtokenRef> {
        let mut rank = self.rank(link, rkey, 0);
        loop {
            let (index, key) = self.element(link, rank)?;
            if key != rkey {
                return None;
            }
            // One that was deleted is listed until `forget_deleted`.
            if self.entries().get(index)?.used {
                return self.refer(index);
            }
            rank = rank.saturating_add(1);
        }
    }

    /// Lists the region at this place.
    fn list(&mut self, link: usize, rkey: Rkey, index: usize) {
        let Ok(mut moved) = u8::try_from(index) else {
            return;
        };
        let mut rank = self.rank(link, rkey, index);
        let Some(listed) = self.listed.get_mut(link) else {
            return;
        };
        let end = usize::from(*listed);
        *listed = listed.saturating_add(1);
        while rank <= end {
            if let Some(place) = self.at(rank).and_then(|e| e.order.get_mut(link)) {
                moved = core::mem::replace(place, moved);
            }
            rank = rank.saturating_add(1);
        }
    }

    /// Takes those out of the lists that `keep` does not accept, by link and place.
    fn unlist(&mut self, keep: impl Fn(&Self, usize, usize) -> bool) {
        for link in 0..LINKS {
            let mut kept = 0u8;
            let mut rank = 0usize;
            while let Some((index, _)) = self.element(link, rank) {
                rank = rank.saturating_add(1);
                if !keep(self, link, index) {
                    continue;
                }
                let place = self
                    .at(usize::from(kept))
                    .and_then(|e| e.order.get_mut(link));
                if let (Some(place), Ok(index)) = (place, u8::try_from(index)) {
                    *place = index;
                }
                kept = kept.saturating_add(1);
            }
            if let Some(listed) = self.listed.get_mut(link) {
                *listed = kept;
            }
        }
    }

    /// Takes deleted entries out of the lists.
    fn forget_deleted(&mut self) {
        self.unlist(|this, _, index| this.entries().get(index).is_some_and(|e| e.used));
    }

    /// Enters a region on `link`; one already there with this key and address is found again. A
    /// known key with another address means that the peer has registered anew: the old entry is
    /// void.
    ///
    /// `None` if the table is full or has no such link.
    pub fn add(&mut self, link: usize, region: Region) -> Option<RtokenRef> {
        if link >= LINKS {
            return None;
        }
        if let Some(found) = self.find(link, region.rkey) {
            if self.get(found, link) == Some(region) {
                return Some(found);
            }
            self.void(found);
            self.forget_deleted();
        }
        let index = self.entries().iter().position(|e| !e.used)?;
        let e = self.at(index)?;
        e.used = true;
        e.on_link = [None; LINKS];
        *e.on_link.get_mut(link)? = Some(region);
        self.used = self.used.saturating_add(1);
        self.list(link, region.rkey, index);
        self.refer(index)
    }

    /// Adds what a known region is on a further link. False if the entry or link is not there.
    pub fn add_link(&mut self, at: RtokenRef, link: usize, region: Region) -> bool {
        let place = usize::from(at.index);
        if link >= LINKS || self.live(at).is_none() {
            return false;
        }
        // By the key that it has had there.
        self.unlist(|_, other, index| (other, index) != (link, place));
        if let Some(slot) = self.live(at).and_then(|e| e.on_link.get_mut(link)) {
            *slot = Some(region);
        }
        self.list(link, region.rkey, place);
        true
    }

    fn live(&mut self, at: RtokenRef) -> Option<&mut Entry<LINKS>> {
        self.at(usize::from(at.index))
            .filter(|e| e.used && e.generation == at.generation)
    }

    /// Deletes an entry, which stays listed until [`RtokenTable::forget_deleted`].
    fn void(&mut self, at: RtokenRef) {
        if let Some(e) = self.live(at) {
            e.used = false;
            e.generation = e.generation.wrapping_add(1);
            self.used = self.used.saturating_sub(1);
        }
    }

    /// The region on `link`, unless it was deleted.
    #[must_use]
    pub fn get(&self, at: RtokenRef, link: usize) -> Option<Region> {
        self.entries()
            .get(usize::from(at.index))
            .filter(|e| e.used && e.generation == at.generation)
            .and_then(|e| e.on_link.get(link).copied().flatten())
    }

    /// Deletes the entries with these keys on `link`; tells `report` in their order whether there was one.
    pub fn delete(
        &mut self,
        link: usize,
        rkeys: impl IntoIterator<Item = Rkey>,
        mut report: impl FnMut(bool),
    ) {
        let before = self.used;
        for rkey in rkeys {
            let found = self.find(link, rkey);
            if let Some(at) = found {
                self.void(at);
            }
            report(found.is_some());
        }
        // Once for all of them.
        if self.used != before {
            self.forget_deleted();
        }
    }

    /// Number of regions.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.used)
    }

    /// Reports whether there is room for no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= MAX_RTOKENS
    }

    /// Reports whether there is no region.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

/// Returns the start of an RMBE relative to its region, from its index (1 to 255) and size in
/// bytes.
#[must_use]
pub fn rmbe_offset(rmbe_idx: u8, size: u32) -> Option<u64> {
    let before = rmbe_idx.checked_sub(1)?;
    u64::from(size).checked_mul(u64::from(before))
}
