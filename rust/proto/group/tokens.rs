// SPDX-License-Identifier: GPL-2.0

//! Alert tokens: how CDC messages name our connections.
//!
//! The peer stores a token and sends it back, so its bits are ours to choose (smc-protocol.md
//! 2.14): the low byte is the connection's slot in its group plus one, hence never zero, the rest
//! a counter. Finding a connection is an array access, and a late message for an earlier user of
//! the slot does not match.

use core::borrow::BorrowMut;

use crate::wire::ids::AlertToken;

/// Most connections in a group.
pub const MAX_CONNS: usize = 255;

/// The tokens of a group's connections, in memory `S`: a mutable list of numbers, zero for a free
/// slot, of which the first [`MAX_CONNS`] are used.
#[derive(Debug)]
pub struct TokenTable<S> {
    memory: S,
    counter: u32,
    next: usize,
}

impl<S: BorrowMut<[u32]>> TokenTable<S> {
    /// A table in `memory`, all zero; `seed` is any number, best a random one.
    pub const fn new(memory: S, seed: u32) -> TokenTable<S> {
        TokenTable {
            memory,
            counter: seed,
            next: 0,
        }
    }

    fn tokens(&self) -> &[u32] {
        let all = self.memory.borrow();
        all.get(..MAX_CONNS).unwrap_or(all)
    }

    /// The first free slot at or after `from`.
    fn free_from(&self, from: usize) -> Option<usize> {
        let found = self.tokens().get(from..)?.iter().position(|t| *t == 0)?;
        Some(found.wrapping_add(from))
    }

    /// A token for a new connection and its slot; `None` if all slots are taken. Slots are used
    /// in turn, so that a freed one rests as long as possible.
    pub fn alloc(&mut self) -> Option<(AlertToken, u8)> {
        let slot = self.free_from(self.next).or_else(|| self.free_from(0))?;
        // Slots are below 255, so the low byte of a token is never zero.
        let number = u8::try_from(slot).ok()?;
        self.counter = self.counter.wrapping_add(1);
        let token = self.counter.wrapping_shl(8) | u32::from(number.wrapping_add(1));
        *self.memory.borrow_mut().get_mut(slot)? = token;
        self.next = slot.wrapping_add(1);
        Some((AlertToken(token), number))
    }

    /// The slot of a live token.
    #[must_use]
    pub fn slot(&self, token: AlertToken) -> Option<u8> {
        let slot = (token.0 as u8).checked_sub(1)?;
        let held = *self.tokens().get(usize::from(slot))?;
        (held == token.0).then_some(slot)
    }

    /// Gives a token up; whether it was live.
    pub fn free(&mut self, token: AlertToken) -> bool {
        let Some(slot) = self.slot(token) else {
            return false;
        };
        if let Some(t) = self.memory.borrow_mut().get_mut(usize::from(slot)) {
            *t = 0;
        }
        true
    }

    /// Number of live tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        let used = self.tokens().iter().filter(|t| **t != 0);
        used.fold(0, |n: usize, _| n.wrapping_add(1))
    }

    /// Whether there is no live token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
