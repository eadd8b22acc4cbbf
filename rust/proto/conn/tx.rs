// SPDX-License-Identifier: GPL-2.0

//! The sending side: the peer's window and the next message. The program's part is in `write`.
//!
//! A message handed out by [`Conn::take_tx`] is RDMA WRITEs for data followed by one CDC message,
//! to be posted as one chain. It always states the latest cursors and flags, so whatever became
//! due since the last one is in it. Where nothing is to be said but how many bytes there are, and
//! the peer agreed to it, the last WRITE says that itself ([`Notice::Immediate`]).

use super::{
    Actions,
    Conn,
    ConnState, //
    Place,
};
use crate::cursor::{
    Cursor,
    Pos,
    RingSize, //
};
use crate::ring::WritePlan;
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::cdc::{
    Cdc,
    Offer,
    ProdFlags,
    RingNews,
    StateFlags, //
};
use crate::wire::immediate::Immediate;
use core::num::NonZeroU64;

/// Whether the peer is asked up to where its software has the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inquiry {
    /// There is no need.
    None,
    /// It is to be, once it can say something new.
    Due,
    /// It was, and has not answered.
    Sent,
}

/// Longest time for the peer to consume an urgent byte before it is asked for its cursor; doubled
/// each time, up to [`URGENT_PROBE_MAX`].
const URGENT_PROBE: Span = Span::from_millis(20);
const URGENT_PROBE_MAX: Span = Span::from_secs(5);

/// Most bytes of one message: who posts it has room for so many requests. A larger window takes several.
pub const LONGEST_TX: u32 = 256 << 10;

/// Reasons to hold prepared data back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// It is not.
    None,
    /// A message is outstanding whose end the device tells of; that, or the next message, sends the data (autocork).
    Auto,
    /// The program said that more will follow.
    Cork,
}

/// Names a message for [`Conn::on_tx_done`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ticket {
    upto: Pos,
    /// The device tells of its end.
    told: bool,
}

/// Ways in which the peer learns of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// By a CDC message after the WRITEs.
    Cdc(Cdc),
    /// By the last WRITE itself, of which there is at least one.
    Immediate(Immediate),
}

impl Notice {
    /// The CDC message, if it is one.
    #[must_use]
    pub fn cdc(&self) -> Option<&Cdc> {
        match self {
            Notice::Cdc(cdc) => Some(cdc),
            Notice::Immediate(_) => None,
        }
    }
}

/// Message to post: the WRITEs of `plan` in order, with `notice`, as one chain.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Tx {
    /// RDMA WRITEs from the send ring into the peer's RMBE; may be empty.
    pub plan: WritePlan,
    /// Where that begins.
    pub place: Place,
    /// Message that tells the peer of them.
    pub notice: Notice,
    /// To be handed back on completion.
    pub ticket: Ticket,
    /// Whether the device is to tell of the end. That of others may come with the next one of which it tells, as long
    /// as the caller sees to one when [`Conn::awaits_completion`] becomes true.
    pub signaled: bool,
    /// Actions beside posting.
    pub actions: Actions,
}

/// State of the sending side.
#[derive(Debug)]
pub(super) struct TxSide {
    pub(super) ring: RingSize,
    /// The largest to which it may grow.
    pub(super) most: RingSize,
    pub(super) prepared: Pos,
    pub(super) sent: Pos,
    pub(super) completed: Pos,
    pub(super) peer_cons: Pos,
    /// Up to where the peer's software has said that it has the bytes, where both ends keep TCP: that its device has
    /// them does not say that they will be seen. The greatest number where they do not.
    pub(super) seen: Pos,
    /// Whether the peer was asked for that.
    inquiry: Inquiry,
    /// One past the urgent byte, until the peer has consumed it.
    pub(super) urgent_end: Option<NonZeroU64>,
    /// Time at which the peer is asked whether it has, and the wait after that.
    pub(super) urgent_probe: Option<(Instant, Span)>,
    /// A writer has found no room and is to be woken when there is some.
    pub(super) starved: bool,
    /// Times that writers have found no room since the ring has had its size.
    pub(super) shortages: u8,
    /// Until when data is held back as more will follow, if it is.
    cork_until: Instant,
    pub(super) last_flags: ProdFlags,
    /// A message without data must go out.
    pub(super) due: bool,
    /// What the next message asks the peer, or answers to it.
    pub(super) ask: ProdFlags,
    /// Messages handed out and not completed.
    pub(super) in_flight: u16,
    /// Those of them whose end the device tells of.
    pub(super) told: u16,
    /// A message was handed out after the peer's last one.
    pub(super) in_a_row: bool,
    pub(super) hold: Hold,
    last_seq: u16,
    pub(super) autocork: u32,
    /// Size of the peer's first ring: the form of cursors.
    pub(super) cursors: RingSize,
    /// Number of the peer's ring into which we write.
    pub(super) into: u8,
    /// The ring that the peer offers in place of that.
    pub(super) offer: Option<Offer>,
    /// Bytes stay in the ring even if they arrive, as the peer may have left it before that: it was asked to, or it has
    /// said what it has got, which is [`Self::completed`] then.
    pub(super) frozen: bool,
}

impl TxSide {
    pub(super) fn new(ring: RingSize, most: RingSize, autocork: u32) -> TxSide {
        TxSide {
            ring,
            most,
            prepared: 0,
            sent: 0,
            completed: 0,
            peer_cons: 0,
            seen: Pos::MAX,
            inquiry: Inquiry::None,
            urgent_end: None,
            urgent_probe: None,
            starved: false,
            shortages: 0,
            cork_until: Instant(0),
            last_flags: ProdFlags::NONE,
            due: false,
            ask: ProdFlags::NONE,
            in_flight: 0,
            told: 0,
            in_a_row: false,
            hold: Hold::None,
            last_seq: 0,
            autocork,
            cursors: RingSize::MIN_WIRE,
            into: 0,
            offer: None,
            frozen: false,
        }
    }

    /// Returns until when data is held back as more will follow; `None` if it is not.
    #[inline]
    pub(super) fn cork_deadline(&self) -> Option<Instant> {
        (self.hold == Hold::Cork).then_some(self.cork_until)
    }

    /// Holds data back from now on, or goes on doing so, for this reason; as more will follow until `limit` at most.
    /// Returns whether there is another deadline.
    #[inline]
    pub(super) fn hold_back(&mut self, hold: Hold, limit: Instant) -> bool {
        let was_corked = self.hold == Hold::Cork;
        self.hold = hold;
        let corked = hold == Hold::Cork;
        if corked && !was_corked {
            self.cork_until = limit;
        }
        corked != was_corked
    }

    /// Drops what is not sent, as TCP's reset does.
    pub(super) fn discard(&mut self) {
        if self.is_urgent_behind(self.sent) {
            self.urgent_end = None;
        }
        self.prepared = self.sent;
    }

    /// Bytes prepared and not sent.
    #[inline]
    pub(super) fn unsent(&self) -> u64 {
        self.prepared.saturating_sub(self.sent)
    }

    /// Free bytes of the send ring.
    #[inline]
    pub(super) fn space(&self) -> u32 {
        let used = self.prepared.saturating_sub(self.completed.min(self.seen));
        // At most the ring size, so it fits.
        self.ring.len().saturating_sub(used) as u32
    }

    /// Reports whether all that was written has arrived, and no message is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.completed == self.prepared && self.in_flight == 0
    }

    /// The ring is full. If it is so of bytes of which the peer's software has not said that it has them, a message asks
    /// for that: the next one, or the first that has such bytes.
    #[cold]
    pub(super) fn filled(&mut self) {
        if self.prepared.saturating_sub(self.seen) >= self.ring.len() {
            self.ask_for_seen();
        }
    }

    fn ask_for_seen(&mut self) {
        if self.inquiry != Inquiry::Sent {
            self.inquiry = Inquiry::Due;
            self.due |= self.sent > self.seen;
        }
    }

    /// Asks, in a message after which there is something to be told: the answer is news then, and ends the inquiry.
    #[cold]
    fn inquire(&mut self) {
        if self.sent > self.seen {
            self.inquiry = Inquiry::Sent;
            self.ask = self.ask.with(ProdFlags::UPDATE_REQUESTED);
        }
    }

    /// Reports whether the message just taken followed another one, or has left the ring half full.
    #[inline]
    fn is_streaming(&self) -> bool {
        self.in_a_row || self.space() < self.ring.bytes() / 2
    }

    /// Reports whether a third of the send ring is free, or some of it and nothing is under way.
    pub(super) fn has_much_room(&self) -> bool {
        let space = u64::from(self.space());
        space.saturating_mul(3) >= self.ring.len() || space > 0 && self.in_flight == 0
    }

    /// Reports whether an urgent byte is at `pos` or after it.
    #[inline]
    pub(super) fn is_urgent_behind(&self, pos: Pos) -> bool {
        self.urgent_end.is_some_and(|end| end.get() > pos)
    }

    /// Reports whether an urgent byte is the last one before `pos`.
    #[inline]
    pub(super) fn is_urgent_before(&self, pos: Pos) -> bool {
        self.urgent_end.is_some_and(|end| end.get() == pos)
    }

    /// Reports whether an urgent byte was sent and the peer has not consumed everything yet.
    #[inline]
    fn urgent_in_flight(&self) -> bool {
        self.urgent_end.is_some_and(|end| self.sent >= end.get())
    }
}

impl Conn {
    /// Bytes that may be written into the peer's ring now.
    #[inline]
    fn window(&self) -> u64 {
        if self.tx.urgent_in_flight() {
            return 0;
        }
        let used = self.tx.sent.saturating_sub(self.tx.peer_cons);
        self.peer.map_or(0, |p| p.ring.len().saturating_sub(used))
    }

    /// Reports whether the peer's ring has no room.
    #[inline]
    #[must_use]
    pub fn is_peer_full(&self) -> bool {
        self.window() == 0
    }

    /// Bytes that the next message will carry, at most [`LONGEST_TX`].
    #[inline(always)]
    fn sendable(&self) -> u64 {
        let unsent = self.tx.unsent();
        if unsent == 0 {
            // Most often, where it was not the program that wrote.
            return 0;
        }
        let ended = self.life.sent.with(self.life.received);
        // After either side's close the peer's ring may belong to another connection.
        if self.tx.hold != Hold::None || ended.any(StateFlags::ANY_CLOSE) {
            return 0;
        }
        unsent.min(self.window()).min(u64::from(LONGEST_TX))
    }

    /// Reports whether [`Conn::take_tx`] would give a message.
    #[inline]
    #[must_use]
    pub fn wants_tx(&self) -> bool {
        !self.life.link_lost
            && self.peer.is_some()
            && self.state != ConnState::Init
            && (self.tx.due || self.sendable() > 0 || self.next_target().is_some())
    }

    /// [`Actions::TX_DUE`] if there is something to send.
    #[inline]
    pub(super) fn tx_due(&self) -> Actions {
        Actions::NONE.with_if(Actions::TX_DUE, self.wants_tx())
    }

    /// The next message, if one is due. The caller has a free slot on the link and will post it;
    /// if posting fails the link is lost ([`Conn::kill`]).
    #[inline]
    pub fn take_tx(&mut self, now: Instant) -> Option<Tx> {
        match self.take_plain(now) {
            Some(tx) => Some(tx),
            None => self.take_other(now),
        }
    }

    /// The next message, as [`Conn::take_tx`], where [`Conn::take_plain`] has given none.
    #[inline]
    pub fn take_other(&mut self, now: Instant) -> Option<Tx> {
        if !self.wants_tx() {
            return None;
        }
        if self.tx.hold == Hold::Auto {
            // A message goes in any case, and takes along what waited for another to complete.
            self.tx.hold = Hold::None;
        }
        let target = self.next_target();
        if let Some(offer) = target {
            // What is said of room is said of the new ring.
            self.take_target(offer);
        }
        let peer = self.peer?;
        let window = self.window();
        let unsent = self.tx.unsent();
        let len = match target {
            // The position from which on the bytes are in the new ring.
            Some(_) => 0,
            // At most the longest.
            None => self.sendable() as u32,
        };
        let plan = WritePlan::new(self.tx.ring, self.tx.sent, peer.ring, self.tx.sent, len);
        self.tx.sent = self.tx.sent.wrapping_add(u64::from(len));
        let urgent_left = self.tx.is_urgent_behind(self.tx.sent);
        let urgent_now = len > 0 && self.tx.is_urgent_before(self.tx.sent);
        let mut flags = ProdFlags::NONE
            .with_if(ProdFlags::WRITE_BLOCKED, unsent > 0 && unsent >= window)
            .with_if(ProdFlags::URGENT_PENDING, urgent_left || urgent_now)
            .with_if(ProdFlags::URGENT_PRESENT, urgent_now);

        let mut actions = Actions::NONE;
        if len > 0 {
            self.life.progress(now);
            actions |= self.settle_pending();
        }
        if self.tx.inquiry == Inquiry::Due {
            self.tx.inquire();
        }
        // An end that goes with the last bytes asks, too.
        flags = flags.with(self.tx.ask);
        if self.life.sent.any(StateFlags::ANY_END) {
            // After its end the stream has no more writes: nothing is left to send, or nobody reads it.
            flags = flags.without(ProdFlags::WRITE_BLOCKED);
        }
        if urgent_now {
            self.tx.urgent_probe = Some((now.after(URGENT_PROBE), URGENT_PROBE));
            actions |= Actions::TIMER;
        }
        // What was due is more than bytes: a cursor, or an end.
        let plain = peer.immediate
            && !self.tx.due
            && target.is_none()
            && flags == ProdFlags::NONE
            && self.life.sent == StateFlags::NONE
            && !self.rx.consumption().worth_saying();
        let immediate = Immediate::new(peer.token, len).filter(|_| plain);
        self.tx.due = false;
        self.tx.ask = ProdFlags::NONE;
        actions |= self.tail_changed(false);
        self.tx.last_flags = flags;
        self.tx.last_seq = self.tx.last_seq.wrapping_add(1);
        self.tx.in_flight = self.tx.in_flight.saturating_add(1);
        let signaled = self.is_end_wanted();
        let ticket = self.ticket(signaled);
        let notice = match immediate {
            Some(immediate) => Notice::Immediate(immediate),
            None => {
                self.rx.announced = self.rx.released();
                Notice::Cdc(Cdc {
                    seq: self.tx.last_seq,
                    token: peer.token,
                    prod: Cursor::at(self.tx.sent, self.tx.cursors),
                    cons: Cursor::at(self.rx.announced, self.rx.rings.cursors()),
                    prod_flags: flags,
                    state_flags: self.life.sent,
                    rings: RingNews {
                        into: self.tx.into,
                        offer: self.rx.rings.offered(),
                    },
                    unread: match self.life.keeps_tcp {
                        true => {
                            let ended = self.life.received.any(StateFlags::ANY_END);
                            self.rx.told_unread(ended)
                        }
                        false => 0,
                    },
                })
            }
        };
        Some(Tx {
            plan,
            place: peer.place,
            notice,
            ticket,
            signaled,
            actions,
        })
    }

    /// The next message, as [`Conn::take_tx`], if it says nothing but how many bytes it brings, as most do. It is an
    /// immediate, and brings all there is.
    #[inline(always)]
    pub fn take_plain(&mut self, now: Instant) -> Option<Tx> {
        let peer = self.peer?;
        let t = &self.tx;
        let ends = self.life.sent.with(self.life.received) != StateFlags::NONE
            || self.life.pending.is_some()
            || self.life.link_lost;
        if !peer.immediate
            || t.due
            || t.inquiry == Inquiry::Due
            || t.hold != Hold::None
            || t.urgent_end.is_some()
            || t.offer.is_some()
            || ends
            || self.state != ConnState::Active
        {
            return None;
        }
        let used = t.sent.saturating_sub(t.peer_cons);
        let window = peer.ring.len().saturating_sub(used);
        let unsent = t.unsent();
        // A CDC message is needed where the bytes fill the window, since the peer must be told so
        // (WRITE_BLOCKED), and where the consumer cursor that the peer knows is far behind.
        if unsent >= window
            || unsent > u64::from(LONGEST_TX)
            || self.rx.consumption().worth_saying()
        {
            return None;
        }
        // At most the longest.
        let len = unsent as u32;
        let number = Immediate::new(peer.token, len)?;
        let plan = WritePlan::new(t.ring, t.sent, peer.ring, t.sent, len);
        let t = &mut self.tx;
        t.sent = t.prepared;
        t.ask = ProdFlags::NONE;
        t.last_flags = ProdFlags::NONE;
        t.last_seq = t.last_seq.wrapping_add(1);
        t.in_flight = t.in_flight.saturating_add(1);
        let (t, l) = (&self.tx, &self.life);
        let signaled = t.is_streaming() || t.starved || l.released || l.killed;
        let ticket = self.ticket(signaled);
        self.life.progress(now);
        Some(Tx {
            plan,
            place: peer.place,
            notice: Notice::Immediate(number),
            ticket,
            signaled,
            actions: Actions::NONE,
        })
    }

    /// Names the message just taken.
    #[inline]
    fn ticket(&mut self, signaled: bool) -> Ticket {
        let t = &mut self.tx;
        t.in_a_row = true;
        t.told = t.told.saturating_add(u16::from(signaled));
        Ticket {
            upto: t.sent,
            told: signaled,
        }
    }

    /// Reports whether the end of the message just taken is wanted, or will be soon: something waits for it, the ring
    /// gets full, or the program streams, so that its next bytes are held back until then ([`autocork`]). A program that
    /// sends and then waits for an answer needs none.
    ///
    /// [`autocork`]: crate::ring::autocork
    #[inline]
    fn is_end_wanted(&self) -> bool {
        self.tx.is_streaming() || self.awaits_completion()
    }

    /// Reports whether something waits for the completion of a message that is outstanding: a writer or poller that has
    /// found no room, bytes that are held back until then, or an end. Otherwise [`Conn::on_tx_done`] may come late.
    #[inline]
    #[must_use]
    pub fn awaits_completion(&self) -> bool {
        let t = &self.tx;
        let l = &self.life;
        let ends = l.sent.with(l.received) != StateFlags::NONE || l.pending.is_some();
        t.in_flight > 0 && (t.starved || t.hold == Hold::Auto || ends || l.killed || l.released)
    }

    /// A message has completed; its data is in the peer's ring, its part of the send ring free.
    #[inline]
    pub fn on_tx_done(&mut self, ticket: Ticket, now: Instant) -> Actions {
        let old = self.tx.completed;
        self.tx.in_flight = self.tx.in_flight.saturating_sub(1);
        self.tx.told = self.tx.told.saturating_sub(u16::from(ticket.told));
        if !self.tx.frozen {
            self.tx.completed = old.max(ticket.upto);
        }
        if self.tx.told == 0 && self.tx.hold == Hold::Auto {
            self.tx.hold = Hold::None;
        }
        let moved = self.tx.completed != old;
        if moved {
            self.life.progress(now);
        }
        self.tx_due() | self.wake_writer() | self.settle_end()
    }

    /// As with TCP a writer is woken only if it has found no room, and only when a third of the ring is free.
    #[inline]
    fn wake_writer(&mut self) -> Actions {
        let t = &mut self.tx;
        let wake = t.starved && t.urgent_end.is_none() && t.has_much_room();
        t.starved &= !wake;
        Actions::NONE.with_if(Actions::WAKE_WRITER, wake)
    }

    /// The peer says how many bytes it has beyond those that its program has read, and one more for the end. One that says
    /// too much has lied to itself: its record will ask for bytes that are gone.
    pub(super) fn peer_has(&mut self, unread: u32) -> Actions {
        let ended = self.life.sent.any(StateFlags::ANY_END);
        let t = &mut self.tx;
        let has = t.peer_cons.saturating_add(u64::from(unread));
        let has = has.min(t.sent.saturating_add(u64::from(ended)));
        if has > t.seen {
            t.seen = has;
            t.inquiry = Inquiry::None;
        }
        self.wake_writer()
    }

    /// Asks the peer up to where it has the bytes, if the send ring is kept only since it has not said so.
    pub fn ask_for_seen(&mut self) -> Actions {
        let t = &self.tx;
        if !t.is_quiet() || t.seen >= t.prepared || t.inquiry != Inquiry::None {
            return Actions::NONE;
        }
        self.tx.ask_for_seen();
        self.tx_due()
    }

    /// A message has failed or was flushed. Its link is of no more use and [`Conn::kill`] follows
    /// or has been called; every message handed out must be reported here or as done, because
    /// the last report is what lets a killed connection end.
    pub fn on_tx_failed(&mut self) -> Actions {
        self.life.link_lost = true;
        self.life.order.lost();
        self.tx.in_flight = self.tx.in_flight.saturating_sub(1);
        self.settle_end()
    }

    /// The peer has not said that it consumed the urgent byte, without which nothing more may be
    /// sent. Some peers forget to say so when reading and arrival coincide: ask.
    pub(super) fn probe_urgent(&mut self, now: Instant) -> Actions {
        let Some((at, wait)) = self.tx.urgent_probe else {
            return Actions::NONE;
        };
        if !now.reached(at) {
            return Actions::NONE;
        }
        if self.tx.urgent_end.is_none() || self.life.killed {
            self.tx.urgent_probe = None;
            return Actions::NONE;
        }
        let wait = Span(wait.0.saturating_mul(2)).min(URGENT_PROBE_MAX);
        self.tx.urgent_probe = Some((now.after(wait), wait));
        self.tx.due = true;
        self.tx.ask = self.tx.ask.with(ProdFlags::UPDATE_REQUESTED);
        Actions::TIMER | self.tx_due()
    }
}
