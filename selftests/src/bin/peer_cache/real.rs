// SPDX-License-Identifier: GPL-2.0
//! Servers of this kernel, on loopback: behind rules of nftables that drop or reset what has the option, with a full
//! queue, behind a proxy, and behind a translation of addresses. Of its own addresses a machine learns nothing.

use super::{is_tcp, kind, remembered, rsmc};
use super::{NOSMCDEV, OPTIONLOST, OPTIONRESET, PEERNOSMC};
use crate::point;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::point::{Point, T};
use st::{addr, net, path, sys};
use std::net::SocketAddr;
use std::process::Command;

/// Points of `real`.
pub const LIST: &[Point] = &[
    point!("real.drop", drops),
    point!("real.reset", resets),
    point!("real.full", full),
    point!("real.refused_once", refused_once),
    point!("real.proxy", proxy),
    point!("real.dnat", dnat),
    point!("real.dnat_local", dnat_local),
    point!("real.many", many),
];

const PORT: u16 = 8001;

fn at(t: &T, port: u16) -> SocketAddr {
    SocketAddr::new(addr::loopback(t.ip), port)
}

/// Loads rules of nftables; false with a word where there are none.
fn rules(t: &mut T, lines: &str) -> bool {
    let file = std::env::temp_dir().join(format!("nft.{}", std::process::id()));
    std::fs::write(&file, lines).expect("rules");
    let done = Command::new("nft").arg("-f").arg(&file).output();
    match done {
        Ok(done) if done.status.success() => true,
        Ok(done) => {
            let why = String::from_utf8_lossy(&done.stderr).into_owned();
            t.check(&format!("nft: {why}"), false);
            false
        }
        Err(e) => {
            t.say(&format!("skip: nft: {e}"));
            false
        }
    }
}

/// Has this done to TCP segments of [`PORT`] that have the option.
fn filter(t: &mut T, verdict: &str) -> bool {
    rules(
        t,
        &format!(
            "table inet t {{ chain in {{ type filter hook input priority 0;
             tcp dport {PORT} tcp option 254 exists {verdict};
             }}; }};
"
        ),
    )
}

fn listen(t: &T, family: Family, port: u16) -> Fd {
    let (domain, protocol) = family.triple(t.ip);
    let fd = sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket");
    let _ = sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(fd.raw(), &at(t, port)).expect("bind");
    sys::listen(fd.raw(), 64).expect("listen");
    fd
}

/// connect(), and how often TCP repeated its SYN.
fn connect(t: &mut T, port: u16) -> (Fd, u64) {
    let fd = t.socket();
    let before = net::tcp_ext("TCPSynRetrans");
    let done = sys::connect(fd.raw(), &at(t, port));
    t.is("connect", done, Ok(0));
    (fd, net::tcp_ext("TCPSynRetrans") - before)
}

fn talk(t: &mut T, client: &Fd, server: &Fd) {
    for (from, to) in [(client, server), (server, client)] {
        t.is("send", sys::send_all(from.raw(), b"some words"), Ok(()));
        t.is(
            "recv",
            sys::recv_all(to.raw(), 10),
            Ok(b"some words".to_vec()),
        );
    }
}

/// Connections to a server behind such a rule, whatever the server is: all succeed for this reason, and nothing is
/// remembered.
fn behind(t: &mut T, family: Family, (times, slow): (u32, bool), reason: u32) {
    let listener = listen(t, family, PORT);
    for n in 0..times {
        let (client, repeated) = connect(t, PORT);
        let server = sys::accept(listener.raw()).expect("accept");
        is_tcp(t, &client, reason);
        talk(t, &client, &server);
        if kind(&server).is_some() {
            is_tcp(t, &server, PEERNOSMC);
        }
        t.is(&format!("{n}: slow"), repeated != 0, slow);
    }
    t.is("remembered", remembered(&at(t, PORT)), None);
}

fn drops(t: &mut T) {
    if !filter(t, "drop") {
        return;
    }
    for family in [t.family, Family::Tcp] {
        behind(t, family, (2, true), OPTIONLOST);
    }
}

fn resets(t: &mut T) {
    if !filter(t, "reject with tcp reset") {
        return;
    }
    for family in [t.family, Family::Tcp] {
        behind(t, family, (10, false), OPTIONRESET);
    }
}

/// Many at once: all succeed.
fn many(t: &mut T) {
    if !filter(t, "drop") {
        return;
    }
    let listener = listen(t, t.family, PORT);
    let to = at(t, PORT);
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let fd = t.socket();
            let raw = fd.raw();
            (fd, std::thread::spawn(move || sys::connect(raw, &to)))
        })
        .collect();
    let mut open = vec![];
    for (fd, connect) in clients {
        t.is("connect", connect.join().expect("connect"), Ok(0));
        let server = sys::accept(listener.raw()).expect("accept");
        open.push((fd, server));
    }
    for (client, _) in &open {
        is_tcp(t, client, OPTIONLOST);
    }
    t.is("remembered", remembered(&to), None);
}

/// A queue of connections that stays full for longer than two SYNs: its clients are TCP's when they come through, and
/// nobody else is.
fn full(t: &mut T) {
    let listener = listen(t, Family::Tcp, PORT);
    sys::listen(listener.raw(), 0).expect("listen");
    let to = at(t, PORT);
    // One is in the queue; the next one's SYNs are dropped until it is taken out.
    let (first, _) = connect(t, PORT);
    let late = t.socket();
    sys::nonblock(late.raw(), true);
    let before = net::tcp_ext("TCPSynRetrans");
    let _ = sys::connect(late.raw(), &to);
    for _ in 0..100 * st::guest::slow() {
        if net::tcp_ext("TCPSynRetrans") - before >= 2 {
            break;
        }
        sys::sleep_ms(100);
    }
    let mut taken = vec![sys::accept(listener.raw()).expect("accept")];
    let seen = sys::poll_until(late.raw(), libc::POLLOUT, 10_000 * st::guest::slow());
    t.check("it comes through", seen & libc::POLLOUT != 0);
    taken.push(sys::accept(listener.raw()).expect("accept"));
    is_tcp(t, &late, OPTIONLOST);
    t.is("remembered", remembered(&to), None);
    // Not only is nothing told: other servers of the address get the option.
    t.is("path", path::local(1), Ok(true));
    let other = listen(t, t.family, PORT + 1);
    let (client, _) = connect(t, PORT + 1);
    let server = sys::accept(other.raw()).expect("accept");
    t.is("local", path::prove_local(&client, &server), Ok(()));
    drop(first);
}

/// What an edge-triggered poller hears of a connect() to a closed port until nothing comes any more: the events, each
/// with the error that it finds. `early` watches before connect().
fn hears(t: &T, family: Family, early: bool) -> Vec<(u32, i64)> {
    let (domain, protocol) = family.triple(t.ip);
    let fd = sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket");
    sys::nonblock(fd.raw(), true);
    // SAFETY: no pointers.
    let epoll = Fd::new(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32,
        u64: 0,
    };
    let mut watch = || {
        // SAFETY: one event of ours.
        unsafe { libc::epoll_ctl(epoll.raw(), libc::EPOLL_CTL_ADD, fd.raw(), &mut event) }
    };
    let next = |ms| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one event of ours.
        match unsafe { libc::epoll_wait(epoll.raw(), &mut event, 1, ms) } {
            1 => Some(event.events),
            _ => None,
        }
    };
    if early {
        assert_eq!(watch(), 0);
        // Of a socket that does nothing yet.
        next(0);
    }
    let _ = sys::connect(fd.raw(), &at(t, PORT));
    if !early {
        assert_eq!(watch(), 0);
    }
    let mut heard = vec![];
    while let Some(events) = next(if heard.is_empty() { 20_000 } else { 300 }) {
        let error = sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
        heard.push((events, error.map_or(-1, i64::from)));
    }
    heard
}

/// A refusal is told once, with its error, though a second SYN follows the first.
fn refused_once(t: &mut T) {
    for early in [false, true] {
        // On two processors TCP's may come twice, too: it wakes for the new state, then for the error.
        let mut tcp = hears(t, Family::Tcp, early);
        tcp.truncate(1);
        let refused = i64::from(libc::ECONNREFUSED);
        t.is("TCP's error", tcp.first().map(|told| told.1), Some(refused));
        for _ in 0..20 {
            let ours = hears(t, t.family, early);
            t.is(&format!("early {early}"), ours, tcp.clone());
        }
    }
}

/// Moves bytes between two connections with splice() until both have ended.
fn splice(one: i32, other: i32) {
    let mut pipe = [0; 2];
    // SAFETY: an array of two.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return;
    }
    let (out, into) = (Fd::new(pipe[0]), Fd::new(pipe[1]));
    let null = std::ptr::null_mut();
    loop {
        // SAFETY: descriptors of ours, and no positions.
        let got = unsafe { libc::splice(one, null, into.raw(), null, 65536, 0) };
        if got <= 0 {
            let _ = sys::shutdown(other, libc::SHUT_WR);
            return;
        }
        let mut left = got as usize;
        while left > 0 {
            // SAFETY: as above.
            let put = unsafe { libc::splice(out.raw(), null, other, null, left, 0) };
            if put <= 0 {
                return;
            }
            left -= put as usize;
        }
    }
}

/// A proxy that ends TCP and knows nothing of SMC, before a server that does.
fn proxy(t: &mut T) {
    let server = listen(t, t.family, PORT);
    let proxy = listen(t, Family::Tcp, PORT + 1);
    for n in 0..3 {
        let (client, repeated) = connect(t, PORT + 1);
        t.is(&format!("{n}: repeated"), repeated, 0);
        let front = sys::accept(proxy.raw()).expect("accept");
        let (domain, protocol) = Family::Tcp.triple(t.ip);
        let back = sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket");
        sys::connect(back.raw(), &at(t, PORT)).expect("connect");
        let behind = sys::accept(server.raw()).expect("accept");
        let (f, b) = (front.raw(), back.raw());
        let ways = [(f, b), (b, f)].map(|(a, b)| std::thread::spawn(move || splice(a, b)));
        is_tcp(t, &client, PEERNOSMC);
        talk(t, &client, &behind);
        drop((client, behind));
        for way in ways {
            way.join().expect("splice");
        }
    }
    // It is no bad neighbour: it answers SYNs as those do that know no SMC.
    t.is("remembered", remembered(&at(t, PORT)), None);
    names(t, "PEERNOSMC");
}

/// Checks that `rsmc why` names a reason, of all peers and of this one.
fn names(t: &mut T, reason: &str) {
    let address = addr::loopback(t.ip).to_canonical();
    for arguments in ["why".to_owned(), format!("why {address}")] {
        let (_, said) = rsmc(&arguments);
        t.check(
            &format!("{reason} in {arguments}: {said}"),
            said.contains(reason),
        );
    }
}

/// Another port is translated to that of the server.
fn translated(t: &mut T) -> bool {
    let v6 = t.ip == Ip::V6;
    let (kind, to) = match v6 {
        true => ("ip6", "[::1]"),
        false => ("ip", "127.0.0.1"),
    };
    let port = PORT + 1;
    rules(
        t,
        &format!(
            "table {kind} t {{ chain out {{ type nat hook output priority -100;
             tcp dport {port} dnat to {to}:{PORT};
             }}; }};
"
        ),
    )
}

fn dnat(t: &mut T) {
    if !translated(t) {
        return;
    }
    let listener = listen(t, t.family, PORT);
    for _ in 0..3 {
        let (client, repeated) = connect(t, PORT + 1);
        t.is("repeated", repeated, 0);
        let server = sys::accept(listener.raw()).expect("accept");
        // There is no device: both have spoken CLC through the translation.
        is_tcp(t, &client, NOSMCDEV);
        talk(t, &client, &server);
    }
    t.is("remembered", remembered(&at(t, PORT)), None);
    names(t, "NOSMCDEV");
}

/// Sequence numbers are not translated, so the two ends of a local path find each other.
fn dnat_local(t: &mut T) {
    if !translated(t) {
        return;
    }
    t.is("path", path::local(1), Ok(true));
    let listener = listen(t, t.family, PORT);
    let (client, _) = connect(t, PORT + 1);
    let server = sys::accept(listener.raw()).expect("accept");
    t.is("local", path::prove_local(&client, &server), Ok(()));
}
