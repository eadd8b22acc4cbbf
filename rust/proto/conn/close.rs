// SPDX-License-Identifier: GPL-2.0

//! The ends that the program asks for: shutdown and close, also by an abort, and the drain before
//! them. The others are in `abort`.
//!
//! shutdown and close first let everything written so far reach the peer's ring. That never
//! blocks here: a pending end is settled when the last byte goes out, in the same message. A
//! closed connection whose peer reads nothing at all for half of `Params::drain_idle` and does not
//! answer then is aborted, also one whose peer reads slower than [`DRAIN_RATE`](super::DRAIN_RATE), and
//! one whose peer does not close for [`ANSWER_TIME`] is forgotten.
//!
//! A connection keeps one reference to itself from the handshake to [`Actions::FREE`], which is
//! raised exactly once: when the state is CLOSED, the program has let go, and nothing is due or
//! outstanding.

use super::life::Pending;
use super::{
    Actions,
    Conn,
    ConnEvent,
    ConnState,
    Misuse,
    ANSWER_TIME, //
};
use crate::time::Instant;
use crate::wire::cdc::{
    ProdFlags,
    StateFlags, //
};

/// Ways in which the program closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseMode {
    /// Everything written is still delivered.
    Graceful,
    /// SO_LINGER with time zero: the peer sees a reset, unsent data is lost.
    Abort,
}

/// How far the end of a connection is that [`Conn::begin_closing`] has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Farewell {
    /// The peer has not been told everything.
    UnderWay,
    /// It has been told, and its software has answered. It may have left its ring before, of which this end hears by TCP.
    Said,
    /// The peer has closed, too, or nothing more can be said.
    Over,
}

/// Directions of a connection that are still open, as TCP would count it: what is in the ring can
/// be read all the same, and the program may try to send after the peer has closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directions {
    /// The peer may send more, and the program receive it.
    pub can_receive: bool,
    /// The program may send more.
    pub can_send: bool,
}

impl Conn {
    /// The handshake has finished. What the peer did meanwhile stays done.
    ///
    /// # Errors
    ///
    /// [`Misuse`] if the peer is not known or the connection was killed meanwhile.
    pub fn establish(&mut self, now: Instant) -> Result<Actions, Misuse> {
        if self.peer.is_none() || self.life.killed || self.state == ConnState::Closed {
            return Err(Misuse);
        }
        self.life.progress(now);
        Ok(self.step(ConnEvent::Established) | self.tx_due())
    }

    /// Our accept or confirm was sent: the peer may write into our ring from now on.
    pub fn expose(&mut self) {
        self.life.exposed = true;
    }

    /// The peer has declined: it will not write into our ring.
    pub fn peer_declined(&mut self) {
        self.life.exposed = false;
    }

    /// shutdown(SHUT_WR).
    pub fn shutdown_write(&mut self, now: Instant) -> Actions {
        if self.life.suspended {
            return self.shut_suspended();
        }
        if !self.state.may_send() || self.life.write_shut {
            return Actions::NONE;
        }
        self.life.write_shut = true;
        self.life.pending = Some(Pending::Done);
        self.life.progress(now);
        let out = self.push() | Actions::WAKE_WRITER;
        out | self.settle_pending() | self.tx_due()
    }

    /// shutdown(SHUT_RDWR): closes towards the peer, but the program keeps the socket, and may still
    /// read what has come: as with TCP that is no reason to abort.
    pub fn shutdown_both(&mut self, now: Instant) -> Actions {
        match self.life.suspended {
            true => self.shut_suspended(),
            false => self.begin_close(CloseMode::Graceful, now),
        }
    }

    /// The program ends its direction of a stream that goes on by TCP, which is told later.
    fn shut_suspended(&mut self) -> Actions {
        self.life.write_shut = true;
        Actions::WAKE_WRITER
    }

    /// The program has closed its last descriptor. With unread data the peer sees an abort. As with TCP
    /// an abort may follow a shutdown(SHUT_RDWR), unless the peer's own stream has ended by then.
    pub fn close(&mut self, mode: CloseMode, now: Instant) -> Actions {
        self.life.released = true;
        let unread = self.rx.holds_unread();
        let mode = if unread { CloseMode::Abort } else { mode };
        let left = self.tx.prepared.saturating_sub(self.tx.peer_cons);
        self.life.limit_drain(left, now);
        if mode == CloseMode::Abort && self.is_closed_one_sided() {
            self.life.sent = self.life.sent.with(StateFlags::ABORT);
            self.tx.due = true;
        }
        self.begin_close(mode, now)
    }

    /// The program has closed its last descriptor, and its stream can go on by TCP: [`Conn::close`] follows when the peer
    /// has been told everything, of which [`Actions::STATE`] tells, or when that cannot be. Returns `None`, and does
    /// nothing, where there is no need: the peer has closed, or this end aborts, as the program has not read everything.
    pub fn begin_closing(&mut self, now: Instant) -> Option<Actions> {
        let l = &self.life;
        let may = l.keeps_tcp
            && !l.released
            && !l.tcp_ended
            && (!l.killed || l.suspended)
            && !l.sent.has(StateFlags::ABORT)
            && !l.received.any(StateFlags::ANY_CLOSE)
            && !self.rx.holds_unread();
        if !may {
            return None;
        }
        self.life.closing = true;
        Some(self.shutdown_both(now))
    }

    /// Returns how far the end is that [`Conn::begin_closing`] has begun.
    #[must_use]
    pub fn farewell(&self) -> Farewell {
        let l = &self.life;
        if l.killed && !l.suspended || l.received.any(StateFlags::ANY_CLOSE) {
            Farewell::Over
        } else if l.closing || l.suspended || self.asks_to_leave() {
            Farewell::UnderWay
        } else {
            Farewell::Said
        }
    }

    fn notice_all_said(&mut self) -> Actions {
        let all = self.life.closing
            && !self.life.killed
            && self.life.sent.any(StateFlags::ANY_CLOSE)
            && !self.tx.due
            && self.tx.is_quiet()
            && self.has_peer_all();
        self.life.closing &= !all;
        Actions::NONE.with_if(Actions::STATE, all)
    }

    /// Reports whether we have sent CLOSED, and the peer has sent neither end flag.
    fn is_closed_one_sided(&self) -> bool {
        self.state == ConnState::PeerCloseWait1
            && self.life.sent.has(StateFlags::CLOSED)
            && !self.life.received.any(StateFlags::ANY_END)
    }

    /// Ends the drain of a closed connection at once: the peer sees an abort, unsent data is lost.
    pub fn give_up_drain(&mut self, now: Instant) -> Actions {
        if !self.life.released {
            return Actions::NONE;
        }
        // From now on it is the peer's answer that is waited for.
        self.life.progress(now);
        self.finish_pending(true) | self.tx_due() | self.settle_end()
    }

    fn begin_close(&mut self, mode: CloseMode, now: Instant) -> Actions {
        self.life.write_shut = true;
        self.life.pending = Some(Pending::Close);
        self.life.progress(now);
        if mode == CloseMode::Abort {
            self.tx.discard();
        }
        let mut out = self.push() | Actions::TIMER | Actions::WAKE_WRITER;
        out |= match mode {
            CloseMode::Graceful => self.settle_pending(),
            CloseMode::Abort => self.finish_pending(true),
        };
        out | self.tx_due() | self.settle_end()
    }

    /// Performs the pending end if nothing stands in its way.
    #[inline]
    pub(super) fn settle_pending(&mut self) -> Actions {
        if self.life.pending.is_none() {
            return Actions::NONE;
        }
        let waits = matches!(
            self.state,
            ConnState::Active | ConnState::AppCloseWait1 | ConnState::AppCloseWait2
        ) && self.tx.unsent() > 0
            && !self.life.received.any(StateFlags::ANY_CLOSE)
            && !(self.life.released && self.rx.holds_unread());
        if waits {
            return Actions::NONE;
        }
        self.finish_pending(false)
    }

    /// Performs the pending end now.
    fn finish_pending(&mut self, abort: bool) -> Actions {
        let Some(pending) = self.life.pending.take() else {
            return Actions::NONE;
        };
        let out = Actions::TIMER;
        match pending {
            Pending::Done => {
                self.life.sent = self.life.sent.with(StateFlags::DONE_WRITING);
                self.tx.due = true;
                self.ask_whether_seen();
                out | self.step(ConnEvent::LocalDone)
            }
            Pending::Close => {
                let flag = self.close_flag(abort);
                if flag != StateFlags::NONE {
                    self.life.sent = self.life.sent.with(flag);
                    self.tx.due = true;
                }
                self.ask_whether_seen();
                out | self.step(ConnEvent::LocalClose)
            }
        }
    }

    /// Has the peer answer the message that tells of the end, where that is to be known.
    fn ask_whether_seen(&mut self) {
        if self.life.keeps_tcp && !self.life.released {
            self.tx.ask = self.tx.ask.with(ProdFlags::UPDATE_REQUESTED);
        }
    }

    /// Returns the flag that tells the peer that we close.
    fn close_flag(&self, abort: bool) -> StateFlags {
        match self.state {
            ConnState::Init | ConnState::Closed | ConnState::PeerAbortWait => StateFlags::NONE,
            ConnState::ProcessAbort => StateFlags::ABORT,
            _ if self.life.sent.any(StateFlags::ANY_CLOSE) => StateFlags::NONE,
            _ if abort || self.life.released && self.rx.holds_unread() => StateFlags::ABORT,
            _ => StateFlags::CLOSED,
        }
    }

    /// The peer made no progress while a closed connection had data for it: first it is asked how
    /// far it is, since it may read too slowly to say so by itself.
    pub(super) fn drain_expired(&mut self, now: Instant) -> Actions {
        if self.life.is_overdue(now) {
            return self.give_up_drain(now) | Actions::DRAIN_LOST;
        }
        if !self.life.probed {
            self.life.probed = true;
            self.tx.due = true;
            self.tx.ask = self.tx.ask.with(ProdFlags::UPDATE_REQUESTED);
            return Actions::TIMER | self.tx_due();
        }
        self.give_up_drain(now) | Actions::DRAIN_LOST
    }

    /// Returns the end of the wait for a peer that does not answer our close.
    pub(super) fn answer_deadline(&self) -> Option<Instant> {
        let waits = self.life.released
            && !self.life.killed
            && self.life.sent.any(StateFlags::ANY_CLOSE)
            && matches!(
                self.state,
                ConnState::PeerCloseWait1 | ConnState::PeerCloseWait2 | ConnState::PeerFinCloseWait
            );
        let idle = self.life.last_progress.after(ANSWER_TIME);
        // A cursor now and then is no answer.
        let last = self.life.limit.after(ANSWER_TIME);
        waits.then(|| idle.min(last))
    }

    /// Ends a connection of which the peer knows that it is closed.
    pub(super) fn forget(&mut self) -> Actions {
        self.end_locally() | self.settle_end()
    }

    /// Returns the directions in which the peer and the program may still send.
    #[inline]
    #[must_use]
    pub fn directions(&self) -> Directions {
        let killed = self.life.killed && !self.life.suspended;
        let aborted = killed || self.life.received.has(StateFlags::ABORT);
        Directions {
            can_receive: !aborted
                && (!self.life.received.any(StateFlags::ANY_END) || self.expects_tail()),
            can_send: !aborted && !self.life.write_shut,
        }
    }

    /// Returns the ways that are shut, as `sk_shutdown` has it: 1 if the peer sends nothing more, 2
    /// if the program has shut its own.
    #[must_use]
    pub fn shut_ways(&self) -> u8 {
        let peer = self.life.killed || self.life.received.any(StateFlags::ANY_END);
        let own = self.life.killed || self.life.write_shut;
        u8::from(peer) | (u8::from(own) << 1)
    }

    /// Reports whether the program has closed its last descriptor.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.life.released
    }

    /// Reports whether the connection was ended from this side without the peer's doing: its link was lost, for one.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.life.killed
    }

    /// Reports whether the peer has aborted.
    #[must_use]
    pub fn is_aborted_by_peer(&self) -> bool {
        self.life.received.has(StateFlags::ABORT)
    }

    /// Reports whether shutdown or close still waits for unsent data (SO_LINGER waits for its end).
    #[inline]
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.life.pending.is_some()
    }

    /// Finishes what only waited for outstanding requests, and gives the self-reference up.
    #[inline]
    pub(super) fn settle_end(&mut self) -> Actions {
        let ends = self.life.sent.with(self.life.received) != StateFlags::NONE;
        if !ends && !self.life.killed && !self.life.released {
            return Actions::NONE;
        }
        self.notice_all_said() | self.end_tcp() | self.finish_end()
    }

    /// Has the TCP connection end when our stream has, and the peer has all of it: as it would had the
    /// stream been its own, and as the in-tree module has it.
    fn end_tcp(&mut self) -> Actions {
        let over = !self.life.tcp_ended
            && !self.life.released
            && !self.life.killed
            && self.life.sent.any(StateFlags::ANY_END)
            && (!self.life.keeps_tcp || self.has_both_ends())
            && !self.tx.due
            && self.tx.in_flight == 0
            && self.tx.unsent() == 0;
        self.life.tcp_ended |= over;
        Actions::NONE.with_if(Actions::TCP_END, over)
    }

    /// Tells whether the peer's stream has ended, and the peer has seen that this one has, as far as it still looks.
    fn has_both_ends(&self) -> bool {
        let received = self.life.received;
        received.any(StateFlags::ANY_CLOSE)
            || received.any(StateFlags::ANY_END) && self.has_peer_all()
    }

    fn finish_end(&mut self) -> Actions {
        if self.tx.in_flight > 0 || self.wants_tx() {
            return Actions::NONE;
        }
        let mut out = Actions::NONE;
        if self.state == ConnState::PeerAbortWait {
            out |= self.step(ConnEvent::Flushed);
        }
        if self.state == ConnState::Closed && self.life.released && self.life.keep.give_up() {
            out |= Actions::FREE;
        }
        out
    }

    /// Reports whether [`Actions::FREE`] was raised.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !self.life.keep.0
    }

    /// Reports whether the RMBE can be given to another connection: no write of the peer can still
    /// land in it, because the peer has ended, or declined, or the link is gone. If not, it must
    /// stay unused until the link is gone. A Linux peer that ends with data left, after waiting two
    /// seconds for room, goes on writing when it learns of some; until it has our end, an abort of
    /// its own does not keep it from that.
    #[must_use]
    pub fn rmbe_reusable(&self) -> bool {
        let blocked = self.rx.peer_flags.has(ProdFlags::WRITE_BLOCKED);
        let ended = self.life.received.any(StateFlags::ANY_CLOSE) && !blocked;
        match self.life.suspended {
            // What is written into it may be on its way still, unless the peer says otherwise.
            true => self.life.order.is_peers(),
            false => !self.life.exposed || self.life.link_lost || ended,
        }
    }
}
