// SPDX-License-Identifier: GPL-2.0
//! Reasons of hosts that have an RDMA device: what the peer's messages offer, and links that do
//! not come up. The peer is made of packets.

use crate::host::{confirm_link, llc, Host, Role};
use crate::told::{self, ALL};
use st::fd::Fd;
use st::point::{Point, T};
use st::rawpeer::{wire_addr, Peer, Wire};
use st::{clc, net, sys};
use std::net::SocketAddr;

/// Points of `rdma.`.
pub const LIST: &[Point] = &[
    point!("rdma.client.mode", client_mode),
    point!("rdma.client.eid", client_eid),
    point!("rdma.client.release", client_release),
    point!("rdma.client.connections", client_connections),
    point!("rdma.client.links", client_links),
    point!("rdma.client.no_group", client_no_group),
    point!("rdma.client.no_link", client_no_link),
    point!("rdma.client.no_route", client_no_route),
    point!("rdma.client.gateway", client_gateway),
    point!("rdma.client.too_many", client_too_many),
    point!("rdma.client.too_many_keys", client_too_many_keys),
    point!("rdma.client.silent_link", client_silent_link),
    point!("rdma.client.eyecatcher", client_eyecatcher),
    point!("rdma.client.broken_link", client_broken_link),
    point!("rdma.client.declined", client_declined),
    point!("rdma.client.keeps_declining", client_keeps_declining),
    point!("rdma.server.version_1", server_version_1),
    point!("rdma.server.subnet", server_subnet),
    point!("rdma.server.ism", server_ism),
    point!("rdma.server.mode", server_mode),
    point!("rdma.server.eid", server_eid),
    point!("rdma.server.connections", server_connections),
    point!("rdma.server.links", server_links),
    point!("rdma.server.release", server_release),
    point!("rdma.server.silent_link", server_silent_link),
    point!("rdma.server.eyecatcher", server_eyecatcher),
    point!("rdma.server.broken_link", server_broken_link),
];

/// Where the EID of an agreement is, and what a first contact says besides.
const EID: usize = 64;
/// Where an accept of a first contact says that no gateway is between.
const DIRECT: usize = 104;
const RELEASE: usize = 105;
const MAX_CONNS: usize = 140;
const MAX_LINKS: usize = 141;
/// The same of a proposal.
const PROPOSED_CONNS: usize = 104;
const PROPOSED_LINKS: usize = 105;
const PROPOSED_EID: usize = 120;
const PROPOSED_PREFIX_LEN: usize = 44;

/// A soft-RoCE device on `va`.
pub struct Device(pub String);

impl Device {
    /// Makes it and waits until its port has an address.
    pub fn new(t: &mut T) -> Device {
        // SAFETY: No pointers.
        let name = format!("rxw{}", unsafe { libc::gettid() });
        let made = net::sh(&format!("rdma link add {name} type rxe netdev va"));
        t.is("device", made, Ok(()));
        let gids = format!("/sys/class/infiniband/{name}/ports/1/gids");
        let v4 = "0000:0000:0000:0000:0000:ffff:0a4d:0001";
        let v6 = "fd77:0000:0000:0000:0000:0000:0000:0001";
        let has = |wanted: &str| {
            (0..16).any(|i| {
                let gid = std::fs::read_to_string(format!("{gids}/{i}"));
                gid.is_ok_and(|gid| gid.trim() == wanted)
            })
        };
        for _ in 0..500 * st::guest::slow() {
            if has(v4) && has(v6) {
                return Device(name);
            }
            sys::sleep_ms(10);
        }
        t.check("the device has no addresses", false);
        Device(name)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = net::rdma_delete(&self.0, 10 * st::guest::slow());
    }
}

/// A host in this role, facing a module that has a device.
fn set_up(t: &mut T, role: Role) -> (Device, Host) {
    (Device::new(t), Host::new(t, role))
}

/// The module's client has sent its proposal.
fn proposed(t: &mut T, h: &mut Host) -> (Peer<'static>, Fd) {
    let (mut tcp, fd) = h.tcp(t);
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    let ty = clc::header(&m).map(|h| h.ty);
    t.is("proposal", ty, Some(clc::PROPOSAL));
    (tcp, fd.expect("a socket"))
}

/// The module's client gets this first contact.
fn answered(t: &mut T, name: &str, spoil: impl Fn(&mut Vec<u8>, &mut clc::End)) {
    let (_device, mut h) = set_up(t, Role::Server);
    let (mut tcp, fd) = proposed(t, &mut h);
    let mut me = h.end();
    spoil(&mut vec![0; 200], &mut me);
    let mut accept = clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1)));
    spoil(&mut accept, &mut me);
    tcp.send(&accept);
    told::own(t, Role::Server, &fd, name);
}

fn client_mode(t: &mut T) {
    answered(t, "MODEUNSUPP", |m, _| *m = clc::accept_v1(clc::ACCEPT));
}

fn client_eid(t: &mut T) {
    answered(t, "NOUEID", |m, _| m[EID..EID + 4].fill(b'X'));
}

fn client_release(t: &mut T) {
    answered(t, "RELEASEERR", |m, _| m[RELEASE] = 0x2e);
}

fn client_connections(t: &mut T) {
    answered(t, "MAXCONNERR", |m, _| m[MAX_CONNS] = 15);
}

fn client_links(t: &mut T) {
    answered(t, "MAXLINKERR", |m, _| m[MAX_LINKS] = 0);
}

/// The server knows a group of which this client knows nothing.
fn client_no_group(t: &mut T) {
    let (_device, mut h) = set_up(t, Role::Server);
    let (mut tcp, fd) = proposed(t, &mut h);
    tcp.send(&clc::agreement_v2(clc::ACCEPT, &h.end(), None));
    told::own(t, Role::Server, &fd, "SYNCERR");
}

/// The group is known, but not by that queue pair.
fn client_no_link(t: &mut T) {
    let (_device, mut h) = set_up(t, Role::Server);
    let _first = h.open(t);
    let (mut tcp, fd) = proposed(t, &mut h);
    let mut me = h.end();
    me.qpn += 1;
    tcp.send(&clc::agreement_v2(clc::ACCEPT, &me, None));
    told::own(t, Role::Server, &fd, "NOSRVLINK");
}

/// An RDMA port that no route leads to.
fn client_no_route(t: &mut T) {
    answered(t, "NOROUTE", |_, me| {
        me.gid = [0; 16];
        me.gid[10..].copy_from_slice(&[0xff, 0xff, 10, 99, 0, 2]);
    });
}

/// The server sees a gateway where there is none.
fn client_gateway(t: &mut T) {
    answered(t, "NOINDIRECT", |m, _| m[DIRECT] = 0);
}

/// The server puts more connections into the group than were agreed.
fn client_too_many(t: &mut T) {
    const MOST: u8 = 16;
    let (_device, mut h) = set_up(t, Role::Server);
    let mut held = vec![];
    for i in 0..=MOST {
        let (mut tcp, fd) = proposed(t, &mut h);
        let first = (i == 0).then_some((MOST, 1));
        tcp.send(&clc::agreement_v2(clc::ACCEPT, &h.end(), first));
        if i == MOST {
            return told::own(t, Role::Server, &fd, "INTERR");
        }
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        let ty = clc::header(&m).map(|h| h.ty);
        t.is("confirm", ty, Some(clc::CONFIRM));
        if i == 0 {
            confirm(t, &mut h, &m);
        }
        held.push((tcp, fd));
    }
}

/// Every connection brings another memory key, and there is an end to them.
fn client_too_many_keys(t: &mut T) {
    let (_device, mut h) = set_up(t, Role::Server);
    // One connection keeps the group.
    let _first = h.open(t);
    for i in 1..=300u32 {
        let (mut tcp, fd) = proposed(t, &mut h);
        let mut me = h.end();
        me.rkey = me.rkey.wrapping_add(i);
        tcp.send(&clc::agreement_v2(clc::ACCEPT, &me, None));
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        match clc::header(&m).map(|h| h.ty) {
            Some(clc::CONFIRM) => tcp.send_rst(),
            Some(clc::DECLINE) => return told::own(t, Role::Server, &fd, "ERR_RTOK"),
            other => return t.check(&format!("{i}: {other:?}"), false),
        }
    }
    t.check("300 keys were taken", false);
}

/// Brings the link up after the client's confirm.
fn confirm(t: &mut T, h: &mut Host, m: &[u8]) {
    let they = clc::End::parse(m).expect("a confirm");
    h.rc.connect(they.qpn, they.psn);
    h.rc.send(&confirm_link(&h.me, 0x03));
    t.check("CONFIRM_LINK answered", h.llc(0x81, 3000).is_some());
}

/// A handshake in which the link is to be confirmed next, with the module's socket; a listener's
/// comes later.
fn unconfirmed(t: &mut T, h: &mut Host) -> (Peer<'static>, Option<Fd>) {
    if h.role == Role::Server {
        let (mut tcp, fd) = proposed(t, h);
        tcp.send(&clc::agreement_v2(clc::ACCEPT, &h.end(), Some((255, 1))));
        let m = clc::read(&mut tcp, 4000).unwrap_or_default();
        let they = clc::End::parse(&m).expect("a confirm");
        h.rc.connect(they.qpn, they.psn);
        return (tcp, Some(fd));
    }
    let tcp = agreed(t, h, |_| ());
    t.check("CONFIRM_LINK asked", h.llc(1, 3000).is_some());
    (tcp, None)
}

fn link(t: &mut T, role: Role, name: &str, act: impl Fn(&Host)) {
    let (_device, mut h) = set_up(t, role);
    let (tcp, fd) = unconfirmed(t, &mut h);
    act(&h);
    ends(t, &h, tcp, fd, name);
}

/// The module declines; what a program says then is the listener's connection.
fn ends(t: &mut T, h: &Host, mut tcp: Peer<'static>, fd: Option<Fd>, name: &str) {
    let m = clc::read(&mut tcp, 9000).unwrap_or_default();
    t.is("decline", clc::diagnosis(&m), Some(told::code(name)));
    tcp.send(b"program");
    match fd.or_else(|| h.accept(&tcp)) {
        Some(fd) => told::own(t, h.role, &fd, name),
        None => t.check("no socket", false),
    }
}

/// The other kind of CONFIRM_LINK for a host in this role: a server asks.
fn kind(role: Role) -> u8 {
    if role == Role::Client {
        0x80
    } else {
        0
    }
}

fn client_silent_link(t: &mut T) {
    link(t, Role::Server, "TIMEOUT_CL", |_| ());
}

fn client_eyecatcher(t: &mut T) {
    link(t, Role::Server, "RMBE_EC", |h| {
        h.rc.send(&confirm_link(&h.me, kind(h.role)));
    });
}

fn client_broken_link(t: &mut T) {
    link(t, Role::Server, "ERR_RDYLNK", |h| {
        h.rc.send(&llc(0x24, 0x40));
    });
}

fn server_silent_link(t: &mut T) {
    link(t, Role::Client, "TIMEOUT_CL", |_| ());
}

fn server_eyecatcher(t: &mut T) {
    link(t, Role::Client, "RMBE_EC", |h| {
        h.rc.send(&confirm_link(&h.me, kind(h.role)));
    });
}

fn server_broken_link(t: &mut T) {
    link(t, Role::Client, "ERR_RDYLNK", |h| {
        h.rc.send(&llc(0x24, 0x40));
    });
}

/// A server that declines, with every code there is.
fn client_declined(t: &mut T) {
    let (_device, mut h) = set_up(t, Role::Server);
    let mut peers = vec![];
    let mut sockets = vec![];
    for known in ALL {
        let (mut tcp, fd) = proposed(t, &mut h);
        tcp.send(&clc::decline(known.0, 2));
        peers.push(tcp);
        sockets.push((fd, known));
    }
    told::declined(t, Role::Server, &sockets);
}

/// A server that declines for a cause that lasts: after the eighth time it is asked no more.
fn client_keeps_declining(t: &mut T) {
    const OPTIONLESS: u32 = 0x0306_0106;
    let (_device, mut h) = set_up(t, Role::Server);
    net::sysctl("net.smc.neighbour_time", "3600").expect("sysctl");
    let mut peers = vec![];
    // A full queue is no such cause.
    for (name, times) in [("BUSY", 10), ("NOSMCDEV", 8)] {
        for _ in 0..times {
            let (mut tcp, fd) = proposed(t, &mut h);
            tcp.send(&clc::decline(told::code(name), 2));
            let seen = told::settled(t, &fd);
            t.is(name, seen, (told::code("PEERDECL"), told::code(name)));
            peers.push((tcp, fd));
        }
    }
    let wire = Wire::open("vb").expect("packet socket");
    let fd = t.socket();
    sys::nonblock(fd.raw(), true);
    let to = SocketAddr::new(wire_addr(true, t.ip), 7701);
    let _ = sys::connect(fd.raw(), &to);
    let mut peer = Peer::wait_syn_at(&wire, to, 4000).expect("no SYN");
    t.syn("the next one", &peer.syn, 0);
    t.check("ACK", peer.syn_ack(&[]));
    let seen = told::settled(t, &fd);
    t.is("reason", seen, (OPTIONLESS, 0));
    let said = std::process::Command::new("rsmc").arg("why").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let said = said.unwrap_or_default();
    t.check(
        &said,
        said.contains("keeps declining SMC, or handshakes with it fail (found once)"),
    );
}

/// The module's server gets this proposal and declines it.
fn offered(t: &mut T, name: &str, m: impl Fn(&clc::End) -> Vec<u8>) {
    let (_device, mut h) = set_up(t, Role::Client);
    let (mut tcp, _) = h.tcp(t);
    tcp.send(&m(&h.end()));
    ends(t, &h, tcp, None, name);
}

/// Soft-RoCE has no GID of RoCE v1.
fn server_version_1(t: &mut T) {
    offered(t, "NOSMCDEV", |_| clc::proposal_v1());
}

fn server_subnet(t: &mut T) {
    offered(t, "DIFFPREFIX", |_| {
        let mut m = clc::proposal_v1();
        m[PROPOSED_PREFIX_LEN] = 25;
        m
    });
}

/// A client that has SMC-D alone, by version 1.
fn server_ism(t: &mut T) {
    offered(t, "NOV2EXT", |_| clc::proposal_ism_v1());
}

fn server_mode(t: &mut T) {
    offered(t, "MODEUNSUPP", |me| {
        let gid = [0; 16];
        clc::proposal_v2(&clc::End { gid, ..*me }, 1)
    });
}

fn spoilt_offer(t: &mut T, name: &str, at: usize, byte: u8) {
    offered(t, name, |me| {
        let mut m = clc::proposal_v2(me, 1);
        m[at] = byte;
        m
    });
}

fn server_eid(t: &mut T) {
    spoilt_offer(t, "NOUEID", PROPOSED_EID, b'X');
}

fn server_connections(t: &mut T) {
    spoilt_offer(t, "MAXCONNERR", PROPOSED_CONNS, 15);
}

fn server_links(t: &mut T) {
    spoilt_offer(t, "MAXLINKERR", PROPOSED_LINKS, 0);
}

/// The module's server has accepted, and gets this confirm.
fn agreed(t: &mut T, h: &mut Host, spoil: impl Fn(&mut Vec<u8>)) -> Peer<'static> {
    let (mut tcp, _) = h.tcp(t);
    let me = h.end();
    tcp.send(&clc::proposal_v2(&me, 1));
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    let ty = clc::header(&m).map(|h| h.ty);
    t.is("accept", ty, Some(clc::ACCEPT));
    let they = clc::End::parse(&m).expect("an accept");
    h.rc.connect(they.qpn, they.psn);
    let mut confirm = clc::agreement_v2(clc::CONFIRM, &me, Some((255, 1)));
    spoil(&mut confirm);
    tcp.send(&confirm);
    tcp
}

fn server_release(t: &mut T) {
    let (_device, mut h) = set_up(t, Role::Client);
    let tcp = agreed(t, &mut h, |m| m[RELEASE] = 0x2e);
    ends(t, &h, tcp, None, "RELEASEERR");
}
