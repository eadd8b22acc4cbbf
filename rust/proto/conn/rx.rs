// SPDX-License-Identifier: GPL-2.0

//! The receiving side: CDC messages, the receive ring, and telling the peer that it has room.

use super::close::Pending;
use super::urgent::RxUrgent;
use super::{
    Actions,
    Conn,
    Event,
    Misuse,
    ProtoError,
    RecvState,
    State, //
};
use crate::cursor::{
    judge,
    Cursor,
    Pos,
    RingSize,
    Step, //
};
use crate::ring::{
    Consumption,
    Pieces, //
};
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::cdc::{
    Cdc,
    ProdFlags,
    StateFlags, //
};
use crate::wire::immediate::Immediate;

/// State of the receiving side.
#[derive(Debug)]
pub(super) struct RxSide {
    pub(super) ring: RingSize,
    pub(super) prod: Pos,
    pub(super) cons: Pos,
    pub(super) announced: Pos,
    pub(super) peer_flags: ProdFlags,
    pub(super) urgent: RxUrgent,
    pub(super) inline: bool,
    /// The peer takes immediates.
    pub(super) terse: bool,
    last_seq: u16,
    /// Until when the rest of a peer that has ended without room may come; see [`TAIL_PATIENCE`].
    tail: Tail,
}

/// How long the rest of what a peer had to send may take after its end: it has ended without room
/// for everything, and was told of room. A Linux peer does so after it has waited for two seconds. If
/// the last byte has filled the ring, it says the same and there is no rest.
pub const TAIL_PATIENCE: Span = Span::from_millis(500);

/// What follows when the end of the peer's stream is one: all who watch for it are told.
const ENDED: Actions = Actions::STATE
    .with_if(Actions::WAKE_READER, true)
    .with_if(Actions::WAKE_WRITER, true);

/// The wait for such a rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tail {
    /// It has not begun: there is something to read.
    Open,
    /// The ring is empty.
    Until(Instant),
    /// There is no rest.
    Over,
}

impl RxSide {
    pub(super) fn new(ring: RingSize) -> RxSide {
        RxSide {
            ring,
            prod: 0,
            cons: 0,
            announced: 0,
            peer_flags: ProdFlags::NONE,
            urgent: RxUrgent::None,
            inline: false,
            terse: false,
            last_seq: 0,
            tail: Tail::Open,
        }
    }

    /// Bytes in the ring, the urgent one included.
    pub(super) fn unread(&self) -> u64 {
        self.prod.saturating_sub(self.cons)
    }

    /// Whether something is in the ring that the program has not got; an urgent byte that was
    /// copied out does not count.
    pub(super) fn has_unread(&self) -> bool {
        self.prod > self.released()
    }

    /// Up to where the peer may be told that the ring is free: an urgent byte that was copied out
    /// of the ring does not hold it.
    pub(super) fn released(&self) -> Pos {
        self.cons
            .wrapping_add(u64::from(self.urgent.absorbed_at(self.cons)))
    }

    /// Up to where the peer may write.
    fn limit(&self) -> Pos {
        self.announced.wrapping_add(self.ring.len())
    }

    /// What the peer knows of our reading.
    pub(super) fn consumption(&self) -> Consumption {
        Consumption {
            ring: self.ring,
            announced: self.announced,
            released: self.released(),
            received: self.prod,
            blocked: self.peer_flags.has(ProdFlags::WRITE_BLOCKED),
            terse: self.terse,
        }
    }

    /// Whether the peer should learn of the consumer cursor without waiting for other traffic.
    fn update_due(&self) -> bool {
        self.consumption().update_due()
    }
}

/// What the program can read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxView {
    /// Where the view begins, for [`Conn::read_from`].
    pub from: Pos,
    /// Bytes to skip first: an urgent byte that is not read in line. Counts as read.
    pub skip: u32,
    /// The bytes, up to the end of data or to just before the urgent byte.
    pub pieces: Pieces,
    /// The reading position is at the urgent byte: a read that has copied something stops here.
    pub at_mark: bool,
}

impl Conn {
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
        self.rx.last_seq = cdc.seq;
        self.rx.peer_flags = cdc.prod_flags;
        self.life.heard(now);

        let mut out = self.peer_consumed(consumed, now);
        out |= self.peer_produced(produced, cdc.prod_flags);
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
        self.life.heard(now);
        let mut out = self.peer_produced(bytes, ProdFlags::NONE) | self.tail_changed(waited);
        if self.must_abort() {
            out |= self.settle_pending();
        }
        Ok(out | self.tx_due() | self.settle_end())
    }

    /// How far the producer cursor moved.
    fn judge_producer(&self, wire: Cursor) -> Result<u64, ProtoError> {
        match judge(wire, self.rx.ring, self.rx.prod, self.rx.limit()) {
            Ok(Step::Ahead { bytes }) => Ok(bytes),
            Ok(Step::Stale) => Ok(0),
            Ok(Step::Beyond) | Err(_) => Err(ProtoError::ProducerCursor),
        }
    }

    /// How far the consumer cursor moved.
    fn judge_consumer(&self, wire: Cursor) -> Result<u64, ProtoError> {
        let Some(peer) = self.peer else {
            // Nothing was sent yet, so nothing can have been consumed.
            return if wire == Cursor::default() {
                Ok(0)
            } else {
                Err(ProtoError::ConsumerCursor)
            };
        };
        match judge(wire, peer.ring, self.tx.peer_cons, self.tx.sent) {
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
        if self.tx.urgent_end == Some(self.tx.peer_cons) {
            self.tx.urgent_end = None;
            self.tx.urgent_probe = None;
            self.tx.starved = false;
            return Actions::WAKE_WRITER;
        }
        Actions::NONE
    }

    /// The peer has written `bytes` more.
    fn peer_produced(&mut self, bytes: u64, flags: ProdFlags) -> Actions {
        self.rx.prod = self.rx.prod.wrapping_add(bytes);
        if bytes > 0 && self.rx.tail != Tail::Over {
            self.rx.tail = Tail::Open;
        }
        let mut out = Actions::NONE.with_if(Actions::WAKE_READER, bytes > 0);
        if bytes > 0 && flags.has(ProdFlags::URGENT_PRESENT) {
            // A mark that the reader stands at, and whose byte is gone, is passed by this.
            self.rx.cons = self.rx.released();
            self.rx.urgent = RxUrgent::arrived(self.rx.prod.wrapping_sub(1));
            out |= Actions::URGENT;
        } else if flags.has(ProdFlags::URGENT_PENDING) {
            self.rx.urgent.announced();
        }
        if bytes == 0 && flags.has(ProdFlags::WRITE_BLOCKED) && self.rx.unread() > 0 {
            out |= Actions::WAKE_READER;
        }
        let asked = flags.has(ProdFlags::UPDATE_REQUESTED)
            || (flags.has(ProdFlags::URGENT_PENDING) && self.rx.released() != self.rx.announced);
        if asked || self.rx.update_due() {
            self.want_update();
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
            let error = !matches!(self.state, State::Closed);
            out |= Actions::NONE.with_if(Actions::ERR_RESET, error);
            out |= self.step(Event::PeerAborted);
            if self.state == State::Closed && !self.life.sent.any(StateFlags::ANY_CLOSE) {
                // The peer waits for our end before it forgets the connection.
                self.life.sent = self.life.sent.with(StateFlags::ABORT);
                self.tx.due = true;
            }
            return out;
        }
        if new.has(StateFlags::DONE_WRITING) {
            out |= self.step(Event::PeerDone);
        }
        if new.has(StateFlags::CLOSED) {
            out |= self.step(Event::PeerClosed);
        }
        out
    }

    /// Data for a program that has gone: the peer must learn that nobody will read it.
    fn must_abort(&self) -> bool {
        self.life.pending == Some(Pending::Close) && self.life.released && self.rx.has_unread()
    }

    /// Makes a message with the consumer cursor due, if the peer is still interested.
    pub(super) fn want_update(&mut self) {
        let closed = self.life.received.any(StateFlags::ANY_CLOSE);
        let told = self.life.sent.any(StateFlags::ANY_CLOSE);
        if !closed || self.expects_tail() && !told {
            self.tx.due = true;
        }
    }

    /// Whether the peer has ended and may write all the same: it had more than there was room for.
    pub(super) fn expects_tail(&self) -> bool {
        let ended = self.life.received;
        ended.any(StateFlags::ANY_END)
            && !ended.has(StateFlags::ABORT)
            && !self.life.killed
            && self.rx.peer_flags.has(ProdFlags::WRITE_BLOCKED)
            && self.rx.tail != Tail::Over
    }

    /// What follows if the peer's rest was (`waited`) or is expected.
    pub(super) fn tail_changed(&self, waited: bool) -> Actions {
        if self.expects_tail() {
            Actions::NONE.with_if(Actions::TIMER, self.tail_deadline().is_some())
        } else {
            Actions::NONE.with_if(ENDED, waited)
        }
    }

    /// When the wait for the peer's rest begins or is over. It begins when the peer is told that the
    /// ring is empty.
    pub(super) fn tail_deadline(&self) -> Option<Instant> {
        if !self.expects_tail() || self.life.released || self.rx.has_unread() {
            return None;
        }
        match self.rx.tail {
            Tail::Open if self.tx.due => None,
            Tail::Open => Some(Instant(0)),
            Tail::Until(end) => Some(end),
            Tail::Over => None,
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

    /// What a read would find.
    #[must_use]
    pub fn recv_state(&self) -> RecvState {
        let n = self.readable();
        if n > 0 {
            return RecvState::Data(n);
        }
        if self.life.killed {
            return RecvState::Aborted;
        }
        if self.life.received.has(StateFlags::ABORT) {
            return RecvState::Reset;
        }
        if self.life.received.any(StateFlags::ANY_END) && !self.expects_tail() {
            return RecvState::Eof;
        }
        match self.state {
            State::Init => RecvState::NotConnected,
            State::Closed | State::PeerFinCloseWait => RecvState::Eof,
            _ => RecvState::Empty,
        }
    }

    /// Bytes that ordinary reads can still return.
    fn readable(&self) -> u32 {
        let hidden = self.rx.urgent.hidden_from(self.rx.cons, self.rx.inline);
        // At most the ring size.
        self.rx.unread().saturating_sub(hidden) as u32
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

    /// What the program reads next, starting `peeked` bytes after the consumer position.
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
        view.pieces = Pieces::of(self.rx.ring, pos, len);
        view
    }

    /// How many bytes the peer has announced in all.
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
    pub fn read_from(&mut self, from: Pos, n: u32) -> Result<Actions, Misuse> {
        let end = from.wrapping_add(u64::from(n));
        if end > self.rx.prod {
            return Err(Misuse);
        }
        self.rx.cons = self.rx.cons.max(end);
        let passed = self.rx.urgent.advance(self.rx.cons, self.rx.inline);
        if (passed && self.rx.released() != self.rx.announced) || self.rx.update_due() {
            self.want_update();
        }
        // Of a peer that has ended so it says that there may be more: see `rmbe_reusable`.
        if self.rx.unread() == 0 && !self.life.received.any(StateFlags::ANY_END) {
            self.rx.peer_flags = self.rx.peer_flags.without(ProdFlags::WRITE_BLOCKED);
        }
        Ok(self.tx_due() | self.tail_changed(false))
    }
}
