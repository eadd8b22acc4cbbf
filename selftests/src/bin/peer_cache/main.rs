// SPDX-License-Identifier: GPL-2.0
//! Peers that do not bear the SMC option: connections succeed, one is slow at most, later ones send none, and
//! `rsmc why` says so.
//!
//! `peer_cache [--family inet] [--ip v4] [PREFIX..]`: points `wire` meet a peer made of packets, points `real` servers
//! of this kernel behind rules of nftables and a proxy.

mod real;
mod wire;

use st::fd::Fd;
use st::point::T;
use st::{net, smcinfo, sys};
use std::net::SocketAddr;
use std::process::Command;

/// Reasons of connections to such peers.
const PEERNOSMC: u32 = 0x0301_0000;
const NOSMCDEV: u32 = 0x0303_0000;
const NEIGHBOUR: u32 = 0x0306_0106;
const OPTIONLOST: u32 = 0x0306_0107;
const OPTIONRESET: u32 = 0x0306_0108;

/// A point by name.
#[macro_export]
macro_rules! point {
    ($name:literal, $run:expr) => {
        st::point::Point {
            name: $name,
            run: $run,
        }
    };
}

/// Sets the first time for which a peer is left alone, in seconds.
fn time(seconds: u64) {
    net::sysctl("net.smc.neighbour_time", &seconds.to_string()).expect("sysctl");
}

/// `rsmc ARGUMENTS`: its status and what it says.
fn rsmc(arguments: &str) -> (i32, String) {
    let done = Command::new("rsmc")
        .args(arguments.split_whitespace())
        .output()
        .expect("rsmc");
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (done.status.code().unwrap_or(-1), text)
}

/// A record, as `/proc/net/smc_fallback` has it.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    cause: String,
    seconds: u64,
    times: u64,
    /// `None` for the whole address.
    port: Option<u16>,
}

/// The record of a peer: of its port, or else of its whole address.
fn remembered(peer: &SocketAddr) -> Option<Record> {
    let file = std::fs::read_to_string("/proc/thread-self/net/smc_fallback").expect("counters");
    let address = peer.ip().to_canonical().to_string();
    let records = file.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["neighbour", seen, cause, seconds, times, port] if seen == address => Some(Record {
                cause: cause.into(),
                seconds: seconds.parse().expect("seconds"),
                times: times.parse().expect("times"),
                port: (port != "*").then(|| port.parse().expect("a port")),
            }),
            _ => None,
        }
    });
    records
        .filter(|record| record.port.is_none_or(|port| port == peer.port()))
        .max_by_key(|record| record.port.is_some())
}

/// What a record is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Port,
    Address,
}

/// Checks that a peer is remembered for this cause, for `seconds` at most and not much less, and that `rsmc why`
/// tells it, in words, of all peers and of this one, and of no other.
fn is_remembered(t: &mut T, peer: &SocketAddr, of: Of, cause: &str, seconds: u64, words: &str) {
    let Some(seen) = remembered(peer) else {
        return t.check(&format!("{peer} is remembered"), false);
    };
    t.is("cause", (seen.cause.as_str(), seen.times), (cause, 1));
    t.is("port", seen.port.is_some(), of == Of::Port);
    t.check(
        &format!("{} s of {seconds}", seen.seconds),
        (seconds.saturating_sub(30 * st::guest::slow())..=seconds).contains(&seen.seconds),
    );
    let address = peer.ip().to_canonical();
    let whom = match of {
        Of::Port => SocketAddr::new(address, peer.port()).to_string(),
        Of::Address => address.to_string(),
    };
    let line = format!("{whom} {words} (found once)");
    for arguments in ["why".to_owned(), format!("why {address}")] {
        let (status, said) = rsmc(&arguments);
        t.is(&arguments, status, 0);
        t.check(
            &format!("`{line}` in {arguments}: {said}"),
            said.contains(&line),
        );
    }
    let (_, said) = rsmc("why 192.0.2.1");
    t.check(&format!("of another one: {said}"), !said.contains(words));
}

/// Mode and reason of a connection.
fn kind(fd: &Fd) -> Option<(u32, u32)> {
    let info = smcinfo::info(fd.raw()).ok()?;
    Some((info.mode, info.reason))
}

/// Checks that a connection is TCP's, for this reason.
fn is_tcp(t: &mut T, fd: &Fd, reason: u32) {
    // A connect() that does not wait goes on by itself.
    for _ in 0..100 * st::guest::slow() {
        if kind(fd).is_some_and(|(mode, _)| mode != 255) {
            break;
        }
        sys::sleep_ms(10);
    }
    t.is("kind", kind(fd), Some((smcinfo::MODE_TCP, reason)));
}

fn main() {
    st::point::main(&[wire::LIST, real::LIST], 8);
}
