// SPDX-License-Identifier: GPL-2.0
//! Checks the wire while the hooks come and go.

use crate::{calling, idle, listening, FAKE, REAL};
use st::packet::{smc_options, Seg, ACK, SMC_OPTION, SYN};
use st::point::{Point, T};
use st::rawpeer::wire_addr;
use st::rng::Rng;
use std::net::SocketAddr;

/// Points of `sent.`.
pub const LIST: &[Point] = &[
    point!("sent.syn_again", syn_again),
    point!("sent.syn_ack_again", syn_ack_again),
    point!("sent.each_has_it", each_has_it),
    point!("sent.each_of_many_threads", each_of_many_threads),
];

/// Time that the hooks stay here. As short as can be: less than TCP waits before it repeats a SYN.
const IDLE: u32 = 10;

/// The next SYN (with `SYN`) or SYN-ACK (with `SYN | ACK`) of the module.
fn next(t: &T, flags: u8, ms: u64) -> Option<Seg> {
    t.wire.next(ms, |s| {
        s.flags & (SYN | ACK) == flags && s.src.port() != FAKE
    })
}

/// A SYN that nobody answers is repeated, with the option once, and then without it.
fn syn_again(t: &mut T) {
    idle(IDLE);
    let _fd = calling(t);
    for (what, options) in [("first", 1), ("second", 1), ("third", 0)] {
        let syn = next(t, SYN, 10_000).expect("SYN");
        t.is(what, smc_options(&syn.opts), options);
    }
}

/// So is a SYN-ACK, whatever becomes of other sockets.
fn syn_ack_again(t: &mut T) {
    idle(IDLE);
    let _fd = listening(t);
    let mut seg = Seg {
        src: SocketAddr::new(wire_addr(true, t.ip), FAKE),
        dst: SocketAddr::new(wire_addr(false, t.ip), REAL),
        seq: 7,
        ack: 0,
        flags: SYN,
        win: 0xfff0,
        opts: vec![2, 4, 5, 180],
        data: vec![],
        sums: st::packet::Sums::Good,
    };
    seg.opts.extend(SMC_OPTION);
    t.wire.put(&seg);
    for what in ["first", "second", "third"] {
        let answer = next(t, SYN | ACK, 10_000).expect("SYN-ACK");
        t.is(what, smc_options(&answer.opts), 1);
        drop(calling(t));
    }
}

/// Sockets one after the other, with pauses as long as the hooks stay.
fn each_has_it(t: &mut T) {
    idle(IDLE);
    let mut rng = Rng::new(6);
    for _ in 0..150 {
        let fd = calling(t);
        let syn = next(t, SYN, 4000).expect("SYN");
        t.is("SYN", smc_options(&syn.opts), 1);
        drop(fd);
        // From once to twice the time, which is when they go.
        let us = 500 * (rng.draw() % 50);
        std::thread::sleep(std::time::Duration::from_micros(us));
    }
}

/// The same from several threads at once; now and then all pause.
fn each_of_many_threads(t: &mut T) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 40;
    idle(IDLE);
    let t = &*t;
    let bad = std::thread::scope(|scope| {
        for seed in 0..THREADS {
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..ROUNDS {
                    drop(calling(t));
                    let us = 500 * (rng.draw() % 60);
                    std::thread::sleep(std::time::Duration::from_micros(us));
                }
            });
        }
        (0..THREADS * ROUNDS)
            .map(|_| next(t, SYN, 10_000).expect("SYN"))
            .filter(|syn| smc_options(&syn.opts) != 1)
            .count()
    });
    assert_eq!(bad, 0, "SYNs without the option");
}
