// SPDX-License-Identifier: GPL-2.0

//! Alert tokens: how CDC messages name our connections.
//!
//! The peer stores a token and sends it back, so its bits are ours to choose:
//! the low byte is the connection's index in its group plus one, hence never zero, the rest
//! counts the users of that index. Finding a connection is an array access, and a late message for
//! an earlier user of the index does not match, even if it names only the lower half of the token:
//! indices are used in turn, so the half comes back after some 65,000 connections, and never before
//! the index has had 255 other users.

use core::borrow::BorrowMut;

use crate::wire::ids::AlertToken;

/// Most connections in a group.
pub const MAX_CONNS: usize = 255;

/// The index of the connection whose token has this low byte; `None` if there is no such token.
#[inline]
#[must_use]
pub const fn place(low: u8) -> Option<u8> {
    low.checked_sub(1)
}

/// The tokens of a group's connections, in memory `S`: a mutable list of numbers, of which the
/// first [`MAX_CONNS`] are used. Of a free index the low byte is zero, the rest as it was.
#[derive(Debug)]
pub struct TokenTable<S> {
    memory: S,
    seed: u32,
    next: usize,
}

/// Reports whether this is a token, and not a free index.
#[inline]
const fn is_live(token: u32) -> bool {
    token as u8 != 0
}

impl<S: BorrowMut<[u32]>> TokenTable<S> {
    /// A table in `memory`, all zero; `seed` is any number, best a random one.
    pub const fn new(memory: S, seed: u32) -> TokenTable<S> {
        TokenTable {
            memory,
            seed,
            next: 0,
        }
    }

    #[inline]
    fn tokens(&self) -> &[u32] {
        let all = self.memory.borrow();
        all.get(..MAX_CONNS).unwrap_or(all)
    }

    /// The first free index at or after `from`.
    fn free_from(&self, from: usize) -> Option<usize> {
        let found = self
            .tokens()
            .get(from..)?
            .iter()
            .position(|t| !is_live(*t))?;
        Some(found.wrapping_add(from))
    }

    /// A token for a new connection and its index; `None` if all are taken. They are used
    /// in turn, so that a freed one rests as long as possible.
    pub fn alloc(&mut self) -> Option<(AlertToken, u8)> {
        let index = self.free_from(self.next).or_else(|| self.free_from(0))?;
        // Indices are below 255, so the low byte of a token is never zero.
        let number = u8::try_from(index).ok()?;
        let place = self.memory.borrow_mut().get_mut(index)?;
        let users = match *place {
            0 => self.seed,
            before => (before >> 8).wrapping_add(1),
        };
        // The word of an index that was used is never zero.
        let users = (users & 0xff_ffff).max(1);
        let token = (users << 8) | u32::from(number.wrapping_add(1));
        *place = token;
        self.next = index.wrapping_add(1);
        Some((AlertToken(token), number))
    }

    /// The index of a live token.
    #[inline]
    #[must_use]
    pub fn index(&self, token: AlertToken) -> Option<u8> {
        let index = place(token.0 as u8)?;
        let held = *self.tokens().get(usize::from(index))?;
        (held == token.0).then_some(index)
    }

    /// The index of the live token whose lower half this is.
    #[inline]
    #[must_use]
    pub fn index_by_hint(&self, hint: u16) -> Option<u8> {
        let index = place(hint as u8)?;
        let held = *self.tokens().get(usize::from(index))?;
        (held as u16 == hint).then_some(index)
    }

    /// Gives a token up; whether it was live.
    pub fn free(&mut self, token: AlertToken) -> bool {
        let Some(index) = self.index(token) else {
            return false;
        };
        if let Some(t) = self.memory.borrow_mut().get_mut(usize::from(index)) {
            *t &= !0xff;
        }
        true
    }

    /// Number of live tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        let used = self.tokens().iter().filter(|t| is_live(**t));
        used.fold(0, |n: usize, _| n.wrapping_add(1))
    }

    /// Reports whether there is no live token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
