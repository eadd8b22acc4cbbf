// SPDX-License-Identifier: GPL-2.0
//! The way to a peer, as the kernel would take it: `RTM_GETROUTE` and `RTM_GETLINK`
//! (`<linux/rtnetlink.h>`).

use crate::error::{Error, Result};
use crate::netlink::socket::Netlink;
use crate::netlink::wire::{self, Request};
use std::net::IpAddr;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// `sizeof(struct rtmsg)`; attributes follow.
const HEADER: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
/// Among the metrics: set with the route, or learned from a router on the way.
const RTAX_MTU: u16 = 2;
/// `sizeof(struct ifinfomsg)`, and where it has the interface.
const LINK_HEADER: usize = 16;
const LINK_INDEX: usize = 4;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;

/// Route of packets to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Interface by number.
    pub ifindex: u32,
    /// Its name.
    pub interface: String,
    /// Its MTU, where it is known.
    pub mtu: Option<u32>,
    /// The MTU of the whole way, where the route has one: set by hand, or learned.
    pub path_mtu: Option<u32>,
    /// Own address.
    pub source: Option<IpAddr>,
    /// The router, if the peer is not in a subnet of this host.
    pub gateway: Option<IpAddr>,
}

/// Asks the kernel for the way.
///
/// # Errors
/// `Refused` if there is none.
pub fn to(peer: IpAddr) -> Result<Path> {
    let (family, address) = match peer {
        IpAddr::V4(address) => (2u8, address.octets().to_vec()),
        IpAddr::V6(address) => (10u8, address.octets().to_vec()),
    };
    let mut header = [0u8; HEADER];
    header[0] = family;
    header[1] = (address.len() * 8) as u8;
    let request = Request::new(RTM_GETROUTE, wire::NLM_F_ACK, &header).attribute(RTA_DST, &address);
    let mut netlink = Netlink::open(None)?;
    let replies = netlink.ask("asking for the route", &request)?;
    let reply = replies.iter().find(|reply| reply.kind == RTM_NEWROUTE);
    let reply = reply.ok_or(Error::Malformed("no route and no error"))?;
    let mut path = parse(&reply.payload).ok_or(Error::Malformed("a route without interface"))?;
    let mut header = [0u8; LINK_HEADER];
    header[LINK_INDEX..LINK_INDEX + 4].copy_from_slice(&path.ifindex.to_ne_bytes());
    let request = Request::new(RTM_GETLINK, wire::NLM_F_ACK, &header);
    let replies = netlink.ask("asking for the interface", &request)?;
    if let Some(reply) = replies.iter().find(|reply| reply.kind == RTM_NEWLINK) {
        (path.interface, path.mtu) = interface(&reply.payload);
    }
    Ok(path)
}

fn parse(payload: &[u8]) -> Option<Path> {
    let mut path = Path {
        ifindex: 0,
        interface: String::new(),
        mtu: None,
        path_mtu: None,
        source: None,
        gateway: None,
    };
    for attribute in wire::attributes(payload.get(HEADER..)?) {
        let attribute = attribute.ok()?;
        match attribute.kind {
            RTA_OIF => path.ifindex = wire::u32_at(attribute.payload, 0)?,
            RTA_GATEWAY => path.gateway = address(attribute.payload),
            RTA_PREFSRC => path.source = address(attribute.payload),
            RTA_METRICS => {
                let mut metrics = wire::attributes(attribute.payload).flatten();
                let mtu = metrics.find(|metric| metric.kind == RTAX_MTU);
                path.path_mtu = mtu.and_then(|metric| wire::u32_at(metric.payload, 0));
            }
            _ => {}
        }
    }
    (path.ifindex != 0).then_some(path)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(Into::into)
}

/// Name and MTU of an interface.
fn interface(payload: &[u8]) -> (String, Option<u32>) {
    let (mut name, mut mtu) = (String::new(), None);
    let attributes = payload.get(LINK_HEADER..).unwrap_or_default();
    for attribute in wire::attributes(attributes).flatten() {
        match attribute.kind {
            IFLA_IFNAME => {
                let text = String::from_utf8_lossy(attribute.payload);
                name = text.trim_end_matches('\0').to_string();
            }
            IFLA_MTU => mtu = wire::u32_at(attribute.payload, 0),
            _ => {}
        }
    }
    (name, mtu)
}

/// Bytes of data in an RDMA packet over Ethernet of this MTU: the largest of the sizes RDMA has
/// that fits with its headers (IPv6, UDP, and at most 40 of RDMA); `None` if not even the least does.
pub fn rdma_mtu(mtu: u32) -> Option<u32> {
    const HEADERS: u32 = 40 + 8 + 40;
    let sizes = [4096, 2048, 1024, 512, 256];
    sizes.into_iter().find(|size| size + HEADERS <= mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_host() {
        let path = to("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(path.gateway, None);
        assert_eq!(path.source, "127.0.0.1".parse().ok());
        assert!(path.interface == "lo" && path.mtu.is_some(), "{path:?}");
    }

    #[test]
    fn routes() {
        let mut payload = vec![0u8; HEADER];
        payload.extend(wire::attribute(RTA_OIF, &5u32.to_ne_bytes()));
        payload.extend(wire::attribute(RTA_GATEWAY, &[10, 0, 0, 1]));
        payload.extend(wire::attribute(RTA_PREFSRC, &[0; 16]));
        let metrics = [
            wire::attribute(1, &1u32.to_ne_bytes()),
            wire::attribute(RTAX_MTU, &1400u32.to_ne_bytes()),
        ];
        payload.extend(wire::attribute(RTA_METRICS, &metrics.concat()));
        let path = parse(&payload).unwrap();
        assert_eq!(path.path_mtu, Some(1400));
        assert_eq!((path.ifindex, path.gateway), (5, "10.0.0.1".parse().ok()));
        assert_eq!(path.source, "::".parse().ok());
        assert_eq!(parse(&payload[..HEADER]), None);
        assert_eq!(parse(&payload[..5]), None);
        assert_eq!(address(&[1, 2, 3]), None);
    }

    #[test]
    fn packets() {
        assert_eq!(rdma_mtu(1500), Some(1024));
        assert_eq!(rdma_mtu(9000), Some(4096));
        assert_eq!(rdma_mtu(300), None);
    }
}
