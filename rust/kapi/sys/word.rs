// SPDX-License-Identifier: GPL-2.0

//! Numbers that are only read and written whole.
//!
//! An `Atomic` of the kernel crate calls a function for each access, as it has to for what needs an
//! order or changes a value in place. A mark that is on the way of every message needs neither.

use core::{cell::UnsafeCell, ptr};

/// A number for several threads, without any order to what is around it: `READ_ONCE()` and
/// `WRITE_ONCE()` of C. Locks give the order where one is needed.
pub struct Word(UnsafeCell<u32>);

// SAFETY: All accesses are volatile and of one aligned machine word or less, which the kernel's memory
// model takes for whole.
unsafe impl Sync for Word {}

impl Word {
    /// Makes a word of a number.
    pub const fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the number.
    #[inline]
    pub fn get(&self) -> u32 {
        // SAFETY: The place is valid, and nobody has a reference into it. See `Sync`.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    /// Writes the number.
    #[inline]
    pub fn set(&self, value: u32) {
        // SAFETY: As in `get`.
        unsafe { ptr::write_volatile(self.0.get(), value) };
    }
}
