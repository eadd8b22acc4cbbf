// SPDX-License-Identifier: GPL-2.0

//! The memory of a ring of bytes in which one program writes and another reads.
//!
//! As with [`crate::rdma::ring`] no reference into it exists: all access is copying by C functions, from
//! and to memory that is somebody else's.

use core::ptr::NonNull;
use kernel::{
    alloc::flags::{GFP_KERNEL_ACCOUNT, __GFP_NOWARN},
    iov::{IovIterDest, IovIterSource},
    prelude::*,
    sync::atomic::{Atomic, Relaxed}, //
};
use smc_bindings as bindings;

/// A ring whose size is a power of two. Positions count bytes, from any number on.
///
/// # Invariants
///
/// `start` points to `mask + 1` bytes, those of `_memory`. The first `filled` of them have been written.
///
/// # Examples
///
/// ```
/// use kapi::sys::bytes::Ring;
/// use kernel::prelude::*;
///
/// fn largest(wanted: usize) -> Result<Ring> {
///     // Less when there is not that much.
///     Ring::new(wanted.next_power_of_two(), 0).or_else(|_| Ring::new(1 << 14, 0))
/// }
/// ```
pub struct Ring {
    start: NonNull<u8>,
    mask: usize,
    /// Position of the first byte of the memory.
    first: u64,
    filled: Atomic<usize>,
    _memory: KVVec<u8>,
}

// SAFETY: Raw memory without a thread.
unsafe impl Send for Ring {}
// SAFETY: Concurrent copies may mix bytes, but no reference to the memory exists.
unsafe impl Sync for Ring {}

impl Ring {
    /// Allocates a ring of `size` bytes, of which the one at position `first` will be written first. It is
    /// charged to the control group of the caller. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a size that is no power of two, `ENOMEM`.
    pub fn new(size: usize, first: u64) -> Result<Self> {
        if !size.is_power_of_two() {
            return Err(EINVAL);
        }
        let flags = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
        let mut memory = KVVec::<u8>::with_capacity(size, flags)?;
        let start = NonNull::new(memory.as_mut_ptr()).ok_or(ENOMEM)?;
        // INVARIANT: The vector has so much room, and never moves.
        Ok(Self {
            start,
            mask: size.wrapping_sub(1),
            first,
            filled: Atomic::new(0),
            _memory: memory,
        })
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.mask.wrapping_add(1)
    }

    /// Returns the place of the byte at a position.
    #[inline]
    fn place(&self, position: u64) -> usize {
        position.wrapping_sub(self.first) as usize & self.mask
    }

    /// Calls `f` with the one or two pieces of memory that `len` bytes from `position` on are in, until it
    /// does less than asked. Returns how much was done.
    #[inline(always)]
    fn pieces(
        &self,
        position: u64,
        len: usize,
        mut f: impl FnMut(*mut u8, usize, usize) -> usize,
    ) -> usize {
        let at = self.place(position);
        let len = len.min(self.size());
        let room = self.size().wrapping_sub(at);
        if len <= room {
            return f(self.start.as_ptr().wrapping_add(at), at, len);
        }
        self.two_pieces(at, len, f)
    }

    #[inline(never)]
    fn two_pieces(
        &self,
        at: usize,
        len: usize,
        mut f: impl FnMut(*mut u8, usize, usize) -> usize,
    ) -> usize {
        let first = len.min(self.size().wrapping_sub(at));
        let done = f(self.start.as_ptr().wrapping_add(at), at, first);
        if done < first || first == len {
            return done;
        }
        let rest = f(self.start.as_ptr(), 0, len.wrapping_sub(first));
        done.wrapping_add(rest)
    }

    /// Copies `len` bytes, at most the size, from `iter` to `position`; returns how many. May fault, so
    /// sleep.
    #[inline]
    pub fn write(&self, position: u64, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        let iter = iter.as_raw();
        self.pieces(position, len, |to, at, len| {
            // SAFETY: `pieces` passes a part of the memory; the iterator is valid as it is borrowed.
            let done = unsafe { bindings::_copy_from_iter(to.cast(), len, iter) };
            let filled = self.filled.load(Relaxed);
            if filled < self.size() && at <= filled {
                // INVARIANT: These bytes follow the ones that were written before, or are among them.
                self.filled
                    .store(filled.max(at.wrapping_add(done)), Relaxed);
            }
            done
        })
    }

    /// Copies `len` bytes from `position` on to `iter`; returns how many, none of those that were never
    /// written. May fault, so sleep.
    #[inline]
    pub fn read(&self, position: u64, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        let iter = iter.as_raw();
        self.pieces(position, len, |from, at, len| {
            let len = len.min(self.filled.load(Relaxed).saturating_sub(at));
            // SAFETY: `pieces` passes a part of the memory, and this of it has been written. The iterator is
            // valid as it is borrowed.
            unsafe { bindings::_copy_to_iter(from.cast(), len, iter) }
        })
    }

    /// Copies `len` bytes from `position` on to `out`, as many as fit there; returns how many.
    pub fn read_slice(&self, position: u64, out: &mut [u8]) -> usize {
        let mut to = out.as_mut_ptr();
        self.pieces(position, out.len(), |from, at, len| {
            let len = len.min(self.filled.load(Relaxed).saturating_sub(at));
            // SAFETY: As in `read`; all pieces together are as long as `out`.
            unsafe { bindings::memcpy(to.cast(), from.cast(), len) };
            to = to.wrapping_add(len);
            len
        })
    }

    /// Copies the `len` bytes from `position` on to the same positions of another ring, at least as large,
    /// that nobody knows yet.
    pub fn move_to(&self, position: u64, len: usize, to: &mut Self) {
        // The positions are somewhere in the midst of it, so what lies before them is cleared.
        // SAFETY: The whole memory of the other ring, which is borrowed for writing.
        unsafe { bindings::memset(to.start.as_ptr().cast(), 0, to.size()) };
        // INVARIANT: Cleared is written.
        to.filled.store(to.size(), Relaxed);
        let len = len.min(self.size());
        let mut done = 0usize;
        while done < len {
            let position = position.wrapping_add(done as u64);
            let (from, target) = (self.place(position), to.place(position));
            let part = len
                .wrapping_sub(done)
                .min(self.size().wrapping_sub(from))
                .min(to.size().wrapping_sub(target));
            // SAFETY: A part of either memory, and the two are different.
            unsafe {
                let target = to.start.as_ptr().wrapping_add(target);
                let from = self.start.as_ptr().wrapping_add(from);
                bindings::memcpy(target.cast(), from.cast(), part);
            }
            done = done.wrapping_add(part);
        }
    }
}
