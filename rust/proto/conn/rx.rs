// SPDX-License-Identifier: GPL-2.0

//! The receiving side: CDC messages, the receive ring, and telling the peer that it has room.

use super::life::Pending;
use super::moves::Rings;
use super::tail::Tail;
use super::urgent::RxUrgent;
use super::{
    Actions,
    Conn,
    ConnEvent,
    ConnState, //
    ProtoError,
};
use crate::cursor::{
    judge,
    Cursor,
    Pos,
    RingSize,
    Step, //
};
use crate::ring::Consumption;
use crate::time::Instant;
use crate::wire::cdc::{
    Cdc,
    ProdFlags,
    StateFlags, //
    MOST_UNREAD,
};
use crate::wire::immediate::Immediate;

/// State of the receiving side.
#[derive(Debug)]
pub(super) struct RxSide {
    pub(super) rings: Rings,
    pub(super) prod: Pos,
    pub(super) cons: Pos,
    pub(super) announced: Pos,
    pub(super) peer_flags: ProdFlags,
    pub(super) urgent: RxUrgent,
    pub(super) inline: bool,
    /// Number of first bytes that are not the program's; see [`Conn::begins_with`].
    pub(super) preamble: u8,
    /// The peer has agreed to immediates; see [`Peer`](super::Peer).
    pub(super) peer_takes_immediates: bool,
    last_seq: u16,
    /// The wait, with its deadline, for data that did not fit into our ring when the peer sent its end
    /// flag; see [`TAIL_PATIENCE`](super::TAIL_PATIENCE).
    pub(super) tail: Tail,
}

impl RxSide {
    pub(super) fn new(ring: RingSize, most: RingSize) -> RxSide {
        RxSide {
            rings: Rings::new(ring, most),
            prod: 0,
            cons: 0,
            announced: 0,
            peer_flags: ProdFlags::NONE,
            urgent: RxUrgent::None,
            inline: false,
            preamble: 0,
            peer_takes_immediates: false,
            last_seq: 0,
            tail: Tail::Open,
        }
    }

    /// Bytes in the ring, the urgent one included.
    #[inline]
    pub(super) fn unread(&self) -> u64 {
        self.prod.saturating_sub(self.cons)
    }

    /// Returns how many bytes wait for the program, as a message says it that says [`Self::announced`]; the peer's end, if
    /// it has `ended`, counts as one.
    pub(super) fn told_unread(&self, ended: bool) -> u32 {
        let unread = self.prod.saturating_sub(self.announced);
        let unread = unread.saturating_add(u64::from(ended));
        // At most that.
        unread.min(u64::from(MOST_UNREAD)) as u32
    }

    /// Reports whether bytes for the program are in the ring, the urgent one included, which it will never read if it
    /// closes.
    #[inline]
    pub(super) fn holds_unread(&self) -> bool {
        self.prod > self.cons.max(u64::from(self.preamble))
    }

    /// Reports whether something is in the ring that the program has not got; an urgent byte that
    /// was copied out does not count.
    #[inline]
    pub(super) fn has_unread(&self) -> bool {
        self.prod > self.released()
    }

    /// Up to where the peer may be told that the ring is free: an urgent byte that was copied out
    /// of the ring does not hold it.
    #[inline]
    pub(super) fn released(&self) -> Pos {
        self.cons
            .wrapping_add(u64::from(self.urgent.absorbed_at(self.cons)))
    }

    /// Up to where the peer may write.
    #[inline]
    fn limit(&self) -> Pos {
        self.announced.wrapping_add(self.rings.current().len())
    }

    /// Returns what the peer knows of our reading.
    #[inline]
    pub(super) fn consumption(&self) -> Consumption {
        Consumption {
            ring: self.rings.current(),
            announced: self.announced,
            released: self.released(),
            received: self.prod,
            blocked: self.peer_flags.has(ProdFlags::WRITE_BLOCKED),
            peer_takes_immediates: self.peer_takes_immediates,
        }
    }

    /// Reports whether the peer should learn of the consumer cursor without waiting for other
    /// traffic.
    #[inline]
    pub(super) fn update_due(&self) -> bool {
        self.consumption().update_due()
    }
}

impl Conn {
    /// The stream has begun as TCP's. The first `bytes` that come are not for the program: who closes without having read
    /// them loses nothing. TCP stays open until both streams have ended, as it may be needed: see [`Conn::suspend`]; so the
    /// send ring keeps all bytes of which the peer's software has not said that it has them.
    pub fn begins_with(&mut self, bytes: u8) {
        self.life.keeps_tcp = true;
        self.rx.preamble = bytes;
        self.tx.seen = 0;
    }

    /// A CDC message has arrived. Data that it announces is already in the ring.
    ///
    /// # Errors
    ///
    /// [`ProtoError`] if no correct peer sends this; the connection is unchanged, and the caller
    /// must end it with [`Conn::fail`].
    pub fn on_cdc(&mut self, cdc: &Cdc, now: Instant) -> Result<Actions, ProtoError> {
        if self.life.killed {
            return Ok(Actions::NONE);
        }
        if cdc.token != self.token {
            return Err(ProtoError::Token);
        }
        let ahead = cdc.seq.wrapping_sub(self.rx.last_seq) as i16;
        if cdc.prod_flags.has(ProdFlags::FAILOVER) {
            return if ahead > 0 {
                Err(ProtoError::FailoverGap)
            } else {
                Ok(Actions::NONE)
            };
        }
        if ahead < 0 {
            return Ok(Actions::NONE);
        }
        let waited = self.expects_tail();
        // Judge everything before changing anything.
        let produced = self.judge_producer(cdc.prod)?;
        let consumed = self.judge_consumer(cdc.cons)?;
        let rings = self.judge_rings(cdc.rings, produced)?;
        self.rx.last_seq = cdc.seq;
        self.rx.peer_flags = cdc.prod_flags;
        self.tx.in_a_row = false;
        self.life.heard(now);

        let mut out = self.peer_consumed(consumed, now);
        out |= self.peer_produced(produced, cdc.prod_flags);
        if self.life.keeps_tcp {
            out |= self.peer_has(cdc.unread);
        }
        out |= self.take_rings(rings);
        if waited && cdc.state_flags.has(StateFlags::ABORT) {
            // Whatever this message says of room: something is missing.
            self.rx.tail = Tail::Lost;
        }
        out |= self.peer_ended(cdc.state_flags);
        if self.life.received.any(StateFlags::ANY_CLOSE) || self.must_abort() {
            out |= self.settle_pending();
        }
        out |= self.tail_changed(waited);
        Ok(out | self.tx_due() | self.settle_end())
    }

    /// A WRITE has announced itself. Its data is in the ring, as with [`Conn::on_cdc`].
    ///
    /// # Errors
    ///
    /// [`ProtoError`] as there.
    #[inline]
    pub fn on_immediate(
        &mut self,
        immediate: Immediate,
        now: Instant,
    ) -> Result<Actions, ProtoError> {
        if self.life.killed {
            return Ok(Actions::NONE);
        }
        if immediate.hint() != self.token.0 as u16 {
            return Err(ProtoError::Token);
        }
        let bytes = u64::from(immediate.bytes());
        if self.rx.prod.wrapping_add(bytes) > self.rx.limit() {
            return Err(ProtoError::ProducerCursor);
        }
        // It counts as a message, and stands for one without flags.
        self.rx.last_seq = self.rx.last_seq.wrapping_add(1);
        let waited = self.expects_tail();
        self.rx.peer_flags = ProdFlags::NONE;
        self.tx.in_a_row = false;
        self.life.heard(now);
        let mut out = self.peer_produced(bytes, ProdFlags::NONE) | self.tail_changed(waited);
        if self.must_abort() {
            out |= self.settle_pending();
        }
        Ok(out | self.tx_due() | self.settle_end())
    }

    /// Bytes by which the producer cursor moved.
    fn judge_producer(&self, wire: Cursor) -> Result<u64, ProtoError> {
        match judge(wire, self.rx.rings.cursors(), self.rx.prod, self.rx.limit()) {
            Ok(Step::Ahead { bytes }) => Ok(bytes),
            Ok(Step::Stale) => Ok(0),
            Ok(Step::Beyond) | Err(_) => Err(ProtoError::ProducerCursor),
        }
    }

    /// Bytes by which the consumer cursor moved.
    fn judge_consumer(&self, wire: Cursor) -> Result<u64, ProtoError> {
        if self.peer.is_none() {
            // Nothing was sent yet, so nothing can have been consumed.
            return if wire == Cursor::default() {
                Ok(0)
            } else {
                Err(ProtoError::ConsumerCursor)
            };
        }
        match judge(wire, self.tx.cursors, self.tx.peer_cons, self.tx.sent) {
            Ok(Step::Ahead { bytes }) => Ok(bytes),
            Ok(Step::Stale) => Ok(0),
            Ok(Step::Beyond) | Err(_) => Err(ProtoError::ConsumerCursor),
        }
    }

    /// The peer has consumed `bytes` more.
    fn peer_consumed(&mut self, bytes: u64, now: Instant) -> Actions {
        if bytes == 0 {
            return Actions::NONE;
        }
        self.tx.peer_cons = self.tx.peer_cons.wrapping_add(bytes);
        self.life.progress(now);
        if self.tx.is_urgent_before(self.tx.peer_cons) {
            self.tx.urgent_end = None;
            self.tx.urgent_probe = None;
            self.tx.starved = false;
            return Actions::WAKE_WRITER;
        }
        Actions::NONE
    }

    /// The peer has written `bytes` more.
    #[inline]
    fn peer_produced(&mut self, bytes: u64, flags: ProdFlags) -> Actions {
        self.rx.prod = self.rx.prod.wrapping_add(bytes);
        if bytes > 0 && self.rx.tail != Tail::Over {
            self.rx.tail = Tail::Open;
        }
        let mut out = Actions::NONE.with_if(Actions::WAKE_READER, bytes > 0);
        if bytes > 0 && flags.has(ProdFlags::URGENT_PRESENT) {
            // A mark that the reader stands at, and whose byte is gone, is passed by this.
            self.rx.cons = self.rx.released();
            let known = self.rx.urgent == RxUrgent::Announced;
            self.rx.urgent = RxUrgent::arrived(self.rx.prod.wrapping_sub(1));
            out |= Actions::URGENT.with_if(Actions::URGENT_NEWS, !known);
        } else if flags.has(ProdFlags::URGENT_PENDING) && self.rx.urgent.announced() {
            out |= Actions::URGENT_NEWS;
        }
        if bytes == 0 && flags.has(ProdFlags::WRITE_BLOCKED) && self.rx.unread() > 0 {
            out |= Actions::WAKE_READER;
        }
        let asked = flags.any(ProdFlags::ASKS)
            || (flags.has(ProdFlags::URGENT_PENDING) && self.rx.released() != self.rx.announced);
        if asked || self.rx.update_due() {
            self.want_update();
            if flags.any(ProdFlags::LEAVE.with(ProdFlags::STAYS)) {
                out |= self.hear_of_leaving(flags);
            }
        }
        out
    }

    /// Takes note of the end flags; each counts once.
    fn peer_ended(&mut self, flags: StateFlags) -> Actions {
        let new = flags.without(self.life.received);
        if new == StateFlags::NONE {
            return Actions::NONE;
        }
        self.life.received = self.life.received.with(new);
        let mut out = Actions::WAKE_READER | Actions::WAKE_WRITER;
        if new.has(StateFlags::ABORT) {
            if self.state != ConnState::Closed {
                out |= self.reset_error();
                // As with TCP there is no peer any more.
                out |= Actions::NONE.with_if(Actions::TCP_OVER, !self.life.released);
            }
            out |= self.step(ConnEvent::PeerAborted);
            if self.state == ConnState::Closed && !self.life.sent.any(StateFlags::ANY_CLOSE) {
                // The peer waits for our end before it forgets the connection.
                self.life.sent = self.life.sent.with(StateFlags::ABORT);
                self.tx.due = true;
            }
            return out;
        }
        if new.has(StateFlags::DONE_WRITING) {
            out |= self.step(ConnEvent::PeerDone);
        }
        if new.has(StateFlags::CLOSED) {
            out |= self.step(ConnEvent::PeerClosed);
        }
        out
    }

    /// Data for a program that has gone: the peer must learn that nobody will read it.
    #[inline]
    fn must_abort(&self) -> bool {
        self.life.pending == Some(Pending::Close) && self.life.released && self.rx.holds_unread()
    }

    /// Makes a message with the consumer cursor due, if the peer is still interested.
    #[inline]
    pub(super) fn want_update(&mut self) {
        let closed = self.life.received.any(StateFlags::ANY_CLOSE);
        let told = self.life.sent.any(StateFlags::ANY_CLOSE);
        if !closed || self.expects_tail() && !told {
            self.tx.due = true;
        }
    }
}
