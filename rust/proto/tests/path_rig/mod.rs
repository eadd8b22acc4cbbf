// SPDX-License-Identifier: GPL-2.0

//! A direction of a local path as a machine of small steps, and the search through all its states.

mod reader;
mod state;
mod taker;
mod writer;

pub use state::State;

use std::collections::{HashMap, VecDeque};

/// The size of what is explored.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the direction, before its FIN.
    pub bytes: u8,
    /// Bytes of a message, at most; each may have fewer.
    pub message: u8,
    /// Attempts to take the ring back (`idle.rs`).
    pub give_backs: u8,
    /// The reader's program retires the connection (`TCP_ULP` and the like).
    pub retires: bool,
    /// The writer's program does not end before all has been read.
    pub answered: bool,
    /// A step that is done wrongly.
    pub slip: Option<Slip>,
}

/// A step done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// The reader stores the route that follows, whatever it is by then.
    PassesBlindly,
    /// The reader looks for the FIN after the ring, not before.
    LooksForTheEndLast,
    /// The reader looks into the ring before it reads the route.
    LooksBeforeTheRoute,
    /// The writer leaves TCP without the reader's lock.
    PromotesBetweenReads,
    /// The ring is taken back whatever it holds.
    TakesBackUnread,
    /// A larger ring begins with the next byte to write.
    GrowsFromTheHead,
    /// No barrier between bytes in the ring and the look whether the reader sleeps.
    TellsWithoutBarrier,
    /// No barrier between room in the ring and the look whether the writer starves.
    TakesWithoutBarrier,
    /// No barrier between "the writer starves" and its last look for room.
    StarvesWithoutBarrier,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub states: usize,
    pub steps: usize,
    /// States in which both programs are done.
    pub ends: usize,
    /// Steps by which the writer left TCP, and returned; a ring grew, or was taken back; a connection retired.
    pub promotions: usize,
    pub returns: usize,
    pub grown: usize,
    pub given_back: usize,
    pub retired: usize,
}

/// Visits all states. Says what is wrong with the first one that is.
pub fn explore(config: &Config) -> Result<Report, String> {
    let mut report = Report::default();
    let mut numbers = HashMap::new();
    let mut states = VecDeque::new();
    // For each state those from which a step leads there.
    let mut before: Vec<Vec<u32>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let start = State::new(config);
    numbers.insert(start.clone(), 0u32);
    states.push_back((0u32, start));
    while let Some((number, state)) = states.pop_front() {
        let mut next = Vec::new();
        state.steps(config, &mut report, &mut next)?;
        if state.is_end() {
            state.check_end(config)?;
            ends.push(number);
        } else if next.is_empty() {
            return Err(format!("somebody sleeps for good: {state:?}"));
        }
        report.steps += next.len();
        for mut state in next {
            state.tidy();
            let new = before.len() as u32;
            let known = *numbers.entry(state.clone()).or_insert(new);
            if known == new {
                before.push(Vec::new());
                states.push_back((new, state));
            }
            before[known as usize].push(number);
        }
    }
    report.states = before.len();
    report.ends = ends.len();
    // An end can be reached from everywhere.
    let mut ending = vec![false; before.len()];
    while let Some(number) = ends.pop() {
        if !std::mem::replace(&mut ending[number as usize], true) {
            ends.append(&mut before[number as usize]);
        }
    }
    match ending.iter().filter(|ends| !**ends).count() {
        0 => Ok(report),
        lost => Err(format!("{lost} states never end")),
    }
}
