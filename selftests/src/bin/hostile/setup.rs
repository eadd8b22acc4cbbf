// SPDX-License-Identifier: GPL-2.0
//! Handshakes that go wrong although each message is right: peers that die or fall silent half way,
//! that join what there is not, many at once, and programs that go. Whatever happens, the module's
//! program has its answer in bounded time.

use crate::handshake::{begin, over, steps, unconfirmed, works, Step, Under};
use crate::host::{listener, Host, Role};
use st::errno::Errno;
use st::point::T;
use st::rawpeer::wire_addr;
use st::{clc, sys};
use std::net::SocketAddr;

crate::both!(
    peer_dies,
    falls_silent,
    joins_nothing,
    reconnects,
    many_at_once,
    program_goes,
);

fn peer_dies(t: &mut T, h: &mut Host) {
    for &step in steps(h.role) {
        for way in 0..4 {
            let Some(mut u) = begin(t, h, step) else {
                return;
            };
            let due = u.due.clone();
            match way {
                0 => u.tcp.send_rst(),
                1 => u.tcp.send_fin(),
                2 => {
                    u.tcp.send(&due[..20]);
                    u.tcp.send_fin();
                }
                _ => {
                    u.tcp.send(&due);
                    u.tcp.send_rst();
                }
            }
            over(t, h, u, &format!("{step:?} {way}"));
        }
    }
    works(t, h);
}

/// Silence before the message that is due, and in the middle of it: the module does not wait for
/// ever, and the program that connects hears of it.
fn falls_silent(t: &mut T, h: &mut Host) {
    let mut all = vec![];
    for &step in steps(h.role) {
        for part in [0, 3, 30] {
            let Some(mut u) = begin(t, h, step) else {
                return;
            };
            let m = u.due[..part].to_vec();
            u.tcp.send(&m);
            all.push((format!("{step:?}, after {part} bytes"), u, part));
        }
    }
    for (what, mut u, part) in all {
        // A server whose client has not said a whole header may hand the connection out as TCP.
        let tcp = h.role == Role::Client && part < 8 && what.starts_with("Begin");
        let ends = tcp || u.tcp.pump(9000, |p| p.rst || p.fin);
        t.check(&format!("{what}: the connection ends"), ends);
        over(t, h, u, &what);
    }
    works(t, h);
}

/// Agreements that join a group that there is not, or begin one that there is.
fn joins_nothing(t: &mut T, h: &mut Host) {
    for &step in steps(h.role) {
        let Some(mut u) = begin(t, h, step) else {
            return;
        };
        let me = h.end();
        let ty = if h.role == Role::Client {
            clc::CONFIRM
        } else {
            clc::ACCEPT
        };
        u.tcp.send(&clc::agreement_v2(ty, &me, None));
        u.tcp.pump(50, |p| p.rst || p.fin);
        over(t, h, u, "nothing to join");
    }
    works(t, h);
    // A second beginning while the group lives, with the same queue pair.
    let (mut tcp, fd) = h.tcp(t);
    let me = h.end();
    if h.role == Role::Server {
        let _ = clc::read(&mut tcp, 3000);
        tcp.send(&clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1))));
    } else {
        tcp.send(&clc::proposal_v2(&me, 1));
        let _ = clc::read(&mut tcp, 3000);
        tcp.send(&clc::agreement_v2(clc::CONFIRM, &me, Some((255, 1))));
    }
    tcp.pump(50, |p| p.rst || p.fin);
    let due = vec![];
    over(t, h, Under { tcp, fd, due }, "begun twice");
    works(t, h);
}

/// A connect() that failed leaves nothing behind: no bytes of the peer, and the socket connects again.
fn reconnects(t: &mut T, h: &mut Host) {
    if h.role == Role::Client {
        return;
    }
    for junk in [
        &b"no CLC message, but more than a header"[..],
        &clc::accept_v1(clc::ACCEPT)[..60],
    ] {
        let Some(mut u) = begin(t, h, Step::Begin) else {
            return;
        };
        u.tcp.send(junk);
        u.tcp.send(&[0x42; 3000]);
        u.tcp.send_fin();
        let Some(fd) = u.fd.take() else { return };
        let e = sys::poll1(fd.raw(), libc::POLLOUT, 10_000 * st::guest::slow() as i32);
        t.check("connect() ends", e.is_ok_and(|e| e != 0));
        let r = sys::recv_vec(fd.raw(), 4096, libc::MSG_DONTWAIT);
        t.check(&format!("no bytes: {r:?}"), !r.is_ok_and(|v| !v.is_empty()));
        let honest = SocketAddr::new(wire_addr(false, t.ip), crate::honest::PORT);
        let mut r = sys::connect(fd.raw(), &honest);
        if r != Err(Errno(libc::EINPROGRESS)) {
            // It may tell of the failure first.
            r = sys::connect(fd.raw(), &honest);
        }
        t.is("connects again", r, Err(Errno(libc::EINPROGRESS)));
        let e = sys::poll_until(fd.raw(), libc::POLLOUT, 4000);
        t.check(
            "connected",
            e & libc::POLLOUT != 0 && e & libc::POLLERR == 0,
        );
        t.is("bytes", sys::send(fd.raw(), b"hello", 0).ok(), Some(5));
    }
    works(t, h);
}

/// Handshakes that stand still keep nobody else waiting, as long as not too many of one address are
/// first contacts (`begins_and_begins` has those).
fn many_at_once(t: &mut T, h: &mut Host) {
    let mut all = vec![];
    for i in 0..30 {
        let step = if h.role == Role::Client && i % 5 == 0 {
            Step::Middle
        } else {
            Step::Begin
        };
        let Some(u) = begin(t, h, step) else { return };
        all.push(u);
    }
    let t0 = std::time::Instant::now();
    works(t, h);
    let ms = t0.elapsed().as_millis();
    t.check(
        &format!("took {ms} ms"),
        ms < 5000 * u128::from(st::guest::slow()),
    );
    for u in all {
        over(t, h, u, "standing still");
    }
}

/// The module's program is killed, which closes its sockets, at each step: the peer hears of it at
/// once, and nothing is left that keeps the next one waiting.
fn program_goes(t: &mut T, h: &mut Host) {
    let mut all: Vec<Option<Step>> = steps(h.role).iter().copied().map(Some).collect();
    // And where the link is to be confirmed.
    all.push(None);
    for step in all {
        let under = match step {
            Some(step) => begin(t, h, step),
            None => unconfirmed(t, h),
        };
        let Some(mut u) = under else { return };
        drop(u.fd.take());
        drop(h.listener.take());
        let t0 = std::time::Instant::now();
        let ends = u.tcp.pump(4000 * st::guest::slow(), |p| p.rst || p.fin);
        let ms = t0.elapsed().as_millis();
        t.check(&format!("{step:?}: the peer hears, {ms} ms"), ends);
        u.tcp.send_rst();
        h.listener = (h.role == Role::Client).then(|| listener(t));
        works(t, h);
    }
}
