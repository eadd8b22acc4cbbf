// SPDX-License-Identifier: GPL-2.0

//! The peer's memory regions: up to 255, each with a key and address per link.
//!
//! Entries come from CLC accept and confirm and from CONFIRM_RKEY, and go with
//! DELETE_RKEY. Many connections may share one region, so a connection refers to
//! its entry by a [`RtokenRef`] that is no longer valid once the entry was deleted, even if its
//! place has been taken again. The memory of the table is the caller's: an array or a vector.

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
}

impl<const LINKS: usize> Entry<LINKS> {
    /// An unused place.
    pub const FREE: Entry<LINKS> = Entry {
        generation: 0,
        used: false,
        on_link: [None; LINKS],
    };
}

/// The table, for groups of up to `LINKS` links (1 to 3), in memory `S`: a mutable list of
/// [`Entry`], of which the first [`MAX_RTOKENS`] are used.
#[derive(Debug)]
pub struct RtokenTable<S, const LINKS: usize> {
    memory: S,
    used: u8,
}

impl<S: BorrowMut<[Entry<LINKS>]>, const LINKS: usize> RtokenTable<S, LINKS> {
    /// A table in `memory`, which holds [`Entry::FREE`] only.
    pub const fn new(memory: S) -> Self {
        RtokenTable { memory, used: 0 }
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

    /// The entry with this key on `link`.
    #[must_use]
    pub fn find(&self, link: usize, rkey: Rkey) -> Option<RtokenRef> {
        let index = self.entries().iter().position(|e| {
            let region = e.on_link.get(link).copied().flatten();
            e.used && region.is_some_and(|r| r.rkey == rkey)
        })?;
        self.refer(index)
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
        }
        let index = self.entries().iter().position(|e| !e.used)?;
        let e = self.at(index)?;
        e.used = true;
        e.on_link = [None; LINKS];
        *e.on_link.get_mut(link)? = Some(region);
        self.used = self.used.saturating_add(1);
        self.refer(index)
    }

    /// Adds what a known region is on a further link. False if the entry or link is not there.
    pub fn add_link(&mut self, at: RtokenRef, link: usize, region: Region) -> bool {
        match self.live(at).and_then(|e| e.on_link.get_mut(link)) {
            Some(slot) => {
                *slot = Some(region);
                true
            }
            None => false,
        }
    }

    fn live(&mut self, at: RtokenRef) -> Option<&mut Entry<LINKS>> {
        self.at(usize::from(at.index))
            .filter(|e| e.used && e.generation == at.generation)
    }

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

    /// Deletes the entry with this key on `link`; whether there was one.
    pub fn delete(&mut self, link: usize, rkey: Rkey) -> bool {
        match self.find(link, rkey) {
            Some(at) => {
                self.void(at);
                true
            }
            None => false,
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
