// SPDX-License-Identifier: GPL-2.0

//! Hearing of RDMA devices and of what happens to them.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::device::Device;
use core::{
    ffi::CStr,
    ptr::{self, NonNull}, //
};
use kernel::{
    container_of,
    error::to_result,
    ffi::{c_int, c_void},
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        Arc, //
    },
    types::Opaque, //
};
use smc_bindings as bindings;

/// The one client of this module. The `add` callback of the RDMA core has no context argument, so
/// it finds the client here.
static CLIENT: Atomic<*mut Shared> = Atomic::new(ptr::null_mut());

/// Callbacks of a user of RDMA devices, for their coming and going. Called in process context.
pub trait ClientOps: Send + Sync + 'static {
    /// Takes a device that appeared; also called for every device that exists at registration.
    ///
    /// # Errors
    ///
    /// With an error the client hears nothing more of the device.
    fn add(&self, device: &Arc<Device>) -> Result;

    /// Gives up a device that is going away.
    ///
    /// Close every queue pair and revoke every memory region of the device before returning.
    /// New objects can no longer be made. The removal goes on when the last
    /// [`super::device::DeviceUse`] is gone, so what is dropped asynchronously is waited for.
    fn remove(&self, device: &Arc<Device>);

    /// Looks at a device to which something happened. Must not wait for a removal.
    fn event(&self, device: &Arc<Device>, event: Event) {
        let _ = (device, event);
    }
}

/// An asynchronous event of a device (`enum ib_event_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// This port became usable.
    PortActive(u32),
    /// This port is no longer usable.
    PortError(u32),
    /// The GID table of this port changed.
    GidChange(u32),
    /// The device is broken.
    DeviceFatal,
    /// Something else, by its number.
    Other(u32),
}

impl Event {
    /// # Safety
    ///
    /// `event` must be a valid event.
    unsafe fn from_raw(event: *const bindings::ib_event) -> Self {
        // SAFETY: The caller's promise. The port is the valid member for port events, and reading
        // it as a number is possible for all.
        let (kind, port) = unsafe { ((*event).event, (*event).element.port_num) };
        match kind {
            bindings::ib_event_type_IB_EVENT_PORT_ACTIVE => Event::PortActive(port),
            bindings::ib_event_type_IB_EVENT_PORT_ERR => Event::PortError(port),
            bindings::ib_event_type_IB_EVENT_GID_CHANGE => Event::GidChange(port),
            bindings::ib_event_type_IB_EVENT_DEVICE_FATAL => Event::DeviceFatal,
            other => Event::Other(other),
        }
    }
}

/// State that the callbacks of the RDMA core reach.
#[pin_data]
struct Shared {
    #[pin]
    raw: Opaque<bindings::ib_client>,
    ops: Arc<dyn ClientOps>,
    queue: NonNull<bindings::workqueue_struct>,
    /// Is no device of the network; NAPI contexts have to belong to one.
    netdev: NonNull<bindings::net_device>,
    serial: Atomic<u32>,
}

/// One device of the client; the client data of the RDMA core.
///
/// # Invariants
///
/// `handler` is registered from the end of `add` to the beginning of `remove`.
#[pin_data]
struct Registered {
    #[pin]
    handler: Opaque<bindings::ib_event_handler>,
    device: Arc<Device>,
    ops: Arc<dyn ClientOps>,
}

/// Registration as a client of the RDMA core; dropping it removes every device first.
///
/// # Invariants
///
/// `CLIENT` is this object's `Shared`, which is registered.
pub struct Client(Pin<KBox<Shared>>);

// SAFETY: The only thing done with it is dropping, which any thread may do.
unsafe impl Send for Client {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for Client {}

impl Client {
    /// Registers `ops` under `name`; there can be one client at a time.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is a client already, `ENOMEM`, or the RDMA core's error.
    pub fn register(name: &'static CStr, ops: Arc<dyn ClientOps>) -> Result<Self> {
        // SAFETY: The string is static; the helper passes it as the argument of "%s".
        let queue = unsafe { bindings::alloc_workqueue_unbound(name.as_char_ptr()) };
        let queue = NonNull::new(queue).ok_or(ENOMEM)?;
        // SAFETY: No preconditions.
        let Some(netdev) = NonNull::new(unsafe { bindings::alloc_netdev_dummy(0) }) else {
            // SAFETY: Nothing uses the queue.
            unsafe { bindings::destroy_workqueue(queue.as_ptr()) };
            return Err(ENOMEM);
        };
        let shared = KBox::pin_init(
            pin_init!(Shared {
                raw <- Opaque::ffi_init(|slot: *mut bindings::ib_client| {
                    // SAFETY: `slot` may be written. Zero is a valid state of all fields.
                    unsafe {
                        slot.write_bytes(0, 1);
                        (*slot).name = name.as_char_ptr();
                        (*slot).add = Some(add);
                        (*slot).remove = Some(remove);
                    }
                }),
                ops,
                queue,
                netdev,
                serial: Atomic::new(0),
            }),
            GFP_KERNEL,
        );
        let registered = shared.and_then(|shared| {
            let raw = ptr::from_ref::<Shared>(&shared).cast_mut();
            if CLIENT.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
                return Err(EBUSY);
            }
            // SAFETY: The client is initialised and stays where it is until it is unregistered.
            let result = to_result(unsafe { bindings::ib_register_client(shared.raw.get()) });
            if let Err(error) = result {
                CLIENT.store(ptr::null_mut(), Release);
                return Err(error);
            }
            // INVARIANT: Registered and in `CLIENT`.
            Ok(Self(shared))
        });
        if registered.is_err() {
            // SAFETY: No client was registered, so nothing uses the queue or the network device.
            unsafe {
                bindings::destroy_workqueue(queue.as_ptr());
                bindings::free_netdev(netdev.as_ptr());
            }
        }
        registered
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: Registered by the invariant. Returns after all devices were removed, each of
        // which waited for all its uses: no object of any device is left.
        unsafe { bindings::ib_unregister_client(self.0.raw.get()) };
        CLIENT.store(ptr::null_mut(), Release);
        // SAFETY: Only objects with a use of a device queue work. What still runs (the end of the
        // work that gave back the last use) is waited for here.
        unsafe { bindings::destroy_workqueue(self.0.queue.as_ptr()) };
        // SAFETY: NAPI contexts were of objects of a device, and have left it.
        unsafe { bindings::free_netdev(self.0.netdev.as_ptr()) };
    }
}

/// # Safety
///
/// Called by the RDMA core for a device of the registered client.
unsafe extern "C" fn add(ibdev: *mut bindings::ib_device) -> c_int {
    // SAFETY: The core calls this only between registration and the end of unregistration, when
    // `CLIENT` is set and its target alive.
    let shared = unsafe { &*CLIENT.load(Acquire) };
    kernel::error::from_result(|| {
        let raw = NonNull::new(ibdev).ok_or(EINVAL)?;
        let serial = shared.serial.fetch_add(1, Relaxed);
        let device = Device::new(raw, shared.queue, shared.netdev, serial)?;
        let held = device.clone();
        let registered = KBox::pin_init(
            pin_init!(Registered {
                handler <- Opaque::ffi_init(|slot: *mut bindings::ib_event_handler| {
                    // SAFETY: `slot` may be written; registration initialises the list.
                    unsafe {
                        slot.write_bytes(0, 1);
                        (*slot).device = ibdev;
                        (*slot).handler = Some(event);
                    }
                }),
                device: held,
                ops: shared.ops.clone(),
            }),
            GFP_KERNEL,
        )?;
        // Before `add`: no event after it is to be missed.
        // SAFETY: The handler is initialised, for this device, and stays in place, and registered,
        // until it is unregistered below or by `remove`.
        // INVARIANT: Registered from here.
        unsafe { bindings::ib_register_event_handler(registered.handler.get()) };
        if let Err(error) = shared.ops.add(&device) {
            // SAFETY: Registered above. Running handlers are waited for.
            unsafe { bindings::ib_unregister_event_handler(registered.handler.get()) };
            device.revoke();
            device.wait_unused();
            return Err(error);
        }
        // SAFETY: The memory behind a pinned box does not move; it is not moved out below.
        let registered = KBox::into_raw(unsafe { Pin::into_inner_unchecked(registered) });
        // SAFETY: We are inside `add`, where client data may be set; `remove` frees it.
        unsafe { bindings::ib_set_client_data(ibdev, shared.raw.get(), registered.cast()) };
        Ok(0)
    })
}

/// # Safety
///
/// Called by the RDMA core, once for each device whose `add` succeeded, with its client data.
unsafe extern "C" fn remove(_ibdev: *mut bindings::ib_device, data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: `data` is the box that `add` leaked; the core has no further use for it.
    let registered = unsafe { Pin::new_unchecked(KBox::from_raw(data.cast::<Registered>())) };
    // SAFETY: Registered in `add`. Running handlers are waited for.
    unsafe { bindings::ib_unregister_event_handler(registered.handler.get()) };
    registered.device.revoke();
    registered.ops.remove(&registered.device);
    registered.device.wait_unused();
}

/// # Safety
///
/// Called by the RDMA core with a registered handler, in process context.
unsafe extern "C" fn event(
    handler: *mut bindings::ib_event_handler,
    event: *mut bindings::ib_event,
) {
    let handler = handler.cast::<Opaque<bindings::ib_event_handler>>();
    // SAFETY: Every handler of ours is the field of a `Registered`, which lives until the handler
    // has been unregistered, and that waits for this call.
    let registered = unsafe { &*container_of!(handler, Registered, handler) };
    // SAFETY: The core passes a valid event.
    let event = unsafe { Event::from_raw(event) };
    registered.device.on_event();
    registered.ops.event(&registered.device, event);
}
