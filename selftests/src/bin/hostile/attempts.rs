// SPDX-License-Identifier: GPL-2.0
//! Attempts at a connection that end where ends are easily forgotten: in the midst of a handshake
//! by the program, or with a peer who says something else than he was expected to.

use crate::host::{Host, Role};
use st::errno::Errno;
use st::packet::{ACK, PSH, SMC_OPTION, URG};
use st::point::{Point, T};
use st::rawpeer::{wire_addr, Peer};
use st::{clc, smcinfo, sys};
use std::net::SocketAddr;
use std::time::Instant;

/// The points of this file.
pub const LIST: &[Point] = &[
    Point {
        name: "client.urgent_for_a_decline",
        run: |t| crate::with(t, Role::Client, urgent_for_a_decline),
    },
    Point {
        name: "server.disconnected_midway",
        run: |t| crate::with(t, Role::Server, disconnected_midway),
    },
    Point {
        name: "server.connect_repeated",
        run: |t| crate::with(t, Role::Server, connect_repeated),
    },
];

/// The module declines after our confirm; in place of our own decline comes an urgent byte.
fn urgent_for_a_decline(t: &mut T, h: &mut Host) {
    h.fresh();
    let (mut tcp, _) = h.tcp(t);
    let me = h.end();
    tcp.send(&clc::proposal_v2(&me, 1));
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    t.is("accept", clc::header(&m).map(|h| h.ty), Some(clc::ACCEPT));
    // Other limits than were agreed.
    tcp.send(&clc::agreement_v2(clc::CONFIRM, &me, Some((17, 1))));
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    t.is("decline", clc::header(&m).map(|h| h.ty), Some(clc::DECLINE));
    let Some(fd) = h.accept(&tcp) else {
        return t.check("no socket", false);
    };
    t.is(
        "mode",
        smcinfo::info(fd.raw()).ok().map(|i| i.mode),
        Some(1),
    );
    tcp.put(ACK | PSH | URG, b"!");
    tcp.pump(100, |_| false);
    let again = Err(Errno(libc::EAGAIN));
    let r = sys::recv_vec(fd.raw(), 8, libc::MSG_DONTWAIT);
    t.is("without waiting", r, again.clone());
    sys::nonblock(fd.raw(), false);
    let _ = sys::set_timeo(fd.raw(), libc::SO_RCVTIMEO, 200);
    t.is("with a limit", sys::recv_vec(fd.raw(), 8, 0), again);
    tcp.send(b"program");
    let _ = sys::set_timeo(fd.raw(), libc::SO_RCVTIMEO, 3000);
    t.is("bytes", sys::recv_all(fd.raw(), 7), Ok(b"program".to_vec()));
}

/// connect(`AF_UNSPEC`) while the server has our proposal; the next connect() begins from scratch.
fn disconnected_midway(t: &mut T, h: &mut Host) {
    let (mut tcp, fd) = h.tcp(t);
    let Some(fd) = fd else { return };
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    let proposal = Some(clc::PROPOSAL);
    t.is("proposal", clc::header(&m).map(|h| h.ty), proposal);
    t.is("disconnect", sys::connect_unspec(fd.raw()).ok(), Some(0));
    let a = SocketAddr::new(wire_addr(true, t.ip), tcp.me.port());
    let w = st::rawpeer::Wire::open("vb").expect("packet socket");
    let r = sys::connect(fd.raw(), &a);
    t.is("connects again", r, Err(Errno(libc::EINPROGRESS)));
    let r = sys::connect(fd.raw(), &a);
    t.is("and goes on", r, Err(Errno(libc::EALREADY)));
    let Some(mut tcp) = Peer::wait_syn(&w, t.ip, a.port(), 4000) else {
        return t.check("no SYN", false);
    };
    t.check("ACK", tcp.syn_ack(&SMC_OPTION));
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    t.is("second", clc::header(&m).map(|h| h.ty), proposal);
    tcp.send(&clc::decline(0x0303_0000, 2));
    let e = sys::poll_until(fd.raw(), libc::POLLOUT, 4000 * st::guest::slow());
    t.check("connected", e & libc::POLLOUT != 0);
    t.is("send", sys::send(fd.raw(), b"hello", 0).ok(), Some(5));
    t.is("bytes", tcp.recv(5, 3000).as_deref(), Some(&b"hello"[..]));
}

/// A blocking connect() whose time is over in the handshake, and another one that waits for it.
fn connect_repeated(t: &mut T, h: &mut Host) {
    let fd = t.socket();
    let _ = sys::set_timeo(fd.raw(), libc::SO_SNDTIMEO, 400);
    let a = SocketAddr::new(wire_addr(true, h.ip), 7701);
    let w = st::rawpeer::Wire::open("vb").expect("packet socket");
    let (raw, t0) = (fd.raw(), Instant::now());
    let first = std::thread::spawn(move || sys::connect(raw, &a));
    let Some(mut tcp) = Peer::wait_syn(&w, t.ip, a.port(), 4000) else {
        return t.check("no SYN", false);
    };
    t.check("ACK", tcp.syn_ack(&SMC_OPTION));
    let m = clc::read(&mut tcp, 4000).unwrap_or_default();
    let proposal = Some(clc::PROPOSAL);
    t.is("proposal", clc::header(&m).map(|h| h.ty), proposal);
    let r = first.join().unwrap_or(Err(Errno(0)));
    t.is("the time is over", r, Err(Errno(libc::EINPROGRESS)));
    t.check("after it", t0.elapsed().as_millis() >= 390);
    let _ = sys::set_timeo(fd.raw(), libc::SO_SNDTIMEO, 4000);
    tcp.send(&clc::decline(0x0303_0000, 2));
    t.is("the next one", sys::connect(fd.raw(), &a), Ok(0));
    let r = sys::connect(fd.raw(), &a);
    t.is("and one more", r, Err(Errno(libc::EISCONN)));
    t.is("send", sys::send(fd.raw(), b"hello", 0).ok(), Some(5));
    t.is("bytes", tcp.recv(5, 3000).as_deref(), Some(&b"hello"[..]));
}
