// SPDX-License-Identifier: GPL-2.0

//! The next hop towards an IPv4 or IPv6 address.
//!
//! C headers: [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/ip6_route.h`](srctree/include/net/ip6_route.h),
//! [`include/net/neighbour.h`](srctree/include/net/neighbour.h)

use super::netns::NetNs;
use core::{mem, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi,
    prelude::*,
    sync::rcu,
    time::{delay::fsleep, Delta}, //
};
use smc_bindings as bindings;

/// A neighbour whose address can be used (`NUD_VALID`).
const VALID: u8 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;

/// A neighbour that was asked for in vain (`NUD_FAILED`).
const FAILED: u8 = 0x20;

/// Time between looks at an unresolved neighbour, in milliseconds.
const STEP_MS: u32 = 5;

/// First stop of packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The MAC address of the destination or of the gateway.
    pub mac: [u8; 6],
    /// True if a gateway is used: the peer is in another subnet.
    pub gateway: bool,
    /// Code (`enum ib_mtu`) of the largest path MTU whose packets the route takes as far as is known.
    pub mtu: u8,
}

fn unreachable() -> Error {
    Error::from_errno(-(bindings::EHOSTUNREACH as i32))
}

/// What a route is asked with besides the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// The number of the net device from which the queue pair sends, whatever the routes say; with it comes its VRF.
    pub ifindex: u32,
    /// The mark of the connection's packets (`SO_MARK`), by which rules may choose the table.
    pub mark: u32,
}

/// A route; owns a reference of its destination entry.
struct Route {
    dst: NonNull<bindings::dst_entry>,
    gateway: bool,
}

impl Route {
    fn v4(net: &impl NetNs, source: u32, destination: u32, via: Via) -> Result<Self> {
        // SAFETY: Zero is a valid value of a plain C struct.
        let mut flow: bindings::flowi4 = unsafe { mem::zeroed() };
        flow.__fl_common.flowic_oif = ffi::c_int::try_from(via.ifindex)?;
        flow.__fl_common.flowic_mark = via.mark;
        flow.saddr = source;
        flow.daddr = destination;
        // SAFETY: `net` is alive by its contract, `flow` is valid, and no socket is given.
        let rt = from_err_ptr(unsafe {
            bindings::ip_route_output_flow(net.net_ptr(), &mut flow, core::ptr::null())
        })?;
        // SAFETY: The reference that was given keeps the route, and the entry in it, alive.
        let (dst, gateway) = unsafe { (bindings::rt_dst(rt), bindings::rt_uses_gateway(rt)) };
        Ok(Self {
            dst: NonNull::new(dst).ok_or(unreachable())?,
            gateway,
        })
    }

    fn v6(net: &impl NetNs, source: &[u8; 16], destination: &[u8; 16], via: Via) -> Result<Self> {
        // SAFETY: Zero is a valid value of a plain C struct.
        let mut flow: bindings::flowi6 = unsafe { mem::zeroed() };
        flow.__fl_common.flowic_oif = ffi::c_int::try_from(via.ifindex)?;
        flow.__fl_common.flowic_mark = via.mark;
        flow.saddr.in6_u.u6_addr8 = *source;
        flow.daddr.in6_u.u6_addr8 = *destination;
        // SAFETY: `net` is alive by its contract, and `flow` is valid.
        let dst = unsafe { bindings::ip6_route_output(net.net_ptr(), &mut flow) };
        let mut route = Self {
            dst: NonNull::new(dst).ok_or(unreachable())?,
            gateway: false,
        };
        // SAFETY: The reference that was given keeps the entry alive. There always is one; where there is
        // no way to the destination it holds the error.
        to_result(i32::from(unsafe { (*dst).error }))?;
        // SAFETY: The reference that was given keeps the entry alive, which is one of IPv6.
        route.gateway = unsafe { bindings::rt6_uses_gateway(dst) };
        Ok(route)
    }

    /// Returns the next hop on the way to `destination`, which is the route's own, in network order.
    fn neighbour(&self, destination: &[u8]) -> Option<Neighbour> {
        // SAFETY: The entry is alive; the address has the length of the route's family.
        let found =
            unsafe { bindings::dst_neigh_lookup(self.dst.as_ptr(), destination.as_ptr().cast()) };
        NonNull::new(found).map(Neighbour)
    }

    /// Returns the code of the largest path MTU whose packets the route takes.
    fn mtu(&self) -> Result<u8> {
        // SAFETY: The entry is alive.
        match unsafe { bindings::dst_ib_mtu(self.dst.as_ptr()) } {
            0 => Err(unreachable()),
            code => Ok(code),
        }
    }

    /// Reports whether packets leave by this net device, or stay in the host.
    fn leaves_by(&self, ifindex: u32) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: The entry is alive; its device is protected by RCU.
        let (is_loopback, found) = unsafe {
            (
                bindings::dst_is_loopback_rcu(self.dst.as_ptr()),
                bindings::dst_ifindex_rcu(self.dst.as_ptr()),
            )
        };
        is_loopback || u32::try_from(found) == Ok(ifindex)
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: Gives back the owned reference.
        unsafe { bindings::dst_release(self.dst.as_ptr()) };
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
        let mut address = [0u8; bindings::MAX_ADDR_LEN as usize];
        // SAFETY: The reference keeps it alive; no more bytes are written than the longest address has.
        unsafe { bindings::neigh_ha_snapshot(address.as_mut_ptr().cast(), self.0.as_ptr()) };
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address) {
            *to = from;
        }
        mac
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // SAFETY: Gives back the owned reference.
        unsafe { bindings::neigh_release(self.0.as_ptr()) };
    }
}

/// Returns the IPv4 address in an IPv4-mapped one.
fn mapped(addr: &[u8; 16]) -> Option<[u8; 4]> {
    let (head, tail) = addr.split_at(12);
    if head == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] {
        tail.try_into().ok()
    } else {
        None
    }
}

/// Finds the route from `source` to `destination` in `net` and resolves its next hop, for at most
/// `timeout_ms` milliseconds. Sleeps.
///
/// Both addresses are IPv6 ones, or both are IPv4-mapped; RoCEv2 GIDs are just that. Without a route for an IPv4 address
/// the next hop is looked for on the link itself, as the kernel does for sockets that are bound to a device.
///
/// # Errors
///
/// `EHOSTUNREACH` when the next hop did not answer, the addresses are of different kinds, the way leads by another net
/// device, or no packet of RDMA is small enough for the route, else the error of the routing table, such as
/// `ENETUNREACH`.
pub fn resolve(
    net: &impl NetNs,
    source: &[u8; 16],
    destination: &[u8; 16],
    via: Via,
    timeout_ms: u32,
) -> Result<NextHop> {
    let (route, neighbour) = match (mapped(source), mapped(destination)) {
        (Some(from), Some(to)) => {
            let route = Route::v4(net, u32::from_ne_bytes(from), u32::from_ne_bytes(to), via)?;
            let neighbour = route.neighbour(&to);
            (route, neighbour)
        }
        (None, None) => {
            let route = Route::v6(net, source, destination, via)?;
            let neighbour = route.neighbour(destination);
            (route, neighbour)
        }
        _ => return Err(unreachable()),
    };
    if !route.leaves_by(via.ifindex) {
        return Err(unreachable());
    }
    let neighbour = neighbour.ok_or(unreachable())?;
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
        gateway: route.gateway,
        mtu: route.mtu()?,
    })
}
