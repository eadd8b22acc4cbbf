// SPDX-License-Identifier: GPL-2.0

//! An RDMA device; what concerns a port is in `device/ports.rs`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

mod ports;
mod unfit;

pub use ports::{PortInfo, PortState};
pub(super) use unfit::PageSizes;
pub use unfit::Unfit;

use super::netns::NetNs;
use crate::sys::{clock, lock::SpinLockBh};
use core::{ffi::CStr, ops::Deref, ptr::NonNull};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        Arc,
        Completion, //
    }, //
};
use smc_bindings as bindings;

/// Seconds between lines in the kernel log while the removal of a device waits.
const NAG_SECONDS: u64 = 10;

/// Lines in the kernel log while the removal of a device waits, so that the administrator learns of which one.
pub(super) struct Nag(u64);

impl Nag {
    /// Begins the wait.
    pub(super) fn new() -> Self {
        Self(clock::seconds())
    }

    /// Has `say` write a line with the name of the device if the last one is 10 seconds ago.
    pub(super) fn due(&mut self, device: &Device, say: impl FnOnce(&str)) {
        let time = clock::seconds();
        if time.wrapping_sub(self.0) >= NAG_SECONDS {
            self.0 = time;
            let name = device.name();
            let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
            say(name.to_str().unwrap_or("?"));
        }
    }
}

/// An RDMA device that was offered to the [`super::client::Client`].
///
/// The handle may outlive the device: then every method fails with `ENODEV`.
///
/// # Invariants
///
/// * `users` counts the [`DeviceUse`]s plus one for the registration. Once zero it stays zero.
/// * While it is not zero `raw` is a registered device with its client data in place, and `queue`
///   and `netdev` are the client's workqueue and network device.
///
/// # Examples
///
/// ```
/// use kapi::rdma::{
///     client::{Client, ClientOps},
///     device::{Device, DeviceUse},
///     gid::GidKind, //
/// };
/// use kernel::{new_mutex, prelude::*, sync::Arc, sync::Mutex};
///
/// /// Uses the first device with a routable address.
/// #[pin_data]
/// struct First {
///     #[pin]
///     device: Mutex<Option<DeviceUse>>,
/// }
///
/// impl First {
///     fn new() -> Result<Arc<Self>> {
///         Arc::pin_init(
///             pin_init!(Self { device <- new_mutex!(None) }),
///             GFP_KERNEL,
///         )
///     }
/// }
///
/// impl ClientOps for First {
///     fn add(&self, device: &Arc<Device>) -> Result {
///         device.find_gid(1, |gid| gid.kind() == GidKind::RoceV2)?;
///         let mut first = self.device.lock();
///         if first.is_none() {
///             // From here on the device cannot go without `remove`.
///             *first = Some(device.hold()?);
///         }
///         Ok(())
///     }
///
///     fn remove(&self, device: &Arc<Device>) {
///         // The removal waits until the use is dropped.
///         let mut first = self.device.lock();
///         if first.as_ref().is_some_and(|used| Arc::ptr_eq(used.device(), device)) {
///             *first = None;
///         }
///         // The handle is of no use any more.
///         assert!(device.hold().is_err());
///     }
/// }
///
/// let first = First::new()?;
/// let client = Client::register(c"first", first.clone())?;
/// assert!(first.device.lock().is_some());
///
/// // To a client that ends, all devices go.
/// drop(client);
/// assert!(first.device.lock().is_none());
/// # Ok::<(), Error>(())
/// ```
#[pin_data]
pub struct Device {
    raw: NonNull<bindings::ib_device>,
    queue: NonNull<bindings::workqueue_struct>,
    netdev: NonNull<bindings::net_device>,
    users: Atomic<i32>,
    revoked: Atomic<i32>,
    serial: u32,
    added_as: [u8; 64],
    repeats_registrations: bool,
    software: bool,
    unfit: Option<Unfit>,
    /// Reports of the first ports since the last event.
    #[pin]
    ports: SpinLockBh<[Option<PortInfo>; ports::PORTS]>,
    /// Counts events.
    events: Atomic<u32>,
    #[pin]
    idle: Completion,
}

// SAFETY: `raw`, `queue` and `netdev` are used with functions that any thread may call, and only while
// `users` keeps them valid.
unsafe impl Send for Device {}
// SAFETY: Shared references pass `raw`, `queue` and `netdev` to functions that any thread may call, only while `users` keeps them
// valid; the other fields never change, or are atomics, a completion, and numbers behind a lock.
unsafe impl Sync for Device {}

/// A function of the PCI bus.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pci {
    /// The number of who made it.
    pub vendor: u16,
    /// The number that this gave it.
    pub device: u16,
    /// Its place, such as `0000:01:00.0`, padded with zeros.
    pub address: [u8; 32],
}

/// The limits of a device that users of this module meet.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Work requests of one queue.
    pub queue_wrs: u32,
    /// Scatter-gather elements of one send.
    pub send_sges: u32,
    /// Scatter-gather elements of one receive.
    pub recv_sges: u32,
    /// Entries of one completion queue.
    pub cq_entries: u32,
    /// Pages of the kernel in one fast-registration memory region.
    pub mr_pages: u32,
}

/// # Safety
///
/// `raw` is a registered device.
unsafe fn read_name(raw: *mut bindings::ib_device) -> [u8; 64] {
    let mut out = [0; 64];
    for (i, byte) in out.iter_mut().enumerate().take(63) {
        // SAFETY: By the function's contract, and `i` is inside the name. A rename may write
        // meanwhile, hence volatile; a mixed name is still only bytes.
        *byte = unsafe { (&raw const (*raw).name).cast::<u8>().add(i).read_volatile() };
        if *byte == 0 {
            break;
        }
    }
    out
}

impl Device {
    pub(super) fn new(
        raw: NonNull<bindings::ib_device>,
        queue: NonNull<bindings::workqueue_struct>,
        netdev: NonNull<bindings::net_device>,
        serial: u32,
    ) -> Result<Arc<Self>> {
        // INVARIANT: The registration is the one user.
        Arc::pin_init(
            pin_init!(Self {
                raw,
                queue,
                netdev,
                users: Atomic::new(1),
                revoked: Atomic::new(0),
                serial,
                // SAFETY: `raw` is registered: its client is just being told of it.
                added_as: unsafe { read_name(raw.as_ptr()) },
                // SAFETY: `raw` is registered: its client is just being told of it.
                repeats_registrations: unsafe { (*raw.as_ptr()).ops.driver_id }
                    == bindings::rdma_driver_id_RDMA_DRIVER_RXE,
                // SAFETY: `raw` is registered: its client is just being told of it.
                software: unsafe { bindings::ib_uses_virt_dma(raw.as_ptr()) },
                // SAFETY: `raw` is registered: its client is just being told of it.
                unfit: unsafe { unfit::examine(raw.as_ptr()) },
                ports <- new_spinlock_bh!([None; ports::PORTS], "kapi::rdma::ports"),
                events: Atomic::new(0),
                idle <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn queue(&self) -> NonNull<bindings::workqueue_struct> {
        self.queue
    }

    /// Returns the network device to which NAPI contexts of queue pairs belong. Valid as long as a use of the device.
    pub(super) fn napi_netdev(&self) -> NonNull<bindings::net_device> {
        self.netdev
    }

    /// Takes a count that keeps the device registered.
    ///
    /// # Errors
    ///
    /// `ENODEV` once the removal of the device has begun.
    pub fn hold(self: &Arc<Self>) -> Result<DeviceUse> {
        self.enter()?;
        Ok(DeviceUse(self.clone()))
    }

    fn enter(&self) -> Result {
        if self.revoked.load(Acquire) != 0 {
            return Err(ENODEV);
        }
        let mut seen = self.users.load(Relaxed);
        loop {
            if seen <= 0 || seen == i32::MAX {
                return Err(ENODEV);
            }
            match self.users.cmpxchg(seen, seen.wrapping_add(1), Full) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    fn leave(&self) {
        if self.users.fetch_sub(1, Full) == 1 {
            self.idle.complete_all();
        }
    }

    /// Runs `f` on the raw device, which stays registered meanwhile.
    fn with<R>(&self, f: impl FnOnce(*mut bindings::ib_device) -> Result<R>) -> Result<R> {
        self.enter()?;
        let result = f(self.raw.as_ptr());
        self.leave();
        result
    }

    /// Ends the device for new users: no use can begin after this.
    pub(super) fn revoke(&self) {
        self.revoked.store(1, Release);
    }

    /// Gives the registration's count back and waits for all others.
    pub(super) fn wait_unused(&self) {
        self.leave();
        // `Completion` has no timed wait; asking the count between sleeps gives the same.
        let mut nag = Nag::new();
        while self.users.load(Acquire) > 0 {
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
            nag.due(self, |name| {
                let users = self.users.load(Relaxed);
                pr_warn!("RDMA device {name}: removal waits for {users} objects\n");
            });
        }
        self.idle.wait_for_completion();
    }

    /// Returns whether the removal of the device has begun.
    pub fn is_gone(&self) -> bool {
        self.revoked.load(Acquire) != 0
    }

    /// Returns a number that no other device of this client has or had.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Returns how many interrupt vectors its completion queues may have, at least 1.
    pub fn vectors(&self) -> u32 {
        // SAFETY: The device is registered while the closure runs.
        let vectors = self.with(|raw| Ok(unsafe { (*raw).num_comp_vectors }));
        let vectors = vectors.ok().and_then(|count| u32::try_from(count).ok());
        vectors.unwrap_or(1).max(1)
    }

    /// Returns the name, such as `rxe0`, padded with zeros. Of a device that is gone, the one that
    /// it had when it came.
    pub fn name(&self) -> [u8; 64] {
        // SAFETY: The device is registered while the closure runs.
        self.with(|raw| Ok(unsafe { read_name(raw) }))
            .unwrap_or(self.added_as)
    }

    /// Returns the place and kind of the device on the PCI bus, if it is there.
    pub fn pci(&self) -> Option<Pci> {
        let found = self.with(|raw| {
            // SAFETY: `with` keeps the device registered, and a registered device holds its parent,
            // which does not change, nor does the name of that.
            let (vendor, device, name) = unsafe {
                let pdev = bindings::ib_pci_dev(raw);
                if pdev.is_null() {
                    return Ok(None);
                }
                let name = CStr::from_char_ptr(bindings::pci_name_of(pdev));
                ((*pdev).vendor, (*pdev).device, name)
            };
            let mut address = [0; 32];
            // The last byte stays zero.
            for (to, from) in address.iter_mut().take(31).zip(name.to_bytes()) {
                *to = *from;
            }
            Ok(Some(Pci {
                vendor,
                device,
                address,
            }))
        });
        found.ok().flatten()
    }

    /// Returns the node type (`enum rdma_node_type`): 1 is a channel adapter.
    pub fn node_type(&self) -> Result<u8> {
        // SAFETY: The device is registered; the field does not change.
        self.with(|raw| Ok(unsafe { (*raw).node_type }))
    }

    /// Returns the number of ports; they are numbered from 1.
    pub fn ports(&self) -> Result<u32> {
        // SAFETY: The device is registered; the field does not change.
        self.with(|raw| Ok(unsafe { (*raw).phys_port_cnt }))
    }

    /// Returns whether the device has no DMA device and moves data by CPU (rxe, siw).
    pub fn is_software(&self) -> bool {
        self.software
    }

    /// Returns what the device lacks to carry queue pairs and memory regions of ours, as found when it came.
    pub fn unfit(&self) -> Option<Unfit> {
        self.unfit
    }

    /// Tells whether the device registers memory again when it repeats a request that was posted before
    /// the registration, and breaks the queue pair because the key works already. Soft-RoCE does
    /// (`req_retry` in drivers/infiniband/sw/rxe); siw, on TCP, repeats nothing, and other devices
    /// register once.
    pub fn repeats_registrations(&self) -> bool {
        self.repeats_registrations
    }

    /// Returns whether the link layer and transport of `port` are RoCE.
    pub fn is_roce(&self, port: u32) -> Result<bool> {
        self.with(|raw| {
            // SAFETY: The device is registered; the second call is made for valid ports only.
            Ok(unsafe {
                bindings::rdma_is_port_valid(raw, port) && bindings::rdma_protocol_roce(raw, port)
            })
        })
    }

    /// Returns whether `port` may have GIDs of RoCE v1.
    pub fn has_roce_v1(&self, port: u32) -> bool {
        self.with(|raw| {
            // SAFETY: The device is registered; the second call is made for valid ports only.
            Ok(unsafe {
                bindings::rdma_is_port_valid(raw, port)
                    && bindings::rdma_protocol_roce_eth_encap(raw, port)
            })
        })
        .unwrap_or(false)
    }

    /// Returns whether a user in namespace `net` may use the device.
    pub fn accessible_from(&self, net: &impl NetNs) -> bool {
        self.with(|raw| {
            // SAFETY: The device is registered, and `net` is a live namespace by its contract.
            Ok(unsafe { bindings::rdma_dev_access_netns(raw, net.net_ptr()) })
        })
        .unwrap_or(false)
    }

    /// Returns the limits of the device.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EINVAL` for one that is [`Unfit::PageSize`].
    pub fn limits(&self) -> Result<Limits> {
        self.with(|raw| {
            // SAFETY: The device is registered; its attributes do not change.
            let attrs = unsafe { &(*raw).attrs };
            let sizes = PageSizes::new(attrs.page_size_cap).ok_or(EINVAL)?;
            let each = (PAGE_SIZE as u32).checked_div(sizes.least()).unwrap_or(1);
            Ok(Limits {
                queue_wrs: u32::try_from(attrs.max_qp_wr).unwrap_or(0),
                send_sges: u32::try_from(attrs.max_send_sge).unwrap_or(0),
                recv_sges: u32::try_from(attrs.max_recv_sge).unwrap_or(0),
                cq_entries: u32::try_from(attrs.max_cqe).unwrap_or(0),
                mr_pages: attrs
                    .max_fast_reg_page_list_len
                    .checked_div(each)
                    .unwrap_or(0),
            })
        })
    }

    /// Returns the sizes of pages by which memory may be registered, and how many pages a region may have.
    ///
    /// # Errors
    ///
    /// As [`Device::limits`].
    pub(super) fn page_sizes(&self) -> Result<(PageSizes, u32)> {
        // SAFETY: The device is registered; its attributes do not change.
        self.with(|raw| unsafe {
            let attrs = &(*raw).attrs;
            let sizes = PageSizes::of(attrs.page_size_cap, (*raw).ops.driver_id);
            Ok((sizes.ok_or(EINVAL)?, attrs.max_fast_reg_page_list_len))
        })
    }

    /// Returns the NUMA node that is near, negative if none is.
    pub(super) fn node(&self) -> Result<i32> {
        // SAFETY: The device is registered.
        self.with(|raw| Ok(unsafe { bindings::ibdev_to_node(raw) }))
    }
}

/// A count that keeps a [`Device`] registered; removal waits for it.
pub struct DeviceUse(Arc<Device>);

impl DeviceUse {
    /// Returns the device; valid as long as `self`.
    pub(super) fn raw(&self) -> *mut bindings::ib_device {
        self.0.raw.as_ptr()
    }

    /// Returns the handle behind the count.
    pub fn device(&self) -> &Arc<Device> {
        &self.0
    }
}

impl Deref for DeviceUse {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0
    }
}

impl Drop for DeviceUse {
    fn drop(&mut self) {
        self.0.leave();
    }
}
