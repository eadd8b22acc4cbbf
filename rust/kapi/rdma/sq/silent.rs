// SPDX-License-Identifier: GPL-2.0

//! The chains of whose end the device does not tell, on their way to the handler.

use super::{Held, MOST_SILENT};
use core::mem::{self, MaybeUninit};

/// Room for as many of them as one completion may end before its own chain.
pub(in crate::rdma) type Room<T> = [MaybeUninit<Held<T>>; MOST_SILENT];

/// No room is taken. It is not filled in, as an array of options would be: most completions of a queue need little of it.
#[inline]
pub(in crate::rdma) fn room<T>() -> Room<T> {
    [const { MaybeUninit::uninit() }; MOST_SILENT]
}

/// The chains, oldest first, that one completion ends before its own: those that were not signaled.
///
/// # Invariants
///
/// The first `len` of `chains` are initialised.
pub(in crate::rdma) struct Silent<'a, T> {
    chains: &'a mut Room<T>,
    len: usize,
}

impl<'a, T> Silent<'a, T> {
    /// None.
    #[inline]
    pub(in crate::rdma) fn new(chains: &'a mut Room<T>) -> Self {
        // INVARIANT: There are none.
        Self { chains, len: 0 }
    }

    /// Tells whether there is no room for one more.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len >= MOST_SILENT
    }

    /// Takes over what the slot of a chain has held, if there is room for it.
    #[inline]
    pub(super) fn take(&mut self, held: &mut Held<T>) {
        if let Some(place) = self.chains.get_mut(self.len) {
            place.write(mem::replace(held, Held::NONE));
            // INVARIANT: Just written.
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Takes all out, and calls `f` for each.
    #[inline]
    pub(in crate::rdma) fn drain(&mut self, mut f: impl FnMut(Held<T>)) {
        // INVARIANT: There are none any more, whatever `f` does.
        let len = mem::replace(&mut self.len, 0);
        for place in self.chains.iter().take(len) {
            // SAFETY: One of the first `len`, which is read once, as `len` is 0 since.
            f(unsafe { place.assume_init_read() });
        }
    }
}

impl<T> Drop for Silent<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.len > 0 {
            self.drain(drop);
        }
    }
}
