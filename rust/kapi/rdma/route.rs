// SPDX-License-Identifier: GPL-2.0

//! The next hop towards an IPv4 address.
//!
//! C headers: [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/neighbour.h`](srctree/include/net/neighbour.h)

use super::netns::NetNs;
use core::{mem, ptr::NonNull};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::rcu,
    time::{delay::fsleep, Delta}, //
};
use smc_bindings as bindings;

/// A neighbour whose address can be used (`NUD_VALID`).
const VALID: u8 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;

/// A neighbour that was asked for in vain (`NUD_FAILED`).
const FAILED: u8 = 0x20;

/// How often an unresolved neighbour is looked at, in milliseconds.
const STEP_MS: u32 = 5;

/// Where packets to a destination go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The MAC address of the destination or of the gateway.
    pub mac: [u8; 6],
    /// Whether a gateway is used: the peer is in another subnet.
    pub gateway: bool,
    /// The number of the net device that packets leave by.
    pub ifindex: u32,
}

fn unreachable() -> Error {
    Error::from_errno(-(bindings::EHOSTUNREACH as i32))
}

/// A route; owns a reference of its destination entry.
struct Route(NonNull<bindings::rtable>);

impl Route {
    fn dst(&self) -> *mut bindings::dst_entry {
        // SAFETY: The reference keeps the entry alive.
        unsafe { bindings::rt_dst(self.0.as_ptr()) }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: Gives back the owned reference.
        unsafe { bindings::dst_release(self.dst()) };
    }
}

/// A neighbour; owns a reference.
struct Neighbour(NonNull<bindings::neighbour>);

impl Neighbour {
    fn state(&self) -> u8 {
        // SAFETY: The reference keeps it alive.
        unsafe { bindings::neigh_state(self.0.as_ptr()) }
    }

    /// Starts the resolution unless it is under way.
    fn ask(&self) {
        // SAFETY: The reference keeps it alive.
        unsafe { bindings::neigh_event_send(self.0.as_ptr()) };
    }

    fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        // SAFETY: The reference keeps it alive; six bytes are written.
        unsafe { bindings::neigh_mac(self.0.as_ptr(), mac.as_mut_ptr()) };
        mac
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // SAFETY: Gives back the owned reference.
        unsafe { bindings::neigh_release(self.0.as_ptr()) };
    }
}

/// Finds the route from `source` to `destination` in `net` and resolves its next hop, for at most
/// `timeout_ms` milliseconds. Sleeps.
///
/// # Errors
///
/// `EHOSTUNREACH` when the next hop did not answer, else the error of the routing table, such as
/// `ENETUNREACH`.
pub fn resolve(
    net: &impl NetNs,
    source: [u8; 4],
    destination: [u8; 4],
    timeout_ms: u32,
) -> Result<NextHop> {
    // SAFETY: Zero is a valid value of a plain C struct.
    let mut flow: bindings::flowi4 = unsafe { mem::zeroed() };
    flow.saddr = u32::from_ne_bytes(source);
    flow.daddr = u32::from_ne_bytes(destination);
    // SAFETY: `net` is alive by its contract, `flow` is valid, and no socket is given.
    let rt = from_err_ptr(unsafe {
        bindings::ip_route_output_flow(net.net_ptr(), &mut flow, core::ptr::null())
    })?;
    let route = Route(NonNull::new(rt).ok_or(unreachable())?);
    let ifindex = {
        let _rcu = rcu::read_lock();
        // SAFETY: The entry is alive; its device is protected by RCU.
        u32::try_from(unsafe { bindings::dst_ifindex_rcu(route.dst()) })?
    };
    // SAFETY: The entry is alive; the address is four bytes.
    let neighbour =
        unsafe { bindings::dst_neigh_lookup(route.dst(), (&raw const flow.daddr).cast()) };
    let neighbour = Neighbour(NonNull::new(neighbour).ok_or(unreachable())?);
    let mut waited = 0u32;
    while neighbour.state() & VALID == 0 {
        if waited >= timeout_ms || (waited > 0 && neighbour.state() & FAILED != 0) {
            return Err(unreachable());
        }
        neighbour.ask();
        fsleep(Delta::from_millis(i64::from(STEP_MS)));
        waited = waited.saturating_add(STEP_MS);
    }
    Ok(NextHop {
        mac: neighbour.mac(),
        // SAFETY: The route is alive.
        gateway: unsafe { bindings::rt_uses_gateway(route.0.as_ptr()) },
        ifindex,
    })
}
