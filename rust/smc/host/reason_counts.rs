// SPDX-License-Identifier: GPL-2.0

//! Counts by reason: of each role, and of peers in a table of fixed size, in which a new peer takes the place of the
//! one not seen for longest.

use crate::host::fallback::Role;
use kapi::{net::sockaddr::SockAddr, sys::word::Tally};
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed}, //
};

/// A reason of a role and its count; slots are taken from the first on.
struct Slot {
    /// Code of the reason; 0 while the slot is free.
    code: Atomic<u32>,
    count: Tally,
}

/// Counts by role and reason.
pub(crate) struct Reasons {
    /// As many slots for clients as for servers, in this order.
    slots: KVec<Slot>,
}

impl Reasons {
    /// Creates counts of zero, with room for `each` reasons of either role.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(each: usize) -> Result<Self> {
        let all = each.saturating_mul(2);
        let mut slots = KVec::with_capacity(all, GFP_KERNEL)?;
        for _ in 0..all {
            slots.push(
                Slot {
                    code: Atomic::new(0),
                    count: Tally::new(0),
                },
                GFP_KERNEL,
            )?;
        }
        Ok(Self { slots })
    }

    /// Counts a reason. One for which there is no room is not counted.
    pub(crate) fn count(&self, role: Role, code: u32) {
        for slot in self.of(role) {
            let mut found = slot.code.load(Relaxed);
            if found == 0 {
                found = match slot.code.cmpxchg(0, code, Relaxed) {
                    Ok(_) => code,
                    Err(other) => other,
                };
            }
            if found == code {
                slot.count.add(1);
                break;
            }
        }
    }

    /// Returns reason number `at` of a role, with its count; `None` beyond the last.
    pub(crate) fn at(&self, role: Role, at: usize) -> Option<(u32, u64)> {
        let slot = self.of(role).get(at)?;
        let code = slot.code.load(Relaxed);
        (code != 0).then(|| (code, slot.count.get()))
    }

    fn of(&self, role: Role) -> &[Slot] {
        let each = self.slots.len() / 2;
        let (client, server) = self.slots.split_at_checked(each).unwrap_or((&[], &[]));
        match role {
            Role::Client => client,
            Role::Server => server,
        }
    }
}

/// One line of the table of peers.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    /// Its address.
    pub(crate) addr: SockAddr,
    /// Code of the reason.
    pub(crate) code: u32,
    /// How often.
    pub(crate) count: u64,
    /// Value of the table's clock when it was counted last.
    pub(crate) seen: u64,
}

/// Counts by peer and reason.
pub(crate) struct Peers {
    /// Pairs counted so far.
    table: KVec<Peer>,
    /// Most of them.
    room: usize,
    clock: u64,
    /// Index of the pair counted last.
    last: usize,
}

impl Peers {
    /// Creates a table of `room` pairs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(room: usize) -> Result<Self> {
        Ok(Self {
            table: KVec::with_capacity(room, GFP_KERNEL)?,
            room,
            clock: 0,
            last: 0,
        })
    }

    /// Counts a reason of a peer.
    pub(crate) fn count(&mut self, addr: SockAddr, code: u32) {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let is =
            |peer: &Peer| peer.addr.ip == addr.ip && peer.code == code && peer.addr.v6 == addr.v6;
        let found = match self.table.get(self.last) {
            Some(peer) if is(peer) => Some(self.last),
            _ => self.table.iter().position(is),
        };
        let at = match found {
            Some(at) => at,
            None => {
                let new = Peer {
                    addr,
                    code,
                    count: 0,
                    seen: clock,
                };
                if self.table.len() < self.room && self.table.push_within_capacity(new).is_ok() {
                    self.table.len().wrapping_sub(1)
                } else {
                    let oldest = self
                        .table
                        .iter_mut()
                        .enumerate()
                        .min_by_key(|(_, p)| p.seen);
                    let Some((at, peer)) = oldest else {
                        return;
                    };
                    *peer = new;
                    at
                }
            }
        };
        self.last = at;
        if let Some(peer) = self.table.get_mut(at) {
            peer.count = peer.count.wrapping_add(1);
            peer.seen = clock;
        }
    }

    /// Returns pair number `at`; `None` beyond the last.
    pub(crate) fn at(&self, at: usize) -> Option<Peer> {
        self.table.get(at).copied()
    }
}
