// SPDX-License-Identifier: GPL-2.0
//! Connections that begin as TCP, and why they are not promoted to SMC-R: what is so now, and what was.

use super::checks::{Check, Verdict};
use super::explain;
use crate::dev::Port;
use crate::diag::{Mode, Socket};
use crate::error::Result;
use crate::promotion::Promotions;
use crate::reason::{self, Told};
use serde::Serialize;
use std::io::Write;
use std::net::IpAddr;

/// Most reasons that are explained.
const REASONS: usize = 4;

/// Connections that began as TCP, with one peer or with all. The names are an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Promotion {
    /// Connections with another host that are there now, and are TCP.
    tcp: u64,
    /// Those that are being promoted.
    promoting: u64,
    /// Those that were.
    promoted: u64,
    /// Ends that were promoted so far; `null` where the module does not tell this user.
    done: Option<u64>,
    /// Why they were not, the latest first.
    reasons: Vec<Reason>,
}

/// A reason why connections were not promoted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    #[serde(flatten)]
    reason: Told,
    advice: &'static str,
    count: u64,
    #[serde(skip)]
    number: u32,
}

impl Reason {
    fn new(code: u32, count: u64) -> Self {
        Self {
            reason: Told::new(code),
            advice: reason::advice(code),
            count,
            number: code,
        }
    }
}

/// What there is to say of a peer, or of all; `None` if there are and were no such connections.
pub fn of(counters: &Promotions, sockets: &[Socket], peer: Option<IpAddr>) -> Option<Promotion> {
    let mut found = Promotion::default();
    let is = |address: IpAddr| peer.is_none_or(|peer| peer == address.to_canonical());
    for socket in sockets.iter().filter(|socket| is(socket.remote.address)) {
        let Some(began) = socket.began.filter(|began| began.is_remote) else {
            continue;
        };
        let place = match socket.mode {
            _ if began.step.is_between() => &mut found.promoting,
            Mode::SmcR => &mut found.promoted,
            _ => &mut found.tcp,
        };
        *place += 1;
    }
    match peer {
        Some(peer) => {
            let mut all: Vec<_> = counters.peers.iter().collect();
            all.retain(|entry| entry.address == peer);
            all.sort_by_key(|entry| std::cmp::Reverse(entry.order));
            for entry in all {
                match entry.code {
                    0 => found.done = Some(found.done.unwrap_or(0).saturating_add(entry.count)),
                    code => found.reasons.push(Reason::new(code, entry.count)),
                }
            }
        }
        None => {
            let done = counters.client.done.saturating_add(counters.server.done);
            found.done = counters.given_back.map(|_| done);
            for (code, count) in sums(counters) {
                found.reasons.push(Reason::new(code, count));
            }
        }
    }
    let is_none = found.tcp + found.promoting + found.promoted + found.done.unwrap_or(0) == 0;
    (!is_none || !found.reasons.is_empty()).then_some(found)
}

/// The reasons of both roles, the most frequent first.
fn sums(counters: &Promotions) -> Vec<(u32, u64)> {
    let mut sums: Vec<(u32, u64)> = Vec::new();
    for (_, code, count) in &counters.reasons {
        match sums.iter_mut().find(|entry| entry.0 == *code) {
            Some(entry) => entry.1 = entry.1.saturating_add(*count),
            None => sums.push((*code, *count)),
        }
    }
    sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sums
}

/// Says it.
///
/// # Errors
/// Errors of writing to `out`.
pub fn tell(found: Option<&Promotion>, peer: Option<IpAddr>, out: &mut dyn Write) -> Result<()> {
    let Some(found) = found else {
        return Ok(());
    };
    let with = peer.map_or(String::new(), |peer| format!(" with {peer}"));
    let done = found.done.map_or(String::new(), |done| {
        format!("; {done} were promoted so far, ended ones among them")
    });
    writeln!(
        out,
        "\nConnections{with} that began as TCP: {} on TCP, {} being promoted, {} on SMC-R now{done}.",
        found.tcp, found.promoting, found.promoted
    )?;
    let shown = found.reasons.iter().take(REASONS);
    for entry in shown {
        let times = match entry.count {
            1 => "once".into(),
            count => format!("{count} times"),
        };
        explain(entry.number, &format!("Not promoted, {times}"), out)?;
    }
    if let more @ 1.. = found.reasons.len().saturating_sub(REASONS) {
        writeln!(out, "... and {more} reasons more")?;
    }
    Ok(())
}

/// A setting of this network namespace.
fn setting(name: &str) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/smc/{name}"));
    text.ok()?.trim().parse().ok()
}

/// What a host has to promote connections with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Devices {
    /// A card, or nobody can tell.
    Card,
    /// Software alone, over which it is to promote none.
    Software,
    /// Nothing.
    None,
}

/// Says whether connections begin as TCP and are promoted, if they do. `ports` are the host's, if they are known.
pub fn check(ports: Option<&[Port]>) -> Option<Check> {
    let forced = setting("path_software") == Some(1);
    let devices = match ports {
        Some([]) => Devices::None,
        Some(all) if !forced && all.iter().all(Port::is_software) => Devices::Software,
        _ => Devices::Card,
    };
    judge(setting("path")?, setting("path_promote")?, devices)
}

fn judge(path: i64, after: i64, devices: Devices) -> Option<Check> {
    if path != 2 {
        return None;
    }
    let begin = "connections with hosts that have rsmc and net.smc.path 2 begin as TCP";
    let note = |found: &str| {
        Check::new(
            "path",
            Verdict::Note,
            format!("{begin} and stay TCP{found}"),
        )
    };
    Some(match (after, devices) {
        (0, _) => note("")
            .advise("`sysctl net.smc.path_promote=32` promotes those to SMC-R that carry much."),
        (_, Devices::None) => note(", as there is no RDMA device"),
        (_, Devices::Software) => {
            note(", which is quicker: the RDMA devices here are software").advise(
                "To try SMC-R: `sysctl net.smc.path=1` on a host has its connections use it from their beginning, \
                 `net.smc.path_software=1` on both promotes them.",
            )
        }
        (after, Devices::Card) => {
            let found =
                format!("{begin}, and are promoted to SMC-R after {after} segments with data");
            Check::new("path", Verdict::Ok, found)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::{self, messages::Message};
    use crate::fallback;
    use crate::promotion::tests::LINES;

    fn socket(mode: u8, step: u8) -> Socket {
        let told = diag::began::tests::bytes(step, [1, 0, 0], [0, 0]);
        let ends = ((&[10, 0, 0, 1][..], 80), (&[10, 0, 0, 2][..], 4000));
        let message = Message::new(2, 1, mode).ends(ends.0, ends.1);
        diag::parse(&message.attribute(9, &told).0).unwrap()
    }

    fn text(found: Option<&Promotion>, peer: Option<IpAddr>) -> String {
        let mut out = Vec::new();
        tell(found, peer, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn of_a_peer() {
        let counters = fallback::parse(LINES).unwrap().promotions;
        let sockets = [
            socket(3, 0),
            socket(3, 2),
            socket(0, 6),
            socket(0, 5),
            socket(3, 0),
        ];
        let peer = "10.0.0.2".parse().ok();
        let found = of(&counters, &sockets, peer).unwrap();
        assert_eq!((found.tcp, found.promoting, found.promoted), (2, 2, 1));
        assert_eq!((found.done, found.reasons.len()), (Some(3), 1));
        let said = text(Some(&found), peer);
        assert!(
            said.contains("with 10.0.0.2 that began as TCP: 2 on TCP, 2 being promoted, 1 on SMC-R now; 3 were promoted"),
            "{said}"
        );
        assert!(
            said.contains("Not promoted, 2 times: 0x0306010c PATHREFUSED\n"),
            "{said}"
        );
        assert!(
            said.contains("What to do: `rsmc why` on the other host"),
            "{said}"
        );
        let other = of(&counters, &sockets, "10.0.0.3".parse().ok()).unwrap();
        assert_eq!((other.tcp, other.done), (0, None));
        assert_eq!(other.reasons[0].reason.name, "PATHSOFTWARE");
        assert_eq!(of(&counters, &sockets, "10.0.0.4".parse().ok()), None);
        assert_eq!(text(None, None), "");
    }

    #[test]
    fn of_all() {
        let counters = fallback::parse(LINES).unwrap().promotions;
        let found = of(&counters, &[], None).unwrap();
        assert_eq!((found.done, found.reasons.len()), (Some(3), 2));
        let said = text(Some(&found), None);
        assert!(
            said.contains("Not promoted, once: 0x0306010e PATHSOFTWARE"),
            "{said}"
        );
        assert_eq!(of(&Promotions::default(), &[], None), None);
    }

    #[test]
    fn settings() {
        assert_eq!(judge(1, 32, Devices::Software), None);
        let usual = judge(2, 32, Devices::Card).unwrap();
        assert_eq!(usual.verdict, Verdict::Ok);
        assert!(usual.found.ends_with("after 32 segments with data"));
        let off = judge(2, 0, Devices::Card).unwrap();
        assert!(off.verdict == Verdict::Note && off.advice.is_some());
        let slow = judge(2, 32, Devices::Software).unwrap();
        assert!(slow.verdict == Verdict::Note && slow.advice.unwrap().contains("path_software=1"));
        assert!(judge(2, 32, Devices::None)
            .unwrap()
            .found
            .ends_with("no RDMA device"));
    }
}
