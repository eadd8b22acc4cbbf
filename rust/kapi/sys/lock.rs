// SPDX-License-Identifier: GPL-2.0

//! A spinlock that keeps bottom halves out.
//!
//! Completions arrive in softirq context while processes post, so the queues need it.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use core::ptr;
use kernel::{
    ffi::c_char,
    sync::lock::{Backend, Guard, Lock},
    types::NotThreadSafe, //
};
use smc_bindings as bindings;

/// The backend of [`SpinLockBh`].
pub struct SpinLockBhBackend;

/// A spinlock that may be taken in process and in softirq context.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// Creates a [`SpinLockBh`] initialiser with a new lock class.
#[macro_export]
macro_rules! new_spinlock_bh {
    ($inner:expr, $name:literal) => {
        $crate::sys::lock::SpinLockBh::new(
            $inner,
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}

/// Who keeps bottom halves out while a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bh {
    /// The lock, until it is unlocked.
    Lock,
    /// Whoever has called, see [`lock_with_bh_off`].
    Caller,
}

/// Locks where bottom halves are off already, and stay so until it is unlocked: in softirq context, or inside of
/// another lock of this kind. That saves turning them off and on.
///
/// Where they are on, a softirq on this CPU that wants the lock waits for ever. Lockdep tells of such a call.
#[inline]
pub fn lock_with_bh_off<T>(lock: &SpinLockBh<T>) -> Guard<'_, T, SpinLockBhBackend> {
    let state = ptr::from_ref(lock)
        .cast::<bindings::spinlock_t>()
        .cast_mut();
    // SAFETY:
    // - `Lock` is `repr(C)`, and its first field is the `spinlock_t`, in an `Opaque`; `Lock::from_raw` of the kernel
    //   crate relies on that, too. `init` was called for it, or there would be no `Lock`.
    // - The guard belongs to the lock that was just taken.
    unsafe {
        bindings::spin_lock(state);
        Guard::new(lock, Bh::Caller)
    }
}

/// Bottom halves are off on this CPU as long as this lives, and the thread stays there.
pub(crate) struct BhOff(NotThreadSafe);

impl BhOff {
    /// Turns them off. Not in hard interrupts.
    pub(crate) fn new() -> Self {
        // SAFETY: No preconditions; `drop` turns them on, on the same thread.
        unsafe { bindings::local_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for BhOff {
    fn drop(&mut self) {
        // SAFETY: `new` has turned them off, on this thread.
        unsafe { bindings::local_bh_enable() };
    }
}

// SAFETY: `spinlock_t` gives mutual exclusion, also where bottom halves stay as they are; the default `relock` locks
// as `lock`.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = Bh;

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: `ptr` may be written, `name` and `key` are static, as the caller promises.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller promises an initialised lock.
        unsafe { bindings::spin_lock_bh(ptr) };
        Bh::Lock
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        match guard_state {
            // SAFETY: The caller promises that it owns the lock, which `lock` or `try_lock` has taken.
            Bh::Lock => unsafe { bindings::spin_unlock_bh(ptr) },
            // SAFETY: The caller promises that it owns the lock, which `lock_with_bh_off` has taken.
            Bh::Caller => unsafe { bindings::spin_unlock(ptr) },
        }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The caller promises an initialised lock.
        (unsafe { bindings::spin_trylock_bh(ptr) } != 0).then_some(Bh::Lock)
    }

    // Without lockdep there is nothing to look at.
    #[inline]
    unsafe fn assert_is_held(_ptr: *mut Self::State) {
        #[cfg(CONFIG_LOCKDEP)]
        // SAFETY: The caller promises an initialised lock.
        unsafe {
            bindings::spin_assert_is_held(_ptr)
        }
    }
}
