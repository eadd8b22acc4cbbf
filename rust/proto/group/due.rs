// SPDX-License-Identifier: GPL-2.0

//! Keeps the connections of a link that want to send, in turn.
//!
//! A connection that raised `TX_DUE` is entered by its index, once however often it asks. Whenever
//! the link has a free send slot, the next one in turn is taken out and gives its latest state.
//! The turn goes round, so none starves.

/// A set of indices 0 to 254, taken in turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct DueSet {
    bits: [u64; 4],
    /// Number of indices in the set. Kept, as each message asks twice whether there is one.
    len: u16,
    /// Index at which the next search begins.
    turn: u8,
}

impl DueSet {
    /// No connection wants to send.
    #[must_use]
    pub const fn new() -> DueSet {
        DueSet {
            bits: [0; 4],
            len: 0,
            turn: 0,
        }
    }

    #[inline]
    fn split(index: u8) -> (usize, u32) {
        (usize::from(index.wrapping_shr(6)), u32::from(index & 63))
    }

    /// Enters an index; whether it was not there yet.
    #[inline]
    pub fn insert(&mut self, index: u8) -> bool {
        let (word, bit) = DueSet::split(index);
        let mask = 1u64.wrapping_shl(bit);
        match self.bits.get_mut(word) {
            Some(w) if *w & mask == 0 => {
                *w |= mask;
                self.len = self.len.wrapping_add(1);
                true
            }
            _ => false,
        }
    }

    /// Takes an index out, for instance because its connection has ended; whether it was there.
    #[inline]
    pub fn remove(&mut self, index: u8) -> bool {
        let (word, bit) = DueSet::split(index);
        let mask = 1u64.wrapping_shl(bit);
        match self.bits.get_mut(word) {
            Some(w) if *w & mask != 0 => {
                *w &= !mask;
                self.len = self.len.wrapping_sub(1);
                true
            }
            _ => false,
        }
    }

    /// Takes the next index in turn out.
    #[inline]
    pub fn pop(&mut self) -> Option<u8> {
        let index = self
            .at_or_after(self.turn)
            .or_else(|| self.at_or_after(0))?;
        self.remove(index);
        self.turn = index.wrapping_add(1);
        Some(index)
    }

    /// The first index from `from` on.
    #[inline]
    fn at_or_after(&self, from: u8) -> Option<u8> {
        let (first, bit) = DueSet::split(from);
        let mut keep = u64::MAX.wrapping_shl(bit);
        let mut base = from & 0xc0;
        for word in self.bits.get(first..)? {
            let hit = word & keep;
            if hit != 0 {
                // At most 192 + 63.
                return Some(base.wrapping_add(hit.trailing_zeros() as u8));
            }
            keep = u64::MAX;
            base = base.wrapping_add(64);
        }
        None
    }

    /// Reports whether no connection wants to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
