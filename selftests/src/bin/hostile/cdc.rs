// SPDX-License-Identifier: GPL-2.0
//! Lies about a connection's state.

use crate::host::{Conn, Host, Role};
use st::point::T;
use st::rcpeer::Arrived;
use st::sys;

crate::both!(
    well_behaved,
    cursors,
    stale_cursors,
    tokens,
    sequence,
    failover,
    flags,
    lengths,
    overrun,
    never_consumes,
    ends_without_room,
    spoils_buffers,
    hears_nothing_old,
    program_goes,
);

/// Validates the host itself: two connections of one group work, and close.
fn well_behaved(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "first");
    let Some(mut b) = h.open(t) else { return };
    b.lives(t, &h.rc, "second");
    a.lives(t, &h.rc, "first again");
    b.close(&h.rc);
    let e = b.ended(3000);
    t.is("closed connection", e, crate::host::End::Eof);
    a.lives(t, &h.rc, "first after the second's end");
}

/// Opens a connection in the group, sends its CDC message as `change` has it, and hands it out.
fn liar(
    t: &mut T,
    h: &mut Host,
    change: &dyn Fn(&mut [u8; 44], &Conn<'_>),
) -> Option<Conn<'static>> {
    let mut c = h.open(t)?;
    let mut m = c.cdc();
    change(&mut m, &c);
    h.rc.send(&m);
    Some(c)
}

fn put(m: &mut [u8; 44], at: usize, wrap: u16, count: u32) {
    m[at + 2..at + 4].copy_from_slice(&wrap.to_be_bytes());
    m[at + 4..at + 8].copy_from_slice(&count.to_be_bytes());
}

/// Cursors that cannot be: the connection ends, its group does not.
fn cursors(t: &mut T, h: &mut Host) {
    let Some(mut bystander) = h.open(t) else {
        return;
    };
    bystander.lives(t, &h.rc, "bystander");
    let size = bystander.they.bytes() as u32;
    let mine = bystander.me.bytes() as u32;
    let cases: [(&str, usize, u16, u32); 14] = [
        ("producer at the end of the ring", 8, 0, size),
        ("producer far out", 8, 0, u32::MAX),
        ("producer out, wrapped", 8, 1, size + 1),
        ("producer two rings ahead", 8, 2, 0),
        ("producer a ring and a byte ahead", 8, 1, 1),
        ("producer in the far future", 8, 0x7fff, 5),
        ("consumer beyond what was sent", 16, 0, 1),
        ("consumer at the end of the ring", 16, 0, mine),
        ("consumer far out", 16, 0, u32::MAX),
        ("consumer a ring ahead", 16, 1, 0),
        ("consumer out, wrapped", 16, 0x7fff, mine),
        ("consumer in the far future", 16, 0x7000, 0),
        ("producer one over a signed number", 8, 0, 0x8000_0000),
        ("consumer one over a signed number", 16, 0, 0x8000_0000),
    ];
    for (what, at, wrap, count) in cases {
        let Some(c) = liar(t, h, &|m, _| put(m, at, wrap, count)) else {
            return;
        };
        c.dead(t, what);
        bystander.lives(t, &h.rc, what);
    }
}

/// Cursors of the past change nothing.
fn stale_cursors(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    c.lives(t, &h.rc, "before");
    for (at, wrap, count) in [(8, 0, 0), (16, 0, 0), (8, 0, 3), (16, 0, 3)] {
        let mut m = c.cdc();
        put(&mut m, at, wrap, count);
        h.rc.send(&m);
        c.lives(t, &h.rc, &format!("cursor at {at} back to {count}"));
    }
    let mut m = c.cdc();
    put(&mut m, 8, 0xffff, 9);
    h.rc.send(&m);
    c.settled(t, "a ring back");
}

/// Tokens of nobody are dropped; another connection's token is for that connection.
fn tokens(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    let Some(mut b) = h.open(t) else { return };
    let own = a.they.token;
    for wrong in [
        0,
        1,
        own.wrapping_add(0x100),
        own ^ 0x8000_0000,
        !own,
        u32::MAX,
    ] {
        let mut m = a.cdc();
        m[4..8].copy_from_slice(&wrong.to_be_bytes());
        m[25] = 0xe0;
        h.rc.send(&m);
    }
    for low in 0..256u32 {
        let guess = (own & !0xff) | low;
        if guess == own || guess == b.they.token {
            continue;
        }
        let mut m = a.cdc();
        m[4..8].copy_from_slice(&guess.to_be_bytes());
        m[25] = 0x20;
        h.rc.send(&m);
    }
    a.lives(t, &h.rc, "after strange tokens");
    b.lives(t, &h.rc, "after strange tokens, the other");
    let mut m = b.cdc();
    m[25] = 0x20;
    h.rc.send(&m);
    b.dead(t, "abort by its token");
    a.lives(t, &h.rc, "after the other's abort");
    // A connection that has gone.
    for _ in 0..20 {
        let m = b.cdc();
        h.rc.send(&m);
    }
    drop(b);
    sys::sleep_ms(50);
    a.lives(t, &h.rc, "after messages for the dead");
}

/// Old, repeated and jumping sequence numbers.
fn sequence(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    c.lives(t, &h.rc, "before");
    let m = c.cdc();
    for _ in 0..50 {
        h.rc.send(&m);
    }
    c.lives(t, &h.rc, "repeated");
    for back in [1u16, 2, 100, 0x7fff] {
        let mut m = c.cdc();
        m[2..4].copy_from_slice(&c.seq.wrapping_sub(back).to_be_bytes());
        m[25] = 0;
        h.rc.send(&m);
    }
    c.lives(t, &h.rc, "old");
    for ahead in [2u16, 1000, 0x3fff, 0x3fff, 0x3fff, 0x3fff, 0x3fff] {
        c.seq = c.seq.wrapping_add(ahead);
        c.lives(t, &h.rc, "jump");
    }
    c.seq = c.seq.wrapping_add(0x8000);
    let m = c.cdc();
    h.rc.send(&m);
    c.settled(t, "half way round");
}

/// Validation of a failover that never was.
fn failover(t: &mut T, h: &mut Host) {
    let Some(mut a) = h.open(t) else { return };
    a.lives(t, &h.rc, "before");
    let mut m = a.cdc();
    a.seq -= 1;
    m[2..4].copy_from_slice(&a.seq.to_be_bytes());
    m[24] = 0x08;
    h.rc.send(&m);
    a.lives(t, &h.rc, "no gap");
    let Some(b) = liar(t, h, &|m, _| {
        m[3] = 9;
        m[24] = 0x08;
    }) else {
        return;
    };
    b.dead(t, "gap");
    a.lives(t, &h.rc, "after the other's gap");
}

/// Every combination of the flags there are, and of those there are not.
fn flags(t: &mut T, h: &mut Host) {
    let Some(mut bystander) = h.open(t) else {
        return;
    };
    for p in 0..32u8 {
        for s in 0..8u8 {
            let Some(mut c) = h.open(t) else { return };
            if (p ^ s) & 1 == 1 {
                // Something for the urgent mark to point at.
                h.rc.write(c.they.start(), c.they.rkey, b"0123456789");
                c.prod += 10;
            }
            let mut m = c.cdc();
            m[24] = (p << 3) | (s & 7);
            m[25] = (s << 5) | (p & 31);
            h.rc.send(&m);
            let mut m = c.cdc();
            m[24] = !p << 3;
            h.rc.send(&m);
            c.settled(t, &format!("flags {p:02x} {s:02x}"));
            if s == 0 && p & 1 == 0 && p & 15 != 0 {
                let _ = sys::recv_vec(c.fd.raw(), 64, libc::MSG_DONTWAIT | libc::MSG_OOB);
            }
            if s == 7 {
                bystander.lives(t, &h.rc, &format!("flags {p:02x}, bystander"));
            }
        }
    }
}

/// Messages of all lengths that look like CDC.
fn lengths(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    let mut lengths: Vec<usize> = (0..200).collect();
    lengths.extend((200..4096).step_by(97));
    lengths.extend([1023, 1024, 1025, 2048, 4095, 4096]);
    for n in lengths {
        let mut m = c.cdc().to_vec();
        m.resize(n, 0x5a);
        h.rc.send(&m);
        if n >= 2 && n != 44 {
            let mut m = c.cdc().to_vec();
            m[1] = n as u8;
            m.resize(n, 0xff);
            h.rc.send(&m);
        }
    }
    t.is("all taken", h.rc.flush(15_000), st::rcpeer::Fate::Acked);
    c.lives(t, &h.rc, "after all lengths");
    // More than any message of the protocol: the link may end, but then it ends.
    h.rc.send(&vec![0xfe; 5000]);
    c.dead(t, "longer than the longest");
}

/// Data beyond the room that was granted, announced honestly.
fn overrun(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    let size = c.they.bytes();
    c.write(&h.rc, &vec![1; size as usize]);
    t.is("full ring", h.rc.flush(15_000), st::rcpeer::Fate::Acked);
    t.is("it lives", c.ended(200), crate::host::End::Lives);
    c.write(&h.rc, b"one too many");
    let _ = h.rc.flush(1000);
    c.dead(t, "overrun");
}

/// A buffer that had another connection's bytes, and a peer that says it has written and has not: the program reads
/// zeros.
fn hears_nothing_old(t: &mut T, h: &mut Host) {
    const OLD: &[u8] = b"another connection's secret";
    let heard = |c: &Conn<'_>| {
        sys::poll_until(c.fd.raw(), libc::POLLIN, 3000 * st::guest::slow());
        sys::recv_vec(c.fd.raw(), 64, libc::MSG_DONTWAIT)
    };
    let mut before = vec![];
    for _ in 0..8 {
        let Some(mut c) = h.open(t) else { return };
        if before.contains(&c.they.start()) {
            c.prod += OLD.len() as u64;
            let m = c.cdc();
            h.rc.send(&m);
            return t.is("zeros", heard(&c), Ok(vec![0; OLD.len()]));
        }
        c.write(&h.rc, OLD);
        t.is("old bytes", heard(&c), Ok(OLD.to_vec()));
        c.close(&h.rc);
        t.is("end", c.ended(3000), crate::host::End::Eof);
        before.push(c.they.start());
    }
    t.check("a buffer is used again", false);
}

/// A peer that never says that it has read: the program's writes wait, but closing works, and a
/// reset ends it all.
fn never_consumes(t: &mut T, h: &mut Host) {
    let Some(mut c) = h.open(t) else { return };
    let fd = c.fd.raw();
    let chunk = vec![3u8; 32768];
    let mut sent = 0;
    for _ in 0..200 {
        match sys::send(fd, &chunk, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
            Ok(n) => sent += n,
            Err(_) => sys::sleep_ms(2),
        }
    }
    let room = c.me.bytes() as i64;
    t.check(
        &format!("{sent} bytes sent"),
        sent >= room && sent < 40 * room,
    );
    h.rc.drain();
    let t0 = std::time::Instant::now();
    let again = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).expect("socket");
    let c2 = std::mem::replace(&mut c.fd, again);
    t.is("close", c2.close().ok(), Some(0));
    t.check("at once", t0.elapsed().as_secs() < 5);
    sys::sleep_ms(100);
    c.tcp.send_rst();
    // What the device has of it goes when the device goes.
}

/// A peer that ends before there was room for all it has, as the in-tree module does after 2 s: it
/// is told of the room, and what it sends then belongs to the stream. (One that has filled the ring to
/// the last byte says the same, and has nothing left.)
fn ends_without_room(t: &mut T, h: &mut Host) {
    const BLOCKED: u8 = 0x80;
    const CLOSED: u8 = 0x40;
    const DONE: u8 = 0x80;
    for (end, rest) in [(CLOSED, true), (DONE, true), (CLOSED, false), (DONE, false)] {
        let Some(mut c) = h.open(t) else { return };
        let size = c.they.bytes() as usize;
        let sent: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        c.write(&h.rc, &sent);
        let mut m = c.cdc();
        (m[24], m[25]) = (BLOCKED, end);
        h.rc.send(&m);
        t.is("full ring", h.rc.flush(15_000), st::rcpeer::Fate::Acked);
        h.rc.drain();
        let fd = c.fd.raw();
        t.check("the bytes", sys::recv_all(fd, size).ok() == Some(sent));
        if rest {
            let told = std::iter::from_fn(|| h.rc.next(3000 * st::guest::slow()))
                .any(|a| matches!(a, Arrived::Message(m) if m[0] == 0xfe && m[18..20] == [0, 1]));
            t.check("told of the room", told);
            c.write(&h.rc, b"the rest");
            let mut m = c.cdc();
            m[25] = end;
            h.rc.send(&m);
            sys::poll_until(fd, libc::POLLIN, 3000 * st::guest::slow());
            let got = sys::recv_vec(fd, 64, libc::MSG_DONTWAIT);
            t.is("rest", got.ok().as_deref(), Some(&b"the rest"[..]));
        }
        sys::poll_until(fd, libc::POLLIN, 3000 * st::guest::slow());
        let nothing = sys::recv_vec(fd, 8, libc::MSG_DONTWAIT);
        t.is("end", nothing.ok().map(|v| v.len()), Some(0));
        if end == DONE {
            c.close(&h.rc);
        }
    }
}

/// Connections that all break off, one after the other: each leaves a buffer to which this host
/// could still write. A server's group keeps no more of them than it has connections: it takes no
/// new ones, the next begins another group, and the old one ends with its last. A client goes where
/// the server says.
fn spoils_buffers(t: &mut T, h: &mut Host) {
    let Some(mut bystander) = h.open(t) else {
        return;
    };
    // A server does not count on the places of connections that it alone has given up.
    let places = if h.role == Role::Server { 255 } else { 254 };
    for n in 0..places {
        let Some(c) = liar(t, h, &|m, _| put(m, 8, 0, u32::MAX)) else {
            return;
        };
        c.dead(t, &format!("connection {n}"));
    }
    bystander.lives(t, &h.rc, "bystander");
    // The last one's buffer is given back by a worker.
    st::guest::pause(500);
    if h.role == Role::Server {
        let Some(mut next) = h.open(t) else { return };
        next.lives(t, &h.rc, "in the same group");
        return;
    }
    let qpn = h.me.qpn;
    let old = h.another();
    let Some(mut next) = h.open(t) else { return };
    next.lives(t, &h.rc, "in the next group");
    bystander.lives(t, &old, "bystander again");
    bystander.close(&old);
    t.is("closed", bystander.ended(3000), crate::host::End::Eof);
    drop(bystander);
    st::guest::pause(500);
    // Its place is free, and with the last one there is nothing left to use.
    let _new = std::mem::replace(&mut h.rc, old);
    h.me.qpn = qpn;
    let last = liar(t, h, &|m, _| put(m, 8, 0, u32::MAX));
    let Some(last) = last else { return };
    last.dead(t, "the last one");
    drop(last);
    t.check("the old group ends", h.llc(4, 5000).is_some());
}

/// The module's program is killed in each state that a connection can be in: the peer hears the end
/// of it, and the group goes on.
fn program_goes(t: &mut T, h: &mut Host) {
    const DONE: u8 = 0x80;
    const CLOSED: u8 = 0x40;
    const ABORT: u8 = 0x20;
    let Some(mut bystander) = h.open(t) else {
        return;
    };
    let say = |h: &Host, c: &mut Conn<'_>, flags: &[u8]| {
        for flags in flags {
            let mut m = c.cdc();
            m[25] = *flags;
            h.rc.send(&m);
            h.rc.flush(3000);
        }
    };
    for theirs in [
        &[][..],
        &[DONE],
        &[CLOSED],
        &[DONE, DONE | CLOSED],
        &[ABORT],
    ] {
        for (shuts, first) in [(false, true), (true, false), (true, true)] {
            for unread in [false, true] {
                let what = format!("{theirs:02x?}, shut {shuts}, first {first}, unread {unread}");
                let Some(mut c) = h.open(t) else { return };
                if unread {
                    c.write(&h.rc, b"never read");
                }
                if first {
                    say(h, &mut c, theirs);
                }
                if shuts {
                    let _ = sys::shutdown(c.fd.raw(), libc::SHUT_WR);
                }
                if !first {
                    say(h, &mut c, theirs);
                }
                h.rc.flush(3000);
                let token = c.me.token;
                drop(c);
                // Whoever has aborted needs not be told.
                let heard = theirs == [ABORT] || says_the_end(h, token);
                t.check(&format!("{what}: the peer hears"), heard);
            }
        }
    }
    bystander.lives(t, &h.rc, "bystander");
}

/// Returns whether the module says of its end of our connection `token` that it has closed or aborted.
fn says_the_end(h: &Host, token: u32) -> bool {
    loop {
        match h.rc.next(4000) {
            Some(Arrived::Message(m)) if m.len() == 44 && m[0] == 0xfe => {
                if m[4..8] == token.to_be_bytes() && m[25] & 0x60 != 0 {
                    return true;
                }
            }
            Some(_) => (),
            None => return false,
        }
    }
}
