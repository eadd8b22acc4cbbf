// SPDX-License-Identifier: GPL-2.0

//! Memory that a network card or a peer may write at any time.
//!
//! It is never a `&[u8]`: a reference promises the compiler that nobody else writes, and a hostile
//! peer can always write. All access is copying by C functions, from and to memory that is ours.

use core::ptr::NonNull;
use kernel::{
    iov::{IovIterDest, IovIterSource},
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use smc_bindings as bindings;

/// Bytes of the largest block: the largest ring then is one.
const BLOCK: usize = 1 << 20;

/// Neighbouring pages, as many as a power of two.
///
/// # Invariants
///
/// `first` is the first page of an allocation of `order`, and `addr` the kernel's address of its first byte.
struct Block {
    first: NonNull<bindings::page>,
    addr: NonNull<u8>,
    /// The end of the block in the range of all.
    end: usize,
    order: u32,
}

impl Block {
    /// Returns its size in bytes.
    #[inline]
    fn len(&self) -> usize {
        PAGE_SIZE << self.order
    }
}

/// A part of a block, for a scatter list.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) page: *mut bindings::page,
    pub(super) len: usize,
}

/// Zeroed memory in blocks of pages, seen as one range of bytes.
///
/// # Invariants
///
/// - This object owns the blocks. They follow each other in the range: each `end` is that of the block before plus
///   the block's size.
/// - `start` is the address of the first block, and `near` its size: most often that is all.
/// - The memory is only accessed by devices and by functions of C.
pub struct Pages {
    start: NonNull<u8>,
    near: usize,
    blocks: KVec<Block>,
}

// SAFETY: Raw memory without a thread.
unsafe impl Send for Pages {}
// SAFETY: Concurrent copies mix bytes, like concurrent DMA; no reference to the memory exists.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates enough pages for `len` bytes, on NUMA node `node` if there are some, in as few blocks as is easy.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for zero bytes, `ENOMEM`.
    pub(super) fn new(len: usize, node: i32) -> Result<Arc<Self>> {
        if len == 0 {
            return Err(EINVAL);
        }
        let mut left = len.div_ceil(PAGE_SIZE);
        let mut this = Self {
            start: NonNull::dangling(),
            near: 0,
            blocks: KVec::new(),
        };
        let mut most = (BLOCK / PAGE_SIZE).checked_ilog2().unwrap_or(0);
        while left > 0 {
            // What could not be had is not asked for again.
            most = this.grow(node, most.min(left.ilog2()))?;
            left = left.wrapping_sub(1 << most);
        }
        let first = this.blocks.first().ok_or(ENOMEM)?;
        // INVARIANT: The first block.
        (this.start, this.near) = (first.addr, first.len());
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Adds a block of at most `order`; returns of which.
    fn grow(&mut self, node: i32, mut order: u32) -> Result<u32> {
        self.blocks.reserve(1, GFP_KERNEL)?;
        let first = loop {
            // SAFETY: The node is that of a device, or none.
            let page = unsafe { bindings::alloc_zeroed_pages(node, order) };
            match NonNull::new(page) {
                Some(page) => break page,
                None => order = order.checked_sub(1).ok_or(ENOMEM)?,
            }
        };
        // SAFETY: The page is valid. It is not from high memory, so it has an address, which is not null.
        let addr = unsafe { NonNull::new_unchecked(bindings::page_address(first.as_ptr())) };
        let mut block = Block {
            first,
            addr: addr.cast(),
            end: 0,
            order,
        };
        block.end = self.len().wrapping_add(block.len());
        // INVARIANT: Ours, of this order, behind the last one. There is room for it.
        self.blocks.push(block, GFP_KERNEL)?;
        Ok(order)
    }

    /// Returns the number of bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.end)
    }

    /// Returns the number of [`Pages::pieces`].
    pub(super) fn count(&self, most: usize) -> usize {
        let count = |block: &Block| block.len().div_ceil(most.max(1));
        self.blocks.iter().map(count).sum()
    }

    /// Returns the blocks in pieces of `most` bytes, which is a power of two of at least a page.
    pub(super) fn pieces(&self, most: usize) -> impl Iterator<Item = Piece> + '_ {
        self.blocks.iter().flat_map(move |block| {
            let len = block.len().min(most);
            (0..block.len()).step_by(len).map(move |at| Piece {
                // SAFETY: `at` is inside the block, whose descriptors lie one after another.
                page: unsafe { block.first.add(at / PAGE_SIZE) }.as_ptr(),
                len,
            })
        })
    }

    /// Returns the kernel's address of the byte at `offset`, and how many bytes there are from
    /// there on without a gap.
    #[inline]
    pub(super) fn at(&self, offset: usize) -> Option<(NonNull<u8>, usize)> {
        if offset >= self.near {
            return self.at_far(offset);
        }
        // SAFETY: Inside the first block.
        let addr = unsafe { self.start.add(offset) };
        Some((addr, self.near.wrapping_sub(offset)))
    }

    #[inline(never)]
    fn at_far(&self, offset: usize) -> Option<(NonNull<u8>, usize)> {
        let index = self.blocks.partition_point(|block| block.end <= offset);
        let block = self.blocks.get(index)?;
        let left = block.end.wrapping_sub(offset);
        // SAFETY: Inside the block: the one before, if there is one, ends at or before `offset`.
        let addr = unsafe { block.addr.add(block.len().wrapping_sub(left)) };
        Some((addr, left))
    }

    /// Returns the kernel's address of the `len` bytes at `offset`, if they are in the first block, as they mostly are.
    #[inline]
    pub(super) fn near(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let fits = offset <= self.near && len <= self.near.wrapping_sub(offset);
        // SAFETY: Inside the first block, or at its end.
        fits.then(|| unsafe { self.start.add(offset) })
    }

    /// Calls `f(pointer, length, done before)` piece by piece, until it does less than asked.
    ///
    /// Returns how much was done. Every pointer is valid for its length.
    #[inline]
    fn walk(
        &self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(*mut u8, usize, usize) -> usize,
    ) -> usize {
        let mut done = 0usize;
        while done < len {
            let Some((ptr, room)) = offset.checked_add(done).and_then(|at| self.at(at)) else {
                break;
            };
            let n = room.min(len.wrapping_sub(done));
            let did = f(ptr.as_ptr(), n, done).min(n);
            done = done.wrapping_add(did);
            if did < n {
                break;
            }
        }
        done
    }

    pub(super) fn copy_out(&self, offset: usize, out: &mut [u8]) -> usize {
        let dst = out.as_mut_ptr();
        self.walk(offset, out.len(), |src, n, done| {
            // SAFETY: `src` is valid for `n` bytes, and `done + n <= out.len()`. The copy is done
            // by C, so it may race with the device: some bytes are copied, old or new.
            unsafe { bindings::memcpy(dst.add(done).cast(), src.cast(), n) };
            n
        })
    }

    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8]) -> usize {
        let src = bytes.as_ptr();
        self.walk(offset, bytes.len(), |dst, n, done| {
            // SAFETY: `dst` is valid for `n` bytes, and `done + n <= bytes.len()`.
            unsafe { bindings::memcpy(dst.cast(), src.add(done).cast(), n) };
            n
        })
    }

    #[inline]
    pub(super) fn copy_out_iter(
        &self,
        offset: usize,
        len: usize,
        iter: &mut IovIterDest<'_>,
    ) -> usize {
        match self.near(offset, len) {
            // SAFETY: `src` is valid for `len` bytes; the iterator is valid as it is borrowed.
            Some(src) => unsafe {
                bindings::_copy_to_iter(src.as_ptr().cast(), len, iter.as_raw()).min(len)
            },
            None => self.copy_out_iter_far(offset, len, iter),
        }
    }

    #[inline(never)]
    fn copy_out_iter_far(&self, offset: usize, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        let iter = iter.as_raw();
        self.walk(offset, len, |src, n, _| {
            // SAFETY: `src` is valid for `n` bytes; the iterator is valid as it is borrowed.
            unsafe { bindings::_copy_to_iter(src.cast(), n, iter) }
        })
    }

    #[inline]
    pub(super) fn copy_in_iter(
        &self,
        offset: usize,
        len: usize,
        iter: &mut IovIterSource<'_>,
    ) -> usize {
        match self.near(offset, len) {
            // SAFETY: `dst` is valid for `len` bytes; the iterator is valid as it is borrowed.
            Some(dst) => unsafe {
                bindings::_copy_from_iter(dst.as_ptr().cast(), len, iter.as_raw()).min(len)
            },
            None => self.copy_in_iter_far(offset, len, iter),
        }
    }

    #[inline(never)]
    fn copy_in_iter_far(&self, offset: usize, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        let iter = iter.as_raw();
        self.walk(offset, len, |dst, n, _| {
            // SAFETY: `dst` is valid for `n` bytes; the iterator is valid as it is borrowed.
            unsafe { bindings::_copy_from_iter(dst.cast(), n, iter) }
        })
    }

    pub(super) fn zero(&self, offset: usize, len: usize) -> usize {
        self.walk(offset, len, |dst, n, _| {
            // SAFETY: `dst` is valid for `n` bytes.
            unsafe { bindings::memset(dst.cast(), 0, n) };
            n
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for block in &self.blocks {
            // SAFETY: Owned by the invariant, of this order. Every mapping of the block owns an `Arc` of this
            // object, so no device uses it. Any context will do.
            unsafe { bindings::__free_pages(block.first.as_ptr(), block.order) };
        }
    }
}
