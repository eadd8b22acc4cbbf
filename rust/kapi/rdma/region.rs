// SPDX-License-Identifier: GPL-2.0

//! A range of memory that one device may use, until it is revoked.

use super::{
    device::Device,
    dma::{Direction, DmaMap},
    pages::Pages, //
};
use crate::sys::lock::{lock_with_bh_off, SpinLockBh};
use core::ops::Range;
use kernel::{
    iov::{IovIterDest, IovIterSource},
    prelude::*,
    sync::Arc, //
};

/// Memory for rings: blocks of pages on the device's NUMA node, mapped for the device at once.
///
/// After [`Region::revoke`] the device is out of reach, but the bytes can still be read: what a
/// peer wrote before its link died is still there for the application.
///
/// # Invariants
///
/// * `pages` has at least one page. The bytes are only ever copied, never borrowed: the device may
///   write them at any time.
/// * `map` is set until the region is revoked, and then maps `pages`; `sync` is what it needs.
///
/// # Examples
///
/// ```
/// use kapi::rdma::{device::Device, dma::Direction, region::Region};
/// use kernel::{prelude::*, sync::Arc};
///
/// fn keep(device: &Arc<Device>) -> Result {
///     let region = Region::new(device, 100, Direction::Bidirectional)?;
///     // Whole pages, zeroed.
///     assert_eq!(region.len(), kernel::page::PAGE_SIZE);
///
///     // What is not inside the region is left out.
///     assert_eq!(region.write_slice(region.len() - 3, b"abcde"), 3);
///
///     // The device is out of reach now, the bytes are not.
///     region.revoke();
///     assert!(region.is_revoked());
///     let mut bytes = [0; 3];
///     assert_eq!(region.read_slice(region.len() - 3, &mut bytes), 3);
///     assert_eq!(&bytes, b"abc");
///     Ok(())
/// }
/// #
/// # let devices = crate::verbs::Devices::new()?;
/// # keep(&devices.get(0)?)?;
/// # Ok::<(), Error>(())
/// ```
#[pin_data]
pub struct Region {
    pages: Arc<Pages>,
    sync: bool,
    #[pin]
    map: SpinLockBh<Option<Arc<DmaMap>>>,
}

impl Region {
    /// Allocates and maps `len` bytes, rounded up to pages and zeroed. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for zero bytes, `ENODEV` when the device is going away, `ENOMEM`.
    pub fn new(device: &Arc<Device>, len: usize, direction: Direction) -> Result<Arc<Self>> {
        let pages = Pages::new(len, device.node()?)?;
        let map = DmaMap::new(device, pages.clone(), direction)?;
        let sync = map.needs_sync();
        // INVARIANT: `Pages::new` makes no empty list, and `map` is of these pages.
        Arc::pin_init(
            pin_init!(Self {
                pages,
                sync,
                map <- new_spinlock_bh!(Some(map), "kapi::rdma::region"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the size in bytes, a multiple of the page size.
    #[inline]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns false: regions are not empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Ends the device's use of the memory, once requests under way are done.
    ///
    /// Requests posted and memory regions registered before keep the mapping until they end.
    pub fn revoke(&self) {
        // Bytes that the device has written are to be read later, when nobody can ask for it any more.
        self.before_read(0, self.len());
        let map = self.map.lock().take();
        drop(map);
    }

    /// Returns whether the device's use has ended.
    #[inline]
    pub fn is_revoked(&self) -> bool {
        self.map.lock().is_none()
    }

    /// Returns the mapping, unless revoked.
    #[inline]
    pub(super) fn map(&self) -> Option<Arc<DmaMap>> {
        self.map.lock().clone()
    }

    /// Returns the mapping as [`Region::map`], to be called with bottom halves off.
    #[inline]
    pub(super) fn map_with_bh_off(&self) -> Option<Arc<DmaMap>> {
        lock_with_bh_off(&self.map).clone()
    }

    #[inline]
    pub(super) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    fn range(&self, offset: usize, len: usize) -> Range<usize> {
        let end = offset.saturating_add(len).min(self.len());
        offset.min(end)..end
    }

    #[inline]
    fn before_read(&self, offset: usize, len: usize) {
        if self.sync {
            self.sync_for_cpu(offset, len);
        }
    }

    #[inline]
    fn after_write(&self, offset: usize, len: usize) {
        if self.sync {
            self.sync_for_device(offset, len);
        }
    }

    #[cold]
    fn sync_for_cpu(&self, offset: usize, len: usize) {
        if let Some(map) = self.map() {
            map.sync_for_cpu(self.range(offset, len));
        }
    }

    #[cold]
    fn sync_for_device(&self, offset: usize, len: usize) {
        if let Some(map) = self.map() {
            map.sync_for_device(self.range(offset, len));
        }
    }

    /// Copies up to `len` bytes at `offset` to `iter`; returns how many. May fault, so sleep.
    #[inline]
    pub fn read(&self, offset: usize, len: usize, iter: &mut IovIterDest<'_>) -> usize {
        self.before_read(offset, len);
        self.pages.copy_out_iter(offset, len, iter)
    }

    /// Copies bytes at `offset` to `out`; returns how many.
    pub fn read_slice(&self, offset: usize, out: &mut [u8]) -> usize {
        self.before_read(offset, out.len());
        self.pages.copy_out(offset, out)
    }

    /// Copies up to `len` bytes from `iter` to `offset`; returns how many. May fault, so sleep.
    #[inline]
    pub fn write(&self, offset: usize, len: usize, iter: &mut IovIterSource<'_>) -> usize {
        let n = self.pages.copy_in_iter(offset, len, iter);
        self.after_write(offset, n);
        n
    }

    /// Copies `bytes` to `offset`; returns how many.
    pub fn write_slice(&self, offset: usize, bytes: &[u8]) -> usize {
        let n = self.pages.copy_in(offset, bytes);
        self.after_write(offset, n);
        n
    }

    /// Writes `len` zeros at `offset`; returns how many.
    pub fn zero(&self, offset: usize, len: usize) -> usize {
        let n = self.pages.zero(offset, len);
        self.after_write(offset, n);
        n
    }
}
