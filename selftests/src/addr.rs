// SPDX-License-Identifier: GPL-2.0
//! Socket addresses between Rust's types and the kernel's bytes.

use crate::family::Ip;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `sockaddr_in` or `sockaddr_in6` as bytes, 16 or 28 long.
pub fn encode(a: &SocketAddr) -> Vec<u8> {
    let mut v = Vec::with_capacity(28);
    match a {
        SocketAddr::V4(a) => {
            v.extend((libc::AF_INET as u16).to_ne_bytes());
            v.extend(a.port().to_be_bytes());
            v.extend(a.ip().octets());
            v.extend([0; 8]);
        }
        SocketAddr::V6(a) => {
            v.extend((libc::AF_INET6 as u16).to_ne_bytes());
            v.extend(a.port().to_be_bytes());
            v.extend(a.flowinfo().to_be_bytes());
            v.extend(a.ip().octets());
            v.extend(a.scope_id().to_ne_bytes());
        }
    }
    v
}

/// The reverse of [`encode`]; `None` for another family or too few bytes.
pub fn decode(b: &[u8]) -> Option<SocketAddr> {
    let fam = i32::from(u16::from_ne_bytes(b.get(0..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(b.get(2..4)?.try_into().ok()?);
    if fam == libc::AF_INET {
        let o: [u8; 4] = b.get(4..8)?.try_into().ok()?;
        Some(SocketAddr::new(IpAddr::V4(o.into()), port))
    } else if fam == libc::AF_INET6 {
        let o: [u8; 16] = b.get(8..24)?.try_into().ok()?;
        Some(SocketAddr::new(IpAddr::V6(o.into()), port))
    } else {
        None
    }
}

/// The loopback address for a kind of address.
pub fn loopback(ip: Ip) -> IpAddr {
    match ip {
        Ip::V4 => Ipv4Addr::LOCALHOST.into(),
        Ip::V6 => Ipv6Addr::LOCALHOST.into(),
        Ip::Mapped => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
    }
}

/// The wildcard address for a kind of address.
pub fn any(ip: Ip) -> IpAddr {
    match ip {
        Ip::V4 => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// An IPv4 address, mapped where the kind of address asks for it.
pub fn v4(ip: Ip, a: [u8; 4]) -> IpAddr {
    let a = Ipv4Addr::from(a);
    match ip {
        Ip::V4 => a.into(),
        _ => a.to_ipv6_mapped().into(),
    }
}
