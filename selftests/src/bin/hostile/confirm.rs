// SPDX-License-Identifier: GPL-2.0
//! Handshakes whose link is never confirmed, or confirmed wrongly: both sides go on by TCP, or
//! the connection ends.

use crate::handshake::{over, unconfirmed, works, Under};
use crate::host::{confirm_link, llc, Host, Role};
use st::point::T;
use st::{clc, smcinfo, sys};

crate::both!(crossed, never_confirms, confirms_wrongly, declines_late,);

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

fn never_confirms(t: &mut T, h: &mut Host) {
    let t0 = std::time::Instant::now();
    let Some(u) = unconfirmed(t, h) else { return };
    falls_back(t, h, u, "silence");
    let s = t0.elapsed().as_secs();
    t.check(&format!("took {s} s"), s < 30 * st::guest::slow());
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
