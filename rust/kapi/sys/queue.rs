// SPDX-License-Identifier: GPL-2.0

//! The module's own workqueues.
//!
//! Work on a system queue can outlive the module; work on these cannot, because dropping their
//! [`Registration`] runs everything that is queued before it returns.
//!
//! A queue runs a limited number of works at a time, of which each may wait. So there are two: one for
//! work that may wait for a lock that a program holds, for memory or for a device, and one for
//! deadlines, which must come about however many of the others wait.

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

type Pointer = Atomic<*mut bindings::workqueue_struct>;

static GENERAL: Pointer = Atomic::new(ptr::null_mut());
static DEADLINES: Pointer = Atomic::new(ptr::null_mut());

/// A workqueue that [`Registration`] has put in its place; dropping it drains the queue.
///
/// # Invariants
///
/// While it lives, the pointer is the queue that [`One::new`] allocated.
struct One(&'static Pointer);

impl One {
    fn new(place: &'static Pointer, name: &'static CStr) -> Result<Self> {
        if !place.load(Acquire).is_null() {
            return Err(EBUSY);
        }
        // SAFETY: `name` is a valid string; the helper passes it as the argument of "%s".
        let queue = unsafe { bindings::alloc_workqueue_unbound(name.as_char_ptr()) };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        place.store(queue, Release);
        // INVARIANT: Allocated and stored just now.
        Ok(Self(place))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let queue = self.0.load(Acquire);
        self.0.store(ptr::null_mut(), Release);
        // SAFETY: No locks are held here. Afterwards every `enqueue` that saw the queue has
        // returned, because it runs in an RCU section.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: By the invariant the queue was allocated; nobody can reach it any more, and this
        // drains what it holds.
        unsafe { bindings::destroy_workqueue(queue) };
    }
}

/// Keeps the module's workqueues alive; dropping it drains them.
pub struct Registration {
    _general: One,
    _deadlines: One,
}

impl Registration {
    /// Allocates the queues: unbound, so that their work spreads over all CPUs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` when the module has its queues already.
    pub fn new(general: &'static CStr, deadlines: &'static CStr) -> Result<Self> {
        Ok(Self {
            _general: One::new(&GENERAL, general)?,
            _deadlines: One::new(&DEADLINES, deadlines)?,
        })
    }
}

fn enqueue_in<W, const ID: u64>(place: &Pointer, work: W) -> Option<W::EnqueueOutput>
where
    W: RawWorkItem<ID> + Send + 'static,
{
    let _rcu = rcu::read_lock();
    let queue = place.load(Acquire);
    if queue.is_null() {
        return None;
    }
    // SAFETY: The queue is destroyed only after an RCU grace period, and the reference does not
    // leave this section.
    Some(unsafe { Queue::from_raw(queue.cast_const().cast()) }.enqueue(work))
}

/// Queues `work`; may be called in any context.
///
/// Returns `None`, and drops `work`, when the module is being unloaded.
pub fn enqueue<W, const ID: u64>(work: W) -> Option<W::EnqueueOutput>
where
    W: RawWorkItem<ID> + Send + 'static,
{
    enqueue_in(&GENERAL, work)
}

/// As [`enqueue`], in the queue for deadlines: `work` waits for nothing that a program or a peer can
/// draw out at will.
pub fn enqueue_deadline<W, const ID: u64>(work: W) -> Option<W::EnqueueOutput>
where
    W: RawWorkItem<ID> + Send + 'static,
{
    enqueue_in(&DEADLINES, work)
}
