// SPDX-License-Identifier: GPL-2.0

//! Gives the program the bytes in the receive ring, or what their absence means.

use super::tail::Tail;
use super::urgent::RxUrgent;
use super::{
    Actions,
    Conn,
    ConnState, //
    Misuse,
    RecvState,
};
use crate::cursor::Pos;
use crate::ring::Pieces;
use crate::wire::cdc::{
    ProdFlags,
    StateFlags, //
};

/// View of the program's next bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxView {
    /// Start of the view, for [`Conn::read_from`].
    pub from: Pos,
    /// Bytes to skip first: an urgent byte that is not read in line. Counts as read.
    pub skip: u32,
    /// The bytes, up to the end of data or of this ring, or to just before the urgent byte.
    pub pieces: Pieces,
    /// Number of the receive ring in which they are.
    pub ring: u8,
    /// More of them follow in the next ring.
    pub goes_on: bool,
    /// The reading position is at the urgent byte: a read that has copied something stops here.
    pub at_mark: bool,
}

/// See [`Conn::plain`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain {
    /// Bytes that have arrived.
    pub readable: u32,
    /// There is room to write.
    pub has_room: bool,
}

impl Conn {
    /// Returns what a read would find.
    #[inline]
    #[must_use]
    pub fn recv_state(&self) -> RecvState {
        let n = self.readable();
        if n > 0 {
            return RecvState::Data(n);
        }
        if self.has_got_all() {
            // As with tcp_recvmsg(), an event after the end of the stream changes nothing for the reader.
            return RecvState::Eof;
        }
        if self.life.suspended {
            // More may come by TCP.
            return RecvState::Empty;
        }
        if self.life.killed {
            return match self.is_over() {
                true => RecvState::Eof,
                false => RecvState::Aborted,
            };
        }
        if self.life.received.has(StateFlags::ABORT) {
            return RecvState::Reset;
        }
        if self.life.received.any(StateFlags::ANY_END) && !self.expects_tail() {
            return RecvState::Eof;
        }
        match self.state {
            ConnState::Init => RecvState::NotConnected,
            ConnState::Closed | ConnState::PeerFinCloseWait => RecvState::Eof,
            _ => RecvState::Empty,
        }
    }

    /// Reports whether the peer's stream has ended in good order and all of it has arrived.
    #[inline]
    pub(super) fn has_got_all(&self) -> bool {
        let ended = self.life.received;
        let good = StateFlags::DONE_WRITING.with(StateFlags::CLOSED);
        let rest = match self.rx.tail {
            Tail::Over => false,
            Tail::Lost => true,
            Tail::Open | Tail::Until(_) => self.rx.peer_flags.has(ProdFlags::WRITE_BLOCKED),
        };
        ended.any(good) && !rest
    }

    /// Bytes that ordinary reads can still return.
    #[inline]
    fn readable(&self) -> u32 {
        let hidden = self.rx.urgent.hidden_from(self.rx.cons, self.rx.inline);
        // At most the ring size.
        self.rx.unread().saturating_sub(hidden) as u32
    }

    /// Bytes that poll() counts, as TCP does: all that are there, but not an urgent one that is next.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        match self.at_mark() {
            true => self.readable(),
            // At most the ring size.
            false => self.rx.unread() as u32,
        }
    }

    /// What poll() has to know of a connection that is open both ways and has no urgent byte, as most are; `None` of
    /// others. Where there is no room the caller gets [`Actions::WAKE_WRITER`] later, as of [`Conn::send_room`].
    ///
    /// [`Actions::WAKE_WRITER`]: super::Actions::WAKE_WRITER
    #[inline]
    pub fn plain(&mut self) -> Option<Plain> {
        let ends = self.life.sent.with(self.life.received) != StateFlags::NONE;
        if ends
            || self.state != ConnState::Active
            || self.life.write_shut
            || self.life.killed
            || self.rx.urgent != RxUrgent::None
            || self.tx.urgent_end.is_some()
        {
            return None;
        }
        let has_room = self.tx.space() > 0;
        self.tx.starved |= !has_room;
        Some(Plain {
            // At most the ring size.
            readable: self.rx.unread() as u32,
            has_room,
        })
    }

    /// Bytes that a read leaves behind, as `TCP_INQ` tells: an end that has arrived counts as one.
    #[must_use]
    pub fn inq_bytes(&self) -> u32 {
        let ended = self.has_got_all() || matches!(self.recv_state(), RecvState::Eof);
        self.waiting().saturating_add(u32::from(ended))
    }

    /// Bytes before the urgent byte, or all there are (SIOCINQ).
    #[must_use]
    pub fn in_queue(&self) -> u32 {
        if self.rx.inline {
            return self.readable();
        }
        match self.rx.urgent.mark() {
            Some(pos) if pos >= self.rx.cons => pos.saturating_sub(self.rx.cons) as u32,
            _ => self.readable(),
        }
    }

    /// Returns the bytes that the program reads next, starting `peeked` bytes after the consumer
    /// position.
    #[inline]
    #[must_use]
    pub fn recv_view(&self, peeked: u32) -> RxView {
        let mut pos = self.rx.cons.wrapping_add(u64::from(peeked));
        let mut view = RxView {
            from: pos,
            ..RxView::default()
        };
        let mut end = self.rx.prod;
        match self.rx.urgent.mark() {
            Some(mark) if mark == pos => {
                view.at_mark = true;
                if self.rx.urgent.hidden_from(pos, self.rx.inline) > 0 {
                    view.skip = 1;
                    pos = pos.wrapping_add(1);
                }
            }
            Some(mark) if mark > pos => end = end.min(mark),
            _ => {}
        }
        let len = end.saturating_sub(pos) as u32;
        let (ring, number, there) = self.rx.rings.at(pos, len);
        view.pieces = Pieces::of(ring, pos, there);
        view.ring = number;
        view.goes_on = there < len;
        view
    }

    /// Returns the number of bytes that the peer has announced in all.
    #[inline]
    #[must_use]
    pub fn received(&self) -> Pos {
        self.rx.prod
    }

    /// The program has taken `n` bytes out of the ring, skipped ones included.
    ///
    /// # Errors
    ///
    /// [`Misuse`] if there were not that many.
    pub fn read_done(&mut self, n: u32) -> Result<Actions, Misuse> {
        self.read_from(self.rx.cons, n)
    }

    /// The program has taken the first `n` bytes of a view out of the ring, skipped ones included.
    /// Since the view was made, another urgent byte may have moved the consumer position over the
    /// one that the view skips.
    ///
    /// # Errors
    ///
    /// [`Misuse`] if there were not that many.
    #[inline]
    pub fn read_from(&mut self, from: Pos, n: u32) -> Result<Actions, Misuse> {
        let end = from.wrapping_add(u64::from(n));
        if end > self.rx.prod {
            return Err(Misuse);
        }
        self.rx.cons = self.rx.cons.max(end);
        let moves = self.note_read(n);
        let passed = self.rx.urgent.advance(self.rx.cons, self.rx.inline);
        if (passed && self.rx.released() != self.rx.announced) || self.rx.update_due() {
            self.want_update();
        }
        // Of a peer that has ended so it says that there may be more: see `rmbe_reusable`.
        if self.rx.unread() == 0 && !self.life.received.any(StateFlags::ANY_END) {
            self.rx.peer_flags = self.rx.peer_flags.without(ProdFlags::WRITE_BLOCKED);
        }
        Ok(self.tx_due() | self.tail_changed(false) | moves)
    }
}
