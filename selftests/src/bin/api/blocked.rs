// SPDX-License-Identifier: GPL-2.0
//! One thread sleeps in a call while another closes, shuts down or resets.

use crate::ctx::T;
use st::errno::R;
use st::sys;
use std::fs;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

crate::scenarios!(
    blocked_recv_shutdown,
    blocked_recv_peer_close,
    blocked_recv_peer_reset,
    blocked_recv_close,
    blocked_accept_shutdown,
    blocked_accept_close,
    blocked_send_shutdown,
    blocked_send_peer_close,
    blocked_connect_shutdown,
    blocked_connect_close,
    blocked_recv_disconnect,
    blocked_poll_close,
);

/// A thread in a call, once it sleeps in it or has ended.
pub fn go<V: Send + 'static>(f: impl FnOnce() -> V + Send + 'static) -> JoinHandle<V> {
    let (tell, told) = mpsc::channel();
    let h = thread::spawn(move || {
        // SAFETY: no pointers.
        let _ = tell.send(unsafe { libc::gettid() });
        f()
    });
    let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap_or(0));
    let end = Instant::now() + Duration::from_secs(5 * st::guest::slow());
    // "TID (NAME) STATE ...": nothing before the call sleeps interruptibly.
    let sleeps = || fs::read_to_string(&stat).is_ok_and(|text| text.contains(") S "));
    while Instant::now() < end && !sleeps() && !h.is_finished() {
        sys::sleep_ms(2);
    }
    h
}

/// The call's result, or that it still sleeps.
fn ended<V>(h: JoinHandle<V>, show: impl Fn(V) -> String) -> String {
    let end = Instant::now() + Duration::from_millis(sys::patient(1200));
    while Instant::now() < end {
        if h.is_finished() {
            return h.join().map_or("panic".into(), show);
        }
        sys::sleep_ms(5);
    }
    "still sleeps".into()
}

fn bytes(r: R<Vec<u8>>) -> String {
    match r {
        Ok(v) if v.is_empty() => "EOF".into(),
        Ok(v) => String::from_utf8_lossy(&v).into_owned(),
        Err(e) => e.to_string(),
    }
}

fn blocked_recv_shutdown(t: &mut T) {
    let (c, _s) = t.pair();
    let fd = c.raw();
    let h = go(move || sys::recv_vec(fd, 8, 0));
    t.res("shutdown", &sys::shutdown(fd, libc::SHUT_RD));
    t.rec("recv", ended(h, bytes));
}

fn blocked_recv_peer_close(t: &mut T) {
    let (c, s) = t.pair();
    let fd = c.raw();
    let h = go(move || sys::recv_vec(fd, 8, 0));
    drop(s);
    t.rec("recv", ended(h, bytes));
}

fn blocked_recv_peer_reset(t: &mut T) {
    let (c, s) = t.pair();
    let fd = c.raw();
    let h = go(move || sys::recv_vec(fd, 8, 0));
    sys::linger(s.raw(), 1, 0).unwrap();
    drop(s);
    t.rec("recv", ended(h, bytes));
}

fn blocked_recv_close(t: &mut T) {
    let (c, s) = t.pair();
    let fd = c.raw();
    let h = go(move || sys::recv_vec(fd, 8, 0));
    t.res("close", &c.close());
    sys::sleep_ms(50);
    t.rec("finished", h.is_finished());
    // The sleeping call holds the socket: data still reaches it.
    t.res("peer sends", &sys::send(s.raw(), b"late", 0));
    t.rec("recv", ended(h, bytes));
    t.poll_for("then it is closed", s.raw(), libc::POLLRDHUP);
}

fn blocked_accept_shutdown(t: &mut T) {
    let (l, _) = t.listener();
    let fd = l.raw();
    let h = go(move || sys::accept(fd));
    t.res("shutdown", &sys::shutdown(fd, libc::SHUT_RDWR));
    t.rec("accept", ended(h, |r| st::errno::show_ok(&r)));
}

fn blocked_accept_close(t: &mut T) {
    let (l, a) = t.listener();
    let fd = l.raw();
    let h = go(move || sys::accept(fd));
    t.res("close", &l.close());
    sys::sleep_ms(50);
    t.rec("finished", h.is_finished());
    let c = t.socket();
    t.res("connect", &sys::connect(c.raw(), &a));
    t.rec("accept", ended(h, |r| st::errno::show_ok(&r)));
    let d = t.socket();
    t.res("then it is closed", &sys::connect(d.raw(), &a));
}

fn fill(fd: i32) -> R<i64> {
    let b = vec![1u8; 1 << 20];
    loop {
        sys::send(fd, &b, 0)?;
    }
}

fn blocked_send_shutdown(t: &mut T) {
    let (c, _s) = t.pair();
    let fd = c.raw();
    let h = go(move || fill(fd));
    sys::sleep_ms(200);
    t.rec("sleeps", !h.is_finished());
    t.res("shutdown", &sys::shutdown(fd, libc::SHUT_WR));
    t.rec("send", ended(h, |r| st::errno::show(&r)));
}

fn blocked_send_peer_close(t: &mut T) {
    let (c, s) = t.pair();
    let fd = c.raw();
    let h = go(move || fill(fd));
    sys::sleep_ms(200);
    drop(s);
    t.rec("send", ended(h, |r| st::errno::show(&r)));
}

fn blocked_connect_shutdown(t: &mut T) {
    let a = t.black_hole();
    let c = t.socket();
    let fd = c.raw();
    let h = go(move || sys::connect(fd, &a));
    t.res("shutdown", &sys::shutdown(fd, libc::SHUT_RDWR));
    t.rec("connect", ended(h, |r| st::errno::show(&r)));
    t.so_error("SO_ERROR", fd);
}

fn blocked_connect_close(t: &mut T) {
    let a = t.black_hole();
    let c = t.socket();
    sys::set_timeo(c.raw(), libc::SO_SNDTIMEO, 400).unwrap();
    let fd = c.raw();
    let h = go(move || sys::connect(fd, &a));
    t.res("close", &c.close());
    t.rec("connect", ended(h, |r| st::errno::show(&r)));
}

fn blocked_recv_disconnect(t: &mut T) {
    let (c, _s) = t.pair();
    let fd = c.raw();
    let h = go(move || sys::recv_vec(fd, 8, 0));
    let h2 = go(move || sys::connect_unspec(fd));
    t.rec("disconnect", ended(h2, |r| st::errno::show(&r)));
    let shown = ended(h, bytes);
    t.rec("recv", shown);
}

fn blocked_poll_close(t: &mut T) {
    let (c, s) = t.pair();
    let fd = c.raw();
    let h = go(move || sys::poll1(fd, libc::POLLIN, 600));
    t.res("close", &c.close());
    t.rec(
        "poll",
        ended(h, |r| {
            st::errno::show(&r.map(|e| sys::events(i32::from(e))))
        }),
    );
    t.poll_for("peer", s.raw(), libc::POLLRDHUP);
}
