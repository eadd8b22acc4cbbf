// SPDX-License-Identifier: GPL-2.0

//! Counters of a network namespace, and `/proc/net/smc_fallback`, which shows them.
//!
//! Counting happens once for each connection and allocates nothing.

use crate::host::{
    fallback::{Fallback, Role},
    promotions::Promotions,
    reason_counts::{Peers, Reasons},
    stats::{Stat, Stats}, //
};
use kapi::{net::sockaddr::SockAddr, sys::word::Tally};
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
    tcp_first: [Tally; 2],
    moved: [Tally; 2],
    /// Bytes that TCP has sent and received for sockets that were closed.
    tcp_bytes: [Tally; 2],
    /// At most [`REASONS`] of either role.
    reasons: Reasons,
    #[pin]
    peers: SpinLock<Peers>,
    /// Of connections that began as TCP with another host.
    #[pin]
    pub(crate) promotions: Promotions,
}

impl Counters {
    /// Counts a connection that begins as TCP.
    pub(crate) fn began_as_tcp(&self, role: Role) {
        self.tcp_first[index(role)].add(1);
    }

    /// Counts an end of one that writes into memory now.
    pub(crate) fn moved(&self, role: Role) {
        self.moved[index(role)].add(1);
    }

    /// Creates counters of zero.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            stats: Stats::new(),
            tcp_first: [const { Tally::new(0) }; 2],
            moved: [const { Tally::new(0) }; 2],
            tcp_bytes: [const { Tally::new(0) }; 2],
            errors: [Atomic::new(0), Atomic::new(0)],
            fallback: [Atomic::new(0), Atomic::new(0)],
            refused: Atomic::new(0),
            drains_lost: Atomic::new(0),
            reasons: Reasons::new(REASONS)?,
            peers <- new_spinlock!(Peers::new(PEERS)?, "rsmc::Counters::peers"),
            promotions <- Promotions::new(),
        }? Error)
    }

    /// Counts a connection that became SMC, of version 1 or 2.
    pub(crate) fn connected(&self, role: Role, v1: bool) {
        let [first, second] = connections(role);
        self.stats.add(if v1 { first } else { second }, 1);
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
        self.reasons.count(fallback.role, code);
        if peer.ip != [0; 16] {
            self.peers.lock().count(*peer, code);
        }
    }

    /// Returns the number of connections of this role that became SMC.
    pub(crate) fn smc_connections(&self, role: Role) -> u64 {
        let sums = connections(role).map(|stat| self.stats.get(stat));
        sums.into_iter().fold(0, u64::wrapping_add)
    }

    /// Returns the number of connections of this role that fell back.
    pub(crate) fn fallbacks(&self, role: Role) -> u64 {
        self.fallback[index(role)].load(Relaxed)
    }

    /// Returns reason number `at` of a role, with its count; `None` beyond the last.
    pub(crate) fn reason_at(&self, role: Role, at: usize) -> Option<(u32, u64)> {
        self.reasons.at(role, at)
    }

    /// Adds the bytes that TCP has sent and received for a socket that is being closed.
    pub(crate) fn add_tcp_bytes(&self, (sent, received): (u64, u64)) {
        for (sum, bytes) in self.tcp_bytes.iter().zip([sent, received]) {
            // Zero for most listeners, and for sockets that never connected.
            if bytes != 0 {
                sum.add(bytes);
            }
        }
    }

    /// Returns the sums of [`Counters::add_tcp_bytes`]: sent, received.
    pub(crate) fn tcp_bytes(&self) -> [u64; 2] {
        [self.tcp_bytes[0].get(), self.tcp_bytes[1].get()]
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
            let first = self.tcp_first[at].get();
            let moved = self.moved[at].get();
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
        self.promotions.show(out);
    }

    /// Writes the lines about peers, which are for administrators.
    pub(crate) fn show_peers(&self, out: &SeqFile) {
        for at in 0..PEERS {
            let peer = self.peers.lock().at(at);
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
        self.promotions.show_peers(out);
    }
}

/// The statistics of connections by version 1 and by version 2.
fn connections(role: Role) -> [Stat; 2] {
    match role {
        Role::Client => [Stat::ClientConnectionsV1, Stat::ClientConnections],
        Role::Server => [Stat::ServerConnectionsV1, Stat::ServerConnections],
    }
}

fn index(role: Role) -> usize {
    match role {
        Role::Client => 0,
        Role::Server => 1,
    }
}
