// SPDX-License-Identifier: GPL-2.0
//! CLC messages that are malformed, cut, too long, repeated or out of order at every step.
//! Whatever happens, the module's program has its answer in bounded time: a connection (by SMC-R or
//! TCP), an error, or on the server's side nothing at all.

use crate::handshake::{begin, over, steps, works};
use crate::host::Host;
use st::clc;
use st::point::T;
use st::rng::Rng;

crate::both!(
    wrong_type,
    wrong_header,
    wrong_length,
    cut_short,
    bit_flips,
    noise,
    wrong_fields,
    too_much,
    repeated,
);

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
        spoilt(t, h, &format!("length {n} and as long"), &mut |m| {
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
