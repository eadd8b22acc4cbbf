// SPDX-License-Identifier: GPL-2.0

//! The reader: `take.rs`, and its wait for bytes.

use super::{
    state::{State, Steps, Thread, Var, Wait},
    Config, Slip,
};
use smc_proto::path::{Head, Route};

const ME: Thread = Thread::Reader;

/// What it does next. `over`: it has seen the FIN; `tell`: a writer waits for the room that it has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    Lock,
    Next {
        tell: bool,
    },
    Choose {
        tell: bool,
        over: bool,
    },
    Held {
        tell: bool,
        over: bool,
        seen: u64,
    },
    Decide {
        tell: bool,
        over: bool,
        seen: u64,
        there: u8,
    },
    // As `Slip`s have it.
    HeldFirst {
        tell: bool,
        over: bool,
    },
    RouteLast {
        tell: bool,
        over: bool,
        there: u8,
    },
    EndLast {
        tell: bool,
        seen: u64,
        there: u8,
    },
    Pass {
        tell: bool,
        seen: u64,
        to: u64,
    },
    Ring {
        tell: bool,
        there: u8,
    },
    Took {
        tell: bool,
        barrier: bool,
    },
    Tcp {
        tell: bool,
        left: usize,
    },
    Loop {
        tell: bool,
    },
    Nothing {
        tell: bool,
        over: bool,
    },
    Wake {
        over: Over,
        barrier: bool,
    },
    Queue,
    LookForEnd,
    Look,
    LookInto {
        seen: u64,
    },
    LookAtTcp {
        seen: u64,
        there: u8,
    },
    Asleep,
    Done,
}

/// What follows the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Over {
    Again,
    Sleep,
    End,
}

use Reader::*;

fn there(state: &State) -> u8 {
    state
        .load(ME, Var::Head)
        .wrapping_sub(state.load(ME, Var::Tail))
}

/// Unlocks, and goes on.
fn leave(state: &State, tell: bool, over: Over) -> State {
    let mut after = state.clone();
    after.store(ME, Var::Reader, 0);
    after.reader = match (tell, over) {
        (true, over) => Wake {
            over,
            barrier: true,
        },
        (false, Over::Again) => Lock,
        (false, Over::Sleep) => Queue,
        (false, Over::End) => Done,
    };
    after
}

pub fn steps(state: &State, config: &Config, next: Steps<'_>) -> Result<(), String> {
    let slips = |slip| config.slip == Some(slip);
    let with = |to: Reader| {
        let mut after = state.clone();
        after.reader = to;
        after
    };
    let route = state.route();
    match state.reader {
        Lock if !state.reader_locked => {
            let mut after = with(Next { tell: false });
            after.barrier(ME);
            after.reader_locked = true;
            next.push(after);
        }
        Lock => (),
        // In this order: what precedes an end, or a writer's turn back to TCP, is in the ring when that is seen.
        Next { tell } => {
            let over = state.tcp.fin_arrived && !slips(Slip::LooksForTheEndLast);
            next.push(with(match slips(Slip::LooksBeforeTheRoute) {
                true => HeldFirst { tell, over },
                false => Choose { tell, over },
            }));
        }
        Choose { tell, over } => {
            let seen = state.route;
            next.push(with(Held { tell, over, seen }));
        }
        Held { tell, over, seen } => {
            let there = there(state);
            next.push(with(match slips(Slip::LooksForTheEndLast) {
                true => EndLast { tell, seen, there },
                false => Decide {
                    tell,
                    over,
                    seen,
                    there,
                },
            }));
        }
        HeldFirst { tell, over } => {
            let there = there(state);
            next.push(with(RouteLast { tell, over, there }));
        }
        RouteLast { tell, over, there } => {
            let seen = state.route;
            next.push(with(Decide {
                tell,
                over,
                seen,
                there,
            }));
        }
        EndLast { tell, seen, there } => {
            let over = state.tcp.fin_arrived;
            next.push(with(Decide {
                tell,
                over,
                seen,
                there,
            }));
        }
        Decide {
            tell,
            over,
            seen,
            there,
        } => {
            let seen = Route::from_word(seen);
            let left = seen.left(state.tcp.position());
            next.push(with(match seen.head() {
                Head::Ring if there != 0 => Ring { tell, there },
                Head::Ring if !seen.ends() => Nothing { tell, over },
                Head::Tcp => Tcp { tell, left },
                Head::Until(_) if left != 0 => Tcp { tell, left },
                _ => {
                    let to = seen.passed(state.tcp.position(), there == 0);
                    match to == seen {
                        true => Nothing { tell, over },
                        false => Pass {
                            tell,
                            seen: seen.word(),
                            to: to.word(),
                        },
                    }
                }
            }));
        }
        Pass { tell, seen, to } => {
            let mut after = with(Next { tell });
            after.barrier(ME);
            let (seen, to) = (Route::from_word(seen), Route::from_word(to));
            if slips(Slip::PassesBlindly) {
                after.route = to.word();
            } else if after.replace_route(seen, to) && to == Route::TCP {
                after.reader_ring = None;
            }
            next.push(after);
        }
        Ring { tell, there } => {
            for len in 1..=there {
                let barrier = !slips(Slip::TakesWithoutBarrier);
                let mut after = with(Took { tell, barrier });
                let Some(ring) = state.reader_ring else {
                    return Err(format!("no ring to read: {state:?}"));
                };
                let tail = state.load(ME, Var::Tail);
                for at in 0..len {
                    let ring = &mut after.rings[usize::from(ring)];
                    let byte = *ring.place(ring.first, tail + at);
                    after.reads(byte)?;
                }
                after.store(ME, Var::Tail, tail + len);
                next.push(after);
            }
        }
        Took {
            tell,
            barrier: true,
        } => {
            let mut after = with(Took {
                tell,
                barrier: false,
            });
            after.barrier(ME);
            next.push(after);
        }
        Took { tell, .. } => {
            let starving = state.load(ME, Var::Starving) != 0;
            let now = starving && state.size.saturating_sub(there(state)) != 0;
            let mut after = with(Loop { tell: tell || now });
            if now {
                after.store(ME, Var::Starving, 0);
            }
            next.push(after);
        }
        Tcp { tell, left } => match (state.tcp.arrived - state.tcp.taken).min(left) {
            0 if state.tcp.fin_arrived => next.push(with(Nothing { tell, over: true })),
            0 => next.push(with(Nothing { tell, over: false })),
            most => {
                for len in if most > 1 { vec![1, most] } else { vec![1] } {
                    let mut after = with(Loop { tell });
                    after.barrier(ME);
                    for _ in 0..len {
                        let byte = after.tcp.bytes[after.tcp.taken];
                        after.tcp.taken += 1;
                        after.reads(Some(byte))?;
                    }
                    next.push(after);
                }
            }
        },
        // The program has asked for more, or not.
        Loop { tell } => {
            next.push(with(Next { tell }));
            next.push(leave(state, tell, Over::Again));
        }
        Nothing { over: true, .. } if state.read != config.bytes => {
            return Err(format!("is over before the last byte: {state:?}"));
        }
        Nothing { tell, over: true } => next.push(leave(state, tell, Over::End)),
        Nothing { tell, over: false } => next.push(leave(state, tell, Over::Sleep)),
        Wake {
            over,
            barrier: true,
        } => {
            let mut after = with(Wake {
                over,
                barrier: false,
            });
            after.barrier(ME);
            next.push(after);
        }
        Wake { over, .. } => {
            let mut after = with(match over {
                Over::Again => Lock,
                Over::Sleep => Queue,
                Over::End => Done,
            });
            after.writer_waits.wake();
            next.push(after);
        }
        Queue => {
            let mut after = with(LookForEnd);
            after.barrier(ME);
            after.reader_waits = Wait::Queued;
            next.push(after);
        }
        LookForEnd if state.tcp.fin_arrived => next.push(awake(state)),
        LookForEnd => next.push(with(Look)),
        Look => next.push(with(LookInto { seen: route.word() })),
        LookInto { seen } => {
            let there = there(state);
            next.push(match (Route::from_word(seen).is_ring(), there) {
                (true, 0) => with(Asleep),
                (true, _) => awake(state),
                (false, there) => with(LookAtTcp { seen, there }),
            });
        }
        LookAtTcp { seen, there } => {
            let unread = state.tcp.arrived - state.tcp.taken;
            let position = state.tcp.position();
            let parts = Route::from_word(seen).readable(position, unread, there.into());
            next.push(match parts {
                [0, 0, 0] => with(Asleep),
                _ => awake(state),
            });
        }
        Asleep if state.reader_waits == Wait::Woken => {
            let mut after = with(LookForEnd);
            after.reader_waits = Wait::Queued;
            next.push(after);
        }
        Asleep | Done => (),
    }
    Ok(())
}

fn awake(state: &State) -> State {
    let mut after = state.clone();
    after.reader_waits = Wait::No;
    after.reader = Lock;
    after
}
