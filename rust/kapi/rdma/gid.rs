// SPDX-License-Identifier: GPL-2.0

//! Entries of a port's GID table.
//!
//! C header: [`include/rdma/ib_cache.h`](srctree/include/rdma/ib_cache.h)

use super::{
    device::{Device, DeviceUse},
    netns::{is_netdev, NetNs, NetRef}, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{rcu, Arc}, //
};
use smc_bindings as bindings;

/// The encapsulation that a GID stands for (`enum ib_gid_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand, not Ethernet.
    Ib,
    /// RoCEv1: an Ethernet type of its own, not routable.
    RoceV1,
    /// RoCEv2: UDP, routable.
    RoceV2,
}

/// A used entry of a GID table; the entry is not given to another GID while this lives.
///
/// # Invariants
///
/// `attr` is a reference to an entry of a table of `device`, owned by this object.
pub struct GidRef {
    attr: NonNull<bindings::ib_gid_attr>,
    // Declared after `attr`, whose reference is put by `drop` before the device is let go.
    _device: DeviceUse,
}

// SAFETY: Entries are reference counted across threads and their fixed part is never written.
unsafe impl Send for GidRef {}
// SAFETY: Shared references only read the part of an entry that is never written.
unsafe impl Sync for GidRef {}

impl GidRef {
    pub(super) fn get(device: DeviceUse, port: u32, index: u16) -> Option<Self> {
        // SAFETY: The device is registered while `device` lives; port and index are checked there.
        let attr = unsafe { bindings::rdma_get_gid_attr(device.raw(), port, i32::from(index)) };
        let attr = kernel::error::from_err_ptr(attr.cast_mut()).ok()?;
        // INVARIANT: The reference was given to us.
        NonNull::new(attr).map(|attr| Self {
            attr,
            _device: device,
        })
    }

    /// Returns the GID.
    pub fn gid(&self) -> [u8; 16] {
        // SAFETY: The entry is alive, and all but `ndev` of it does not change. Every byte pattern of
        // the union is a byte array.
        unsafe { (*self.attr.as_ptr()).gid.raw }
    }

    /// Returns the position in the table, as address handles want it.
    pub fn index(&self) -> u16 {
        // SAFETY: The entry is alive, and all but `ndev` of it does not change.
        unsafe { (*self.attr.as_ptr()).index }
    }

    /// Returns the port.
    pub fn port(&self) -> u32 {
        // SAFETY: The entry is alive, and all but `ndev` of it does not change.
        unsafe { (*self.attr.as_ptr()).port_num }
    }

    /// Returns the encapsulation.
    pub fn kind(&self) -> GidKind {
        // SAFETY: The entry is alive, and all but `ndev` of it does not change.
        match unsafe { (*self.attr.as_ptr()).gid_type } {
            bindings::ib_gid_type_IB_GID_TYPE_ROCE => GidKind::RoceV1,
            bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP => GidKind::RoceV2,
            _ => GidKind::Ib,
        }
    }

    /// Returns the IPv4 address in an IPv4-mapped (`::ffff:a.b.c.d`) or compatible (`::a.b.c.d`) GID.
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        let gid = self.gid();
        let (head, tail) = gid.split_at(12);
        let mapped = head == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let compatible = head == [0; 12];
        let addr = <[u8; 4]>::try_from(tail).ok()?;
        // `::` and `::1` are not addresses of this kind.
        ((mapped || compatible) && addr > [0, 0, 0, 1]).then_some(addr)
    }

    /// Returns the MAC address and the VLAN (if any) that frames from this GID carry.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the net device is gone.
    pub fn link_address(&self) -> Result<([u8; 6], Option<u16>)> {
        let mut mac = [0u8; 6];
        let mut vlan = 0xffff_u16;
        // SAFETY: The entry is alive; both outputs are valid for writing.
        kernel::error::to_result(unsafe {
            bindings::rdma_read_gid_l2_fields(self.attr.as_ptr(), &mut vlan, mac.as_mut_ptr())
        })?;
        Ok((mac, (vlan < 0x1000).then_some(vlan)))
    }

    /// Runs `f` on the net device, inside an RCU read section.
    fn with_netdev<R>(&self, f: impl FnOnce(*mut bindings::net_device) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        // SAFETY: The entry is alive and we are in an RCU read section.
        let ndev = unsafe { bindings::rdma_read_gid_attr_ndev_rcu(self.attr.as_ptr()) };
        kernel::error::from_err_ptr(ndev).ok().map(f)
    }

    /// Returns the number of the net device.
    pub fn ifindex(&self) -> Option<u32> {
        // SAFETY: Inside the RCU read section the device is valid.
        self.with_netdev(|ndev| u32::try_from(unsafe { (*ndev).ifindex }).ok())?
    }

    /// Returns the code (`enum ib_mtu`) of the largest path MTU whose packets the net device takes;
    /// 0 when there is none.
    pub fn mtu(&self) -> u8 {
        // SAFETY: Inside the RCU read section the device is valid.
        self.with_netdev(|ndev| unsafe { bindings::netdev_ib_mtu(ndev) })
            .unwrap_or(0)
    }

    /// Returns the service level of packets of this priority that leave by the net device.
    pub fn service_level(&self, priority: u32) -> u8 {
        // SAFETY: Inside the RCU read section the device is valid.
        self.with_netdev(|ndev| unsafe { bindings::netdev_service_level(ndev, priority) })
            .unwrap_or(0)
    }

    /// Returns the namespace of the net device.
    pub fn net(&self) -> Option<NetRef> {
        // SAFETY: Inside the RCU read section the device and its namespace are valid.
        self.with_netdev(|ndev| unsafe { NetRef::try_get(bindings::dev_net_rcu(ndev)) })?
    }

    /// Returns whether the net device is number `ifindex` of namespace `net`.
    pub fn is_netdev(&self, net: &impl NetNs, ifindex: u32) -> bool {
        // SAFETY: Inside the RCU read section the device is valid.
        self.with_netdev(|ndev| unsafe { is_netdev(ndev, net, ifindex) })
            .unwrap_or(false)
    }

    /// Returns whether the net device is in `net` and has an IPv4 address whose subnet contains `addr`.
    pub fn serves_subnet(&self, net: &impl NetNs, addr: [u8; 4]) -> bool {
        let addr = u32::from_ne_bytes(addr);
        self.with_netdev(|ndev| {
            // SAFETY: Inside the RCU read section the device, its namespace and its list of
            // addresses are valid.
            unsafe {
                if !core::ptr::eq(bindings::dev_net_rcu(ndev), net.net_ptr()) {
                    return false;
                }
                let in_dev = bindings::in_dev_get_rcu(ndev);
                if in_dev.is_null() {
                    return false;
                }
                let mut ifa = bindings::in_dev_first_ifa_rcu(in_dev);
                while !ifa.is_null() {
                    if (addr ^ (*ifa).ifa_address) & (*ifa).ifa_mask == 0 {
                        return true;
                    }
                    ifa = bindings::ifa_next_rcu(ifa);
                }
            }
            false
        })
        .unwrap_or(false)
    }
}

impl Drop for GidRef {
    fn drop(&mut self) {
        // SAFETY: Gives back the owned reference; any context will do.
        unsafe { bindings::rdma_put_gid_attr(self.attr.as_ptr()) };
    }
}

impl Device {
    /// Returns the entry `index` of the GID table of `port`, if it is in use.
    pub fn gid(self: &Arc<Self>, port: u32, index: u16) -> Option<GidRef> {
        GidRef::get(self.hold().ok()?, port, index)
    }

    /// Returns the first entry of the GID table of `port` for which `pick` is true.
    ///
    /// # Errors
    ///
    /// `ENOENT` when there is none, else as [`Device::port`].
    pub fn find_gid(
        self: &Arc<Self>,
        port: u32,
        mut pick: impl FnMut(&GidRef) -> bool,
    ) -> Result<GidRef> {
        for index in 0..self.port(port)?.gid_table_len {
            if let Some(gid) = self.gid(port, index) {
                if pick(&gid) {
                    return Ok(gid);
                }
            }
        }
        Err(ENOENT)
    }
}
