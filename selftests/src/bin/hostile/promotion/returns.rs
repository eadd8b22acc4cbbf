// SPDX-License-Identifier: GPL-2.0
//! What a hostile host says of the way back to TCP, once a connection has been promoted: records on TCP, and the flags of
//! CDC messages that ask to leave the rings. The connection goes on with every byte right, or ends with an error.

use super::marks::{agreed, closes, is_reset};
use super::{cut, hears, says, Real};
use crate::host::{Conn, Host, Role};
use st::guest;
use st::point::{Point, T};

macro_rules! points {
    ($($f:ident),* $(,)?) => {
        /// The points of this file.
        pub const LIST: &[Point] = &[$(
            Point {
                name: concat!("promotion.returns.client.", stringify!($f)),
                run: |t| super::with(t, Role::Client, $f),
            },
            Point {
                name: concat!("promotion.returns.server.", stringify!($f)),
                run: |t| super::with(t, Role::Server, $f),
            },
        )*];
    };
}

points!(right_record, wrong_records, no_record, flags, orders);

/// Flags of a CDC message: the sender would leave the rings, or stays.
const LEAVE: u8 = 0x04;
const STAYS: u8 = 0x02;

/// A record: eyecatcher, bytes received, and bytes written with a bit that says "in good order".
fn record(received: u64, written: u64, orderly: bool) -> [u8; 24] {
    let mut m = [0; 24];
    m[..8].copy_from_slice(b"RSMCBACK");
    m[8..16].copy_from_slice(&received.to_be_bytes());
    m[16..].copy_from_slice(&(written | (u64::from(orderly) << 63)).to_be_bytes());
    m
}

/// A connection of which all goes by the rings, and has, both ways; and how many bytes each end has said there.
fn promoted(t: &mut T, h: &mut Host) -> Option<(Real, Conn<'static>, u64, u64)> {
    let (mut real, mut c) = agreed(t, h)?;
    says(&mut c, &h.rc, &cut(real.tcp.snd));
    if h.role == Role::Server {
        let theirs = hears(&c, &h.rc, 8);
        t.is("cut", theirs, Some(cut(real.tcp.rcv).to_vec()));
        c.cons += 8;
    }
    real.by_rings(t, h, &mut c);
    let (ours, theirs) = (c.prod, c.cons);
    Some((real, c, ours, theirs))
}

/// The other host has lost its link, as far as it says: both go on by TCP.
fn right_record(t: &mut T, h: &mut Host) {
    for orderly in [false, true] {
        let what = format!("in good order {orderly}");
        let Some((mut real, _c, ours, theirs)) = promoted(t, h) else {
            return;
        };
        real.tcp.send(&record(theirs, ours, orderly));
        let said = real.tcp.recv(24, 3000 * guest::slow());
        let due = |orderly| Some(record(ours, theirs, orderly).to_vec());
        t.check(
            &format!("{what}: its record: {said:x?}"),
            said == due(false) || orderly && said == due(true),
        );
        real.goes_on(t, &what);
        real.end();
    }
}

/// Numbers that no correct host says.
fn wrong_records(t: &mut T, h: &mut Host) {
    for (what, received, written, orderly) in [
        ("has what was not sent", 1, 0, false),
        ("has what was not sent, in good order", 1, 0, true),
        ("has far more", i64::MAX, 0, false),
        ("has sent less", 0, -1, false),
        ("has sent less, in good order", 0, -1, true),
    ] {
        let Some((mut real, _c, ours, theirs)) = promoted(t, h) else {
            return;
        };
        let received = theirs.wrapping_add_signed(received);
        let written = ours.wrapping_add_signed(written);
        real.tcp.send(&record(received, written, orderly));
        is_reset(t, real, 0, what);
    }
    let Some((mut real, _c, ours, theirs)) = promoted(t, h) else {
        return;
    };
    let mut other = record(theirs, ours, false);
    other[7] ^= 1;
    real.tcp.send(&other);
    is_reset(t, real, 0, "another eyecatcher");
}

/// A part of a record, or its end in place of one: the program may close at any time.
fn no_record(t: &mut T, h: &mut Host) {
    for part in [1, 8, 23] {
        let Some((mut real, mut c, ours, theirs)) = promoted(t, h) else {
            return;
        };
        real.tcp.send(&record(theirs, ours, false)[..part]);
        real.tcp.pump(50, |_| false);
        real.by_rings(t, h, &mut c);
        closes(t, real, &format!("{part} bytes of a record"));
    }
    // It says that more is on its way which does not come.
    let Some((mut real, _c, ours, theirs)) = promoted(t, h) else {
        return;
    };
    real.tcp.send(&record(theirs, ours + 100, true));
    closes(t, real, "more on its way");
}

/// Asks for what was not agreed on, and answers what was not asked.
fn flags(t: &mut T, h: &mut Host) {
    let Some((mut real, mut c, ..)) = promoted(t, h) else {
        return;
    };
    for flags in [LEAVE, STAYS, LEAVE | STAYS] {
        for _ in 0..60 {
            let mut m = c.cdc();
            m[24] = flags;
            h.rc.send(&m);
        }
        real.by_rings(t, h, &mut c);
    }
    real.end();
}

/// Flags beside a record, in both orders.
fn orders(t: &mut T, h: &mut Host) {
    for first in [false, true] {
        let Some((mut real, mut c, ours, theirs)) = promoted(t, h) else {
            return;
        };
        let flag = |c: &mut Conn<'_>| {
            let mut m = c.cdc();
            m[24] = LEAVE | STAYS;
            h.rc.send(&m);
        };
        if first {
            flag(&mut c);
        }
        real.tcp.send(&record(theirs, ours, false));
        if !first {
            flag(&mut c);
        }
        let said = real.tcp.recv(24, 3000 * guest::slow());
        t.is("record", said, Some(record(ours, theirs, false).to_vec()));
        real.goes_on(t, &format!("flags first {first}"));
        real.end();
    }
}
