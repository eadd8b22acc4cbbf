// SPDX-License-Identifier: GPL-2.0
//! bind and listen.

use crate::ctx::T;
use st::family::Ip;
use st::{addr, sys};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

crate::scenarios!(
    bind_basic,
    bind_errors,
    bind_in_use,
    bind_unspec,
    bind_any_names,
    listen_states,
    bind_reuseport,
    bind_reuseaddr_timewait,
    bind_v6only,
    bind_privileged_port
);

fn bind_basic(t: &mut T) {
    let s = t.socket();
    t.res("bind", &sys::bind(s.raw(), &t.addr(0)));
    let a = sys::sockname(s.raw()).unwrap();
    t.rec("port chosen", a.port() != 0);
    t.rec("ip", a.ip());
    t.res("bind twice", &sys::bind(s.raw(), &t.addr(0)));
    t.polled("poll bound", s.raw());
    t.res("close", &s.close());
    let s = t.socket();
    t.res("bind again after close", &sys::bind(s.raw(), &a));
}

fn bind_errors(t: &mut T) {
    let s = t.socket();
    let a = addr::encode(&t.addr(0));
    t.res("length 0", &sys::bind_raw(s.raw(), &a, 0));
    t.res("length 2", &sys::bind_raw(s.raw(), &a, 2));
    t.res("length 15", &sys::bind_raw(s.raw(), &a, 15));
    t.res(
        "length 24",
        &sys::bind_raw(s.raw(), &[&a[..], &[0; 16]].concat(), 24),
    );
    let mut u = a.clone();
    u[0..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    t.res("AF_UNIX", &sys::bind_raw(s.raw(), &u, u.len()));
    u[0..2].copy_from_slice(&43u16.to_ne_bytes());
    t.res("AF_SMC", &sys::bind_raw(s.raw(), &u, u.len()));
    let other: SocketAddr = if t.ip == Ip::V4 {
        "[::1]:0"
    } else {
        "127.0.0.1:0"
    }
    .parse()
    .unwrap();
    t.res("other family", &sys::bind(s.raw(), &other));
    let far: SocketAddr = if t.ip == Ip::V6 {
        "[2001:db8::1]:0".parse().unwrap()
    } else {
        SocketAddr::new(addr::v4(t.ip, [203, 0, 113, 1]), 0)
    };
    t.res("not ours", &sys::bind(s.raw(), &far));
    t.res(
        "long buffer",
        &sys::bind_raw(s.raw(), &[&a[..], &[0; 100]].concat(), 128),
    );
    // SAFETY: a bad pointer on purpose.
    let r = unsafe { libc::bind(s.raw(), 8 as *const libc::sockaddr, 16) };
    t.res("bad pointer", &st::errno::cvt(i64::from(r)));
}

fn bind_in_use(t: &mut T) {
    let (l, a) = t.listener();
    let s = t.socket();
    t.res("same port", &sys::bind(s.raw(), &a));
    t.res("still bindable", &sys::bind(s.raw(), &t.addr(0)));
    drop(l);
    // A TCP socket and one of the family share the port space.
    let (d, _) = st::family::Family::Tcp.triple(t.ip);
    let tcp = sys::socket(d, libc::SOCK_STREAM, 0).unwrap();
    sys::bind(tcp.raw(), &t.addr(0)).unwrap();
    let a = sys::sockname(tcp.raw()).unwrap();
    let s = t.socket();
    t.res("port of a tcp socket", &sys::bind(s.raw(), &a));
}

fn bind_unspec(t: &mut T) {
    let s = t.socket();
    let mut z = [0u8; 28];
    t.res("AF_UNSPEC any", &sys::bind_raw(s.raw(), &z, 28));
    let s = t.socket();
    z[4] = 127;
    z[7] = 1;
    t.res("AF_UNSPEC address", &sys::bind_raw(s.raw(), &z, 28));
}

fn bind_any_names(t: &mut T) {
    let s = t.socket();
    t.rec(
        "fresh",
        sys::sockname(s.raw())
            .map(|a| a.to_string())
            .unwrap_or_else(|e| e.to_string()),
    );
    t.res("listen unbound", &sys::listen(s.raw(), 4));
    let a = sys::sockname(s.raw()).unwrap();
    t.rec("ip", a.ip());
    t.rec("port chosen", a.port() != 0);
    let c = t.socket();
    t.res("connect", &sys::connect(c.raw(), &t.addr(a.port())));
    t.prove("client", &c);
    let k = sys::accept(s.raw()).unwrap();
    t.rec("child ip", sys::sockname(k.raw()).unwrap().ip());
    t.rec("peer ip", sys::peername(k.raw()).unwrap().ip());
}

fn listen_states(t: &mut T) {
    let s = t.socket();
    t.ok("accept before listen", &sys::accept(s.raw()));
    t.res("bind", &sys::bind(s.raw(), &t.addr(0)));
    t.ok("accept bound", &sys::accept(s.raw()));
    t.res("listen", &sys::listen(s.raw(), 1));
    t.res("listen again", &sys::listen(s.raw(), 8));
    t.res("listen negative", &sys::listen(s.raw(), -1));
    t.polled("poll listening", s.raw());
    t.res("bind listening", &sys::bind(s.raw(), &t.addr(0)));
    let a = sys::sockname(s.raw()).unwrap();
    t.res("connect listening", &sys::connect(s.raw(), &a));
    t.ok("getpeername", &sys::peername(s.raw()));
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, libc::MSG_DONTWAIT));
    t.res("send", &sys::send(s.raw(), b"x", libc::MSG_DONTWAIT));
    t.res(
        "ACCEPTCONN",
        &sys::getopt(s.raw(), libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
    );
    t.res("shutdown WR", &sys::shutdown(s.raw(), libc::SHUT_WR));
    t.polled("poll after WR", s.raw());
    t.res("shutdown RD", &sys::shutdown(s.raw(), libc::SHUT_RD));
    t.polled("poll after RD", s.raw());
    t.ok(
        "accept after shutdown",
        &sys::accept4(s.raw(), libc::SOCK_NONBLOCK),
    );
    let c = t.socket();
    t.res("connect after shutdown", &sys::connect(c.raw(), &a));
    t.res("listen after shutdown", &sys::listen(s.raw(), 4));
    // The shutdown gave the port up; this is another one.
    let a = sys::sockname(s.raw()).unwrap();
    let (c, k) = t.pair_on(&s, &a);
    t.res("listen on connected", &sys::listen(c.raw(), 4));
    t.res("bind on connected", &sys::bind(c.raw(), &t.addr(0)));
    t.ok(
        "accept on connected",
        &sys::accept4(k.raw(), libc::SOCK_NONBLOCK),
    );
}

fn bind_reuseport(t: &mut T) {
    let mk = |t: &mut T, a: &SocketAddr| {
        let s = t.socket();
        t.res(
            "SO_REUSEPORT",
            &sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1),
        );
        t.res("bind", &sys::bind(s.raw(), a));
        t.res("listen", &sys::listen(s.raw(), 64));
        s
    };
    let a = t.addr(0);
    let l1 = mk(t, &a);
    let a = sys::sockname(l1.raw()).unwrap();
    let l2 = mk(t, &a);
    let mut cs = Vec::new();
    for _ in 0..40 {
        let c = t.socket();
        sys::connect(c.raw(), &a).unwrap();
        cs.push(c);
    }
    sys::nonblock(l1.raw(), true);
    sys::nonblock(l2.raw(), true);
    let (mut x, mut y) = (0, 0);
    // The client may be done before the server is.
    let end = Instant::now() + Duration::from_secs(3);
    while x + y < 40 && Instant::now() < end {
        x += usize::from(sys::accept(l1.raw()).is_ok());
        y += usize::from(sys::accept(l2.raw()).is_ok());
    }
    t.rec("all accepted", x + y);
    t.rec("both got some", x > 0 && y > 0);
    let s = t.socket();
    t.res("without the option", &sys::bind(s.raw(), &a));
}

fn bind_reuseaddr_timewait(t: &mut T) {
    let (l, a) = t.listener();
    let (c, s) = t.pair_on(&l, &a);
    // The server closes first: its port stays in TIME_WAIT.
    drop(s);
    t.bytes("client EOF", &sys::recv_vec(c.raw(), 8, 0));
    drop(c);
    drop(l);
    sys::sleep_ms(50);
    let s = t.socket();
    t.res("without SO_REUSEADDR", &sys::bind(s.raw(), &a));
    let s = t.socket();
    sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    t.res("with SO_REUSEADDR", &sys::bind(s.raw(), &a));
    t.res("listen", &sys::listen(s.raw(), 4));
}

fn bind_v6only(t: &mut T) {
    let s = t.socket();
    t.ok(
        "IPV6_V6ONLY",
        &sys::setopt(s.raw(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1),
    );
    let any = SocketAddr::new(addr::any(t.ip), 0);
    t.res("bind any", &sys::bind(s.raw(), &any));
    sys::listen(s.raw(), 4).unwrap();
    let port = sys::sockname(s.raw()).unwrap().port();
    let c = t.socket();
    t.res("connect", &sys::connect(c.raw(), &t.addr(port)));
    t.ok(
        "change when bound",
        &sys::setopt(s.raw(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0),
    );
}

fn bind_privileged_port(t: &mut T) {
    // SAFETY: no pointers; only this child changes its user.
    unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
    let s = t.socket();
    t.res("port 80 as nobody", &sys::bind(s.raw(), &t.addr(80)));
    t.res("port 8080 as nobody", &sys::bind(s.raw(), &t.addr(8080)));
}
