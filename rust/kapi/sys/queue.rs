// SPDX-License-Identifier: GPL-2.0

//! The module's own workqueue.
//!
//! Work on a system queue can outlive the module; work on this one cannot, because dropping its
//! [`Registration`] runs everything that is queued before it returns.

use core::ptr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Release},
        rcu, //
    },
    workqueue::{Queue, RawWorkItem}, //
};
use smc_bindings as bindings;

static QUEUE: Atomic<*mut bindings::workqueue_struct> = Atomic::new(ptr::null_mut());

/// Keeps the module's workqueue alive; dropping it drains the queue.
///
/// # Invariants
///
/// While it lives, `QUEUE` is the queue that [`Registration::new`] allocated.
pub struct Registration(());

impl Registration {
    /// Allocates the queue: unbound, so that handshakes spread over all CPUs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` when the module has its queue already.
    pub fn new(name: &'static CStr) -> Result<Self> {
        if !QUEUE.load(Acquire).is_null() {
            return Err(EBUSY);
        }
        // SAFETY: `name` is a valid string; the helper passes it as the argument of "%s".
        let queue = unsafe { bindings::alloc_workqueue_unbound(name.as_char_ptr()) };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        QUEUE.store(queue, Release);
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let queue = QUEUE.load(Acquire);
        QUEUE.store(ptr::null_mut(), Release);
        // SAFETY: No locks are held here. Afterwards every `enqueue` that saw the queue has
        // returned, because it runs in an RCU section.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: The queue was allocated in `new`, nobody can reach it any more, and this drains
        // what it holds.
        unsafe { bindings::destroy_workqueue(queue) };
    }
}

/// Queues `work`; may be called in any context.
///
/// Returns `None`, and drops `work`, when the module is being unloaded.
pub fn enqueue<W, const ID: u64>(work: W) -> Option<W::EnqueueOutput>
where
    W: RawWorkItem<ID> + Send + 'static,
{
    let _rcu = rcu::read_lock();
    let queue = QUEUE.load(Acquire);
    if queue.is_null() {
        return None;
    }
    // SAFETY: The queue is destroyed only after an RCU grace period, and the reference does not
    // leave this section.
    Some(unsafe { Queue::from_raw(queue.cast_const().cast()) }.enqueue(work))
}
