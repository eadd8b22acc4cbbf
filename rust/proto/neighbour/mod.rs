// SPDX-License-Identifier: GPL-2.0

//! Peers that do not bear SMC's TCP option, or the path to them does not.
//!
//! A peer that echoes options, does not answer SYNs that have ours or resets them, or keeps declining, is left alone
//! for a while: connections to it send no option. What was seen without a doubt counts for the whole time that
//! the host's administrator has set, what may have had another cause for a 64th of it. Each time that it
//! turns out to be so again doubles the time, up to a day. A connection on which the option was borne forgives all.
//!
//! When the time is over one connection tries, while others still go without: so a peer that is still bad
//! slows down one connection. When the host's routes have changed since, the way may be another: then one may try
//! after a 64th of the time, as addresses come and go all the time where there are containers.

mod entry;

pub use entry::{Cause, Entry, Event, View, MANY};

use crate::slots::{self, Slots};

/// A place of the table.
pub type Slot = slots::Slot<[u8; 16], Entry>;

/// The records by address: IPv6 ones, and IPv4 ones mapped into them.
#[derive(Debug)]
pub struct Neighbours<'a>(Slots<'a, [u8; 16], Entry>);

impl<'a> Neighbours<'a> {
    /// Uses this table, with what is in it.
    pub fn new(table: Slots<'a, [u8; 16], Entry>) -> Self {
        Self(table)
    }

    /// Returns the cause for which a connection to `address` that begins now sends no option, if it does not.
    pub fn keeps_off(&mut self, address: &[u8; 16], view: &View) -> Option<Cause> {
        self.0.find(address)?.keeps_off(view)
    }

    /// Takes note of what has become of a connection to `address`.
    pub fn note(&mut self, address: &[u8; 16], event: Event, view: &View) {
        if event.forgives() {
            let forgiven = self
                .0
                .find(address)
                .is_some_and(|entry| entry.is_forgiven(event));
            if forgiven {
                self.0.take(address);
            }
            return;
        }
        if event.weight().is_none() {
            return;
        }
        let found = self
            .0
            .find_or_put(address, || Entry::new(view), |entry| entry.worth(view));
        if let Some(entry) = found {
            entry.note(event, view);
        }
    }

    /// Forgets a peer. Returns whether it was remembered.
    pub fn forget(&mut self, address: &[u8; 16]) -> bool {
        self.0.take(address).is_some()
    }
}
