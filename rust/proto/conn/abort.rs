// SPDX-License-Identifier: GPL-2.0

//! The ends that no program asks for: the link's, that of the idle TCP connection, and that of a peer
//! which breaks the protocol or falls silent.

use super::life::Pending;
use super::{
    Actions,
    Conn,
    ConnEvent,
    ConnState,
    ProtoError, //
};
use crate::cursor::Pos;
use crate::ring::Pieces;
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::cdc::StateFlags;
use crate::wire::promotion::Record;
use core::ops::Range;

/// Longest time after the peer's FIN, and after its last message, until a message says that
/// it has ended; longer than any device repeats a packet.
pub const FIN_PATIENCE: Span = Span::from_secs(10);

/// Part of that for a peer that has learned of room in our ring only meanwhile.
pub const ROOM_PATIENCE: Span = Span::from_secs(2);

impl Conn {
    /// The link or its group is gone: nothing will be sent or received any more. Outstanding
    /// requests are still to be reported with [`Conn::on_tx_failed`].
    pub fn kill(&mut self) -> Actions {
        self.life.link_lost = true;
        let was_killed = self.life.killed;
        let out = self.end_locally();
        let report = !was_killed && !matches!(self.state, ConnState::Init);
        self.abort_tcp(out, report) | self.settle_end()
    }

    /// From now on [`Conn::suspend`] may come, for which TCP is needed: its own end waits for that of both streams.
    pub fn keep_tcp(&mut self) {
        self.life.keeps_tcp = true;
    }

    /// The rings are left in the midst of the stream, which goes on by TCP: nothing more is sent or received here. What
    /// has come can be read, and what may be missing at the peer is in [`Conn::kept`]. As after [`Conn::kill`] the
    /// outstanding requests are still to be reported. Returns `None`, and does nothing, if the stream has ended or is
    /// about to.
    pub fn suspend(&mut self) -> Option<Actions> {
        let ends = self.life.sent.with(self.life.received);
        let over = self.life.killed
            || self.life.released
            || self.life.tcp_ended
            || ends.any(StateFlags::ANY_CLOSE)
            || self.life.pending == Some(Pending::Close)
            || matches!(self.state, ConnState::Init | ConnState::Closed);
        if over {
            return None;
        }
        let write_shut = self.life.write_shut;
        self.life.suspended = true;
        self.life.link_lost = true;
        let out = self.end_locally();
        // What the program has done; nothing else keeps it from writing.
        self.life.write_shut = write_shut;
        Some(out | self.settle_end())
    }

    /// Tells whether [`Conn::suspend`] has ended the connection.
    #[inline]
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.life.suspended
    }

    /// Returns what an end says that leaves the rings.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            received: self.rx.prod,
            written: self.tx.prepared,
        }
    }

    /// Judges the record of the peer, which has left the rings, too: returns the bytes that it has not got, for TCP.
    /// `quiet` says that no writer is at the ring, and none comes any more. Returns `None` if it depends on the writer
    /// which bytes the ring still has: to be asked again when it has gone.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Record`] if no correct peer says this, or the ring has not kept them.
    pub fn judge_record(
        &self,
        record: &Record,
        quiet: bool,
    ) -> Result<Option<Range<Pos>>, ProtoError> {
        let t = &self.tx;
        let from = record.received;
        let can_be = from <= t.sent && record.written >= self.rx.prod;
        // The peer's adapter had what was completed, and its software may never have seen it. A writer may put later
        // bytes in its place.
        let completed = from < t.completed;
        let kept = !completed || from >= t.kept_from;
        // An urgent byte would lose its mark.
        let urgent = t.is_urgent_behind(from);
        let fits = t.prepared.saturating_sub(from) <= t.ring.len();
        match can_be && kept && fits && !urgent {
            true if completed && !quiet => Ok(None),
            true => Ok(Some(from..t.prepared)),
            false => Err(ProtoError::Record),
        }
    }

    /// Returns where the `len` bytes of the stream from `from` on are in the send ring.
    #[must_use]
    pub fn kept(&self, from: Pos, len: u32) -> Pieces {
        Pieces::of(self.tx.ring, from, len)
    }

    /// The peer broke the protocol: it is told "abort", the program ECONNABORTED.
    pub fn fail(&mut self) -> Actions {
        let out = self.abort_towards_peer();
        self.abort_tcp(out, true)
    }

    /// Returns `out`; if by that the connection has just ended, and `report` is true, also what tells the program and
    /// the peer's TCP.
    fn abort_tcp(&mut self, out: Actions, report: bool) -> Actions {
        let aborts = report && out.has(Actions::STATE);
        self.life.tcp_aborted |= aborts;
        out.with_if(Actions::ERR_ABORTED | Actions::TCP_ABORT, aborts)
    }

    /// Tells whether [`Actions::TCP_ABORT`] was raised: if that has not been done yet it is due before anything else
    /// ends the TCP connection, as a FIN would have the peer wait for a message.
    #[must_use]
    pub fn has_aborted_tcp(&self) -> bool {
        self.life.tcp_aborted
    }

    /// The idle TCP connection was reset or timed out, which ends the connection unless it was
    /// ending anyway. The program sees ECONNRESET. After the peer's FIN it says nothing new: the peer
    /// has closed, its TCP knows nothing of the connection after a minute, and what was written may
    /// take longer to be read.
    pub fn on_tcp_dead(&mut self) -> Actions {
        let (sent, received) = (self.life.sent, self.life.received);
        if sent.any(StateFlags::ANY_END) && received.any(StateFlags::ANY_END) {
            // Both have ended, and TCP with them.
            return Actions::NONE;
        }
        let closing = self
            .life
            .received
            .with(self.life.sent)
            .any(StateFlags::ANY_CLOSE);
        if closing || self.awaits_end() {
            return Actions::NONE;
        }
        let error = self.reset_error();
        let out = self.abort_towards_peer();
        out.with_if(error, out.has(Actions::STATE))
    }

    /// Returns what a reset means to the program: nothing where both have ended, as TCP has no
    /// connection then.
    pub(super) fn reset_error(&self) -> Actions {
        match (self.has_got_all(), self.life.write_shut) {
            (false, _) => Actions::ERR_RESET,
            (true, false) => Actions::ERR_PIPE,
            (true, true) if self.life.tcp_ended => Actions::NONE,
            // The peer has not all that the program has said.
            (true, true) => Actions::ERR_RESET,
        }
    }

    /// The peer has sent a FIN on the idle TCP connection. That it will write no more is said by a
    /// message, which may come later; but a Linux peer whose process is killed while its send queue
    /// is full never sends it, and the FIN is all there will ever be.
    pub fn on_tcp_fin(&mut self, now: Instant) -> Actions {
        if self.life.fin.is_some() || !self.may_be_forsaken() {
            return Actions::NONE;
        }
        self.life.fin = Some(now.after(FIN_PATIENCE));
        self.life.fin_read = self.rx.cons;
        Actions::TIMER
    }

    /// Reports whether the peer's FIN has come and its message that says so has not.
    #[must_use]
    pub fn awaits_end(&self) -> bool {
        self.life.fin.is_some() && self.may_be_forsaken()
    }

    fn may_be_forsaken(&self) -> bool {
        !self.life.killed
            && self.state != ConnState::Closed
            && !self.life.received.any(StateFlags::ANY_END)
    }

    /// The peer has been silent since its FIN. If there was room in our ring all the while it has
    /// nothing left to send, so its end was lost on the way.
    pub(super) fn fin_expired(&mut self, now: Instant) -> Actions {
        self.life.fin = None;
        if !self.may_be_forsaken() {
            return Actions::NONE;
        }
        if self.rx.has_unread() {
            return self.on_tcp_fin(now);
        }
        if self.rx.cons != self.life.fin_read {
            self.life.fin_read = self.rx.cons;
            self.life.fin = Some(now.after(ROOM_PATIENCE));
            return Actions::TIMER;
        }
        let closed = self.life.sent.any(StateFlags::ANY_CLOSE);
        let out = self.abort_towards_peer();
        out.with_if(Actions::ERR_RESET, out.has(Actions::STATE) && !closed)
    }

    fn abort_towards_peer(&mut self) -> Actions {
        if self.life.killed {
            return Actions::NONE;
        }
        let tell = !matches!(self.state, ConnState::Init | ConnState::Closed);
        let out = self.end_locally();
        if tell {
            self.life.sent = self.life.sent.with(StateFlags::ABORT);
            self.tx.due = true;
        }
        out | self.tx_due() | self.settle_end()
    }

    pub(super) fn end_locally(&mut self) -> Actions {
        self.life.killed = true;
        self.life.pending = None;
        self.life.write_shut = true;
        self.tx.cork_until = None;
        self.tx.due = false;
        self.step(ConnEvent::Killed) | Actions::WAKE_READER | Actions::WAKE_WRITER | Actions::TIMER
    }
}
