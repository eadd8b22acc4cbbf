// SPDX-License-Identifier: GPL-2.0
//! Checks of what SMC needs, as far as it is seen here: module, EIDs, devices, and the way to a peer.

use super::{option, path, promotion, way};
use crate::dev::{self, Port};
use crate::error::{Error, Result};
use crate::table::Colour;
use crate::{pnet, ueid, visible};
use serde::Serialize;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// Result of a check.
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
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// Advice, `null` if there is none.
    pub(super) advice: Option<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict,
            found: found.into(),
            advice: None,
        }
    }

    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Prints checks, a line each, and what to do below those that are not well.
///
/// # Errors
/// Errors of writing to `out`.
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
        let found = visible::text(&check.found);
        writeln!(out, "  {word}  {:<7}  {found}", check.name)?;
        if let Some(advice) = &check.advice {
            let advice = visible::text(advice);
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
    let ports = dev::collect();
    checks.extend(promotion::check(ports.as_deref().ok()));
    let ports = match ports {
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
            checks.push(way::route(peer, &path, in_tree));
            checks.extend(way::mtu(&path));
            let table = pnet::collect(None).unwrap_or_default();
            checks.push(way::serving(&path, &ports, &table, &|port| port.gids()));
            if let (Some(port), Some(source)) = (port, path.source) {
                let service = SocketAddr::new(peer, port);
                checks.push(way::offer(service, option::ask(service, source)));
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
        match port.fault {
            None => Check::new("device", Verdict::Ok, format!("{name} is usable")),
            Some(fault) => Check::new("device", Verdict::Bad, format!("{name}: {fault}"))
                .advise("Bring its interface up and give it an address; see `rdma link`."),
        }
    };
    ports.iter().map(check).collect()
}

/// Describes a process's connections, and tells whether the library reached it.
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
