// SPDX-License-Identifier: GPL-2.0

//! Network namespaces and net devices, as far as verbs need to know of them.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use crate::net::{netns::Net, sock::Sock};
use core::ptr::{self, NonNull};
use kernel::sync::rcu;
use smc_bindings as bindings;

/// Limit of devices stacked on each other (`MAX_NEST_DEV`).
const MAX_STACK: usize = 8;

/// Something that keeps a network namespace alive.
///
/// # Safety
///
/// The pointer must be a `struct net` that stays alive as long as `self` is borrowed.
pub unsafe trait NetNs {
    /// Returns the namespace.
    fn net_ptr(&self) -> *mut bindings::net;
}

// SAFETY: A borrowed `Net` is alive.
unsafe impl NetNs for Net {
    fn net_ptr(&self) -> *mut bindings::net {
        self.as_ptr()
    }
}

// SAFETY: A socket that a user or a handshake holds keeps its namespace, and the namespace of a
// socket does not change.
unsafe impl NetNs for Sock {
    fn net_ptr(&self) -> *mut bindings::net {
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_net(self.as_ptr()) }
    }
}

/// A counted reference to a network namespace.
///
/// # Invariants
///
/// Owns one reference of the namespace.
pub struct NetRef(NonNull<bindings::net>);

// SAFETY: Namespaces are reference counted across threads.
unsafe impl Send for NetRef {}
// SAFETY: The methods only read the pointer.
unsafe impl Sync for NetRef {}

// SAFETY: The reference is owned.
unsafe impl NetNs for NetRef {
    fn net_ptr(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }
}

impl NetRef {
    /// Takes a reference, unless the namespace is dying.
    ///
    /// # Safety
    ///
    /// `net` must be valid, at least until the end of the caller's RCU read section.
    pub(super) unsafe fn try_get(net: *mut bindings::net) -> Option<Self> {
        // SAFETY: The caller's promise.
        // INVARIANT: The reference, if any, is given to us.
        NonNull::new(unsafe { bindings::maybe_get_net(net) }).map(Self)
    }
}

impl Clone for NetRef {
    fn clone(&self) -> Self {
        // SAFETY: `self` holds a reference, so the count is not zero and may be raised.
        unsafe { bindings::get_net(self.0.as_ptr()) };
        // INVARIANT: The reference was just taken.
        Self(self.0)
    }
}

impl Drop for NetRef {
    fn drop(&mut self) {
        // SAFETY: Gives back the owned reference.
        unsafe { bindings::put_net(self.0.as_ptr()) };
    }
}

impl PartialEq for NetRef {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Returns whether `ndev` is number `ifindex` of namespace `net`.
///
/// # Safety
///
/// `ndev` must be a valid net device, held or inside an RCU read section.
pub(super) unsafe fn is_netdev(
    ndev: *const bindings::net_device,
    net: &impl NetNs,
    ifindex: u32,
) -> bool {
    let _rcu = rcu::read_lock();
    // SAFETY: The caller promises a valid device; its namespace is protected by RCU.
    unsafe {
        ptr::eq(bindings::dev_net_rcu(ndev), net.net_ptr())
            && u32::try_from((*ndev).ifindex) == Ok(ifindex)
    }
}

/// Returns the number of the lowest device under device `ifindex`: the real one below a VLAN or a bond.
pub fn base_ifindex(net: &impl NetNs, ifindex: u32) -> Option<u32> {
    let index = i32::try_from(ifindex).ok()?;
    let _rcu = rcu::read_lock();
    // SAFETY: `net` is alive by its contract and we are in an RCU read section.
    let mut dev = unsafe { bindings::dev_get_by_index_rcu(net.net_ptr(), index) };
    if dev.is_null() {
        return None;
    }
    for _ in 0..MAX_STACK {
        // SAFETY: `dev` stays valid until the end of the RCU read section; the iterator starts at
        // its list head, as the function wants.
        let lower = unsafe {
            let mut iter = &raw mut (*dev).adj_list.lower;
            bindings::netdev_next_lower_dev_rcu(dev, &raw mut iter)
        };
        if lower.is_null() {
            break;
        }
        dev = lower;
    }
    // SAFETY: `dev` stays valid until the end of the RCU read section.
    u32::try_from(unsafe { (*dev).ifindex }).ok()
}

/// Returns the name of device `ifindex`, padded with zeros.
pub fn interface_name(net: &impl NetNs, ifindex: u32) -> Option<[u8; 16]> {
    let index = i32::try_from(ifindex).ok()?;
    let _rcu = rcu::read_lock();
    // SAFETY: `net` is alive by its contract and we are in an RCU read section.
    let dev = unsafe { bindings::dev_get_by_index_rcu(net.net_ptr(), index) };
    if dev.is_null() {
        return None;
    }
    let mut name = [0; 16];
    for (i, byte) in name.iter_mut().enumerate().take(15) {
        // SAFETY: `dev` is valid until the end of the RCU read section and `i` is inside its name.
        // A rename may write meanwhile, hence volatile; a mixed name is still only bytes.
        *byte = unsafe { (&raw const (*dev).name).cast::<u8>().add(i).read_volatile() };
        if *byte == 0 {
            break;
        }
    }
    Some(name)
}
