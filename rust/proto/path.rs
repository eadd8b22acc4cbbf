// SPDX-License-Identifier: GPL-2.0

//! One direction of a connection that changes its carrier: from TCP to a ring and back.
//!
//! The bytes of a direction are cut into segments: TCP up to a position S of its stream, the ring up to
//! its end, TCP again, and so on. The two ends agree by a [`Route`], the reader's way to its next byte.
//! The writer changes it when it changes carriers, the reader when it arrives at a cut. The next
//! promotion begins when the reader has passed the last cut, so there are two at most.
//!
//! Writers keep one another out of [`Route::promoted`] and [`Route::ended`], readers out of
//! [`Route::passed`]. A writer and a reader may come together: each replaces the route that it has looked
//! at, and looks again if that has changed. Nothing here waits or copies.

/// The carrier of the next byte to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// TCP, the default.
    Tcp,
    /// TCP up to this position of its stream, then the ring.
    Until(u32),
    /// The ring.
    Ring,
}

/// The way of a reader to the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route(u64);

/// The lower half is a position of TCP's stream: the ring follows it.
const UNTIL: u64 = 1 << 32;
/// The reader is at the ring.
const RING: u64 = 1 << 33;
/// TCP follows the ring, into which nothing is written any more.
const ENDS: u64 = 1 << 34;

impl Route {
    /// All bytes come by TCP.
    pub const TCP: Self = Self(0);

    /// Returns the route that [`Route::word`] stands for.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the route as one machine word.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns the carrier of the next byte.
    #[inline]
    #[must_use]
    pub const fn head(self) -> Head {
        if self.0 & RING != 0 {
            Head::Ring
        } else if self.0 & UNTIL != 0 {
            Head::Until(self.0 as u32)
        } else {
            Head::Tcp
        }
    }

    /// Reports whether the writer writes into the ring.
    #[inline]
    #[must_use]
    pub const fn writes_ring(self) -> bool {
        self.0 & (UNTIL | RING) != 0 && self.0 & ENDS == 0
    }

    /// Reports whether all that is to be read comes by the ring, as far as is known.
    #[inline]
    #[must_use]
    pub const fn is_ring(self) -> bool {
        self.0 & (RING | ENDS) == RING
    }

    /// Reports whether TCP follows the ring.
    #[inline]
    #[must_use]
    pub const fn ends(self) -> bool {
        self.0 & ENDS != 0
    }

    /// Returns the route after the writer has turned to an empty ring, with `sent` as the position after
    /// its last byte in TCP. `None` while the reader has not passed the last cut.
    #[inline]
    #[must_use]
    pub const fn promoted(self, sent: u32) -> Option<Self> {
        match self.0 {
            0 => Some(Self(UNTIL | sent as u64)),
            _ => None,
        }
    }

    /// Returns the route after the writer has turned back to TCP; what is in the ring is read first.
    #[inline]
    #[must_use]
    pub const fn ended(self) -> Self {
        if self.writes_ring() {
            Self(self.0 | ENDS)
        } else {
            self
        }
    }

    /// Returns how many bytes of TCP a reader that has taken them up to `taken` has to take before the
    /// ring; none if he has taken more, as TCP does with an urgent byte that another one overtakes.
    #[inline]
    #[must_use]
    pub const fn left(self, taken: u32) -> usize {
        match self.head() {
            Head::Until(position) => match position.wrapping_sub(taken) as i32 {
                left @ 1.. => left as usize,
                _ => 0,
            },
            Head::Ring => 0,
            Head::Tcp => usize::MAX,
        }
    }

    /// Returns the route of a reader that has taken TCP's bytes up to `taken`, and of the ring all if
    /// `empty`.
    #[inline]
    #[must_use]
    pub const fn passed(self, taken: u32, empty: bool) -> Self {
        let at_ring = match self.head() {
            Head::Until(_) if self.left(taken) == 0 => Self(self.0 & ENDS | RING),
            _ => self,
        };
        match at_ring.head() {
            Head::Ring if at_ring.ends() && empty => Self::TCP,
            _ => at_ring,
        }
    }

    /// Returns how many bytes of TCP, of which `unread` have arrived after the position `taken`, and how
    /// many of the ring's `there`, a reader finds one after the other; and the bytes of TCP after those.
    #[inline]
    #[must_use]
    pub fn readable(self, taken: u32, unread: usize, there: usize) -> [usize; 3] {
        match self.head() {
            Head::Tcp => [unread, 0, 0],
            Head::Until(_) => {
                let left = self.left(taken);
                if unread < left {
                    return [unread, 0, 0];
                }
                let behind = if self.ends() {
                    unread.saturating_sub(left)
                } else {
                    0
                };
                [left, there, behind]
            }
            Head::Ring if self.ends() => [0, there, unread],
            Head::Ring => [0, there, 0],
        }
    }
}
