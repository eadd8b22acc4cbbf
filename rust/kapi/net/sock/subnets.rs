// SPDX-License-Identifier: GPL-2.0

//! The addresses of the interface by which a connection's packets leave.

use super::Sock;
use kernel::sync::rcu;
use smc_bindings as bindings;

impl Sock {
    /// Calls `f` with each IPv4 address of the interface and the length of its prefix, until it returns true. Returns
    /// whether it has. `f` must not sleep.
    pub fn find_interface_v4(&self, mut f: impl FnMut([u8; 4], u8) -> bool) -> bool {
        let rcu = rcu::read_lock();
        let Some(dev) = self.route_netdev(&rcu) else {
            return false;
        };
        // SAFETY: The device, its list of addresses and these live until the end of the RCU section.
        unsafe {
            let in_dev = bindings::in_dev_get_rcu(dev);
            if in_dev.is_null() {
                return false;
            }
            let mut ifa = bindings::in_dev_first_ifa_rcu(in_dev);
            while !ifa.is_null() {
                let addr = (*ifa).ifa_address.to_ne_bytes();
                let mask = u32::from_be((*ifa).ifa_mask);
                // At most 32.
                if f(addr, mask.leading_ones() as u8) {
                    return true;
                }
                ifa = bindings::ifa_next_rcu(ifa);
            }
        }
        false
    }

    /// The same with each IPv6 address.
    pub fn find_interface_v6(&self, mut f: impl FnMut([u8; 16], u8) -> bool) -> bool {
        let rcu = rcu::read_lock();
        let Some(dev) = self.route_netdev(&rcu) else {
            return false;
        };
        // SAFETY: The device, its list of addresses and these live until the end of the RCU section. Every byte
        // pattern of an address is a byte array.
        unsafe {
            let mut ifa = bindings::in6_dev_first_ifa_rcu(dev);
            while !ifa.is_null() {
                let addr = (*ifa).addr.in6_u.u6_addr8;
                let len = u8::try_from((*ifa).prefix_len).unwrap_or(128);
                if f(addr, len) {
                    return true;
                }
                ifa = bindings::in6_ifa_next_rcu(ifa);
            }
        }
        false
    }

    /// Returns the net device by which packets to the peer leave, when that is known; it lives until the end of the
    /// RCU section.
    fn route_netdev(&self, _: &rcu::Guard) -> Option<*mut bindings::net_device> {
        // SAFETY: The sock is valid. A route that it has, and the device of that, live until the end of
        // the RCU section.
        unsafe {
            let dst = bindings::sk_dst_rcu(self.as_ptr());
            (!dst.is_null()).then(|| bindings::dst_dev_rcu(dst))
        }
    }
}
