// SPDX-License-Identifier: GPL-2.0

//! A connection's owner, addresses and route.

use super::Sock;
use crate::net::{netns::Net, sockaddr::SockAddr};
use core::ptr;
use kernel::sync::rcu;
use smc_bindings as bindings;

/// The bits of the IP header's traffic class in which routers tell of congestion.
const ECN: u8 = 3;

/// Returns the priority of packets with this byte in their IP header, as `IP_TOS` sets it.
pub fn priority_of(traffic_class: u8) -> u8 {
    // SAFETY: It has no preconditions.
    unsafe { bindings::tos_priority(traffic_class) }
}

impl Sock {
    /// Returns the local address.
    pub fn local_addr(&self) -> SockAddr {
        let sk = self.as_ptr();
        // SAFETY: The sock is valid; these are plain fields that are read without the lock, as
        // `inet_diag` does. A torn IPv6 address can be seen while connect() sets it.
        unsafe {
            let port = bindings::sk_num(sk);
            if i32::from(self.family()) == bindings::AF_INET6 as i32 {
                SockAddr::from_v6(bindings::sk_v6_rcv_saddr(sk), port)
            } else {
                SockAddr::from_v4(bindings::sk_rcv_saddr(sk), port)
            }
        }
    }

    /// Returns the peer's address; unspecified when not connected.
    pub fn peer_addr(&self) -> SockAddr {
        let sk = self.as_ptr();
        // SAFETY: The sock is valid; these are plain fields that are read without the lock, as
        // `inet_diag` does. A torn IPv6 address can be seen while connect() sets it.
        unsafe {
            let port = u16::from_be(bindings::sk_dport(sk));
            if i32::from(self.family()) == bindings::AF_INET6 as i32 {
                SockAddr::from_v6(bindings::sk_v6_daddr(sk), port)
            } else {
                SockAddr::from_v4(bindings::sk_daddr(sk), port)
            }
        }
    }

    /// Returns whether the peer has this address of IPv4. False for one that is the same in other words, and when not
    /// connected.
    #[inline]
    pub fn is_peer(&self, addr: &SockAddr) -> bool {
        let sk = self.as_ptr();
        let v4 = i32::from(self.family()) == bindings::AF_INET as i32 && !addr.v6;
        // SAFETY: As `peer_addr`.
        let (port, ip) = unsafe { (bindings::sk_dport(sk), bindings::sk_daddr(sk)) };
        v4 && port != 0 && u16::from_be(port) == addr.port && addr.ip.starts_with(&ip.to_ne_bytes())
    }

    /// Returns the user id of the owner, in the initial user namespace.
    pub fn uid(&self) -> u32 {
        // SAFETY: The sock is valid.
        unsafe { bindings::sk_uid(self.as_ptr()) }
    }

    /// Returns the inode number of the socket file; 0 when it is closed.
    pub fn inode(&self) -> u64 {
        // SAFETY: The sock is valid.
        unsafe { bindings::sk_ino(self.as_ptr()) }
    }

    /// Returns a number that no other socket ever has (`SO_COOKIE`).
    pub fn cookie(&self) -> u64 {
        let mut words = [0u32; 2];
        // SAFETY: The sock is valid, and there is room for the two words.
        unsafe { bindings::sock_diag_save_cookie(self.as_ptr(), words.as_mut_ptr()) };
        u64::from(words[0]) | u64::from(words[1]) << 32
    }

    /// Returns its network namespace.
    pub fn namespace(&self) -> &Net {
        // SAFETY: The sock is valid, and keeps its namespace as long as anybody may look at it.
        unsafe { Net::from_raw(self.net()) }
    }

    /// Returns the number of its network namespace, as [`Net::cookie`](crate::net::netns::Net::cookie).
    pub fn net_cookie(&self) -> u64 {
        // SAFETY: The sock is valid and keeps its namespace; the number does not change.
        unsafe { bindings::net_cookie(bindings::sock_net(self.as_ptr())) }
    }

    /// Returns the number of the interface that the socket is bound to; 0 for none.
    pub fn bound_interface(&self) -> u32 {
        // SAFETY: The sock is valid; read without the lock as `inet_diag` does.
        let index =
            unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).__sk_common.skc_bound_dev_if) };
        index as u32
    }

    /// Returns the mark of its packets (`SO_MARK`).
    pub fn packet_mark(&self) -> u32 {
        // SAFETY: The sock is valid; read without the lock, as TCP does.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_mark) }
    }

    /// Returns the byte of its packets' IP header that says how routers treat them (`IP_TOS`, `IPV6_TCLASS`), without ECN.
    pub fn traffic_class(&self) -> u8 {
        // SAFETY: The sock is valid; read without the lock, as TCP does.
        let class = unsafe { bindings::sk_traffic_class(self.as_ptr()) };
        class & !ECN
    }

    /// Returns the priority of its packets (`SO_PRIORITY`).
    pub fn packet_priority(&self) -> u32 {
        // SAFETY: The sock is valid; read without the lock, as TCP does.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_priority) }
    }

    /// Returns whether IPsec, or PSP, protects the connection.
    pub fn uses_ipsec(&self) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: The sock is valid. A route that it has lives until the end of the RCU section.
        unsafe {
            let dst = bindings::sk_dst_rcu(self.as_ptr());
            bindings::sk_has_xfrm_policy(self.as_ptr())
                || bindings::sk_has_psp(self.as_ptr())
                || (!dst.is_null() && bindings::dst_uses_xfrm(dst))
        }
    }

    /// Returns the number of the net device by which packets to the peer leave, when that is known.
    pub fn route_interface(&self) -> Option<u32> {
        let _rcu = rcu::read_lock();
        // SAFETY: The sock is valid. A route that it has, and the device of that, live until the end of
        // the RCU section.
        let index = unsafe {
            let dst = bindings::sk_dst_rcu(self.as_ptr());
            if dst.is_null() {
                return None;
            }
            bindings::dst_ifindex_rcu(dst)
        };
        u32::try_from(index).ok().filter(|index| *index != 0)
    }

    /// Returns whether the peer's address is one of this machine's, in this network namespace, as far as is known.
    pub fn is_of_this_machine(&self) -> bool {
        let (local, peer) = (self.local_addr().mapped(), self.peer_addr().mapped());
        // A namespace's loopback device is always the first; routes to own addresses lead there.
        local == peer || self.route_interface() == Some(bindings::LOOPBACK_IFINDEX)
    }
}
