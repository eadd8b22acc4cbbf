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
use crate::wire::immediate::Immediate;

/// Most connections in a group.
pub const MAX_CONNS: usize = 255;

/// A connection as what arrives for it names it, by a token or the lower half of one. Whoever has the connections by
/// index looks at one place, and compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    bits: u32,
    mask: u32,
}

impl Name {
    /// The name in a CDC message.
    #[inline]
    #[must_use]
    pub const fn of(token: AlertToken) -> Name {
        Name {
            bits: token.0,
            mask: u32::MAX,
        }
    }

    /// The name in an immediate.
    #[inline]
    #[must_use]
    pub const fn of_immediate(immediate: Immediate) -> Name {
        Name {
            bits: immediate.hint() as u32,
            mask: 0xffff,
        }
    }

    /// The one index at which the connection may be; `None` if no token is so named.
    #[inline]
    #[must_use]
    pub const fn index(self) -> Option<u8> {
        (self.bits as u8).checked_sub(1)
    }

    /// Reports whether the connection with this token is meant.
    #[inline]
    #[must_use]
    pub const fn is(self, token: AlertToken) -> bool {
        token.0 & self.mask == self.bits
    }
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

    /// The index of the live token that is so named.
    #[must_use]
    pub fn index(&self, name: Name) -> Option<u8> {
        let index = name.index()?;
        let held = *self.tokens().get(usize::from(index))?;
        name.is(AlertToken(held)).then_some(index)
    }

    /// Gives a token up; whether it was live.
    pub fn free(&mut self, token: AlertToken) -> bool {
        let Some(index) = self.index(Name::of(token)) else {
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
