// SPDX-License-Identifier: GPL-2.0

//! Being told, in atomic context, that a socket woke its waiters.

use super::{sock::Sock, socket::BsdSocket};
use crate::sys::hook::Notify;
use core::{marker::PhantomPinned, ptr};
use kernel::{
    ffi,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Acquire, Atomic, Relaxed, Release},
        rcu,
        Arc, //
    },
    types::Opaque, //
};
use smc_bindings as bindings;

/// Calls [`Notify::notify`] whenever a socket wakes its waiters.
///
/// # Invariants
///
/// `entry` is on the wait queue `head` unless `head` is null. The memory of the queue is freed an RCU grace period after
/// it has left the sock, or later. `POLLFREE` makes `head` null; it is sent before that, but for a socket whose
/// table somebody else has replaced.
#[pin_data(PinnedDrop)]
pub struct WaitHook<T: Notify> {
    #[pin]
    entry: Opaque<bindings::wait_queue_entry>,
    head: Atomic<*mut bindings::wait_queue_head>,
    sock: ARef<Sock>,
    target: Arc<T>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The entry is protected by the lock of the queue it is on; the rest is `Send`.
unsafe impl<T: Notify> Send for WaitHook<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Notify> Sync for WaitHook<T> {}

impl<T: Notify> WaitHook<T> {
    /// Hooks `target` onto `socket`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(socket: &BsdSocket, target: Arc<T>) -> Result<Pin<KBox<Self>>> {
        let head = socket.wait_head();
        let hook = KBox::pin_init(
            pin_init!(Self {
                entry <- Opaque::ffi_init(|entry| {
                    // SAFETY: `entry` is memory for a wait queue entry.
                    unsafe { bindings::init_wait_func(entry, Some(Self::wake)) };
                }),
                head: Atomic::new(head),
                sock: socket.sock().into(),
                target,
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The entry is on the queue from here on.
        // Before all others, so that it may keep a wake-up from them.
        // SAFETY: The queue belongs to `socket`, which lives during this call; the entry is
        // initialised and pinned, and leaves the queue before it is freed (`drop`, `wake`).
        unsafe { bindings::add_wait_queue_priority(head, hook.entry.get()) };
        Ok(hook)
    }

    /// # Safety
    ///
    /// Called by the kernel alone. A wait queue calls it with its lock held, for an entry that
    /// [`WaitHook::new`] has put in.
    unsafe extern "C" fn wake(
        entry: *mut bindings::wait_queue_entry,
        _mode: ffi::c_uint,
        _flags: ffi::c_int,
        key: *mut ffi::c_void,
    ) -> ffi::c_int {
        // SAFETY: `entry` is the first field's address of a `WaitHook<T>`, which is alive: it leaves
        // the queue under the lock that is held here before it is freed.
        let hook = unsafe { &*kernel::container_of!(Opaque::cast_from(entry), Self, entry) };
        if key as usize & bindings::POLLFREE_RAW as usize != 0 {
            // SAFETY: The queue's lock is held, and the queue ends with this wake-up.
            unsafe { bindings::list_del_init_helper(&mut (*entry).entry) };
            hook.head.store(ptr::null_mut(), Release);
            return 0;
        }
        // SAFETY: The queue's lock is held, and the entry is on the queue.
        let of_state = key.is_null() && !unsafe { hook.has_exclusive() };
        let suppressed = T::suppresses_wakeup(hook.target.as_arc_borrow(), of_state);
        T::notify(hook.target.as_arc_borrow());
        // A negative number ends the wake-up here. Otherwise: does not count as an exclusive waiter.
        -ffi::c_int::from(suppressed)
    }

    /// Tells whether a waiter of the queue is exclusive, so that a wake-up with a key wakes only the first of those.
    ///
    /// # Safety
    ///
    /// The entry is on the queue, whose lock is held.
    unsafe fn has_exclusive(&self) -> bool {
        let head = self.head.load(Relaxed);
        // SAFETY:
        // - The entry is on the queue `head`, by the invariant, so the list is not empty, and all of it are entries.
        // - The queue's lock is held, so the list does not change.
        // - Exclusive waiters are at its end (`add_wait_queue_exclusive()`).
        unsafe {
            let last = (*head).head.prev;
            let last = kernel::container_of!(last, bindings::wait_queue_entry, entry);
            (*last).flags & bindings::WQ_FLAG_EXCLUSIVE != 0
        }
    }
}

#[pinned_drop]
impl<T: Notify> PinnedDrop for WaitHook<T> {
    fn drop(self: Pin<&mut Self>) {
        let rcu = rcu::read_lock();
        let head = self.head.load(Acquire);
        if head.is_null() {
            return;
        }
        if self.sock.has_wait_queue() {
            // SAFETY: The sock had a wait queue, and `POLLFREE` has not reached the entry when `head` was read, so
            // the queue's memory lives at least until this RCU section ends. Should it reach the entry in
            // between, the entry is an empty list, which may be deleted again.
            unsafe { bindings::remove_wait_queue(head, self.entry.get()) };
            return;
        }
        drop(rcu);
        // The queue has left the sock and may be gone, so the entry cannot be taken out. Whoever goes along the queue
        // has found it by the sock, under RCU.
        // SAFETY: Process context; hooks are dropped without spinlocks.
        unsafe { bindings::synchronize_rcu() };
    }
}
