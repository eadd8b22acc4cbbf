// SPDX-License-Identifier: GPL-2.0

//! Two connections against each other in the pair simulator.

#[path = "../sim/mod.rs"]
mod sim;

use proptest::prelude::*;
use sim::pair::*;
use sim::rng::Rng;
use smc_proto::conn::{ProtoError, RecvState};
use smc_proto::wire::ids::AlertToken;
use smc_proto::wire::immediate::Immediate;

/// Moves `total` bytes from side 0 to side 1 and back at once; messages used.
fn bulk(shape: &Shape, total: usize, read: u16) -> u64 {
    let mut p = Pair::new(shape);
    let mut rng = Rng(shape.seed ^ 5);
    let mut idle = 0;
    loop {
        let mut done = true;
        for me in 0..2 {
            let left = total - p.side[me].written.len();
            let n = left.min(1 + rng.below(8000) as usize);
            p.op(me, Op::Write(n as u16));
            p.op(me, Op::Read(read));
            done &= left == 0 && p.side[me].conn.positions().consumed == total as u64;
        }
        let us = rng.below(60) as u16;
        p.op(0, Op::Wait(us));
        if done {
            break;
        }
        idle += 1;
        assert!(idle < 4_000_000, "{:?}", p.side[0].conn);
    }
    p.finish();
    p.delivered
}

#[test]
fn bulk_both_ways() {
    for seed in 0..8 {
        for rings in [
            [14, 14, 14, 14],
            [12, 14, 14, 10],
            [6, 4, 3, 7],
            [0, 0, 0, 0],
        ] {
            let total = if rings[0] < 8 { 3000 } else { 200_000 };
            let shape = Shape {
                seed,
                rings,
                ..Shape::PLAIN
            };
            bulk(&shape, total, 5000);
        }
    }
}

/// Between peers that agreed on it, nearly all short messages of a conversation are immediates,
/// and nothing else is sent for most of them.
#[test]
fn a_conversation_needs_no_cdc() {
    let shape = Shape {
        seed: 3,
        ..Shape::PLAIN
    };
    let mut p = Pair::new(&shape);
    for turn in 0..1000 {
        let me = turn % 2;
        p.op(me, Op::Write(64));
        p.op(me, Op::Wait(1000));
        p.op(1 - me, Op::Read(100));
    }
    assert_eq!(p.side[0].conn.positions().consumed, 500 * 64);
    assert!(p.immediates > 980, "{}", p.immediates);
    assert!(p.delivered < 1020, "{}", p.delivered);
    p.finish();
}

#[test]
fn an_immediate_beyond_the_ring_is_refused() {
    let mut p = Pair::new(&Shape {
        seed: 3,
        rings: [14, 14, 14, 14],
        ..Shape::PLAIN
    });
    p.op(0, Op::Write(9000));
    p.op(0, Op::Wait(1000));
    let now = p.now;
    let conn = &mut p.side[1].conn;
    let before = conn.positions();
    let token = conn.token();
    let too_much = Immediate::new(token, 16384 - 9000 + 1).unwrap();
    assert_eq!(
        conn.on_immediate(too_much, now),
        Err(ProtoError::ProducerCursor)
    );
    let other = Immediate::new(AlertToken(token.0 ^ 0x100), 1).unwrap();
    assert_eq!(conn.on_immediate(other, now), Err(ProtoError::Token));
    assert_eq!(conn.positions(), before);
}

#[test]
fn one_slot_is_enough() {
    let shape = Shape {
        slots: 1,
        ..Shape::PLAIN
    };
    bulk(&shape, 200_000, 3000);
}

#[test]
fn a_slow_reader_is_waited_for() {
    let mut p = Pair::new(&Shape::PLAIN);
    for _ in 0..100 {
        p.op(0, Op::Write(5000));
        p.op(0, Op::Wait(100));
    }
    let full = p.side[0].written.len();
    assert_eq!(full, 2 * 16384);
    for _ in 0..400 {
        p.op(1, Op::Read(100));
        p.op(0, Op::Wait(200));
    }
    assert_eq!(p.side[1].conn.recv_state(), RecvState::Empty);
    p.finish();
}

#[test]
fn the_wrap_counter_may_overflow() {
    // 65536 turns of a 1-byte ring, and then some.
    let shape = Shape {
        rings: [8, 1, 8, 1],
        autocork: 0,
        ..Shape::PLAIN
    };
    bulk(&shape, 2 * 65536 + 999, 1000);
}

#[test]
fn requests_and_responses_cost_one_message_each() {
    for seed in [2, 3] {
        let mut p = Pair::new(&Shape {
            seed,
            ..Shape::PLAIN
        });
        for _ in 0..1000 {
            for me in [0, 1] {
                p.op(me, Op::Write(64));
                p.op(me, Op::Wait(200));
                p.op(1 - me, Op::Read(64));
            }
        }
        // Consumer updates ride on the data going the other way.
        assert_eq!(p.delivered, 2000);
        assert_eq!(p.immediates > 1950, seed == 3, "{}", p.immediates);
        p.finish();
    }
}

/// Messages of nearly a ring's size and more, each answered by one: none waits for anything but
/// the wire, whatever the rings and however they are read.
#[test]
fn messages_of_a_rings_size_go_back_and_forth() {
    const RING: u32 = 1 << 12;
    for seed in 0..240u64 {
        let mut rng = Rng(seed);
        let mut ring = || [10, 12, 13][rng.below(3) as usize];
        let shape = Shape {
            seed,
            rings: [ring(), ring(), ring(), ring()],
            slots: 1 + rng.below(8) as usize,
            autocork: [0, 65536][rng.below(2) as usize],
        };
        let n = (RING / 2 + rng.below(u64::from(RING)) as u32) as usize;
        let piece = [n as u16, (RING / 10 + 1) as u16, 0][rng.below(3) as usize];
        let mut p = Pair::new(&shape);
        for round in 1..=20 {
            for me in 0..2 {
                let mut waits = 0;
                while p.side[1 - me].conn.positions().consumed < (round * n) as u64 {
                    let left = round * n - p.side[me].written.len();
                    if left > 0 {
                        p.op(me, Op::Write(left as u16));
                    }
                    let some = if piece == 0 {
                        1 + rng.below(3000) as u16
                    } else {
                        piece
                    };
                    p.op(1 - me, Op::Read(some));
                    p.op(me, Op::Wait(100));
                    waits += 1;
                    assert!(waits < 200, "{shape:?}, {n} bytes: {:?}", p.side[me].conn);
                }
            }
        }
        p.finish();
    }
}

#[test]
fn urgent_data_everywhere_in_the_ring() {
    for inline in [false, true] {
        for seed in 0..40 {
            let shape = Shape {
                seed,
                rings: [7, 5, 7, 5],
                autocork: 0,
                ..Shape::PLAIN
            };
            let mut p = Pair::new(&shape);
            let mut rng = Rng(seed);
            p.op(1, Op::Inline(inline));
            for _ in 0..300 {
                p.op(0, Op::Write(rng.below(20) as u16));
                if rng.one_in(3) {
                    p.op(0, Op::WriteUrgent(1 + rng.below(5) as u16));
                }
                p.op(1, Op::Read(rng.below(30) as u16));
                if rng.one_in(2) {
                    p.op(1, Op::ReadUrgent);
                }
                p.op(0, Op::Wait(100));
            }
            assert!(p.side[0].urgent.len() > 30, "{}", p.side[0].urgent.len());
            p.finish();
        }
    }
}

/// Every sequence of a few steps, in every interleaving of programs, arrivals and completions, over
/// the smallest rings: afterwards everything still comes to its end.
#[test]
fn all_short_histories() {
    type Act = fn(&mut Pair) -> bool;
    fn did(p: &mut Pair, me: usize, op: Op) -> bool {
        p.op(me, op);
        true
    }
    let acts: [Act; 13] = [
        |p| did(p, 0, Op::Write(1)),
        |p| did(p, 1, Op::Write(2)),
        |p| did(p, 0, Op::WriteUrgent(1)),
        |p| p.read(1, 9, false) > 0,
        |p| p.arrive(0),
        |p| p.arrive(1),
        |p| p.completes(0),
        |p| did(p, 0, Op::ShutWrite),
        |p| did(p, 1, Op::ShutWrite),
        |p| did(p, 0, Op::Close),
        |p| did(p, 1, Op::Close),
        |p| did(p, 1, Op::ShutBoth),
        |p| did(p, 0, Op::Abort),
    ];
    let depth: u32 = std::env::var("CORE_PAIR_DEPTH").map_or(4, |v| v.parse().unwrap());
    let mut run = 0u64;
    for rings in [[0, 0, 0, 0], [1, 0, 1, 1]] {
        'next: for n in 0..(acts.len() as u64).pow(depth) {
            let mut p = Pair::new(&Shape {
                seed: n,
                rings,
                slots: 2,
                autocork: 65536,
            });
            let mut code = n;
            for _ in 0..depth {
                // What does nothing leads to a history that is tried anyway.
                if !acts[(code % acts.len() as u64) as usize](&mut p) {
                    continue 'next;
                }
                code /= acts.len() as u64;
            }
            p.finish();
            assert!(p.is_freed(0) && p.is_freed(1), "history {n}");
            run += 1;
        }
    }
    println!("{run} histories");
}

/// Urgent bytes at every place of small rings, read in and out of line.
#[test]
fn urgent_marks_exhaustively() {
    for shift in 0..=3u8 {
        let size = 1u16 << shift;
        for before in 0..=2 * size {
            for after in 0..=size {
                for (inline, oob) in [(false, false), (false, true), (true, false)] {
                    let mut p = Pair::new(&Shape {
                        seed: 1,
                        rings: [shift.max(1), shift, 4, shift],
                        slots: 4,
                        autocork: 0,
                    });
                    p.op(1, Op::Inline(inline));
                    for _ in 0..before {
                        p.op(0, Op::Write(1));
                        p.op(0, Op::Wait(300));
                        p.op(1, Op::Read(1));
                        p.op(0, Op::Wait(300));
                    }
                    p.op(0, Op::WriteUrgent(1));
                    p.op(0, Op::Wait(300));
                    let mark = p.side[0].urgent[0];
                    assert_eq!(mark, u64::from(before));
                    let c = &mut p.side[1].conn;
                    assert!(c.at_mark() && c.has_urgent());
                    assert_eq!(c.recv_state() == RecvState::Empty, !inline);
                    if oob {
                        assert_eq!(c.take_urgent(false), Ok(p.side[0].written[mark as usize]));
                    }
                    if inline {
                        assert_eq!(p.read(1, 9, false), 1);
                        p.op(0, Op::Wait(300));
                    }
                    assert!(p.side[0].conn.send_room().is_ok(), "the sender goes on");
                    for _ in 0..after {
                        p.op(0, Op::Write(1));
                        p.op(0, Op::Wait(300));
                        assert_eq!(p.read(1, 9, false), 1);
                        p.op(0, Op::Wait(300));
                    }
                    p.finish();
                }
            }
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<(bool, u8, u16)>> {
    prop::collection::vec((any::<bool>(), any::<u8>(), any::<u16>()), 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Any sequence of operations on both sides, with rings from 1 byte to 32 KiB.
    #[test]
    fn any_operations(ops in ops(), seed: u64, rings in prop::array::uniform4(0u8..16), slots in 1usize..20, cork: bool) {
        let mut p = Pair::new(&Shape {
            seed,
            rings,
            slots,
            autocork: if cork { 65536 } else { 0 },
        });
        for (side, kind, arg) in ops {
            p.op(usize::from(side), Op::from_raw(kind, arg));
        }
        p.finish();
    }
}

/// The same with long runs from plain random numbers; `CORE_PAIR_RUNS` sets how many.
#[test]
fn long_random_runs() {
    let runs = std::env::var("CORE_PAIR_RUNS").map_or(300, |v| v.parse().unwrap());
    let (mut messages, mut bytes, mut ends) = (0, 0, 0);
    for seed in 0..runs {
        let mut rng = Rng(seed * 7919);
        let ring = |rng: &mut Rng| if rng.one_in(2) { 10 + rng.below(5) } else { rng.below(8) } as u8;
        let shape = Shape {
            seed,
            rings: [
                ring(&mut rng),
                ring(&mut rng),
                ring(&mut rng),
                ring(&mut rng),
            ],
            slots: 1 + rng.below(16) as usize,
            autocork: [0, 300, 65536][rng.below(3) as usize],
        };
        let mut p = Pair::new(&shape);
        for _ in 0..rng.below(1500) {
            let side = rng.below(2) as usize;
            // Ends are rare, so that there is something to end.
            let kind = if rng.one_in(12) {
                rng.below(32)
            } else {
                [1, 9, 27][rng.below(3) as usize]
            };
            p.op(side, Op::from_raw(kind as u8, rng.next() as u16));
        }
        p.finish();
        messages += p.delivered;
        bytes += p.side.iter().map(|s| s.written.len()).sum::<usize>();
        ends += usize::from(p.is_freed(0)) + usize::from(p.is_freed(1));
    }
    println!("{runs} runs, {messages} messages, {bytes} bytes, {ends} ends");
    assert!(messages > runs * 20, "the runs must do something");
}
