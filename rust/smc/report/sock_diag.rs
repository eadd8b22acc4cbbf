// SPDX-License-Identifier: GPL-2.0

//! `sock_diag` of the family: what `smcss` and `rsmc ss` list.
//!
//! A dump has one message for each socket of the asker's namespace that has been used, laid out as
//! in `include/uapi/linux/smc_diag.h`, with the attributes `SMC_DIAG_SHUTDOWN` and
//! `SMC_DIAG_FALLBACK`, and on request with `SMC_DIAG_CONNINFO` and `SMC_DIAG_LGRINFO` of an SMC-R
//! connection. Unlike C's it has the addresses of `IPPROTO_SMC` sockets, too, and on request the
//! age of a socket, [`AGE`], with what became of a connection that began as TCP, [`BEGAN`].

mod connection;

use crate::{
    entry::sockopt,
    socket::{path, Registry, Roster, SmcSock}, //
};
use kapi::{
    net::{
        diag::Sockets,
        netlink::{Answer, Position},
        netns::Net,
        sockaddr::SockAddr,
        uapi::{
            AF_SMC,
            SMC_DIAG_CONNINFO,
            SMC_DIAG_FALLBACK,
            SMC_DIAG_LGRINFO,
            SMC_DIAG_MODE_FALLBACK_TCP,
            SMC_DIAG_MODE_SMCR,
            SMC_DIAG_SHUTDOWN, //
        }, //
    },
    sys::{clock, roster}, //
};
use kernel::prelude::*;

/// Our own extension: time since the program first used the socket or accepted it, in seconds, 64
/// bits.
const AGE: u16 = 8;

/// Our own extension, which comes with [`AGE`]: a connection that began as TCP; see [`connection::began`].
const BEGAN: u16 = 9;

/// The mode of a socket without a connection.
const MODE_NONE: u8 = SMC_DIAG_MODE_SMCR;

/// `sizeof(struct smc_diag_msg)`.
const MESSAGE: usize = 64;

/// The sockets of `AF_SMC`, and of `IPPROTO_SMC`.
pub(crate) struct Diag;

impl Sockets for Diag {
    const FAMILY: u8 = AF_SMC as u8;

    fn dump(net: &Net, request: &[u8], position: &mut Position, answer: &mut Answer<'_>) -> Result {
        // `diag_ext` of `struct smc_diag_req`: a bit for each attribute, from 1.
        let wanted = request.get(3).copied().unwrap_or(0);
        match Registry::at(net) {
            Some(sockets) => list(&sockets.list, wanted, position, answer),
            None => Ok(()),
        }
    }
}

fn list(sockets: &Roster, wanted: u8, position: &mut Position, answer: &mut Answer<'_>) -> Result {
    let [shard, number, ..] = position;
    let mut members: roster::Members<SmcSock> = [const { None }; roster::BATCH];
    loop {
        let before = roster::Position {
            shard: *shard,
            number: *number,
        };
        let mut after = before;
        let found = sockets.next(&mut after, &mut members);
        if found == 0 {
            return Ok(());
        }
        // No lock is held while messages are written.
        for (place, socket) in members.iter_mut().map_while(Option::take) {
            // Otherwise it is TCP's.
            if !socket.sock.is_given_back() {
                write(&socket, wanted, answer)?;
            }
            (*shard, *number) = (place.shard, place.number);
        }
        (*shard, *number) = (after.shard, after.number);
    }
}

fn write(socket: &SmcSock, wanted: u8, answer: &mut Answer<'_>) -> Result {
    let sock = &socket.sock;
    let info = sockopt::Info::of(socket);
    let family = if socket.own_family.get() != 0 {
        AF_SMC as u8
    } else {
        sock.family() as u8
    };
    let mode = match info.mode {
        sockopt::mode::UNDECIDED => MODE_NONE,
        mode => mode as u8,
    };
    let shutdown = match socket.smc() {
        Some(conn) => conn.shut_ways(),
        None => sock.shutdown_mask(),
    };

    let mut out = Fixed::<MESSAGE>::new();
    out.put(&[family, info.state as u8, mode, 0]);
    let (local, peer) = (sock.local_addr(), sock.peer_addr());
    out.put(&local.port.to_be_bytes());
    out.put(&peer.port.to_be_bytes());
    out.put(&words(&local));
    out.put(&words(&peer));
    out.put(&sock.bound_interface().to_ne_bytes());
    // The cookie is two words, the lower one first.
    let cookie = sock.cookie();
    out.put(&(cookie as u32).to_ne_bytes());
    out.put(&((cookie >> 32) as u32).to_ne_bytes());
    out.put(&answer.uid(sock).to_ne_bytes());
    out.put(&sock.inode().to_ne_bytes());

    let mut message = answer.message(&out.bytes)?;
    message.put(SMC_DIAG_SHUTDOWN, &[shutdown])?;
    let mut fallback = [0; 8];
    if mode == SMC_DIAG_MODE_FALLBACK_TCP || info.reason != 0 {
        let [a, b, c, d] = info.reason.to_ne_bytes();
        let [e, f, g, h] = info.peer_diagnosis.to_ne_bytes();
        fallback = [a, b, c, d, e, f, g, h];
    }
    message.put(SMC_DIAG_FALLBACK, &fallback)?;
    let asked = |attribute: u16| wanted & (1 << (attribute - 1)) != 0;
    if asked(AGE) {
        let age = clock::seconds().saturating_sub(socket.born);
        message.put(AGE, &age.to_ne_bytes())?;
        if let Some(told) = path::told(socket) {
            message.put(BEGAN, &connection::began(&told).bytes)?;
        }
    }
    if let Some(conn) = socket.smc() {
        if asked(SMC_DIAG_CONNINFO) {
            message.put(SMC_DIAG_CONNINFO, &connection::cursors(&conn).bytes)?;
        }
        if asked(SMC_DIAG_LGRINFO) && !conn.group().is_lost() {
            message.put(SMC_DIAG_LGRINFO, &connection::link(conn.group()).bytes)?;
        }
    }
    message.end();
    Ok(())
}

/// Returns an address as `struct inet_diag_sockid` has it: an IPv4 one is the first of four words.
fn words(addr: &SockAddr) -> [u8; 16] {
    addr.ip
}

/// The fixed part of a message while it is written, field by field.
struct Fixed<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Fixed<N> {
    fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    fn put(&mut self, field: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(field) {
            *to = *from;
        }
        self.len = self.len.saturating_add(field.len());
    }
}
