// SPDX-License-Identifier: GPL-2.0

//! Waits for what a peer could not send before it ended: it comes once there is room, or never.

use super::{Actions, Conn};
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::cdc::{
    ProdFlags,
    StateFlags, //
};

/// Longest wait for the rest of what a peer had to send, after its end: it has ended without room
/// for everything, and was told of room. A Linux peer does so after it has waited for two seconds.
/// If the last byte has filled the ring, it says the same and there is no rest.
pub const TAIL_PATIENCE: Span = Span::from_millis(500);

/// Actions when the end of the peer's stream is one: all who watch for it are told.
const ENDED: Actions = Actions::STATE
    .with_if(Actions::WAKE_READER, true)
    .with_if(Actions::WAKE_WRITER, true);

/// The wait for such a rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// It has not begun: there is something to read.
    Open,
    /// The ring is empty.
    Until(Instant),
    /// There is no rest.
    Over,
    /// The peer has aborted instead of sending it.
    Lost,
}

impl Conn {
    /// Reports whether the peer has ended and may write all the same: it had more than there was
    /// room for.
    #[inline]
    pub(super) fn expects_tail(&self) -> bool {
        let ended = self.life.received;
        ended.any(StateFlags::ANY_END)
            && !ended.has(StateFlags::ABORT)
            && !self.life.killed
            && self.rx.peer_flags.has(ProdFlags::WRITE_BLOCKED)
            && self.rx.tail != Tail::Over
    }

    /// Returns what follows if the peer's rest was (`waited`) or is expected.
    #[inline]
    pub(super) fn tail_changed(&self, waited: bool) -> Actions {
        if self.expects_tail() {
            Actions::NONE.with_if(Actions::TIMER, self.tail_deadline().is_some())
        } else {
            Actions::NONE.with_if(ENDED, waited)
        }
    }

    /// Returns the time at which the wait for the peer's rest begins or is over. It begins when the
    /// peer is told that the ring is empty.
    pub(super) fn tail_deadline(&self) -> Option<Instant> {
        if !self.expects_tail() || self.life.released || self.rx.has_unread() {
            return None;
        }
        match self.rx.tail {
            Tail::Open if self.tx.due => None,
            Tail::Open => Some(Instant(0)),
            Tail::Until(end) => Some(end),
            Tail::Over | Tail::Lost => None,
        }
    }

    pub(super) fn tail_expired(&mut self, now: Instant) -> Actions {
        match self.rx.tail {
            Tail::Open => {
                self.rx.tail = Tail::Until(now.after(TAIL_PATIENCE));
                Actions::TIMER
            }
            _ => {
                self.rx.tail = Tail::Over;
                ENDED
            }
        }
    }
}
