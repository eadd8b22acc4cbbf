// SPDX-License-Identifier: GPL-2.0
//! The way to a peer, looked at: route, MTU, an RDMA port for it, and what a service answers.

use super::checks::{Check, Verdict};
use super::option::Answer;
use super::path::{self, Path};
use crate::dev::Port;
use crate::gid::Gid;
use crate::{pnet, reason};
use rustix::io::Errno;
use smc_proto::reason::Reason;
use std::net::{IpAddr, SocketAddr};

/// The way itself.
pub fn route(peer: IpAddr, path: &Path, in_tree: bool) -> Check {
    let name = match path.interface.as_str() {
        "" => format!("interface {}", path.ifindex),
        name => name.to_string(),
    };
    let source = path
        .source
        .map_or(String::new(), |source| format!(" from {source}"));
    let is_v6 = peer.to_canonical().is_ipv6();
    match path.gateway {
        _ if in_tree && is_v6 => Check::new(
            "route",
            Verdict::Bad,
            format!("to {peer} by {name}{source}: the in-tree module has no version 2 for IPv6"),
        )
        .advise("Use the peer's IPv4 address."),
        None => Check::new(
            "route",
            Verdict::Ok,
            format!("to {peer} by {name}{source}, directly"),
        ),
        Some(gateway) => Check::new(
            "route",
            Verdict::Note,
            format!(
                "to {peer} by {name}{source} through {gateway}: only version 2 crosses subnets"
            ),
        )
        .advise("Both hosts need a common UEID, and the router must let UDP port 4791 pass."),
    }
}

/// Checks that RDMA packets fit.
pub fn mtu(path: &Path) -> Option<Check> {
    let own = path.mtu?;
    let mtu = path.path_mtu.unwrap_or(own).min(own);
    if mtu < own && path::rdma_mtu(mtu) < path::rdma_mtu(own) {
        // RDMA looks at the interface alone.
        let found = format!(
            "{mtu} bytes on the way, {own} on {}: RDMA packets may be too large",
            path.interface
        );
        return Some(Check::new("mtu", Verdict::Bad, found).advise(
            "SMC would come up and break with the first large message. Lower the interface's MTU \
             on both hosts, or raise that of the way.",
        ));
    }
    Some(match path::rdma_mtu(mtu) {
        None => Check::new(
            "mtu",
            Verdict::Bad,
            format!("{mtu} bytes: no RDMA packet fits"),
        )
        .advise("Raise the interface's MTU."),
        Some(size) => {
            let found = match mtu < own {
                true => format!("{mtu} bytes on the way: RDMA packets carry {size}"),
                false => format!(
                    "{mtu} bytes on {}: RDMA packets carry {size}",
                    path.interface
                ),
            };
            Check::new("mtu", Verdict::Ok, found)
        }
    })
}

/// An RDMA port for the connection's interface: on it, or in its physical network, with an address
/// of the connection's kind.
pub fn serving(
    path: &Path,
    ports: &[Port],
    table: &[pnet::Entry],
    gids: &dyn Fn(&Port) -> Option<Vec<Gid>>,
) -> Check {
    let name = &path.interface;
    let mine = table
        .iter()
        .find(|entry| entry.interface.as_deref() == Some(name));
    let same_net =
        |port: &Port| mine.is_some_and(|mine| port.pnet_id.as_deref() == Some(mine.id.as_str()));
    let on_it = |port: &Port| port.ifindex == u64::from(path.ifindex);
    let Some(port) = ports.iter().find(|port| on_it(port) || same_net(port)) else {
        return Check::new("gid", Verdict::Bad, format!("no RDMA port is on {name}")).advise(
            "If one is on the same physical network, say so with `rsmc pnet add`: once with the \
             interface, once with the RDMA device.",
        );
    };
    let label = format!("{}/{}", port.device, port.port);
    let Some(gids) = gids(port) else {
        return Check::new("gid", Verdict::Ok, format!("{label} serves {name}"));
    };
    let is_v4 = path.source.is_none_or(|source| source.is_ipv4());
    let fits = |gid: &&Gid| gid.is_roce_v2() && gid.address.to_ipv4_mapped().is_some() == is_v4;
    match gids.iter().find(fits) {
        Some(gid) => {
            let address = gid.address.to_canonical();
            Check::new(
                "gid",
                Verdict::Ok,
                format!("{label} serves {name} as {address}"),
            )
        }
        None => {
            let kind = if is_v4 { "IPv4" } else { "IPv6" };
            let found = format!("{label} has no RoCE v2 address of {kind}");
            Check::new("gid", Verdict::Bad, found)
                .advise(format!("Give its network interface an {kind} address."))
        }
    }
}

/// Judges a service's answer to SMC's TCP option.
pub fn offer(service: SocketAddr, answer: std::result::Result<Answer, Errno>) -> Check {
    let check = |verdict, found: &str| Check::new("option", verdict, format!("{service} {found}"));
    match answer {
        Ok(Answer::Smc) => check(Verdict::Ok, "answers the SMC option with its own"),
        Ok(Answer::NoSmc) => check(Verdict::Bad, "answers without the SMC option")
            .advise(reason::advice(Reason::PeerNotSmc.code())),
        Ok(Answer::Echo) => check(Verdict::Bad, "returns any TCP option, SMC's as well").advise(
            "It does not speak SMC. rsmc recognises that; the in-tree module takes it for an SMC \
             peer and sends it a handshake.",
        ),
        Ok(Answer::Refused) => check(Verdict::Note, "refuses connections"),
        Ok(Answer::Silence) => check(Verdict::Note, "does not answer a SYN with the SMC option")
            .advise("If it answers others, something on the path drops what has unknown options."),
        Err(Errno::PERM | Errno::ACCESS) => check(Verdict::Note, "was not asked about TCP options")
            .advise("That needs CAP_NET_RAW."),
        Err(errno) => {
            let error = std::io::Error::from(errno);
            check(
                Verdict::Note,
                &format!("could not be asked about TCP options: {error}"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(interface: &str, gateway: Option<&str>) -> Path {
        Path {
            ifindex: 5,
            interface: interface.into(),
            mtu: Some(1500),
            path_mtu: None,
            source: "10.0.0.1".parse().ok(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        }
    }

    fn port(ifindex: u64) -> Port {
        Port {
            device: "rxe0".into(),
            port: 1,
            active: true,
            roce: true,
            ifindex,
            pnet_id: Some("NET1".into()),
            ..Port::default()
        }
    }

    fn gid(address: &str, kind: &str) -> Gid {
        Gid {
            index: 0,
            address: address.parse().unwrap(),
            kind: kind.into(),
            interface: "eth0".into(),
        }
    }

    #[test]
    fn ports_for_an_interface() {
        let v4 = || Some(vec![gid("::ffff:10.0.0.1", "RoCE v2")]);
        let serve = |ports: &[Port], table: &[pnet::Entry], gids: &dyn Fn() -> Option<Vec<Gid>>| {
            serving(&path("eth0", None), ports, table, &|_| gids())
        };
        assert_eq!(serve(&[port(5)], &[], &v4).verdict, Verdict::Ok);
        assert_eq!(serve(&[port(5)], &[], &|| None).verdict, Verdict::Ok);
        let old = || Some(vec![gid("::ffff:10.0.0.1", "IB/RoCE v1")]);
        assert_eq!(serve(&[port(5)], &[], &old).verdict, Verdict::Bad);
        let v6 = || Some(vec![gid("fd00::1", "RoCE v2")]);
        let check = serve(&[port(5)], &[], &v6);
        assert!(
            check.found.ends_with("no RoCE v2 address of IPv4"),
            "{check:?}"
        );
        assert_eq!(serve(&[port(6)], &[], &v4).verdict, Verdict::Bad);
        let entry = pnet::Entry {
            id: "NET1".into(),
            interface: Some("eth0".into()),
            ibdevice: None,
            ibport: None,
        };
        assert_eq!(serve(&[port(6)], &[entry], &v4).verdict, Verdict::Ok);
    }

    #[test]
    fn ways() {
        let peer: IpAddr = "10.0.0.2".parse().unwrap();
        assert_eq!(route(peer, &path("eth0", None), true).verdict, Verdict::Ok);
        let far = route(peer, &path("eth0", Some("10.0.0.254")), false);
        assert!(far.verdict == Verdict::Note && far.found.contains("10.0.0.254"));
        let v6: IpAddr = "fd00::2".parse().unwrap();
        assert_eq!(route(v6, &path("eth0", None), true).verdict, Verdict::Bad);
        assert_eq!(route(v6, &path("eth0", None), false).verdict, Verdict::Ok);
        assert_eq!(mtu(&path("eth0", None)).unwrap().verdict, Verdict::Ok);
        let narrow = |path_mtu| Path {
            path_mtu: Some(path_mtu),
            ..path("eth0", None)
        };
        let check = mtu(&narrow(1400)).unwrap();
        assert_eq!(check.verdict, Verdict::Ok, "packets of 1024 still fit");
        assert!(
            check.found.starts_with("1400 bytes on the way"),
            "{check:?}"
        );
        assert_eq!(mtu(&narrow(1000)).unwrap().verdict, Verdict::Bad);
    }

    #[test]
    fn offers() {
        let verdict = |answer| offer("10.0.0.2:80".parse().unwrap(), answer).verdict;
        assert_eq!(verdict(Ok(Answer::Smc)), Verdict::Ok);
        assert_eq!(verdict(Ok(Answer::Echo)), Verdict::Bad);
        assert_eq!(verdict(Err(Errno::PERM)), Verdict::Note);
        let check = offer("10.0.0.2:80".parse().unwrap(), Ok(Answer::NoSmc));
        assert!(check.advice.unwrap().contains("Load an SMC module"));
    }
}
