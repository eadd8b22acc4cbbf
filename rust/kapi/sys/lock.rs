// SPDX-License-Identifier: GPL-2.0

//! A spinlock that keeps bottom halves out.
//!
//! Completions arrive in softirq context while processes post, so the queues need it.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use kernel::{
    ffi::c_char,
    sync::lock::{Backend, Lock}, //
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

// SAFETY: `spinlock_t` gives mutual exclusion; the default `relock` locks the same way.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: `ptr` may be written, `name` and `key` are static, as the caller promises.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller promises an initialised lock.
        unsafe { bindings::spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller promises that it owns the lock.
        unsafe { bindings::spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The caller promises an initialised lock.
        (unsafe { bindings::spin_trylock_bh(ptr) } != 0).then_some(())
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
