// SPDX-License-Identifier: GPL-2.0
//! Handshakes that go wrong: CLC messages that are malformed, cut, too long, repeated or out of
//! order at every step, links that are never confirmed, and peers that die half way. Whatever
//! happens, the module's program has its answer in bounded time: a connection (by SMC-R or TCP),
//! an error, or on the server's side nothing at all.

use crate::host::{confirm_link, listener, llc, Host, Role};
use st::errno::Errno;
use st::fd::Fd;
use st::point::T;
use st::rawpeer::{wire_addr, Peer};
use st::rng::Rng;
use st::{clc, smcinfo, sys};
use std::net::SocketAddr;

crate::both!(
    peer_dies,
    falls_silent,
    wrong_type,
    wrong_header,
    wrong_length,
    cut_short,
    bit_flips,
    noise,
    wrong_fields,
    too_much,
    repeated,
    never_confirms,
    confirms_wrongly,
    declines_late,
    crossed,
    joins_nothing,
    reconnects,
    many_at_once,
    program_goes,
);

/// How far the handshake goes as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing has been said.
    Begin,
    /// Our first message has been answered (as a client only).
    Middle,
}

fn steps(role: Role) -> &'static [Step] {
    match role {
        Role::Client => &[Step::Begin, Step::Middle],
        Role::Server => &[Step::Begin],
    }
}

/// A handshake under way, and the message that is due.
struct Under {
    tcp: Peer<'static>,
    fd: Option<Fd>,
    due: Vec<u8>,
}

fn begin(t: &mut T, h: &mut Host, step: Step) -> Option<Under> {
    let under = begun(t, h, step);
    t.check("no answer", under.is_some());
    under
}

fn begun(t: &mut T, h: &mut Host, step: Step) -> Option<Under> {
    // Each handshake is a first contact.
    h.fresh();
    let (mut tcp, fd) = h.tcp(t);
    let me = h.end();
    if h.role == Role::Server {
        let m = clc::read(&mut tcp, 4000)?;
        t.is(
            "proposal",
            clc::header(&m).map(|h| h.ty),
            Some(clc::PROPOSAL),
        );
        let due = clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1)));
        return Some(Under { tcp, fd, due });
    }
    let mut due = clc::proposal_v2(&me, 1);
    if step == Step::Middle {
        tcp.send(&due);
        let m = clc::read(&mut tcp, 4000)?;
        t.is("accept", clc::header(&m).map(|h| h.ty), Some(clc::ACCEPT));
        let they = clc::End::parse(&m)?;
        h.rc.connect(they.qpn, they.psn);
        due = clc::agreement_v2(clc::CONFIRM, &me, Some((255, 1)));
    }
    Some(Under { tcp, fd, due })
}

/// The connecting program has its answer in time, and closing is possible. A listener's program
/// may never hear of it.
fn over(t: &mut T, h: &mut Host, u: Under, what: &str) {
    if let Some(fd) = u.fd {
        let e = sys::poll1(fd.raw(), libc::POLLOUT, 15_000 * st::guest::slow() as i32);
        t.check(&format!("{what}: connect() ends"), e.is_ok_and(|e| e != 0));
        t.is(&format!("{what}: close"), fd.close().ok(), Some(0));
    }
    drop(u.tcp);
    empty(h);
}

/// Closes what lies in the accept queue, so that it never fills up.
fn empty(h: &Host) {
    if let Some(l) = &h.listener {
        sys::nonblock(l.raw(), true);
        while sys::accept(l.raw()).is_ok() {}
    }
}

/// Both ends decline, each before the other's decline is there: it may come in pieces, and may have
/// begun to while the module still waits for it. No program sees a byte of it.
fn crossed(t: &mut T, h: &mut Host) {
    let ours = [&clc::decline(0x0201_0000, 2)[..], b"program"].concat();
    for (early, cuts) in [
        (0, &[1400][..]),
        (0, &[1]),
        (0, &[10]),
        (3, &[1400]),
        (20, &[1]),
        (43, &[1400]),
    ] {
        let what = format!("{early} bytes before, then {cuts:?}");
        let Some(mut u) = unconfirmed(t, h) else {
            return;
        };
        u.tcp.send(&ours[..early]);
        h.rc.send(&llc(0x24, 0x40)); // DELETE_LINK
        let m = clc::read(&mut u.tcp, 9000).unwrap_or_default();
        let ty = clc::header(&m).map(|h| h.ty);
        t.is(&format!("{what}: declined"), ty, Some(clc::DECLINE));
        for piece in ours[early..].chunks(cuts[0]) {
            u.tcp.send(piece);
            sys::sleep_ms(2);
        }
        let fd = match u.fd.take() {
            Some(fd) => Some(fd),
            None => h.accept(&u.tcp),
        };
        let Some(fd) = fd else {
            return t.check(&format!("{what}: no socket"), false);
        };
        sys::poll_until(fd.raw(), libc::POLLIN, 3000 * st::guest::slow());
        sys::nonblock(fd.raw(), false);
        let _ = sys::set_timeo(fd.raw(), libc::SO_RCVTIMEO, 3000);
        let got = sys::recv_all(fd.raw(), 7);
        t.is(&what, got, Ok(b"program".to_vec()));
    }
    works(t, h);
}

/// After everything, an ordinary handshake works.
fn works(t: &mut T, h: &mut Host) {
    empty(h);
    h.fresh();
    if let Some(mut c) = h.open(t) {
        c.lives(t, &h.rc, "afterwards");
    }
}

/// Sends what `spoil` makes of the due message, then closes in the given way.
fn spoilt(t: &mut T, h: &mut Host, what: &str, spoil: &mut dyn FnMut(&mut Vec<u8>)) {
    for &step in steps(h.role) {
        let Some(mut u) = begin(t, h, step) else {
            t.check(&format!("{what}: no handshake"), false);
            return;
        };
        let mut m = u.due.clone();
        spoil(&mut m);
        u.tcp.send(&m);
        u.tcp.pump(3, |p| p.rst || p.fin);
        u.tcp.send_rst();
        over(t, h, u, what);
    }
}

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
    let t0 = std::time::Instant::now();
    for (what, mut u, part) in all {
        let left = 9000_u64
            .saturating_sub(t0.elapsed().as_millis() as u64)
            .max(200);
        let ends = u.tcp.pump(left * st::guest::slow(), |p| p.rst || p.fin);
        // A server whose client has not said a whole header may hand the connection out as TCP.
        let tcp = h.role == Role::Client && part < 8 && what.starts_with("Begin");
        t.check(&format!("{what}: the connection ends"), ends || tcp);
        over(t, h, u, &what);
    }
    works(t, h);
}

fn wrong_type(t: &mut T, h: &mut Host) {
    for ty in (0..=16).chain([0x7f, 0x80, 0xff]) {
        spoilt(t, h, &format!("type {ty}"), &mut |m| m[4] = ty);
    }
    works(t, h);
}

fn wrong_header(t: &mut T, h: &mut Host) {
    for b in (0..=255u8).step_by(7) {
        spoilt(t, h, &format!("flags {b:x}"), &mut |m| m[7] = b);
    }
    for i in 0..4 {
        spoilt(t, h, "eyecatcher", &mut |m| m[i] ^= 1);
    }
    spoilt(t, h, "SMC-D", &mut |m| m[..4].copy_from_slice(&clc::EYE_D));
    spoilt(t, h, "trailer", &mut |m| {
        let n = m.len();
        m[n - 1] ^= 1;
    });
    works(t, h);
}

fn wrong_length(t: &mut T, h: &mut Host) {
    for n in [
        0u16, 1, 7, 8, 11, 12, 43, 44, 52, 68, 107, 108, 109, 160, 161, 400, 2000, 0x7fff, 0xffff,
    ] {
        spoilt(t, h, &format!("length {n}"), &mut |m| {
            m[5..7].copy_from_slice(&n.to_be_bytes());
        });
        spoilt(t, h, &format!("length {n} and so many"), &mut |m| {
            m[5..7].copy_from_slice(&n.to_be_bytes());
            m.resize(usize::from(n).max(8), 0x5a);
        });
    }
    works(t, h);
}

fn cut_short(t: &mut T, h: &mut Host) {
    for &step in steps(h.role) {
        let Some(u) = begin(t, h, step) else { return };
        let len = u.due.len();
        drop(u);
        for n in (0..len).step_by(5) {
            let Some(mut u) = begin(t, h, step) else {
                return;
            };
            let part = u.due[..n].to_vec();
            u.tcp.send_cut(&part, &[1, 9, 2]);
            u.tcp.send_fin();
            over(t, h, u, &format!("{step:?} cut at {n}"));
        }
    }
    works(t, h);
}

fn bit_flips(t: &mut T, h: &mut Host) {
    let mut r = Rng::new(7);
    for _ in 0..150 {
        spoilt(t, h, "flips", &mut |m| {
            for _ in 0..r.range(1, 4) {
                let i = r.range(4, m.len() as u64 - 1) as usize;
                m[i] ^= 1 << r.range(0, 7);
            }
        });
    }
    works(t, h);
}

fn noise(t: &mut T, h: &mut Host) {
    let mut r = Rng::new(8);
    for _ in 0..100 {
        spoilt(t, h, "noise", &mut |m| {
            let from = [0, 5, 8, 8, 8, 38][r.range(0, 5) as usize];
            let keep = m.len() - if r.draw() & 1 == 0 { 4 } else { 0 };
            m[from..keep].iter_mut().for_each(|b| *b = r.draw() as u8);
        });
    }
    works(t, h);
}

/// Values that are well formed and nonsense.
fn wrong_fields(t: &mut T, h: &mut Host) {
    let fields = [
        (8, 8),
        (16, 16),
        (32, 6),
        (38, 3),
        (41, 4),
        (45, 1),
        (46, 4),
        (50, 1),
        (52, 8),
        (61, 3),
        (64, 32),
    ];
    for (at, n) in fields {
        for fill in [0u8, 0x01, 0x7f, 0xff] {
            spoilt(t, h, &format!("{n} bytes at {at}: {fill:x}"), &mut |m| {
                m[at..at + n].fill(fill);
            });
        }
    }
    // Limits, release, the number of EIDs or GIDs.
    for at in 80..160 {
        spoilt(t, h, &format!("byte {at}"), &mut |m| {
            if at < m.len() - 4 {
                m[at] ^= 0xff;
            }
        });
    }
    works(t, h);
}

/// The right message with bytes behind it.
fn too_much(t: &mut T, h: &mut Host) {
    for n in [1usize, 8, 44, 3000] {
        spoilt(t, h, "too much", &mut |m| m.resize(m.len() + n, 0xe2));
    }
    works(t, h);
}

/// The same message over and over, and all kinds in all orders.
fn repeated(t: &mut T, h: &mut Host) {
    let me = h.end();
    let all = [
        clc::proposal_v2(&me, 2),
        clc::agreement_v2(clc::ACCEPT, &me, Some((255, 2))),
        clc::agreement_v2(clc::ACCEPT, &me, None),
        clc::agreement_v2(clc::CONFIRM, &me, Some((255, 2))),
        clc::agreement_v2(clc::CONFIRM, &me, None),
        clc::decline(0x0301_0000, 2),
        clc::proposal_v1(),
        clc::accept_v1(clc::ACCEPT),
        clc::accept_v1(clc::CONFIRM),
        clc::decline(0x0401_0000, 1),
    ];
    spoilt(t, h, "twice", &mut |m| m.extend_from_within(..));
    for a in &all {
        for b in &all {
            spoilt(t, h, "order", &mut |m| {
                m.clear();
                m.extend(a);
                m.extend(b);
            });
            spoilt(t, h, "order, after the right one", &mut |m| {
                m.extend(a);
                m.extend(b);
            });
        }
    }
    works(t, h);
}

/// Brings a handshake to the point where the link is to be confirmed.
fn unconfirmed(t: &mut T, h: &mut Host) -> Option<Under> {
    let role = h.role;
    let mut u = begin(
        t,
        h,
        if role == Role::Client {
            Step::Middle
        } else {
            Step::Begin
        },
    )?;
    let due = u.due.clone();
    u.tcp.send(&due);
    if role == Role::Client {
        t.check("CONFIRM_LINK asked", h.llc(1, 3000).is_some());
    } else {
        let m = clc::read(&mut u.tcp, 4000)?;
        t.is("confirm", clc::header(&m).map(|h| h.ty), Some(clc::CONFIRM));
        let they = clc::End::parse(&m)?;
        h.rc.connect(they.qpn, they.psn);
    }
    Some(u)
}

/// After an unconfirmed link both sides go on by TCP, if the peer is still there.
fn falls_back(t: &mut T, h: &mut Host, mut u: Under, what: &str) {
    let m = clc::read(&mut u.tcp, 9000).unwrap_or_default();
    t.is(
        &format!("{what}: declined"),
        clc::header(&m).map(|h| h.ty),
        Some(clc::DECLINE),
    );
    u.tcp.send(b"program");
    let fd = match u.fd.take() {
        Some(fd) => Some(fd),
        None => h.accept(&u.tcp),
    };
    let Some(fd) = fd else {
        t.check(&format!("{what}: no socket"), false);
        return;
    };
    sys::poll_until(fd.raw(), libc::POLLIN, 3000);
    let got = sys::recv_vec(fd.raw(), 64, libc::MSG_DONTWAIT).ok();
    t.is(
        &format!("{what}: TCP bytes"),
        got.as_deref(),
        Some(&b"program"[..]),
    );
    let mode = smcinfo::info(fd.raw()).ok().map(|i| i.mode);
    t.is(&format!("{what}: mode"), mode, Some(1));
}

fn never_confirms(t: &mut T, h: &mut Host) {
    let t0 = std::time::Instant::now();
    let Some(u) = unconfirmed(t, h) else { return };
    falls_back(t, h, u, "silence");
    let s = t0.elapsed().as_secs();
    t.check(&format!("took {s} s"), s < 8 * st::guest::slow());
    works(t, h);
}

/// CONFIRM_LINK without the flag that matters, for another link, of the wrong kind.
fn confirms_wrongly(t: &mut T, h: &mut Host) {
    let role = h.role;
    let kind = if role == Role::Client { 0x80 } else { 0 };
    let Some(u) = unconfirmed(t, h) else { return };
    for i in 0..20 {
        h.rc.send(&confirm_link(&h.me, kind ^ 0x80 | 3)); // the other's word
        h.rc.send(&llc(0x22, kind));
        h.rc.send(&llc(0x26 + i % 4, kind));
    }
    h.rc.send(&confirm_link(&h.me, kind));
    falls_back(t, h, u, "eyecatcher");
    // The link dies instead.
    let Some(u) = unconfirmed(t, h) else { return };
    h.rc.write(1, 2, b"nowhere");
    falls_back(t, h, u, "broken link");
    // DELETE_LINK instead.
    let Some(u) = unconfirmed(t, h) else { return };
    h.rc.send(&llc(0x24, 0x40));
    falls_back(t, h, u, "deleted link");
    works(t, h);
}

/// A decline, or something else by TCP, where only LLC is due.
fn declines_late(t: &mut T, h: &mut Host) {
    let Some(mut u) = unconfirmed(t, h) else {
        return;
    };
    u.tcp.send(&clc::decline(0x0301_0000, 2));
    u.tcp.send(b"program");
    let fd = match u.fd.take() {
        Some(fd) => Some(fd),
        None => h.accept(&u.tcp),
    };
    let Some(fd) = fd else {
        return t.check("no socket", false);
    };
    sys::poll_until(fd.raw(), libc::POLLIN, 3000);
    let got = sys::recv_vec(fd.raw(), 64, libc::MSG_DONTWAIT).ok();
    t.is("TCP bytes", got.as_deref(), Some(&b"program"[..]));
    drop((u.tcp, fd));
    for m in [
        clc::proposal_v1(),
        b"this is no CLC message at all, but long enough".to_vec(),
        clc::agreement_v2(clc::CONFIRM, &h.me, None),
    ] {
        let Some(mut u) = unconfirmed(t, h) else {
            return;
        };
        u.tcp.send(&m);
        over(t, h, u, "not a decline");
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
        ms < 2000 * u128::from(st::guest::slow()),
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
