// SPDX-License-Identifier: GPL-2.0

//! Whether a link is better than TCP, for connections that could go by either.
//!
//! Such a connection has known TCP's shortest round trip. A TEST_LINK now and then takes the link's: it follows all that
//! was posted before, and its answer all that the peer had posted. Answers that come later than both explain are late,
//! and a link of which most answers are late is left: it loses packets, or its way is longer than TCP's.

use crate::time::{Instant, Span};

/// Time between two tests.
const EVERY: Span = Span::from_secs(1);
/// Tests of which some must be late, and how many.
const TESTS: u32 = 8;
const LATE: u32 = 6;
const TESTS_MASK: u32 = (1 << TESTS) - 1;
/// Tests after which a link that was worse is good again, and how many of those may be late.
const GOOD_TESTS: u32 = 16;
const GOOD_LATE: u32 = 2;
const GOOD_MASK: u32 = (1 << GOOD_TESTS) - 1;
/// What an answer may take longer than TCP's round trips: the kernels at both ends have other things to do, too.
const GRACE: Span = Span::from_millis(10);
/// How many of those.
const ROUND_TRIPS: u64 = 4;
/// What bytes that go before an answer take for each, in nanoseconds: of a link of about 1 Gb/s.
const NS_PER_BYTE: u64 = 10;
/// A machine that is so late with its own timer says nothing about links. The kernel's timers alone are late by an eighth.
const STALL: Span = Span::from_millis(200);
/// The last four bytes of the data of these tests; the heartbeat's are 0.
const MARK: [u8; 4] = *b"rtt?";

/// Bytes of a TEST_LINK.
pub type Data = [u8; 16];

/// A test that is under way.
#[derive(Clone, Copy, Debug)]
struct Test {
    at: Instant,
    /// Bytes that go before it.
    ahead: u64,
    /// Bytes that had arrived then.
    arrived: u64,
    answered: Option<Instant>,
    /// It has counted as late already.
    counted: bool,
}

/// What is known of a link's round trips.
#[derive(Debug, Default)]
pub struct Worth {
    /// TCP's shortest one, of the connections that could go by TCP; `None` without such.
    tcp: Option<Span>,
    next: Instant,
    number: u32,
    test: Option<Test>,
    /// A bit for each of the last tests, and how many there were since the last verdict.
    late: u32,
    tests: u32,
    worse: bool,
}

impl Worth {
    /// A connection that could go by TCP is there, and this has been TCP's shortest round trip for it.
    pub fn watch(&mut self, tcp: Span, now: Instant) {
        if self.tcp.is_none() {
            *self = Self {
                number: self.number,
                next: now.after(EVERY),
                ..Self::default()
            };
        }
        // Of several ways to the peer the longest: another one may be no worse.
        self.tcp = Some(self.tcp.map_or(tcp, |known| known.max(tcp)));
    }

    /// There is no such connection any more. A link that is worse is tested on, until it is good again.
    pub fn rest(&mut self) {
        if !self.worse {
            self.tcp = None;
            self.test = None;
        }
    }

    /// Returns the time of the next [`Worth::on_timer`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let answered = self.test.and_then(|test| test.answered);
        self.tcp.map(|_| answered.unwrap_or(self.next))
    }

    /// A TEST_LINK was answered. Reports whether it was one of these, of which [`Worth::on_timer`] is to be told.
    pub fn on_answer(&mut self, data: &Data, now: Instant) -> bool {
        let own = self.data();
        match &mut self.test {
            Some(test) if test.answered.is_none() && *data == own => {
                test.answered = Some(now);
                true
            }
            _ => false,
        }
    }

    /// Judges an answer that has come, or one that has not. Then, if it is time, returns what to send in a TEST_LINK;
    /// `ahead` bytes are posted and not acknowledged, `arrived` have come from the peer so far.
    pub fn on_timer(&mut self, now: Instant, ahead: u64, arrived: u64) -> Option<Data> {
        let tcp = self.tcp?;
        self.judge(tcp, now, arrived);
        if !now.reached(self.next) {
            return None;
        }
        let stalled = now.since(self.next) > STALL;
        self.next = now.after(EVERY);
        if stalled || self.test.is_some() {
            return None;
        }
        self.number = self.number.wrapping_add(1);
        self.test = Some(Test {
            at: now,
            ahead,
            arrived,
            answered: None,
            counted: false,
        });
        Some(self.data())
    }

    fn judge(&mut self, tcp: Span, now: Instant, arrived: u64) {
        let Some(test) = &mut self.test else { return };
        let came = arrived.saturating_sub(test.arrived);
        let bytes = test.ahead.saturating_add(came);
        let limit = tcp
            .0
            .saturating_mul(ROUND_TRIPS)
            .saturating_add(GRACE.0)
            .saturating_add(bytes.saturating_mul(NS_PER_BYTE));
        let is_late = test.answered.unwrap_or(now).since(test.at) > Span(limit);
        let over = test.answered.is_some();
        if (over || is_late) && !test.counted {
            test.counted = true;
            self.late = (self.late << 1) | u32::from(is_late);
            self.tests = self.tests.saturating_add(1);
        }
        if over {
            self.test = None;
        }
        let last = |mask: u32| (self.late & mask).count_ones();
        let turns = match self.worse {
            false => self.tests >= TESTS && last(TESTS_MASK) >= LATE,
            true => self.tests >= GOOD_TESTS && last(GOOD_MASK) <= GOOD_LATE,
        };
        if turns {
            self.worse = !self.worse;
            self.tests = 0;
        }
    }

    /// Reports whether the link is worse than TCP.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.worse
    }

    fn data(&self) -> Data {
        let mut data = [0; 16];
        let [a, b, c, d, .., w, x, y, z] = &mut data;
        [*a, *b, *c, *d] = self.number.to_be_bytes();
        [*w, *x, *y, *z] = MARK;
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs `count` tests, each of which is answered after `rtt` milliseconds; returns after how many there was another
    /// verdict.
    fn run(worth: &mut Worth, now: &mut Instant, count: u32, rtt: u64, bytes: u64) -> Option<u32> {
        let before = worth.is_worse();
        for n in 1..=count {
            *now = worth.next_deadline().unwrap();
            let data = worth.on_timer(*now, bytes, 0).expect("a test");
            let mut other = data;
            other[3] ^= 1;
            assert!(!worth.on_answer(&other, *now));
            *now = now.after(Span(rtt * MS));
            assert!(worth.on_answer(&data, *now));
            assert!(!worth.on_answer(&data, *now));
            assert_eq!(worth.next_deadline(), Some(*now));
            assert_eq!(worth.on_timer(*now, bytes, 0), None);
            if worth.is_worse() != before {
                return Some(n);
            }
        }
        None
    }

    fn watched(tcp_ms: u64) -> (Worth, Instant) {
        let (mut worth, now) = (Worth::default(), Instant(77));
        assert_eq!(worth.next_deadline(), None);
        worth.watch(Span(tcp_ms * MS), now);
        (worth, now)
    }

    #[test]
    fn a_link_that_is_as_quick_stays() {
        let (mut worth, mut now) = watched(1);
        assert_eq!(run(&mut worth, &mut now, 100, 14, 0), None);
        // One late answer, and then and when.
        for _ in 0..10 {
            assert_eq!(run(&mut worth, &mut now, 5, 500, 0), None);
            assert_eq!(run(&mut worth, &mut now, 4, 1, 0), None);
        }
    }

    #[test]
    fn a_slow_one_is_left_until_it_is_quick() {
        let (mut worth, mut now) = watched(1);
        for _ in 0..3 {
            assert_eq!(run(&mut worth, &mut now, 100, 15, 0), Some(TESTS));
            assert_eq!(run(&mut worth, &mut now, 100, 15, 0), None);
            // Tested on, whoever is there.
            worth.rest();
            worth.watch(Span(MS), now);
            assert!(worth.is_worse());
            assert_eq!(
                run(&mut worth, &mut now, 100, 14, 0),
                Some(GOOD_TESTS - GOOD_LATE)
            );
        }
    }

    #[test]
    fn it_was_good_before() {
        let (mut worth, mut now) = watched(0);
        assert_eq!(run(&mut worth, &mut now, 20, 1, 0), None);
        assert_eq!(run(&mut worth, &mut now, 20, 30, 0), Some(LATE));
    }

    #[test]
    fn bytes_that_go_before_take_their_time() {
        let (mut worth, mut now) = watched(0);
        // 10 MB: 100 ms.
        assert_eq!(run(&mut worth, &mut now, 20, 110, 10_000_000), None);
        assert_eq!(run(&mut worth, &mut now, 20, 111, 10_000_000), Some(LATE));
        // The same of the peer.
        let (mut worth, _) = watched(0);
        for _ in 0..20 {
            let mut now = worth.next_deadline().unwrap();
            let data = worth.on_timer(now, 0, 5).unwrap();
            now = now.after(Span(104 * MS));
            assert!(worth.on_answer(&data, now));
            assert_eq!(worth.on_timer(now, 0, 10_000_005), None);
            assert!(!worth.is_worse());
        }
    }

    #[test]
    fn no_answer_is_late_once() {
        let (mut worth, _) = watched(0);
        let mut sent = 0;
        for _ in 0..30 {
            let now = worth.next_deadline().unwrap();
            sent += u32::from(worth.on_timer(now, 0, 0).is_some());
            assert!(!worth.is_worse());
        }
        assert_eq!(sent, 1);
    }

    #[test]
    fn a_stalled_machine_asks_nothing() {
        let (mut worth, _) = watched(0);
        let late = worth.next_deadline().unwrap().after(Span(201 * MS));
        assert_eq!(worth.on_timer(late, 0, 0), None);
        let next = worth.next_deadline().unwrap();
        assert_eq!(next, late.after(EVERY));
        assert!(worth.on_timer(next, 0, 0).is_some());
    }

    #[test]
    fn without_connections_nothing_is_asked() {
        let (mut worth, mut now) = watched(3);
        run(&mut worth, &mut now, 7, 100, 0);
        worth.rest();
        assert_eq!(worth.next_deadline(), None);
        assert_eq!(worth.on_timer(now.after(EVERY), 0, 0), None);
        // What was known before is forgotten.
        worth.watch(Span(0), now);
        assert_eq!(run(&mut worth, &mut now, 7, 100, 0), None);
    }
}
