// SPDX-License-Identifier: GPL-2.0

//! Whoever ends a ring that is not his: the look for silent ones and the shrinker (`idle.rs`), and `retire()`.

use super::{
    state::{State, Steps},
    Config, Report, Slip,
};
use smc_proto::path::Route;

/// The look; the number is that of attempts that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taker {
    Idle(u8),
    Half(u8),
    Look(u8),
    Take(u8, u64),
}

/// The reader's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retirer {
    Begin,
    Try,
    End,
    Ended { seen: u64 },
    Lock,
    Look,
    Take { seen: u64 },
    Done,
}

pub fn steps(
    state: &State,
    config: &Config,
    report: &mut Report,
    next: Steps<'_>,
) -> Result<(), String> {
    give_back(state, config, report, next);
    retire(state, report, next);
    Ok(())
}

fn give_back(state: &State, config: &Config, report: &mut Report, next: Steps<'_>) {
    let mut after = state.clone();
    after.taker = match state.taker {
        Taker::Idle(0) => return,
        Taker::Idle(_) if state.writer_locked => return,
        Taker::Idle(left) => {
            after.writer_locked = true;
            Taker::Half(left - 1)
        }
        Taker::Half(left) if state.reader_locked => {
            after.writer_locked = false;
            Taker::Idle(left)
        }
        Taker::Half(left) => {
            after.reader_locked = true;
            Taker::Look(left)
        }
        Taker::Look(left) => {
            let route = state.route();
            let empty = state.head == state.tail || config.slip == Some(Slip::TakesBackUnread);
            let stays = !empty
                || route.writes_ring() && state.tcp.end() != state.cut
                || route.ended().passed(state.tcp.position(), true) != Route::TCP;
            if stays {
                after.writer_locked = false;
                after.reader_locked = false;
                Taker::Idle(left)
            } else {
                Taker::Take(left, state.route)
            }
        }
        Taker::Take(left, seen) => {
            if after.replace_route(Route::from_word(seen), Route::TCP) {
                report.given_back += usize::from(after.writer_ring.is_some());
                after.writer_ring = None;
                after.reader_ring = None;
                after.size = 0;
            }
            after.writer_locked = false;
            after.reader_locked = false;
            Taker::Idle(left)
        }
    };
    next.push(after);
}

fn retire(state: &State, report: &mut Report, next: Steps<'_>) {
    let mut after = state.clone();
    after.retirer = match state.retirer {
        Retirer::Begin => {
            after.bound = true;
            Retirer::Try
        }
        // For a while; then it gives up.
        Retirer::Try if state.writer_locked => Retirer::Done,
        Retirer::Try => {
            after.writer_locked = true;
            Retirer::End
        }
        Retirer::End => Retirer::Ended { seen: state.route },
        Retirer::Ended { seen } if seen != state.route => Retirer::End,
        Retirer::Ended { .. } => {
            after.route = state.route().ended().word();
            after.writer_ring = None;
            after.writer_locked = false;
            Retirer::Lock
        }
        Retirer::Lock if state.reader_locked => return,
        Retirer::Lock => {
            after.reader_locked = true;
            Retirer::Look
        }
        Retirer::Look if state.head != state.tail => {
            after.reader_locked = false;
            Retirer::Done
        }
        Retirer::Look => Retirer::Take { seen: state.route },
        Retirer::Take { seen } => {
            after.replace_route(Route::from_word(seen), Route::TCP);
            after.reader_ring = None;
            after.reader_locked = false;
            report.retired += 1;
            Retirer::Done
        }
        Retirer::Done => return,
    };
    next.push(after);
}
