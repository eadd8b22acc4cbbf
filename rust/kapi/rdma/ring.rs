// SPDX-License-Identifier: GPL-2.0

//! Memory that a network card or a peer may write at any time.
//!
//! It is never a `&[u8]`: a reference promises the compiler that nobody else writes, and a hostile
//! peer can always write. All access is copying by C functions, from and to memory that is ours.

use super::region::Region;
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

/// A ring of `size` bytes in a [`Region`], for example one element of a slab.
///
/// Positions wrap: they may be at most twice the size, lengths at most the size.
///
/// # Invariants
///
/// `size` is not zero, and `base + size` is at most the length of `region`.
///
/// # Examples
///
/// ```
/// use kapi::rdma::{device::Device, dma::Direction, region::Region, ring::Ring};
/// use kernel::{prelude::*, sync::Arc};
///
/// const SIZE: usize = 1 << 14;
///
/// fn wrap(device: &Arc<Device>) -> Result {
///     let slab = Region::new(device, 4 * SIZE, Direction::Bidirectional)?;
///     // The second of its four rings.
///     let ring = Ring::new(slab, SIZE, SIZE)?;
///
///     // Two bytes are at the end of the ring, two at its beginning.
///     assert_eq!(ring.write_slice(SIZE - 2, b"wrap"), 4);
///     let [end, beginning] = ring.pieces(SIZE - 2, 4);
///     assert_eq!((end.offset, end.len), (2 * SIZE - 2, 2));
///     assert_eq!((beginning.offset, beginning.len), (SIZE, 2));
///
///     let mut bytes = [0; 4];
///     assert_eq!(ring.read_slice(SIZE - 2, &mut bytes), 4);
///     assert_eq!(&bytes, b"wrap");
///
///     // A ring that reaches beyond its region is none.
///     assert!(Ring::new(ring.region().clone(), 4 * SIZE - 1, 2).is_err());
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Ring {
    region: Arc<Region>,
    base: usize,
    size: usize,
}

/// One or two pieces of a region; the second is there when the range wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its beginning, in bytes from the beginning of the region.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
}

impl Ring {
    /// Makes a ring of the `size` bytes from `base` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a ring that is empty or not inside the region.
    pub fn new(region: Arc<Region>, base: usize, size: usize) -> Result<Self> {
        let end = base.checked_add(size).ok_or(EINVAL)?;
        if size == 0 || end > region.len() {
            return Err(EINVAL);
        }
        // INVARIANT: Just checked; the length of a region does not change.
        Ok(Self { region, base, size })
    }

    /// Returns the region.
    #[inline]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the beginning of the ring in its region, in bytes.
    #[inline]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Returns the pieces of the region that `len` bytes from `pos` on are in; the second may be empty.
    pub fn pieces(&self, pos: usize, len: usize) -> [Piece; 2] {
        let pos = pos.checked_rem(self.size).unwrap_or(0);
        let len = len.min(self.size);
        let first = len.min(self.size.wrapping_sub(pos));
        [
            Piece {
                offset: self.base.wrapping_add(pos),
                len: first,
            },
            Piece {
                offset: self.base,
                len: len.wrapping_sub(first),
            },
        ]
    }

    /// Runs `f` on both pieces; stops when one is not done in full.
    fn each(&self, pos: usize, len: usize, mut f: impl FnMut(Piece, usize) -> usize) -> usize {
        let mut done = 0usize;
        for piece in self.pieces(pos, len) {
            let did = f(piece, done);
            done = done.wrapping_add(did);
            if did < piece.len {
                break;
            }
        }
        done
    }

    /// Copies up to `len` bytes from `pos` on to `iter`; returns how many. May fault, so sleep.
    #[inline]
    pub fn read(&self, pos: usize, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        match self.whole(pos, len) {
            Some(offset) => self.region.read(offset, len, iter),
            None => self.each(pos, len, |p, _| self.region.read(p.offset, p.len, iter)),
        }
    }

    /// Returns the place in the region of `len` bytes from `pos` on, if they do not wrap.
    #[inline]
    fn whole(&self, pos: usize, len: usize) -> Option<usize> {
        let fits = pos < self.size && len <= self.size.wrapping_sub(pos);
        fits.then(|| self.base.wrapping_add(pos))
    }

    /// Copies bytes from `pos` on to `out`; returns how many.
    pub fn read_slice(&self, pos: usize, out: &mut [u8]) -> usize {
        self.each(pos, out.len(), |p, done| {
            match out.get_mut(done..done.wrapping_add(p.len)) {
                Some(out) => self.region.read_slice(p.offset, out),
                None => 0,
            }
        })
    }

    /// Copies up to `len` bytes from `iter` to `pos`; returns how many. May fault, so sleep.
    #[inline]
    pub fn write(&self, pos: usize, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        match self.whole(pos, len) {
            Some(offset) => self.region.write(offset, len, iter),
            None => self.each(pos, len, |p, _| self.region.write(p.offset, p.len, iter)),
        }
    }

    /// Copies `bytes` to `pos`; returns how many.
    pub fn write_slice(&self, pos: usize, bytes: &[u8]) -> usize {
        self.each(pos, bytes.len(), |p, done| {
            match bytes.get(done..done.wrapping_add(p.len)) {
                Some(bytes) => self.region.write_slice(p.offset, bytes),
                None => 0,
            }
        })
    }

    /// Fills the first `len` bytes of the ring with zeros, before another connection gets it.
    pub fn clear(&self, len: usize) {
        self.region.zero(self.base, len.min(self.size));
    }
}
