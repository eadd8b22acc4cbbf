// SPDX-License-Identifier: GPL-2.0
//! accept, accept4, backlog and what an accepted socket inherits; names of both ends.

use crate::ctx::T;
use crate::poll::Ep;
use st::fd::Fd;
use st::{addr, sys};
use std::time::Instant;

/// The peer's message did not come in time, and that which confirms a link.
const PEERNOSMC: u32 = 0x0301_0000;
const TIMEOUT_CL: u32 = 0x0201_0000;

crate::scenarios!(
    accept_flags,
    accept_address,
    accept_nonblock,
    accept_timeout,
    accept_interrupted,
    accept_dead_clients,
    accept_backlog,
    accept_inherits,
    accept_low_water,
    accept_peek_off,
    accept_defer,
    accept_from_two_threads,
    accept_errors,
    accept_listener_closed_first,
    names_lengths,
    names_after_close,
);

fn accept_flags(t: &mut T) {
    let (l, a) = t.listener();
    for f in [
        0,
        libc::SOCK_NONBLOCK,
        libc::SOCK_CLOEXEC,
        libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
    ] {
        let c = t.socket();
        sys::connect(c.raw(), &a).unwrap();
        let k = sys::accept4(l.raw(), f).unwrap();
        t.prove("server", &k);
        // SAFETY: no pointers.
        let (fl, fd) = unsafe {
            (
                libc::fcntl(k.raw(), libc::F_GETFL),
                libc::fcntl(k.raw(), libc::F_GETFD),
            )
        };
        t.rec("nonblock", fl & libc::O_NONBLOCK != 0);
        t.rec("cloexec", fd & libc::FD_CLOEXEC != 0);
    }
    t.ok("bad flags", &sys::accept4(l.raw(), 0x40));
}

fn accept_address(t: &mut T) {
    let (l, a) = t.listener();
    for cap in [0usize, 2, 16, 28, 100] {
        let c = t.socket();
        sys::connect(c.raw(), &a).unwrap();
        let me = addr::encode(&sys::sockname(c.raw()).unwrap());
        let (k, b, len) = sys::accept_addr(l.raw(), 0, cap).unwrap();
        t.prove("server", &k);
        t.rec("length", len);
        t.rec("bytes", b.len());
        t.rec("is the client", me.starts_with(&b));
    }
}

fn accept_nonblock(t: &mut T) {
    let (l, a) = t.listener();
    sys::nonblock(l.raw(), true);
    t.ok("empty", &sys::accept(l.raw()));
    let c = t.socket();
    sys::connect(c.raw(), &a).unwrap();
    t.poll_for("poll", l.raw(), libc::POLLIN);
    let k = sys::accept(l.raw()).unwrap();
    t.prove("server", &k);
    // SAFETY: no pointers.
    let fl = unsafe { libc::fcntl(k.raw(), libc::F_GETFL) };
    t.rec("child nonblock", fl & libc::O_NONBLOCK != 0);
    t.ok("empty again", &sys::accept(l.raw()));
}

fn accept_timeout(t: &mut T) {
    let (l, _) = t.listener();
    sys::set_timeo(l.raw(), libc::SO_RCVTIMEO, 200).unwrap();
    let t0 = Instant::now();
    t.ok("accept", &sys::accept(l.raw()));
    t.took("time", t0, 200);
}

fn accept_interrupted(t: &mut T) {
    let (l, a) = t.listener();
    let t0 = Instant::now();
    t.ok(
        "accept",
        &crate::connect::interrupted(100, || sys::accept(l.raw())),
    );
    t.took("time", t0, 100);
    // With SA_RESTART it goes on, and a client that comes later is taken.
    crate::connect::alarm_once(60);
    let c = t.socket();
    let cr = c.raw();
    let th = std::thread::spawn(move || {
        sys::sleep_ms(150);
        sys::connect(cr, &a)
    });
    t.ok("restarted", &sys::accept(l.raw()));
    t.res("connect", &th.join().unwrap());
}

fn accept_dead_clients(t: &mut T) {
    let (l, a) = t.listener();
    // Gone by FIN before accept, with and without data; gone by RST.
    let c1 = t.socket();
    sys::connect(c1.raw(), &a).unwrap();
    drop(c1);
    let c2 = t.socket();
    sys::connect(c2.raw(), &a).unwrap();
    sys::send(c2.raw(), b"last words", 0).unwrap();
    drop(c2);
    let c3 = t.socket();
    sys::connect(c3.raw(), &a).unwrap();
    sys::linger(c3.raw(), 1, 0).unwrap();
    drop(c3);
    sys::sleep_ms(30);
    // In which order they come out is not promised: handshakes run side by side.
    let mut v = Vec::new();
    for _ in 0..3 {
        let k = sys::accept(l.raw()).unwrap();
        let name = st::errno::show_ok(&sys::peername(k.raw()));
        let e = sys::events(i32::from(sys::poll_until(k.raw(), libc::POLLIN, 3000)));
        let said = || match sys::recv_vec(k.raw(), 64, 0) {
            Ok(b) => format!("{:?}", String::from_utf8_lossy(&b)),
            Err(e) => e.to_string(),
        };
        v.push(format!("{} then {}; peer {name} poll {e}", said(), said()));
    }
    v.sort();
    for x in v {
        t.rec("accepted", x);
    }
}

fn accept_backlog(t: &mut T) {
    let (l, a) = t.listener_backlog(2);
    let mut v = Vec::new();
    for _ in 0..5 {
        let c = t.socket_with(libc::SOCK_NONBLOCK);
        let _ = sys::connect(c.raw(), &a);
        v.push(c);
    }
    sys::sleep_ms(100);
    let up = v
        .iter()
        .filter(|c| sys::poll1(c.raw(), libc::POLLOUT, 0) == Ok(libc::POLLOUT))
        .count();
    t.rec("some wait", up < 5);
    t.rec("backlog and one are in", up >= 3);
    // As the queue empties the rest gets in by retransmission.
    sys::set_timeo(l.raw(), libc::SO_RCVTIMEO, 10_000).unwrap();
    let mut ks = Vec::new();
    for _ in 0..5 {
        match sys::accept(l.raw()) {
            Ok(k) => ks.push(k),
            Err(e) => t.rec("accept", e),
        }
    }
    t.rec("all in", ks.len());
    for k in &ks {
        sys::send(k.raw(), b"x", 0).unwrap();
    }
    let ok = v
        .iter()
        .filter(|c| sys::poll_until(c.raw(), libc::POLLIN, 3000) & libc::POLLIN != 0);
    t.rec("all hear", ok.count());
}

fn accept_inherits(t: &mut T) {
    let (l, a) = t.listener();
    let s = libc::SOL_SOCKET;
    let opts = [
        ("KEEPALIVE", s, libc::SO_KEEPALIVE, 1),
        ("RCVLOWAT", s, libc::SO_RCVLOWAT, 7),
        ("PRIORITY", s, libc::SO_PRIORITY, 3),
        ("OOBINLINE", s, libc::SO_OOBINLINE, 1),
        ("NODELAY", libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        ("KEEPIDLE", libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
        (
            "USER_TIMEOUT",
            libc::IPPROTO_TCP,
            libc::TCP_USER_TIMEOUT,
            5000,
        ),
        ("SNDBUF", s, libc::SO_SNDBUF, 30_000),
        ("RCVBUF", s, libc::SO_RCVBUF, 30_000),
        ("MARK", s, libc::SO_MARK, 9),
        ("REUSEADDR", s, libc::SO_REUSEADDR, 1),
    ];
    for (n, l1, o, v) in opts {
        t.res(&format!("set {n}"), &sys::setopt(l.raw(), l1, o, v));
    }
    sys::linger(l.raw(), 1, 3).unwrap();
    let (_c, k) = t.pair_on(&l, &a);
    for (n, l1, o, _) in opts {
        t.res(&format!("child {n}"), &sys::getopt(k.raw(), l1, o));
    }
    let g = sys::getopt_raw(k.raw(), s, libc::SO_LINGER, 8);
    t.rec("child LINGER", format!("{g:?}"));
    t.res(
        "child ACCEPTCONN",
        &sys::getopt(k.raw(), s, libc::SO_ACCEPTCONN),
    );
}

/// TCP wakes nobody for less than SO_RCVLOWAT, and what opens a connection is little.
fn accept_low_water(t: &mut T) {
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    for (theirs, ours) in [(16, 1), (1000, 1), (1, 1000), (1000, 1000)] {
        let (l, a) = t.listener();
        t.res("listener", &sys::setopt(l.raw(), level, name, theirs));
        let c = t.socket();
        t.res("client", &sys::setopt(c.raw(), level, name, ours));
        t.res("connect", &sys::connect(c.raw(), &a));
        let k = sys::accept(l.raw()).unwrap();
        // An end that is not woken for the other's message gives SMC up: it takes the other for silent.
        let unheard = [PEERNOSMC, TIMEOUT_CL];
        let reason = |fd: &Fd| st::smcinfo::info(fd.raw()).map_or(0, |info| info.reason);
        let any = [&c, &k].iter().any(|end| unheard.contains(&reason(end)));
        t.rec("unheard", any);
        t.prove("client", &c);
        t.prove("server", &k);
        let bytes = vec![7; 1000];
        t.res("send", &sys::send(c.raw(), &bytes, 0));
        t.poll_for("data", k.raw(), libc::POLLIN);
        t.bytes("recv", &sys::recv_vec(k.raw(), 1000, 0));
        t.res("answer", &sys::send(k.raw(), &bytes, 0));
        t.poll_for("answer's", c.raw(), libc::POLLIN);
        t.bytes("recv answer", &sys::recv_vec(c.raw(), 1000, 0));
    }
}

/// A listener's SO_PEEK_OFF is its children's, from the first byte of the program's data on.
fn accept_peek_off(t: &mut T) {
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    for off in [0, 3, 4096] {
        let (l, a) = t.listener();
        t.res("set", &sys::setopt(l.raw(), level, name, off));
        let (c, k) = t.pair_on(&l, &a);
        t.res("child", &sys::getopt(k.raw(), level, name));
        sys::send(c.raw(), b"0123456789", 0).unwrap();
        t.poll_for("data", k.raw(), libc::POLLIN);
        for _ in 0..2 {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            t.bytes("peek", &sys::recv_vec(k.raw(), 2, flags));
        }
        t.res("then", &sys::getopt(k.raw(), level, name));
        t.bytes("all", &sys::recv_vec(k.raw(), 64, 0));
    }
    // The client's: what connect() reads is none of its program's stream.
    let (l, a) = t.listener();
    let c = t.socket();
    t.res("set", &sys::setopt(c.raw(), level, name, 4096));
    sys::connect(c.raw(), &a).unwrap();
    let k = sys::accept(l.raw()).unwrap();
    t.prove("client", &c);
    t.prove("server", &k);
    t.res("after connect", &sys::getopt(c.raw(), level, name));
    sys::send(k.raw(), b"hello", 0).unwrap();
    t.bytes("recv", &sys::recv_vec(c.raw(), 64, 0));
    t.res("after recv", &sys::getopt(c.raw(), level, name));
}

fn accept_defer(t: &mut T) {
    let (l, a) = t.listener();
    t.res(
        "TCP_DEFER_ACCEPT",
        &sys::setopt(l.raw(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 5),
    );
    t.res(
        "read",
        &sys::getopt(l.raw(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    );
    sys::nonblock(l.raw(), true);
    let c = t.socket();
    t.res("connect", &sys::connect(c.raw(), &a));
    t.res("send", &sys::send(c.raw(), b"first", 0));
    t.poll_for("listener", l.raw(), libc::POLLIN);
    let k = sys::accept(l.raw());
    t.ok("accept with data", &k);
    t.bytes("data", &sys::recv_vec(k.unwrap().raw(), 64, 0));
}

fn accept_from_two_threads(t: &mut T) {
    let (l, a) = t.listener_backlog(64);
    let lr = l.raw();
    let mk = || {
        std::thread::spawn(move || {
            let mut n = 0;
            let mut bytes = 0;
            sys::set_timeo(lr, libc::SO_RCVTIMEO, 1500).unwrap();
            while let Ok(k) = sys::accept(lr) {
                n += 1;
                bytes += sys::recv_all(k.raw(), 100).unwrap().len();
            }
            (n, bytes)
        })
    };
    let ths = [mk(), mk()];
    for _ in 0..60 {
        let c = t.socket();
        sys::connect(c.raw(), &a).unwrap();
        sys::send(c.raw(), b"abc", 0).unwrap();
    }
    let r = ths.map(|h| h.join().unwrap());
    t.rec("accepted", r[0].0 + r[1].0);
    t.rec("bytes", r[0].1 + r[1].1);
}

fn accept_errors(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket();
    sys::connect(c.raw(), &a).unwrap();
    // SAFETY: bad pointers on purpose.
    let r = unsafe { libc::accept4(l.raw(), 8 as *mut libc::sockaddr, &mut 16u32, 0) };
    t.ok("bad address pointer", &st::errno::cvt(i64::from(r)));
    if r >= 0 {
        drop(st::fd::Fd::new(r));
    }
    t.bytes(
        "recv on listener",
        &sys::recv_vec(l.raw(), 4, libc::MSG_DONTWAIT),
    );
    t.ok(
        "accept on stream",
        &sys::accept4(c.raw(), libc::SOCK_NONBLOCK),
    );
    t.ok("accept on closed", &sys::accept(-1));
    t.ok("accept on pipe", &sys::accept(Ep::new().raw()));
}

fn accept_listener_closed_first(t: &mut T) {
    let (l, a) = t.listener();
    let c1 = t.socket();
    sys::connect(c1.raw(), &a).unwrap();
    let c2 = t.socket();
    sys::connect(c2.raw(), &a).unwrap();
    let k2 = sys::accept(l.raw()).unwrap();
    // One waits unaccepted: it is reset. The accepted one lives.
    t.res("close listener", &l.close());
    t.poll_for("accepted's client", c1.raw(), libc::POLLIN | libc::POLLOUT);
    t.poll_for("waiting one", c2.raw(), libc::POLLHUP);
    t.bytes(
        "waiting one's recv",
        &sys::recv_vec(c2.raw(), 4, libc::MSG_DONTWAIT),
    );
    sys::send(k2.raw(), b"alive", 0).unwrap();
    t.poll_for("accepted one's poll", c1.raw(), libc::POLLIN);
    t.bytes(
        "accepted one's recv",
        &sys::recv_vec(c1.raw(), 8, libc::MSG_DONTWAIT),
    );
}

fn names_lengths(t: &mut T) {
    let (c, _s) = t.pair();
    for cap in [0u32, 1, 2, 8, 16, 28, 128] {
        let mut b = [0xaau8; 128];
        let mut len = cap;
        // SAFETY: the buffer is larger than any length used.
        let r = unsafe { libc::getsockname(c.raw(), b.as_mut_ptr().cast(), &mut len) };
        let used = b.iter().rposition(|x| *x != 0xaa).map_or(0, |p| p + 1);
        t.rec(
            &format!("getsockname {cap}"),
            format!("{r} len {len} written {used}"),
        );
    }
    let mut len = -1i32 as u32;
    let mut b = [0u8; 128];
    // SAFETY: the kernel refuses a negative length.
    let r = unsafe { libc::getpeername(c.raw(), b.as_mut_ptr().cast(), &mut len) };
    t.res("negative length", &st::errno::cvt(i64::from(r)));
    // SAFETY: a bad pointer on purpose.
    let r = unsafe { libc::getpeername(c.raw(), 8 as *mut _, &mut 16u32) };
    t.res("bad pointer", &st::errno::cvt(i64::from(r)));
}

fn names_after_close(t: &mut T) {
    let s = t.socket();
    t.ok("peer of fresh", &sys::peername(s.raw()));
    let (c, s) = t.pair();
    drop(s);
    t.poll_for("closed", c.raw(), libc::POLLRDHUP);
    t.ok("peer after its FIN", &sys::peername(c.raw()));
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::sleep_ms(20);
    t.ok("peer after both", &sys::peername(c.raw()));
    t.ok("own after both", &sys::sockname(c.raw()));
    let (c, s) = t.pair();
    sys::linger(s.raw(), 1, 0).unwrap();
    drop(s);
    t.poll_for("reset", c.raw(), libc::POLLERR);
    t.ok("peer after reset", &sys::peername(c.raw()));
    t.rec(
        "own port after reset",
        sys::sockname(c.raw()).unwrap().port() != 0,
    );
}
