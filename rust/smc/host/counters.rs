// SPDX-License-Identifier: GPL-2.0

//! Counters of a network namespace, and `/proc/net/smc_fallback`, which shows them.
//!
//! Counting happens once for each connection and allocates nothing: totals and reasons are atomics,
//! peers are in a table of fixed size in which a new peer replaces the one not seen for longest.

use crate::host::{
    fallback::{Fallback, Role},
    stats::{Stat, Stats},
};
use kapi::net::sockaddr::SockAddr;
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{Atomic, Relaxed},
        SpinLock, //
    }, //
};

/// Number of reasons counted for each role; C's `SMC_MAX_FBACK_RSN_CNT`.
pub(crate) const REASONS: usize = 36;

/// Number of pairs of peer and reason counted.
const PEERS: usize = 64;

/// A reason of a role and its count; slots are taken from the first on.
struct ReasonSlot {
    /// Code of the reason; 0 while the slot is free.
    code: Atomic<u32>,
    count: Atomic<u64>,
}

/// One line of the table of peers.
#[derive(Clone, Copy)]
struct Peer {
    addr: SockAddr,
    code: u32,
    count: u64,
    /// Value of the table's clock when it was counted last.
    seen: u64,
}

struct Peers {
    /// Peers counted so far; the capacity is [`PEERS`].
    table: KVec<Peer>,
    clock: u64,
    /// Index of the peer counted last.
    last: usize,
}

impl Peers {
    fn count(&mut self, addr: SockAddr, code: u32) {
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
                if self.table.len() < PEERS && self.table.push_within_capacity(new).is_ok() {
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
}

/// The counters of a namespace.
#[pin_data]
pub(crate) struct Counters {
    /// Statistics that netlink shows.
    pub(crate) stats: Stats,
    errors: [Atomic<u64>; 2],
    fallback: [Atomic<u64>; 2],
    refused: Atomic<u64>,
    /// Closed connections whose data the peer did not take in time.
    drains_lost: Atomic<u64>,
    /// Connections that began as TCP, and of these the ends that have left it, for clients and servers.
    tcp_first: [Atomic<u64>; 2],
    moved: [Atomic<u64>; 2],
    /// Bytes that TCP has sent and received for sockets that were closed.
    tcp_bytes: [Atomic<u64>; 2],
    /// [`REASONS`] slots for clients, then as many for servers.
    reasons: KVec<ReasonSlot>,
    #[pin]
    peers: SpinLock<Peers>,
}

impl Counters {
    /// Counts a connection that begins as TCP.
    pub(crate) fn began_as_tcp(&self, role: Role) {
        self.tcp_first[index(role)].fetch_add(1, Relaxed);
    }

    /// Counts an end of one that writes into memory now.
    pub(crate) fn moved(&self, role: Role) {
        self.moved[index(role)].fetch_add(1, Relaxed);
    }

    /// Creates counters of zero.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            stats: Stats::new(),
            tcp_first: [Atomic::new(0), Atomic::new(0)],
            moved: [Atomic::new(0), Atomic::new(0)],
            tcp_bytes: [Atomic::new(0), Atomic::new(0)],
            errors: [Atomic::new(0), Atomic::new(0)],
            fallback: [Atomic::new(0), Atomic::new(0)],
            refused: Atomic::new(0),
            drains_lost: Atomic::new(0),
            reasons: {
                let mut slots = KVec::with_capacity(2 * REASONS, GFP_KERNEL)?;
                for _ in 0..2 * REASONS {
                    slots.push(
                        ReasonSlot {
                            code: Atomic::new(0),
                            count: Atomic::new(0),
                        },
                        GFP_KERNEL,
                    )?;
                }
                slots
            },
            peers <- new_spinlock!(
                Peers {
                    table: KVec::with_capacity(PEERS, GFP_KERNEL)?,
                    clock: 0,
                    last: 0,
                },
                "rsmc::Counters::peers"
            ),
        }? Error)
    }

    /// Counts a connection that became SMC.
    pub(crate) fn connected(&self, role: Role) {
        self.stats.add(connections(role), 1);
    }

    /// Counts a connection that failed in its handshake.
    pub(crate) fn failed(&self, role: Role) {
        self.errors[index(role)].fetch_add(1, Relaxed);
    }

    /// Returns the number of connections of this role that failed in their handshakes.
    pub(crate) fn errors(&self, role: Role) -> u64 {
        self.errors[index(role)].load(Relaxed)
    }

    /// Counts a connection that fell back, or a socket that gave SMC up before it had a peer.
    pub(crate) fn fell_back(&self, fallback: &Fallback, peer: &SockAddr) {
        self.fallback[index(fallback.role)].fetch_add(1, Relaxed);
        self.reason(fallback, peer);
    }

    /// Counts a connection that strict mode has ended in place of a fallback.
    pub(crate) fn refused(&self, fallback: &Fallback, peer: &SockAddr) {
        self.refused.fetch_add(1, Relaxed);
        self.reason(fallback, peer);
    }

    /// Counts the reason for which a connection that had left TCP was reset.
    pub(crate) fn broken(&self, fallback: &Fallback, peer: &SockAddr) {
        self.reason(fallback, peer);
    }

    /// Counts a closed connection whose data its peer did not take in time.
    pub(crate) fn drain_lost(&self) {
        self.drains_lost.fetch_add(1, Relaxed);
    }

    fn reason(&self, fallback: &Fallback, peer: &SockAddr) {
        let code = fallback.reason.code();
        for slot in self.slots(fallback.role) {
            let mut found = slot.code.load(Relaxed);
            if found == 0 {
                found = match slot.code.cmpxchg(0, code, Relaxed) {
                    Ok(_) => code,
                    Err(other) => other,
                };
            }
            if found == code {
                slot.count.fetch_add(1, Relaxed);
                break;
            }
        }
        if peer.ip != [0; 16] {
            self.peers.lock().count(*peer, code);
        }
    }

    fn slots(&self, role: Role) -> &[ReasonSlot] {
        let (client, server) = self.reasons.split_at_checked(REASONS).unwrap_or((&[], &[]));
        match role {
            Role::Client => client,
            Role::Server => server,
        }
    }

    /// Returns the number of connections of this role that became SMC.
    pub(crate) fn smc_connections(&self, role: Role) -> u64 {
        self.stats.get(connections(role))
    }

    /// Returns the number of connections of this role that fell back.
    pub(crate) fn fallbacks(&self, role: Role) -> u64 {
        self.fallback[index(role)].load(Relaxed)
    }

    /// Returns reason number `at` of a role, with its count; `None` beyond the last.
    pub(crate) fn reason_at(&self, role: Role, at: usize) -> Option<(u32, u64)> {
        let slot = self.slots(role).get(at)?;
        let code = slot.code.load(Relaxed);
        (code != 0).then(|| (code, slot.count.load(Relaxed)))
    }

    /// Adds the bytes that TCP has sent and received for a socket that is being closed.
    pub(crate) fn add_tcp_bytes(&self, (sent, received): (u64, u64)) {
        for (sum, bytes) in self.tcp_bytes.iter().zip([sent, received]) {
            // Zero for most listeners, and for sockets that never connected.
            if bytes != 0 {
                sum.fetch_add(bytes, Relaxed);
            }
        }
    }

    /// Returns the sums of [`Counters::add_tcp_bytes`]: sent, received.
    pub(crate) fn tcp_bytes(&self) -> [u64; 2] {
        [
            self.tcp_bytes[0].load(Relaxed),
            self.tcp_bytes[1].load(Relaxed),
        ]
    }

    /// Writes what every user may know in `/proc/net/smc_fallback`; the format is an interface. `tcp_bytes` are the
    /// bytes that TCP has sent and received.
    pub(crate) fn show(&self, tcp_bytes: [u64; 2], out: &SeqFile) {
        let smc = self
            .smc_connections(Role::Client)
            .wrapping_add(self.smc_connections(Role::Server));
        seq_print!(out, "smc_connections {}\n", smc);
        seq_print!(out, "fallback_client {}\n", self.fallbacks(Role::Client));
        seq_print!(out, "fallback_server {}\n", self.fallbacks(Role::Server));
        seq_print!(out, "strict_refused {}\n", self.refused.load(Relaxed));
        seq_print!(out, "drains_lost {}\n", self.drains_lost.load(Relaxed));
        for (at, name) in [(0, "client"), (1, "server")] {
            let first = self.tcp_first[at].load(Relaxed);
            let moved = self.moved[at].load(Relaxed);
            seq_print!(out, "tcp_first_{} {}\n", name, first);
            seq_print!(out, "local_{} {}\n", name, moved);
        }
        seq_print!(out, "tcp_sent_bytes {}\n", tcp_bytes[0]);
        seq_print!(out, "tcp_received_bytes {}\n", tcp_bytes[1]);
        for (role, name) in [(Role::Client, "client"), (Role::Server, "server")] {
            for at in 0..REASONS {
                let Some((code, count)) = self.reason_at(role, at) else {
                    break;
                };
                seq_print!(out, "reason {} {:#010x} {}\n", name, code, count);
            }
        }
    }

    /// Writes the lines about peers, which are for administrators.
    pub(crate) fn show_peers(&self, out: &SeqFile) {
        for at in 0..PEERS {
            let peer = self.peers.lock().table.get(at).copied();
            let Some(peer) = peer else {
                break;
            };
            seq_print!(
                out,
                "peer {} {:#010x} {}\n",
                peer.addr,
                peer.code,
                peer.count
            );
        }
    }
}

fn connections(role: Role) -> Stat {
    match role {
        Role::Client => Stat::ClientConnections,
        Role::Server => Stat::ServerConnections,
    }
}

fn index(role: Role) -> usize {
    match role {
        Role::Client => 0,
        Role::Server => 1,
    }
}
