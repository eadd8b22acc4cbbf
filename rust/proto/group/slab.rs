// SPDX-License-Identifier: GPL-2.0

//! Allocates the RMBEs of a slab.
//!
//! A slab is one memory region cut into RMBEs of one size; on the wire an RMBE is the region's
//! key and address plus an index from 1 to 255. An index whose connection
//! ended without the peer's word is quarantined: the peer may still write there, so it stays
//! unused until the link is gone.

/// Most RMBEs in a slab.
pub const MAX_RMBES: u8 = 255;

/// Index of an RMBE, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct RmbeIdx(u8);

impl RmbeIdx {
    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Number of RMBEs before it in the slab.
    #[must_use]
    pub const fn before(self) -> u8 {
        self.0.wrapping_sub(1)
    }
}

/// Allocation state of a slab.
#[derive(Clone, Copy, Debug)]
pub struct Slab {
    used: [u64; 4],
    capacity: u8,
    in_use: u8,
    quarantined: u8,
}

impl Slab {
    /// A slab of `capacity` RMBEs, all free; `None` for zero.
    #[must_use]
    pub const fn new(capacity: u8) -> Option<Slab> {
        if capacity == 0 {
            return None;
        }
        Some(Slab {
            used: [0; 4],
            capacity,
            in_use: 0,
            quarantined: 0,
        })
    }

    /// The lowest free index.
    pub fn alloc(&mut self) -> Option<RmbeIdx> {
        let mut first = 0u8;
        for word in &mut self.used {
            let bit = word.trailing_ones();
            if let Some(mask) = 1u64.checked_shl(bit) {
                // At most 192 + 63.
                let index = first.wrapping_add(bit as u8);
                if index >= self.capacity {
                    return None;
                }
                *word |= mask;
                self.in_use = self.in_use.saturating_add(1);
                return Some(RmbeIdx(index.wrapping_add(1)));
            }
            first = first.wrapping_add(64);
        }
        None
    }

    fn bit(index: RmbeIdx) -> (usize, u64) {
        let i = index.before();
        (
            usize::from(i.wrapping_shr(6)),
            1u64.wrapping_shl(u32::from(i & 63)),
        )
    }

    /// Gives an index back; with `reusable` false it is quarantined instead. Whether it was taken.
    pub fn free(&mut self, index: RmbeIdx, reusable: bool) -> bool {
        let (word, mask) = Slab::bit(index);
        let Some(word) = self.used.get_mut(word).filter(|w| **w & mask != 0) else {
            return false;
        };
        self.in_use = self.in_use.saturating_sub(1);
        if reusable {
            *word &= !mask;
        } else {
            self.quarantined = self.quarantined.saturating_add(1);
        }
        true
    }

    /// RMBEs held by connections.
    #[must_use]
    pub const fn in_use(&self) -> u8 {
        self.in_use
    }

    /// RMBEs that are quarantined until the link is gone.
    #[must_use]
    pub const fn quarantined(&self) -> u8 {
        self.quarantined
    }

    /// Reports whether the slab can be deregistered without anybody's loss: nobody has a part of it, and
    /// the peer writes into none.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.in_use == 0 && self.quarantined == 0
    }

    /// Number of RMBEs that can still be given out.
    #[must_use]
    pub const fn available(&self) -> u8 {
        self.capacity
            .saturating_sub(self.in_use)
            .saturating_sub(self.quarantined)
    }
}
