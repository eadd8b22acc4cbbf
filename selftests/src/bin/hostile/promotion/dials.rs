// SPDX-License-Identifier: GPL-2.0
//! Side connections that the module makes, and a hostile server: whatever that answers, the connection goes on by TCP.

use super::{flags, identity, says, Real, ANSWER, FIRST, JOINS, READY};
use crate::host::{Host, FAKE};
use st::packet::SMC_OPTION;
use st::point::T;
use st::rawpeer::{Peer, Wire};
use st::{clc, guest, sys};

crate::promotion_points!(
    "dials",
    Server,
    other_answers,
    no_answer,
    silent,
    says_other_things,
    no_mark,
    program_goes,
    at_last,
);

/// Why a connection is TCP's: no server with this module was reached, or it has refused.
const PATHUNREACHED: u32 = 0x0306_010d;
const PATHREFUSED: u32 = 0x0306_010c;

/// A connection that has just become worth promoting, and the module's side connection, which has not been answered.
fn dialled(t: &mut T, h: &mut Host) -> Option<(Real, Peer<'static>)> {
    let mut real = Real::begin(t, h)?;
    real.talk(t, "at first", 3);
    let wire: &'static Wire = Box::leak(Box::new(Wire::open("vb").expect("packet socket")));
    real.talk(t, "at first", 3);
    let Some(side) = Peer::wait_syn(wire, h.ip, FAKE, 4000) else {
        t.check("no side connection", false);
        return None;
    };
    t.is("flags", flags(&side.syn.opts), Some(JOINS));
    let own = st::packet::options(&side.syn.opts).unwrap_or_default();
    let own = own.iter().filter(|option| option.0 >= 253).count();
    t.is("options", own, 1);
    Some((real, side))
}

/// The same, answered as a correct server does, and the module's first message, which names the connection.
fn named(t: &mut T, h: &mut Host) -> Option<(Real, Peer<'static>)> {
    let (real, mut side) = dialled(t, h)?;
    t.check("ACK", side.syn_ack(&identity(ANSWER | JOINS)));
    let join = side.recv(24, 3000);
    t.is("names", join, Some(real.join().to_vec()));
    Some((real, side))
}

/// The module resets its side connection, and the program's goes on by TCP.
fn gives_up(t: &mut T, mut real: Real, mut side: Peer<'_>, reason: u32, what: &str) {
    let ends = side.pump(12_000 * guest::slow(), |p| p.rst);
    t.check(&format!("{what}: is reset"), ends);
    // The reset is sent before the reason is noted.
    guest::pause(100);
    real.goes_on(t, what);
    t.is(&format!("{what}: reason"), real.reason(), Some(reason));
    real.end();
}

fn other_answers(t: &mut T, h: &mut Host) {
    for (what, options) in [
        ("nothing", vec![]),
        ("its own", identity(JOINS)),
        ("that of an ordinary one", identity(ANSWER)),
        ("TCP at first as well", identity(ANSWER | JOINS | FIRST)),
        ("SMC's", SMC_OPTION.to_vec()),
        (
            "SMC's as well",
            [&SMC_OPTION[..], &identity(ANSWER | JOINS)].concat(),
        ),
    ] {
        let Some((real, mut side)) = dialled(t, h) else {
            return;
        };
        side.syn_ack(&options);
        gives_up(t, real, side, PATHUNREACHED, what);
    }
}

/// The SYN is not answered, or refused.
fn no_answer(t: &mut T, h: &mut Host) {
    let Some((mut real, mut side)) = dialled(t, h) else {
        return;
    };
    side.snd = 0;
    side.send_rst();
    guest::pause(200);
    real.goes_on(t, "refused");
    t.is("refused: reason", real.reason(), Some(PATHUNREACHED));
    real.end();
    let Some((mut real, _side)) = dialled(t, h) else {
        return;
    };
    let until = guest::until(7000);
    while real.reason() != Some(PATHUNREACHED) && std::time::Instant::now() < until {
        real.goes_on(t, "meanwhile");
        sys::sleep_ms(200);
    }
    t.is("reason", real.reason(), Some(PATHUNREACHED));
    real.end();
}

/// The server takes the side connection, and says nothing to its first message or to the proposal.
fn silent(t: &mut T, h: &mut Host) {
    let Some((mut real, side)) = named(t, h) else {
        return;
    };
    real.goes_on(t, "meanwhile");
    gives_up(t, real, side, PATHREFUSED, "silent");
}

fn says_other_things(t: &mut T, h: &mut Host) {
    for what in [
        "garbage",
        "HTTP",
        "declines",
        "v1",
        "SMC-D",
        "a proposal",
        "confirms",
        "joins no group",
        "ends",
        "half of it",
    ] {
        h.fresh();
        let Some((mut real, mut side)) = named(t, h) else {
            return;
        };
        let m = clc::read(&mut side, 4000).unwrap_or_default();
        let proposed = clc::header(&m).map(|h| h.ty) == Some(clc::PROPOSAL);
        t.check(&format!("{what}: no proposal: {m:02x?}"), proposed);
        let me = h.end();
        let accept = clc::agreement_v2(clc::ACCEPT, &me, Some((255, 1)));
        match what {
            "garbage" => side.send(&[0x55; 300]),
            "HTTP" => side.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "declines" => side.send(&clc::decline(0x0303_0000, 2)),
            "v1" => side.send(&clc::accept_v1(clc::ACCEPT)),
            "SMC-D" => side.send(&clc::message(clc::EYE_D, clc::ACCEPT, 0x10, &[0; 36])),
            "a proposal" => side.send(&clc::proposal_v2(&me, 1)),
            "confirms" => side.send(&clc::agreement_v2(clc::CONFIRM, &me, Some((255, 1)))),
            "joins no group" => side.send(&clc::agreement_v2(clc::ACCEPT, &me, None)),
            "ends" => side.send_fin(),
            _ => {
                side.send(&accept[..30]);
                side.send_fin();
            }
        }
        let ends = side.pump(12_000 * guest::slow(), |p| p.rst || p.fin);
        t.check(&format!("{what}: is ended"), ends);
        guest::pause(100);
        real.goes_on(t, what);
        real.end();
    }
}

/// The handshake is through, and then nobody says a mark.
fn no_mark(t: &mut T, h: &mut Host) {
    h.fresh();
    let Some((mut real, side)) = named(t, h) else {
        return;
    };
    let Some(c) = real.shake(t, h, side) else {
        return;
    };
    real.goes_on(t, "meanwhile");
    gives_up(t, real, c.tcp, PATHREFUSED, "no mark");
}

/// The program closes at each step: while the SYN is under way, after the first message, after the proposal, and when the
/// handshake is through. What goes on without it goes on to its end, and no further.
fn program_goes(t: &mut T, h: &mut Host) {
    for step in 0..4 {
        h.fresh();
        let begun = match step {
            0 => dialled(t, h),
            _ => named(t, h),
        };
        let Some((mut real, mut side)) = begun else {
            return;
        };
        match step {
            2 => drop(clc::read(&mut side, 4000)),
            3 => {
                let Some(mut c) = real.shake(t, h, side) else {
                    return;
                };
                says(&mut c, &h.rc, &READY[..4]);
                side = c.tcp;
            }
            _ => (),
        }
        drop(real.fd);
        real.tcp.pump(2000, |p| p.fin || p.rst);
        t.check(
            &format!("{step}: the peer hears"),
            real.tcp.fin || real.tcp.rst,
        );
        real.tcp.send_rst();
        if step == 0 {
            side.snd = 0;
            side.send_rst();
            continue;
        }
        let ends = side.pump(12_000 * guest::slow(), |p| p.rst || p.fin);
        t.check(&format!("{step}: is ended"), ends);
    }
}

/// After failures a connection is tried again, and then promoted.
fn at_last(t: &mut T, h: &mut Host) {
    h.fresh();
    let Some((mut real, mut side)) = named(t, h) else {
        return;
    };
    side.send(&[0x55; 300]);
    side.pump(12_000 * guest::slow(), |p| p.rst || p.fin);
    let wire: &'static Wire = Box::leak(Box::new(Wire::open("vb").expect("packet socket")));
    guest::pause(100);
    real.talk(t, "then", 20);
    let Some(mut side) = Peer::wait_syn(wire, h.ip, FAKE, 4000) else {
        return t.check("not tried again", false);
    };
    t.check("ACK", side.syn_ack(&identity(ANSWER | JOINS)));
    let join = side.recv(24, 3000);
    t.is("names", join, Some(real.join().to_vec()));
    real.promote(t, h, side);
    real.end();
}
