// SPDX-License-Identifier: GPL-2.0
//! `SO_TIMESTAMP` and its kin: what recvmsg() tells of the time at which bytes arrived.

use crate::ctx::T;
use crate::data::{iov, msg, recvmsg};
use st::fd::Fd;
use st::sys;
use std::time::{Duration, SystemTime};

crate::scenarios!(stamps_forms, stamps_arrival, stamps_inherited, stamps_late);

/// The options, by number: the C library's names follow the size of its `time_t`.
const FORMS: &[(&str, i32)] = &[
    ("TIMESTAMP", 29),
    ("TIMESTAMPNS", 35),
    ("TIMESTAMP_NEW", 63),
    ("TIMESTAMPNS_NEW", 64),
];
const NS: i32 = 35;

/// The kernel begins to stamp packets a moment after the first socket has asked.
const SETTLE: u64 = 50;

fn set(t: &mut T, fd: i32, option: i32, on: i32) {
    let done = sys::setopt(fd, libc::SOL_SOCKET, option, on);
    t.res("set", &done);
    sys::sleep_ms(SETTLE);
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a clock after 1970")
}

/// Calls recvmsg() for at most `len` bytes, with `room` bytes for control messages. Returns a line
/// without times, and the stamp.
fn take(fd: i32, len: usize, room: usize, flags: i32) -> (String, Option<Duration>) {
    let mut bytes = vec![0u8; len];
    let mut control = [0u64; 16];
    let mut pieces = [iov(&mut bytes)];
    let mut m = msg(&mut pieces);
    m.msg_control = control.as_mut_ptr().cast();
    m.msg_controllen = room;
    let got = match recvmsg(fd, &mut m, flags | libc::MSG_DONTWAIT) {
        Ok(got) => got,
        Err(e) => return (e.to_string(), None),
    };
    let mut line = format!(
        "{got} bytes, flags {:#x}, {} of control",
        m.msg_flags, m.msg_controllen
    );
    let mut stamp = None;
    if m.msg_controllen >= 16 {
        // The header: length, level and type; then two words.
        let what = control[1].to_ne_bytes();
        let word = |at: usize| i32::from_ne_bytes(what[at..at + 4].try_into().expect("four bytes"));
        line += &format!(": {} level {} type {}", control[0], word(0), word(4));
        let fraction = match word(4) {
            35 | 64 => Duration::from_nanos(control[3]),
            _ => Duration::from_micros(control[3]),
        };
        stamp = Some(Duration::from_secs(control[2]) + fraction);
    }
    (line, stamp)
}

/// Notes whether a stamp lies between two times; one in microseconds is rounded down.
fn judge(t: &mut T, label: &str, stamp: Option<Duration>, from: Duration, to: Duration) {
    let micro = Duration::from_micros(1);
    let word = match stamp {
        None => "none",
        Some(s) if s + micro < from => "too early",
        Some(s) if s > to => "too late",
        Some(_) => "right",
    };
    t.rec(label, word);
}

/// Sends, and returns two times between which the bytes have arrived.
fn arrive(t: &mut T, c: &Fd, s: &Fd, bytes: &[u8]) -> (Duration, Duration) {
    let from = now();
    t.res("send", &sys::send(c.raw(), bytes, 0));
    t.poll_for("arrives", s.raw(), libc::POLLIN);
    let to = now();
    sys::sleep_ms(20);
    (from, to)
}

fn stamps_forms(t: &mut T) {
    for &(name, option) in FORMS {
        let (c, s) = t.pair();
        arrive(t, &c, &s, b"before");
        t.rec("not asked for", take(s.raw(), 64, 128, 0).0);
        set(t, s.raw(), option, 1);
        let (from, to) = arrive(t, &c, &s, b"stamped");
        let (line, stamp) = take(s.raw(), 4, 128, libc::MSG_PEEK);
        t.rec(&format!("{name} peek"), line);
        judge(t, "time", stamp, from, to);
        let (line, stamp) = take(s.raw(), 4, 128, 0);
        t.rec(name, line);
        judge(t, "time", stamp, from, to);
        t.rec("little room", take(s.raw(), 1, 20, 0).0);
        t.rec("no room", take(s.raw(), 1, 0, 0).0);
        t.rec("discarded", take(s.raw(), 1, 128, libc::MSG_TRUNC).0);
        t.rec("nothing there", take(s.raw(), 64, 128, 0).0);
        set(t, s.raw(), option, 0);
        arrive(t, &c, &s, b"after");
        t.rec("off again", take(s.raw(), 64, 128, 0).0);
    }
}

/// Checks that the peer's window updates and its end do not change the time of the bytes before them.
fn stamps_arrival(t: &mut T) {
    let (c, s) = t.pair();
    set(t, s.raw(), NS, 1);
    let (from, to) = arrive(t, &c, &s, b"first");
    t.res("back", &sys::send(s.raw(), &[7; 4096], 0));
    t.poll_for("back arrives", c.raw(), libc::POLLIN);
    t.rec(
        "back",
        sys::recv_all(c.raw(), 4096).is_ok_and(|v| v == [7; 4096]),
    );
    sys::sleep_ms(20);
    t.res("shutdown", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.poll_for("end arrives", s.raw(), libc::POLLRDHUP);
    sys::sleep_ms(20);
    let (line, stamp) = take(s.raw(), 64, 128, 0);
    t.rec("bytes", line);
    judge(t, "time", stamp, from, to);
    t.rec("end", take(s.raw(), 64, 128, 0).0);
}

/// A listener's option is that of its connections.
fn stamps_inherited(t: &mut T) {
    let (l, a) = t.listener();
    set(t, l.raw(), NS, 1);
    let (c, s) = t.pair_on(&l, &a);
    for bytes in [&b"one"[..], b"and two"] {
        let (from, to) = arrive(t, &c, &s, bytes);
        let (line, stamp) = take(s.raw(), 64, 128, 0);
        t.rec("bytes", line);
        judge(t, "time", stamp, from, to);
    }
    t.res("back", &sys::send(s.raw(), b"x", 0));
    t.poll_for("back arrives", c.raw(), libc::POLLIN);
    t.rec("the client has not asked", take(c.raw(), 64, 128, 0).0);
}

/// The option set once the bytes are there. While any socket asks, TCP stamps all packets.
fn stamps_late(t: &mut T) {
    let other = t.socket();
    set(t, other.raw(), NS, 1);
    let (c, s) = t.pair();
    let (from, _) = arrive(t, &c, &s, b"early");
    set(t, s.raw(), NS, 1);
    let (line, stamp) = take(s.raw(), 64, 128, 0);
    t.rec("bytes", line);
    judge(t, "time", stamp, from, now());
    // On, off, on: what arrives meanwhile does not get the time of what came before.
    arrive(t, &c, &s, b"second");
    set(t, s.raw(), NS, 0);
    let (from, _) = arrive(t, &c, &s, b" and third");
    set(t, s.raw(), NS, 1);
    let (line, stamp) = take(s.raw(), 64, 128, 0);
    t.rec("both", line);
    judge(t, "time", stamp, from, now());
}
