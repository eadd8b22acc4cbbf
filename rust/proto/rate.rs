// SPDX-License-Identifier: GPL-2.0

//! A limit of events in time whose whole state is one number: a leaky bucket.

use crate::time::{
    Instant,
    Span, //
};

/// A limit: some events at once, then one in each span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of events that may come at once.
    pub burst: u32,
    /// Span in which one event is forgotten.
    pub each: Span,
    /// Number of events that are remembered, at most: the limit holds no longer than they last.
    pub most: u32,
}

impl Rate {
    const fn times(&self, number: u32) -> Span {
        Span(self.each.0.saturating_mul(number as u64))
    }

    /// Returns the state after one more event. The state is the time at which all events are forgotten;
    /// it begins with any that has passed.
    #[must_use]
    pub fn count(&self, state: Instant, now: Instant) -> Instant {
        let next = state.max(now).after(self.each);
        next.min(now.after(self.times(self.most)))
    }

    /// Returns whether as many events as may come at once have come, and no span has passed since.
    #[must_use]
    pub fn is_reached(&self, state: Instant, now: Instant) -> bool {
        state.since(now) > self.times(self.burst.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        burst: 3,
        each: Span::from_secs(6),
        most: 5,
    };

    fn after(seconds: u64) -> Instant {
        Instant(1).after(Span::from_secs(seconds))
    }

    #[test]
    fn a_burst_reaches_it_and_one_is_forgotten_in_each_span() {
        let mut state = Instant(0);
        for _ in 0..3 {
            assert!(!RATE.is_reached(state, after(0)));
            state = RATE.count(state, after(0));
        }
        assert!(RATE.is_reached(state, after(0)));
        assert!(RATE.is_reached(state, after(5)));
        assert!(!RATE.is_reached(state, after(6)));
        state = RATE.count(state, after(6));
        assert!(RATE.is_reached(state, after(11)));
        assert!(!RATE.is_reached(state, after(12)));
    }

    #[test]
    fn what_comes_beyond_is_not_held_against_it_for_ever() {
        let mut state = Instant(0);
        for _ in 0..1000 {
            state = RATE.count(state, after(0));
        }
        assert!(RATE.is_reached(state, after(17)));
        assert!(!RATE.is_reached(state, after(18)));
    }

    #[test]
    fn slow_events_never_reach_it() {
        let mut state = Instant(0);
        for n in 0..1000 {
            state = RATE.count(state, after(6 * n));
            assert!(!RATE.is_reached(state, after(6 * n)));
        }
    }
}
