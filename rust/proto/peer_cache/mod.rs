// SPDX-License-Identifier: GPL-2.0

//! Peers that do not bear SMC's TCP option, or the path to them does not; and those to which RDMA does not get through.
//!
//! A peer that echoes options, does not answer SYNs that have ours or resets them, or keeps declining, is left alone
//! for a while: connections to it send no option. What was seen without a doubt counts for the whole time that
//! the host's administrator has set, what may have had another cause for a 64th of it. Each time that it
//! turns out to be so again doubles the time, up to a day. A connection on which the option was borne forgives all.
//!
//! Silence and resets are remembered of a port: a queue of connections that is full and a service that is not there
//! yet look the same, and who runs the service decides about that. When a second port does the same within the time
//! that the administrator has set, it is the address. What programs give up early never counts for more than its port.
//!
//! Where a link is not confirmed, or breaks soon after, RDMA may be dropped on the way, or its large packets alone. That
//! is remembered of the address, by both ends: connections to it send no option, and a first contact that it begins is
//! declined. One failure may have had another cause. A link that is confirmed ends it, but one more failure soon after
//! that counts as one in a row.
//!
//! When the time is over one connection tries, while others still go without: so a peer that is still bad
//! slows down one connection. When the host's routes have changed since, the way may be another: then one may try
//! after a 64th of the time, as addresses come and go all the time where there are containers.

mod entry;

pub use entry::{Cause, Entry, Event, View, MANY, SLOW, YOUNG};

use crate::slots::{self, Key, Slots};

/// Whom a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// An IPv6 address, or an IPv4 one mapped into them.
    pub address: [u8; 16],
    /// One of its ports; 0 for all of them.
    pub port: u16,
}

impl Peer {
    /// Returns the whole address.
    pub const fn host(self) -> Self {
        Self { port: 0, ..self }
    }
}

impl Key for Peer {
    fn number(&self) -> u128 {
        u128::from_le_bytes(self.address).rotate_left(29) ^ u128::from(self.port)
    }
}

/// A place of the table.
pub type Slot = slots::Slot<Peer, Entry>;

/// The records.
#[derive(Debug)]
pub struct PeerCache<'a>(Slots<'a, Peer, Entry>);

impl<'a> PeerCache<'a> {
    /// Uses this table, with what is in it.
    pub fn new(table: Slots<'a, Peer, Entry>) -> Self {
        Self(table)
    }

    /// Returns the cause for which a connection to `peer` that begins now sends no option, if it does not.
    pub fn keeps_off(&mut self, peer: &Peer, view: &View) -> Option<Cause> {
        let mut of = |whom: Peer| self.0.find(&whom)?.keeps_off(view);
        of(*peer).or_else(|| of(peer.host()))
    }

    /// Reports whether no link to `peer` is to be begun now, for one of its own connections.
    pub fn keeps_links_off(&mut self, peer: &Peer, view: &View) -> bool {
        let found = self.0.find(&peer.host());
        found.is_some_and(|entry| {
            entry.cause() == Some(Cause::Link) && entry.keeps_off(view).is_some()
        })
    }

    /// Takes note of what has become of a connection to `peer`.
    pub fn note(&mut self, peer: &Peer, event: Event, view: &View) {
        if event == Event::LinkConfirmed {
            if let Some(entry) = self.0.find(&peer.host()) {
                entry.is_confirmed(view);
            }
            return;
        }
        if event.forgives() {
            for whom in [*peer, peer.host()] {
                self.forgive(&whom, event);
            }
            return;
        }
        let whom = match event.is_of_a_port() {
            true => *peer,
            false => peer.host(),
        };
        if event.weight().is_none() {
            return;
        }
        let found = self.record(&whom, view).and_then(|e| e.note(event, view));
        if let (Some(cause), true) = (found, event.is_of_a_port() && event != Event::Abandoned) {
            if let Some(entry) = self.record(&peer.host(), view) {
                entry.confirm(peer.port, cause, view);
            }
        }
    }

    fn record(&mut self, whom: &Peer, view: &View) -> Option<&mut Entry> {
        self.0
            .find_or_put(whom, || Entry::new(view), |entry| entry.worth(view))
    }

    fn forgive(&mut self, whom: &Peer, event: Event) {
        match self.0.find(whom) {
            Some(entry) if entry.is_forgiven(event) => {
                self.0.take(whom);
            }
            Some(entry) => entry.is_answered(),
            None => (),
        }
    }

    /// Forgets all of an address. Returns whether anything of it was remembered.
    pub fn forget(&mut self, address: &[u8; 16]) -> bool {
        self.0.retain(|peer| peer.address != *address)
    }
}
