// SPDX-License-Identifier: GPL-2.0

//! A value that is set once and then read on the way of every message.
//!
//! As `SetOnce` of the kernel crate, which calls a function for each look at it.

use super::word::Count;
use core::{cell::UnsafeCell, mem::MaybeUninit};

const EMPTY: u64 = 0;
const BUSY: u64 = 1;
const SET: u64 = 2;

/// A place for a value.
///
/// # Invariants
///
/// `state` only grows: from `EMPTY` to `BUSY` by one thread alone, which then writes `value` and sets it to
/// `SET`. From then on `value` is initialised and does not change until this is dropped.
///
/// # Examples
///
/// ```
/// use kapi::sys::once::Once;
///
/// static ANSWER: Once<u32> = Once::new();
///
/// fn answer() -> u32 {
///     // The first value stays; later ones are dropped.
///     ANSWER.set(42);
///     ANSWER.get().copied().unwrap_or(0)
/// }
/// ```
pub struct Once<T> {
    state: Count,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: A value and a number go with it to another thread.
unsafe impl<T: Send> Send for Once<T> {}
// SAFETY: Whoever shares this may set a value, which another thread drops, and gets shared references to
// it. `value` is written by one thread alone, before others see `SET`.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Once<T> {
    /// Creates an empty place.
    pub const fn new() -> Self {
        // INVARIANT: Nobody has begun to set it.
        Self {
            state: Count::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Returns the value, if it is set; what its setter did before is seen then, too.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.state.acquire() == SET {
            // SAFETY: By the type invariant it is initialised, and nobody writes it while this is borrowed.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        } else {
            None
        }
    }

    /// Sets the value. Returns false, and drops it, if there is one already or another thread is setting it.
    pub fn set(&self, value: T) -> bool {
        if !self.state.replace(EMPTY, BUSY) {
            return false;
        }
        // SAFETY: By the type invariant nobody else writes, and nobody reads before `SET`.
        unsafe { (*self.value.get()).write(value) };
        // INVARIANT: It is initialised now.
        self.state.release(SET);
        true
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if self.state.get() == SET {
            // SAFETY: By the type invariant it is initialised; nobody else refers to it any more.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}
