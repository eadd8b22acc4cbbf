// SPDX-License-Identifier: GPL-2.0

//! The writer: `put.rs`, and its wait for room.

use super::{
    state::{Ring, State, Steps, Thread, Var, Wait},
    Config, Report, Slip,
};
use smc_proto::path::Route;

const ME: Thread = Thread::Writer;
/// Sizes of the first ring and of the largest one.
const SMALL: u8 = 1;
const LARGE: u8 = 2;

/// What it does next; `left` are bytes of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    Begin,
    Lock { left: u8 },
    Choose { left: u8 },
    Try { left: u8 },
    Promote { left: u8, locked: bool },
    Turn { left: u8, to: u64, locked: bool },
    Room { left: u8 },
    Larger { left: u8 },
    Grow { left: u8, first: u8 },
    Copy { left: u8, len: u8 },
    Tell { left: u8, barrier: bool },
    End { left: u8 },
    Ended { left: u8, seen: u64 },
    Tcp { left: u8 },
    Queue { left: u8 },
    Look { left: u8 },
    Starve { left: u8 },
    LookAgain { left: u8, barrier: bool },
    Asleep { left: u8 },
    Shut,
    Done,
}

use Writer::*;

fn room(state: &State) -> u8 {
    let tail = state.load(ME, Var::Tail);
    let there = state.load(ME, Var::Head).wrapping_sub(tail);
    state.size.saturating_sub(there)
}

/// A third of the ring is free; without a ring nobody waits for one.
fn has_room(state: &State) -> bool {
    state.size == 0 || room(state) != 0
}

pub fn steps(
    state: &State,
    config: &Config,
    report: &mut Report,
    next: Steps<'_>,
) -> Result<(), String> {
    let mut go = |to: Writer, change: &dyn Fn(&mut State)| {
        let mut after = state.clone();
        change(&mut after);
        after.writer = to;
        next.push(after);
    };
    let slips = |slip| config.slip == Some(slip);
    let route = state.route();
    match state.writer {
        Begin if state.sent == config.bytes => go(Shut, &|_| ()),
        Begin => {
            for left in 1..=config.message.min(config.bytes - state.sent) {
                go(Lock { left }, &|_| ());
            }
        }
        Lock { left } if !state.writer_locked => go(Choose { left }, &|s| {
            s.barrier(ME);
            s.writer_locked = true;
        }),
        Lock { .. } => (),
        Choose { left } => {
            for leaves in [false, true] {
                let leaves = leaves || state.bound;
                let to = match (route.writes_ring(), leaves) {
                    (false, true) => Tcp { left },
                    (false, false) => Try { left },
                    (true, true) => End { left },
                    (true, false) => Room { left },
                };
                go(to, &|_| ());
            }
        }
        Try { left } if slips(Slip::PromotesBetweenReads) => {
            let locked = !state.reader_locked;
            go(Promote { left, locked }, &|s| s.reader_locked = true);
        }
        Try { left } if state.reader_locked => go(Tcp { left }, &|_| ()),
        Try { left } => go(Promote { left, locked: true }, &|s| {
            s.barrier(ME);
            s.reader_locked = true;
        }),
        Promote { left, locked } => {
            let make = |s: &mut State| {
                if s.reader_ring.is_none() {
                    let first = s.load(ME, Var::Head);
                    s.reader_ring = Some(s.make(Ring::new(first, SMALL)));
                }
            };
            let fails = |s: &mut State| {
                make(s);
                if locked {
                    s.store(ME, Var::Reader, 0);
                }
            };
            // TCP has not sent all, or has something urgent.
            go(Tcp { left }, &fails);
            match route.promoted(state.tcp.end()) {
                Some(to) if !state.bound => {
                    let to = to.word();
                    go(Turn { left, to, locked }, &|s| {
                        make(s);
                        s.cut = s.tcp.end();
                        s.writer_ring = s.reader_ring;
                        s.size = SMALL;
                    });
                }
                _ => (),
            }
        }
        Turn { left, to, locked } => {
            if state.head != state.tail {
                return Err(format!("more in the ring: {state:?}"));
            }
            let done = route == Route::TCP;
            report.promotions += usize::from(done);
            go(if done { Room { left } } else { Tcp { left } }, &|s| {
                s.barrier(ME);
                s.replace_route(Route::TCP, Route::from_word(to));
                if locked {
                    s.store(ME, Var::Reader, 0);
                }
            });
        }
        Room { left } => match room(state) {
            0 => go(Larger { left }, &|_| ()),
            room => go(
                Copy {
                    left,
                    len: left.min(room),
                },
                &|_| (),
            ),
        },
        Larger { left } => {
            let first = match slips(Slip::GrowsFromTheHead) {
                true => state.load(ME, Var::Head),
                false => state.load(ME, Var::Tail),
            };
            match room(state) == 0 && state.size < LARGE {
                true => go(Grow { left, first }, &|_| ()),
                false => go(Queue { left }, &|s| s.store(ME, Var::Writer, 0)),
            }
        }
        Grow { left, .. } if state.reader_locked => {
            go(Queue { left }, &|s| s.store(ME, Var::Writer, 0));
        }
        Grow { left, first } => {
            report.grown += 1;
            // With both locks: nobody else sees a part of it.
            let grow = |s: &mut State| {
                s.barrier(ME);
                let mut ring = Ring::new(first, LARGE);
                let old = s.writer_ring.unwrap_or(0);
                let from = &mut s.rings[usize::from(old)];
                for at in first..s.head {
                    *ring.place(first, at) = *from.place(from.first, at);
                }
                let ring = s.make(ring);
                s.writer_ring = Some(ring);
                s.reader_ring = Some(ring);
                s.size = LARGE;
            };
            let mut after = state.clone();
            grow(&mut after);
            match room(&after) {
                0 => go(Queue { left }, &|s| {
                    grow(s);
                    s.store(ME, Var::Writer, 0);
                }),
                room => go(
                    Copy {
                        left,
                        len: left.min(room),
                    },
                    &grow,
                ),
            }
        }
        Copy { left, len } => {
            let Some(ring) = state.writer_ring else {
                return Err(format!("no ring to write: {state:?}"));
            };
            go(
                Tell {
                    left: left - len,
                    barrier: !slips(Slip::TellsWithoutBarrier),
                },
                &|s| {
                    let head = s.load(ME, Var::Head);
                    let mut first = s.load(ME, Var::First);
                    let ring = usize::from(ring);
                    let mask = s.rings[ring].bytes.len() as u8 - 1;
                    // `write_all` begins anew with a message that would lie around the end of an empty ring.
                    let around = (head.wrapping_sub(first) & mask) + len > mask + 1;
                    if around && len == left && head == s.load(ME, Var::Tail) {
                        first = head;
                        s.store(ME, Var::First, first);
                    }
                    for at in 0..len {
                        *s.rings[ring].place(first, head + at) = Some(s.sent);
                        s.sent += 1;
                    }
                    s.store(ME, Var::Head, head + len);
                    s.store(ME, Var::Writer, 0);
                },
            );
        }
        Tell {
            left,
            barrier: true,
        } => go(
            Tell {
                left,
                barrier: false,
            },
            &|s| s.barrier(ME),
        ),
        Tell { left, .. } => go(if left == 0 { Begin } else { Lock { left } }, &|s| {
            s.reader_waits.wake();
        }),
        End { left } => go(
            Ended {
                left,
                seen: state.route,
            },
            &|_| (),
        ),
        Ended { left, seen } if seen != state.route => go(End { left }, &|s| s.barrier(ME)),
        Ended { left, .. } => {
            report.returns += 1;
            go(Tcp { left }, &|s| {
                s.barrier(ME);
                s.route = s.route().ended().word();
                s.writer_ring = None;
            });
        }
        Tcp { left } => go(Begin, &|s| {
            s.barrier(ME);
            for _ in 0..left {
                s.tcp.bytes.push(s.sent);
                s.sent += 1;
            }
            s.store(ME, Var::Writer, 0);
        }),
        Queue { left } => go(Look { left }, &|s| {
            s.barrier(ME);
            s.writer_waits = Wait::Queued;
        }),
        Look { left } if !route.writes_ring() || has_room(state) => {
            go(Lock { left }, &|s| s.writer_waits = Wait::No);
        }
        Look { left } => go(Starve { left }, &|_| ()),
        Starve { left } => go(
            LookAgain {
                left,
                barrier: !slips(Slip::StarvesWithoutBarrier),
            },
            &|s| s.store(ME, Var::Starving, 1),
        ),
        LookAgain {
            left,
            barrier: true,
        } => go(
            LookAgain {
                left,
                barrier: false,
            },
            &|s| s.barrier(ME),
        ),
        LookAgain { left, .. } if has_room(state) => {
            go(Lock { left }, &|s| s.writer_waits = Wait::No);
        }
        LookAgain { left, .. } => go(Asleep { left }, &|_| ()),
        Asleep { left } if state.writer_waits == Wait::Woken => {
            go(Look { left }, &|s| s.writer_waits = Wait::Queued);
        }
        Asleep { .. } => (),
        Shut if config.answered && state.read != state.sent => (),
        Shut if !state.writer_locked => go(Done, &|s| {
            s.barrier(ME);
            s.tcp.fin = true;
        }),
        Shut | Done => (),
    }
    Ok(())
}
