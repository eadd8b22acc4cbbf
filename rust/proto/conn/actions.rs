// SPDX-License-Identifier: GPL-2.0

//! The actions that the caller carries out after an operation on a connection.

use core::ops::{
    BitOr,
    BitOrAssign, //
};

/// A set of things to do. The order in which the caller does them is free; all of them may be done
/// after the connection's lock was dropped, except where noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[must_use]
pub struct Actions(u32);

impl Actions {
    /// Nothing to do.
    pub const NONE: Actions = Actions(0);
    /// Wake readers: data or the end of data came.
    pub const WAKE_READER: Actions = Actions(0x0001);
    /// Wake writers: there is room, or writing has become impossible.
    pub const WAKE_WRITER: Actions = Actions(0x0002);
    /// Urgent data came: still under the lock, copy the byte at `Conn::urgent_offset` out of the
    /// ring and hand it to `Conn::store_urgent`.
    pub const URGENT: Actions = Actions(0x0004);
    /// The peer has announced urgent data, which may be under way yet: signal the owner. As TCP's, once
    /// for each.
    pub const URGENT_NEWS: Actions = Actions(0x0080);
    /// The state changed: wake all that watch it.
    pub const STATE: Actions = Actions(0x0008);
    /// Put the connection on its link's list of senders; `Conn::take_tx` has something to give.
    pub const TX_DUE: Actions = Actions(0x0010);
    /// The peer aborted: user error ECONNRESET.
    pub const ERR_RESET: Actions = Actions(0x0020);
    /// The peer aborted after it had ended its stream: user error EPIPE, as TCP's of a reset after a
    /// FIN.
    pub const ERR_PIPE: Actions = Actions(0x2000);
    /// Our stream has ended, and the peer has all of it: send a FIN on the idle TCP connection. Raised
    /// once.
    pub const TCP_END: Actions = Actions(0x4000);
    /// The link is gone or the peer broke the protocol: user error ECONNABORTED.
    pub const ERR_ABORTED: Actions = Actions(0x0040);
    /// All errors of the socket.
    pub const ERRORS: Actions = Actions(Self::ERR_RESET.0 | Self::ERR_PIPE.0 | Self::ERR_ABORTED.0);
    /// The peer has aborted: the idle TCP connection is over, too, unless the program has closed it.
    pub const TCP_OVER: Actions = Actions(0x8000);
    /// Abort the idle TCP connection.
    pub const TCP_ABORT: Actions = Actions(0x0200);
    /// `Conn::next_deadline` may have changed.
    pub const TIMER: Actions = Actions(0x0400);
    /// `Conn::next_deadline` has passed: call `Conn::on_timer`. Never raised by the connection; for a
    /// caller that keeps it with the actions it has put off.
    pub const DEADLINE: Actions = Actions(0x0100);
    /// A larger receive ring would let the peer send more at a time: offer it one of `Conn::wanted_ring`.
    pub const GROW: Actions = Actions(0x1_0000);
    /// The receive ring before the present one is not needed any more.
    pub const RING_LEFT: Actions = Actions(0x2_0000);
    /// The rings are left: see `Conn::leave`.
    pub const LEFT: Actions = Actions(0x4_0000);
    /// Those for which the caller may have to sleep.
    pub const SLEEPING: Actions = Actions(
        Self::FREE.0
            | Self::TCP_ABORT.0
            | Self::TCP_END.0
            | Self::TCP_OVER.0
            | Self::TIMER.0
            | Self::DEADLINE.0
            | Self::GROW.0
            | Self::RING_LEFT.0,
    );
    /// Data that a closed connection had left for its peer is lost: the peer took it too slowly, or not
    /// at all. Only for the record.
    pub const DRAIN_LOST: Actions = Actions(0x1000);
    /// Everything is over: drop the connection's reference to itself and give its token and, if
    /// `Conn::rmbe_reusable`, its ring back. Raised exactly once.
    pub const FREE: Actions = Actions(0x0800);

    /// Returns the set as bits, to be kept in an atomic.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set that [`bits`](Self::bits) gave.
    #[inline]
    pub const fn from_bits(bits: u32) -> Actions {
        Actions(bits)
    }

    /// Returns those that are in both sets.
    #[inline]
    pub const fn among(self, other: Actions) -> Actions {
        Actions(self.0 & other.0)
    }

    /// Reports whether all of `other` are in the set.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Actions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Reports whether any of `other` is in the set.
    #[inline]
    #[must_use]
    pub const fn has_any(self, other: Actions) -> bool {
        self.0 & other.0 != 0
    }

    /// Reports whether there is nothing to do.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// This set without those that wake.
    #[inline]
    pub const fn quietly(self) -> Actions {
        Actions(self.0 & !(Self::WAKE_READER.0 | Self::WAKE_WRITER.0 | Self::STATE.0))
    }

    /// This set without `other`.
    #[inline]
    pub const fn without(self, other: Actions) -> Actions {
        Actions(self.0 & !other.0)
    }

    /// This set and, if `on`, `other`.
    #[inline]
    pub const fn with_if(self, other: Actions, on: bool) -> Actions {
        if on {
            Actions(self.0 | other.0)
        } else {
            self
        }
    }
}

impl BitOr for Actions {
    type Output = Actions;

    #[inline]
    fn bitor(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }
}

impl BitOrAssign for Actions {
    #[inline]
    fn bitor_assign(&mut self, other: Actions) {
        self.0 |= other.0;
    }
}
