// SPDX-License-Identifier: GPL-2.0

//! Receive buffers (RMBs), cut from slabs.
//!
//! One memory region holds many buffers of one size (the wire calls them RMBEs and numbers them
//! from 1), so a connection needs no registration and no key exchange of its own.

use kapi::{
    net::sock::Charge,
    new_spinlock_bh,
    rdma::{
        dma::Direction,
        mr::{Access, Mr},
        pd::Pd,
        region::Region,
        ring::Ring, //
    },
    sys::lock::SpinLockBh, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
        Arc, //
    }, //
};
use smc_proto::{
    conn::Place,
    cursor::RingSize,
    group::slab::{RmbeIdx, Slab as Index},
    wire::ids::Rkey, //
};

/// Largest slab in bytes, where the device registers that much at once. On average half of the newest
/// slab is free; at 2 MiB, measured with 200 connections, that wasted 13 KiB of each.
const SLAB_MAX: u32 = 1280 << 10;
/// Buffers that a slab may have however large they are: else 255 connections with the largest would
/// need more keys than a C peer can hold beside others.
const PAIR: u32 = 2;
/// Buffers of a group's first slab of a size; each further one has twice as many.
const FIRST: u32 = 4;

/// Receive buffers of one size in one memory region, under one memory key.
#[pin_data]
pub(crate) struct RmbSlab {
    mr: Arc<Mr>,
    region: Arc<Region>,
    size: RingSize,
    /// 1 when the peer may be told of the key: it works, or will before the link is used.
    works: Atomic<u32>,
    #[pin]
    places: SpinLockBh<Places>,
}

/// Occupancy of a slab's buffers.
struct Places {
    index: Index,
    /// Highest number of a buffer that has ever been in use.
    highest: u8,
    /// Memory charges of buffers that are quarantined until the link is gone; has room for all.
    quarantined: KVec<Charge>,
    /// Number of looks in a row that have found no buffer in use.
    idle_looks: u32,
}

impl RmbSlab {
    /// Allocates a slab of buffers of `size`, as the successor of `generation` slabs of that size;
    /// `wanted` buffers are enough unless some are quarantined. Unless its key `works`, nobody gets one before
    /// [`RmbSlab::key_works`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINVAL` when the device cannot register that much, `ENODEV`.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        size: RingSize,
        generation: u32,
        wanted: u32,
        works: bool,
    ) -> Result<Arc<Self>> {
        let pages = pd.device().limits()?.mr_pages;
        let fit = |bytes: u32| bytes.checked_div(size.bytes()).unwrap_or(1);
        let most = fit(SLAB_MAX)
            .max(PAIR)
            .min(fit(pages.saturating_mul(PAGE_SIZE as u32)))
            .clamp(1, 255);
        let count = FIRST
            .checked_shl(generation)
            .unwrap_or(u32::MAX)
            .min(wanted.max(FIRST))
            .clamp(1, most);
        let capacity = u8::try_from(count)?;
        let bytes = count.checked_mul(size.bytes()).ok_or(EINVAL)?;
        // Both ways: a used buffer is cleared, and with swiotlb the clearing must reach the device.
        let region = Region::new(pd.device(), bytes as usize, Direction::Bidirectional)?;
        let mr = Mr::new(pd, region.clone(), Access::RemoteWrite)?;
        let index = Index::new(capacity).ok_or(EINVAL)?;
        let quarantined = KVec::with_capacity(usize::from(capacity), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                mr,
                region,
                size,
                works: Atomic::new(u32::from(works)),
                places <- new_spinlock_bh!(
                    Places {
                        index,
                        highest: 0,
                        quarantined,
                        idle_looks: 0,
                    },
                    "rsmc::RmbSlab::places"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the memory region.
    pub(crate) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// Notes that the key works. Any context.
    pub(crate) fn key_works(&self) {
        self.works.store(1, Release);
    }

    /// Returns the size of a buffer.
    pub(crate) fn size(&self) -> RingSize {
        self.size
    }

    /// Returns the number of buffers.
    pub(crate) fn buffers(&self) -> u32 {
        self.region
            .len()
            .checked_div(self.size.bytes() as usize)
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(0)
    }

    /// Returns the number of buffers that are not quarantined.
    pub(crate) fn in_service(&self) -> u32 {
        let quarantined = self.places.lock().index.quarantined();
        self.buffers().saturating_sub(u32::from(quarantined))
    }

    /// Returns the size of all buffers together, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.region.len() as u64
    }

    /// Checks whether the slab could be freed: its key works, no buffer is in use, and into none of them the
    /// peer may still write. Returns the number of looks in a row that have found so, this one counted
    /// `count` times; `None` if the slab has to stay.
    pub(crate) fn look(&self, count: u32) -> Option<u32> {
        let mut places = self.places.lock();
        if !places.index.is_idle() || self.works.load(Relaxed) == 0 {
            return None;
        }
        places.idle_looks = places.idle_looks.saturating_add(count);
        Some(places.idle_looks)
    }

    /// Returns the memory key (rkey).
    pub(crate) fn rkey(&self) -> Rkey {
        Rkey(self.mr.rkey())
    }

    /// Takes a free buffer, if there is one whose key works.
    pub(crate) fn lease(self: &Arc<Self>) -> Option<Lease> {
        if self.works.load(Acquire) == 0 {
            return None;
        }
        let mut places = self.places.lock();
        let index = places.index.alloc()?;
        places.idle_looks = 0;
        let used = index.get() <= places.highest;
        places.highest = places.highest.max(index.get());
        drop(places);
        Some(Lease {
            slab: self.clone(),
            index,
            used,
            charge: None,
            reusable: true,
        })
    }

    /// Ends the device's access; the bytes stay readable.
    pub(crate) fn revoke(&self) {
        self.mr.revoke();
        self.region.revoke();
    }
}

/// A buffer taken from a slab. Dropping it gives the buffer back, and sleeps.
pub(crate) struct Lease {
    slab: Arc<RmbSlab>,
    index: RmbeIdx,
    used: bool,
    /// What was paid for it, if it is quarantined.
    charge: Option<Charge>,
    reusable: bool,
}

impl Lease {
    /// Tells whether another connection has used the buffer before.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// Returns the size of the buffer.
    pub(crate) fn size(&self) -> RingSize {
        self.slab.size
    }

    /// Returns the buffer's bytes.
    ///
    /// # Errors
    ///
    /// None in practice: a lease is inside its slab.
    pub(crate) fn ring(&self) -> Result<Ring> {
        let size = self.slab.size.bytes() as usize;
        let base = usize::from(self.index.before())
            .checked_mul(size)
            .ok_or(EINVAL)?;
        Ring::new(self.slab.region.clone(), base, size)
    }

    /// Returns where the buffer begins, as CDC messages offer it.
    ///
    /// # Errors
    ///
    /// None in practice: a lease is inside its slab.
    pub(crate) fn place(&self) -> Result<Place> {
        let offset = u64::from(self.index.before()).checked_mul(self.slab.size.len());
        let addr = offset.and_then(|offset| self.slab.mr.addr().checked_add(offset));
        Ok(Place {
            addr: addr.ok_or(EINVAL)?,
            rkey: self.slab.rkey(),
        })
    }

    /// Returns memory key and address of the slab and the number of the buffer in it, as CLC
    /// messages announce them.
    pub(crate) fn announce(&self) -> (Rkey, u64, u8) {
        (
            Rkey(self.slab.mr.rkey()),
            self.slab.mr.addr(),
            self.index.get(),
        )
    }

    /// Quarantines the buffer, which keeps it from reuse while the link lives: the peer may still write into it. So its
    /// user goes on paying for it.
    pub(crate) fn quarantine(&mut self, charge: Option<Charge>) {
        self.reusable = false;
        self.charge = charge;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let charge = self.charge.take();
        let mut places = self.slab.places.lock();
        places.index.free(self.index, self.reusable);
        if let Some(charge) = charge {
            // The memory is taken still. Each place is quarantined once, and the list has room for all.
            let _ = places.quarantined.push_within_capacity(charge);
        }
    }
}
