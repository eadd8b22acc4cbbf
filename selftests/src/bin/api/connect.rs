// SPDX-License-Identifier: GPL-2.0
//! connect in all its ways.

use crate::ctx::T;
use st::family::Ip;
use st::{addr, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

crate::scenarios!(
    connect_blocking,
    connect_refused,
    connect_errors,
    connect_nonblock,
    connect_nonblock_epoll,
    connect_nonblock_refused,
    connect_black_hole,
    connect_timeout,
    connect_interrupted,
    connect_restarted,
    connect_unspec,
    connect_unspec_unread,
    connect_to_itself,
    connect_tcp_listener,
    connect_from_tcp,
    connect_unreachable,
    connect_close_while_connecting,
    connect_shutdown_while_connecting,
    connect_bound,
    connect_many,
    connect_syn_retries
);

fn connect_blocking(t: &mut T) {
    let (l, a) = t.listener();
    let (c, s) = t.pair_on(&l, &a);
    t.rec("peer of client", sys::peername(c.raw()).unwrap() == a);
    t.rec(
        "peer of server",
        sys::peername(s.raw()).unwrap() == sys::sockname(c.raw()).unwrap(),
    );
    t.res("send", &sys::send(c.raw(), b"hello", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 64, 0));
    t.res("send back", &sys::send(s.raw(), b"world", 0));
    t.bytes("recv back", &sys::recv_vec(c.raw(), 64, 0));
    t.res("connect again", &sys::connect(c.raw(), &a));
    t.res("connect on accepted", &sys::connect(s.raw(), &a));
    t.so_error("SO_ERROR", c.raw());
    t.res("close client", &c.close());
    t.bytes("EOF", &sys::recv_vec(s.raw(), 64, 0));
    t.res("close server", &s.close());
}

fn connect_refused(t: &mut T) {
    let a = t.closed_port();
    let s = t.socket();
    t.res("connect", &sys::connect(s.raw(), &a));
    t.so_error("SO_ERROR", s.raw());
    t.polled("poll", s.raw());
    t.ok("getpeername", &sys::peername(s.raw()));
    t.res("connect again", &sys::connect(s.raw(), &a));
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, libc::MSG_DONTWAIT));
    // The socket can still be used for a connection that works.
    let (l, a) = t.listener();
    t.res("connect elsewhere", &sys::connect(s.raw(), &a));
    let k = sys::accept(l.raw()).unwrap();
    t.prove("client", &s);
    t.prove("server", &k);
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(k.raw(), 4, 0));
}

fn connect_errors(t: &mut T) {
    let (_l, a) = t.listener();
    let s = t.socket();
    let b = addr::encode(&a);
    t.res("length 0", &sys::connect_raw(s.raw(), &b, 0));
    t.res("length 1", &sys::connect_raw(s.raw(), &b, 1));
    t.res("length 2", &sys::connect_raw(s.raw(), &b, 2));
    t.res("length 15", &sys::connect_raw(s.raw(), &b, 15));
    let mut u = b.clone();
    u[0..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    t.res("AF_UNIX", &sys::connect_raw(s.raw(), &u, u.len()));
    u[0..2].copy_from_slice(&43u16.to_ne_bytes());
    t.res("AF_SMC", &sys::connect_raw(s.raw(), &u, u.len()));
    let other: SocketAddr = if t.ip == Ip::V4 {
        "[::1]:9"
    } else {
        "127.0.0.1:9"
    }
    .parse()
    .unwrap();
    t.res("other family", &sys::connect(s.raw(), &other));
    // SAFETY: a bad pointer on purpose.
    let r = unsafe { libc::connect(s.raw(), 8 as *const libc::sockaddr, 16) };
    t.res("bad pointer", &st::errno::cvt(i64::from(r)));
    t.res("right after all", &sys::connect(s.raw(), &a));
    t.prove("client", &s);
    let s = t.socket();
    t.res("port 0", &sys::connect(s.raw(), &t.addr(0)));
    let s = t.socket();
    let any = SocketAddr::new(addr::any(t.ip), a.port());
    t.res("wildcard means loopback", &sys::connect(s.raw(), &any));
    let s = t.socket();
    t.res("disconnect fresh", &sys::connect_unspec(s.raw()));
}

fn connect_nonblock(t: &mut T) {
    let (l, a) = t.listener();
    let s = t.socket_with(libc::SOCK_NONBLOCK);
    t.res("connect", &sys::connect(s.raw(), &a));
    t.poll_for("poll", s.raw(), libc::POLLOUT);
    t.so_error("SO_ERROR", s.raw());
    t.prove("client", &s);
    t.ok("getpeername", &sys::peername(s.raw()));
    t.res("second", &sys::connect(s.raw(), &a));
    t.res("third", &sys::connect(s.raw(), &a));
    let k = sys::accept(l.raw()).unwrap();
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
    t.res("send", &sys::send(s.raw(), b"data", 0));
    t.bytes("server recv", &sys::recv_vec(k.raw(), 4, 0));
}

fn connect_nonblock_epoll(t: &mut T) {
    let (l, a) = t.listener();
    let s = t.socket_with(libc::SOCK_NONBLOCK);
    // Added before connect, edge triggered: the edge of the connection must arrive.
    let ep = crate::poll::Ep::new();
    ep.add(
        s.raw(),
        libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET,
        1,
    );
    t.rec("fresh", ep.wait(0));
    t.rec("fresh again", ep.wait(0));
    t.res("connect", &sys::connect(s.raw(), &a));
    t.rec("connected", ep.wait(2000));
    let k = sys::accept(l.raw()).unwrap();
    t.prove("client", &s);
    sys::sleep_ms(30);
    let _ = ep.wait(0);
    t.rec("quiet", ep.wait(30));
    t.res("server sends", &sys::send(k.raw(), b"x", 0));
    t.rec("data", ep.wait(2000));
    t.rec("no new edge", ep.wait(30));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
    drop(k);
    t.rec("peer closed", ep.wait_for("RDHUP"));
}

fn connect_nonblock_refused(t: &mut T) {
    let a = t.closed_port();
    let s = t.socket_with(libc::SOCK_NONBLOCK);
    let r = sys::connect(s.raw(), &a);
    t.res("connect", &r);
    t.poll_for("poll", s.raw(), libc::POLLERR);
    t.so_error("SO_ERROR", s.raw());
    t.so_error("SO_ERROR again", s.raw());
    t.polled("poll after", s.raw());
    t.res("connect again", &sys::connect(s.raw(), &a));
    t.poll_for("poll again", s.raw(), libc::POLLERR);
    t.res("connect collects error", &sys::connect(s.raw(), &a));
}

fn connect_black_hole(t: &mut T) {
    let a = t.black_hole();
    let s = t.socket_with(libc::SOCK_NONBLOCK);
    t.res("connect", &sys::connect(s.raw(), &a));
    t.res("again", &sys::connect(s.raw(), &a));
    t.polled("poll", s.raw());
    t.so_error("SO_ERROR", s.raw());
    t.ok("getpeername", &sys::peername(s.raw()));
    t.ok("getsockname", &sys::sockname(s.raw()));
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
    t.res("listen", &sys::listen(s.raw(), 3));
    t.res("bind", &sys::bind(s.raw(), &t.addr(0)));
    t.res("disconnect", &sys::connect_unspec(s.raw()));
    t.polled("poll disconnected", s.raw());
    let (_l, a) = t.listener();
    t.res("connect elsewhere", &sys::connect(s.raw(), &a));
    t.poll_for("poll", s.raw(), libc::POLLOUT);
    t.prove("client", &s);
}

fn connect_timeout(t: &mut T) {
    let a = t.black_hole();
    let s = t.socket();
    t.res(
        "SO_SNDTIMEO",
        &sys::set_timeo(s.raw(), libc::SO_SNDTIMEO, 300),
    );
    let t0 = Instant::now();
    t.res("connect", &sys::connect(s.raw(), &a));
    t.took("time", t0, 300);
    let t0 = Instant::now();
    t.res("again", &sys::connect(s.raw(), &a));
    t.took("time again", t0, 300);
    t.res("close", &s.close());
}

/// Number of SIGALRM seen.
pub static ALARMS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_alarm(_: i32) {
    if ALARMS.fetch_add(1, Ordering::SeqCst) == 0 {
        return;
    }
    // The second alarm must not restart the call.
    install(0);
    alarm(50, 0);
}

fn install(flags: i32) {
    // SAFETY: plain sigaction with an async-signal-safe handler.
    unsafe {
        let mut sa: libc::sigaction = std::mem::zeroed();
        sa.sa_sigaction = on_alarm as extern "C" fn(i32) as usize;
        sa.sa_flags = flags;
        libc::sigaction(libc::SIGALRM, &sa, std::ptr::null_mut());
    }
}

fn alarm(ms: i64, again: i64) {
    let it = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: again / 1000,
            tv_usec: (again % 1000) * 1000,
        },
        it_value: libc::timeval {
            tv_sec: ms / 1000,
            tv_usec: (ms % 1000) * 1000,
        },
    };
    // SAFETY: valid pointer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &it, std::ptr::null_mut()) };
}

/// SIGALRM in `ms`, with `SA_RESTART`. The handler counts; a restarting call is
/// interrupted for good by [`alarm_twice`].
pub fn alarm_once(ms: i64) {
    ALARMS.store(0, Ordering::SeqCst);
    install(libc::SA_RESTART);
    alarm(ms, 0);
}

/// Makes a call that a signal interrupts after `ms`. Should that come before the call sleeps, as where the machine
/// stands still meanwhile, another one does a second later.
pub fn interrupted<R>(ms: i64, call: impl FnOnce() -> R) -> R {
    ALARMS.store(0, Ordering::SeqCst);
    install(0);
    alarm(ms, 1000);
    let result = call();
    alarm(0, 0);
    result
}

/// Two alarms with `SA_RESTART`; the third, 50 ms after the second, without.
pub fn alarm_twice(ms: i64) {
    alarm_once(ms);
    let it = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: ms * 1000,
        },
        it_value: libc::timeval {
            tv_sec: 0,
            tv_usec: ms * 1000,
        },
    };
    // SAFETY: valid pointer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &it, std::ptr::null_mut()) };
}

fn connect_interrupted(t: &mut T) {
    let a = t.black_hole();
    let s = t.socket();
    let t0 = Instant::now();
    t.res("connect", &interrupted(100, || sys::connect(s.raw(), &a)));
    t.took("time", t0, 100);
    t.res("again", &interrupted(100, || sys::connect(s.raw(), &a)));
    sys::nonblock(s.raw(), true);
    t.res("non-blocking", &sys::connect(s.raw(), &a));
    t.polled("poll", s.raw());
}

fn connect_restarted(t: &mut T) {
    let a = t.black_hole();
    let s = t.socket();
    // From before the first alarm is set: a guest may stand still in between.
    let t0 = Instant::now();
    alarm_twice(80);
    t.res("connect", &sys::connect(s.raw(), &a));
    t.took("time", t0, 210);
    t.rec("alarms", ALARMS.load(Ordering::SeqCst) >= 3);
}

fn connect_unspec(t: &mut T) {
    let (l, a) = t.listener();
    let (c, s) = t.pair_on(&l, &a);
    sys::send(s.raw(), b"lost", 0).unwrap();
    t.res("disconnect", &sys::connect_unspec(c.raw()));
    t.ok("getpeername", &sys::peername(c.raw()));
    t.polled("poll", c.raw());
    t.bytes("recv", &sys::recv_vec(c.raw(), 8, libc::MSG_DONTWAIT));
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.poll_for("poll server", s.raw(), libc::POLLHUP);
    t.bytes(
        "server recv",
        &sys::recv_vec(s.raw(), 8, libc::MSG_DONTWAIT),
    );
    t.res("reconnect", &sys::connect(c.raw(), &a));
    t.prove("client again", &c);
    let s2 = sys::accept(l.raw()).unwrap();
    t.res("send", &sys::send(c.raw(), b"anew", 0));
    t.bytes("recv", &sys::recv_vec(s2.raw(), 8, 0));
    // A disconnected listener stops listening and can connect.
    t.res("disconnect listener", &sys::connect_unspec(l.raw()));
    let d = t.socket();
    t.res("connect to it", &sys::connect(d.raw(), &a));
    let (_l2, a2) = t.listener();
    t.res("old listener connects", &sys::connect(l.raw(), &a2));
}

/// What the connection that was left had for its reader is nothing to the next one: its close is an end,
/// no reset.
fn connect_unspec_unread(t: &mut T) {
    let (l, a) = t.listener();
    let (c, s) = t.pair_on(&l, &a);
    // So that later bytes go by whatever carrier this kind of connection has.
    for (from, to) in [(&c, &s), (&s, &c), (&c, &s), (&s, &c)] {
        t.res("send", &sys::send(from.raw(), b"before", 0));
        t.bytes("recv", &sys::recv_vec(to.raw(), 8, 0));
    }
    t.prove("moved", &c);
    t.res("send unread", &sys::send(s.raw(), b"unread", 0));
    t.res("disconnect", &sys::connect_unspec(c.raw()));
    t.res("reconnect", &sys::connect(c.raw(), &a));
    let s2 = sys::accept(l.raw()).unwrap();
    for (from, to) in [(&c, &s2), (&s2, &c)] {
        t.res("send anew", &sys::send(from.raw(), b"after", 0));
        t.bytes("recv anew", &sys::recv_vec(to.raw(), 8, 0));
    }
    t.res("send last", &sys::send(c.raw(), b"last", 0));
    t.res("close", &c.close());
    t.bytes("recv last", &sys::recv_vec(s2.raw(), 8, 0));
    t.bytes("recv end", &sys::recv_vec(s2.raw(), 8, 0));
    t.so_error("SO_ERROR", s2.raw());
    t.res("send into it", &sys::send(s2.raw(), b"x", 0));
}

fn connect_to_itself(t: &mut T) {
    let s = t.socket();
    sys::bind(s.raw(), &t.addr(0)).unwrap();
    let a = sys::sockname(s.raw()).unwrap();
    sys::set_timeo(s.raw(), libc::SO_SNDTIMEO, 3000).unwrap();
    sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 3000).unwrap();
    t.res("connect", &sys::connect(s.raw(), &a));
    t.rec(
        "peer is itself",
        sys::peername(s.raw()).is_ok_and(|p| p == a),
    );
    t.res("send", &sys::send(s.raw(), b"me", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.res("shutdown", &sys::shutdown(s.raw(), libc::SHUT_WR));
    t.bytes("EOF", &sys::recv_vec(s.raw(), 8, 0));
}

fn connect_tcp_listener(t: &mut T) {
    let (d, _) = st::family::Family::Tcp.triple(t.ip);
    let l = sys::socket(d, libc::SOCK_STREAM, 0).unwrap();
    sys::bind(l.raw(), &t.addr(0)).unwrap();
    sys::listen(l.raw(), 4).unwrap();
    let a = sys::sockname(l.raw()).unwrap();
    let (c, s) = {
        let c = t.socket();
        t.res("connect", &sys::connect(c.raw(), &a));
        (c, sys::accept(l.raw()).unwrap())
    };
    t.prove("client", &c);
    // The server speaks first: nothing of a handshake may precede it or the answer.
    t.res("server speaks", &sys::send(s.raw(), b"220 hi", 0));
    t.bytes("client hears", &sys::recv_vec(c.raw(), 64, 0));
    t.res("client answers", &sys::send(c.raw(), b"HELO", 0));
    t.bytes("server hears", &sys::recv_vec(s.raw(), 64, 0));
}

fn connect_from_tcp(t: &mut T) {
    let (l, a) = t.listener();
    let (d, _) = st::family::Family::Tcp.triple(t.ip);
    let c = sys::socket(d, libc::SOCK_STREAM, 0).unwrap();
    t.res("connect", &sys::connect(c.raw(), &a));
    t.res("client speaks first", &sys::send(c.raw(), b"GET /", 0));
    let s = sys::accept(l.raw()).unwrap();
    t.prove("server", &s);
    t.bytes("server hears", &sys::recv_vec(s.raw(), 64, 0));
    t.res("server answers", &sys::send(s.raw(), b"200", 0));
    t.bytes("client hears", &sys::recv_vec(c.raw(), 64, 0));
    t.res("shutdown", &sys::shutdown(s.raw(), libc::SHUT_WR));
    t.bytes("EOF", &sys::recv_vec(c.raw(), 64, 0));
}

fn connect_unreachable(t: &mut T) {
    let far = if t.ip == Ip::V6 {
        "[2001:db8::1]:80".parse().unwrap()
    } else {
        SocketAddr::new(addr::v4(t.ip, [203, 0, 113, 1]), 80)
    };
    let s = t.socket();
    t.res("connect", &sys::connect(s.raw(), &far));
    t.polled("poll", s.raw());
    sys::nonblock(s.raw(), true);
    t.res("non-blocking", &sys::connect(s.raw(), &far));
    t.so_error("SO_ERROR", s.raw());
    sys::nonblock(s.raw(), false);
    let (_l, a) = t.listener();
    t.res("elsewhere", &sys::connect(s.raw(), &a));
    t.prove("client", &s);
}

fn connect_close_while_connecting(t: &mut T) {
    let a = t.black_hole();
    let (l, la) = t.listener();
    for i in 0..3 {
        let s = t.socket_with(libc::SOCK_NONBLOCK);
        t.res("connect", &sys::connect(s.raw(), &a));
        sys::sleep_ms(i * 20);
        t.res("close", &s.close());
    }
    for _ in 0..3 {
        let s = t.socket_with(libc::SOCK_NONBLOCK);
        let _ = sys::connect(s.raw(), &la);
        t.res("close at once", &s.close());
    }
    // The listener lives on; whatever those left in its queue ends by itself.
    sys::nonblock(l.raw(), true);
    sys::sleep_ms(50);
    while let Ok(k) = sys::accept(l.raw()) {
        sys::set_timeo(k.raw(), libc::SO_RCVTIMEO, 2000).unwrap();
        let r = sys::recv_vec(k.raw(), 8, 0);
        if !matches!(&r, Ok(v) if v.is_empty())
            && !matches!(r, Err(st::errno::Errno(libc::ECONNRESET)))
        {
            t.bytes("left over", &r);
        }
    }
    sys::nonblock(l.raw(), false);
    let (c, s) = t.pair_on(&l, &la);
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 4, 0));
}

fn connect_shutdown_while_connecting(t: &mut T) {
    let a = t.black_hole();
    let s = t.socket_with(libc::SOCK_NONBLOCK);
    t.res("connect", &sys::connect(s.raw(), &a));
    t.res("shutdown", &sys::shutdown(s.raw(), libc::SHUT_RDWR));
    t.polled("poll", s.raw());
    t.so_error("SO_ERROR", s.raw());
    let s = t.socket();
    t.res("shutdown fresh", &sys::shutdown(s.raw(), libc::SHUT_RDWR));
}

fn connect_bound(t: &mut T) {
    let (l, a) = t.listener();
    let c = t.socket();
    sys::bind(c.raw(), &t.addr(0)).unwrap();
    let me = sys::sockname(c.raw()).unwrap();
    t.res("connect", &sys::connect(c.raw(), &a));
    let s = sys::accept(l.raw()).unwrap();
    t.prove("client", &c);
    t.rec(
        "peer is the bound port",
        sys::peername(s.raw()).unwrap() == me,
    );
    t.rec("name kept", sys::sockname(c.raw()).unwrap() == me);
}

fn connect_many(t: &mut T) {
    let (l, a) = t.listener_backlog(64);
    let mut v = Vec::new();
    for i in 0..50u8 {
        let c = t.socket();
        sys::connect(c.raw(), &a).unwrap();
        sys::send(c.raw(), &[i], 0).unwrap();
        v.push(c);
    }
    let mut got = Vec::new();
    let mut ks = Vec::new();
    for _ in 0..50 {
        let k = sys::accept(l.raw()).unwrap();
        got.extend(sys::recv_vec(k.raw(), 1, 0).unwrap());
        ks.push(k);
    }
    got.sort_unstable();
    t.rec("each arrived once", got == (0..50).collect::<Vec<u8>>());
}

fn connect_syn_retries(t: &mut T) {
    let a = t.black_hole();
    let s = t.socket();
    t.res(
        "TCP_SYNCNT",
        &sys::setopt(s.raw(), libc::IPPROTO_TCP, libc::TCP_SYNCNT, 1),
    );
    let t0 = Instant::now();
    t.res("connect", &sys::connect(s.raw(), &a));
    t.took("time", t0, 2900);
    t.polled("poll", s.raw());
    t.so_error("SO_ERROR", s.raw());
    let (_l, a) = t.listener();
    t.res("elsewhere", &sys::connect(s.raw(), &a));
    t.prove("client", &s);
}
