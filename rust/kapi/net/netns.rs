// SPDX-License-Identifier: GPL-2.0

//! State of a network namespace.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use core::{
    any::TypeId,
    hash::{Hash, Hasher},
    marker::PhantomData,
    ptr, //
};
use kernel::{
    error::{from_result, to_result},
    ffi,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
        Arc, //
    },
    types::{ForeignOwnable, Opaque}, //
};
use smc_bindings as bindings;

/// State of a module in each network namespace.
pub trait PerNet: Send + Sync + Sized + 'static {
    /// Returns where the type is registered: a static of its own.
    fn slot() -> &'static Slot;

    /// Makes the state of a new namespace.
    ///
    /// # Errors
    ///
    /// An error makes the namespace's creation, or the module's loading, fail.
    fn new(net: &Net) -> Result<Arc<Self>>;

    /// Ends the state with its namespace, whose processes and sockets are gone, but packets may
    /// still be under way until an RCU grace period has passed, which follows before the state is
    /// dropped.
    fn exit(this: &Arc<Self>);
}

/// A network namespace that is alive.
#[repr(transparent)]
pub struct Net(Opaque<bindings::net>);

impl Net {
    /// # Safety
    ///
    /// `ptr` is a namespace that lives during `'a`.
    pub(crate) unsafe fn from_raw<'a>(ptr: *mut bindings::net) -> &'a Self {
        // SAFETY: Transparent; the rest is the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// Returns the C pointer.
    pub(crate) fn as_ptr(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// Returns a number that no other namespace ever has (`SO_NETNS_COOKIE`).
    pub fn cookie(&self) -> u64 {
        // SAFETY: The namespace is alive; the number does not change.
        unsafe { bindings::net_cookie(self.as_ptr()) }
    }

    /// Returns a number that changes with the namespace's routes and addresses.
    pub fn routes(&self) -> u32 {
        // SAFETY: The namespace is alive; its counters are atomic.
        unsafe { bindings::routes_generation(self.as_ptr()) }
    }

    /// Returns whether this is the namespace that the system booted with.
    pub fn is_initial(&self) -> bool {
        ptr::eq(self.as_ptr(), &raw const bindings::init_net)
    }
}

/// Place of a type's state in each namespace.
pub struct Slot {
    /// The number that the kernel has given the registration; 0 while there is none.
    id: Atomic<u32>,
    /// The number of the registered type; set before `id`.
    kind: Atomic<u64>,
    /// Number that the kernel assigns while it registers.
    pending: Atomic<*mut ffi::c_uint>,
}

impl Slot {
    /// A slot in which nothing is registered.
    #[allow(clippy::new_without_default, reason = "only statics are made of it")]
    pub const fn new() -> Self {
        Self {
            id: Atomic::new(0),
            kind: Atomic::new(0),
            pending: Atomic::new(ptr::null_mut()),
        }
    }
}

/// Keeps [`PerNet`] state in every namespace; dropping it takes the state out of all of them.
#[pin_data(PinnedDrop)]
pub struct Registration<T: PerNet> {
    #[pin]
    ops: Opaque<bindings::pernet_operations>,
    #[pin]
    id: Opaque<ffi::c_uint>,
    _type: PhantomData<T>,
}

// SAFETY: Dropping is the only operation, and it may happen on any thread.
unsafe impl<T: PerNet> Send for Registration<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: PerNet> Sync for Registration<T> {}

impl<T: PerNet> Registration<T> {
    /// Calls [`PerNet::new`] for every namespace there is and will be. Only one registration may
    /// exist in each [`Slot`].
    ///
    /// # Errors
    ///
    /// `EBUSY` for a second registration in the slot, `ENOMEM`, and those of [`PerNet::new`].
    pub fn new() -> Result<Pin<KBox<Self>>> {
        let slot = T::slot();
        if slot.id.load(Acquire) != 0 {
            return Err(EBUSY);
        }
        let this = KBox::pin_init(
            pin_init!(Self {
                ops <- Opaque::new(bindings::pernet_operations::default()),
                id <- Opaque::new(0),
                _type: PhantomData,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The operations are pinned and known to us alone. `init` of the first namespaces
        // runs inside this call, so `id` must be found through `ops` there.
        unsafe {
            *this.ops.get() = bindings::pernet_operations {
                init: Some(Self::init),
                pre_exit: Some(Self::pre_exit),
                exit: Some(Self::exit),
                id: this.id.get(),
                size: core::mem::size_of::<*mut ffi::c_void>(),
                ..Default::default()
            };
            slot.kind.store(kind::<T>(), Relaxed);
            slot.pending.store(this.id.get(), Release);
            if let Err(err) = to_result(bindings::register_pernet_subsys(this.ops.get())) {
                slot.pending.store(ptr::null_mut(), Release);
                slot.id.store(0, Release);
                // Nothing is registered, so nothing may be unregistered.
                let raw = KBox::into_raw(Pin::into_inner_unchecked(this));
                drop(KBox::from_raw(raw.cast::<core::mem::ManuallyDrop<Self>>()));
                return Err(err);
            }
        }
        Ok(this)
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `net` is a namespace that begins, or one that is there at
    /// registration; nobody uses this slot of it yet.
    unsafe extern "C" fn init(net: *mut bindings::net) -> ffi::c_int {
        from_result(|| {
            let here = T::slot();
            let pending = here.pending.load(Acquire);
            // A type that names another slot than at its registration gets nothing.
            if pending.is_null() || here.kind.load(Relaxed) != kind::<T>() {
                return Err(EINVAL);
            }
            // SAFETY: Not null, so the id of a registration, of this type by the check above. The core has
            // set it before it calls `init`, and it is pinned until after the last `exit`.
            let id = unsafe { *pending };
            here.id.store(id, Release);
            // SAFETY: The namespace is being set up and alive.
            let state = T::new(unsafe { Net::from_raw(net) })?;
            // Files that `T::new` has made can be read already.
            // SAFETY: The namespace is alive.
            unsafe { slot(net, id) }.store(state.into_foreign(), Release);
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `net` is a namespace that ends and is still valid, after an
    /// `init` that succeeded.
    unsafe extern "C" fn pre_exit(net: *mut bindings::net) {
        // SAFETY: The namespace is alive.
        if let Some(state) = of_net::<T>(unsafe { Net::from_raw(net) }) {
            T::exit(&state);
        }
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `net` is a namespace that ends, after its `pre_exit` and a grace
    /// period.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        let here = T::slot();
        let id = here.id.load(Acquire);
        // Not registered, or by a build of another type: the slot is not this one's.
        if id == 0 || here.kind.load(Relaxed) != kind::<T>() {
            return;
        }
        // SAFETY: The id is registered, and for this type. So the slot holds what `init` put there, and
        // the namespace has no users any more.
        unsafe {
            let slot = slot(net, id);
            let raw = slot.load(Relaxed);
            if !raw.is_null() {
                slot.store(ptr::null_mut(), Relaxed);
                drop(<Arc<T> as ForeignOwnable>::from_foreign(raw));
            }
        }
    }
}

/// Returns the pointer of a namespace that belongs to the registration `id`.
///
/// # Safety
///
/// The namespace lives during `'a`, and `id` is registered.
unsafe fn slot<'a>(net: *mut bindings::net, id: u32) -> &'a Atomic<*mut ffi::c_void> {
    // SAFETY: What the core gives out for `id` is as large as registered: one pointer. It is only
    // used as this atomic.
    unsafe { Atomic::from_ptr(bindings::net_generic(net, id).cast()) }
}

#[pinned_drop]
impl<T: PerNet> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) };
        let slot = T::slot();
        slot.id.store(0, Release);
        slot.pending.store(ptr::null_mut(), Release);
    }
}

/// Returns the state of a namespace; none if it has none of this type.
pub(crate) fn of_net<T: PerNet>(net: &Net) -> Option<Arc<T>> {
    let here = T::slot();
    let id = here.id.load(Acquire);
    if id == 0 || here.kind.load(Relaxed) != kind::<T>() {
        return None;
    }
    // SAFETY: The slot of a living namespace holds null or what `init` put there, which is of the
    // type that is registered, and that is `T`.
    unsafe {
        let raw = slot(net.as_ptr(), id).load(Acquire);
        if raw.is_null() {
            return None;
        }
        Some(<Arc<T> as ForeignOwnable>::borrow(raw).into())
    }
}

/// Returns a number for each type.
fn kind<T: 'static>() -> u64 {
    struct Number(u64);

    impl Hasher for Number {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
            }
        }

        // Takes what a `TypeId` writes: half of the hash that it is.
        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    let mut number = Number(0);
    TypeId::of::<T>().hash(&mut number);
    number.finish()
}

impl<T: PerNet> Registration<T> {
    /// Returns the state of a namespace.
    pub fn at(net: &Net) -> Option<Arc<T>> {
        of_net(net)
    }

    /// Returns the state of the initial namespace.
    pub fn initial() -> Option<Arc<T>> {
        // SAFETY: The initial namespace lives for ever.
        Self::at(unsafe { Net::from_raw(&raw mut bindings::init_net) })
    }
}
