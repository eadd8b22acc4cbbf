// SPDX-License-Identifier: GPL-2.0

//! Giving memory back when the kernel is short of it.
//!
//! C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use core::ptr::NonNull;
use kernel::{ffi, prelude::*, sync::Arc};
use smc_bindings as bindings;

/// Pages to ask for at a time: those of one ring of 64 KiB.
const BATCH: ffi::c_long = 16;

/// `SHRINK_STOP`, whose type bindgen gets wrong.
const STOP: ffi::c_ulong = ffi::c_ulong::MAX;

/// More is not said: the two highest numbers mean something else.
const MOST: ffi::c_ulong = STOP >> 1;

/// Memory that is kept for later and could be done without.
///
/// Both functions are called by whoever allocates memory, with the locks that he holds: they take no
/// lock under which anybody allocates with `GFP_KERNEL`, unless by trying.
pub trait Spare: Send + Sync + 'static {
    /// Counts the pages that could be given back.
    fn count(&self) -> usize;

    /// Gives about `wanted` pages back; returns how many, 0 if there is nothing to be had now.
    fn give_back(&self, wanted: usize) -> usize;
}

/// Has the kernel ask for spare memory; dropping it waits for calls under way.
///
/// # Invariants
///
/// `shrinker` was registered with functions of this type, and its `private_data` points to `spare`.
pub struct Registration<T: Spare> {
    shrinker: NonNull<bindings::shrinker>,
    _spare: Arc<T>,
}

// SAFETY: Unregistering is the only operation, and any thread may do it; `T` is shared between threads.
unsafe impl<T: Spare> Send for Registration<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Spare> Sync for Registration<T> {}

impl<T: Spare> Registration<T> {
    /// Registers `spare` by a name for debugfs, which must not have a `%`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(name: &'static CStr, spare: Arc<T>) -> Result<Self> {
        // SAFETY: The name is a string, and a format without arguments as it has no `%`.
        let shrinker = unsafe { bindings::shrinker_alloc(0, name.as_char_ptr()) };
        let shrinker = NonNull::new(shrinker).ok_or(ENOMEM)?;
        // SAFETY: Allocated above, and nobody knows it before it is registered. The functions stay as
        // long as the module, and `spare` lives until `drop` has unregistered them.
        unsafe {
            let raw = shrinker.as_ptr();
            (*raw).count_objects = Some(Self::count);
            (*raw).scan_objects = Some(Self::scan);
            (*raw).batch = BATCH;
            // No I/O is needed to have the memory again: half of it goes at the first call.
            (*raw).seeks = 0;
            (*raw).private_data = Arc::as_ptr(&spare).cast_mut().cast();
            bindings::shrinker_register(raw);
        }
        // INVARIANT: Registered with these functions and `spare`.
        Ok(Self {
            shrinker,
            _spare: spare,
        })
    }

    /// # Safety
    ///
    /// Only called by the kernel, with a registered shrinker of this type.
    unsafe extern "C" fn count(
        shrinker: *mut bindings::shrinker,
        _control: *mut bindings::shrink_control,
    ) -> ffi::c_ulong {
        // SAFETY: By the invariant of the registration, whose drop waits for this function.
        let spare = unsafe { &*(*shrinker).private_data.cast::<T>() };
        spare.count().min(MOST)
    }

    /// # Safety
    ///
    /// Only called by the kernel, with a registered shrinker of this type.
    unsafe extern "C" fn scan(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> ffi::c_ulong {
        // SAFETY: `private_data` is what was registered, and lives as long as the registration, whose
        // drop waits for this function; the kernel passes a valid `control`.
        let (spare, wanted) = unsafe {
            (
                &*(*shrinker).private_data.cast::<T>(),
                (*control).nr_to_scan,
            )
        };
        match spare.give_back(wanted) {
            0 => STOP,
            freed => freed.min(MOST),
        }
    }
}

impl<T: Spare> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`, and unregistered nowhere else. Waits for callers.
        unsafe { bindings::shrinker_free(self.shrinker.as_ptr()) };
    }
}
