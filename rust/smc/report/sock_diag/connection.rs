// SPDX-License-Identifier: GPL-2.0

//! Attributes of an SMC-R connection, and of one that began as TCP, in `sock_diag`.

use super::Fixed;
use crate::{
    host::{
        fallback,
        text::GidText, //
    },
    smcr::{LinkGroup, SmcConn},
    socket::path, //
};
use smc_proto::{
    cursor::{Cursor, RingSize},
    llc::link::Role, //
};

/// `sizeof(struct smc_diag_conninfo)`.
const CONNECTION: usize = 76;
/// `sizeof(struct smc_diag_lgrinfo)`.
const GROUP: usize = 147;
/// The length of what is told of a connection that began as TCP.
const BEGAN: usize = 40;
/// The room for a GID's text.
const GID: usize = 40;

/// Returns `SMC_DIAG_CONNINFO`: rings and cursors. Those of the send buffer are local; the others
/// are what the peers tell each other in CDC messages.
pub(super) fn cursors(conn: &SmcConn) -> Fixed<CONNECTION> {
    let proto = conn.proto.lock();
    let at = proto.positions();
    let (sent, received) = proto.flags();
    let (send, recv) = proto.rings();
    let peer = proto.peer().map(|peer| peer.ring);
    drop(proto);

    let mut out = Fixed::new();
    out.put(&conn.token().0.to_ne_bytes());
    for ring in [Some(send), Some(recv), peer] {
        out.put(&ring.map_or(0, RingSize::bytes).to_ne_bytes());
    }
    let mut cursor = |pos, ring: Option<RingSize>| {
        let cursor = ring.map_or(Cursor { wrap: 0, count: 0 }, |ring| Cursor::at(pos, ring));
        out.put(&[0, 0]);
        out.put(&cursor.wrap.to_ne_bytes());
        out.put(&cursor.count.to_ne_bytes());
    };
    cursor(at.received, Some(recv));
    cursor(at.peer_consumed, peer);
    cursor(at.sent, peer);
    cursor(at.announced, Some(recv));
    let flags = [
        received.0.to_wire(),
        received.1.to_wire(),
        sent.0.to_wire(),
        sent.1.to_wire(),
    ];
    out.put(&flags);
    let mut cursor = |pos| {
        let cursor = Cursor::at(pos, send);
        out.put(&[0, 0]);
        out.put(&cursor.wrap.to_ne_bytes());
        out.put(&cursor.count.to_ne_bytes());
    };
    cursor(at.written);
    cursor(at.sent);
    cursor(at.completed);
    out
}

/// Returns what is told of a connection that began as TCP: its step on the way to SMC-R, whether this is the server's
/// end and whether the other one is on another host, 8 bits each and 8 of zero; the numbers of attempts and of failures, and
/// the code of the reason, in 32 bits; the bytes sent and received by the ring, in 64; how often it has gone back to TCP,
/// and zero, in 32.
pub(super) fn began(told: &path::Told) -> Fixed<BEGAN> {
    let facts = &told.facts;
    let mut out = Fixed::new();
    let server = told.role == fallback::Role::Server;
    out.put(&[facts.step, u8::from(server), u8::from(told.remote), 0]);
    for number in [facts.attempts, facts.failures, told.reason] {
        out.put(&number.to_ne_bytes());
    }
    let (sent, received) = facts.by_ring;
    out.put(&sent.to_ne_bytes());
    out.put(&received.to_ne_bytes());
    out.put(&facts.returns.to_ne_bytes());
    out.put(&[0; 4]);
    out
}

/// Returns `SMC_DIAG_LGRINFO`: the group's one link, and our role in it.
pub(super) fn link(group: &LinkGroup) -> Fixed<GROUP> {
    let (number, role, peer_gid) = group.link_facts();
    let name = group.link.device().name();
    let mut out = Fixed::new();
    out.put(&[number]);
    out.put(&name);
    out.put(&[group.link.port() as u8]);
    for gid in [&group.link.gid(), &peer_gid] {
        let mut text = [0; GID];
        for (to, from) in text.iter_mut().zip(GidText::new(gid).text()) {
            *to = *from;
        }
        out.put(&text);
    }
    out.put(&[u8::from(role == Role::Server)]);
    out
}
