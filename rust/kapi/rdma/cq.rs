// SPDX-License-Identifier: GPL-2.0

//! Completion queues, shared through the device's pool.
//!
//! The RDMA core polls them and calls the `ib_cqe` of each work request. One queue serves many
//! queue pairs, so a link costs entries, not interrupts.

use super::device::{Device, DeviceUse};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};
use smc_bindings as bindings;

/// Context in which completions are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollContext {
    /// In softirq context: quickest, handlers must not sleep. With `PREEMPT_RT` it is
    /// [`PollContext::Workqueue`]: `SOFTIRQ` says why.
    Softirq,
    /// In a workqueue, on the CPU of the interrupt.
    Workqueue,
    /// In an unbound workqueue.
    UnboundWorkqueue,
}

/// The kernel's name for softirq context.
///
/// With `PREEMPT_RT` and no lock around softirqs (Debian's 7.2 has none) a task that ends a section
/// without bottom halves runs pending softirqs in the midst of those of a thread that it preempted on
/// its CPU. `lib/irq_poll.c`, which this context is made of, takes the first queue of a list of the CPU
/// for its own meanwhile: two poll it at a time, and the list breaks. The workqueue runs one at a time.
/// Handlers are none the worse for it: they do not sleep, and the locks that they share with softirqs are
/// taken without bottom halves ([`SpinLockBh`](crate::sys::lock::SpinLockBh)), so no softirq that runs on the worker's
/// thread can wait for a lock of its.
const SOFTIRQ: bindings::ib_poll_context = if cfg!(CONFIG_PREEMPT_RT) {
    bindings::ib_poll_context_IB_POLL_WORKQUEUE
} else {
    bindings::ib_poll_context_IB_POLL_SOFTIRQ
};

impl PollContext {
    fn as_raw(self) -> bindings::ib_poll_context {
        match self {
            PollContext::Softirq => SOFTIRQ,
            PollContext::Workqueue => bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            PollContext::UnboundWorkqueue => bindings::ib_poll_context_IB_POLL_UNBOUND_WORKQUEUE,
        }
    }
}

/// A share of a completion queue.
///
/// # Invariants
///
/// `entries` entries of `cq`, a pooled queue of `device`, are claimed for this object.
pub struct Cq {
    cq: NonNull<bindings::ib_cq>,
    entries: u32,
    _device: DeviceUse,
}

// SAFETY: Verbs objects may be used by any thread.
unsafe impl Send for Cq {}
// SAFETY: The verbs of one object may be called from several threads at a time: drivers have to be reentrant
// (Documentation/infiniband/core_locking.rst).
unsafe impl Sync for Cq {}

impl Cq {
    /// Claims room for `entries` completions. May sleep.
    ///
    /// `vector` chooses the interrupt vector; without it they are taken in turn.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EINVAL` for more entries than a queue has, `ENOMEM`, or the driver's error.
    pub fn get(
        device: &Arc<Device>,
        entries: u32,
        vector: Option<u16>,
        context: PollContext,
    ) -> Result<Self> {
        let limit = device.limits()?.cq_entries;
        if entries == 0 || entries > limit {
            return Err(EINVAL);
        }
        let device = device.hold()?;
        let hint = vector.map_or(-1, i32::from);
        // SAFETY: The device is registered while `device` lives; we are its client, and the
        // context is one that pools have.
        let cq = from_err_ptr(unsafe {
            bindings::ib_cq_pool_get(device.raw(), entries, hint, context.as_raw())
        })?;
        // INVARIANT: Claimed just now.
        Ok(Self {
            cq: NonNull::new(cq).ok_or(ENOMEM)?,
            entries,
            _device: device,
        })
    }

    pub(super) fn raw(&self) -> *mut bindings::ib_cq {
        self.cq.as_ptr()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: Gives back what was claimed. The pool lives as long as the device.
        unsafe { bindings::ib_cq_pool_put(self.cq.as_ptr(), self.entries) };
    }
}
