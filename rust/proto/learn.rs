// SPDX-License-Identifier: GPL-2.0

//! Services whose connections do not pay: they live too briefly, or move too little, for what it costs to
//! make them SMC's.
//!
//! A service has credits. A connection that has not paid takes one, one that has gives two back. Who has none left is not
//! offered SMC for a pause; after that it gets half as many as the last time, and a pause twice as
//! long if these are gone, too. With all credits back it is as new.
//!
//! A connection costs about as much more to set up over SMC as TCP needs for some 300 KiB, or sixteen round trips. So it has
//! paid with [`MUCH`] bytes, or if it was used for [`LONG`] and more than [`LITTLE`] bytes went over it.

use crate::{
    slots::{self, Key, Slots},
    time::{Instant, Span},
};

/// Bytes, both ways together, with which a connection has paid.
pub const MUCH: u64 = 256 * 1024;
/// Time after which it has paid with fewer bytes.
pub const LONG: Span = Span::from_secs(10);
/// As many bytes at least.
pub const LITTLE: u64 = 16 * 1024;
/// Credits of a new service, and most that it may have.
pub const CREDITS: u8 = 16;
/// Most times that a pause doubles: an hour from a minute.
const DOUBLED: u8 = 6;

/// A service, to which connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A port of this host that listens.
    Port(u16),
    /// A port of a peer.
    Peer([u8; 16], u16),
}

impl Key for Service {
    fn number(&self) -> u128 {
        match self {
            Service::Port(port) => u128::from(*port) | (1 << 127),
            Service::Peer(address, port) => {
                u128::from_le_bytes(*address).rotate_left(29) ^ u128::from(*port)
            }
        }
    }
}

/// A connection that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Bytes that it has moved, both ways together.
    pub bytes: u64,
    /// Its age.
    pub lived: Span,
}

impl Ended {
    /// Reports whether it was worth its set-up.
    pub fn pays(&self) -> bool {
        self.bytes >= MUCH || self.bytes >= LITTLE && self.lived >= LONG
    }
}

/// The record of a service.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    credits: u8,
    /// Credits after the next pause.
    next: u8,
    /// Number of times that the next pause is doubled.
    level: u8,
    /// The end of the pause, if there is one.
    until: Option<Instant>,
    paid: u32,
    unpaid: u32,
}

impl Record {
    const fn new() -> Self {
        Self {
            credits: CREDITS,
            next: CREDITS / 2,
            level: 0,
            until: None,
            paid: 0,
            unpaid: 0,
        }
    }

    /// Credits that are left.
    pub fn credits(&self) -> u8 {
        self.credits
    }

    /// Connections that have paid, and those that have not, since it is known.
    pub fn counts(&self) -> (u32, u32) {
        (self.paid, self.unpaid)
    }

    /// Returns the time until the service is offered SMC again; zero if it is, or will be at the next call of `offers`.
    pub fn left(&self, now: Instant) -> Span {
        self.until.map_or(Span::ZERO, |until| until.since(now))
    }

    /// Reports whether the service is in a pause.
    pub fn pauses(&self) -> bool {
        self.until.is_some()
    }

    fn offers(&mut self, now: Instant) -> bool {
        match self.until {
            Some(until) if !now.reached(until) => false,
            Some(_) => {
                self.until = None;
                self.credits = self.next;
                self.next = (self.next / 2).max(1);
                true
            }
            None => true,
        }
    }

    fn ended(&mut self, ended: &Ended, now: Instant, pause: Span) {
        if ended.pays() {
            self.paid = self.paid.saturating_add(1);
            if self.until.is_some() {
                // One that has begun before the pause: it takes back what the pause cost.
                self.next = self.next.saturating_mul(2).min(CREDITS);
                self.level = self.level.saturating_sub(1);
                return;
            }
            self.credits = self.credits.saturating_add(2).min(CREDITS);
            if self.credits == CREDITS {
                self.next = CREDITS / 2;
                self.level = 0;
            }
            return;
        }
        self.unpaid = self.unpaid.saturating_add(1);
        if self.until.is_some() {
            return;
        }
        self.credits = self.credits.saturating_sub(1);
        if self.credits == 0 {
            let factor = 1u64.checked_shl(u32::from(self.level)).unwrap_or(1);
            self.until = Some(now.after(Span(pause.0.saturating_mul(factor))));
            self.level = self.level.saturating_add(1).min(DOUBLED);
        }
    }
}

/// A place of the table.
pub type Slot = slots::Slot<Service, Record>;

/// The records of services.
#[derive(Debug)]
pub struct Learned<'a>(Slots<'a, Service, Record>);

impl<'a> Learned<'a> {
    /// Uses this table, with what is in it.
    pub fn new(table: Slots<'a, Service, Record>) -> Self {
        Self(table)
    }

    /// Returns whether connections to the service are to be offered SMC. The service is watched from now on,
    /// if the table has a free place or one of a service that is in no pause.
    pub fn offers(&mut self, service: &Service, now: Instant) -> bool {
        let worth = |record: &Record| record.left(now).0;
        let found = self.0.find_or_put(service, Record::new, worth);
        found.is_none_or(|record| record.offers(now))
    }

    /// Takes note of the end of a connection that was SMC's. Services that are not watched are left out.
    pub fn ended(&mut self, service: &Service, ended: &Ended, now: Instant, pause: Span) {
        if let Some(record) = self.0.find(service) {
            record.ended(ended, now, pause);
        }
    }

    /// Forgets a service. Returns whether it was watched.
    pub fn forget(&mut self, service: &Service) -> bool {
        self.0.take(service).is_some()
    }
}
