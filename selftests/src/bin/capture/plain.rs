// SPDX-License-Identifier: GPL-2.0
//! Sockets that are not ours: their packets are the same whether the module is busy in the
//! namespace or not.

use st::family::{Family, Ip};
use st::fd::Fd;
use st::packet::{self, Seg, ACK, SMC_OPTION, SYN};
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::{addr, net, sys};
use std::net::SocketAddr;

st::points!(
    plain_tcp_unchanged,
    plain_tcp_beside_ours,
    between_two_kernels
);

fn tcp(ip: Ip) -> Fd {
    let (d, p) = Family::Tcp.triple(ip);
    sys::socket(d, libc::SOCK_STREAM, p).expect("socket")
}

/// The options with what differs from connection to connection (timestamps) blanked.
fn normal(s: &Seg) -> Vec<u8> {
    let mut o = s.opts.clone();
    let mut i = 0;
    while i + 1 < o.len() {
        match o[i] {
            0 => break,
            1 => i += 1,
            k => {
                let n = usize::from(o[i + 1]).max(2);
                if k == 8 {
                    o[i + 2..i + n].fill(0);
                }
                i += n;
            }
        }
    }
    o
}

/// Every segment of one plain connection: flags, options, length; the peer sends the option in
/// the SYN-ACK, and as a client in its SYN.
fn record(w: &Wire, ip: Ip, port: u16) -> Vec<(u8, Vec<u8>, usize, u16)> {
    let a = |peer| match ip {
        Ip::Mapped => addr::v4(ip, if peer { net::B4 } else { net::A4 }),
        ip => wire_addr(peer, ip),
    };
    let spy = Wire::open("vb").expect("packet socket");
    let c = tcp(ip);
    sys::nonblock(c.raw(), true);
    let _ = sys::connect(c.raw(), &SocketAddr::new(a(true), port));
    let mut p = Peer::wait_syn(w, ip, port, 3000).expect("no SYN");
    assert!(p.syn_ack(&SMC_OPTION));
    sys::nonblock(c.raw(), false);
    sys::send(c.raw(), b"plain data", 0).expect("send");
    assert_eq!(p.recv(10, 3000).as_deref(), Some(&b"plain data"[..]));
    drop(c);
    p.pump(2000, |p| p.fin);
    let l = tcp(ip);
    sys::bind(l.raw(), &SocketAddr::new(a(false), port)).expect("bind");
    sys::listen(l.raw(), 4).expect("listen");
    let mut q = Peer::connect(w, ip, port + 1, port, &SMC_OPTION).expect("no SYN-ACK");
    let s = sys::accept(l.raw()).expect("accept");
    sys::send(s.raw(), b"plain answer", 0).expect("send");
    assert_eq!(q.recv(12, 3000).as_deref(), Some(&b"plain answer"[..]));
    drop(s);
    q.pump(2000, |p| p.fin);
    let peer = wire_addr(true, ip);
    let mut v = Vec::new();
    let mut seen = vec![];
    // Not the repeated SYN of somebody else.
    let wanted =
        |s: &packet::Seg| s.dst.ip() == peer && [s.src.port(), s.dst.port()].contains(&port);
    while let Some(s) = spy.next(80, wanted) {
        assert_ne!(s.sums, packet::Sums::Bad, "bad sums");
        // A slow kernel sends again what this end has acknowledged too late, and gives up.
        let which = (s.src, s.dst, s.seq, s.flags);
        if s.flags & packet::RST != 0 || seen.contains(&which) {
            continue;
        }
        seen.push(which);
        v.push((s.flags, normal(&s), s.data.len(), s.win));
    }
    v
}

fn plain_tcp_unchanged(t: &mut T) {
    // First without any socket of the family in the namespace, then with a listener, an open
    // connection and a client on its way.
    let w = Wire::open("vb").expect("packet socket");
    let before = record(&w, t.ip, 5000);
    t.check("segments seen", before.len() >= 6);
    let l = t.socket();
    sys::bind(l.raw(), &SocketAddr::new(addr::any(t.ip), 4999)).expect("bind");
    sys::listen(l.raw(), 4).expect("listen");
    let c = t.socket();
    sys::nonblock(c.raw(), true);
    let to = match t.ip {
        Ip::Mapped => addr::v4(t.ip, net::B4),
        ip => wire_addr(true, ip),
    };
    let _ = sys::connect(c.raw(), &SocketAddr::new(to, 4998));
    let busy = record(&w, t.ip, 5100);
    t.is("same segments while the family is in use", &busy, &before);
    drop((l, c));
    let after = record(&w, t.ip, 5200);
    t.is("same segments afterwards", &after, &before);
    for s in &before {
        t.is("no option", packet::smc_options(&s.1), 0);
    }
}

fn plain_tcp_beside_ours(t: &mut T) {
    // Both kinds connect to the same place at the same time; only ours carry it.
    let w = Wire::open("vb").expect("packet socket");
    let to = match t.ip {
        Ip::Mapped => addr::v4(t.ip, net::B4),
        ip => wire_addr(true, ip),
    };
    let mut v = Vec::new();
    for i in 0..20u16 {
        let (s, ours) = if i % 2 == 0 {
            (tcp(t.ip), false)
        } else {
            (t.socket(), true)
        };
        sys::nonblock(s.raw(), true);
        let _ = sys::connect(s.raw(), &SocketAddr::new(to, 4100 + i));
        let p = Peer::wait_syn(&w, t.ip, 4100 + i, 3000).expect("no SYN");
        let n = if ours { t.wanted() } else { 0 };
        t.syn(&format!("socket {i}"), &p.syn, n);
        v.push(s);
    }
}

fn between_two_kernels(t: &mut T) {
    // The kernel at both ends, over loopback: option in both directions for family to family,
    // in the SYN only towards plain TCP, nowhere from plain TCP.
    let lo = addr::loopback(t.ip);
    for (client_ours, server_ours) in [(true, true), (true, false), (false, true), (false, false)] {
        let spy = Wire::open("lo").expect("packet socket");
        let l = if server_ours { t.socket() } else { tcp(t.ip) };
        sys::bind(l.raw(), &SocketAddr::new(lo, 0)).expect("bind");
        sys::listen(l.raw(), 4).expect("listen");
        let a = sys::sockname(l.raw()).expect("name");
        let c = if client_ours { t.socket() } else { tcp(t.ip) };
        sys::connect(c.raw(), &a).expect("connect");
        let s = sys::accept(l.raw()).expect("accept");
        sys::send(c.raw(), b"abc", 0).expect("send");
        t.is(
            "data",
            sys::recv_vec(s.raw(), 8, 0).ok(),
            Some(b"abc".to_vec()),
        );
        let (w, what) = (
            t.wanted(),
            format!("client {client_ours} server {server_ours}"),
        );
        let syn = spy.next(500, |s| {
            s.flags & (SYN | ACK) == SYN && s.dst.port() == a.port()
        });
        let ack = spy.next(500, |s| {
            s.flags & (SYN | ACK) == SYN | ACK && s.src.port() == a.port()
        });
        t.syn(
            &format!("{what}: SYN"),
            &syn.expect("SYN"),
            if client_ours { w } else { 0 },
        );
        let n = if client_ours && server_ours { w } else { 0 };
        t.syn(&format!("{what}: SYN-ACK"), &ack.expect("SYN-ACK"), n);
    }
}
