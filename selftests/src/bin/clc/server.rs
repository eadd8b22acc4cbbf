// SPDX-License-Identifier: GPL-2.0
//! Our server against a fake client that says it speaks SMC.

use st::family::{Family, Ip};
use st::fd::Fd;
use st::packet::SMC_OPTION;
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::rng::Rng;
use st::{addr, clc, net, smcinfo, sys};
use std::net::SocketAddr;

st::points!(
    server_proposal,
    server_proposal_segmented,
    server_proposal_with_data,
    server_decline_with_data,
    server_decline_v2_with_data,
    server_no_clc,
    server_no_clc_short,
    server_almost_clc,
    server_random_cuts,
    server_half_then_fin,
    server_half_then_rst,
    server_bad_lengths,
    server_bad_trailer,
    server_oversized,
    server_unexpected_types,
    server_garbage_after_eyecatcher,
);

pub const PORT: u16 = 6600;

pub fn wire() -> Wire {
    Wire::open("vb").expect("packet socket")
}

pub fn listen(t: &T) -> Fd {
    listen_for(t, 64)
}

pub fn listen_for(t: &T, backlog: i32) -> Fd {
    listen_on(t, t.socket(), backlog)
}

pub fn listen_on(t: &T, s: Fd, backlog: i32) -> Fd {
    let a = match t.ip {
        Ip::Mapped => addr::v4(t.ip, net::A4),
        ip => wire_addr(false, ip),
    };
    sys::bind(s.raw(), &SocketAddr::new(a, PORT)).expect("bind");
    sys::listen(s.raw(), backlog).expect("listen");
    s
}

pub fn up<'a>(t: &T, w: &'a Wire, from: u16) -> Peer<'a> {
    Peer::connect(w, t.ip, from, PORT, &SMC_OPTION).expect("no SYN-ACK")
}

pub fn smc(t: &T) -> bool {
    t.family != Family::Tcp
}

/// The bytes the program must see: for plain TCP also those of the CLC message.
pub fn seen(t: &T, clc: &[u8], data: &[u8]) -> Vec<u8> {
    if smc(t) {
        data.to_vec()
    } else {
        [clc, data].concat()
    }
}

/// Reads the server's decline.
fn declined(t: &mut T, p: &mut Peer) {
    if !smc(t) {
        return;
    }
    let m = clc::read(p, 4000).unwrap_or_default();
    t.is("type", clc::header(&m).map(|h| h.ty), Some(clc::DECLINE));
    t.is("diagnosis", clc::diagnosis(&m), Some(0x0303_0000));
    let v = clc::header(&m).map_or(0, |h| h.version);
    t.is("length", m.len(), if v == 2 { 44 } else { 28 });
}

/// Accepts; the program must see exactly `want`, then both directions must work to the byte.
pub fn program(t: &mut T, l: &Fd, p: &mut Peer, want: &[u8]) {
    match sys::accept(l.raw()) {
        Ok(s) => talk(t, s, p, want),
        Err(_) => t.check("accept", false),
    }
}

/// As [`program`], where others may be handed out before the peer: returns how many were.
pub fn program_behind(t: &mut T, l: &Fd, p: &mut Peer, want: &[u8]) -> usize {
    let me = p.me.port();
    for before in 0.. {
        match sys::accept(l.raw()) {
            Ok(s) if sys::peername(s.raw()).is_ok_and(|a| a.port() == me) => {
                talk(t, s, p, want);
                return before;
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    t.check("accept", false);
    0
}

fn talk(t: &mut T, s: Fd, p: &mut Peer, want: &[u8]) {
    let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 30_000);
    t.is(
        "program hears",
        sys::recv_all(s.raw(), want.len()).ok(),
        Some(want.to_vec()),
    );
    t.is(
        "program answers",
        sys::send(s.raw(), b"answer", 0).ok(),
        Some(6),
    );
    t.is(
        "peer hears",
        p.recv(6, 3000).as_deref(),
        Some(&b"answer"[..]),
    );
    p.send(b"more");
    t.is(
        "program hears more",
        sys::recv_all(s.raw(), 4).ok(),
        Some(b"more".to_vec()),
    );
    p.send_fin();
    t.is(
        "end of stream",
        sys::recv_vec(s.raw(), 8, 0).ok(),
        Some(vec![]),
    );
    if smc(t) {
        t.is("mode", smcinfo::info(s.raw()).ok().map(|i| i.mode), Some(1));
    }
    drop(s);
}

/// The listener still takes an ordinary connection. Others may be in its queue: returns how many were handed out before.
pub fn alive(t: &mut T, l: &Fd, w: &Wire, from: u16) -> usize {
    let mut p = Peer::connect(w, t.ip, from, PORT, &[]).expect("no SYN-ACK");
    p.send(b"alive?");
    let me = p.me.port();
    for before in 0..200 {
        match sys::accept(l.raw()) {
            Ok(s) if sys::peername(s.raw()).is_ok_and(|a| a.port() == me) => {
                let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 30_000);
                t.is(
                    "alive",
                    sys::recv_all(s.raw(), 6).ok(),
                    Some(b"alive?".to_vec()),
                );
                return before;
            }
            Ok(_) => {}
            Err(e) => {
                t.check(&format!("accept: {e}"), false);
                return before;
            }
        }
    }
    t.check("alive", false);
    200
}

fn server_proposal(t: &mut T) {
    let (w, m) = (wire(), clc::proposal_v1());
    let l = listen(t);
    let mut p = up(t, &w, 2000);
    p.send(&m);
    declined(t, &mut p);
    p.send(b"data");
    let want = seen(t, &m, b"data");
    program(t, &l, &mut p, &want);
}

fn server_proposal_segmented(t: &mut T) {
    let (w, m) = (wire(), clc::proposal_v1());
    let l = listen(t);
    let cuts: [&[usize]; 6] = [&[1], &[7, 1, 100], &[8], &[9], &[3, 5], &[m.len() - 1, 1]];
    for (i, c) in cuts.iter().enumerate() {
        let mut p = up(t, &w, 2000 + i as u16);
        p.send_cut(&m, c);
        declined(t, &mut p);
        p.send(b"data");
        let want = seen(t, &m, b"data");
        program(t, &l, &mut p, &want);
    }
}

fn server_proposal_with_data(t: &mut T) {
    // The client does not wait for the answer: its bytes are in the proposal's segment.
    let (w, m) = (wire(), clc::proposal_v1());
    let l = listen(t);
    for (i, n) in [1usize, 8, 1000].into_iter().enumerate() {
        let data = vec![b'd'; n];
        let mut p = up(t, &w, 2000 + i as u16);
        p.send(&[&m[..], &data].concat());
        declined(t, &mut p);
        let want = seen(t, &m, &data);
        program(t, &l, &mut p, &want);
    }
}

fn decline_with_data(t: &mut T, m: &[u8]) {
    let w = wire();
    let l = listen(t);
    let cuts: [&[usize]; 7] = [
        &[1400],
        &[1],
        &[8],
        &[m.len()],
        &[m.len() - 1],
        &[m.len() + 1],
        &[5, 11],
    ];
    for (i, c) in cuts.iter().enumerate() {
        let mut p = up(t, &w, 2000 + i as u16);
        p.send_cut(&[m, b"GET / HTTP/1.1\r\n\r\n"].concat(), c);
        let want = seen(t, m, b"GET / HTTP/1.1\r\n\r\n");
        // A decline is not answered: the first thing the peer hears is the program.
        program(t, &l, &mut p, &want);
    }
}

fn server_decline_with_data(t: &mut T) {
    decline_with_data(t, &clc::decline(0x0303_0000, 1));
}

fn server_decline_v2_with_data(t: &mut T) {
    let mut b = vec![0, 1, 2, 0x77, 0, 0, 0, 2];
    b.extend(0x0303_0008u32.to_be_bytes());
    b.extend([0x10, 0, 0, 0]);
    b.extend([0; 16]);
    decline_with_data(t, &clc::message(clc::EYE_R, clc::DECLINE, 0x20, &b));
}

fn no_clc(t: &mut T, texts: &[&[u8]]) {
    let w = wire();
    let l = listen(t);
    for (i, x) in texts.iter().enumerate() {
        for (j, c) in [&[1usize][..], &[1400], &[3, 4]].iter().enumerate() {
            let mut p = up(t, &w, 2000 + (i * 8 + j) as u16);
            p.send_cut(x, c);
            program(t, &l, &mut p, x);
        }
    }
}

fn server_no_clc(t: &mut T) {
    no_clc(
        t,
        &[b"GET / HTTP/1.0\r\n\r\n", &[0; 200], b"\xe2 is not it"],
    );
}

fn server_no_clc_short(t: &mut T) {
    // Fewer bytes than a header has, and then nothing more: they must not be held back for long.
    no_clc(t, &[b"x", b"PING\n", b"1234567"]);
}

fn server_almost_clc(t: &mut T) {
    no_clc(
        t,
        &[
            b"\xe2\xd4\xc3\xd8 rest of it",
            b"\xe2\xd4rest of the line",
            b"\xe2\xd4\xc3 and so on",
        ],
    );
}

fn server_random_cuts(t: &mut T) {
    let w = wire();
    let l = listen(t);
    let mut r = Rng::new(42);
    for i in 0..60u16 {
        let prop = r.draw() % 2 == 0;
        let m = if prop {
            clc::proposal_v1()
        } else {
            clc::decline(0x0304_0000, 1)
        };
        let mut data = vec![0; r.range(1, 3000) as usize];
        st::rng::fill(u64::from(i), 0, &mut data);
        let cuts: Vec<usize> = (0..5).map(|_| r.size(1400)).collect();
        let mut p = up(t, &w, 2000 + i);
        p.send_cut(&[&m[..], &data].concat(), &cuts);
        if prop {
            declined(t, &mut p);
        }
        let want = seen(t, &m, &data);
        program(t, &l, &mut p, &want);
    }
}

fn server_half_then_fin(t: &mut T) {
    let (w, m) = (wire(), clc::proposal_v1());
    let l = listen(t);
    for i in 0..m.len() as u16 {
        let mut p = up(t, &w, 2000 + i);
        p.send(&m[..usize::from(i)]);
        p.send_fin();
    }
    alive(t, &l, &w, 3000);
}

fn server_half_then_rst(t: &mut T) {
    let (w, m) = (wire(), clc::proposal_v1());
    let l = listen(t);
    for i in 0..=m.len() as u16 {
        let mut p = up(t, &w, 2000 + i);
        p.send(&m[..usize::from(i)]);
        p.send_rst();
    }
    alive(t, &l, &w, 3000);
}

fn server_bad_lengths(t: &mut T) {
    let w = wire();
    let l = listen(t);
    let good = clc::proposal_v1();
    for (i, n) in [0u16, 1, 7, 8, 11, 12, 27, 51, 200, 0x7fff, 0xffff]
        .into_iter()
        .enumerate()
    {
        let mut m = good.clone();
        m[5..7].copy_from_slice(&n.to_be_bytes());
        let mut p = up(t, &w, 2000 + i as u16);
        p.send(&m);
        p.send(&[b'x'; 300]);
        p.pump(50, |_| false);
        p.send_fin();
    }
    alive(t, &l, &w, 3000);
}

fn server_bad_trailer(t: &mut T) {
    let w = wire();
    let l = listen(t);
    let mut m = clc::proposal_v1();
    let n = m.len();
    m[n - 1] ^= 0xff;
    let mut p = up(t, &w, 2000);
    p.send(&m);
    p.pump(100, |_| false);
    alive(t, &l, &w, 3000);
}

fn server_oversized(t: &mut T) {
    // A proposal as long as its length field can say, with more extensions than are known.
    let w = wire();
    let l = listen(t);
    let mut body = clc::proposal_v1()[8..52].to_vec();
    body.resize(60_000, 0x5a);
    let m = clc::message(clc::EYE_R, clc::PROPOSAL, 0x10, &body);
    let mut p = up(t, &w, 2000);
    for c in m.chunks(14_000) {
        p.send(c);
        p.pump(30, |_| false);
    }
    alive(t, &l, &w, 3000);
}

fn server_unexpected_types(t: &mut T) {
    let w = wire();
    let l = listen(t);
    for (i, ty) in [0u8, clc::ACCEPT, clc::CONFIRM, 5, 255]
        .into_iter()
        .enumerate()
    {
        for (j, eye) in [clc::EYE_R, clc::EYE_D].into_iter().enumerate() {
            let mut m = clc::accept_v1(ty);
            m[..4].copy_from_slice(&eye);
            let mut p = up(t, &w, 2000 + (i * 2 + j) as u16);
            p.send(&m);
            p.pump(50, |_| false);
        }
    }
    alive(t, &l, &w, 3000);
}

fn server_garbage_after_eyecatcher(t: &mut T) {
    let w = wire();
    let l = listen(t);
    let mut r = Rng::new(7);
    for i in 0..60u16 {
        let mut m = vec![0u8; r.range(8, 600) as usize];
        st::rng::fill(u64::from(i) + 99, 0, &mut m);
        m[..4].copy_from_slice(&clc::EYE_R);
        if i % 2 == 0 {
            let n = m.len() as u16;
            m[4] = 1 + (i % 4) as u8;
            m[5..7].copy_from_slice(&n.to_be_bytes());
            m[7] = 0x10;
        }
        let mut p = up(t, &w, 2000 + i);
        p.send(&m);
        if i % 3 == 0 {
            p.send_rst();
        } else {
            p.send_fin();
        }
    }
    alive(t, &l, &w, 3000);
}
