// SPDX-License-Identifier: GPL-2.0

//! Receive rings that move.
//!
//! Where both ends have agreed on it ([`Extensions::MOVES`]) a receiver may offer another ring in place of its own, a
//! larger one when its peer is kept waiting for room again and again, a smaller one when nothing comes any more. The
//! offer is in its CDC messages. The sender takes it in a message without bytes: what it writes from that position on
//! goes into the new ring. Messages come in order, so the receiver knows of each byte where it is, and gives the old ring
//! back when it has read the last one in it.
//!
//! Positions go on, and so do cursors: they keep the form that the size of the first ring gives them.
//!
//! [`Extensions::MOVES`]: crate::wire::clc::Extensions::MOVES

use super::{
    Actions,
    Conn,
    ConnState,
    ProtoError, //
};
use crate::cursor::{
    Pos,
    RingSize, //
};
use crate::wire::bufsize::BufSize;
use crate::wire::cdc::{
    Offer,
    ProdFlags,
    RingNews,
    StateFlags, //
};
use crate::wire::ids::Rkey;

/// Rings' worth of bytes that the program has to read while the peer waits for room, before a larger ring is due.
const PATIENCE: u64 = 4;

/// Where the peer's ring begins, as its device knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Address of the first byte.
    pub addr: u64,
    /// Memory key.
    pub rkey: Rkey,
}

/// A ring that has been left, with unread bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    ring: RingSize,
    /// Where the bytes in it end.
    until: Pos,
}

/// Our receive rings.
#[derive(Debug)]
pub(super) struct Rings {
    /// The ring into which the peer writes.
    ring: RingSize,
    /// The first one: its size is the form of cursors.
    first: RingSize,
    /// The largest to which it may grow.
    most: RingSize,
    /// Number of rings before this one.
    number: u8,
    left: Option<Left>,
    offered: Option<Offer>,
    /// Bytes read while the peer was waiting for room.
    pressed: u64,
    /// A larger ring is wanted.
    due: bool,
}

impl Rings {
    pub(super) const fn new(first: RingSize, most: RingSize) -> Rings {
        Rings {
            ring: first,
            first,
            most,
            number: 0,
            left: None,
            offered: None,
            pressed: 0,
            due: false,
        }
    }

    /// The ring into which the peer writes.
    #[inline]
    pub(super) const fn current(&self) -> RingSize {
        self.ring
    }

    /// The size that gives cursors their form.
    #[inline]
    pub(super) const fn cursors(&self) -> RingSize {
        self.first
    }

    /// The ring in which the byte at `pos` is, its number, and how many of the bytes from there on, of `len`, are in it.
    #[inline]
    pub(super) fn at(&self, pos: Pos, len: u32) -> (RingSize, u8, u32) {
        match self.left {
            Some(left) if pos < left.until => {
                let there = left.until.wrapping_sub(pos).min(u64::from(len));
                // At most `len`.
                (left.ring, self.number.wrapping_sub(1), there as u32)
            }
            _ => (self.ring, self.number, len),
        }
    }

    /// What a CDC message says of the ring offered.
    pub(super) fn offered(&self) -> Option<Offer> {
        self.offered
    }

    /// Nothing is under way by which rings change.
    #[inline]
    fn is_settled(&self) -> bool {
        self.left.is_none() && self.offered.is_none() && self.number < u8::MAX
    }

    /// The ring that was left has been read up to `cons`. Whether it is not needed any more.
    #[inline]
    pub(super) fn read_to(&mut self, cons: Pos) -> bool {
        let done = self.left.is_some_and(|left| cons >= left.until);
        if done {
            self.left = None;
        }
        done
    }
}

/// What a message of the peer says of rings, once it is found to be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Judged {
    /// It writes into the ring that we have offered.
    moves: bool,
    offer: Option<Offer>,
}

impl Judged {
    /// Nothing.
    const NOTHING: Judged = Judged {
        moves: false,
        offer: None,
    };
}

impl Conn {
    /// Whether rings may move, and the connection is open both ways.
    fn may_move(&self) -> bool {
        let ends = self.life.sent.with(self.life.received);
        self.peer.is_some_and(|peer| peer.moves)
            && self.state == ConnState::Active
            && ends == StateFlags::NONE
            && !self.life.killed
            && !self.life.link_lost
    }

    /// The program has read `n` bytes: [`Actions::RING_LEFT`] if those were the last ones in a ring that was left,
    /// [`Actions::GROW`] if its peer has waited for room during many of them.
    #[inline]
    pub(super) fn note_read(&mut self, n: u32) -> Actions {
        if self.rx.rings.left.is_none() && !self.rx.peer_flags.has(ProdFlags::WRITE_BLOCKED) {
            // Most often.
            return Actions::NONE;
        }
        let left = self.rx.rings.read_to(self.rx.cons);
        self.note_pressure(n).with_if(Actions::RING_LEFT, left)
    }

    fn note_pressure(&mut self, n: u32) -> Actions {
        if !self.rx.peer_flags.has(ProdFlags::WRITE_BLOCKED) {
            return Actions::NONE;
        }
        let rings = &mut self.rx.rings;
        rings.pressed = rings.pressed.saturating_add(u64::from(n));
        if rings.pressed < rings.ring.len().saturating_mul(PATIENCE) {
            return Actions::NONE;
        }
        // Who finds no memory is asked again after as many bytes.
        rings.pressed = 0;
        rings.due = true;
        Actions::NONE.with_if(Actions::GROW, self.wanted_ring().is_some())
    }

    /// The size of the ring that is to take the place of the present one, after [`Actions::GROW`].
    #[must_use]
    pub fn wanted_ring(&self) -> Option<RingSize> {
        let rings = &self.rx.rings;
        if !rings.due || !rings.is_settled() || !self.may_move() {
            return None;
        }
        rings.ring.grown(rings.most)
    }

    /// Reports whether the receive ring has grown.
    #[must_use]
    pub fn has_large_ring(&self) -> bool {
        let rings = &self.rx.rings;
        rings.ring.bytes() > rings.first.bytes()
    }

    /// Returns the number of the receive ring, if no other one is offered or has unread bytes.
    #[must_use]
    pub fn only_ring(&self) -> Option<u8> {
        let rings = &self.rx.rings;
        let only = rings.left.is_none() && rings.offered.is_none();
        only.then_some(rings.number)
    }

    /// Returns the number of bytes ever received, and the size of the first ring, if the present one is larger and
    /// nothing is in it: where the number stays the same, the first size is enough.
    #[must_use]
    pub fn shrinkable(&self) -> Option<(Pos, RingSize)> {
        let rings = &self.rx.rings;
        let idle = self.rx.unread() == 0 && rings.is_settled() && self.may_move();
        (idle && self.has_large_ring()).then_some((self.rx.prod, rings.first))
    }

    /// Offers the peer a ring of `size`, which begins at `place`. Returns its number, under which the caller has to find
    /// it from now on; `None` if it is not to be offered, because rings move already or the connection has ended.
    pub fn offer_ring(&mut self, size: RingSize, place: Place) -> Option<(u8, Actions)> {
        let least = RingSize::MIN_WIRE.bytes();
        let can_be_said = size.bytes() >= least && self.rx.rings.first.tells(size);
        if !can_be_said || !self.rx.rings.is_settled() || !self.may_move() {
            return None;
        }
        let code = size.code()?;
        let rings = &mut self.rx.rings;
        let number = rings.number.wrapping_add(1);
        rings.due = false;
        rings.offered = Some(Offer {
            number,
            size: BufSize::from_code(code),
            addr: place.addr,
            rkey: place.rkey,
        });
        self.tx.due = true;
        Some((number, self.tx_due()))
    }

    /// Judges what a message with `produced` bytes says of rings.
    #[inline]
    pub(super) fn judge_rings(&self, news: RingNews, produced: u64) -> Result<Judged, ProtoError> {
        if news.offer.is_none() && news.into == self.rx.rings.number {
            // Nearly always.
            return Ok(Judged::NOTHING);
        }
        self.judge_news(news, produced)
    }

    #[cold]
    fn judge_news(&self, news: RingNews, produced: u64) -> Result<Judged, ProtoError> {
        if !self.peer.is_some_and(|peer| peer.moves) {
            return Ok(Judged::NOTHING);
        }
        let rings = &self.rx.rings;
        let moves = news.into != rings.number;
        if moves {
            let unread = self.rx.prod.saturating_sub(self.rx.announced);
            let offered = rings.offered.filter(|offer| offer.number == news.into);
            let fits = offered.is_some_and(|offer| unread <= u64::from(offer.size.bytes()));
            if produced > 0 || !fits {
                return Err(ProtoError::Ring);
            }
        }
        // An offer is in each message until the peer has seen that we have taken it.
        let offer = news.offer.filter(|offer| offer.number != self.tx.into);
        let next = self.tx.into.checked_add(1);
        let is_right = |offer: &Offer| {
            let size = RingSize::from_code(offer.size.code());
            Some(offer.number) == next && size.is_some_and(|size| self.tx.cursors.tells(size))
        };
        if offer.is_some_and(|offer| !is_right(&offer)) {
            return Err(ProtoError::Ring);
        }
        Ok(Judged { moves, offer })
    }

    /// Takes over what was judged. [`Actions::RING_LEFT`] if our old ring is not needed any more.
    #[inline]
    pub(super) fn take_rings(&mut self, judged: Judged) -> Actions {
        match judged == Judged::NOTHING {
            true => Actions::NONE,
            false => self.take_news(judged),
        }
    }

    #[cold]
    fn take_news(&mut self, judged: Judged) -> Actions {
        if judged.offer.is_some() {
            self.tx.offer = judged.offer;
        }
        let offered = self.rx.rings.offered.filter(|_| judged.moves);
        let Some(size) = offered.and_then(|offer| RingSize::from_code(offer.size.code())) else {
            return Actions::NONE;
        };
        let rings = &mut self.rx.rings;
        rings.offered = None;
        rings.left = Some(Left {
            ring: rings.ring,
            until: self.rx.prod,
        });
        rings.ring = size;
        rings.number = rings.number.wrapping_add(1);
        let left = rings.read_to(self.rx.cons);
        if self.rx.update_due() {
            // What it need not hear of while the ring was larger may be all the room of a smaller one.
            self.want_update();
        }
        Actions::NONE.with_if(Actions::RING_LEFT, left)
    }

    /// The peer's ring that the next message is to take, if one is offered and it may be taken: an urgent byte is found
    /// by the ring in which it is, and a smaller ring has to hold what the peer has not read.
    #[inline]
    pub(super) fn next_target(&self) -> Option<Offer> {
        let offer = self.tx.offer?;
        let unread = self.tx.sent.saturating_sub(self.tx.peer_cons);
        let fits = unread <= u64::from(offer.size.bytes());
        (fits && self.tx.urgent_end.is_none() && self.may_move()).then_some(offer)
    }

    /// Writes into the ring of `offer` from now on.
    pub(super) fn take_target(&mut self, offer: Offer) {
        self.tx.offer = None;
        self.tx.into = offer.number;
        if let (Some(peer), Some(ring)) = (&mut self.peer, RingSize::from_code(offer.size.code())) {
            peer.ring = ring;
            peer.place = Place {
                addr: offer.addr,
                rkey: offer.rkey,
            };
        }
    }
}
