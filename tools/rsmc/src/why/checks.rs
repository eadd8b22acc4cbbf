// SPDX-License-Identifier: GPL-2.0
//! What can be seen from here of what SMC needs: module, EIDs, devices, and the way to a peer.

use super::option::{self, Answer};
use super::path::{self, Path};
use crate::dev::{self, Port};
use crate::error::{Error, Result};
use crate::gid::Gid;
use crate::table::Colour;
use crate::{pnet, reason, ueid};
use rustix::io::Errno;
use serde::Serialize;
use smc_proto::reason::Reason;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As SMC needs it.
    Ok,
    /// Not wrong, and to be known.
    Note,
    /// Keeps connections from being SMC.
    Bad,
}

/// A check and what was found. `--json` prints it so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do, `null` if nothing.
    advice: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict,
            found: found.into(),
            advice: None,
        }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Prints checks, a line each, and what to do below those that are not well.
///
/// # Errors
/// Those of writing.
pub fn tell(checks: &[Check], out: &mut dyn Write) -> Result<()> {
    let coloured = crate::table::has_colours();
    for check in checks {
        let (word, colour) = match check.verdict {
            Verdict::Ok => ("ok  ", Colour::Green),
            Verdict::Note => ("note", Colour::Yellow),
            Verdict::Bad => ("BAD ", Colour::Red),
        };
        let word = match coloured {
            true => colour.paint(word),
            false => word.into(),
        };
        writeln!(out, "  {word}  {:<7}  {}", check.name, check.found)?;
        if let Some(advice) = &check.advice {
            writeln!(out, "{:17}What to do: {advice}", "")?;
        }
    }
    Ok(())
}

/// All checks; those of the way only for a peer, that of TCP's options only for a port of it.
pub fn all(peer: Option<IpAddr>, port: Option<u16>) -> Vec<Check> {
    let in_tree = !std::path::Path::new(crate::fallback::FILE).exists();
    let mut checks = vec![module(in_tree)];
    checks.extend(eids(ueid::collect(), in_tree));
    let ports = match dev::collect() {
        Ok(ports) => ports,
        Err(error) => {
            checks.push(Check::new("device", Verdict::Note, error.to_string()));
            return checks;
        }
    };
    let usable = devices(&ports);
    checks.extend(usable);
    let Some(peer) = peer else {
        return checks;
    };
    match path::to(peer) {
        Err(error) => checks.push(
            Check::new("route", Verdict::Bad, format!("to {peer}: {error}"))
                .advise("Without a way there is no TCP connection either."),
        ),
        Ok(path) => {
            checks.push(route(peer, &path, in_tree));
            checks.extend(mtu(&path));
            let table = pnet::collect(None).unwrap_or_default();
            checks.push(serving(&path, &ports, &table, &|port| port.gids()));
            if let (Some(port), Some(source)) = (port, path.source) {
                let service = SocketAddr::new(peer, port);
                checks.push(offer(service, option::ask(service, source)));
            }
        }
    }
    checks
}

fn module(in_tree: bool) -> Check {
    let name = if in_tree { "smc (in-tree)" } else { "rsmc" };
    Check::new("module", Verdict::Ok, format!("{name} is loaded"))
}

fn eids(eids: Result<Vec<String>>, in_tree: bool) -> Option<Check> {
    let eids = eids.ok()?;
    if !eids.is_empty() {
        return Some(Check::new("eid", Verdict::Ok, eids.join(", ")));
    }
    let found = "no UEID: version 2 needs one in common with the peer";
    let verdict = if in_tree { Verdict::Bad } else { Verdict::Note };
    Some(Check::new("eid", verdict, found).advise(
        "`rsmc ueid add RSMC-DEFAULT`, the one rsmc has by itself, or any name on both hosts.",
    ))
}

fn devices(ports: &[Port]) -> Vec<Check> {
    if ports.is_empty() {
        return vec![
            Check::new("device", Verdict::Bad, "SMC sees no RDMA device here").advise(
                "`rdma link` shows what the kernel has; a device in another network namespace does \
                 not count.",
            ),
        ];
    }
    let check = |port: &Port| {
        let name = format!("{}/{}", port.device, port.port);
        match port.fault() {
            None => Check::new("device", Verdict::Ok, format!("{name} is usable")),
            Some(fault) => Check::new("device", Verdict::Bad, format!("{name}: {fault}"))
                .advise("Bring its interface up and give it an address; see `rdma link`."),
        }
    };
    ports.iter().map(check).collect()
}

fn route(peer: IpAddr, path: &Path, in_tree: bool) -> Check {
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

fn mtu(path: &Path) -> Option<Check> {
    let mtu = path.mtu?;
    Some(match path::rdma_mtu(mtu) {
        None => Check::new(
            "mtu",
            Verdict::Bad,
            format!("{mtu} bytes: no RDMA packet fits"),
        )
        .advise("Raise the interface's MTU."),
        Some(size) => {
            let found = format!(
                "{mtu} bytes on {}: RDMA packets carry {size}",
                path.interface
            );
            Check::new("mtu", Verdict::Ok, found)
        }
    })
}

/// An RDMA port for the connection's interface: on it, or in its physical network, with an address
/// of the connection's kind.
fn serving(
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

/// What a service answered to SMC's TCP option.
fn offer(service: SocketAddr, answer: std::result::Result<Answer, Errno>) -> Check {
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

/// What a process's connections are, and whether the library reached it.
///
/// # Errors
/// `Io` if there is no such process.
pub fn process(pid: u32) -> Result<Vec<Check>> {
    let directory = std::path::PathBuf::from(format!("/proc/{pid}"));
    let at = |error| Error::at(&directory, error);
    let name = std::fs::read_to_string(directory.join("comm")).map_err(at)?;
    let name = name.trim_end();
    let library = std::fs::read_to_string(directory.join("maps"));
    Ok(vec![match library {
        Ok(maps) if maps.contains("preload.so") && maps.contains("smc") => Check::new(
            "library",
            Verdict::Ok,
            format!("{name}[{pid}] has loaded the preload library"),
        ),
        Ok(_) => Check::new(
            "library",
            Verdict::Note,
            format!("{name}[{pid}] has not loaded the preload library"),
        )
        .advise("Start it with `rsmc run`, unless it makes SMC sockets by itself."),
        Err(error) => Check::new("library", Verdict::Note, format!("{name}[{pid}]: {error}")),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(interface: &str, gateway: Option<&str>) -> Path {
        Path {
            ifindex: 5,
            interface: interface.into(),
            mtu: Some(1500),
            source: "10.0.0.1".parse().ok(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        }
    }

    fn port(ifindex: u64) -> Port {
        Port {
            device: "rxe0".into(),
            port: 1,
            active: true,
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
    }

    #[test]
    fn names_in_common() {
        assert_eq!(
            eids(Ok(vec!["A".into()]), true).unwrap().verdict,
            Verdict::Ok
        );
        assert_eq!(eids(Ok(Vec::new()), true).unwrap().verdict, Verdict::Bad);
        assert_eq!(eids(Err(Error::Malformed("x")), true), None);
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

    #[test]
    fn lines() {
        let checks = [
            Check::new("mtu", Verdict::Ok, "fine"),
            Check::new("gid", Verdict::Bad, "none").advise("Get one."),
        ];
        let mut out = Vec::new();
        tell(&checks, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  ok    mtu      fine\n  BAD   gid      none\n                 What to do: Get one.\n"
        );
    }

    #[test]
    fn this_process_has_no_library() {
        let checks = process(std::process::id()).unwrap();
        assert_eq!(checks[0].verdict, Verdict::Note);
        assert!(process(u32::MAX).is_err());
    }
}
