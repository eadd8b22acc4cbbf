// SPDX-License-Identifier: GPL-2.0

//! Two connections come to their end: closes, lost links, peers that vanish.

#[path = "../sim/mod.rs"]
mod sim;

use sim::pair::*;
use sim::rng::Rng;
use smc_proto::conn::{ConnState, RecvState};
use smc_proto::time::Span;

#[test]
fn crossing_closes() {
    for seed in 0..200 {
        let shape = Shape {
            seed,
            ..Shape::PLAIN
        };
        let mut p = Pair::new(&shape);
        let mut rng = Rng(seed);
        for me in [0, 1] {
            p.op(me, Op::Write(rng.below(3000) as u16));
        }
        let kinds = [Op::ShutWrite, Op::ShutBoth, Op::Close, Op::Abort];
        for _ in 0..6 {
            let me = rng.below(2) as usize;
            p.op(me, kinds[rng.below(4) as usize]);
            if rng.one_in(2) {
                let us = rng.below(100) as u16;
                p.op(me, Op::Wait(us));
            }
            if rng.one_in(3) {
                p.op(me, Op::Read(5000));
            }
        }
        p.finish();
        assert!(p.is_freed(0) && p.is_freed(1), "seed {seed}");
    }
}

#[test]
fn half_close_delivers_everything() {
    for seed in 0..50 {
        let shape = Shape {
            seed,
            rings: [12, 10, 12, 10],
            ..Shape::PLAIN
        };
        let mut p = Pair::new(&shape);
        p.op(0, Op::Write(4000));
        p.op(0, Op::ShutWrite);
        p.op(1, Op::Write(4000));
        while !p.side[1].saw_eof {
            p.op(1, Op::Read(300));
            p.op(0, Op::Read(300));
            p.op(0, Op::Wait(50));
        }
        assert_eq!(p.side[1].conn.positions().consumed, 4000);
        assert_eq!(p.side[1].conn.state(), ConnState::AppCloseWait1);
        p.op(1, Op::Close);
        while !p.side[0].saw_eof {
            p.op(0, Op::Read(300));
            p.op(0, Op::Wait(50));
        }
        assert_eq!(p.side[0].conn.positions().consumed, 4000);
        p.finish();
        assert!(p.is_freed(0) && p.is_freed(1));
    }
}

#[test]
fn close_delivers_to_a_slow_reader() {
    let mut p = Pair::new(&Shape::PLAIN);
    for _ in 0..8 {
        p.op(0, Op::Write(5000));
        p.op(0, Op::Wait(200));
    }
    let total = p.side[0].written.len() as u64;
    assert!(total > 16384);
    p.op(0, Op::Close);
    while !p.side[1].saw_eof {
        // Much longer in all than C's two seconds, and slower than `DRAIN_RATE`.
        p.op(1, Op::Read(500));
        assert_ne!(p.side[1].conn.recv_state(), RecvState::Reset);
        let t = p.now.after(Span::from_millis(400));
        p.run_until(t);
    }
    assert_eq!(p.side[1].conn.positions().consumed, total);
    p.finish();
    assert!(p.is_freed(0) && p.is_freed(1));
}

#[test]
fn link_loss_reaches_both() {
    for seed in 0..200 {
        let shape = Shape {
            seed,
            ..Shape::PLAIN
        };
        let mut p = Pair::new(&shape);
        let mut rng = Rng(seed);
        for _ in 0..rng.below(30) {
            let me = rng.below(2) as usize;
            p.op(me, Op::Write(rng.below(5000) as u16));
            p.op(1 - me, Op::Read(rng.below(5000) as u16));
            let us = rng.below(60) as u16;
            p.op(me, Op::Wait(us));
        }
        p.op(rng.below(2) as usize, Op::LinkLoss);
        for _ in 0..10 {
            let me = rng.below(2) as usize;
            p.op(me, Op::Write(100));
            p.op(me, Op::Wait(30));
            if rng.one_in(4) {
                p.op(me, Op::Close);
            }
        }
        p.finish();
        assert!(p.is_freed(0) && p.is_freed(1), "seed {seed}");
    }
}

/// A peer that vanishes with bytes unsent is noticed by its FIN alone, once what came was read.
#[test]
fn a_peer_that_vanishes_is_noticed() {
    for seed in 0..200 {
        let shape = Shape {
            seed,
            rings: [10, 10, 10, 10],
            slots: 2,
            ..Shape::PLAIN
        };
        let mut p = Pair::new(&shape);
        for _ in 0..=seed % 20 {
            p.op(0, Op::Write(400));
            p.op(0, Op::Wait((seed % 7) as u16 * 10));
        }
        p.op(0, Op::Vanish);
        for _ in 0..30 {
            p.run_until(p.now.after(Span::from_millis(100)));
            p.op(1, Op::Read(300));
        }
        p.run_until(p.now.after(Span::from_secs(13)));
        assert_eq!(p.side[1].conn.recv_state(), RecvState::Aborted, "{seed}");
        p.finish();
    }
}

/// A FIN that comes before the message, or while the rest waits for a slow reader, ends nothing: the
/// program gets every byte and then the end.
#[test]
fn a_fin_overtakes_and_ends_nothing() {
    for seed in 0..200 {
        let shape = Shape {
            seed,
            rings: [14, 10, 10, 10],
            slots: 2,
            ..Shape::PLAIN
        };
        let mut p = Pair::new(&shape);
        for _ in 0..=seed % 20 {
            p.op(0, Op::Write(400));
        }
        p.op(0, Op::Close);
        let mut left = 100;
        while !p.side[1].saw_eof && left > 0 {
            p.run_until(p.now.after(Span(100_000 + seed % 3 * 1_000_000_000)));
            while p.read(1, 300, false) > 0 {
                p.run_until(p.now.after(Span(20_000)));
            }
            left -= 1;
        }
        let read = p.side[1].conn.positions().consumed;
        assert!(p.side[1].saw_eof, "{seed}: {read}");
        assert_eq!(read, p.side[0].written.len() as u64, "{seed}");
        p.finish();
    }
}
