// SPDX-License-Identifier: GPL-2.0

//! DMA mappings of memory for an RDMA device, real or virtual.
//!
//! All of a region is one mapping. The kernel gives it in segments: where there is an IOMMU in one, if it
//! can, else one for each block of memory.
//!
//! A device without a DMA device (rxe, siw) takes kernel addresses for DMA addresses; the
//! `ib_dma_*` functions hide that, and so does this module: addresses do not leave `kapi`.

use super::{
    device::{Device, DeviceUse},
    pages::Pages, //
};
use core::{mem::MaybeUninit, ops::Range};
use kernel::{
    alloc::kvec::KVVec,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use smc_bindings as bindings;

/// Direction of transfers, by the writer of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The CPU writes, the device reads.
    ToDevice,
    /// The device writes, the CPU reads.
    FromDevice,
    /// Both.
    Bidirectional,
}

impl Direction {
    fn as_raw(self) -> i32 {
        match self {
            Direction::ToDevice => bindings::DMA_TO_DEVICE_RAW,
            Direction::FromDevice => bindings::DMA_FROM_DEVICE_RAW,
            Direction::Bidirectional => bindings::DMA_BIDIRECTIONAL_RAW,
        }
    }
}

/// A range of memory that is contiguous for the device.
#[derive(Clone, Copy)]
struct Segment {
    /// Its end in the memory, in bytes.
    end: usize,
    /// The address of a byte less its offset in the memory, modulo 2^64.
    base: u64,
}

/// Memory mapped for a device.
///
/// # Invariants
///
/// * `table` is a scatter list of `count` elements, the pieces of `pages` of at most `piece` bytes, which is a
///   power of two. It is mapped for `device`, by the first `mapped` elements, unless `mapped` is zero.
/// * `segments` are the addresses of that, in order and without a gap: all of the memory. `first` is the first, which
///   most often is all.
pub struct DmaMap {
    first: Segment,
    segments: KVec<Segment>,
    direction: Direction,
    sync: bool,
    piece: usize,
    table: KVVec<MaybeUninit<bindings::scatterlist>>,
    count: i32,
    mapped: i32,
    pages: Arc<Pages>,
    device: DeviceUse,
}

// SAFETY: The list's pointers are to descriptors of pages, which have no thread.
unsafe impl Send for DmaMap {}
// SAFETY: Nothing changes after the mapping was made, and the list is only read.
unsafe impl Sync for DmaMap {}

impl DmaMap {
    /// Maps all of `pages`.
    ///
    /// # Errors
    ///
    /// `ENODEV`, or `ENOMEM` when an address or the list could not be had.
    pub(super) fn new(
        device: &Arc<Device>,
        pages: Arc<Pages>,
        direction: Direction,
    ) -> Result<Arc<Self>> {
        let device = device.hold()?;
        // SAFETY: The device is registered.
        let limit = unsafe { bindings::ib_dma_max_piece(device.raw()) };
        let piece = 1usize << limit.max(PAGE_SIZE).ilog2();
        let mut map = Self {
            first: Segment { end: 0, base: 0 },
            segments: KVec::new(),
            direction,
            sync: false,
            piece,
            table: KVVec::new(),
            count: 0,
            mapped: 0,
            pages,
            device,
        };
        // Of bounce buffers there may be enough, but no large piece.
        if map.map(piece, true).is_err() {
            map.map(PAGE_SIZE, false)?;
        }
        map.measure()?;
        Ok(Arc::new(map, GFP_KERNEL)?)
    }

    /// Maps the memory in pieces of at most `piece` bytes; a failure is logged by the kernel unless `silent`.
    fn map(&mut self, piece: usize, silent: bool) -> Result {
        let count = self.pages.count(piece);
        let mut table = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            table.push(MaybeUninit::zeroed(), GFP_KERNEL)?;
        }
        let first = table.as_mut_ptr().cast::<bindings::scatterlist>();
        // SAFETY: The list has `count` elements, as many as there are pieces, whose pages `self.pages` owns.
        unsafe {
            bindings::sg_init_table(first, u32::try_from(count)?);
            for (i, piece) in self.pages.pieces(piece).enumerate().take(count) {
                bindings::sg_set_page(first.add(i), piece.page, u32::try_from(piece.len)?);
            }
        }
        let count = i32::try_from(count)?;
        // SAFETY: The device is registered. The list is initialised, and its memory owned by `self.pages`, which
        // `self` keeps longer than the mapping.
        let mapped = unsafe {
            let dir = self.direction.as_raw();
            bindings::ib_dma_map_sg(self.device.raw(), first, count, dir, silent)
        };
        if mapped <= 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: Just mapped. What the vector holds stays where it is when the vector is moved.
        self.table = table;
        self.count = count;
        self.mapped = mapped;
        self.piece = piece;
        Ok(())
    }

    /// Notes the segments of the mapping, those that follow each other as one.
    fn measure(&mut self) -> Result {
        let table = self.table.as_mut_ptr().cast::<bindings::scatterlist>();
        let mut end = 0usize;
        for i in 0..usize::try_from(self.mapped)? {
            // SAFETY: One of the elements by which the list is mapped, for this device.
            let (addr, len, sync) = unsafe {
                let element = table.add(i);
                let addr = bindings::sg_dma_address(element);
                let sync = bindings::ib_dma_need_sync(self.device.raw(), addr);
                (addr, bindings::sg_dma_len(element), sync)
            };
            self.sync |= sync;
            let base = addr.wrapping_sub(end as u64);
            end = end.checked_add(usize::try_from(len)?).ok_or(EINVAL)?;
            match self.segments.last_mut() {
                Some(last) if last.base == base => last.end = end,
                _ => self.segments.push(Segment { end, base }, GFP_KERNEL)?,
            }
        }
        self.first = *self.segments.first().ok_or(EINVAL)?;
        // INVARIANT: They are all of the memory.
        match end == self.pages.len() {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }

    /// Returns whether the CPU must ask before it looks.
    pub(super) fn needs_sync(&self) -> bool {
        self.sync
    }

    /// Returns the number of the device for which the memory is mapped.
    pub(super) fn device(&self) -> u32 {
        self.device.serial()
    }

    /// Returns the list of the mapping and the number of its elements that have addresses. Only to be read.
    pub(super) fn table(&self) -> (*mut bindings::scatterlist, i32) {
        (self.table.as_ptr().cast_mut().cast(), self.mapped)
    }

    /// Returns address and length of each segment, in order.
    pub(super) fn segments(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.segments.len()).filter_map(|i| {
            let segment = self.segments.get(i)?;
            let before = i.checked_sub(1).and_then(|i| self.segments.get(i));
            let start = before.map_or(0, |before| before.end);
            let len = segment.end.wrapping_sub(start);
            Some((segment.base.wrapping_add(start as u64), len as u64))
        })
    }

    /// Returns the segment with the byte at `offset`.
    #[inline]
    fn segment(&self, offset: usize) -> Option<Segment> {
        match offset < self.first.end {
            true => Some(self.first),
            false => self.far_segment(offset),
        }
    }

    #[inline(never)]
    fn far_segment(&self, offset: usize) -> Option<Segment> {
        let all = &self.segments;
        let index = all.partition_point(|segment| segment.end <= offset);
        all.get(index).copied()
    }

    /// Returns the address of the byte at `offset`.
    #[inline]
    pub(super) fn addr(&self, offset: usize) -> Option<u64> {
        let segment = self.segment(offset)?;
        Some(segment.base.wrapping_add(offset as u64))
    }

    /// Returns the address of the `len` bytes at `offset`, if they are contiguous for the device.
    #[inline]
    pub(super) fn addr_of_piece(&self, offset: usize, len: usize) -> Option<u64> {
        let segment = self.segment(offset)?;
        // `offset` is before the end.
        let fits = len <= segment.end.wrapping_sub(offset);
        fits.then(|| segment.base.wrapping_add(offset as u64))
    }

    /// Calls `f(address, length)` for each piece of `range` that is contiguous for the device.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a range outside, or the error of `f`.
    #[inline]
    pub(super) fn pieces(
        &self,
        range: Range<usize>,
        mut f: impl FnMut(u64, u32) -> Result,
    ) -> Result {
        let mut at = range.start;
        while at < range.end {
            let segment = self.segment(at).ok_or(EINVAL)?;
            let end = segment.end.min(range.end);
            let addr = segment.base.wrapping_add(at as u64);
            f(addr, u32::try_from(end.wrapping_sub(at))?)?;
            at = end;
        }
        Ok(())
    }

    /// Lets the CPU read what the device wrote to `range`.
    pub(super) fn sync_for_cpu(&self, range: Range<usize>) {
        if self.sync {
            let _ = self.each_piece(range, |device, addr, len, dir| {
                // SAFETY: Inside one mapped piece of memory of a registered device.
                unsafe { bindings::ib_dma_sync_for_cpu(device, addr, len, dir) }
            });
        }
    }

    /// Lets the device see what the CPU wrote to `range`, or write there again.
    pub(super) fn sync_for_device(&self, range: Range<usize>) {
        if self.sync {
            let _ = self.each_piece(range, |device, addr, len, dir| {
                // SAFETY: Inside one mapped piece of memory of a registered device.
                unsafe { bindings::ib_dma_sync_for_device(device, addr, len, dir) }
            });
        }
    }

    /// Calls `f` for each part of `range` that lies in one element of the list: what is one segment for the device
    /// need not be one for the CPU.
    fn each_piece(
        &self,
        range: Range<usize>,
        f: impl Fn(*mut bindings::ib_device, u64, usize, i32),
    ) -> Option<()> {
        let mut at = range.start;
        while at < range.end {
            let (ptr, room) = self.pages.at(at)?;
            // A block lies at a multiple of its size, and so its pieces at those of theirs.
            let within = ptr.as_ptr().addr() & self.piece.wrapping_sub(1);
            let piece = self.piece.wrapping_sub(within);
            let n = room.min(piece).min(range.end.wrapping_sub(at));
            let dir = self.direction.as_raw();
            f(self.device.raw(), self.addr(at)?, n, dir);
            at = at.wrapping_add(n);
        }
        Some(())
    }
}

impl Drop for DmaMap {
    fn drop(&mut self) {
        if self.mapped == 0 {
            return;
        }
        let table = self.table.as_mut_ptr().cast();
        // SAFETY:
        // - By the invariant the mapping was made with these arguments.
        // - Whoever lets the device use it (a work request until it has completed or its queue pair is destroyed, a
        //   memory region until it is deregistered) owns a count of this object.
        // - Unmapping does not sleep, and may be done in softirqs; so may freeing `table` after it (kvfree()).
        unsafe {
            let dir = self.direction.as_raw();
            bindings::ib_dma_unmap_sg(self.device.raw(), table, self.count, dir)
        };
    }
}
