// SPDX-License-Identifier: GPL-2.0

//! Detects a peer that takes nothing of what we send.
//!
//! A peer that has posted no receive buffer makes our device try again for ever (RNR), and if it
//! goes on sending itself, the heartbeat of [`link`](super::link) finds the link well. The
//! connections whose messages are under way could never end.

use super::WAIT_ANSWER;
use crate::time::{
    Instant,
    Span, //
};

/// Longest time in which a peer may take nothing of what is under way, without a heartbeat to go
/// by.
pub const STUCK: Span = Span::from_secs(30);

/// Watches whether requests that are under way end. Looks come by a timer, so a peer is found out
/// between once and twice its time after it stopped.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    time: Span,
    /// Number of requests that had ended at the look at `since`.
    ended: u32,
    /// First look since which some are under way and none has ended.
    since: Option<Instant>,
    next: Option<Instant>,
}

impl Progress {
    /// Nobody watches before the first look. `test_idle` is what the heartbeat has (zero for none):
    /// a peer that takes nothing is given as long as one that says nothing.
    #[must_use]
    pub fn new(test_idle: Span) -> Progress {
        let time = match test_idle {
            Span::ZERO => STUCK,
            idle => Span(idle.0.saturating_add(WAIT_ANSWER.0)),
        };
        Progress {
            time,
            ended: 0,
            since: None,
            next: None,
        }
    }

    /// Returns the time of the next look.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Looks: whether requests are under way, and how many have ended so far. True if the peer has
    /// taken nothing for its time.
    pub fn look(&mut self, under_way: bool, ended: u32, now: Instant) -> bool {
        let since = self.since.filter(|_| under_way && ended == self.ended);
        self.ended = ended;
        self.since = since.or(under_way.then_some(now));
        self.next = Some(self.since.unwrap_or(now).after(self.time));
        since.is_some_and(|since| now.reached(since.after(self.time)))
    }
}
