// SPDX-License-Identifier: GPL-2.0
//! Checks what is told of the system, of groups, links and devices, and of connections.

use crate::ends::{self, dump, failed, same, soon, waiting, Tree, SPACES};
use st::errno::{Errno, R};
use st::family::AF_SMC;
use st::fd::Fd;
use st::{guest, sys};
use std::collections::BTreeMap;

/// Commands of `SMC_GEN_NETLINK`, whose answers are in attributes of the same numbers.
const SYSTEM: u8 = 1;
const GROUPS: u8 = 2;
const LINKS: u8 = 3;
const DEVICES: u8 = 6;
const FALLBACKS: u8 = 8;
/// Size of a receive buffer by default.
const RING: u64 = 65536;
/// The devices of the lab's namespaces.
const NAMES: [&str; 2] = ["rxe_a", "rxe_b"];
/// "The peer is no SMC".
const PEER_NO_SMC: u64 = 0x0301_0000;

fn host() -> Result<String, String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    Ok(name.map_err(|e| e.to_string())?.trim().into())
}

/// The GID of an end: its IPv4 address.
fn gid(end: usize) -> String {
    format!("0000:0000:0000:0000:0000:ffff:0a4d:000{}", end + 1)
}

fn interface(end: usize) -> Result<u64, String> {
    let name = ["va", "vb"][end];
    let index = std::ffi::CString::new(name).map_err(|e| e.to_string())?;
    // SAFETY: the name ends with a NUL.
    match ends::within(end, || unsafe { libc::if_nametoindex(index.as_ptr()) }) {
        0 => Err(format!("no {name} in {}", SPACES[end])),
        index => Ok(index.into()),
    }
}

/// Version 2, release 1, no ISM, SMC-R of version 2, and the host's name.
pub fn system(_: &Fd) -> Result<(), String> {
    let all = dump(0, SYSTEM)?;
    let it = &all.first().ok_or("nothing")?.1;
    let numbers = [1, 2, 3, 6].map(|n| it.number(n));
    same("numbers", numbers, [Ok(2), Ok(1), Ok(0), Ok(1)])?;
    same("host", it.text(4)?, host()?)
}

/// The group of an end, and its links. One knows it by its device: the C module tells everybody of
/// all groups, and those of both ends have the cookie of the devices' namespace.
fn group(end: usize) -> Result<(Tree, Vec<Tree>), String> {
    let mut found: Vec<(Tree, Vec<Tree>)> = vec![];
    for (kind, tree) in dump(end, LINKS)? {
        match (u8::try_from(kind), found.last_mut()) {
            (Ok(GROUPS), _) => found.push((tree, vec![])),
            (Ok(LINKS), Some((_, links))) => links.push(tree),
            other => return Err(format!("{other:?}")),
        }
    }
    let is_own = |link: &Tree| link.text(2).as_deref() == Ok(NAMES[end]);
    found.retain(|g| g.1.iter().any(is_own));
    same("groups of the end", found.len(), 1)?;
    found.pop().ok_or("none".into())
}

/// The number of connections that both ends' groups and links tell.
fn connections(number: u64) -> Result<(), String> {
    soon(|| {
        for end in 0..2 {
            let (group, links) = group(end)?;
            same("connections of the group", group.number(6), Ok(number))?;
            same("links", links.len(), 1)?;
            same("connections of the link", links[0].number(6), Ok(number))?;
            let room = group.number(13)?;
            same("enough memory to receive", room >= number * RING, true)?;
        }
        Ok(())
    })
}

/// A group has as many connections as there are, and outlives them.
pub fn counted(listener: &Fd) -> Result<(), String> {
    let mut pairs = vec![];
    for number in 1..=3 {
        pairs.push(ends::pair(listener)?);
        connections(number)?;
    }
    pairs.pop();
    connections(2)?;
    drop(pairs);
    connections(0)
}

/// Each end's group: its role, its terms, and its peer.
pub fn groups(listener: &Fd) -> Result<(), String> {
    let _pair = ends::pair(listener)?;
    for end in 0..2 {
        let (by_links, _) = group(end)?;
        let own = by_links.number(1)?;
        let plain = dump(end, GROUPS)?;
        let plain: Vec<&Tree> = plain
            .iter()
            .map(|m| &m.1)
            .filter(|g| g.number(1) == Ok(own))
            .collect();
        same("groups", plain.len(), 1)?;
        let it = plain[0];
        same("cookie", it.number(9), by_links.number(9))?;
        same("role", it.number(2), Ok(end as u64))?;
        // One link, no VLAN, contiguous memory.
        same(
            "kind",
            [3, 5, 11].map(|n| it.number(n)),
            [Ok(1), Ok(0), Ok(0)],
        )?;
        same("PNET ID", it.text(4)?, String::new())?;
        let peer = it.nest(7)?;
        // Version, release, Linux.
        same(
            "peer",
            [0, 1, 2].map(|n| peer.number(n)),
            [Ok(2), Ok(1), Ok(2)],
        )?;
        same("EID", peer.text(3)?, "RSMC-DEFAULT".into())?;
        same("host", peer.text(4)?, host()?)?;
        let terms = it.nest(8)?;
        // Direct, 255 connections, one link.
        same(
            "terms",
            [1, 2, 3].map(|n| terms.number(n)),
            [Ok(1), Ok(255), Ok(1)],
        )?;
    }
    Ok(())
}

/// Each end's link: device, port, interface, addresses, active; both ends agree on number and names.
pub fn links(listener: &Fd) -> Result<(), String> {
    let pair = ends::pair(listener)?;
    let mut names = vec![];
    for end in 0..2 {
        let (group, links) = group(end)?;
        same("links", links.len(), 1)?;
        let it = &links[0];
        same("device", it.text(2)?, NAMES[end].into())?;
        same("port", it.number(3), Ok(1))?;
        same("GID", it.text(4)?, gid(end))?;
        same("peer's GID", it.text(5)?, gid(1 - end))?;
        same("interface", it.number(7), interface(end))?;
        same("state", it.number(10), Ok(3))?;
        same("some id", group.number(1)? != 0, true)?;
        names.push([it.number(1)?, it.number(8)?, it.number(9)?]);
        // SMC_DIAG_LGRINFO says the same: number, device, port, GIDs, role.
        let listed = ends::listed(end, &pair[end])?;
        let brief = listed.attributes.iter().find(|a| a.0 == ends::GROUP);
        let brief = &brief.ok_or("no group")?.1;
        let text = |from: usize, to: usize| {
            let text = String::from_utf8_lossy(&brief[from..to]).into_owned();
            text.trim_end_matches('\0').to_owned()
        };
        same("number", u64::from(brief[0]), it.number(1)?)?;
        same("device", text(1, 65), NAMES[end].into())?;
        same("port", brief[65], 1)?;
        same(
            "GIDs",
            (text(66, 106), text(106, 146)),
            (gid(end), gid(1 - end)),
        )?;
        same("role", usize::from(brief[146]), end)?;
    }
    let [number, own, peer] = names[0];
    same("as the other end", names[1], [number, peer, own])
}

/// The end's device: active, with its interface, and in use.
pub fn devices(listener: &Fd) -> Result<(), String> {
    let _pair = ends::pair(listener)?;
    for (end, name) in NAMES.iter().enumerate() {
        let all = dump(end, DEVICES)?;
        let of = |d: &&(u16, Tree)| d.1.text(10).as_deref() == Ok(*name);
        let found: Vec<_> = all.iter().filter(of).collect();
        same("devices", found.len(), 1)?;
        let it = &found[0].1;
        same("critical", it.number(2), Ok(1))?;
        let port = it.nest(8)?;
        same(
            "PNET ID",
            (port.number(1), port.text(2)?),
            (Ok(0), String::new()),
        )?;
        same("interface", port.number(3), interface(end))?;
        same("active", (port.number(4), port.number(5)), (Ok(1), Ok(1)))?;
        same("links", port.number(6), Ok(1))?;
        same("one port", it.nest(9).is_err(), true)?;
    }
    Ok(())
}

/// SMC_DIAG_CONNINFO after bytes that were read, and others that were not: `u32` at 0 token, 4 sizes
/// of send, receive and peer's buffer; cursors, wrap and count, from 16.
pub fn cursors(listener: &Fd) -> Result<(), String> {
    const READ: usize = 1000;
    const UNREAD: usize = 234;
    let pair = ends::pair(listener)?;
    let send = |n: usize| sys::send_all(pair[0].raw(), &vec![1; n]).map_err(failed);
    send(READ)?;
    let got = sys::recv_all(pair[1].raw(), READ).map_err(failed)?;
    same("read", got.len(), READ)?;
    send(UNREAD)?;
    waiting(&pair[1], UNREAD)?;
    let word = |end: usize, at: usize| ends::connection(end, &pair[end], at);
    let all = (READ + UNREAD) as u32;
    for end in 0..2 {
        same("token", word(end, 0)? != 0, true)?;
        for at in [4, 8, 12] {
            same("size", u64::from(word(end, at)?), RING)?;
        }
    }
    // At the server: what has come. At the client: what was written, prepared and sent, all of it.
    same("rx_prod", word(1, 20)?, all)?;
    for at in [36, 56, 64] {
        same(&format!("cursor at {at} of the client"), word(0, at)?, all)?;
    }
    soon(|| same("tx_fin", word(0, 72)?, all))?;
    // The other direction.
    same("rx_prod of the client", word(0, 20)?, 0)?;
    same("tx_prod of the server", word(1, 36)?, 0)
}

type Reasons = BTreeMap<(u64, u64), u64>;

/// Fallbacks of an end: of servers, of clients, and how often for each role and reason.
fn fallen(end: usize) -> Result<(u64, u64, Reasons), String> {
    let all = dump(end, FALLBACKS)?;
    let mut reasons = Reasons::new();
    for (_, it) in &all {
        reasons.insert((it.number(1)?, it.number(4)?), it.number(5)?);
    }
    match all.first() {
        Some((_, first)) => Ok((first.number(2)?, first.number(3)?, reasons)),
        None => Ok((0, 0, reasons)),
    }
}

/// Two connections to a plain server, and one of a plain client.
pub fn fallbacks(listener: &Fd) -> Result<(), String> {
    let plain = || sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    let server = ends::within(1, || -> R<Fd> {
        let fd = plain()?;
        sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        sys::bind(fd.raw(), &ends::server(7111))?;
        sys::listen(fd.raw(), 8)?;
        Ok(fd)
    });
    let _server = server.map_err(failed)?;
    let before = [fallen(0)?, fallen(1)?];
    let mut held = vec![];
    for _ in 0..2 {
        let fd = ends::within(0, || {
            let fd = sys::socket(AF_SMC, libc::SOCK_STREAM, 0)?;
            sys::connect(fd.raw(), &ends::server(7111))?;
            Ok(fd)
        });
        held.push(fd.map_err(|e: Errno| format!("to a plain server: {e}"))?);
    }
    let port = sys::sockname(listener.raw()).map_err(failed)?.port();
    let client = ends::within(0, || {
        let fd = plain()?;
        sys::connect(fd.raw(), &guest::sockaddr(true, st::family::Ip::V4, port))?;
        Ok(fd)
    });
    held.push(client.map_err(failed)?);
    held.push(sys::accept(listener.raw()).map_err(failed)?);
    for (end, by) in [(0, (0, 2)), (1, (1, 0))] {
        let (now, then) = (fallen(end)?, &before[end]);
        same("servers", now.0 - then.0, by.0)?;
        same("clients", now.1 - then.1, by.1)?;
        for (role, wanted) in [(1, by.0), (0, by.1)] {
            let key = (role, PEER_NO_SMC);
            let of = |r: &Reasons| r.get(&key).copied().unwrap_or(0);
            same(&format!("role {role}"), of(&now.2) - of(&then.2), wanted)?;
        }
        let sum = |r: &Reasons| r.values().sum::<u64>();
        same("all reasons", sum(&now.2) - sum(&then.2), by.0 + by.1)?;
    }
    Ok(())
}
