// SPDX-License-Identifier: GPL-2.0
//! Handshakes that are not ended: scans that reset them, floods of SYNs, and cookies.

use crate::load::{clients, compare, many, Server, Way};
use st::family::Ip;
use st::net;
use st::packet::{Seg, Sums, ACK, RST, SMC_OPTION, SYN};
use st::point::T;
use st::rawpeer::{second_addr, wire_addr, MSS};
use std::net::SocketAddr;

/// A SYN of the wire's other end, as SMC clients send it.
fn syn(from: SocketAddr, to: SocketAddr, smc: bool) -> Seg {
    let rest: &[u8] = if smc { &SMC_OPTION } else { &[] };
    Seg {
        src: from,
        dst: to,
        seq: 0x2200_0000 + u32::from(from.port()),
        ack: 0,
        flags: SYN,
        win: 0xfff0,
        opts: [&MSS[..], rest].concat(),
        data: vec![],
        sums: Sums::Good,
    }
}

/// Half-open connections that there are now.
fn half_open_now(ip: Ip) -> usize {
    let file = match ip {
        Ip::V6 => "/proc/thread-self/net/tcp6",
        _ => "/proc/thread-self/net/tcp",
    };
    let all = std::fs::read_to_string(file).unwrap_or_default();
    let states = all
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3));
    states.filter(|state| *state == "03").count()
}

/// SYN, SYN-ACK, RST, with and without SMC's option: accept() tells of none.
pub fn half_open(t: &mut T) {
    let ip = t.ip;
    compare(t, |t, client, server| {
        let s = Server::new(server, ip, SocketAddr::new(wire_addr(false, ip), 0), 64);
        let mut answered = 0;
        for number in 0..many(100) as u16 {
            let from = SocketAddr::new(wire_addr(true, ip), 20_000 + number);
            let mut seg = syn(from, s.at, number % 2 == 0);
            t.wire.put(&seg);
            let back =
                |a: &Seg| a.dst == from && a.src == s.at && a.flags & (SYN | ACK) == SYN | ACK;
            answered += u64::from(t.wire.next(2000, back).is_some());
            (seg.flags, seg.seq, seg.opts) = (RST, seg.seq.wrapping_add(1), vec![]);
            t.wire.put(&seg);
        }
        st::sys::sleep_ms(50);
        let half = half_open_now(ip);
        let asked = clients(client, ip, &s.at, Way::Ask, 10);
        (answered, half, asked, s.end())
    });
}

/// SYNs that nobody goes on with, more than there is room for, and clients meanwhile.
fn flooded(t: &mut T, cookies: &str) {
    let ip = t.ip;
    net::sysctl("net.ipv4.tcp_syncookies", cookies).expect("tcp_syncookies");
    compare(t, |t, client, server| {
        let s = Server::new(server, ip, SocketAddr::new(wire_addr(false, ip), 0), 8);
        let mut told = Vec::new();
        let before = net::tcp_ext("SyncookiesSent");
        for round in 0..4u16 {
            for number in 0..many(150) as u16 {
                let from = SocketAddr::new(second_addr(ip), 30_000 + round * 1000 + number);
                t.wire.put(&syn(from, s.at, number % 2 == 0));
            }
            told.push(clients(client, ip, &s.at, Way::Ask, 10));
        }
        (told, net::tcp_ext("SyncookiesSent") > before + 50, s.end())
    });
}

/// Cookies when the queue of half-open connections is full.
pub fn flood(t: &mut T) {
    flooded(t, "1");
}

/// Cookies for every connection.
pub fn cookies(t: &mut T) {
    flooded(t, "2");
}
