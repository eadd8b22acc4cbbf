// SPDX-License-Identifier: GPL-2.0
//! A box in the middle that ends TCP and makes it anew, and copies options which it does not know from each of its
//! connections to the other: both ends take the other one for a host with this module, and nothing may join.

use super::{flags, AFTER, JOINS, PATH};
use crate::host::{Host, Role, FAKE, LISTENER};
use st::errno::Errno;
use st::fd::Fd;
use st::packet;
use st::point::{Point, T};
use st::rawpeer::{wire_addr, Peer, Wire};
use st::{guest, smcinfo, sys};
use std::net::SocketAddr;

/// The points of this file.
pub const LIST: &[Point] = &[Point {
    name: "promotion.proxy.copies_options",
    run: |t| super::with(t, Role::Client, copies_options),
}];

/// The options from the experiments on, as they stand.
fn unknown(options: &[u8]) -> Vec<u8> {
    let all = packet::options(options).unwrap_or_default();
    all.into_iter()
        .filter(|option| option.0 >= 253)
        .flat_map(|option| option.1)
        .collect()
}

/// Both connections of the box for one of its client.
struct Relayed {
    client: Peer<'static>,
    server: Peer<'static>,
}

impl Relayed {
    /// Takes a SYN on one side, says it on the other one with numbers of its own, and takes the answer back.
    fn take(h: &mut Host, heard: &'static Wire, ms: u64) -> Option<Self> {
        let mut client = Peer::wait_syn(heard, h.ip, FAKE, ms)?;
        let said: &'static Wire = Box::leak(Box::new(Wire::open("vb").ok()?));
        let from = SocketAddr::new(wire_addr(true, h.ip), h.port());
        let to = SocketAddr::new(wire_addr(false, h.ip), LISTENER);
        let options = unknown(&client.syn.opts);
        let number = client.syn.seq.wrapping_add(0x1234_5678);
        let server = Peer::connect_numbered(said, from, to, number, &options)?;
        let answer = unknown(&server.syn.opts);
        client.syn_ack(&answer).then_some(Self { client, server })
    }

    /// Carries what has come, and the ends.
    fn carry(&mut self) {
        Self::pass(&mut self.client, &mut self.server);
        Self::pass(&mut self.server, &mut self.client);
    }

    fn pass(from: &mut Peer<'_>, to: &mut Peer<'_>) {
        from.pump(2, |p| !p.buf.is_empty() || p.fin || p.rst);
        let bytes = std::mem::take(&mut from.buf);
        if !bytes.is_empty() {
            to.send(&bytes);
        }
        if from.rst || from.fin {
            to.send_rst();
        }
    }

    fn is_over(&self) -> bool {
        [&self.client, &self.server]
            .into_iter()
            .any(|end| end.fin || end.rst)
    }
}

fn copies_options(t: &mut T, h: &mut Host) {
    let open = || -> &'static Wire { Box::leak(Box::new(Wire::open("vb").expect("packets"))) };
    let heard = open();
    let fd = t.socket();
    sys::nonblock(fd.raw(), true);
    let to = SocketAddr::new(wire_addr(true, h.ip), FAKE);
    let begun = sys::connect(fd.raw(), &to);
    t.is("connect", begun, Err(Errno(libc::EINPROGRESS)));
    let Some(mut relayed) = Relayed::take(h, heard, 4000) else {
        return t.check("not relayed", false);
    };
    let Some(server) = h.accept(&relayed.server) else {
        return t.check("no socket", false);
    };
    let sides = open();
    let mut joins = 0;
    let mut others: Vec<Relayed> = vec![];
    let rounds = 40 * AFTER;
    for round in 0..rounds {
        for (from, to) in [(&fd, &server), (&server, &fd)] {
            let bytes = [round as u8; 40];
            let sent = sys::send(from.raw(), &bytes, libc::MSG_NOSIGNAL);
            t.is("send", sent.ok(), Some(40));
            let until = guest::until(3000);
            let mut got = vec![];
            while got.len() < 40 && std::time::Instant::now() < until {
                relayed.carry();
                if let Ok(part) = sys::recv_vec(to.raw(), 40, libc::MSG_DONTWAIT) {
                    got.extend(part);
                }
            }
            t.is("bytes", got, bytes.to_vec());
        }
        if let Some(other) = Relayed::take(h, sides, 1) {
            joins += usize::from(flags(&other.client.syn.opts) == Some(JOINS));
            others.push(other);
        }
        others.iter_mut().for_each(Relayed::carry);
        others.retain(|other| !other.is_over());
    }
    t.check(&format!("side connections: {joins}"), joins > 0);
    let over = guest::until(9000);
    while !others.is_empty() && std::time::Instant::now() < over {
        others.iter_mut().for_each(Relayed::carry);
        others.retain(|other| !other.is_over());
    }
    t.is("all of them have ended", others.len(), 0);
    for (what, end) in [("client", &fd), ("server", &server)] {
        let mode = smcinfo::info(end.raw()).map(|info| info.mode);
        t.is(what, mode.ok(), Some(PATH));
    }
    ends(relayed, fd, server);
}

fn ends(mut relayed: Relayed, client: Fd, server: Fd) {
    relayed.client.send_rst();
    relayed.server.send_rst();
    drop((client, server));
}
