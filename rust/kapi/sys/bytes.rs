// SPDX-License-Identifier: GPL-2.0

//! The memory of a ring of bytes in which one program writes and another reads.
//!
//! As with [`crate::rdma::ring`] no reference into it exists: all access is copying by C functions, from
//! and to memory that is somebody else's.

use super::word::Count;
use core::ptr::NonNull;
use kernel::{
    alloc::flags::{GFP_KERNEL_ACCOUNT, __GFP_NOWARN},
    iov::{IovIterDest, IovIterSource},
    prelude::*,
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
/// use kernel::{
///     iov::{IovIterDest, IovIterSource},
///     prelude::*, //
/// };
///
/// fn largest(wanted: usize) -> Result<Ring> {
///     // Less when there is not that much.
///     Ring::new(wanted.next_power_of_two(), 0).or_else(|_| Ring::new(1 << 14, 0))
/// }
///
/// /// Has ten bytes go through a ring of eight.
/// fn wrap(ring: &Ring, from: &mut IovIterSource<'_>, to: &mut IovIterDest<'_>) {
///     assert_eq!(ring.write(0, 6, from), 6);
///     // What was never written is not read.
///     assert_eq!(ring.read(0, 8, to), 6);
///     // Two bytes go to the end of the memory, two to its beginning.
///     assert_eq!(ring.write(6, 4, from), 4);
///     assert_eq!(ring.read(6, 4, to), 4);
/// }
///
/// let ring = largest(5)?;
/// assert_eq!(ring.size(), 8);
/// # let mut bytes = [0; 10];
/// # crate::iov::with(b"0123456789", &mut bytes, |from, to| wrap(&ring, from, to));
/// # assert_eq!(&bytes, b"0123456789");
/// # Ok::<(), Error>(())
/// ```
pub struct Ring {
    start: NonNull<u8>,
    mask: usize,
    /// Position of the first byte of the memory. Changes while the ring is empty, and then seldom: readers
    /// have it in their caches.
    first: Count,
    filled: Count,
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
        // INVARIANT: The vector has that many bytes, and never moves.
        Ok(Self {
            start,
            mask: size.wrapping_sub(1),
            first: Count::new(first),
            filled: Count::new(0),
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
        position.wrapping_sub(self.first.get()) as usize & self.mask
    }

    /// Copies `len` bytes, at most the size, from `iter` to `position`; returns how many. May fault, so
    /// sleep.
    #[inline(always)]
    pub fn write(&self, position: u64, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        let at = self.place(position);
        let first = self.size().wrapping_sub(at);
        if len <= first {
            return self.write_at(at, len, iter);
        }
        self.write_around(at, len, first, iter)
    }

    #[inline(never)]
    fn write_around(
        &self,
        at: usize,
        len: usize,
        first: usize,
        iter: &mut IovIterSource<'_>,
    ) -> usize {
        match self.write_at(at, first, iter) {
            done if done < first => done,
            done => done.wrapping_add(self.write_at(0, self.rest(len, first), iter)),
        }
    }

    /// Copies like [`Ring::write`], but all of it or nothing: returns whether it was all, and if not,
    /// `iter` is where it was. What would be in two pieces is in one at the beginning of the memory if
    /// `is_empty`: if all has been read that was written, and nobody reads.
    #[inline(always)]
    pub fn write_all(
        &self,
        position: u64,
        len: usize,
        iter: &mut IovIterSource<'_>,
        is_empty: impl FnOnce() -> bool,
    ) -> bool {
        let at = self.place(position);
        let first = self.size().wrapping_sub(at);
        let done = if len <= first {
            self.write_at(at, len, iter)
        } else if is_empty() {
            // A reader that learns of bytes after this position sees this store, too.
            self.first.release(position);
            self.write_at(0, len, iter)
        } else {
            self.write_around(at, len, first, iter)
        };
        if done == len {
            return true;
        }
        // SAFETY: It was advanced by that many bytes just now.
        unsafe { iter.revert(done) };
        false
    }

    /// Returns how many of `len` bytes are left for the beginning of the memory when `first` fit to its end.
    #[inline]
    fn rest(&self, len: usize, first: usize) -> usize {
        len.min(self.size()).wrapping_sub(first)
    }

    /// Copies `len` bytes, which fit there, from `iter` to the place `at`.
    #[inline(always)]
    fn write_at(&self, at: usize, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        let len = len.min(self.size().wrapping_sub(at));
        let to = self.start.as_ptr().wrapping_add(at);
        // SAFETY: A place in the memory, with that many bytes after it; the iterator is valid as it is borrowed.
        let done = unsafe { bindings::_copy_from_iter(to.cast(), len, iter.as_raw()) };
        let filled = self.filled.get() as usize;
        if filled < self.size() && at <= filled {
            // INVARIANT: These bytes follow the ones that were written before, or are among them.
            self.filled
                .release(filled.max(at.wrapping_add(done)) as u64);
        }
        done
    }

    /// Copies `len` bytes from `position` on to `iter`; returns how many, none of those that were never
    /// written. May fault, so sleep.
    #[inline(always)]
    pub fn read(&self, position: u64, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        let at = self.place(position);
        let first = self.size().wrapping_sub(at);
        if len <= first {
            return self.read_at(at, len, iter);
        }
        self.read_around(at, len, first, iter)
    }

    #[inline(never)]
    fn read_around(
        &self,
        at: usize,
        len: usize,
        first: usize,
        iter: &mut IovIterDest<'_>,
    ) -> usize {
        match self.read_at(at, first, iter) {
            done if done < first => done,
            done => done.wrapping_add(self.read_at(0, self.rest(len, first), iter)),
        }
    }

    /// Copies `len` bytes from the place `at` to `iter`, as many as have been written there.
    #[inline(always)]
    fn read_at(&self, at: usize, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        let filled = self.filled.get() as usize;
        let len = match at.wrapping_add(len) <= filled {
            true => len,
            false => written(filled, at, len),
        };
        let from = self.start.as_ptr().wrapping_add(at);
        // SAFETY: A place in the memory, of which that many bytes have been written: both numbers are at most the size, so
        // their sum is what it seems. The iterator is valid as it is borrowed.
        unsafe { bindings::_copy_to_iter(from.cast(), len, iter.as_raw()) }
    }

    /// Copies what has been written before the position `end` to the same positions of another ring, at
    /// least as large, that nobody knows yet; from that one's first position on, of which `end` is at most
    /// this ring's size away.
    pub fn move_to(&self, end: u64, to: &mut Self) {
        let first = to.first.get();
        let len = (end.wrapping_sub(first) as usize).min(self.size());
        let mut done = 0usize;
        while done < len {
            let from = self.place(first.wrapping_add(done as u64));
            let written = (self.filled.get() as usize).saturating_sub(from);
            let part = len
                .wrapping_sub(done)
                .min(self.size().wrapping_sub(from))
                .min(to.size().saturating_sub(done))
                .min(written);
            if part == 0 {
                break;
            }
            // SAFETY: A part of either memory, and the two are different. What is copied has been written.
            unsafe {
                let target = to.start.as_ptr().wrapping_add(done);
                let from = self.start.as_ptr().wrapping_add(from);
                bindings::memcpy(target.cast(), from.cast(), part);
            }
            done = done.wrapping_add(part);
        }
        // INVARIANT: So much of the beginning is written now.
        to.filled.release(to.filled.get().max(done as u64));
    }
}

/// Returns how many of `len` bytes from the place `at` are among the first `filled`.
#[cold]
fn written(filled: usize, at: usize, len: usize) -> usize {
    len.min(filled.saturating_sub(at))
}
