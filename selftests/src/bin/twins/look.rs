// SPDX-License-Identifier: GPL-2.0
//! What both pairs show without being touched, and the wait until they show the same.

use crate::known::{self, Then};
use crate::model::Model;
use crate::pair::Pair;
use crate::step::Step;
use st::errno::show;
use st::sys;
use std::time::{Duration, Instant};

/// `FIONREAD`.
const INQ: u64 = 0x541b;
const OUTQ: u64 = 0x5411;
const OUTQNSD: u64 = 0x894b;
const ATMARK: u64 = 0x8905;

/// What one end shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// `poll` for everything.
    pub events: i16,
    /// The ioctls.
    pub counts: String,
}

impl Sight {
    fn of(pair: &Pair, end: usize, queue: bool) -> Sight {
        let fd = pair.raw(end);
        let ask = |request: u64| show(&sys::ioctl_get(fd, request));
        let mut counts = format!("FIONREAD {} ATMARK {}", ask(INQ), ask(ATMARK));
        if queue {
            counts += &format!(" OUTQ {} OUTQNSD {}", ask(OUTQ), ask(OUTQNSD));
        }
        Sight {
            events: sys::poll1(fd, sys::POLL_ALL, 0).unwrap_or(-1),
            counts,
        }
    }

    fn words(&self) -> String {
        format!("poll {} {}", sys::events(self.events.into()), self.counts)
    }
}

/// Waits until both pairs show the same, twice in a row, or what is known to differ; `limit`: for so
/// long. An error says what they show.
pub fn settle(pairs: &[Pair; 2], m: &Model, step: &Step, limit: Duration) -> Result<Then, String> {
    let start = Instant::now();
    let queue = *step == Step::OutQueue;
    let (mut calm, mut nap) = (0, 40);
    loop {
        let mut differ = Vec::new();
        let mut then = Then::On;
        for end in (0..2).filter(|&end| m.ends[end].open) {
            let a = Sight::of(&pairs[0], end, queue);
            let b = Sight::of(&pairs[1], end, queue);
            if a == b {
                continue;
            }
            match known::sight(m, end, &a, &b) {
                // It may be on its way yet.
                Some((_, Then::End)) if start.elapsed() > limit => then = Then::End,
                Some((_, Then::On)) => {}
                _ => differ.push(format!("end {end}: tcp {} here {}", a.words(), b.words())),
            }
        }
        calm = if differ.is_empty() { calm + 1 } else { 0 };
        if calm >= 2 || then == Then::End && differ.is_empty() {
            return Ok(then);
        }
        if !differ.is_empty() && start.elapsed() > limit {
            return Err(differ.join("; "));
        }
        std::thread::sleep(Duration::from_micros(nap));
        if calm == 0 {
            nap = (nap * 2).min(5000);
        }
    }
}
