// SPDX-License-Identifier: GPL-2.0
//! Dumps of groups and links while groups come and go and data flows: between two pieces of a dump a
//! device with two groups is made or removed. Whatever was there all the time is told once, nothing
//! is told twice, and the data goes on.
//!
//! For our module alone: the C module goes on with a dump by position, and so leaves out a group for
//! each that ends before it.

use crate::ends::{self, failed, same, soon, Tree};
use st::errno::R;
use st::family::{Ip, AF_SMC};
use st::fd::Fd;
use st::netlink::{attributes, Generic};
use st::{addr, net, sys};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const GROUPS: u8 = 2;
const LINKS: u8 = 3;
/// Groups that stay, at each end.
const STAY: usize = 12;
/// Fewest connections that a group can be limited to.
const CONNECTIONS: usize = 16;
/// Each of both goes and comes back, under a dump of links and under one of groups.
const ROUNDS: usize = 8;
/// A page: a dump is told in pieces of that size.
const ROOM: usize = 4096;

/// A device on the loopback of an end's namespace, and a connection over it with both its ends.
struct Goer {
    name: String,
    fds: Vec<Fd>,
    ids: BTreeSet<u64>,
}

/// Makes a device and a connection, which has a group for each end. The thread keeps its namespace.
fn come(end: usize, port: u16) -> Result<Goer, String> {
    let before = ids(&whole(GROUPS)?);
    let make = || -> Result<(String, Vec<Fd>), String> {
        st::guest::enter(ends::SPACES[end]).map_err(failed)?;
        st::path::off()?;
        // SAFETY: no pointers.
        let name = format!("rxl{}", unsafe { libc::gettid() });
        net::roce_on_loopback()?;
        let at = SocketAddr::new(addr::loopback(Ip::V4), port);
        let connect = || -> R<Vec<Fd>> {
            let smc = || sys::socket(AF_SMC, libc::SOCK_STREAM, 0);
            let (listener, client) = (smc()?, smc()?);
            sys::setopt(listener.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            sys::bind(listener.raw(), &at)?;
            sys::listen(listener.raw(), 1)?;
            sys::connect(client.raw(), &at)?;
            let server = sys::accept(listener.raw())?;
            Ok(vec![client, server])
        };
        let fds = connect().map_err(failed)?;
        let listed = ends::listed(end, &fds[0])?;
        let over = listed.attributes.iter().any(|a| a.0 == ends::GROUP);
        same("over SMC-R", (listed.fixed[2], over), (0, true))?;
        Ok((name, fds))
    };
    let made = std::thread::scope(|s| s.spawn(make).join());
    let (name, fds) = made.map_err(|_| "panic")??;
    let ids: BTreeSet<u64> = ids(&whole(GROUPS)?).difference(&before).copied().collect();
    same("new groups", ids.len(), 2)?;
    Ok(Goer { name, fds, ids })
}

/// Removes the device; the groups end with it.
fn go(goer: Goer) -> Result<(), String> {
    net::rdma_delete(&goer.name, 20 * st::guest::slow())?;
    soon(|| {
        let left = ids(&whole(GROUPS)?);
        same("groups left", left.is_disjoint(&goer.ids), true)
    })?;
    drop(goer.fds);
    Ok(())
}

/// An entry: of a group its id and 0, of a link its group's id and its own number.
type Entry = (u64, u64);

fn ids(entries: &[Entry]) -> BTreeSet<u64> {
    entries.iter().map(|e| e.0).collect()
}

/// A dump, and what is done after its first piece.
fn told(command: u8, between: impl FnOnce() -> Result<(), String>) -> Result<Vec<Entry>, String> {
    let generic = Generic::open("SMC_GEN_NETLINK").map_err(failed)?;
    generic
        .request(command, libc::NLM_F_DUMP, &[])
        .map_err(failed)?;
    let next = || {
        generic
            .piece(command, ROOM)
            .map_err(|e| format!("piece of {command}: {e}"))
    };
    let mut messages = next()?.ok_or("no piece")?;
    between()?;
    // `between` would have come after all of a short dump.
    let first = messages.len();
    while let Some(more) = next()? {
        messages.extend(more);
    }
    if first == messages.len() && first > STAY {
        return Err(format!("{first} messages in one piece"));
    }
    let mut entries: Vec<Entry> = vec![];
    for message in messages {
        for (kind, value) in
            attributes(&message).map_err(|e| format!("message of {command}: {e}"))?
        {
            let it = Tree::new(&value)?;
            entries.push(match u8::try_from(kind) {
                Ok(GROUPS) => (it.number(1)?, 0),
                // Links have numbers from 1.
                _ => (entries.last().ok_or("a link first")?.0, it.number(1)?),
            });
        }
    }
    Ok(entries)
}

fn whole(command: u8) -> Result<Vec<Entry>, String> {
    told(command, || Ok(()))
}

/// Nothing twice, and everything of `stay`.
fn right(entries: &[Entry], stay: &BTreeSet<Entry>) -> Result<(), String> {
    let found: BTreeSet<Entry> = entries.iter().copied().collect();
    if found.len() != entries.len() {
        return Err(format!("something twice: {entries:x?}"));
    }
    let missing: Vec<_> = stay.difference(&found).collect();
    same("missing", missing, vec![])
}

/// Data that flows over a connection until it is stopped; how much was sent and received right.
fn flow(pair: &[Fd; 2], stop: &AtomicBool, moved: &AtomicU64) -> Result<(), String> {
    const PIECE: usize = 30_000;
    let piece: Vec<u8> = (0..PIECE).map(|n| (n % 251) as u8).collect();
    while !stop.load(Ordering::Relaxed) {
        sys::send_all(pair[0].raw(), &piece).map_err(|e| format!("send: {e}"))?;
        let got = sys::recv_all(pair[1].raw(), PIECE).map_err(|e| format!("recv: {e}"))?;
        if got != piece {
            return Err("other data".into());
        }
        moved.fetch_add(1, Ordering::Relaxed);
        // Others want the processor, too.
        sys::sleep_ms(1);
    }
    Ok(())
}

fn rounds(
    stay: &BTreeSet<u64>,
    mut goers: [Option<Goer>; 2],
    moved: &AtomicU64,
) -> Result<(), String> {
    let groups: BTreeSet<Entry> = stay.iter().map(|id| (*id, 0)).collect();
    let links: BTreeSet<Entry> = {
        let all = whole(LINKS)?;
        all.into_iter().filter(|e| stay.contains(&e.0)).collect()
    };
    same("a link to each group", links.len(), 2 * groups.len())?;
    for round in 0..ROUNDS {
        // Each of both goes, and then comes again with new groups.
        let end = round / 2 % 2;
        let before = moved.load(Ordering::Relaxed);
        let (command, wanted) = match round / 4 % 2 {
            0 => (LINKS, &links),
            _ => (GROUPS, &groups),
        };
        let entries = told(command, || {
            match goers[end].take() {
                Some(goer) => go(goer)?,
                None => goers[end] = Some(come(end, 7130 + round as u16)?),
            }
            soon(|| same("data flows", moved.load(Ordering::Relaxed) > before, true))
        })?;
        right(&entries, wanted).map_err(|e| format!("round {round}: {e}"))?;
        right(&whole(command)?, wanted).map_err(|e| format!("after round {round}: {e}"))?;
    }
    goers.into_iter().flatten().try_for_each(go)
}

/// Runs it; the error says what was wrong.
pub fn run() -> Result<(), String> {
    ends::prepare()?;
    for end in 0..2 {
        let limit = CONNECTIONS.to_string();
        ends::outside(end, || {
            net::sysctl("net.smc.smcr_max_conns_per_lgr", &limit)
        })?;
    }
    // Those that go first are told first, before the first piece ends.
    let goers = [Some(come(0, 7120)?), Some(come(1, 7121)?)];
    let before = ids(&whole(GROUPS)?);
    let pairs = ends::outside(0, || -> Result<Vec<[Fd; 2]>, String> {
        let listener = ends::listener().map_err(failed)?;
        (0..STAY * CONNECTIONS)
            .map(|_| ends::pair(&listener))
            .collect()
    })?;
    let after = ids(&whole(GROUPS)?);
    let stay: BTreeSet<u64> = after.difference(&before).copied().collect();
    same("groups that stay", stay.len(), 2 * STAY)?;
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        let flow = s.spawn(|| flow(&pairs[0], &stop, &moved));
        let all = rounds(&stay, goers, &moved);
        stop.store(true, Ordering::Relaxed);
        let flown = flow.join().map_err(|_| "panic".to_owned());
        all.and(flown?)
    })
}
