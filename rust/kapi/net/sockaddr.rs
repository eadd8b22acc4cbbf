// SPDX-License-Identifier: GPL-2.0

//! Addresses of a connection's two ends.

use core::fmt;
use smc_bindings as bindings;

/// An IPv4 or IPv6 address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SockAddr {
    /// True if `ip` is an IPv6 address (v4-mapped ones included).
    pub v6: bool,
    /// The address in network order; of an IPv4 address the first four bytes count.
    pub ip: [u8; 16],
    /// The port in host order.
    pub port: u16,
}

impl SockAddr {
    pub(crate) fn from_in(addr: &bindings::sockaddr_in) -> Self {
        Self::from_v4(addr.sin_addr.s_addr, u16::from_be(addr.sin_port))
    }

    pub(crate) fn from_in6(addr: &bindings::sockaddr_in6) -> Self {
        // SAFETY: A reference can be read.
        unsafe { Self::from_v6(&raw const addr.sin6_addr, u16::from_be(addr.sin6_port)) }
    }

    pub(crate) fn from_v4(addr: u32, port: u16) -> Self {
        let [a, b, c, d] = addr.to_ne_bytes();
        let mut ip = [0; 16];
        ip[0] = a;
        ip[1] = b;
        ip[2] = c;
        ip[3] = d;
        Self {
            v6: false,
            ip,
            port,
        }
    }

    /// # Safety
    ///
    /// `addr` points to an address that can be read.
    pub(crate) unsafe fn from_v6(addr: *const bindings::in6_addr, port: u16) -> Self {
        // SAFETY: An `in6_addr` is 16 bytes; the rest is the caller's promise.
        let ip = unsafe { addr.cast::<[u8; 16]>().read_volatile() };
        Self { v6: true, ip, port }
    }

    /// Returns the address as IPv6, IPv4 ones mapped.
    pub fn mapped(&self) -> [u8; 16] {
        if self.v6 {
            return self.ip;
        }
        let [a, b, c, d, ..] = self.ip;
        let v4 = u128::from(u32::from_be_bytes([a, b, c, d]));
        (0xffff << 32 | v4).to_be_bytes()
    }

    /// Returns the address to which TCP connects when a program names this one on a socket bound to
    /// `local`. The unspecified address stands for that of `local`, or for loopback if that is
    /// unspecified, too (`ip_route_output_key_hash_rcu()`, `tcp_v6_connect()`).
    #[must_use]
    pub fn connected_from(self, local: &Self) -> Self {
        const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
        const NONE: Option<[u8; 4]> = Some([0; 4]);
        let mut to = self;
        let of_local = local.v4().filter(|ip| *ip != [0; 4]);
        if self.v4() == NONE {
            let ip = of_local.unwrap_or(LOOPBACK);
            let at = if self.v6 { 12 } else { 0 };
            if let Some(place) = to.ip.get_mut(at..at + ip.len()) {
                place.copy_from_slice(&ip);
            }
        } else if self.v6 && self.ip == [0; 16] {
            to.ip = 1u128.to_be_bytes();
            if of_local.is_some() {
                to.ip = (0xffff << 32 | u128::from(u32::from_be_bytes(LOOPBACK))).to_be_bytes();
            }
        }
        to
    }

    /// Returns the IPv4 address, if this is one, mapped ones included.
    pub fn v4(&self) -> Option<[u8; 4]> {
        let m = self.mapped();
        if m[..10] == [0; 10] && m[10] == 0xff && m[11] == 0xff {
            return Some([m[12], m[13], m[14], m[15]]);
        }
        None
    }
}

impl fmt::Display for SockAddr {
    /// Writes the address without the port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.v4() {
            Some([a, b, c, d]) => write!(f, "{a}.{b}.{c}.{d}"),
            None => core::net::Ipv6Addr::from(self.ip).fmt(f),
        }
    }
}

impl kernel::fmt::Display for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
