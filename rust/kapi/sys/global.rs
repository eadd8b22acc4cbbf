// SPDX-License-Identifier: GPL-2.0

//! An object that callbacks without context can find, for as long as its owner wants.

use core::{marker::PhantomData, ptr};
use kernel::{
    ffi,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Release},
        rcu,
        Arc, //
    },
    types::ForeignOwnable, //
};
use smc_bindings as bindings;

/// A place for one object.
///
/// # Invariants
///
/// Holds null, or what `Arc::<T>::into_foreign` gave and [`Guard`] takes back.
pub struct Global<T: Send + Sync + 'static> {
    place: Atomic<*mut ffi::c_void>,
    _type: PhantomData<Arc<T>>,
}

// SAFETY: It holds a counted reference of an object that may be shared.
unsafe impl<T: Send + Sync + 'static> Sync for Global<T> {}

impl<T: Send + Sync + 'static> Default for Global<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> Global<T> {
    /// Makes an empty place.
    pub const fn new() -> Self {
        Self {
            place: Atomic::new(ptr::null_mut()),
            _type: PhantomData,
        }
    }

    /// Puts `object` here until the guard is dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one already.
    pub fn install(&'static self, object: Arc<T>) -> Result<Guard<T>> {
        let raw = object.into_foreign();
        if self.place.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
            // SAFETY: `raw` was made above, and nobody else has it.
            drop(unsafe { <Arc<T> as ForeignOwnable>::from_foreign(raw) });
            return Err(EBUSY);
        }
        Ok(Guard(self))
    }

    /// Returns the object, if there is one. Any context.
    pub fn get(&self) -> Option<Arc<T>> {
        let _rcu = rcu::read_lock();
        let raw = self.place.load(Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariant. `Guard` gives the reference back only an RCU grace period
        // after it has cleared the place, so it is still there in this section.
        Some(unsafe { <Arc<T> as ForeignOwnable>::borrow(raw) }.into())
    }

    /// Calls `f` with the object, if there is one. Any context; `f` does not sleep.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        let raw = self.place.load(Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: As in `get`; the section lasts until `f` has returned.
        let object = unsafe { <Arc<T> as ForeignOwnable>::borrow(raw) };
        Some(f(&object))
    }
}

/// Takes the object out of its place when it is dropped.
pub struct Guard<T: Send + Sync + 'static>(&'static Global<T>);

impl<T: Send + Sync + 'static> Drop for Guard<T> {
    fn drop(&mut self) {
        let raw = self.0.place.load(Acquire);
        self.0.place.store(ptr::null_mut(), Release);
        // SAFETY: Guards are dropped in process context, without locks.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: `install` put it there, and nobody can borrow it any more.
        drop(unsafe { <Arc<T> as ForeignOwnable>::from_foreign(raw) });
    }
}
