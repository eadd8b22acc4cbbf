// SPDX-License-Identifier: GPL-2.0

//! Destroying in process context what was dropped in any context.

use super::device::Device;
use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::Arc,
    workqueue::{Queue, Work, WorkItem}, //
};
use smc_bindings as bindings;

/// A value whose destructor may sleep, in a handle that may be dropped anywhere.
///
/// `T` must own a [`super::device::DeviceUse`]: it keeps the workqueue alive until `T` is gone.
pub(super) struct Deferred<T: Send + Sync + 'static>(ManuallyDrop<Arc<Node<T>>>);

/// # Invariants
///
/// `value` is alive until `run`, which happens once, after the only [`Deferred`] was dropped.
#[pin_data]
struct Node<T: Send + Sync + 'static> {
    #[pin]
    work: Work<Node<T>>,
    value: UnsafeCell<ManuallyDrop<T>>,
    queue: NonNull<bindings::workqueue_struct>,
}

// SAFETY: The value is shared as `&T` and destroyed on another thread: `T` is `Send` and `Sync`.
// The queue pointer is only used with thread-safe functions.
unsafe impl<T: Send + Sync + 'static> Send for Node<T> {}
// SAFETY: Shared references give out a `&T`, and `T` is `Sync`.
unsafe impl<T: Send + Sync + 'static> Sync for Node<T> {}

impl_has_work! {
    impl{T: Send + Sync + 'static} HasWork<Node<T>> for Node<T> { self.work }
}

impl<T: Send + Sync + 'static> WorkItem for Node<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: By the invariant nobody else can reach the value any more, and this is the only
        // place that drops it.
        unsafe { ManuallyDrop::drop(&mut *this.value.get()) };
    }
}

impl<T: Send + Sync + 'static> Deferred<T> {
    /// Wraps `value`, which uses `device`. On failure `value` is dropped here, in the caller's
    /// context, which must be able to sleep.
    pub(super) fn new(device: &Device, value: T) -> Result<Self> {
        let queue = device.queue();
        let node = Arc::pin_init(
            pin_init!(Node {
                work <- new_work!("kapi::rdma::reap"),
                value: UnsafeCell::new(ManuallyDrop::new(value)),
                queue,
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(ManuallyDrop::new(node)))
    }
}

impl<T: Send + Sync + 'static> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the invariant of `Node` the value is alive as long as this handle, and only
        // shared references to it are made until then.
        unsafe { &*self.0.value.get() }
    }
}

impl<T: Send + Sync + 'static> Drop for Deferred<T> {
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped; nobody uses the field again.
        let node = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: The value still holds a use of its device, and the client destroys the queue
        // only after all uses of all devices are gone.
        let queue = unsafe { Queue::from_raw(node.queue.as_ptr().cast()) };
        // Queued once in its life, so this cannot fail.
        let _ = queue.enqueue(node);
    }
}
