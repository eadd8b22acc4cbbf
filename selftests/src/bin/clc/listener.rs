// SPDX-License-Identifier: GPL-2.0
//! Our listener with several fake clients, of whom some say nothing.

use crate::server::{
    alive, listen, listen_for, listen_on, program, program_behind, seen, smc, up, wire, PORT,
};
use st::errno::Errno;
use st::family::Ip;
use st::fd::Fd;
use st::packet::{ACK, PSH, SMC_OPTION};
use st::point::T;
use st::rawpeer::{Peer, Wire};
use st::{clc, net, smcinfo, sys};

st::points!(
    server_silent_client_blocks_nobody,
    server_many_stalling,
    server_close_listener_midway,
    server_listener_destroyed,
    server_full_of_silent_clients,
    server_limited,
    server_owner_of_the_unaccepted,
    server_migrates_requests_later,
    server_saved_syn,
);

fn server_silent_client_blocks_nobody(t: &mut T) {
    let w = wire();
    let l = listen(t);
    let _silent = up(t, &w, 2000);
    if smc(t) {
        let before = alive(t, &l, &w, 3000);
        // A client that was waited for too long becomes TCP's, and is handed out first.
        t.is("without waiting for it", before, 0);
    }
}

fn server_many_stalling(t: &mut T) {
    // Each stops in another step; then the process just ends with all of them pending.
    let (w, m) = (wire(), clc::proposal_v1());
    let l = listen(t);
    let mut v = Vec::new();
    for i in 0..30u16 {
        let mut p = up(t, &w, 2000 + i);
        let n = usize::from(i) * m.len() / 29;
        p.put(ACK | PSH, &m[..n]);
        v.push(p);
    }
    alive(t, &l, &w, 3000);
}

fn server_close_listener_midway(t: &mut T) {
    let (w, m) = (wire(), clc::proposal_v1());
    // A reader of one wire throws away the segments of other connections: each has a wire of its own.
    let wires: Vec<Wire> = (0..10).map(|_| wire()).collect();
    let l = listen(t);
    let mut v = Vec::new();
    for (i, w) in (0..10u16).zip(&wires) {
        let mut p = up(t, w, 2000 + i);
        p.put(ACK | PSH, &m[..usize::from(i) * 5]);
        v.push(p);
    }
    t.is("close", l.close().ok(), Some(0));
    for p in &mut v {
        t.check("reset or closed", p.pump(3000, |p| p.rst || p.fin));
    }
    // The port is free again.
    let l = listen(t);
    alive(t, &l, &w, 3000);
}

/// A client that has given SMC up, with the first of its data.
fn send_declined(t: &T, p: &mut Peer) -> Vec<u8> {
    let m = clc::decline(0x0303_0000, 1);
    p.put(ACK | PSH, &[&m[..], b"data"].concat());
    seen(t, &m, b"data")
}

fn server_listener_destroyed(t: &mut T) {
    // SOCK_DESTROY, while one connection waits for its client and another for accept(). TCP warns
    // if it finds its queue's count wrong then, and the lab fails what made the kernel warn.
    let (w, w2) = (wire(), wire());
    let l = listen_for(t, 1);
    let mut silent = up(t, &w, 2000);
    let mut ready = up(t, &w2, 2001);
    send_declined(t, &mut ready);
    let e = sys::poll_until(l.raw(), libc::POLLIN, 3000);
    t.check("one is ready", e & libc::POLLIN != 0);
    if let Err(e) = net::sh(&format!("ss -K -n -t -l sport = :{PORT}")) {
        t.check(&e, false);
    }
    let r = sys::accept(l.raw()).map(|_| 0);
    t.is("accept", r.err(), Some(Errno(libc::EINVAL)));
    for p in [&mut silent, &mut ready] {
        t.check("reset or closed", p.pump(3000, |p| p.rst || p.fin));
    }
    // Its port is still bound, and it can begin again.
    t.is("disconnect", sys::connect_unspec(l.raw()).ok(), Some(0));
    t.is("listen again", sys::listen(l.raw(), 1).ok(), Some(0));
    for i in 0..4 {
        let mut p = up(t, &w, 2100 + i);
        let want = send_declined(t, &mut p);
        program(t, &l, &mut p, &want);
    }
    alive(t, &l, &w, 3000);
}

/// Waits until no connection is in TCP's own queue: `tcpi_unacked` of a listener is their number.
fn all_taken(l: &Fd) -> bool {
    for _ in 0..3000 {
        let b = sys::getopt_raw(l.raw(), libc::IPPROTO_TCP, libc::TCP_INFO, 28);
        if b.is_ok_and(|b| b.get(24..28) == Some(&[0; 4])) {
            return true;
        }
        sys::sleep_ms(10);
    }
    false
}

fn server_full_of_silent_clients(t: &mut T) {
    // More connections than may wait for accept() together: those whose clients say nothing keep no place, so the last
    // one finds it, though nobody calls accept() or poll() meanwhile.
    let wires: Vec<Wire> = (0..3).map(|_| wire()).collect();
    let l = listen_for(t, 1);
    if !smc(t) {
        // TCP's queue would be full of them.
        return;
    }
    let mut v: Vec<Peer> = (0..2).map(|i| up(t, &wires[i], 2000 + i as u16)).collect();
    t.check("TCP's queue is empty", all_taken(&l));
    let mut last = up(t, &wires[2], 2002);
    let want = send_declined(t, &mut last);
    t.check("TCP's queue is empty again", all_taken(&l));
    program(t, &l, &mut last, &want);
    for p in &mut v {
        p.send_rst();
    }
    for _ in &v {
        t.check("gone", sys::accept(l.raw()).is_ok());
    }
}

fn server_limited(t: &mut T) {
    // With SMC_LIMIT_HS half of the backlog may be handshakes under way; a later client is TCP's at once,
    // and once they have gone SMC is offered again.
    const SOL_SMC: i32 = 286;
    const SMC_LIMIT_HS: i32 = 1;
    const BACKLOG: usize = 8;
    if !smc(t) {
        return;
    }
    let l = t.socket();
    t.is(
        "SMC_LIMIT_HS",
        sys::setopt(l.raw(), SOL_SMC, SMC_LIMIT_HS, 1).err(),
        None,
    );
    let l = listen_on(t, l, BACKLOG as i32);
    let offered = |p: &Peer| {
        p.syn
            .opts
            .windows(SMC_OPTION.len())
            .any(|w| w == SMC_OPTION)
    };
    let wires: Vec<Wire> = (0..=BACKLOG + 1).map(|_| wire()).collect();
    let mut silent = Vec::new();
    let mut plain = None;
    for (i, w) in wires[..=BACKLOG].iter().enumerate() {
        let p = up(t, w, 2000 + i as u16);
        if !offered(&p) {
            plain = Some(p);
            break;
        }
        silent.push(p);
        t.check("taken", all_taken(&l));
        // The worker counts them a moment after it has taken them.
        sys::sleep_ms(20);
        if sys::poll1(l.raw(), libc::POLLIN, 0).unwrap_or(0) != 0 {
            let n = silent.len();
            return t.say(&format!(
                "skip: a handshake's time was over before {n} were under way"
            ));
        }
    }
    t.check(
        &format!("{} were offered SMC", silent.len()),
        (BACKLOG / 2 + 1..BACKLOG).contains(&silent.len()),
    );
    let Some(mut plain) = plain else {
        t.check("nobody was sent to TCP", false);
        return;
    };
    plain.send(b"plain");
    // On a slow machine the first silent ones may have become TCP's by now, and come before.
    let before = program_behind(t, &l, &mut plain, b"plain");
    let gone = silent.len().saturating_sub(before);
    for p in &mut silent {
        p.send_rst();
    }
    for _ in 0..gone {
        t.check("gone", sys::accept(l.raw()).is_ok());
    }
    let mut last = up(t, &wires[BACKLOG + 1], 2100);
    t.check("SMC is offered again", offered(&last));
    let want = send_declined(t, &mut last);
    program(t, &l, &mut last, &want);
}

fn server_owner_of_the_unaccepted(t: &mut T) {
    // A connection whose handshake is under way belongs to the listener's owner, as those do that
    // are in TCP's queue.
    const OWNER: u32 = 1234;
    let w = wire();
    // SAFETY: no pointers. The socket is made by the owner, who may not do the rest.
    t.is("become", unsafe { libc::seteuid(OWNER) }, 0);
    let s = t.socket();
    // SAFETY: no pointers.
    t.is("return", unsafe { libc::seteuid(0) }, 0);
    let s = listen_on(t, s, 8);
    let _silent = up(t, &w, 2000);
    if smc(t) {
        t.check("it is the family's", all_taken(&s));
    }
    let file = if t.ip == Ip::V4 { "tcp" } else { "tcp6" };
    let text = std::fs::read_to_string(format!("/proc/self/net/{file}")).unwrap_or_default();
    let (here, there) = (format!(":{PORT:04X}"), format!(":{:04X}", 2000));
    let owners: Vec<u32> = text
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .filter(|f| f.len() > 7 && f[1].ends_with(&here) && f[2].ends_with(&there))
        .filter_map(|f| f[7].parse().ok())
        .collect();
    t.is("owner", owners, vec![OWNER]);
}

/// Waits for one connection; returns it and how long that took.
fn timed_accept(t: &mut T, l: &Fd) -> (Option<Fd>, u128) {
    let start = std::time::Instant::now();
    let _ = sys::set_timeo(
        l.raw(),
        libc::SO_RCVTIMEO,
        15_000 * st::guest::slow() as i64,
    );
    let fd = sys::accept(l.raw());
    t.is("accept", fd.as_ref().err(), None);
    (fd.ok(), start.elapsed().as_millis())
}

fn server_migrates_requests_later(t: &mut T) {
    // A listener whose half-open connections may become another listener's does not answer the option. Where that is
    // switched on after listen() the SYN has been kept all the same; the client, who was told nothing, waits for the
    // program, and must not be waited for.
    let w = wire();
    let s = t.socket();
    let _ = sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
    let l = listen_on(t, s, 8);
    let r = net::sysctl("net.ipv4.tcp_migrate_req", "1");
    t.is("sysctl", r, Ok(()));
    let mut p = up(t, &w, 2000);
    let (fd, ms) = timed_accept(t, &l);
    t.syn("SYN-ACK", &p.syn.clone(), 0);
    t.check(
        &format!("accept() took {ms} ms"),
        ms < 100 * u128::from(st::guest::slow()),
    );
    let Some(fd) = fd else { return };
    t.is("greeting", sys::send(fd.raw(), b"hello", 0).ok(), Some(5));
    t.is("heard", p.recv(5, 3000).as_deref(), Some(&b"hello"[..]));
    if smc(t) {
        let mode = smcinfo::info(fd.raw()).ok().map(|i| i.mode);
        t.is("mode", mode, Some(1));
    }
}

fn server_saved_syn(t: &mut T) {
    // The module uses the copy of the SYN; a program that asks for it must see what came.
    const TCP_SAVE_SYN: i32 = 27;
    const TCP_SAVED_SYN: i32 = 28;
    let w = wire();
    let s = t.socket();
    t.is(
        "ask",
        sys::setopt(s.raw(), libc::IPPROTO_TCP, TCP_SAVE_SYN, 1).err(),
        None,
    );
    let l = listen_on(t, s, 8);
    let mut p = up(t, &w, 2000);
    send_declined(t, &mut p);
    let Some(fd) = timed_accept(t, &l).0 else {
        return;
    };
    let saved = sys::getopt_raw(fd.raw(), libc::IPPROTO_TCP, TCP_SAVED_SYN, 200);
    let network = if t.ip == Ip::V6 { 40 } else { 20 };
    let tcp = saved
        .ok()
        .and_then(|b| b.get(network..).map(<[u8]>::to_vec));
    let tcp = tcp.unwrap_or_default();
    t.is("number", tcp.get(8..12), Some(&[0; 4][..]));
    t.check(
        "option",
        tcp.windows(SMC_OPTION.len()).any(|w| w == SMC_OPTION),
    );
}
