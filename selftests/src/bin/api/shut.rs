// SPDX-License-Identifier: GPL-2.0
//! shutdown, half close, resets and SO_LINGER.

use crate::ctx::{pattern, T};
use st::fd::Fd;
use st::sys;
use std::time::Instant;

crate::scenarios!(
    shut_wr,
    shut_rd,
    shut_rdwr,
    shut_errors,
    shut_send_nothing,
    shut_wr_keeps_receiving,
    shut_with_unread_data,
    shut_epipe_signal,
    linger_zero,
    linger_zero_unread,
    linger_timed,
    linger_full,
    close_with_unread,
    close_delivers_all,
    shut_twice_both_sides,
    fin_then_reset,
    fin_then_reset_unread,
    fin_then_reset_send,
    reset_name,
    reset_name_at_once,
    both_shut_name,
    both_shut_unread,
);

fn shut_wr(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"tail", 0).unwrap();
    t.res("shutdown", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.res("again", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.res("send nothing", &sys::send(c.raw(), b"", 0));
    t.bytes("tail", &sys::recv_all(s.raw(), 64));
    t.bytes("EOF stays", &sys::recv_vec(s.raw(), 64, 0));
    t.res("back", &sys::send(s.raw(), b"answer", 0));
    t.bytes("answer", &sys::recv_vec(c.raw(), 64, 0));
    t.res("close s", &s.close());
    t.bytes("EOF", &sys::recv_vec(c.raw(), 64, 0));
    t.res("close c", &c.close());
}

fn shut_rd(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(s.raw(), b"early", 0).unwrap();
    sys::sleep_ms(20);
    t.res("shutdown", &sys::shutdown(c.raw(), libc::SHUT_RD));
    t.bytes("early data", &sys::recv_vec(c.raw(), 64, 0));
    t.bytes("then", &sys::recv_vec(c.raw(), 64, 0));
    t.res("peer sends", &sys::send(s.raw(), b"late", 0));
    sys::sleep_ms(20);
    t.bytes("late data", &sys::recv_vec(c.raw(), 64, libc::MSG_DONTWAIT));
    t.res("own send", &sys::send(c.raw(), b"still", 0));
    t.bytes("peer hears", &sys::recv_vec(s.raw(), 64, 0));
}

fn shut_rdwr(t: &mut T) {
    let (c, s) = t.pair();
    t.res("shutdown", &sys::shutdown(c.raw(), libc::SHUT_RDWR));
    t.polled("own poll", c.raw());
    t.bytes("own recv", &sys::recv_vec(c.raw(), 8, 0));
    t.res("own send", &sys::send(c.raw(), b"x", 0));
    t.bytes("peer recv", &sys::recv_vec(s.raw(), 8, 0));
    t.res("peer send", &sys::send(s.raw(), b"x", 0));
    t.poll_for("peer poll", s.raw(), libc::POLLIN);
    sys::sleep_ms(20);
    t.res("peer send 2", &sys::send(s.raw(), b"x", 0));
    t.ok("own peername", &sys::peername(c.raw()));
}

fn shut_errors(t: &mut T) {
    let s = t.socket();
    for how in [0, 1, 2, 3, -1] {
        t.res(&format!("fresh {how}"), &sys::shutdown(s.raw(), how));
    }
    let (c, _s) = t.pair();
    t.res("bad how", &sys::shutdown(c.raw(), 3));
    t.res("negative", &sys::shutdown(c.raw(), -1));
    t.res("bad descriptor", &sys::shutdown(-1, 1));
    let (l, a) = t.listener();
    t.res("listener, bad how", &sys::shutdown(l.raw(), 5));
    let (_c, _s) = t.pair_on(&l, &a);
}

/// Nothing can be sent to a peer that has closed.
fn shut_send_nothing(t: &mut T) {
    let (c, s) = t.pair();
    drop(s);
    t.poll_for("closed", c.raw(), libc::POLLRDHUP);
    t.res("nothing", &sys::send(c.raw(), b"", 0));
    t.res("shutdown", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.res("nothing then", &sys::send(c.raw(), b"", 0));
}

fn shut_wr_keeps_receiving(t: &mut T) {
    let (c, s) = t.pair();
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    let data = pattern(3 << 20, 5);
    let d2 = data.clone();
    let th = std::thread::spawn(move || {
        let r = sys::send_all(s.raw(), &d2);
        drop(s);
        r
    });
    let got = sys::recv_all(c.raw(), 4 << 20);
    t.res("got", &got.as_ref().map(Vec::len).map_err(|e| *e));
    t.rec("equal", got.as_ref().is_ok_and(|g| *g == data));
    t.ok("sender", &th.join().unwrap());
    if got.is_err() {
        // Which of TCP's own rules has ended the connection.
        t.rec("counted", aborts());
    }
}

/// The counters of connections that TCP has aborted in this namespace, as `/proc/net/netstat` has them.
fn aborts() -> String {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
    let mut lines = text.lines().filter(|l| l.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let counted = names.split(' ').zip(values.split(' '));
    let aborts = counted.filter(|(n, v)| n.contains("Abort") && *v != "0");
    let aborts: Vec<_> = aborts.map(|(n, v)| format!("{n} {v}")).collect();
    aborts.join(" ")
}

fn shut_with_unread_data(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(s.raw(), b"unread", 0).unwrap();
    sys::sleep_ms(20);
    t.res("shutdown", &sys::shutdown(c.raw(), libc::SHUT_RDWR));
    t.bytes("recv", &sys::recv_vec(c.raw(), 64, 0));
    t.bytes("peer", &sys::recv_vec(s.raw(), 64, 0));
    t.so_error("peer error", s.raw());
}

fn shut_epipe_signal(t: &mut T) {
    // The Rust runtime ignores SIGPIPE; here it must kill or not according to the flag.
    for nosig in [true, false] {
        let (c, _s) = t.pair();
        sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
        let pid = st::child::spawn(|| {
            // SAFETY: default action; the buffer is one byte.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                let f = if nosig { libc::MSG_NOSIGNAL } else { 0 };
                libc::send(c.raw(), b"x".as_ptr().cast(), 1, f);
            }
            3
        });
        t.rec("end", format!("{:?}", st::child::reap(pid, 0)));
    }
}

fn linger_zero(t: &mut T) {
    let (c, s) = t.pair();
    t.res("SO_LINGER", &sys::linger(c.raw(), 1, 0));
    sys::send(c.raw(), b"data", 0).unwrap();
    sys::sleep_ms(20);
    t.res("close", &c.close());
    t.poll_for("poll", s.raw(), libc::POLLHUP | libc::POLLERR);
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.bytes("recv again", &sys::recv_vec(s.raw(), 8, 0));
    t.res("send", &sys::send(s.raw(), b"x", 0));
}

fn linger_zero_unread(t: &mut T) {
    let (c, s) = t.pair();
    sys::linger(c.raw(), 1, 0).unwrap();
    sys::send(s.raw(), b"unread", 0).unwrap();
    sys::sleep_ms(20);
    t.res("close", &c.close());
    t.poll_for("poll", s.raw(), libc::POLLHUP | libc::POLLERR);
    t.res("send first", &sys::send(s.raw(), b"x", 0));
    t.so_error("SO_ERROR", s.raw());
}

fn linger_timed(t: &mut T) {
    let (c, s) = t.pair();
    sys::linger(c.raw(), 1, 20).unwrap();
    sys::send(c.raw(), b"data", 0).unwrap();
    sys::shutdown(s.raw(), libc::SHUT_WR).unwrap();
    let t0 = Instant::now();
    t.res("close", &c.close());
    t.rec("at once", t0.elapsed().as_millis() < 15_000);
    t.bytes("recv", &sys::recv_all(s.raw(), 8));
}

fn linger_full(t: &mut T) {
    let (c, s) = t.pair();
    sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, 8192).unwrap();
    sys::linger(c.raw(), 1, 1).unwrap();
    let b = pattern(65536, 1);
    let mut n = 0;
    // The receiver takes what it can for a moment; wait until nothing more moves.
    for _ in 0..20 {
        while let Ok(k) = sys::send(c.raw(), &b, libc::MSG_DONTWAIT) {
            n += k;
            if n > 64 << 20 {
                break;
            }
        }
        sys::sleep_ms(10);
    }
    let t0 = Instant::now();
    t.res("close", &c.close());
    t.took("linger time", t0, 1000);
    drop(s);
}

fn close_with_unread(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(s.raw(), b"unread", 0).unwrap();
    sys::sleep_ms(20);
    t.res("close", &c.close());
    t.poll_for("poll", s.raw(), libc::POLLHUP);
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.bytes("recv again", &sys::recv_vec(s.raw(), 8, 0));
}

fn close_delivers_all(t: &mut T) {
    for n in [1usize, 1000, 100_000, 1 << 20] {
        let (c, s) = t.pair();
        let data = pattern(n, n as u32);
        let d2 = data.clone();
        let th = std::thread::spawn(move || {
            let r = sys::send_all(c.raw(), &d2);
            drop(c);
            r.is_ok()
        });
        let got = sys::recv_all(s.raw(), n + 1);
        t.rec("equal", got.as_ref().is_ok_and(|g| *g == data));
        t.rec("sent", th.join().unwrap());
    }
}

fn shut_twice_both_sides(t: &mut T) {
    let (c, s) = t.pair();
    t.res("c WR", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.res("s WR", &sys::shutdown(s.raw(), libc::SHUT_WR));
    sys::sleep_ms(30);
    t.res("c WR again", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.res("s RDWR again", &sys::shutdown(s.raw(), libc::SHUT_RDWR));
    t.polled("c", c.raw());
    t.polled("s", s.raw());
    t.bytes("c recv", &sys::recv_vec(c.raw(), 8, 0));
    t.res(
        "c connect again",
        &sys::connect(c.raw(), &sys::sockname(s.raw()).unwrap()),
    );
}

/// One end of a pair whose peer has ended its stream, which was read, and then reset it.
fn ended_then_reset(t: &mut T) -> Fd {
    let (c, s) = t.pair();
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    t.bytes("EOF", &sys::recv_vec(s.raw(), 8, 0));
    sys::linger(c.raw(), 1, 0).unwrap();
    t.res("close", &c.close());
    t.poll_for("poll", s.raw(), libc::POLLHUP | libc::POLLERR);
    s
}

/// The end of a stream that has been read stays the end, whatever comes behind it.
fn fin_then_reset(t: &mut T) {
    let s = ended_then_reset(t);
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.so_error("SO_ERROR", s.raw());
    t.so_error("SO_ERROR again", s.raw());
    t.bytes("recv again", &sys::recv_vec(s.raw(), 8, 0));
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.polled("poll", s.raw());
    t.ok("peername", &sys::peername(s.raw()));
}

fn fin_then_reset_unread(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(c.raw(), b"tail", 0).unwrap();
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::sleep_ms(30);
    sys::linger(c.raw(), 1, 0).unwrap();
    t.res("close", &c.close());
    t.poll_for("poll", s.raw(), libc::POLLHUP | libc::POLLERR);
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.bytes("recv then", &sys::recv_vec(s.raw(), 8, 0));
    t.so_error("SO_ERROR", s.raw());
}

fn fin_then_reset_send(t: &mut T) {
    let s = ended_then_reset(t);
    t.res("send", &sys::send(s.raw(), b"x", 0));
    t.so_error("SO_ERROR", s.raw());
    t.res("send again", &sys::send(s.raw(), b"x", 0));
    t.res("shutdown", &sys::shutdown(s.raw(), libc::SHUT_WR));
}

fn reset_name(t: &mut T) {
    let (c, s) = t.pair();
    sys::linger(c.raw(), 1, 0).unwrap();
    t.res("close", &c.close());
    t.poll_for("poll", s.raw(), libc::POLLHUP | libc::POLLERR);
    sys::sleep_ms(30);
    t.ok("peername", &sys::peername(s.raw()));
    t.bytes("recv", &sys::recv_vec(s.raw(), 8, 0));
    t.bytes("recv again", &sys::recv_vec(s.raw(), 8, 0));
    t.polled("poll then", s.raw());
    t.res("shutdown", &sys::shutdown(s.raw(), libc::SHUT_RDWR));
}

/// Counts, in 20 tries, how often getpeername() still succeeds once poll() has shown the reset.
fn reset_name_at_once(t: &mut T) {
    let named = (0..20).filter(|_| {
        let (c, s) = t.pair();
        sys::send(s.raw(), b"not read", 0).unwrap();
        let start = Instant::now();
        while sys::poll1(c.raw(), libc::POLLIN, 0) == Ok(0) && start.elapsed().as_secs() < 5 {}
        let _ = c.close();
        while sys::poll1(s.raw(), 0, 0) == Ok(0) && start.elapsed().as_secs() < 5 {}
        sys::peername(s.raw()).is_ok()
    });
    let named = named.count();
    t.rec("named", named);
}

fn both_shut_name(t: &mut T) {
    let (c, s) = t.pair();
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    t.bytes("EOF", &sys::recv_vec(s.raw(), 8, 0));
    t.ok("s peername", &sys::peername(s.raw()));
    sys::shutdown(s.raw(), libc::SHUT_WR).unwrap();
    t.bytes("EOF back", &sys::recv_vec(c.raw(), 8, 0));
    sys::sleep_ms(60);
    for fd in [&c, &s] {
        t.ok("peername", &sys::peername(fd.raw()));
        t.polled("poll", fd.raw());
        t.so_error("SO_ERROR", fd.raw());
        t.bytes("recv", &sys::recv_vec(fd.raw(), 8, 0));
        t.res("send", &sys::send(fd.raw(), b"x", 0));
    }
    t.res("close c", &c.close());
    sys::sleep_ms(30);
    t.so_error("SO_ERROR", s.raw());
    t.polled("poll", s.raw());
}

/// Checks that what was not read when both ends had ended can be read all the same.
fn both_shut_unread(t: &mut T) {
    let (c, s) = t.pair();
    sys::send(s.raw(), b"tail", 0).unwrap();
    sys::shutdown(s.raw(), libc::SHUT_WR).unwrap();
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::sleep_ms(60);
    t.polled("poll", c.raw());
    t.bytes("recv", &sys::recv_vec(c.raw(), 8, 0));
    t.bytes("recv then", &sys::recv_vec(c.raw(), 8, 0));
    t.so_error("SO_ERROR", c.raw());
    t.so_error("SO_ERROR", s.raw());
    t.res("close c", &c.close());
    t.bytes("s recv", &sys::recv_vec(s.raw(), 8, 0));
    t.so_error("s SO_ERROR", s.raw());
}
