// SPDX-License-Identifier: GPL-2.0

//! Memory regions by fast registration: the key under which a peer writes.

use super::{
    dma::DmaMap,
    pd::Pd,
    reap::Deferred,
    region::Region, //
};
use core::{
    mem::{self, MaybeUninit},
    ptr::{self, NonNull}, //
};
use kernel::{
    alloc::kvec::KVVec,
    error::from_err_ptr,
    new_mutex,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::{Arc, Mutex}, //
};
use smc_bindings as bindings;

/// Access that a key allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The local device reads: a source of writes and sends.
    LocalRead,
    /// The peer writes.
    RemoteWrite,
}

impl Access {
    pub(super) fn as_raw(self) -> i32 {
        let flags = match self {
            Access::LocalRead => 0,
            Access::RemoteWrite => {
                bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
        };
        flags as i32
    }
}

/// Memory under a key.
///
/// The key and the address are final from the beginning and may be told to the peer at once; they
/// work after [`super::channel::Channel::register`].
///
/// The address is a page-aligned random number. It says nothing about where the memory is.
#[pin_data]
pub struct Mr {
    region: Arc<Region>,
    iova: u64,
    lkey: u32,
    rkey: u32,
    access: Access,
    #[pin]
    raw: Mutex<Option<Kept>>,
}

/// The C object of an [`Mr`], which is deregistered when nobody keeps it any more.
pub(super) type Kept = Arc<Deferred<RawMr>>;

/// # Invariants
///
/// `mr` is a memory region in `pd` that covers `map` and nothing else.
pub(super) struct RawMr {
    mr: NonNull<bindings::ib_mr>,
    // Dropped after `drop` has ended the device's access.
    map: Arc<DmaMap>,
    pd: Arc<Pd>,
}

// SAFETY: Verbs objects may be used by any thread.
unsafe impl Send for RawMr {}
// SAFETY: A shared reference only gives out the pointer and counted references. The region is mapped before it is
// shared, and afterwards nobody changes it but `drop`: requests only name its keys.
unsafe impl Sync for RawMr {}

impl RawMr {
    pub(super) fn raw(&self) -> *mut bindings::ib_mr {
        self.mr.as_ptr()
    }

    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

impl Drop for RawMr {
    fn drop(&mut self) {
        // SAFETY: The region is alive, and no request that names it is under way:
        // `Channel::register` holds the lock around the only reference until its request has
        // ended. Process context, as this is only dropped through `Deferred`.
        let ret = unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), ptr::null_mut()) };
        if ret != 0 {
            // The device may still write there: the mapping is never given back.
            pr_err!("RDMA memory region could not be deregistered: {ret}\n");
            mem::forget(self.map.clone());
        }
    }
}

impl Mr {
    /// Makes a memory region of all of `region`. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it has more pages than the device takes or is mapped for another device, `ENODEV` when the region is revoked
    /// or the device is going away, `ENOMEM`, or the driver's error.
    pub fn new(pd: &Arc<Pd>, region: Arc<Region>, access: Access) -> Result<Arc<Self>> {
        let map = region.map().ok_or(ENODEV)?;
        if map.device() != pd.device().serial() {
            return Err(EINVAL);
        }
        let count = map.addrs().len();
        let pages = u32::try_from(count)?;
        if pages > pd.device().limits()?.mr_pages {
            return Err(EINVAL);
        }
        // The core cuts elements of the table into pages of this size.
        let size = pd.device().page_size()?;
        let each = (PAGE_SIZE as u32).checked_div(size).ok_or(EINVAL)?;
        let entries = pages.checked_mul(each).ok_or(EINVAL)?;
        let mut table: KVVec<MaybeUninit<bindings::scatterlist>> =
            KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            table.push(MaybeUninit::zeroed(), GFP_KERNEL)?;
        }
        let table = table.as_mut_ptr().cast::<bindings::scatterlist>();
        // SAFETY: `table` has `count` elements.
        unsafe { bindings::sg_init_table(table, pages) };
        for (i, addr) in map.addrs().iter().enumerate() {
            let page = map.pages().page(i).ok_or(EINVAL)?;
            // SAFETY: `i` is inside the table; page and address belong to `map`, which is one for
            // the device of the domain.
            unsafe {
                let entry = table.add(i);
                bindings::sg_set_page(entry, page, PAGE_SIZE as u32);
                bindings::sg_set_dma_address(entry, *addr);
                bindings::sg_set_dma_len(entry, PAGE_SIZE as u32);
            }
        }

        // SAFETY: The domain is alive.
        let mr = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(pd.raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, entries)
        })?;
        let mr = NonNull::new(mr).ok_or(ENOMEM)?;
        // Deregisters when something below fails.
        let raw = RawMr {
            mr,
            map,
            pd: pd.clone(),
        };
        // SAFETY: The region and the table are valid; the table has `pages` mapped elements.
        let mapped = unsafe {
            bindings::ib_map_mr_sg(
                mr.as_ptr(),
                table,
                i32::try_from(pages)?,
                ptr::null_mut(),
                size,
            )
        };
        // INVARIANT: Covers exactly the mapping.
        if usize::try_from(mapped) != Ok(count) {
            return Err(if mapped < 0 {
                Error::from_errno(mapped)
            } else {
                EINVAL
            });
        }
        // The core proposes the DMA address as the address of the first byte, for software devices
        // a kernel address; no peer shall learn that. At most 2^44, so the end cannot overflow.
        // SAFETY: No preconditions.
        let random = unsafe { bindings::get_random_u32() };
        let iova = (u64::from(random).wrapping_add(1)) << PAGE_SHIFT;
        // SAFETY: The region is ours alone until it is registered.
        let (lkey, rkey) = unsafe {
            (*mr.as_ptr()).iova = iova;
            ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey)
        };
        let device = pd.device().clone();
        let raw = Arc::new(Deferred::new(&device, raw)?, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                region,
                iova,
                lkey,
                rkey,
                access,
                raw <- new_mutex!(Some(raw), "kapi::rdma::mr"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the memory.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the address by which the peer names the first byte.
    pub fn addr(&self) -> u64 {
        self.iova
    }

    /// Returns the key by which the peer names the region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    pub(super) fn lkey(&self) -> u32 {
        self.lkey
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Keeps the C object. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the region was revoked.
    pub(super) fn keep(&self) -> Result<Kept> {
        self.raw.lock().clone().ok_or(ENODEV)
    }

    /// Ends the peer's access and the device's; the bytes stay readable. May sleep.
    ///
    /// Returns before the device has finished, and before that a request for the key has; removing the
    /// device waits for that.
    pub fn revoke(&self) {
        let raw = self.raw.lock().take();
        drop(raw);
        self.region.revoke();
    }
}

/// A request that makes a memory key work, to be posted in any context. The memory region stays
/// registered with the device at least until the request has ended.
pub struct Key<T> {
    /// The channel that it is for, as a number.
    pub(super) channel: usize,
    pub(super) rkey: u32,
    pub(super) access: i32,
    pub(super) kept: Kept,
    pub(super) token: T,
}

impl<T> Key<T> {
    /// Lets go of the memory region; the request has ended.
    pub(super) fn into_token(self) -> T {
        self.token
    }
}
