// SPDX-License-Identifier: GPL-2.0

//! Receive buffers (RMBs), cut from slabs.
//!
//! One memory region holds many buffers of one size (the wire calls them RMBEs and numbers them
//! from 1), so a connection needs no registration and no key exchange of its own.

use crate::conn;
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
        atomic::{Atomic, Full},
        Arc, //
    }, //
};
use smc_proto::{
    cursor::RingSize,
    group::slab::{RmbeIdx, Slab as Index},
    wire::ids::Rkey, //
};

/// Largest slab in bytes, where the device registers that much at once. On average half of the newest
/// slab is free; with 2 MiB that was 13 KiB for each of 200 connections.
const SLAB_MAX: u32 = 1280 << 10;
/// Buffers that a slab may have however large they are: else 255 connections with the largest would
/// need more keys than a C peer can hold beside others.
const PAIR: u32 = 2;
/// Buffers of a group's first slab of a size; each further one has twice as many.
const FIRST: u32 = 4;

/// Buffers of one size under one memory key.
#[pin_data]
pub(crate) struct RmbSlab {
    mr: Arc<Mr>,
    region: Arc<Region>,
    size: RingSize,
    /// 1 once somebody has come to register the key.
    keyed: Atomic<u32>,
    #[pin]
    places: SpinLockBh<Places>,
}

/// Which buffers of a slab are taken.
struct Places {
    index: Index,
    /// Those up to this number have been in use before.
    highest: u8,
    /// For buffers that are lost until the link is gone; has room for all.
    lost: KVec<Charge>,
    /// Looks in a row that have found none in use.
    idle_looks: u32,
}

impl RmbSlab {
    /// A slab of buffers of `size`, of which there are `generation` before it; `wanted` more
    /// are enough unless some get lost.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINVAL` when the device cannot register that much, `ENODEV`.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        size: RingSize,
        generation: u32,
        wanted: u32,
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
        // Both ways: a used buffer is cleared, and behind a bounce buffer that has to get there.
        let region = Region::new(pd.device(), bytes as usize, Direction::Bidirectional)?;
        let mr = Mr::new(pd, region.clone(), Access::RemoteWrite)?;
        let index = Index::new(capacity).ok_or(EINVAL)?;
        let lost = KVec::with_capacity(usize::from(capacity), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                mr,
                region,
                size,
                keyed: Atomic::new(0),
                places <- new_spinlock_bh!(
                    Places {
                        index,
                        highest: 0,
                        lost,
                        idle_looks: 0,
                    },
                    "rsmc::RmbSlab::places"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// The memory key, for the one who is to register it.
    pub(crate) fn key_to_register(&self) -> Option<&Arc<Mr>> {
        (self.keyed.xchg(1, Full) == 0).then_some(&self.mr)
    }

    /// Size of its buffers.
    pub(crate) fn size(&self) -> RingSize {
        self.size
    }

    /// How many buffers it has.
    pub(crate) fn buffers(&self) -> u32 {
        self.region
            .len()
            .checked_div(self.size.bytes() as usize)
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(0)
    }

    /// How many of them are not lost.
    pub(crate) fn in_service(&self) -> u32 {
        let lost = self.places.lock().index.quarantined();
        self.buffers().saturating_sub(u32::from(lost))
    }

    /// Bytes of all its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.region.len() as u64
    }

    /// Looks whether the slab could go: no buffer is in use, nor one into which the peer may still
    /// write. How many looks in a row have found so with this one, which counts for `count`; `None` if
    /// not.
    pub(crate) fn look(&self, count: u32) -> Option<u32> {
        let mut places = self.places.lock();
        if !places.index.is_idle() {
            return None;
        }
        places.idle_looks = places.idle_looks.saturating_add(count);
        Some(places.idle_looks)
    }

    /// The memory key.
    pub(crate) fn rkey(&self) -> Rkey {
        Rkey(self.mr.rkey())
    }

    /// Takes a buffer.
    pub(crate) fn lease(self: &Arc<Self>) -> Option<Lease> {
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
            reusable: true,
            charge: None,
        })
    }

    /// Ends the device's access; the bytes stay readable.
    pub(crate) fn revoke(&self) {
        self.mr.revoke();
        self.region.revoke();
    }
}

/// A buffer of a slab; dropping it gives the buffer back, and sleeps.
pub(crate) struct Lease {
    slab: Arc<RmbSlab>,
    index: RmbeIdx,
    used: bool,
    reusable: bool,
    charge: Option<Charge>,
}

impl Lease {
    /// Takes the charge for the rings of the connection, and keeps it as long as it has the buffer.
    pub(crate) fn pay(&mut self, charge: Option<Charge>) {
        self.charge = charge;
    }

    /// Whether another connection had the buffer before.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }
}

impl conn::Lease for Lease {
    fn charge_to(&mut self, bytes: usize) -> Result {
        match &mut self.charge {
            Some(charge) => charge.grow_to(bytes),
            None => Ok(()),
        }
    }

    fn reduce_to(&mut self, bytes: usize) {
        if let Some(charge) = &mut self.charge {
            charge.reduce_to(bytes);
        }
    }

    fn ring(&self) -> Result<Ring> {
        let size = self.slab.size.bytes() as usize;
        let base = usize::from(self.index.before())
            .checked_mul(size)
            .ok_or(EINVAL)?;
        Ring::new(self.slab.region.clone(), base, size)
    }

    fn announce(&self) -> (Rkey, u64, u8) {
        (
            Rkey(self.slab.mr.rkey()),
            self.slab.mr.addr(),
            self.index.get(),
        )
    }

    fn quarantine(&mut self) {
        self.reusable = false;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut charge = self.charge.take();
        if let Some(charge) = charge.as_mut().filter(|_| !self.reusable) {
            charge.reduce_to(self.slab.size.bytes() as usize);
        }
        let mut places = self.slab.places.lock();
        places.index.free(self.index, self.reusable);
        if let Some(charge) = charge.take_if(|_| !self.reusable) {
            // The memory is taken still. Each place is lost once, and the list has room for all.
            let _ = places.lost.push_within_capacity(charge);
        }
        drop(places);
        drop(charge);
    }
}
