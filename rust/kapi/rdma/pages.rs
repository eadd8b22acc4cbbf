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

/// Pages are taken in groups of up to two to this power when that is easy, because neighbours
/// need only one element of a work request.
const ORDER: u32 = 3;

/// Zeroed order-0 pages, seen as one range of bytes.
///
/// # Invariants
///
/// - Each element of `pages` is an order-0 page that this object owns.
/// - `addrs[i].0` is where the kernel has `pages[i]` mapped. The `addrs[i].1` bytes from there on lie in pages of
///   this object.
/// - The memory is only accessed by devices and by functions of C.
pub struct Pages {
    addrs: KVec<(NonNull<u8>, usize)>,
    pages: KVec<NonNull<bindings::page>>,
}

// SAFETY: Raw memory without a thread.
unsafe impl Send for Pages {}
// SAFETY: Concurrent copies mix bytes, like concurrent DMA; no reference to the memory exists.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates enough pages for `len` bytes. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for zero bytes, `ENOMEM`.
    pub(super) fn new(len: usize) -> Result<Arc<Self>> {
        if len == 0 {
            return Err(EINVAL);
        }
        let count = len.div_ceil(PAGE_SIZE);
        let mut this = Self {
            addrs: KVec::with_capacity(count, GFP_KERNEL)?,
            pages: KVec::with_capacity(count, GFP_KERNEL)?,
        };
        while this.pages.len() < count {
            this.grow(count.wrapping_sub(this.pages.len()))?;
        }
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Adds between one and `wanted` pages. The lists have room for them.
    fn grow(&mut self, wanted: usize) -> Result {
        let mut order = wanted.checked_ilog2().unwrap_or(0).min(ORDER);
        let first = loop {
            // SAFETY: No preconditions.
            let page = unsafe {
                match order {
                    0 => bindings::alloc_zeroed_page(),
                    _ => bindings::try_alloc_zeroed_pages(order),
                }
            };
            match NonNull::new(page) {
                Some(page) => break page,
                None if order == 0 => return Err(ENOMEM),
                None => order = order.wrapping_sub(1),
            }
        };
        if order > 0 {
            // SAFETY: Just allocated with this order, not compound, and nobody else knows it.
            unsafe { bindings::split_page(first.as_ptr(), order) };
        }
        for i in 0..1usize << order {
            // SAFETY: The group has this number of pages, and their descriptors lie one after another.
            let page = unsafe { first.add(i) };
            // SAFETY: The page is valid. It is not from high memory, so it has an address, which
            // is not null.
            let addr = unsafe { NonNull::new_unchecked(bindings::page_address(page.as_ptr())) };
            // INVARIANT: An order-0 page since the split, owned by us, and its address. Neither
            // push allocates.
            let follow = (1usize << order).wrapping_sub(i).wrapping_mul(PAGE_SIZE);
            self.addrs.push((addr.cast(), follow), GFP_KERNEL)?;
            self.pages.push(page, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Returns the number of pages.
    pub(super) fn count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the number of bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pages.len().saturating_mul(PAGE_SIZE)
    }

    pub(super) fn page(&self, index: usize) -> Option<*mut bindings::page> {
        self.pages.get(index).map(|page| page.as_ptr())
    }

    /// Returns the kernel's address of the byte at `offset`, and how many bytes there are from
    /// there on without a gap.
    #[inline]
    pub(super) fn at(&self, offset: usize) -> Option<(NonNull<u8>, usize)> {
        let (base, follow) = *self.addrs.get(offset / PAGE_SIZE)?;
        let within = offset % PAGE_SIZE;
        // SAFETY: Inside the page.
        let addr = unsafe { base.add(within) };
        Some((addr, follow.wrapping_sub(within)))
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
        for page in &self.pages {
            // SAFETY: Owned by the invariant. Every mapping of the page owns an `Arc` of this
            // object, so no device uses it. Any context will do.
            unsafe { bindings::__free_pages(page.as_ptr(), 0) };
        }
    }
}
