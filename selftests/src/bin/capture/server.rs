// SPDX-License-Identifier: GPL-2.0
//! SYN-ACKs of our own listeners, asked by the packet-level peer.

use st::fd::Fd;
use st::packet::{self, ACK, SMC_OPTION, SYN};
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::{addr, net, smcinfo, sys};
use std::net::SocketAddr;

st::points!(
    synack_answers_option,
    synack_silent_without,
    synack_retransmit_has_option,
    synack_checksum_in_software,
    synack_checksum_offloaded,
    synack_not_with_cookies,
    synack_not_on_cookie_flood,
    synack_any_address,
    synack_option_elsewhere,
    synack_malformed_options,
    synack_full_options,
);

const PORT: u16 = 6666;

fn listen(t: &T) -> Fd {
    let s = t.socket();
    let a = match t.ip {
        st::family::Ip::Mapped => addr::v4(t.ip, net::A4),
        ip => wire_addr(false, ip),
    };
    sys::bind(s.raw(), &SocketAddr::new(a, PORT)).expect("bind");
    sys::listen(s.raw(), 64).expect("listen");
    s
}

fn wire() -> Wire {
    Wire::open("vb").expect("packet socket")
}

/// Options in the SYN of a modern stack besides the MSS: SACK, timestamps, window scale.
const USUAL: [u8; 16] = [4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7];

fn ask<'a>(t: &T, w: &'a Wire, from: u16, opts: &[u8]) -> Peer<'a> {
    Peer::connect(w, t.ip, from, PORT, opts).expect("no SYN-ACK came")
}

fn synack_answers_option(t: &mut T) {
    let w = wire();
    let l = listen(t);
    let n = t.wanted();
    let p = ask(t, &w, 2000, &SMC_OPTION);
    t.syn("bare", &p.syn, n);
    let p = ask(t, &w, 2001, &[&USUAL[..], &SMC_OPTION].concat());
    t.say(&format!("options {:02x?}", p.syn.opts));
    t.syn("with the usual ones", &p.syn, n);
    drop(l);
}

fn synack_silent_without(t: &mut T) {
    let w = wire();
    let l = listen(t);
    let mut p = ask(t, &w, 2000, &USUAL);
    t.syn("SYN-ACK", &p.syn, 0);
    p.send(b"plain client");
    let s = sys::accept(l.raw()).expect("accept");
    t.is(
        "server hears",
        sys::recv_vec(s.raw(), 64, 0).ok(),
        Some(b"plain client".to_vec()),
    );
    if t.wanted() == 1 {
        let i = smcinfo::info(s.raw());
        t.is(
            "mode and reason",
            i.ok().map(|i| (i.mode, i.reason)),
            Some((1, 0x0301_0000)),
        );
    }
}

/// Sends a SYN without ever answering; the SYN-ACK and its retransmits are returned.
fn synacks(t: &T, w: &Wire, opts: &[u8], count: usize) -> Vec<packet::Seg> {
    let me = SocketAddr::new(wire_addr(true, t.ip), 2100);
    let s = packet::Seg {
        src: me,
        dst: SocketAddr::new(wire_addr(false, t.ip), PORT),
        seq: 5,
        ack: 0,
        flags: SYN,
        win: 1000,
        opts: [&[2, 4, 5, 0xb4][..], opts].concat(),
        data: vec![],
        sums: packet::Sums::Good,
    };
    w.put(&s);
    (0..count)
        .filter_map(|_| w.next(5000, |s| s.dst == me && s.flags & (SYN | ACK) == SYN | ACK))
        .collect()
}

fn synack_retransmit_has_option(t: &mut T) {
    let w = wire();
    let _l = listen(t);
    let n = t.wanted();
    let v = synacks(t, &w, &SMC_OPTION, 3);
    t.is("SYN-ACK and two retransmits", v.len(), 3);
    for (i, s) in v.iter().enumerate() {
        t.syn(&format!("SYN-ACK {i}"), s, n);
        t.is("same sequence", s.seq, v[0].seq);
    }
}

fn synack_checksum_in_software(t: &mut T) {
    net::sh("ethtool -K va tx off").expect("ethtool");
    let w = wire();
    let _l = listen(t);
    let n = t.wanted();
    let p = ask(t, &w, 2000, &[&USUAL[..], &SMC_OPTION].concat());
    t.syn("SYN-ACK", &p.syn, n);
    t.is("sums", p.syn.sums, packet::Sums::Good);
}

fn synack_checksum_offloaded(t: &mut T) {
    let w = wire();
    let _l = listen(t);
    let n = t.wanted();
    let p = ask(t, &w, 2000, &[&USUAL[..], &SMC_OPTION].concat());
    t.syn("SYN-ACK", &p.syn, n);
    t.check("not bad", p.syn.sums != packet::Sums::Bad);
    t.say(&format!("sums {:?}", p.syn.sums));
}

fn synack_not_with_cookies(t: &mut T) {
    net::sysctl("net.ipv4.tcp_syncookies", "2").expect("sysctl");
    let w = wire();
    let l = listen(t);
    let mut p = ask(t, &w, 2000, &[&USUAL[..], &SMC_OPTION].concat());
    t.syn("SYN-ACK", &p.syn, 0);
    p.send(b"cookie client");
    let s = sys::accept(l.raw()).expect("accept");
    t.is(
        "server hears",
        sys::recv_vec(s.raw(), 64, 0).ok(),
        Some(b"cookie client".to_vec()),
    );
    sys::send(s.raw(), b"answer", 0).expect("send");
    t.is("client hears", p.recv(6, 3000), Some(b"answer".to_vec()));
}

fn synack_not_on_cookie_flood(t: &mut T) {
    // Cookies start by themselves once the queue of half-open connections is full.
    net::sysctl("net.ipv4.tcp_syncookies", "1").expect("sysctl");
    net::sysctl("net.ipv4.tcp_max_syn_backlog", "8").expect("sysctl");
    let w = wire();
    let s = t.socket();
    let a = match t.ip {
        st::family::Ip::Mapped => addr::v4(t.ip, net::A4),
        ip => wire_addr(false, ip),
    };
    sys::bind(s.raw(), &SocketAddr::new(a, PORT)).expect("bind");
    sys::listen(s.raw(), 4).expect("listen");
    let me = wire_addr(true, t.ip);
    let (mut with, mut without) = (0, 0);
    for i in 0..20u16 {
        let src = SocketAddr::new(me, 3000 + i);
        w.put(&packet::Seg {
            src,
            dst: SocketAddr::new(wire_addr(false, t.ip), PORT),
            seq: 5,
            ack: 0,
            flags: SYN,
            win: 1000,
            opts: [&[2, 4, 5, 0xb4][..], &USUAL, &SMC_OPTION].concat(),
            data: vec![],
            sums: packet::Sums::Good,
        });
        if let Some(s) = w.next(1000, |s| s.dst == src && s.flags & SYN != 0) {
            t.check("well formed", packet::options(&s.opts).is_some());
            t.check("sums", s.sums != packet::Sums::Bad);
            match packet::smc_options(&s.opts) {
                0 => without += 1,
                _ => with += 1,
            }
        }
    }
    t.say(&format!(
        "SYN-ACKs with the option {with}, without {without}"
    ));
    t.check("cookies never carry it", without >= 10);
    t.check("the first had it", (with >= 1) == (t.wanted() == 1));
}

fn synack_any_address(t: &mut T) {
    let w = wire();
    let s = t.socket();
    sys::bind(s.raw(), &SocketAddr::new(addr::any(t.ip), PORT)).expect("bind");
    sys::listen(s.raw(), 4).expect("listen");
    let n = t.wanted();
    let p = ask(t, &w, 2000, &[&USUAL[..], &SMC_OPTION].concat());
    t.syn("SYN-ACK", &p.syn, n);
}

fn synack_option_elsewhere(t: &mut T) {
    // In front, in the middle, without the NOPs, and padded otherwise: kind, length and magic count.
    let w = wire();
    let _l = listen(t);
    let n = t.wanted();
    let bare = &SMC_OPTION[2..];
    let cases: [(&str, Vec<u8>); 5] = [
        ("in front", [&SMC_OPTION[..], &USUAL].concat()),
        ("in the middle", [&USUAL[..2], bare, &USUAL[2..]].concat()),
        ("NOPs behind", [bare, &[1, 1]].concat()),
        // The C module takes any even length from 6 on.
        ("length 8", vec![254, 8, 0xe2, 0xd4, 0xc3, 0xd9, 0, 0]),
        ("end mark behind", [&SMC_OPTION[..], &[0, 0, 0, 0]].concat()),
    ];
    for (i, (what, o)) in cases.into_iter().enumerate() {
        let p = ask(t, &w, 2000 + i as u16, &o);
        t.syn(what, &p.syn, n);
    }
}

fn synack_malformed_options(t: &mut T) {
    // None of these is the option; the answer must be that of plain TCP.
    let w = wire();
    let _l = listen(t);
    let cases: [(&str, Vec<u8>); 6] = [
        ("wrong magic", vec![1, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd8]),
        (
            "other experiment",
            vec![1, 1, 253, 6, 0xe2, 0xd4, 0xc3, 0xd9],
        ),
        ("short", vec![254, 4, 0xe2, 0xd4]),
        ("odd length", vec![254, 7, 0xe2, 0xd4, 0xc3, 0xd9, 0, 1]),
        ("runs over the end", vec![1, 1, 1, 1, 1, 1, 254, 6]),
        (
            "after the end mark",
            [&[0, 0, 0, 0][..], &SMC_OPTION].concat(),
        ),
    ];
    for (i, (what, o)) in cases.into_iter().enumerate() {
        let p = ask(t, &w, 2000 + i as u16, &o);
        t.syn(what, &p.syn, 0);
    }
}

fn synack_full_options(t: &mut T) {
    // 40 bytes of options in the SYN (with the SMC option among them) still work.
    let w = wire();
    let l = listen(t);
    let n = t.wanted();
    let o = [
        &USUAL[..],
        &SMC_OPTION,
        &[253, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    ]
    .concat();
    let p = ask(t, &w, 2000, &o);
    t.syn("SYN-ACK", &p.syn, n);
    drop(l);
}
