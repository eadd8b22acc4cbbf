// SPDX-License-Identifier: GPL-2.0

//! DMA mappings of pages for an RDMA device, real or virtual.
//!
//! A device without a DMA device (rxe, siw) takes kernel addresses for DMA addresses; the
//! `ib_dma_*` functions hide that, and so does this module: addresses do not leave `kapi`.

use super::{
    device::{Device, DeviceUse},
    pages::Pages, //
};
use core::ops::Range;
use kernel::{
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

/// Pages mapped for a device.
///
/// # Invariants
///
/// `addrs[i]` is the mapping of page `i` of `pages` for `device`, for each element of `addrs`. The
/// mappings of the next pages follow that of page `i` without a gap for `runs[i]` bytes in all.
pub struct DmaMap {
    addrs: KVec<u64>,
    runs: KVec<u32>,
    direction: Direction,
    sync: bool,
    pages: Arc<Pages>,
    device: DeviceUse,
}

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
        let mut map = Self {
            addrs: KVec::with_capacity(pages.count(), GFP_KERNEL)?,
            runs: KVec::new(),
            direction,
            sync: false,
            pages,
            device,
        };
        for i in 0..map.pages.count() {
            let page = map.pages.page(i).ok_or(EINVAL)?;
            // SAFETY: The device is registered and the page is owned by `map.pages`. The address
            // is checked before it is used.
            let (addr, failed, sync) = unsafe {
                let raw = map.device.raw();
                let dir = map.direction.as_raw();
                let addr = bindings::ib_dma_map_page(raw, page, PAGE_SIZE, dir);
                let failed = bindings::ib_dma_mapping_error(raw, addr) != 0;
                (
                    addr,
                    failed,
                    !failed && bindings::ib_dma_need_sync(raw, addr),
                )
            };
            if failed {
                // The pages mapped so far are unmapped by the drop of `map`.
                return Err(ENOMEM);
            }
            // INVARIANT: The mapping of page `i`. The capacity was reserved.
            map.addrs.push(addr, GFP_KERNEL)?;
            map.sync |= sync;
        }
        map.measure()?;
        Ok(Arc::new(map, GFP_KERNEL)?)
    }

    /// Finds out which mappings follow each other.
    fn measure(&mut self) -> Result {
        let page = PAGE_SIZE as u32;
        self.runs = KVec::from_elem(page, self.addrs.len(), GFP_KERNEL)?;
        let mut next: Option<(u64, u32)> = None;
        for (addr, run) in self.addrs.iter().zip(self.runs.iter_mut()).rev() {
            *run = match next {
                Some((after, more)) if addr.wrapping_add(PAGE_SIZE as u64) == after => {
                    page.saturating_add(more)
                }
                _ => page,
            };
            next = Some((*addr, *run));
        }
        Ok(())
    }

    /// Returns the pages.
    pub(super) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Returns whether the CPU must ask before it looks.
    pub(super) fn needs_sync(&self) -> bool {
        self.sync
    }

    /// Returns the number of the device for which the pages are mapped.
    pub(super) fn device(&self) -> u32 {
        self.device.serial()
    }

    /// Returns the address of each page.
    pub(super) fn addrs(&self) -> &[u64] {
        &self.addrs
    }

    /// Returns the address of the byte at `offset`.
    #[inline]
    pub(super) fn addr(&self, offset: usize) -> Option<u64> {
        let addr = self.addrs.get(offset / PAGE_SIZE)?;
        addr.checked_add((offset % PAGE_SIZE) as u64)
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
            let addr = self.addr(at).ok_or(EINVAL)?;
            let run = *self.runs.get(at / PAGE_SIZE).ok_or(EINVAL)? as usize;
            let len = run
                .saturating_sub(at % PAGE_SIZE)
                .min(range.end.wrapping_sub(at));
            f(addr, u32::try_from(len)?)?;
            at = at.wrapping_add(len);
        }
        Ok(())
    }

    /// Lets the CPU read what the device wrote to `range`.
    pub(super) fn sync_for_cpu(&self, range: Range<usize>) {
        if self.sync {
            let _ = self.each_page(range, |device, addr, len, dir| {
                // SAFETY: Inside one mapped page of a registered device.
                unsafe { bindings::ib_dma_sync_for_cpu(device, addr, len, dir) }
            });
        }
    }

    /// Lets the device see what the CPU wrote to `range`, or write there again.
    pub(super) fn sync_for_device(&self, range: Range<usize>) {
        if self.sync {
            let _ = self.each_page(range, |device, addr, len, dir| {
                // SAFETY: Inside one mapped page of a registered device.
                unsafe { bindings::ib_dma_sync_for_device(device, addr, len, dir) }
            });
        }
    }

    fn each_page(
        &self,
        range: Range<usize>,
        f: impl Fn(*mut bindings::ib_device, u64, usize, i32),
    ) -> Option<()> {
        let mut at = range.start;
        while at < range.end {
            let n = PAGE_SIZE
                .wrapping_sub(at % PAGE_SIZE)
                .min(range.end.wrapping_sub(at));
            f(
                self.device.raw(),
                self.addr(at)?,
                n,
                self.direction.as_raw(),
            );
            at = at.wrapping_add(n);
        }
        Some(())
    }
}

impl Drop for DmaMap {
    fn drop(&mut self) {
        for addr in &self.addrs {
            // SAFETY: By the invariant a mapping made with these arguments. Whoever lets the
            // device use it (a work request until it has completed or its queue pair is destroyed,
            // a memory region until it is deregistered) owns a count of this object. Any context
            // will do.
            unsafe {
                bindings::ib_dma_unmap_page(
                    self.device.raw(),
                    *addr,
                    PAGE_SIZE,
                    self.direction.as_raw(),
                )
            };
        }
    }
}
