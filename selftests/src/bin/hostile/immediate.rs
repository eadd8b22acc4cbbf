// SPDX-License-Identifier: GPL-2.0
//! WRITEs that announce themselves, with and without sense, from a host that has agreed on them.

use crate::host::{Conn, End, Host};
use st::point::T;
use st::rcpeer::Arrived;
use st::{guest, sys};

crate::both!(agreed, too_much, to_nobody, after_the_end, in_between,);

/// Returns whether the program reads these bytes at once.
fn heard(c: &Conn<'_>, want: &[u8]) -> bool {
    sys::poll_until(c.fd.raw(), libc::POLLIN, 3000 * guest::slow());
    sys::recv_vec(c.fd.raw(), want.len().max(64), libc::MSG_DONTWAIT).is_ok_and(|v| v == want)
}

/// Both ends announce by immediates, and nothing else is needed.
fn agreed(t: &mut T, h: &mut Host) {
    h.dress = st::clc::extended;
    let Some(mut c) = h.open(t) else { return };
    h.rc.drain();
    for n in 0..100u32 {
        c.write_immediate(&h.rc, b"ping");
        if !heard(&c, b"ping") {
            return t.check(&format!("program hears {n}"), false);
        }
        t.is(
            "program sends",
            sys::send(c.fd.raw(), b"answer", libc::MSG_NOSIGNAL).ok(),
            Some(6),
        );
        let imm = match h.rc.next(3000) {
            Some(Arrived::Written(w)) => w.immediate,
            other => return t.check(&format!("not a WRITE: {other:?}"), false),
        };
        if imm != Some(Conn::immediate(c.me.token, 6)) {
            return t.check(&format!("answer {n} has {imm:x?}"), false);
        }
        c.cons += 6;
    }
    // A connection that joins the group does the same.
    let Some(mut joined) = h.open(t) else { return };
    joined.write_immediate(&h.rc, b"joined");
    t.check("the next one hears", heard(&joined, b"joined"));
    c.lives(t, &h.rc, "at last");
}

/// More than there is room for: the connection ends, its group does not.
fn too_much(t: &mut T, h: &mut Host) {
    h.dress = st::clc::extended;
    let Some(mut bystander) = h.open(t) else {
        return;
    };
    for room in [0u32, 1, 40_000] {
        let Some(mut c) = h.open(t) else { return };
        // All but a number of bytes of the ring are announced and not read.
        let size = c.they.bytes() as u32;
        if room < size {
            let imm = Conn::immediate(c.they.token, size - room);
            h.rc.write_immediate(c.they.start(), c.they.rkey, b"x", imm);
            t.is("all taken", h.rc.flush(3000), st::rcpeer::Fate::Acked);
        }
        t.is(
            "it lives",
            sys::poll1(c.fd.raw(), libc::POLLRDHUP, 100).ok(),
            Some(0),
        );
        let imm = Conn::immediate(c.they.token, room + 1);
        h.rc.write_immediate(c.they.start(), c.they.rkey, b"y", imm);
        c.dead(t, &format!("one more than {room}"));
        c.write_immediate(&h.rc, b"after that");
        bystander.lives(t, &h.rc, "bystander");
    }
}

/// Names of connections that are not there.
fn to_nobody(t: &mut T, h: &mut Host) {
    h.dress = st::clc::extended;
    let Some(mut c) = h.open(t) else { return };
    for hint in (0..=0xffffu32)
        .step_by(251)
        .chain([0, 0xff, 0xff00, 0xffff])
    {
        if hint != c.they.token & 0xffff {
            let imm = Conn::immediate(hint, 1 + hint);
            h.rc.write_immediate(c.they.start(), c.they.rkey, b"", imm);
        }
    }
    t.is("all taken", h.rc.flush(15_000), st::rcpeer::Fate::Acked);
    c.lives(t, &h.rc, "after all names");
}

/// A connection that this host itself has ended.
fn after_the_end(t: &mut T, h: &mut Host) {
    h.dress = st::clc::extended;
    let Some(mut bystander) = h.open(t) else {
        return;
    };
    let Some(mut c) = h.open(t) else { return };
    let mut m = c.cdc();
    m[25] = 0x40;
    h.rc.send(&m);
    t.is("closed", c.ended(3000), End::Eof);
    for _ in 0..50 {
        c.write_immediate(&h.rc, b"one more thing");
    }
    t.is("all taken", h.rc.flush(3000), st::rcpeer::Fate::Acked);
    c.settled(t, "after its end");
    bystander.lives(t, &h.rc, "bystander");
}

/// Immediates and CDC messages in turn, and messages out of date among them.
fn in_between(t: &mut T, h: &mut Host) {
    h.dress = st::clc::extended;
    let Some(mut c) = h.open(t) else { return };
    for n in 0..50 {
        let old = c.cdc();
        c.write_immediate(&h.rc, b"one");
        c.write(&h.rc, b"two");
        h.rc.send(&old);
        c.write_immediate(&h.rc, b"three");
        t.is("all taken", h.rc.flush(3000), st::rcpeer::Fate::Acked);
        if !heard(&c, b"onetwothree") {
            return t.check(&format!("program hears {n}"), false);
        }
    }
    c.lives(t, &h.rc, "at last");
}
