// SPDX-License-Identifier: GPL-2.0
//! Marks that no correct end says, at the beginning of the rings of a connection that is promoted, from a host whose RDMA
//! works: the connection is reset, or goes on by TCP, or waits for what TCP would wait for. The program reads what TCP
//! has delivered and what follows it, or an error.

use super::{cut, flags, hears, identity, says, Real, ANSWER, GO, JOINS, PATH, PATHBREACH, READY};
use crate::host::{Conn, Host, Role, FAKE, LISTENER};
use st::errno::Errno;
use st::point::{Point, T};
use st::rawpeer::{wire_addr, Peer, Wire};
use st::{guest, smcinfo, sys};
use std::net::SocketAddr;

macro_rules! points {
    ($($f:ident),* $(,)?) => {
        /// The points of this file.
        pub const LIST: &[Point] = &[$(
            Point {
                name: concat!("promotion.marks.client.", stringify!($f)),
                run: |t| super::with(t, Role::Client, $f),
            },
            Point {
                name: concat!("promotion.marks.server.", stringify!($f)),
                run: |t| super::with(t, Role::Server, $f),
            },
        )*];
    };
}

points!(
    garbage,
    out_of_order,
    cuts_in_the_past,
    cuts_behind_the_end,
    cuts_ahead,
    behind_the_cut,
    marks_for_data,
    halves,
    urgent,
    falls_silent,
    leaves,
    ends_in_between,
    over_the_side,
);

/// A connection whose handshake over a side connection is through; nobody has agreed to anything but a server of the
/// module's, whose first mark has been heard.
fn offered(t: &mut T, h: &mut Host) -> Option<(Real, Conn<'static>)> {
    let mut real = Real::begin(t, h)?;
    real.talk(t, "at first", 3);
    let wire: &'static Wire = Box::leak(Box::new(Wire::open("vb").expect("packet socket")));
    real.talk(t, "at first", 3);
    let side = match h.role {
        Role::Client => {
            let from = SocketAddr::new(wire_addr(true, h.ip), h.port());
            let to = SocketAddr::new(wire_addr(false, h.ip), LISTENER);
            let mut side = Peer::connect_from(wire, from, to, &identity(JOINS))?;
            t.is("answer", flags(&side.syn.opts), Some(ANSWER | JOINS));
            side.send(&real.join());
            side
        }
        Role::Server => {
            let mut side = Peer::wait_syn(wire, h.ip, FAKE, 4000)?;
            t.check("ACK", side.syn_ack(&identity(ANSWER | JOINS)));
            t.is("names", side.recv(24, 3000), Some(real.join().to_vec()));
            side
        }
    };
    let Some(mut c) = real.shake(t, h, side) else {
        t.check("no handshake", false);
        return None;
    };
    if h.role == Role::Client {
        t.is("ready", hears(&c, &h.rc, 8), Some(READY.to_vec()));
        c.cons += 8;
    }
    Some((real, c))
}

/// The same, with both agreed: a server of the module's has turned, and its client does when it hears of the host's
/// cut.
pub(super) fn agreed(t: &mut T, h: &mut Host) -> Option<(Real, Conn<'static>)> {
    let (real, mut c) = offered(t, h)?;
    let due = match h.role {
        Role::Client => {
            says(&mut c, &h.rc, &GO);
            cut(real.tcp.rcv)
        }
        Role::Server => {
            says(&mut c, &h.rc, &READY);
            GO
        }
    };
    t.is("agreed", hears(&c, &h.rc, 8), Some(due.to_vec()));
    c.cons += 8;
    Some((real, c))
}

/// The program reads what TCP has had for it, and then an error.
fn reads_an_error(t: &mut T, real: &Real, unread: usize, what: &str) {
    let mut got = vec![];
    let end = loop {
        let events = sys::poll_within(real.fd.raw(), libc::POLLIN, 8000 * guest::slow());
        if events & libc::POLLIN == 0 {
            break None;
        }
        match sys::recv_vec(real.fd.raw(), 4096, libc::MSG_DONTWAIT) {
            Ok(part) if part.is_empty() => break Some(Errno(0)),
            Ok(part) => got.extend(part),
            Err(error) if error.0 == libc::EAGAIN => sys::sleep_ms(5),
            Err(error) => break Some(error),
        }
    };
    let due = real.due(real.to - unread as u64, unread);
    let good = due.starts_with(&got);
    t.check(&format!("{what}: other bytes: {got:x?}"), good);
    let errors = [libc::ECONNABORTED, libc::ECONNRESET].map(|code| Some(Errno(code)));
    let good = errors.contains(&end);
    t.check(&format!("{what}: {end:?}, not an error"), good);
}

pub(super) fn is_reset(t: &mut T, real: Real, unread: usize, what: &str) {
    reads_an_error(t, &real, unread, what);
    real.end();
}

/// The same, and the module says why.
fn is_breach(t: &mut T, real: Real, unread: usize, what: &str) {
    reads_an_error(t, &real, unread, what);
    let reason = real.reason();
    t.is(&format!("{what}: reason"), reason, Some(PATHBREACH));
    real.end();
}

fn garbage(t: &mut T, h: &mut Host) {
    for (what, bytes) in [
        ("zeros", [0; 8]),
        ("HTTP", *b"GET / HT"),
        ("an unknown mark", *b"RSP\x04\0\0\0\0"),
        ("a mark with more", *b"RSP\x01\0\0\0\x01"),
        ("its end is another", *b"RSQ\x02\0\0\0\0"),
    ] {
        let Some((real, mut c)) = offered(t, h) else {
            return;
        };
        says(&mut c, &h.rc, &bytes);
        is_breach(t, real, 0, what);
        let Some((real, mut c)) = agreed(t, h) else {
            return;
        };
        says(&mut c, &h.rc, &bytes[..3]);
        says(&mut c, &h.rc, &bytes[3..]);
        is_breach(t, real, 0, what);
    }
}

fn out_of_order(t: &mut T, h: &mut Host) {
    let wrong = match h.role {
        Role::Client => [(false, READY), (false, cut(1)), (true, READY), (true, GO)],
        Role::Server => [(false, GO), (false, cut(1)), (true, READY), (true, GO)],
    };
    for (late, mark) in wrong {
        let what = format!("{mark:02x?}, late {late}");
        let begun = match late {
            true => agreed(t, h),
            false => offered(t, h),
        };
        let Some((real, mut c)) = begun else { return };
        says(&mut c, &h.rc, &mark);
        is_breach(t, real, 0, &what);
    }
    // The right place, said too early.
    let Some((real, mut c)) = offered(t, h) else {
        return;
    };
    says(&mut c, &h.rc, &cut(real.tcp.snd));
    is_breach(t, real, 0, "a cut too early");
}

/// Bytes that TCP has delivered would be left out.
fn cuts_in_the_past(t: &mut T, h: &mut Host) {
    for (unread, back) in [
        (0, 1),
        (0, 64),
        (64, 64),
        (64, 1),
        (0, 1 << 30),
        (0, 1 << 31),
    ] {
        let what = format!("{back} back, {unread} unread");
        let Some((mut real, mut c)) = agreed(t, h) else {
            return;
        };
        real.tell(unread);
        sys::poll_until(
            real.fd.raw(),
            libc::POLLIN,
            if unread > 0 { 3000 } else { 10 },
        );
        let position = real.tcp.snd.wrapping_sub(back);
        // What would be read in their place.
        says(
            &mut c,
            &h.rc,
            &[&cut(position)[..], b"in their place"].concat(),
        );
        is_breach(t, real, unread, &what);
    }
}

/// Bytes that TCP will never deliver would be waited for.
fn cuts_behind_the_end(t: &mut T, h: &mut Host) {
    for first in [false, true] {
        for ahead in [1, 100, 1 << 30] {
            let what = format!("{ahead} behind the end, which comes first {first}");
            let Some((mut real, mut c)) = agreed(t, h) else {
                return;
            };
            real.tell(30);
            let position = real.tcp.snd.wrapping_add(ahead);
            if first {
                real.tcp.send_fin();
                real.tcp.pump(50, |_| false);
            }
            says(&mut c, &h.rc, &cut(position));
            if !first {
                guest::pause(50);
                real.tcp.send_fin();
            }
            is_breach(t, real, 30, &what);
        }
    }
    // The end itself is where it may be.
    let Some((mut real, mut c)) = agreed(t, h) else {
        return;
    };
    let position = real.tcp.snd;
    real.tcp.send_fin();
    says(&mut c, &h.rc, &[&cut(position)[..], b"the rest"].concat());
    t.is("the rest", real.read(8), Ok(b"the rest".to_vec()));
    real.end();
}

/// The ring is quicker than TCP: what is before the cut is read first. Where it does not come, the program waits as for
/// TCP, and may close.
fn cuts_ahead(t: &mut T, h: &mut Host) {
    for ahead in [1, 3000] {
        let what = format!("{ahead} ahead");
        let Some((mut real, mut c)) = agreed(t, h) else {
            return;
        };
        let position = real.tcp.snd.wrapping_add(ahead);
        says(&mut c, &h.rc, &[&cut(position)[..], b"behind"].concat());
        guest::pause(50);
        let early = sys::recv_vec(real.fd.raw(), 100, libc::MSG_DONTWAIT);
        t.is(&format!("{what}: early"), early, Err(Errno(libc::EAGAIN)));
        let at = real.to;
        real.tell(ahead as usize);
        let due = [real.due(at, ahead as usize), b"behind".to_vec()].concat();
        t.is(&what, real.read(due.len()), Ok(due));
        real.end();
    }
    let Some((real, mut c)) = agreed(t, h) else {
        return;
    };
    let position = real.tcp.snd.wrapping_add(1 << 30);
    says(&mut c, &h.rc, &[&cut(position)[..], b"behind"].concat());
    guest::pause(50);
    let early = sys::recv_vec(real.fd.raw(), 100, libc::MSG_DONTWAIT);
    t.is("far ahead", early, Err(Errno(libc::EAGAIN)));
    closes(t, real, "far ahead");
}

/// The program closes; `with` sees whether all of it goes.
pub(super) fn closes(t: &mut T, mut real: Real, what: &str) {
    drop(real.fd);
    let hears = real.tcp.pump(12_000 * guest::slow(), |p| p.fin || p.rst);
    t.check(&format!("{what}: the peer hears"), hears);
    real.tcp.send_rst();
}

/// Bytes by TCP behind the cut: they are nobody's.
fn behind_the_cut(t: &mut T, h: &mut Host) {
    for first in [false, true] {
        let Some((mut real, mut c)) = agreed(t, h) else {
            return;
        };
        let position = real.tcp.snd;
        if first {
            real.tell(10);
            real.tcp.pump(50, |_| false);
            says(&mut c, &h.rc, &cut(position));
            // It lies before what has come.
            is_breach(t, real, 10, "bytes first");
            continue;
        }
        says(&mut c, &h.rc, &cut(position));
        real.tcp.pump(50, |_| false);
        real.tell(10);
        real.to -= 10;
        is_reset(t, real, 0, "the cut first");
    }
}

/// Once the marks are through, more of them are bytes of the program's.
fn marks_for_data(t: &mut T, h: &mut Host) {
    let Some((real, mut c)) = agreed(t, h) else {
        return;
    };
    let more = [READY, GO, cut(7)].concat();
    says(&mut c, &h.rc, &[&cut(real.tcp.snd)[..], &more].concat());
    t.is("data", real.read(24), Ok(more));
    real.end();
}

/// Half a mark, and then an abort, an end, silence.
fn halves(t: &mut T, h: &mut Host) {
    for way in 0..3 {
        let Some((mut real, mut c)) = offered(t, h) else {
            return;
        };
        says(&mut c, &h.rc, &GO[..5]);
        match way {
            0 => aborts(&mut c, h),
            1 => c.close(&h.rc),
            _ => (),
        }
        guest::pause(50);
        real.goes_on(t, &format!("half, {way}"));
        match way {
            2 => closes(t, real, "half, silent"),
            _ => real.end(),
        }
    }
}

/// A byte of a mark that the host calls urgent: the program hears of none.
fn urgent(t: &mut T, h: &mut Host) {
    // SAFETY: a set of signals on the stack, which only these calls use.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe {
        libc::sigaddset(&mut signals, libc::SIGURG);
        libc::sigprocmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
    }
    let Some((mut real, mut c)) = offered(t, h) else {
        return;
    };
    // This thread, as others of the process do not block the signal: `F_SETOWN_EX` with `F_OWNER_TID`.
    // SAFETY: the kernel reads two numbers.
    let owned = unsafe {
        let owner = [0, libc::gettid()];
        libc::fcntl(real.fd.raw(), 15, owner.as_ptr())
    };
    t.is("owner", owned, 0);
    says(&mut c, &h.rc, &GO[..5]);
    let mut m = c.cdc();
    m[24] = 0x60;
    h.rc.send(&m);
    guest::pause(50);
    real.goes_on(t, "urgent");
    // SAFETY: as above.
    unsafe { libc::sigpending(&mut signals) };
    // SAFETY: as above.
    let told = unsafe { libc::sigismember(&signals, libc::SIGURG) };
    t.is("SIGURG", told, 0);
    let byte = sys::recv_vec(real.fd.raw(), 1, libc::MSG_OOB | libc::MSG_DONTWAIT);
    t.is("urgent byte", byte, Err(Errno(libc::EINVAL)));
    closes(t, real, "urgent");
}

fn aborts(c: &mut Conn<'_>, h: &Host) {
    let mut m = c.cdc();
    m[25] = 0x20;
    h.rc.send(&m);
}

/// Silence where something is due: TCP goes on where it may, and the program may close at any time.
fn falls_silent(t: &mut T, h: &mut Host) {
    let Some((mut real, _c)) = offered(t, h) else {
        return;
    };
    real.goes_on(t, "after the handshake");
    closes(t, real, "after the handshake");
    let Some((mut real, _c)) = agreed(t, h) else {
        return;
    };
    // What the host says comes by TCP still, and is read.
    let at = real.to;
    real.tell(300);
    t.is("by TCP", real.read(300), Ok(real.due(at, 300)));
    closes(t, real, "agreed");
    let Some((real, _c)) = agreed(t, h) else {
        return;
    };
    let done = sys::shutdown(real.fd.raw(), libc::SHUT_WR);
    t.is("shutdown", done.ok(), Some(0));
    closes(t, real, "agreed and shut");
    // Its RDMA is silent, too.
    let Some((real, _c)) = agreed(t, h) else {
        return;
    };
    h.rc.answers(false);
    let sent = sys::send(real.fd.raw(), b"nobody takes this", libc::MSG_NOSIGNAL);
    t.is("send", sent.ok(), Some(17));
    closes(t, real, "deaf");
}

/// The host leaves where a correct one may: the connection goes on by TCP. Where none may, it is reset.
fn leaves(t: &mut T, h: &mut Host) {
    for graceful in [false, true] {
        let go = |c: &mut Conn<'_>, h: &Host| match graceful {
            true => c.close(&h.rc),
            false => aborts(c, h),
        };
        let Some((mut real, mut c)) = offered(t, h) else {
            return;
        };
        go(&mut c, h);
        guest::pause(50);
        real.goes_on(t, "nothing was agreed");
        real.end();
        let Some((mut real, mut c)) = agreed(t, h) else {
            return;
        };
        go(&mut c, h);
        guest::pause(50);
        let what = format!("agreed, graceful {graceful}");
        match h.role {
            // The module has turned, and the host's place is not known.
            Role::Client => is_reset(t, real, 0, &what),
            Role::Server => {
                real.goes_on(t, &what);
                real.end();
            }
        }
    }
}

/// What a host says over the side connection after the handshake, where a correct one speaks of a link that is lost: nothing
/// of it makes the program read what TCP has not delivered.
fn over_the_side(t: &mut T, h: &mut Host) {
    const STAYS: [u8; 8] = *b"RSP\x04\0\0\0\0";
    for (what, word) in [
        ("garbage", *b"GET / HT"),
        ("ready", READY),
        ("a cut", cut(7)),
    ] {
        let Some((mut real, mut c)) = offered(t, h) else {
            return;
        };
        for _ in 0..30 {
            c.tcp.send(&word);
        }
        real.goes_on(t, what);
        real.end();
    }
    let Some((mut real, mut c)) = agreed(t, h) else {
        return;
    };
    c.tcp.send(b"GET / HT");
    guest::pause(50);
    match h.role {
        // It has turned, and knows no more of the host than before.
        Role::Client => closes(t, real, "agreed, garbage"),
        Role::Server => {
            real.goes_on(t, "agreed, garbage");
            real.end();
        }
    }
    let Some((mut real, mut c)) = agreed(t, h) else {
        return;
    };
    let at = real.to;
    real.tell(40);
    // Of these it has got 40 bytes.
    let past = real.tcp.snd.wrapping_sub(20);
    c.tcp.send(&cut(past));
    match h.role {
        Role::Client => t.is(
            "its cut",
            c.tcp.recv(8, 3000),
            Some(cut(real.tcp.rcv).to_vec()),
        ),
        Role::Server => t.is("its word", c.tcp.recv(8, 3000), Some(GO.to_vec())),
    }
    t.check("by TCP", real.due(at, 40).len() == 40);
    is_breach(t, real, 40, "a cut in the past");
    if h.role == Role::Client {
        let Some((mut real, mut c)) = offered(t, h) else {
            return;
        };
        c.tcp.send(&GO);
        t.is("it stays", c.tcp.recv(8, 3000), Some(STAYS.to_vec()));
        real.goes_on(t, "it stays");
        real.end();
        let Some((real, mut c)) = agreed(t, h) else {
            return;
        };
        for _ in 0..30 {
            c.tcp.send(&GO);
        }
        is_breach(t, real, 0, "the same again and again");
        return;
    }
    let Some((mut real, mut c)) = agreed(t, h) else {
        return;
    };
    c.tcp.send(&STAYS);
    guest::pause(50);
    real.goes_on(t, "the host stays");
    let mode = smcinfo::info(real.fd.raw()).map(|info| info.mode);
    t.is("mode", mode.ok(), Some(PATH));
    real.end();
}

/// TCP's end comes while the module cannot know whether it is the stream's, and then an abort, or a program that
/// closes.
fn ends_in_between(t: &mut T, h: &mut Host) {
    if h.role == Role::Client {
        // Its bytes may be in the ring, and nobody says so: it waits, as for one that says nothing.
        let Some((mut real, _c)) = agreed(t, h) else {
            return;
        };
        real.tell(20);
        real.tcp.send_fin();
        t.is("by TCP", real.read(20).map(|got| got.len()), Ok(20));
        let more = sys::recv_vec(real.fd.raw(), 10, libc::MSG_DONTWAIT);
        t.is("no end", more, Err(Errno(libc::EAGAIN)));
        return closes(t, real, "the end");
    }
    let Some((mut real, mut c)) = agreed(t, h) else {
        return;
    };
    let at = real.to;
    real.tell(20);
    real.tcp.send_fin();
    t.is("by TCP", real.read(20), Ok(real.due(at, 20)));
    let more = sys::recv_vec(real.fd.raw(), 10, libc::MSG_DONTWAIT);
    t.is("no end", more, Err(Errno(libc::EAGAIN)));
    aborts(&mut c, h);
    let comes = sys::poll_until(real.fd.raw(), libc::POLLIN, 3000 * guest::slow());
    t.check("the end", comes & libc::POLLIN != 0);
    let end = sys::recv_vec(real.fd.raw(), 10, libc::MSG_DONTWAIT);
    t.is("the end", end, Ok(vec![]));
    let mode = smcinfo::info(real.fd.raw()).map(|info| info.mode);
    t.is("mode", mode.ok(), Some(PATH));
    closes(t, real, "the end");
}
