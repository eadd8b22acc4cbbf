// SPDX-License-Identifier: GPL-2.0
//! Urgent data.

use crate::ctx::T;
use st::fd::Fd;
use st::sys;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

crate::scenarios!(
    oob_separate,
    oob_inline,
    oob_two_marks,
    oob_errors,
    oob_sigurg,
    oob_announced,
    oob_peek_and_eof
);

fn oob_separate(t: &mut T) {
    let (c, s) = t.pair();
    sys::set_timeo(c.raw(), libc::SO_SNDTIMEO, 200).unwrap();
    t.res("send", &sys::send(c.raw(), b"abc", 0));
    t.res("urgent", &sys::send(c.raw(), b"xyZ", libc::MSG_OOB));
    t.res("after", &sys::send(c.raw(), b"def", 0));
    t.poll_for("poll", s.raw(), libc::POLLPRI);
    t.bytes("urgent byte", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    t.bytes("only once", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    t.bytes("before the mark", &sys::recv_vec(s.raw(), 64, 0));
    t.bytes(
        "after the mark",
        &sys::recv_vec(s.raw(), 64, libc::MSG_DONTWAIT),
    );
    t.polled("quiet", s.raw());
}

fn oob_inline(t: &mut T) {
    let (c, s) = t.pair();
    sys::set_timeo(c.raw(), libc::SO_SNDTIMEO, 200).unwrap();
    t.res(
        "OOBINLINE",
        &sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_OOBINLINE, 1),
    );
    sys::send(c.raw(), b"ab", 0).unwrap();
    sys::send(c.raw(), b"!", libc::MSG_OOB).unwrap();
    t.res("after", &sys::send(c.raw(), b"cd", 0));
    t.poll_for("poll", s.raw(), libc::POLLPRI);
    t.bytes("MSG_OOB", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    t.bytes("up to the mark", &sys::recv_vec(s.raw(), 64, 0));
    t.bytes("from the mark", &sys::recv_vec(s.raw(), 64, 0));
}

fn oob_two_marks(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"a", libc::MSG_OOB).unwrap();
    sys::sleep_ms(20);
    sys::send(c.raw(), b"b", libc::MSG_OOB).unwrap();
    sys::sleep_ms(20);
    t.bytes("newest", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    t.bytes(
        "older in line",
        &sys::recv_vec(s.raw(), 8, libc::MSG_DONTWAIT),
    );
}

fn oob_errors(t: &mut T) {
    let (c, s) = t.pair();
    t.bytes("none", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    let f = t.socket();
    t.res("fresh send", &sys::send(f.raw(), b"x", libc::MSG_OOB));
    t.bytes("fresh recv", &sys::recv_vec(f.raw(), 8, libc::MSG_OOB));
    sys::send(c.raw(), b"q", libc::MSG_OOB).unwrap();
    sys::sleep_ms(20);
    t.bytes("length 0", &sys::recv_vec(s.raw(), 0, libc::MSG_OOB));
    t.bytes("byte", &sys::recv_vec(s.raw(), 1, libc::MSG_OOB));
}

static URG: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_urg(_: i32) {
    URG.fetch_add(1, Ordering::SeqCst);
}

fn oob_sigurg(t: &mut T) {
    let (c, s) = t.pair();
    // SAFETY: an async-signal-safe handler.
    unsafe {
        libc::signal(libc::SIGURG, on_urg as extern "C" fn(i32) as usize);
        libc::fcntl(s.raw(), libc::F_SETOWN, libc::getpid());
    }
    sys::send(c.raw(), b"x", 0).unwrap();
    sys::sleep_ms(50);
    t.rec("not for data", URG.load(Ordering::SeqCst));
    sys::send(c.raw(), b"!", libc::MSG_OOB).unwrap();
    sys::sleep_ms(50);
    t.rec("for urgent data", URG.load(Ordering::SeqCst));
}

/// The peer hears of an urgent byte for which it has no room yet, once.
fn oob_announced(t: &mut T) {
    let there = |fd: &Fd| sys::ioctl_get(fd.raw(), 0x541b).unwrap_or(-1);
    let (l, c) = (t.socket(), t.socket());
    sys::bind(l.raw(), &t.addr(0)).unwrap();
    sys::setopt(l.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, 16384).unwrap();
    sys::setopt(c.raw(), libc::SOL_SOCKET, libc::SO_SNDBUF, 400_000).unwrap();
    sys::listen(l.raw(), 4).unwrap();
    sys::connect(c.raw(), &sys::sockname(l.raw()).unwrap()).unwrap();
    let s = sys::accept(l.raw()).unwrap();
    t.prove("client", &c);
    t.prove("server", &s);
    let before = URG.load(Ordering::SeqCst);
    // SAFETY: an async-signal-safe handler.
    unsafe {
        libc::signal(libc::SIGURG, on_urg as extern "C" fn(i32) as usize);
        libc::fcntl(s.raw(), libc::F_SETOWN, libc::getpid());
    }
    let signals = || URG.load(Ordering::SeqCst) - before;
    let (mut sent, mut seen) = (0, -1);
    while there(&s) > seen {
        seen = there(&s);
        sent += sys::send(c.raw(), &[b'.'; 2000], libc::MSG_DONTWAIT).unwrap_or(0);
        sys::sleep_ms(40);
    }
    t.rec("more than there is room", sent > i64::from(seen));
    t.res("urgent", &sys::send(c.raw(), b"!", libc::MSG_OOB));
    let start = Instant::now();
    while signals() == 0 && start.elapsed().as_secs() < 5 {
        sys::sleep_ms(10);
    }
    t.rec("announced", signals());
    let mut read = 0;
    while read < sent && start.elapsed().as_secs() < 10 {
        read += sys::recv_vec(s.raw(), 4000, libc::MSG_DONTWAIT).map_or(0, |b| b.len() as i64);
    }
    t.rec("read before it", read == sent);
    sys::sleep_ms(50);
    t.rec("signals in all", signals());
}

fn oob_peek_and_eof(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"u", libc::MSG_OOB).unwrap();
    sys::sleep_ms(20);
    t.bytes(
        "peek",
        &sys::recv_vec(s.raw(), 8, libc::MSG_OOB | libc::MSG_PEEK),
    );
    t.bytes("take", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    drop(c);
    sys::sleep_ms(20);
    t.bytes("after EOF", &sys::recv_vec(s.raw(), 8, libc::MSG_OOB));
    t.bytes("stream", &sys::recv_vec(s.raw(), 8, 0));
}
