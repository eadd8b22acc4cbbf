// SPDX-License-Identifier: GPL-2.0
//! `rsmc why`: the fallback counters explained, what SMC needs looked at, a test connection.

pub(crate) mod checks;
mod declined;
mod option;
pub(crate) mod path;
mod peers;
mod promotion;
mod trial;
mod way;

use crate::cli::{SsArgs, Target, WhyArgs};
use crate::diag;
use crate::error::{Error, Result};
use crate::fallback::{self, Counters, Role};
use crate::reason::{self, Told};
use crate::{ss, stats};
use checks::Check;
use declined::Declined;
use peers::KnownPeer;
use promotion::Promotion;
use serde::Serialize;
use std::io::Write;
use std::net::IpAddr;
use trial::Probe;

/// Explains the counters of this namespace or of one peer, and looks at what SMC needs.
///
/// # Errors
/// `NotThere` if no SMC module is loaded; `BecameTcp` if a test connection did.
pub fn run(args: &WhyArgs, out: &mut dyn Write) -> Result<()> {
    if args.forget {
        return peers::forget(args.target);
    }
    let peer = match args.target {
        Some(Target::Process(pid)) if args.probe.is_some() => {
            return Err(Error::Usage(format!("--probe needs an address, not {pid}")));
        }
        Some(Target::Process(pid)) => return process(pid, args.json, out),
        Some(Target::Peer(peer)) => Some(fallback::plain(peer)),
        None => None,
    };
    let counters = counters(peer)?;
    let probed = match (peer, args.probe) {
        (Some(peer), Some(port)) => match Probe::of(peer, port) {
            // No connection at all: the checks may say why.
            Err(Error::Io(error)) => Err(error),
            other => other.map(|probed| Ok(Some(probed)))?,
        },
        _ => Ok(None),
    };
    let checks = checks::all(peer, args.probe);
    let sockets = diag::dump().unwrap_or_default();
    let declined = declined::by_peers(&sockets, peer);
    let promotion = promotion::of(&counters.promotions, &sockets, peer);
    if args.json {
        let mut answer = answer(&counters, peer);
        answer.checks = checks;
        answer.neighbours = peers::of(&counters, peer);
        answer.declined = declined;
        answer.promotion = promotion;
        answer.probe = probed.as_ref().ok().cloned().flatten();
        serde_json::to_writer_pretty(&mut *out, &answer)?;
        writeln!(out)?;
    } else {
        match peer {
            Some(_) if counters.smc_connections.is_none() => {
                writeln!(out, "The in-tree module does not count by peer.")?;
            }
            Some(peer) => tell_peer(&counters, peer, out)?,
            None => tell(&counters, out)?,
        }
        peers::tell(&peers::of(&counters, peer), out)?;
        declined::tell(&declined, out)?;
        promotion::tell(promotion.as_ref(), peer, out)?;
        writeln!(out, "\nWhat SMC needs:")?;
        checks::tell(&checks, out)?;
        if let Ok(Some(probed)) = &probed {
            probed.tell(out)?;
        }
    }
    match probed? {
        Some(probed) if probed.became_tcp() => Err(Error::BecameTcp(
            "the test connection became a TCP connection".into(),
        )),
        _ => Ok(()),
    }
}

/// The counters of either module.
fn counters(peer: Option<IpAddr>) -> Result<Counters> {
    match fallback::read() {
        Err(Error::NotThere(line)) => {
            // The in-tree module has no such file, and counts by reason only.
            if !diag::has_smc_protocol() {
                return Err(Error::NotThere(line));
            }
            match peer {
                Some(_) => Ok(Counters::default()),
                None => stats::fallback_counters(),
            }
        }
        other => other,
    }
}

/// The sockets of a process, with their reasons.
fn process(pid: u32, json: bool, out: &mut dyn Write) -> Result<()> {
    let checks = checks::process(pid)?;
    let args = SsArgs {
        all: true,
        process: Some(pid.to_string()),
        ..SsArgs::default()
    };
    let sockets = ss::collect(&args)?;
    if json {
        let answer = serde_json::json!({"pid": pid, "checks": checks, "sockets": sockets});
        serde_json::to_writer_pretty(&mut *out, &answer)?;
        return Ok(writeln!(out)?);
    }
    checks::tell(&checks, out)?;
    if sockets.is_empty() {
        writeln!(out, "It has no SMC socket that this user can see.")?;
        return Ok(());
    }
    writeln!(out)?;
    ss::show(&args, &sockets, out)
}

/// Output of `--json`. The names are an interface: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Answer {
    /// `null` where the module does not count them or a peer was asked for.
    smc_connections: Option<u64>,
    fallback_client: Option<u64>,
    fallback_server: Option<u64>,
    strict_refused: Option<u64>,
    drains_lost: Option<u64>,
    reasons: Vec<ReasonCount>,
    peers: Vec<PeerCount>,
    /// Peers to which no option is sent for a while.
    neighbours: Vec<KnownPeer>,
    /// Reasons of peers that declined connections which are still open.
    declined: Vec<Declined>,
    checks: Vec<Check>,
    /// Connections that began as TCP; `null` if there are and were none.
    promotion: Option<Promotion>,
    /// `null` unless a test connection was asked for.
    probe: Option<Probe>,
}

#[derive(Debug, Serialize)]
struct ReasonCount {
    role: &'static str,
    #[serde(flatten)]
    reason: Told,
    advice: &'static str,
    count: u64,
}

#[derive(Debug, Serialize)]
struct PeerCount {
    address: IpAddr,
    #[serde(flatten)]
    reason: Told,
    advice: &'static str,
    count: u64,
}

fn answer(counters: &Counters, peer: Option<IpAddr>) -> Answer {
    let mut reasons = Vec::new();
    if peer.is_none() {
        for (role, code, count) in by_count(&counters.reasons) {
            reasons.push(ReasonCount {
                role: role.name(),
                reason: Told::new(code),
                advice: reason::advice(code),
                count,
            });
        }
    }
    let mut peers = Vec::new();
    for (address, code, count) in by_count(&counters.peers) {
        if peer.is_none_or(|peer| peer == address) {
            peers.push(PeerCount {
                address,
                reason: Told::new(code),
                advice: reason::advice(code),
                count,
            });
        }
    }
    Answer {
        smc_connections: counters.smc_connections.filter(|_| peer.is_none()),
        fallback_client: peer.is_none().then_some(counters.fallback_client),
        fallback_server: peer.is_none().then_some(counters.fallback_server),
        strict_refused: counters.strict_refused.filter(|_| peer.is_none()),
        drains_lost: counters.drains_lost.filter(|_| peer.is_none()),
        reasons,
        peers,
        neighbours: Vec::new(),
        declined: Vec::new(),
        checks: Vec::new(),
        promotion: None,
        probe: None,
    }
}

fn tell(counters: &Counters, out: &mut dyn Write) -> Result<()> {
    if let Some(count) = counters.smc_connections {
        writeln!(out, "{} became SMC.", connections(count))?;
    }
    if let Some(count @ 1..) = counters.strict_refused {
        writeln!(
            out,
            "{} failed: strict mode does not let them fall back.",
            connections(count)
        )?;
    }
    if let Some(count @ 1..) = counters.drains_lost {
        writeln!(
            out,
            "{} lost data after close(): the peer took it too slowly, or there were too many such \
             (net.smc.drain_time, net.smc.max_drains).",
            connections(count)
        )?;
    }
    let fallbacks = counters
        .fallback_client
        .saturating_add(counters.fallback_server);
    if fallbacks == 0 {
        writeln!(out, "None fell back to TCP.")?;
    } else {
        writeln!(
            out,
            "{} fell back to TCP: {} as client, {} as server.",
            connections(fallbacks),
            counters.fallback_client,
            counters.fallback_server
        )?;
    }
    for (role, code, count) in by_count(&counters.reasons) {
        let side = match role {
            Role::Client => "as client",
            Role::Server => "as server",
        };
        explain(code, &format!("{count} {side}"), out)?;
    }
    if !counters.peers.is_empty() {
        writeln!(out, "\nBy peer:")?;
        let mut rows = Vec::new();
        for (address, code, count) in by_count(&counters.peers) {
            rows.push(vec![
                address.to_string(),
                count.to_string(),
                reason::name(code).to_string(),
                reason::text(code),
            ]);
        }
        crate::table::print(out, &["Peer", "Count", "Reason", "In words"], &rows)?;
    }
    Ok(())
}

fn tell_peer(counters: &Counters, peer: IpAddr, out: &mut dyn Write) -> Result<()> {
    let mut known = false;
    for (address, code, count) in by_count(&counters.peers) {
        if address == peer {
            known = true;
            explain(code, &format!("{} with {peer}", connections(count)), out)?;
        }
    }
    if !known {
        writeln!(
            out,
            "No fallback with {peer} is recorded (the table of peers is limited)."
        )?;
    }
    Ok(())
}

fn explain(code: u32, what: &str, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "\n{what}: {} {}",
        reason::hex(code),
        reason::name(code)
    )?;
    writeln!(out, "  {}.", reason::text(code))?;
    let advice = reason::advice(code);
    if !advice.is_empty() {
        writeln!(out, "  What to do: {advice}")?;
    }
    Ok(())
}

fn connections(count: u64) -> String {
    match count {
        1 => "1 connection".into(),
        count => format!("{count} connections"),
    }
}

/// Counters with the largest first; equal ones keep the kernel's order.
fn by_count<K: Copy>(counters: &[(K, u32, u64)]) -> Vec<(K, u32, u64)> {
    let mut sorted = counters.to_vec();
    sorted.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Counters {
        fallback::parse(
            "smc_connections 3\nfallback_client 12\nfallback_server 1\n\
             reason server 0x05000000 1\nreason client 0x03010000 10\nreason client 0x00000007 2\n\
             peer 10.0.0.2 0x03010000 10\npeer fd00::2 0x05000000 1\n",
        )
        .unwrap()
    }

    fn text(write: impl Fn(&mut dyn Write) -> Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn in_words_largest_first() {
        let text = text(|out| tell(&sample(), out));
        assert!(
            text.starts_with("3 connections became SMC.\n13 connections fell back"),
            "{text}"
        );
        let peer_not_smc = text.find("10 as client: 0x03010000 PEERNOSMC").unwrap();
        let declined = text.find("1 as server: 0x05000000 PEERDECL").unwrap();
        assert!(peer_not_smc < declined);
        assert!(
            text.contains("What to do: Load an SMC module on the peer"),
            "{text}"
        );
        assert!(text.contains("Unknown reason 0x00000007"), "{text}");
        assert!(text.contains("fd00::2"), "{text}");
    }

    #[test]
    fn one_peer() {
        let known = text(|out| tell_peer(&sample(), "10.0.0.2".parse().unwrap(), out));
        assert!(
            known.contains("10 connections with 10.0.0.2") && !known.contains("PEERDECL"),
            "{known}"
        );
        let unknown = text(|out| tell_peer(&sample(), "10.0.0.3".parse().unwrap(), out));
        assert!(
            unknown.starts_with("No fallback with 10.0.0.3"),
            "{unknown}"
        );
    }

    #[test]
    fn nothing_happened() {
        let text = text(|out| tell(&fallback::parse("smc_connections 0\n").unwrap(), out));
        assert_eq!(text, "0 connections became SMC.\nNone fell back to TCP.\n");
    }

    #[test]
    fn refusals_have_reasons_too() {
        let counters = fallback::parse(
            "smc_connections 0\nfallback_client 0\nfallback_server 0\nstrict_refused 2\n\
             reason client 0x03030000 2\n",
        )
        .unwrap();
        let text = text(|out| tell(&counters, out));
        assert!(text.contains("2 connections failed: strict mode"), "{text}");
        assert!(text.contains("2 as client: 0x03030000 NOSMCDEV"), "{text}");
    }

    #[test]
    fn json() {
        let value = serde_json::to_value(answer(&sample(), None)).unwrap();
        assert_eq!(value["reasons"][0]["name"], "PEERNOSMC");
        assert_eq!(value["reasons"][0]["role"], "client");
        assert_eq!(value["fallback_client"], 12);
        let peer = serde_json::to_value(answer(&sample(), "fd00::2".parse().ok())).unwrap();
        assert_eq!(peer["peers"].as_array().unwrap().len(), 1);
        assert_eq!(peer["fallback_client"], serde_json::Value::Null);
    }
}
