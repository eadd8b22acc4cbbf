// SPDX-License-Identifier: GPL-2.0

//! The rings are left in the midst of the stream, which goes on by TCP.
//!
//! Either the link is lost ([`Conn::suspend`]), or it works and the rings are of no use at present. Then an end asks the
//! other one ([`Conn::ask_to_leave`]), which leaves at once, or says that it stays: it alone knows whether its program has
//! read what precedes the rings. It leaves in good order: its [`Record`] goes out when all its requests have ended, and
//! says up to where it has sent. The one that has asked leaves when it reads that and has come so far.
//!
//! Who has asked keeps in its ring all that the peer may not have got when it left. So no byte is missing, whatever the
//! two programs write meanwhile.

use super::life::{
    Order,
    Question, //
};
use super::{
    Actions,
    Conn,
    ConnState,
    ProtoError, //
};
use crate::cursor::Pos;
use crate::ring::Pieces;
use crate::wire::cdc::{
    ProdFlags,
    StateFlags, //
};
use crate::wire::promotion::Record;
use core::ops::Range;

impl Conn {
    /// From now on [`Conn::suspend`] may come, for which TCP is needed: its own end waits for that of both streams. The
    /// peer tells that it has read so many bytes, which say that this end has left TCP; before, this end says nothing there
    /// ([`Conn::is_understood`]).
    pub fn keep_tcp(&mut self, marks: u8) {
        self.life.keeps_tcp = true;
        self.life.marks = marks;
    }

    /// The peer knows that this end has left TCP.
    pub fn marks_are_read(&mut self) {
        self.life.marks = 0;
    }

    /// Has the peer told what was read.
    pub fn tell_read(&mut self) -> Actions {
        self.want_update();
        self.tx_due()
    }

    /// The peer knows the question whether the rings are left, and the program has read what precedes them.
    pub fn may_leave(&mut self) {
        if self.life.question == Question::Not {
            self.life.question = Question::May;
        }
    }

    /// The rings are left, as the link is lost or the peer has left them: nothing more is sent or received here. What
    /// has come can be read, and what may be missing at the peer is in [`Conn::kept`]. As after [`Conn::kill`] the
    /// outstanding requests are still to be reported. Returns `None`, and does nothing else, if the stream has ended or is
    /// about to.
    pub fn suspend(&mut self) -> Option<Actions> {
        // Nobody knows any more which of the requests have arrived.
        self.life.order.lost();
        self.try_leave(Order::None)
    }

    /// The same while the link works, after the peer has left in good order, or as the program ends a stream while the
    /// peer is asked: then this end's record says that nothing more of it will come.
    pub fn leave(&mut self) -> Option<Actions> {
        self.try_leave(Order::Own)
    }

    fn try_leave(&mut self, order: Order) -> Option<Actions> {
        let over = self.life.killed
            || self.life.released
            || self.life.tcp_ended
            || self.life.received.any(StateFlags::ANY_CLOSE)
            || self.life.sent.has(StateFlags::ABORT)
            || matches!(self.state, ConnState::Init | ConnState::Closed);
        if over {
            return None;
        }
        let write_shut = self.life.write_shut;
        self.life.suspended = true;
        self.life.order = order;
        self.life.link_lost = true;
        let out = self.end_locally();
        // What the program has done; nothing else keeps it from writing.
        self.life.write_shut = write_shut;
        Some(out | Actions::LEFT | self.settle_end())
    }

    /// Tells whether both streams have ended, as far as is known here: a peer that ends TCP now without a record has done so
    /// since it knows that, too, and needs nothing more.
    #[must_use]
    pub fn have_both_ended(&self) -> bool {
        let l = &self.life;
        l.sent.any(StateFlags::ANY_END) && l.received.any(StateFlags::ANY_END)
    }

    /// Tells whether the peer's software has said that it has everything, and this end's end where it was said. Always true
    /// where TCP is not kept.
    #[must_use]
    pub fn has_peer_all(&self) -> bool {
        let ended = self.life.sent.any(StateFlags::ANY_END);
        self.tx.seen >= self.tx.prepared.saturating_add(u64::from(ended))
    }

    /// Returns the positions of the bytes that a peer needs which has got all.
    #[must_use]
    pub fn nothing_missing(&self) -> Range<Pos> {
        self.tx.prepared..self.tx.prepared
    }

    /// Tells whether [`Conn::suspend`] or [`Conn::leave`] has ended the connection.
    #[inline]
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.life.suspended
    }

    /// Tells whether the rings are of no use at present: all that was written has arrived, and all that has come was
    /// read.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.tx.completed == self.tx.prepared && self.rx.unread() == 0
    }

    /// Asks the peer to leave the rings. Returns `None`, and does nothing, if that cannot be at present, or the peer was
    /// asked and has not answered.
    pub fn ask_to_leave(&mut self) -> Option<Actions> {
        if self.asks_to_leave() || !self.can_leave() {
            return None;
        }
        self.life.question = Question::Asks;
        self.tx.frozen = true;
        self.tx.due = true;
        self.tx.ask = self.tx.ask.with(ProdFlags::LEAVE);
        Some(self.tx_due())
    }

    /// Tells whether the peer was asked to leave the rings, and has not answered.
    #[must_use]
    pub fn asks_to_leave(&self) -> bool {
        self.life.question == Question::Asks
    }

    /// A stream of which one direction has ended stays where it is, and so does one with an urgent byte under way.
    fn can_leave(&self) -> bool {
        let l = &self.life;
        l.question != Question::Not
            && !l.killed
            && !l.released
            && !l.write_shut
            && l.pending.is_none()
            && l.fin.is_none()
            && l.sent.with(l.received) == StateFlags::NONE
            && self.tx.urgent_end.is_none()
            && self.is_understood()
            && self.state == ConnState::Active
    }

    /// The peer asks this end to leave the rings, or answers that it stays.
    #[cold]
    pub(super) fn hear_of_leaving(&mut self, flags: ProdFlags) -> Actions {
        if !self.life.keeps_tcp {
            return Actions::NONE;
        }
        let mut out = Actions::NONE;
        if flags.has(ProdFlags::STAYS) && self.asks_to_leave() {
            out |= self.go_on();
        }
        if flags.has(ProdFlags::LEAVE) {
            match self.can_leave() {
                true => out |= self.leave().unwrap_or(Actions::NONE),
                false => {
                    self.tx.ask = self.tx.ask.with(ProdFlags::STAYS);
                    self.tx.due = true;
                }
            }
        }
        out
    }

    /// The peer stays: what has arrived is free.
    fn go_on(&mut self) -> Actions {
        self.life.question = Question::May;
        let t = &mut self.tx;
        t.frozen = false;
        if t.in_flight == 0 {
            t.completed = t.sent;
        }
        let wake = t.starved && t.urgent_end.is_none() && t.has_much_room();
        t.starved &= !wake;
        Actions::NONE.with_if(Actions::WAKE_WRITER, wake)
    }

    /// Tells whether this end may say what it has of its rings, which are left: one that leaves in good order when all
    /// its requests have ended, and any if the peer would understand it.
    #[must_use]
    pub fn knows_record(&self) -> bool {
        self.is_understood() && (!self.life.order.is_own() || self.tx.in_flight == 0)
    }

    /// Tells whether the peer is known to know that this end has left TCP. Otherwise it may take for the program's what
    /// this end says there, and has to say something first.
    #[must_use]
    pub fn is_understood(&self) -> bool {
        self.tx.peer_cons >= u64::from(self.life.marks)
    }

    /// Returns what an end says that leaves the rings.
    #[must_use]
    pub fn record(&self) -> Record {
        let orderly = self.life.order.is_own();
        Record {
            received: self.rx.prod,
            written: match orderly {
                true => self.tx.sent,
                false => self.tx.prepared,
            },
            orderly,
        }
    }

    /// Tells whether what the peer has sent, by its record, is on its way still.
    #[must_use]
    pub fn awaits_rest(&self, record: &Record) -> bool {
        record.orderly && !self.life.suspended && self.rx.prod < record.written
    }

    /// Judges the record of the peer, which has left the rings, too: returns the program's bytes that it has not got, for
    /// TCP. The send ring has kept them, even where the peer's device had acknowledged them.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Record`] if no correct peer says this: it has what was never sent, or has not got what it has said
    /// that it has, or what came from it.
    pub fn judge_record(&self, record: &Record) -> Result<Range<Pos>, ProtoError> {
        let t = &self.tx;
        let from = record.received;
        let told = t.seen.min(t.prepared);
        let can_be = told <= from && from <= t.sent && record.written >= self.rx.prod;
        // An urgent byte would lose its mark.
        match can_be && !t.is_urgent_behind(from) {
            true => Ok(from.max(u64::from(self.rx.preamble)).min(t.prepared)..t.prepared),
            false => Err(ProtoError::Record),
        }
    }

    /// Takes note of the peer's record, which was judged right.
    pub fn accept_record(&mut self, record: &Record) {
        if record.orderly {
            self.life.order.heard();
        }
        self.life.question = Question::Not;
        self.tx.frozen = true;
        self.tx.completed = record.received;
    }

    /// Returns where the `len` bytes of the stream from `from` on are in the send ring.
    #[must_use]
    pub fn kept(&self, from: Pos, len: u32) -> Pieces {
        Pieces::of(self.tx.ring, from, len)
    }

    /// Returns the numbers of bytes that have gone, of these of how many it is known that they have arrived, and that
    /// have come by the rings. Bytes that TCP gives again do not count.
    #[must_use]
    pub fn carried(&self) -> (u64, u64, u64) {
        let t = &self.tx;
        // Of which the peer has said what has arrived.
        let accepted = t.frozen && self.life.question == Question::Not;
        let sent = match accepted {
            true => t.completed,
            false => t.sent,
        };
        (sent, t.completed, self.rx.prod)
    }
}
