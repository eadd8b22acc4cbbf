// SPDX-License-Identifier: GPL-2.0
//! The options of SYNs and SYN-ACKs, to the byte, for each value of the sysctl `path`, with a peer that is
//! another host; and that what is said to such a peer does not depend on it.

use st::family::{Family, Ip};
use st::fd::Fd;
use st::packet::{Seg, SMC_OPTION};
use st::point::T;
use st::rawpeer::{wire_addr, Peer, Wire};
use st::{addr, clc, net, smcinfo, sys};
use std::net::SocketAddr;

st::points!(
    path_syn_exact,
    path_syn_host,
    path_unasked_answer,
    path_mirror,
    path_synack_exact,
    path_proposal_same,
);

const PORT: u16 = 7790;
/// What a SYN has besides SMC's option at `path` 0.
const CANARY: [u8; 8] = [253, 8, b'r', b's', b'm', b'c', 0, 0];
/// The identity, up to the 56 bits that are the host's.
const IDENTITY: [u8; 4] = [253, 12, b'r', b's'];
const IN_SYN: u8 = 0x10;
const IN_SYN_ACK: u8 = 0x11;
const IN_STRICT_SYN: u8 = 0x12;
/// That of a host that takes the connection for TCP at first.
const IN_FIRST_SYN: u8 = 0x18;
/// The reason of an end whose other end is not of this kernel.
const PATHELSEWHERE: u32 = 0x0306_0102;

fn set(name: &str, value: u32) {
    net::sysctl(&format!("net.smc.{name}"), &value.to_string()).expect("sysctl");
}

/// The SYN of a socket that connects to the packet-level peer, with what `prepare` has set.
fn syn(t: &T, family: Family, prepare: impl Fn(&Fd)) -> Seg {
    let wire = Wire::open("vb").expect("packet socket");
    let (d, p) = family.triple(t.ip);
    let c = sys::socket(d, libc::SOCK_STREAM, p).expect("socket");
    prepare(&c);
    sys::nonblock(c.raw(), true);
    let ip = match t.ip {
        Ip::Mapped => addr::v4(t.ip, net::B4),
        ip => wire_addr(true, ip),
    };
    let _ = sys::connect(c.raw(), &SocketAddr::new(ip, PORT));
    Peer::wait_syn(&wire, t.ip, PORT, 4000).expect("no SYN").syn
}

/// Options without the value of the time stamps.
fn timeless(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    if let Some(at) = options.windows(2).position(|two| two == [8, 10]) {
        options[at + 2..at + 10].fill(0);
    }
    options
}

/// What a packet has behind TCP's own options, which are those of a plain socket.
fn added(t: &mut T, what: &str, plain: &[u8], options: &[u8]) -> Vec<u8> {
    let (plain, options) = (timeless(plain), timeless(options));
    t.check(
        &format!("{what}: TCP's own in {options:02x?}"),
        options.starts_with(&plain),
    );
    options.get(plain.len()..).unwrap_or_default().to_vec()
}

/// An identity without the host's bits.
fn identity(flags: u8) -> Vec<u8> {
    [&IDENTITY[..], &[flags], &[0; 7]].concat()
}

/// Checks what has been added against `wanted`, in which the host's bits are 0.
fn exact(t: &mut T, what: &str, added: &[u8], wanted: &[u8]) {
    let mut seen = added.to_vec();
    if let Some(at) = seen.windows(4).position(|four| four == IDENTITY) {
        if let Some(host) = seen.get_mut(at + 5..at + 12) {
            host.fill(0);
        }
    }
    t.is(what, seen, wanted.to_vec());
}

fn path_syn_exact(t: &mut T) {
    let plain = syn(t, Family::Tcp, |_| {}).opts;
    if t.family == Family::Tcp {
        return;
    }
    // Of `AF_SMC` a program has CLC before data with other hosts.
    let (far, alone) = match t.family {
        Family::Smc => (identity(IN_SYN), CANARY.to_vec()),
        _ => (identity(IN_FIRST_SYN), identity(IN_FIRST_SYN)),
    };
    let strict = |fd: &Fd| {
        sys::setopt(fd.raw(), 286, 101, 1).expect("RSMC_STRICT");
    };
    for (path, local, companion) in [
        (0, 1, CANARY.to_vec()),
        (1, 0, CANARY.to_vec()),
        (1, 1, identity(IN_SYN)),
        (1, 2, identity(IN_SYN)),
        (2, 0, alone),
        (2, 1, far.clone()),
        (2, 2, far),
    ] {
        set("path", path);
        set("path_local", local);
        let what = format!("path {path}, path_local {local}");
        let seen = syn(t, t.family, |_| {}).opts;
        let seen = added(t, &what, &plain, &seen);
        exact(t, &what, &seen, &[&SMC_OPTION[..], &companion].concat());
    }
    for (path, local, companion) in [
        (1, 0, CANARY.to_vec()),
        (2, 0, CANARY.to_vec()),
        (1, 1, identity(IN_STRICT_SYN)),
        (2, 1, identity(IN_STRICT_SYN)),
    ] {
        set("path", path);
        set("path_local", local);
        let what = format!("strict, path {path}, path_local {local}");
        let seen = syn(t, t.family, strict).opts;
        let seen = added(t, &what, &plain, &seen);
        exact(t, &what, &seen, &[&SMC_OPTION[..], &companion].concat());
    }
}

/// A server answers with its identity a client that has not said that it takes TCP at first: what the client makes of it
/// is TCP, which a strict one does not take.
fn path_unasked_answer(t: &mut T) {
    if t.family == Family::Tcp {
        return;
    }
    let wire = Wire::open("vb").expect("packet socket");
    let answer = [&IDENTITY[..], &[IN_SYN_ACK], b"foreign"].concat();
    for (path, strict, mode) in [(1, 0, Some(1)), (2, 0, Some(3)), (1, 1, None), (2, 1, None)] {
        let what = format!("path {path}, strict {strict}");
        set("path", path);
        set("path_local", 1);
        let c = t.socket();
        sys::setopt(c.raw(), 286, 101, strict).expect("RSMC_STRICT");
        // Whatever the family's default is.
        sys::setopt(c.raw(), 286, 102, path as i32).expect("RSMC_PATH");
        sys::nonblock(c.raw(), true);
        let ip = match t.ip {
            Ip::Mapped => addr::v4(t.ip, net::B4),
            ip => wire_addr(true, ip),
        };
        let _ = sys::connect(c.raw(), &SocketAddr::new(ip, PORT));
        let mut peer = Peer::wait_syn(&wire, t.ip, PORT, 4000).expect("no SYN");
        let acknowledged = peer.syn_ack(&answer);
        let events = sys::poll_until(c.raw(), libc::POLLOUT, 3000);
        match mode {
            Some(mode) => {
                t.check(&format!("{what}: ACK"), acknowledged);
                let seen = smcinfo::info(c.raw()).map(|info| info.mode);
                t.is(&format!("{what}: mode"), seen.ok(), Some(mode));
            }
            None => {
                t.check(&format!("{what}: fails"), events & libc::POLLERR != 0);
                let error = sys::getopt(c.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
                t.is(&what, error.ok(), Some(libc::EPROTONOSUPPORT));
            }
        }
    }
}

/// The host's bits differ from one connection to the next, so that nobody can tell that two are of one host.
fn path_syn_host(t: &mut T) {
    if t.family == Family::Tcp {
        return;
    }
    let mut seen: Vec<Vec<u8>> = vec![];
    for local in [1, 1, 2, 2] {
        set("path", 1);
        set("path_local", local);
        let options = syn(t, t.family, |_| {}).opts;
        let bits = options.get(options.len() - 7..).unwrap_or_default();
        seen.push(bits.to_vec());
    }
    for (at, one) in seen.iter().enumerate() {
        let others = seen.iter().skip(at + 1);
        let far = |other: &&Vec<u8>| {
            let differ = one.iter().zip(*other).map(|(a, b)| (a ^ b).count_ones());
            // Of 56, of which half do on average.
            differ.sum::<u32>() >= 8
        };
        t.check(
            &format!("{one:02x?} is like no other"),
            others.clone().all(|other| far(&other)),
        );
    }
}

/// Somebody in between ends a connection of a program here with packets of his own, and begins one to another program
/// here with the same numbers. The two programs have not met.
fn path_mirror(t: &mut T) {
    if t.family == Family::Tcp {
        return;
    }
    set("path", 1);
    set("path_local", 1);
    let wire = Wire::open("vb").expect("packet socket");
    let (d, p) = t.family.triple(t.ip);
    let l = sys::socket(d, libc::SOCK_STREAM, p).expect("socket");
    sys::bind(l.raw(), &SocketAddr::new(addr::any(t.ip), PORT + 9)).expect("bind");
    sys::listen(l.raw(), 4).expect("listen");
    let client = t.socket();
    sys::nonblock(client.raw(), true);
    let v4 = t.ip != Ip::V6;
    let ip = if v4 { Ip::V4 } else { Ip::V6 };
    let to = match t.ip {
        Ip::Mapped => addr::v4(t.ip, net::B4),
        ip => wire_addr(true, ip),
    };
    let _ = sys::connect(client.raw(), &SocketAddr::new(to, PORT));
    let mut left = Peer::wait_syn(&wire, t.ip, PORT, 4000).expect("no SYN");
    let said = left.syn.opts.get(left.syn.opts.len() - 20..);
    let said = said.unwrap_or_default().to_vec();
    let right = Peer::connect_numbered(
        &wire,
        SocketAddr::new(wire_addr(true, ip), left.other.port()),
        SocketAddr::new(wire_addr(false, ip), PORT + 9),
        left.syn.seq,
        &said,
    );
    let mut right = right.expect("no SYN-ACK");
    // The server takes the client for one of this kernel, as it is.
    let answer = right.syn.opts.windows(5);
    let wanted = [&IDENTITY[..], &[IN_SYN_ACK]].concat();
    let answer = answer.into_iter().position(|five| five == wanted);
    let Some(at) = answer else {
        return t.check("an identity in the SYN-ACK", false);
    };
    left.snd = right.syn.seq;
    let options = right.syn.opts[at..at + 12].to_vec();
    t.check("ACK", left.syn_ack(&options));
    let server = sys::accept(l.raw()).expect("accept");
    for fd in [&client, &server] {
        sys::nonblock(fd.raw(), true);
    }
    let mut buf = [0; 64];
    // Each comes to where ends meet, by its first byte.
    for round in 0..4 {
        for (from, far, to) in [
            (&client, &mut left, &server),
            (&server, &mut right, &client),
        ] {
            let what = format!("round {round}");
            t.is(&what, sys::send(from.raw(), b"alone", 0).ok(), Some(5));
            let heard = far.recv(5, 3000);
            t.is("its peer hears", heard.as_deref(), Some(&b"alone"[..]));
            let got = sys::recv(to.raw(), &mut buf, 0).ok();
            t.is("the other program hears", got, None);
        }
    }
    // The server has been refused; the client has waited for one that would come before its bytes.
    left.send(b"other");
    sys::nonblock(client.raw(), false);
    t.is("bytes", sys::recv(client.raw(), &mut buf, 0).ok(), Some(5));
    for fd in [&client, &server] {
        let reason = smcinfo::info(fd.raw()).map(|info| info.reason).ok();
        t.is("reason", reason, Some(PATHELSEWHERE));
    }
}

/// Answers to SYNs of another host.
fn path_synack_exact(t: &mut T) {
    // Besides the MSS.
    const USUAL: [u8; 16] = [4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let wire = Wire::open("vb").expect("packet socket");
    let listen = |t: &T, family: Family, port: u16| {
        let (d, p) = family.triple(t.ip);
        let l = sys::socket(d, libc::SOCK_STREAM, p).expect("socket");
        sys::bind(l.raw(), &SocketAddr::new(addr::any(t.ip), port)).expect("bind");
        sys::listen(l.raw(), 64).expect("listen");
        l
    };
    let mut from = 2000;
    let mut ask = |t: &T, port: u16, more: &[u8]| {
        from += 1;
        let options = [&USUAL[..], more].concat();
        Peer::connect(&wire, t.ip, from, port, &options)
            .expect("no SYN-ACK")
            .syn
            .opts
    };
    let _plain = listen(t, Family::Tcp, PORT);
    let plain = ask(t, PORT, &[]);
    if t.family == Family::Tcp {
        return;
    }
    let foreign = [&IDENTITY[..], &[IN_SYN], b"foreign"].concat();
    let strict = [&IDENTITY[..], &[IN_STRICT_SYN], b"foreign"].concat();
    let first = [&IDENTITY[..], &[IN_FIRST_SYN], b"foreign"].concat();
    let both = [&SMC_OPTION[..], &foreign].concat();
    let promotes = [&SMC_OPTION[..], &first].concat();
    let strict = [&SMC_OPTION[..], &strict].concat();
    let answer = identity(IN_SYN_ACK);
    let (none, smc) = (vec![], SMC_OPTION.to_vec());
    for path in 0..3 {
        set("path", path);
        let port = PORT + 1 + path as u16;
        let _l = listen(t, t.family, port);
        let takes_tcp = path == 2 && t.family != Family::Smc;
        let moves = if takes_tcp { &answer } else { &smc };
        let cases: [(&str, &[u8], &Vec<u8>); 7] = [
            ("TCP", &[], &none),
            ("C", &SMC_OPTION, &smc),
            ("before paths", &[&SMC_OPTION[..], &CANARY].concat(), &smc),
            ("another host, of path 1 or without promotion", &both, &smc),
            ("another host", &promotes, moves),
            ("another host, strict", &strict, &smc),
            ("stripped", &first, if takes_tcp { &answer } else { &none }),
        ];
        for (who, options, wanted) in cases {
            let what = format!("path {path}, {who}");
            let seen = ask(t, port, options);
            let seen = added(t, &what, &plain, &seen);
            exact(t, &what, &seen, wanted);
        }
    }
}

/// The proposal to a server that answers with SMC's option alone: the same bytes at each value of `path`.
fn path_proposal_same(t: &mut T) {
    if t.family == Family::Tcp {
        return;
    }
    let device = format!("rxp{}", std::process::id());
    if let Err(e) = net::sh(&format!("rdma link add {device} type rxe netdev va")) {
        return t.say(&format!("skip: {e}"));
    }
    sys::sleep_ms(300);
    let mut said = vec![];
    for path in 0..3 {
        set("path", path);
        let wire = Wire::open("vb").expect("packet socket");
        let c = t.socket();
        sys::nonblock(c.raw(), true);
        let ip = match t.ip {
            Ip::Mapped => addr::v4(t.ip, net::B4),
            ip => wire_addr(true, ip),
        };
        let _ = sys::connect(c.raw(), &SocketAddr::new(ip, PORT));
        let mut peer = Peer::wait_syn(&wire, t.ip, PORT, 4000).expect("no SYN");
        t.check("ACK", peer.syn_ack(&SMC_OPTION));
        let message = clc::read(&mut peer, 4000).unwrap_or_default();
        let kind = clc::header(&message).map(|h| h.ty);
        t.is(&format!("path {path}: proposal"), kind, Some(clc::PROPOSAL));
        said.push(message);
    }
    t.check(
        &format!("{said:02x?}"),
        said.iter().all(|one| *one == said[0]),
    );
    let _ = net::rdma_delete(&device, 10);
}
