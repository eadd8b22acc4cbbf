// SPDX-License-Identifier: GPL-2.0
//! What takes a socket from the family, or would: kernel TLS, repair, filters and stamps of packets that are
//! asked for before the connection.

use crate::ctx::T;
use crate::data::{iov, msg, recvmsg};
use st::errno::R;
use st::fd::Fd;
use st::sys;

crate::scenarios!(
    replace_ulp_unconnected,
    replace_ulp_connected,
    replace_repair_unconnected,
    replace_repair_connected,
    replace_filter_before,
    replace_stamping_before,
);

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const TCP_ULP: i32 = 31;
const SOL_TLS: i32 = 282;

fn ulp(fd: &Fd, name: &str) -> R<i64> {
    sys::setopt_raw(fd.raw(), TCP, TCP_ULP, name.as_bytes())
}

/// Keys for both directions: TLS 1.2, AES-GCM 128, the same for all.
fn keys(fd: &Fd) {
    let mut value = [7u8; 40];
    value[..2].copy_from_slice(&0x0303u16.to_ne_bytes());
    value[2..4].copy_from_slice(&51u16.to_ne_bytes());
    value[32..].fill(0);
    for direction in [1, 2] {
        sys::setopt_raw(fd.raw(), SOL_TLS, direction, &value).expect("keys");
    }
}

fn talk(t: &mut T, c: &Fd, s: &Fd) {
    for (from, to) in [(c, s), (s, c)] {
        t.res("send", &sys::send(from.raw(), b"some bytes", 0));
        t.bytes("recv", &sys::recv_all(to.raw(), 10));
    }
}

/// The answers of sockets without a connection, and a connection after that.
fn replace_ulp_unconnected(t: &mut T) {
    let (l, a) = t.listener();
    t.ok("listener", &ulp(&l, "tls"));
    for name in ["tls", "nothing", ""] {
        let c = t.socket();
        t.res(&format!("\"{name}\""), &ulp(&c, name));
        t.res("connect", &sys::connect(c.raw(), &a));
        let s = sys::accept(l.raw()).unwrap();
        talk(t, &c, &s);
        // Of the client nothing of the family is left.
        t.prove("server", &s);
    }
    let c = t.socket_with(libc::SOCK_NONBLOCK);
    let b = t.black_hole();
    let _ = sys::connect(c.raw(), &b);
    t.res("connecting", &ulp(&c, "tls"));
}

/// A connection goes on by kernel TLS, or as it is: as TLS libraries do it.
fn replace_ulp_connected(t: &mut T) {
    let (c, s) = t.pair();
    talk(t, &c, &s);
    let set = [&c, &s].map(|fd| ulp(fd, "tls"));
    t.res("client", &set[0]);
    t.res("server", &set[1]);
    for (fd, set) in [&c, &s].into_iter().zip(&set) {
        if set.is_ok() {
            keys(fd);
        }
    }
    talk(t, &c, &s);
}

fn repair(fd: &Fd, on: i32) -> R<i64> {
    sys::setopt(fd.raw(), TCP, libc::TCP_REPAIR, on)
}

fn replace_repair_unconnected(t: &mut T) {
    let (l, a) = t.listener();
    t.res("listener", &repair(&l, 1));
    let c = t.socket();
    t.res("on", &repair(&c, 1));
    let queue = sys::setopt(c.raw(), TCP, libc::TCP_REPAIR_QUEUE, 2);
    t.res("queue", &queue);
    let number = sys::setopt(c.raw(), TCP, libc::TCP_QUEUE_SEQ, 4711);
    t.res("number", &number);
    t.res("off", &repair(&c, 0));
    t.res("connect", &sys::connect(c.raw(), &a));
    let s = sys::accept(l.raw()).unwrap();
    t.prove("client", &c);
    t.prove("server", &s);
    talk(t, &c, &s);
}

/// A checkpoint of a connection that goes on.
fn replace_repair_connected(t: &mut T) {
    let (c, s) = t.pair();
    talk(t, &c, &s);
    let on = repair(&s, 1);
    t.res("on", &on);
    if on.is_ok() {
        for queue in [1, 2] {
            sys::setopt(s.raw(), TCP, libc::TCP_REPAIR_QUEUE, queue).expect("queue");
            sys::getopt(s.raw(), TCP, libc::TCP_QUEUE_SEQ).expect("number");
        }
    }
    t.res("off", &repair(&s, 0));
    talk(t, &c, &s);
}

/// A filter that lets the first bytes of each packet pass.
fn filter(fd: &Fd, bytes: u32) -> R<i64> {
    let code = [0x06u64 | (u64::from(bytes) << 32)];
    let mut program = [0u8; 16];
    program[..2].copy_from_slice(&1u16.to_ne_bytes());
    program[8..].copy_from_slice(&(code.as_ptr() as u64).to_ne_bytes());
    sys::setopt_raw(fd.raw(), SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// What has a filter when it connects, or comes of a listener with one, is filtered.
fn replace_filter_before(t: &mut T) {
    for listens in [false, true] {
        let (l, a) = t.listener();
        let c = t.socket();
        let with = if listens { &l } else { &c };
        t.res("filter", &filter(with, u32::MAX));
        t.res("connect", &sys::connect(c.raw(), &a));
        let s = sys::accept(l.raw()).unwrap();
        talk(t, &c, &s);
        t.prove("client", &c);
        t.prove("server", &s);
        let (from, to) = if listens { (&c, &s) } else { (&s, &c) };
        t.res("deaf", &filter(to, 0));
        t.res("send", &sys::send(from.raw(), b"kept back", 0));
        let seen = sys::poll_until(to.raw(), libc::POLLIN, 300);
        t.rec("seen", sys::events(i32::from(seen)));
        let detach = sys::setopt(to.raw(), SOCKET, libc::SO_DETACH_FILTER, 0);
        t.res("detach", &detach);
        t.bytes("recv", &sys::recv_all(to.raw(), 9));
    }
}

/// Whether recvmsg() says when its bytes came, or, with `MSG_ERRQUEUE`, when they went.
fn stamped(fd: &Fd, flags: i32) -> bool {
    let (mut control, mut bytes) = ([0u64; 64], [0u8; 64]);
    let mut pieces = [iov(&mut bytes)];
    let mut m = msg(&mut pieces);
    m.msg_control = control.as_mut_ptr().cast();
    m.msg_controllen = size_of_val(&control) as _;
    if recvmsg(fd.raw(), &mut m, flags | libc::MSG_DONTWAIT).is_err() {
        return false;
    }
    let wanted = (SOCKET as u32 as u64) | ((libc::SO_TIMESTAMPING as u64) << 32);
    control[1] == wanted && m.msg_controllen >= 16
}

fn replace_stamping_before(t: &mut T) {
    // SOF_TIMESTAMPING_SOFTWARE, with TX_SOFTWARE and OPT_TSONLY, or RX_SOFTWARE
    let (sent, received) = ((1 << 4) | (1 << 1) | (1 << 11), (1 << 4) | (1 << 3));
    let on = |fd: &Fd, flags| sys::setopt(fd.raw(), SOCKET, libc::SO_TIMESTAMPING, flags);
    let (l, a) = t.listener();
    t.res("listener", &on(&l, received));
    let c = t.socket();
    t.res("client", &on(&c, sent));
    t.res("connect", &sys::connect(c.raw(), &a));
    let s = sys::accept(l.raw()).unwrap();
    // A worker of the kernel turns the stamps of packets on.
    sys::sleep_ms(100);
    for _ in 0..2 {
        t.res("send", &sys::send(c.raw(), b"stamped", 0));
        t.poll_for("arrives", s.raw(), libc::POLLIN);
        t.rec("stamp of what came", stamped(&s, 0));
        t.poll_for("told", c.raw(), libc::POLLERR);
        t.rec("stamp of what went", stamped(&c, libc::MSG_ERRQUEUE));
    }
    t.prove("client", &c);
    t.prove("server", &s);
}
