// SPDX-License-Identifier: GPL-2.0
//! State that both pairs show without being touched, and the wait until they show the same.
//!
//! On loopback TCP has arrived when the call returns, so its end state is there to compare with; what
//! goes by RDMA takes a while. What is waited for is therefore that both show the same, and not a time.
//! Only a difference costs one.

use crate::known::{self, Then};
use crate::model::Model;
use crate::pair::Pair;
use crate::step::Step;
use st::errno::{cvt, show, R};
use st::{smcinfo, sys};
use std::time::{Duration, Instant};

/// The ioctls that are asked, and their names: `FIONREAD` first.
const ASKED: [(u64, &str); 4] = [
    (0x541b, "FIONREAD"),
    (0x8905, "ATMARK"),
    (0x5411, "OUTQ"),
    (0x894b, "OUTQNSD"),
];

/// The first pause between two looks, and the longest.
const NAP: (u64, u64) = (30, 2000);

/// Longest wait for what only [`has_come`] can see.
const COME: Duration = Duration::from_millis(50);

/// State of one end, as a program sees it.
#[derive(Clone, Copy, Default)]
pub struct Sight {
    /// `poll` for everything.
    pub events: i16,
    /// The answers to those of [`ASKED`] that were asked.
    pub counts: [Option<R<i64>>; 4],
}

impl PartialEq for Sight {
    fn eq(&self, other: &Sight) -> bool {
        self.events == other.events && self.counts == other.counts
    }
}

impl Sight {
    fn words(&self) -> String {
        let mut all = format!("poll {}", sys::events(self.events.into()));
        for (count, (_, name)) in self.counts.iter().zip(ASKED) {
            if let Some(count) = count {
                all += &format!(" {name} {}", show(count));
            }
        }
        all
    }
}

/// Limits of the comparison after a step.
#[derive(Clone, Copy)]
pub struct Care {
    /// For how long a difference may last.
    pub limit: Duration,
    /// Number of looks in a row that must agree.
    pub calm: u32,
}

/// Both ends of both pairs: first TCP's.
fn look(pairs: &[Pair; 2], m: &Model, step: &Step) -> [[Sight; 2]; 2] {
    let mut polls = [libc::pollfd {
        fd: -1,
        events: sys::POLL_ALL,
        revents: 0,
    }; 4];
    for (i, p) in polls.iter_mut().enumerate() {
        p.fd = pairs[i / 2].raw(i % 2);
    }
    // SAFETY: Four entries.
    cvt(unsafe { libc::poll(polls.as_mut_ptr(), 4, 0) }.into()).expect("poll");
    let asked = match step {
        Step::OutQueue => 4,
        _ if m.urgent => 2,
        _ => 1,
    };
    let mut all = [[Sight::default(); 2]; 2];
    for (i, p) in polls.iter().enumerate().filter(|(_, p)| p.fd >= 0) {
        let sight = &mut all[i / 2][i % 2];
        sight.events = p.revents;
        for (count, (request, _)) in sight.counts.iter_mut().zip(ASKED).take(asked) {
            *count = Some(sys::ioctl_get(p.fd, request).map(i64::from));
        }
    }
    all
}

/// The states of `RSMC_INFO` in which an end has not heard that the other one has ended: ACTIVE, and
/// PEERCLOSEWAIT1.
const UNHEARD: [u32; 2] = [1, 20];

/// Tells whether the events have come that nothing else shows: the end of the other end's stream, and
/// bytes behind an urgent one. TCP has them when the call returns.
fn has_come(pair: &Pair, m: &Model, step: &Step) -> bool {
    let open = || (0..2).filter(|&end| m.ends[end].open);
    let fd = |end| pair.raw(end);
    match step {
        Step::Shutdown { .. } | Step::Close { .. } => open().all(|end| {
            let ended = !m.ends[1 - end].open || m.ends[1 - end].shut_write;
            let unheard = |i: smcinfo::Info| i.mode == 0 && UNHEARD.contains(&i.state);
            !ended || !smcinfo::info(fd(end)).is_ok_and(unheard)
        }),
        _ if m.urgent && step.sends() => {
            open().all(|end| sys::ioctl_get(fd(end), ASKED[2].0) == Ok(0))
        }
        _ => true,
    }
}

/// Waits until both pairs show the same, or what is known to differ. An error says what they show.
pub fn settle(pairs: &[Pair; 2], m: &Model, step: &Step, care: Care) -> Result<Then, String> {
    let start = Instant::now();
    let (mut calm, mut nap) = (0, NAP.0);
    // What shows no difference may still be under way: the peer's end, and bytes behind an urgent one.
    let quiet = match step {
        Step::Shutdown { .. } | Step::Close { .. } => care.calm + 2,
        _ if m.urgent => care.calm + 1,
        _ => care.calm,
    };
    loop {
        let mut differ = Vec::new();
        let mut then = Then::On;
        let over = start.elapsed() > care.limit;
        let [tcp, here] = look(pairs, m, step);
        for end in (0..2).filter(|&end| m.ends[end].open) {
            let (a, b) = (tcp[end], here[end]);
            if a == b {
                continue;
            }
            match known::sight(m, end, &a, &b) {
                // It may be on its way yet.
                Some((_, Then::End)) if over => then = Then::End,
                Some((_, Then::On)) => {}
                _ => differ.push((end, a, b)),
            }
        }
        // What a known difference keeps from coming is not waited for for long.
        let come = start.elapsed() > COME || has_come(&pairs[1], m, step);
        calm = match differ.is_empty() && come {
            true => calm + 1,
            false => 0,
        };
        if calm >= quiet || then == Then::End && differ.is_empty() {
            return Ok(then);
        }
        if !differ.is_empty() && over {
            let words: Vec<String> = differ
                .iter()
                .map(|(end, a, b)| format!("end {end}: tcp {} here {}", a.words(), b.words()))
                .collect();
            return Err(words.join("; "));
        }
        std::thread::sleep(Duration::from_micros(nap));
        if calm == 0 {
            nap = (nap * 3 / 2).min(NAP.1);
        }
    }
}
