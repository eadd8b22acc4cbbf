// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{
    device::{Device, DeviceUse},
    reap::Deferred, //
};
use core::ptr::{self, NonNull};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};
use smc_bindings as bindings;

/// A protection domain: queue pairs and memory of different domains cannot reach each other.
pub struct Pd(Deferred<RawPd>);

/// # Invariants
///
/// `pd` is a protection domain of `device`, with nothing in it when this is dropped: whatever is
/// in it owns an `Arc<Pd>`.
struct RawPd {
    pd: NonNull<bindings::ib_pd>,
    device: DeviceUse,
}

// SAFETY: Verbs objects may be used by any thread.
unsafe impl Send for RawPd {}
// SAFETY: The verbs of one object may be called from several threads at a time: drivers have to be reentrant
// (Documentation/infiniband/core_locking.rst).
unsafe impl Sync for RawPd {}

impl Drop for RawPd {
    fn drop(&mut self) {
        // SAFETY: Empty by the invariant, and the device is still registered. Process context,
        // as this is only dropped through `Deferred`.
        unsafe { bindings::ib_dealloc_pd_user(self.pd.as_ptr(), ptr::null_mut()) };
    }
}

impl Pd {
    /// Allocates a protection domain. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is going away, `ENOMEM`, or the driver's error.
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let device = device.hold()?;
        // SAFETY: The device is registered while `device` lives. The name is static.
        let pd = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.raw(), 0, bindings::module_name())
        })?;
        let pd = NonNull::new(pd).ok_or(ENOMEM)?;
        let owner = device.device().clone();
        // INVARIANT: New, thus empty.
        let raw = Deferred::new(&owner, RawPd { pd, device })?;
        Ok(Arc::new(Self(raw), GFP_KERNEL)?)
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<Device> {
        self.0.device.device()
    }

    pub(super) fn raw(&self) -> *mut bindings::ib_pd {
        self.0.pd.as_ptr()
    }

    /// Returns the key of local memory by its DMA address.
    pub(super) fn dma_lkey(&self) -> u32 {
        // SAFETY: The domain is alive; the field does not change.
        unsafe { (*self.raw()).local_dma_lkey }
    }
}
