// SPDX-License-Identifier: GPL-2.0

//! Memory regions by fast registration: the key under which a peer writes.

use super::{
    dma::DmaMap,
    pd::Pd,
    reap::Deferred,
    region::Region, //
};
use core::{
    mem,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::from_err_ptr,
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    sync::{Arc, Mutex}, //
};
use smc_bindings as bindings;

/// The largest page that is asked for, in bytes.
const PAGE_MOST: u64 = 2 << 20;

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
/// The address is a random number at which a page begins. It says nothing about where the memory is.
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
    /// The size of its pages.
    page: u32,
    // Dropped after `drop` has ended the device's access.
    map: Arc<DmaMap>,
    pd: Arc<Pd>,
}

// SAFETY: Verbs objects may be used by any thread.
unsafe impl Send for RawMr {}
// SAFETY: A shared reference only gives out the pointer and counted references. The region is mapped before it is
// shared, and afterwards nobody changes it but `drop`: requests only name its keys.
unsafe impl Sync for RawMr {}

/// Returns the largest page size, a power of two, of which all segments of `map` begin with whole pages and all but
/// the last end so; at most the one page that would hold all.
fn common_page(map: &DmaMap) -> u32 {
    let (mut bits, mut sum) = (0u64, 0u64);
    for (addr, len) in map.segments() {
        // The end of the one before counts, as there is one more.
        bits |= addr | sum;
        sum = sum.wrapping_add(len);
    }
    let most = sum.next_power_of_two().min(PAGE_MOST);
    1 << bits.trailing_zeros().min(most.trailing_zeros())
}

impl RawMr {
    /// Makes a region of all of `map`, in pages of `size`, of which the device takes `most`.
    fn new(pd: &Arc<Pd>, map: Arc<DmaMap>, size: u32, most: u32) -> Result<Self> {
        let mut pages = 0u64;
        for (_, len) in map.segments() {
            pages = pages.wrapping_add(len.div_ceil(u64::from(size.max(1))));
        }
        let pages = u32::try_from(pages)?;
        if pages > most {
            return Err(EINVAL);
        }
        // SAFETY: The domain is alive.
        let mr = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(pd.raw(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, pages)
        })?;
        let mr = NonNull::new(mr).ok_or(ENOMEM)?;
        let (table, count) = map.table();
        // Deregisters when something below fails.
        let raw = Self {
            mr,
            page: size,
            map,
            pd: pd.clone(),
        };
        // SAFETY: The region and the list are valid; the list has `count` mapped elements, which are one mapping
        // for the device of the domain, and is only read.
        let mapped = unsafe {
            let mr = raw.mr.as_ptr();
            bindings::ib_map_mr_sg(mr, table, count, ptr::null_mut(), size)
        };
        // INVARIANT: Covers exactly the mapping.
        match mapped == count {
            true => Ok(raw),
            false if mapped < 0 => Err(Error::from_errno(mapped)),
            false => Err(EINVAL),
        }
    }

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
        let (sizes, most) = pd.device().page_sizes()?;
        let size = sizes.largest(common_page(&map));
        let raw = match RawMr::new(pd, map.clone(), size, most) {
            // The driver knows best.
            Err(_) if size > sizes.least() => RawMr::new(pd, map, sizes.least(), most),
            made => made,
        }?;
        // The core proposes the DMA address as the address of the first byte, for software devices
        // a kernel address; no peer shall learn that. It begins a page, as the memory does. At most 2^53, as no page
        // is larger than a region, so the end cannot overflow.
        // SAFETY: No preconditions.
        let random = unsafe { bindings::get_random_u32() };
        let shift = raw.page.trailing_zeros().clamp(PAGE_SHIFT as u32, 21);
        let iova = (u64::from(random).wrapping_add(1)) << shift;
        let mr = raw.mr;
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
