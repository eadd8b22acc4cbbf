// SPDX-License-Identifier: GPL-2.0

//! The ends that no program asks for: the link's, that of the idle TCP connection, and that of a peer
//! which breaks the protocol or falls silent.

use super::tx::Hold;
use super::{
    Actions,
    Conn,
    ConnEvent,
    ConnState, //
};
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::cdc::StateFlags;

/// Longest time after the peer's FIN, and after its last message, until a message says that
/// it has ended; longer than any device repeats a packet.
pub const FIN_PATIENCE: Span = Span::from_secs(10);

/// Part of that for a peer that has learned of room in our ring only meanwhile.
pub const ROOM_PATIENCE: Span = Span::from_secs(2);

impl Conn {
    /// The link or its group is gone: nothing will be sent or received any more. Outstanding
    /// requests are still to be reported with [`Conn::on_tx_failed`]. The program is told, unless the connection is
    /// [over](Conn::is_over); and so is the peer's TCP, unless the program has closed and the peer has said that it has
    /// everything.
    pub fn kill(&mut self) -> Actions {
        self.life.link_lost = true;
        let was_killed = self.life.killed;
        let out = self.end_locally();
        let has_all = self.life.released && self.life.keeps_tcp && self.has_peer_all();
        let over = self.is_over() || has_all;
        let report = !was_killed && !matches!(self.state, ConnState::Init) && !over;
        self.abort_tcp(out, report) | self.settle_end()
    }

    /// Tells whether nothing can be lost any more: this end has all of the peer's stream, and the peer has all of this
    /// end's, as TCP was told, or has closed and takes no more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let closed = self.life.received.has(StateFlags::CLOSED);
        (self.life.tcp_ended || closed) && self.has_got_all()
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
    pub fn reset_error(&self) -> Actions {
        let has_peer_all = self.life.keeps_tcp && self.has_peer_all();
        match (self.has_got_all(), self.life.write_shut) {
            (false, _) => Actions::ERR_RESET,
            (true, false) => Actions::ERR_PIPE,
            (true, true) if self.life.tcp_ended || has_peer_all => Actions::NONE,
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
        self.tx.hold = Hold::None;
        self.tx.due = false;
        self.step(ConnEvent::Killed) | Actions::WAKE_READER | Actions::WAKE_WRITER | Actions::TIMER
    }
}
