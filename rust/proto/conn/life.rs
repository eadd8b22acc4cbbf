// SPDX-License-Identifier: GPL-2.0

//! Keeps what is known about the end of a connection, from its beginning.

use super::abort::FIN_PATIENCE;
use crate::cursor::Pos;
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::cdc::StateFlags;

/// Bytes a second that a peer has to take of what a closed connection leaves behind, on average,
/// after the time that it may take none at all: slower ones are aborted. Otherwise a byte now and
/// then would keep both rings of a connection that nobody has any more.
pub const DRAIN_RATE: u64 = 4096;

/// An end that waits for unsent data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pending {
    /// "Done writing".
    Done,
    /// "Closed".
    Close,
}

/// The connection's reference to itself; given up once.
#[derive(Debug)]
pub(super) struct Keep(pub(super) bool);

impl Keep {
    pub(super) fn give_up(&mut self) -> bool {
        core::mem::replace(&mut self.0, false)
    }
}

/// The question whether the peer leaves the rings; see [`Conn::ask_to_leave`](super::Conn::ask_to_leave).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// It is not put.
    Not,
    /// Both ends know it, and this one's reader has come to the ring.
    May,
    /// The peer was asked and has not answered.
    Asks,
}

/// What is known of the requests of a connection whose rings are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Nothing: the link is lost.
    None,
    /// This end's are known to have arrived when they have ended, as the link works.
    Own,
    /// The peer's have arrived, too: its record says that it has left in good order.
    Both,
    /// Only the peer's have.
    Peers,
}

impl Order {
    /// This end's link is lost.
    pub(super) fn lost(&mut self) {
        *self = match self {
            Self::None | Self::Own => Self::None,
            Self::Both | Self::Peers => Self::Peers,
        };
    }

    /// The peer has said so.
    pub(super) fn heard(&mut self) {
        *self = match self {
            Self::None | Self::Peers => Self::Peers,
            Self::Own | Self::Both => Self::Both,
        };
    }

    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Own | Self::Both)
    }

    pub(super) fn is_peers(self) -> bool {
        matches!(self, Self::Peers | Self::Both)
    }
}

/// Everything about the end of a connection.
#[derive(Debug)]
pub(super) struct Life {
    /// End flags that our messages carry.
    pub(super) sent: StateFlags,
    /// End flags that the peer's messages carried.
    pub(super) received: StateFlags,
    pub(super) pending: Option<Pending>,
    /// The program cannot write any more.
    pub(super) write_shut: bool,
    /// The program has closed its last descriptor.
    pub(super) released: bool,
    /// Ended from our side without the peer's consent: no more receiving.
    pub(super) killed: bool,
    /// It was killed, but its stream goes on by TCP; see [`Conn::suspend`](super::Conn::suspend).
    pub(super) suspended: bool,
    /// Whether the peer may be asked to leave the rings.
    pub(super) question: Question,
    /// What is known of the two ends' requests once the rings are left.
    pub(super) order: Order,
    /// TCP stays open until both streams have ended; see [`Conn::begins_with`](super::Conn::begins_with).
    pub(super) keeps_tcp: bool,
    /// The program has closed, and TCP waits until all has been said; see [`Conn::begin_closing`](super::Conn::begin_closing).
    pub(super) closing: bool,
    /// Bytes that the peer must have read before the rings may be left.
    pub(super) marks: u8,
    /// Nothing can be sent any more.
    pub(super) link_lost: bool,
    /// The peer knows our RMBE and has not said that it will not write there.
    pub(super) exposed: bool,
    pub(super) keep: Keep,
    pub(super) drain_idle: Span,
    pub(super) last_progress: Instant,
    /// Until when the data of a closed connection may take, whatever the peer does; see [`DRAIN_RATE`].
    pub(super) limit: Instant,
    /// The peer was asked for its cursor since the last progress.
    pub(super) probed: bool,
    /// [`Actions::TCP_END`](super::Actions::TCP_END) was raised.
    pub(super) tcp_ended: bool,
    /// [`Actions::TCP_ABORT`](super::Actions::TCP_ABORT) was raised.
    pub(super) tcp_aborted: bool,
    /// The peer's TCP has ended, but nothing has told us so here: until when that may come.
    pub(super) fin: Option<Instant>,
    /// Position of the program in the stream when that was set.
    pub(super) fin_read: Pos,
}

impl Life {
    pub(super) fn new(drain_idle: Span) -> Life {
        Life {
            sent: StateFlags::NONE,
            received: StateFlags::NONE,
            pending: None,
            write_shut: false,
            released: false,
            killed: false,
            suspended: false,
            question: Question::Not,
            order: Order::None,
            keeps_tcp: false,
            closing: false,
            marks: 0,
            link_lost: false,
            exposed: false,
            tcp_ended: false,
            tcp_aborted: false,
            keep: Keep(true),
            drain_idle,
            last_progress: Instant(0),
            limit: Instant(u64::MAX),
            probed: false,
            fin: None,
            fin_read: 0,
        }
    }

    /// The peer has sent a message.
    #[inline]
    pub(super) fn heard(&mut self, now: Instant) {
        if self.fin.is_some() {
            self.fin = Some(now.after(FIN_PATIENCE));
        }
    }

    /// Returns the time at which the silence after the peer's FIN is judged.
    pub(super) fn fin_deadline(&self) -> Option<Instant> {
        self.fin
    }

    /// The peer or the network did something for us.
    #[inline]
    pub(super) fn progress(&mut self, now: Instant) {
        self.last_progress = self.last_progress.max(now);
        self.probed = false;
    }

    /// Returns the time at which a drain without progress is probed, then that at which it is given
    /// up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let half = Span(self.drain_idle.0 / 2);
        let wait = if self.probed { self.drain_idle } else { half };
        let idle = self.last_progress.after(wait);
        let waits = self.released && self.pending.is_some();
        waits.then(|| idle.min(self.limit))
    }

    /// The program has left `bytes` behind: from now on the peer's time is limited.
    pub(super) fn limit_drain(&mut self, bytes: u64, now: Instant) {
        let time = Span::from_secs(bytes.div_ceil(DRAIN_RATE));
        self.limit = now.after(self.drain_idle).after(time);
    }

    /// Reports whether the time is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        now.reached(self.limit)
    }
}
