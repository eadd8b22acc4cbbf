// SPDX-License-Identifier: GPL-2.0

//! An object in use by many threads, which another one may take the place of.
//!
//! Who uses it enters first, which costs an instruction, and may sleep inside. What was the object before is kept until
//! nobody is inside; who leaves last gives it back.

use super::word::{full_barrier, Crowd, Pointer, Word};
use core::ptr;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

/// An object, and what comes after it in the list of former ones.
struct Place<T> {
    object: Arc<T>,
    next: *mut Place<T>,
}

/// An object that is to be the present one; see [`Gate::publish`].
pub struct Prepared<T>(KBox<Place<T>>);

// SAFETY: `next` is null, and the object may be sent.
unsafe impl<T: Send + Sync> Send for Prepared<T> {}

impl<T> Prepared<T> {
    /// Prepares `object`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(object: Arc<T>) -> Result<Self> {
        let next = ptr::null_mut();
        Ok(Self(KBox::new(Place { object, next }, GFP_KERNEL)?))
    }
}

/// The former objects, the last one first.
struct Former<T>(*mut Place<T>);

// SAFETY: The list owns its objects, which may be sent.
unsafe impl<T: Send + Sync> Send for Former<T> {}

/// The present object, if there is one, and those before.
///
/// # Invariants
///
/// `present` is null or came from a `KBox`, and so did each of the list `former`; they are this gate's alone. A place
/// that was `present` is given back only when it is not, and `inside` was found to be 0 after that.
#[pin_data(PinnedDrop)]
pub struct Gate<T: Send + Sync + 'static> {
    /// Changes under the lock of `former`.
    present: Pointer<Place<T>>,
    /// Number of those inside.
    inside: Crowd,
    /// 1 while there may be former objects.
    has_former: Word,
    #[pin]
    former: SpinLock<Former<T>>,
}

// SAFETY: The objects may be shared and sent.
unsafe impl<T: Send + Sync> Sync for Gate<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Send for Gate<T> {}

impl<T: Send + Sync> Gate<T> {
    /// Makes a gate without an object.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: There is no place.
        pin_init!(Self {
            present: Pointer::null(),
            inside: Crowd::new(0),
            has_former: Word::new(0),
            former <- new_spinlock!(Former(ptr::null_mut()), "kapi::Gate::former"),
        })
    }

    /// Enters: what is the present object meanwhile stays until the guard is dropped. Process context.
    #[inline]
    pub fn enter(&self) -> Inside<'_, T> {
        self.inside.add(1);
        Inside(self)
    }

    /// Calls `f` with the present object, if there is one. Any context.
    pub fn with<R>(&self, f: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        let inside = self.enter();
        let result = f(inside.get());
        inside.leave();
        result
    }

    /// Tells whether there is a present object.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.present.acquire().is_null()
    }

    /// Makes an object the present one, if there is none.
    pub fn publish(&self, prepared: Prepared<T>) {
        let former = self.former.lock();
        if self.is_empty() {
            // INVARIANT: It comes from a `KBox`.
            self.present.release(KBox::into_raw(prepared.0));
        }
        drop(former);
    }

    /// Has no present object any more, if it is `object`. Returns whether it was.
    pub fn retire(&self, object: &Arc<T>) -> bool {
        let mut former = self.former.lock();
        let place = self.present.acquire();
        // SAFETY: By the type invariant the place is there, if it is not null.
        if place.is_null() || !Arc::ptr_eq(unsafe { &(*place).object }, object) {
            return false;
        }
        self.present.release(ptr::null_mut());
        // SAFETY: As above. Those inside use `object` alone, and `next` is changed with the lock held.
        unsafe { (*place).next = former.0 };
        // INVARIANT: It was the present one.
        former.0 = place;
        self.has_former.set(1);
        true
    }

    /// Gives former objects back if nobody is inside. Sleeps as their ends do.
    #[cold]
    pub fn sweep(&self) {
        while !self.try_sweep() {
            // Whoever left last may have done so while no former object was to be seen.
            full_barrier();
            if self.inside.acquire() != 0 {
                return;
            }
        }
    }

    /// Does so once. Returns false if somebody was inside.
    fn try_sweep(&self) -> bool {
        let mut list = {
            let mut former = self.former.lock();
            self.has_former.set(0);
            core::mem::replace(&mut former.0, ptr::null_mut())
        };
        if list.is_null() {
            return true;
        }
        // Who enters after this finds none of them.
        full_barrier();
        let is_free = self.inside.acquire() == 0;
        while !list.is_null() {
            let place = list;
            // SAFETY: By the type invariant; it is on no list but this one.
            list = unsafe { (*place).next };
            if is_free {
                // SAFETY: It came from a `KBox`, was not the present one, and nobody was inside since.
                drop(unsafe { KBox::from_raw(place) });
                continue;
            }
            let mut former = self.former.lock();
            // SAFETY: As in `retire`.
            unsafe { (*place).next = former.0 };
            former.0 = place;
            self.has_former.set(1);
        }
        is_free
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Gate<T> {
    fn drop(self: Pin<&mut Self>) {
        let present = self.present.acquire();
        if !present.is_null() {
            // SAFETY: By the type invariant; nobody can be inside.
            drop(unsafe { KBox::from_raw(present) });
        }
        self.sweep();
    }
}

/// The right to use the objects of a gate.
pub struct Inside<'a, T: Send + Sync + 'static>(&'a Gate<T>);

impl<T: Send + Sync> Inside<'_, T> {
    /// Returns the present object, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&Arc<T>> {
        let place = self.0.present.acquire();
        // SAFETY: By the invariant of `Gate` a place stays as long as somebody is inside, as this one is.
        (!place.is_null()).then(|| unsafe { &(*place).object })
    }

    /// Leaves without giving anything back, for a caller with locks.
    pub fn leave(self) {
        self.0.inside.add(-1);
        core::mem::forget(self);
    }
}

impl<T: Send + Sync> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.inside.add(-1) == 1 && self.0.has_former.get() != 0 {
            self.0.sweep();
        }
    }
}
