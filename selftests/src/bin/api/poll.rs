// SPDX-License-Identifier: GPL-2.0
//! poll, select and epoll, level and edge triggered.

use crate::ctx::T;
use st::errno::cvt;
use st::fd::Fd;
use st::sys;

crate::scenarios!(
    poll_states,
    poll_half_close,
    poll_reset,
    poll_listener,
    poll_full_buffer,
    poll_wakes,
    select_states,
    epoll_level,
    epoll_edge,
    epoll_oneshot,
    epoll_exclusive,
    epoll_edge_connect,
    epoll_close_in_set,
    epoll_nested,
);

/// An epoll set.
pub struct Ep(Fd);

impl Ep {
    /// A new one.
    pub fn new() -> Ep {
        // SAFETY: no pointers.
        let r = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        Ep(Fd::new(cvt(i64::from(r)).expect("epoll_create1") as i32))
    }

    /// The descriptor.
    pub fn raw(&self) -> i32 {
        self.0.raw()
    }

    fn ctl(&self, op: i32, fd: i32, events: i32, tag: u64) {
        let mut e = libc::epoll_event {
            events: events as u32,
            u64: tag,
        };
        // SAFETY: valid pointer.
        let r = unsafe { libc::epoll_ctl(self.0.raw(), op, fd, &mut e) };
        cvt(i64::from(r)).expect("epoll_ctl");
    }

    /// Adds a descriptor.
    pub fn add(&self, fd: i32, events: i32, tag: u64) {
        self.ctl(libc::EPOLL_CTL_ADD, fd, events, tag);
    }

    /// Arms a descriptor again.
    pub fn modify(&self, fd: i32, events: i32, tag: u64) {
        self.ctl(libc::EPOLL_CTL_MOD, fd, events, tag);
    }

    /// The first of what becomes ready that has `event`: an edge may come too often, never too seldom.
    pub fn wait_for(&self, event: &str) -> String {
        let mut got = self.wait(2000);
        while got != "-" && !got.contains(event) {
            got = self.wait(2000);
        }
        got
    }

    /// Notes events within `ms`, as `tag:EVENTS` sorted by tag; `-` if there are none.
    pub fn wait(&self, ms: i32) -> String {
        // SAFETY: an all-zero event is valid.
        let mut v: [libc::epoll_event; 8] = unsafe { std::mem::zeroed() };
        // SAFETY: array and count agree.
        let n = unsafe { libc::epoll_wait(self.0.raw(), v.as_mut_ptr(), 8, ms) };
        let mut w: Vec<String> = v[..n.max(0) as usize]
            .iter()
            .map(|e| format!("{}:{}", { e.u64 }, sys::events(e.events as i32)))
            .collect();
        w.sort();
        if w.is_empty() {
            "-".into()
        } else {
            w.join(" ")
        }
    }
}

const ALL: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP;

fn poll_states(t: &mut T) {
    let s = t.socket();
    t.polled("fresh", s.raw());
    let (c, s) = t.pair();
    t.polled("connected", c.raw());
    sys::send(s.raw(), b"abc", 0).unwrap();
    t.poll_for("readable", c.raw(), libc::POLLIN);
    sys::recv_vec(c.raw(), 1, 0).unwrap();
    t.polled("rest readable", c.raw());
    sys::recv_vec(c.raw(), 8, 0).unwrap();
    t.polled("drained", c.raw());
    drop(s);
    t.poll_for("peer closed", c.raw(), libc::POLLRDHUP);
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.poll_for("reset", c.raw(), libc::POLLHUP);
    t.res("send", &sys::send(c.raw(), b"x", 0));
    t.so_error("SO_ERROR", c.raw());
}

fn poll_half_close(t: &mut T) {
    let (c, s) = t.pair();
    t.res("shutdown WR", &sys::shutdown(c.raw(), libc::SHUT_WR));
    t.polled("client", c.raw());
    t.poll_for("server", s.raw(), libc::POLLRDHUP);
    t.res("server sends", &sys::send(s.raw(), b"x", 0));
    t.poll_for("client data", c.raw(), libc::POLLIN);
    t.res("server shutdown", &sys::shutdown(s.raw(), libc::SHUT_WR));
    t.poll_for("client both", c.raw(), libc::POLLHUP);
    t.poll_for("server both", s.raw(), libc::POLLHUP);
    let (c, s) = t.pair();
    t.res("shutdown RD", &sys::shutdown(c.raw(), libc::SHUT_RD));
    t.polled("client", c.raw());
    t.polled("server", s.raw());
}

fn poll_reset(t: &mut T) {
    let (c, s) = t.pair();
    sys::linger(s.raw(), 1, 0).unwrap();
    drop(s);
    t.poll_for("reset", c.raw(), libc::POLLERR | libc::POLLHUP);
    t.so_error("SO_ERROR", c.raw());
    t.polled("after", c.raw());
    t.bytes("recv", &sys::recv_vec(c.raw(), 4, 0));
}

fn poll_listener(t: &mut T) {
    let (l, a) = t.listener();
    t.polled("idle", l.raw());
    let c = t.socket();
    sys::connect(c.raw(), &a).unwrap();
    t.poll_for("one waits", l.raw(), libc::POLLIN);
    let k = sys::accept(l.raw()).unwrap();
    t.polled("taken", l.raw());
    t.prove("server", &k);
    drop(c);
    t.poll_for("child", k.raw(), libc::POLLRDHUP);
}

fn poll_full_buffer(t: &mut T) {
    let (c, s) = t.pair();
    sys::nonblock(c.raw(), true);
    let b = vec![7u8; 65536];
    let mut total = 0u64;
    // The receiver takes what it can for a moment; wait until nothing more moves.
    for _ in 0..20 {
        while let Ok(n) = sys::send(c.raw(), &b, 0) {
            total += n as u64;
        }
        sys::sleep_ms(20);
    }
    t.polled("full", c.raw());
    t.rec("some was taken", total > 65536);
    t.ok("send", &sys::send(c.raw(), &b, 0));
    let got = sys::recv_all(s.raw(), total as usize).unwrap();
    t.rec("all arrived", got.len() as u64 == total);
    t.poll_for("writable", c.raw(), libc::POLLOUT);
}

fn poll_wakes(t: &mut T) {
    for what in ["data", "half close", "reset"] {
        let (c, s) = t.pair();
        let cr = c.raw();
        let th = std::thread::spawn(move || {
            sys::poll1(cr, libc::POLLIN | libc::POLLRDHUP, 5000).unwrap_or(-1)
        });
        sys::sleep_ms(60);
        match what {
            "data" => drop(sys::send(s.raw(), b"x", 0)),
            "half close" => drop(sys::shutdown(s.raw(), libc::SHUT_WR)),
            _ => {
                let _ = sys::linger(s.raw(), 1, 0);
                drop(s);
            }
        }
        let e = th.join().unwrap();
        t.rec(&format!("woken by {what}"), sys::events(i32::from(e)));
    }
}

fn select(fd: i32) -> String {
    // SAFETY: fd sets are plain data; `fd` is below FD_SETSIZE in these tests.
    unsafe {
        let mut s: [libc::fd_set; 3] = std::mem::zeroed();
        for x in &mut s {
            libc::FD_SET(fd, x);
        }
        let mut tv = libc::timeval {
            tv_sec: 0,
            tv_usec: 30_000,
        };
        let [r, w, e] = &mut s;
        let n = libc::select(fd + 1, r, w, e, &mut tv);
        let has = |x: &libc::fd_set| u8::from(libc::FD_ISSET(fd, x));
        format!("n={n} r={} w={} e={}", has(r), has(w), has(e))
    }
}

fn select_states(t: &mut T) {
    let s = t.socket();
    t.rec("fresh", select(s.raw()));
    let (l, a) = t.listener();
    t.rec("listening", select(l.raw()));
    let (c, s) = t.pair_on(&l, &a);
    t.rec("connected", select(c.raw()));
    sys::send(s.raw(), b"x", 0).unwrap();
    sys::sleep_ms(20);
    t.rec("data", select(c.raw()));
    sys::send(s.raw(), b"y", libc::MSG_OOB).unwrap();
    sys::sleep_ms(20);
    t.rec("urgent", select(c.raw()));
    drop(s);
    sys::sleep_ms(20);
    t.rec("closed", select(c.raw()));
}

fn epoll_level(t: &mut T) {
    let (c, s) = t.pair();
    let ep = Ep::new();
    ep.add(c.raw(), ALL, 1);
    ep.add(s.raw(), libc::EPOLLIN, 2);
    t.rec("start", ep.wait(0));
    sys::send(s.raw(), b"ab", 0).unwrap();
    sys::sleep_ms(20);
    t.rec("data", ep.wait(0));
    t.rec("still", ep.wait(0));
    sys::recv_vec(c.raw(), 8, 0).unwrap();
    t.rec("drained", ep.wait(0));
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::sleep_ms(20);
    t.rec("half closed", ep.wait(0));
    drop(s);
    sys::sleep_ms(20);
    t.rec("closed", ep.wait(0));
}

fn epoll_edge(t: &mut T) {
    let (c, s) = t.pair();
    let ep = Ep::new();
    ep.add(c.raw(), ALL | libc::EPOLLET, 1);
    t.rec("start", ep.wait(0));
    t.rec("no edge", ep.wait(20));
    for i in 0..3 {
        sys::send(s.raw(), b"abc", 0).unwrap();
        t.rec(&format!("edge {i}"), ep.wait(2000));
        t.rec(&format!("once {i}"), ep.wait(20));
    }
    t.bytes("recv", &sys::recv_vec(c.raw(), 64, 0));
    t.rec("recv is no edge", ep.wait(20));
    sys::shutdown(s.raw(), libc::SHUT_WR).unwrap();
    t.rec("half close", ep.wait(2000));
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::sleep_ms(30);
    t.rec("both", ep.wait(2000));
}

fn epoll_oneshot(t: &mut T) {
    let (c, s) = t.pair();
    let ep = Ep::new();
    ep.add(c.raw(), libc::EPOLLIN | libc::EPOLLONESHOT, 1);
    sys::send(s.raw(), b"a", 0).unwrap();
    t.rec("first", ep.wait(2000));
    sys::send(s.raw(), b"b", 0).unwrap();
    t.rec("disarmed", ep.wait(30));
    ep.modify(c.raw(), libc::EPOLLIN | libc::EPOLLONESHOT, 1);
    t.rec("rearmed", ep.wait(2000));
}

fn epoll_exclusive(t: &mut T) {
    let (l, a) = t.listener();
    let (e1, e2) = (Ep::new(), Ep::new());
    e1.add(l.raw(), libc::EPOLLIN | libc::EPOLLEXCLUSIVE, 1);
    e2.add(l.raw(), libc::EPOLLIN | libc::EPOLLEXCLUSIVE, 2);
    let c = t.socket();
    t.res("connect", &sys::connect(c.raw(), &a));
    t.rec("first set", e1.wait(2000));
    t.rec("second set", e2.wait(2000));
    let k = sys::accept(l.raw()).unwrap();
    t.prove("server", &k);
    t.rec("taken", e1.wait(20));
}

fn epoll_edge_connect(t: &mut T) {
    // A listener that is edge triggered reports each burst.
    let (l, a) = t.listener();
    sys::nonblock(l.raw(), true);
    let ep = Ep::new();
    ep.add(l.raw(), libc::EPOLLIN | libc::EPOLLET, 1);
    t.rec("idle", ep.wait(10));
    for i in 0..3 {
        let c1 = t.socket();
        sys::connect(c1.raw(), &a).unwrap();
        t.rec(&format!("edge {i}"), ep.wait(2000));
        let k = sys::accept(l.raw()).unwrap();
        t.prove("server", &k);
        t.ok("empty", &sys::accept(l.raw()));
        t.rec("quiet", ep.wait(10));
    }
}

fn epoll_close_in_set(t: &mut T) {
    let (c, s) = t.pair();
    let ep = Ep::new();
    ep.add(c.raw(), ALL, 1);
    // SAFETY: no pointers.
    let d = Fd::new(unsafe { libc::dup(c.raw()) });
    drop(c);
    t.rec("duplicate keeps it", ep.wait(0));
    drop(d);
    t.rec("gone", ep.wait(0));
    t.poll_for("peer", s.raw(), libc::POLLRDHUP);
}

fn epoll_nested(t: &mut T) {
    let (c, s) = t.pair();
    let (inner, outer) = (Ep::new(), Ep::new());
    inner.add(c.raw(), libc::EPOLLIN, 1);
    outer.add(inner.raw(), libc::EPOLLIN, 9);
    t.rec("idle", outer.wait(10));
    sys::send(s.raw(), b"x", 0).unwrap();
    t.rec("outer", outer.wait(2000));
    t.rec("inner", inner.wait(0));
    sys::recv_vec(c.raw(), 4, 0).unwrap();
    t.rec("drained", outer.wait(10));
}
