// SPDX-License-Identifier: GPL-2.0
//! Our client against a fake server that says it speaks SMC.

use st::errno::Errno;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::packet::{ACK, FIN, PSH, SMC_OPTION};
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::{addr, clc, net, smcinfo, sys};
use std::net::SocketAddr;

st::points!(
    client_declines_exactly,
    client_server_speaks_first,
    client_server_speaks_in_one_byte_segments,
    client_writes_before_connected,
    client_blocking_connect,
    client_fin_after_ack,
    client_rst_after_ack,
    client_rst_after_decline,
    client_close_at_once,
    client_stalling_server,
);

const PORT: u16 = 7700;

fn connect(t: &T, nonblock: bool) -> (Fd, SocketAddr) {
    let c = t.socket();
    let ip = match t.ip {
        Ip::Mapped => addr::v4(t.ip, net::B4),
        ip => wire_addr(true, ip),
    };
    let a = SocketAddr::new(ip, PORT);
    if nonblock {
        sys::nonblock(c.raw(), true);
        assert_eq!(sys::connect(c.raw(), &a), Err(Errno(libc::EINPROGRESS)));
    }
    (c, a)
}

fn up<'a>(t: &mut T, w: &'a Wire) -> (Fd, Peer<'a>) {
    let (c, _) = connect(t, true);
    let mut p = Peer::wait_syn(w, t.ip, PORT, 4000).expect("no SYN");
    t.check("ACK", p.syn_ack(&SMC_OPTION));
    (c, p)
}

/// Reads the decline and checks it to the last byte.
fn read_decline(t: &mut T, p: &mut Peer) {
    if t.family == Family::Tcp {
        return;
    }
    let m = clc::read(p, 3000).unwrap_or_default();
    let h = clc::header(&m);
    t.is("type", h.map(|h| h.ty), Some(clc::DECLINE));
    let v = h.map_or(0, |h| h.version);
    t.check("version 1 or 2", v == 1 || v == 2);
    t.is("length", m.len(), if v == 2 { 44 } else { 28 });
    t.is("diagnosis", clc::diagnosis(&m), Some(0x0303_0000));
    t.is(
        "trailer",
        m.get(m.len().saturating_sub(4)..),
        Some(&clc::EYE_R[..]),
    );
}

fn talk(t: &mut T, c: &Fd, p: &mut Peer) {
    sys::nonblock(c.raw(), false);
    let r = sys::send(c.raw(), b"program", 0);
    t.is("send", r.ok(), Some(7));
    t.is(
        "peer hears",
        p.recv(7, 3000).as_deref(),
        Some(&b"program"[..]),
    );
    p.send(b"answer");
    t.is(
        "program hears",
        sys::recv_all(c.raw(), 6).ok(),
        Some(b"answer".to_vec()),
    );
    t.check("nothing else was sent", p.recv(1, 100).is_none());
    if t.family != Family::Tcp {
        let i = smcinfo::info(c.raw()).ok().map(|i| (i.mode, i.reason));
        t.is("mode and reason", i, Some((1, 0x0303_0000)));
    }
}

fn wire() -> Wire {
    Wire::open("vb").expect("packet socket")
}

fn client_declines_exactly(t: &mut T) {
    let w = wire();
    let (c, mut p) = up(t, &w);
    read_decline(t, &mut p);
    talk(t, &c, &mut p);
}

fn client_server_speaks_first(t: &mut T) {
    // Data right behind the handshake, before the decline has been read.
    let w = wire();
    let (c, mut p) = up(t, &w);
    p.send(b"220 ready\r\n");
    read_decline(t, &mut p);
    sys::nonblock(c.raw(), false);
    t.is(
        "greeting",
        sys::recv_all(c.raw(), 11).ok(),
        Some(b"220 ready\r\n".to_vec()),
    );
    talk(t, &c, &mut p);
}

fn client_server_speaks_in_one_byte_segments(t: &mut T) {
    // What the server says looks like CLC from its first byte on, and yet it is the program's.
    let w = wire();
    let (c, mut p) = up(t, &w);
    let fake = clc::accept_v1(clc::ACCEPT);
    read_decline(t, &mut p);
    p.send_cut(&fake, &[1]);
    sys::nonblock(c.raw(), false);
    t.is(
        "bytes after the decline",
        sys::recv_all(c.raw(), fake.len()).ok(),
        Some(fake),
    );
    talk(t, &c, &mut p);
}

fn client_writes_before_connected(t: &mut T) {
    let w = wire();
    let (c, _) = connect(t, true);
    let mut p = Peer::wait_syn(&w, t.ip, PORT, 4000).expect("no SYN");
    t.is(
        "too early",
        sys::send(c.raw(), b"x", 0).err(),
        Some(Errno(libc::EAGAIN)),
    );
    t.check("ACK", p.syn_ack(&SMC_OPTION));
    t.check(
        "writable",
        sys::poll_until(c.raw(), libc::POLLOUT, 3000) & libc::POLLOUT != 0,
    );
    t.is("then", sys::send(c.raw(), b"early", 0).ok(), Some(5));
    read_decline(t, &mut p);
    t.is(
        "peer hears",
        p.recv(5, 3000).as_deref(),
        Some(&b"early"[..]),
    );
    talk(t, &c, &mut p);
}

fn client_blocking_connect(t: &mut T) {
    let w = wire();
    let (c, a) = connect(t, false);
    let fd = c.raw();
    let h = std::thread::spawn(move || sys::connect(fd, &a));
    let mut p = Peer::wait_syn(&w, t.ip, PORT, 4000).expect("no SYN");
    t.check("ACK", p.syn_ack(&SMC_OPTION));
    t.is("connect", h.join().unwrap().ok(), Some(0));
    read_decline(t, &mut p);
    talk(t, &c, &mut p);
}

fn client_fin_after_ack(t: &mut T) {
    let w = wire();
    let (c, mut p) = up(t, &w);
    p.put(ACK | PSH, b"bye");
    p.put(FIN | ACK, b"");
    sys::nonblock(c.raw(), false);
    t.is(
        "bytes",
        sys::recv_all(c.raw(), 8).ok(),
        Some(b"bye".to_vec()),
    );
    read_decline(t, &mut p);
    t.is(
        "half closed: send",
        sys::send(c.raw(), b"ok", 0).ok(),
        Some(2),
    );
    t.is("peer hears", p.recv(2, 3000).as_deref(), Some(&b"ok"[..]));
}

fn client_rst_after_ack(t: &mut T) {
    let w = wire();
    let (c, mut p) = up(t, &w);
    p.send_rst();
    let e = sys::poll_until(c.raw(), libc::POLLHUP, 3000);
    t.check("HUP", e & libc::POLLHUP != 0);
    let r = sys::recv_vec(c.raw(), 8, libc::MSG_DONTWAIT);
    let so = sys::getopt(c.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
    t.check(
        &format!("the reset is told: {r:?} {so:?}"),
        r.is_err() || so == Ok(libc::ECONNRESET),
    );
}

fn client_rst_after_decline(t: &mut T) {
    let w = wire();
    let (c, mut p) = up(t, &w);
    read_decline(t, &mut p);
    p.send_rst();
    let e = sys::poll_until(c.raw(), libc::POLLHUP, 3000);
    t.check("HUP", e & libc::POLLHUP != 0);
    drop(c);
}

fn client_close_at_once(t: &mut T) {
    let w = wire();
    for _ in 0..10 {
        let (c, _) = connect(t, true);
        let mut p = Peer::wait_syn(&w, t.ip, PORT, 4000).expect("no SYN");
        drop(c);
        p.syn_ack(&SMC_OPTION);
    }
    let (c, mut p) = up(t, &w);
    read_decline(t, &mut p);
    talk(t, &c, &mut p);
}

fn client_stalling_server(t: &mut T) {
    // It never acknowledges anything after the handshake; closing must still be possible at once: long before the
    // module has waited for its answer.
    let w = wire();
    let (c, _p) = up(t, &w);
    sys::sleep_ms(300);
    let t0 = std::time::Instant::now();
    t.is("close", c.close().ok(), Some(0));
    t.check("at once", t0.elapsed().as_millis() < 4000);
}
