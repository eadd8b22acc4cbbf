// SPDX-License-Identifier: GPL-2.0

//! Whether a link has fallen silent, for connections that could go by TCP.
//!
//! A device repeats a request for a second and more before it says that nobody answers. Connections that have nothing
//! but the link wait for that; others need not. While requests are under way their ends are looked at a few times a
//! second, and a link on which none has ended for some looks is given up.

use crate::time::{Instant, Span};

/// Time between two looks while something is under way, and while nothing is.
const EVERY: Span = Span::from_millis(100);
const SELDOM: Span = Span::from_millis(300);
/// Time without an end after which a link is silent, and looks in that time.
const SILENT: Span = Span::from_millis(400);
const LOOKS: u8 = 4;
/// A machine that is so late with its own timer says nothing about links.
const STALL: Span = Span::from_millis(100);

/// What is known of the ends of a link's requests.
#[derive(Debug, Default)]
pub struct Silence {
    /// The time of the next look, while there are connections that could go by TCP.
    next: Option<Instant>,
    /// Number of requests that had ended at the last look.
    ended: u32,
    /// The first look since which some are under way and none has ended, and the number of those after it.
    since: Option<Instant>,
    looks: u8,
}

impl Silence {
    /// A connection that could go by TCP is there.
    pub fn watch(&mut self, now: Instant) {
        if self.next.is_none() {
            self.next = Some(now.after(EVERY));
            self.since = None;
        }
    }

    /// There is none any more.
    pub fn rest(&mut self) {
        self.next = None;
    }

    /// Returns the time of the next look.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Looks: whether requests are under way, of whose ends the device was asked to tell, and how many have ended so far.
    /// Reports whether the link is silent.
    pub fn look(&mut self, under_way: bool, ended: u32, now: Instant) -> bool {
        let Some(next) = self.next else { return false };
        let moved = ended != self.ended;
        let stalled = now.since(next) > STALL;
        match self.since {
            Some(_) if under_way && !moved && !stalled => self.looks = self.looks.saturating_add(1),
            _ => {
                self.since = under_way.then_some(now);
                self.looks = 0;
            }
        }
        self.ended = ended;
        let distance = if under_way || moved { EVERY } else { SELDOM };
        self.next = Some(now.after(distance));
        let long = |since: Instant| now.reached(since.after(SILENT));
        self.looks >= LOOKS && self.since.is_some_and(long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> Silence {
        let mut silence = Silence::default();
        assert_eq!(silence.next_deadline(), None);
        assert!(!silence.look(true, 0, Instant(5)));
        silence.watch(Instant(0));
        silence
    }

    /// Looks when it is time; returns that time and what was found.
    fn look(silence: &mut Silence, under_way: bool, ended: u32) -> (Instant, bool) {
        let now = silence.next_deadline().unwrap();
        (now, silence.look(under_way, ended, now))
    }

    #[test]
    fn a_link_without_ends_is_silent() {
        let mut silence = watched();
        let (begun, found) = look(&mut silence, true, 7);
        assert!(!found);
        for _ in 0..3 {
            assert!(!look(&mut silence, true, 7).1);
        }
        let (now, found) = look(&mut silence, true, 7);
        assert!(found);
        assert_eq!(now.since(begun), SILENT);
    }

    #[test]
    fn ends_now_and_then_are_enough() {
        let mut silence = watched();
        for n in 0..100 {
            assert!(!look(&mut silence, true, n / 4).1, "{n}");
        }
        // Nothing is under way: seldom.
        for _ in 0..10 {
            let (now, found) = look(&mut silence, false, 25);
            assert!(!found);
            assert!(silence.next_deadline().unwrap().since(now) >= EVERY);
        }
        let (now, _) = look(&mut silence, false, 25);
        assert_eq!(silence.next_deadline().unwrap().since(now), SELDOM);
        // What has begun since then is given its time.
        for _ in 0..4 {
            assert!(!look(&mut silence, true, 25).1);
        }
        assert!(look(&mut silence, true, 25).1);
    }

    #[test]
    fn a_stalled_machine_looks_anew() {
        let mut silence = watched();
        for _ in 0..10 {
            for _ in 0..3 {
                assert!(!look(&mut silence, true, 1).1);
            }
            let late = silence.next_deadline().unwrap().after(Span(STALL.0 + 1));
            assert!(!silence.look(true, 1, late));
        }
    }

    #[test]
    fn without_connections_nothing_is_looked_at() {
        let mut silence = watched();
        for _ in 0..4 {
            look(&mut silence, true, 1);
        }
        silence.rest();
        assert_eq!(silence.next_deadline(), None);
        silence.watch(Instant(1 << 40));
        assert!(!look(&mut silence, true, 1).1);
    }
}
