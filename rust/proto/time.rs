// SPDX-License-Identifier: GPL-2.0

//! Time as an argument.
//!
//! Nothing in this crate reads a clock. The caller passes the present [`Instant`] and asks each
//! object for its one next deadline; a timer that fires early or late is harmless because every
//! handler compares with `now` itself.

/// A point in monotonic time, in nanoseconds since an arbitrary origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Span(pub u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of whole seconds, saturating.
    #[must_use]
    pub const fn from_secs(s: u64) -> Span {
        Span(s.saturating_mul(1_000_000_000))
    }

    /// A span of milliseconds, saturating.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000))
    }

    /// The span in whole milliseconds, rounded up so that a timer never fires early.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

impl Instant {
    /// The instant `span` later, saturating at the end of time.
    #[inline]
    #[must_use]
    pub const fn after(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }

    /// The instant `span` earlier, saturating at the origin.
    #[must_use]
    pub const fn before(self, span: Span) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }

    /// Time passed since `earlier`; zero if `earlier` lies in the future.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Reports whether `deadline` has been reached.
    #[inline]
    #[must_use]
    pub const fn reached(self, deadline: Instant) -> bool {
        self.0 >= deadline.0
    }
}

/// The earlier of two optional deadlines.
#[must_use]
pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(x), Some(y)) => Some(x.min(y)),
        (x, None) => x,
        (None, y) => y,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let end = Instant(u64::MAX);
        assert_eq!(end.after(Span::from_secs(1)), end);
        assert_eq!(Instant(1).since(Instant(5)), Span::ZERO);
        assert_eq!(Span::from_secs(u64::MAX), Span(u64::MAX));
        assert_eq!(Span(1).as_millis_ceil(), 1);
        assert_eq!(Span(2_000_000).as_millis_ceil(), 2);
    }

    #[test]
    fn earliest_picks_the_smaller() {
        let (a, b) = (Some(Instant(1)), Some(Instant(2)));
        assert_eq!(earliest(a, b), a);
        assert_eq!(earliest(b, a), a);
        assert_eq!(earliest(None, b), b);
        assert_eq!(earliest(a, None), a);
        assert_eq!(earliest(None, None), None);
        assert!(Instant(2).reached(Instant(2)));
        assert!(!Instant(1).reached(Instant(2)));
    }
}
