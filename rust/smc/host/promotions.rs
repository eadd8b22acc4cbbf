// SPDX-License-Identifier: GPL-2.0

//! What a namespace counts of promotions: connections that began as TCP with another host, and have left it for SMC-R.
//!
//! Counting happens when an attempt begins and ends, and at no other time.

use crate::host::{
    fallback::Role,
    reason_counts::{Peers, Reasons}, //
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
use smc_proto::{reason::Reason, time::Span};

/// Number of reasons counted for each role.
const REASONS: usize = 20;

/// Number of pairs of peer and reason counted.
const PEERS: usize = 32;

/// The code that stands for a promotion in the table of peers.
const PROMOTED: u32 = 0;

/// Classes of times: less than 128 µs, less than twice that, and so on to 4.2 s, and above.
const CLASSES: usize = 17;
/// The binary logarithm of the first bound, in microseconds, and what would be the last one's.
const FIRST: u32 = 7;
const LAST: u32 = FIRST + CLASSES as u32 - 1;

/// Why a promoted connection has gone back to TCP.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Cause {
    /// Its link was lost.
    Lost,
    /// Nothing has moved on it for long.
    Idle,
    /// Nothing moved on it, and memory was short.
    Pressure,
    /// An administrator has said so.
    Command,
    /// The peer has asked for that.
    Peer,
    /// The link was worse than TCP.
    Worse,
}

impl Cause {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Lost, "lost"),
        (Self::Idle, "idle"),
        (Self::Pressure, "pressure"),
        (Self::Command, "command"),
        (Self::Peer, "peer"),
        (Self::Worse, "worse"),
    ];

    /// Returns the cause with this number, [`Cause::Peer`] for none.
    pub(crate) fn from_number(number: u32) -> Self {
        let known = Self::ALL.get(number as usize);
        known.map_or(Self::Peer, |(cause, _)| *cause)
    }
}

/// Counts of a role.
struct Ends {
    /// Attempts that have begun: a client's side connections, a server's joins.
    begun: Atomic<u64>,
    /// Of these, those whose end has turned: its bytes go by SMC-R from then on.
    done: Atomic<u64>,
    /// Of these, those that have ended otherwise.
    failed: Atomic<u64>,
    /// Connections for which no attempt has begun, though they were worth it; or never, without a device for it.
    refused: Atomic<u64>,
    /// Sum of the times from the beginning of an attempt to the turn of this end, and the longest, in nanoseconds.
    nanos: Atomic<u64>,
    longest: Atomic<u64>,
    times: [Atomic<u64>; CLASSES],
    /// Those that have gone back to TCP, by [`Cause`].
    returned: [Atomic<u64>; Cause::ALL.len()],
}

impl Ends {
    const fn new() -> Self {
        Self {
            begun: Atomic::new(0),
            done: Atomic::new(0),
            failed: Atomic::new(0),
            refused: Atomic::new(0),
            nanos: Atomic::new(0),
            longest: Atomic::new(0),
            times: [const { Atomic::new(0) }; CLASSES],
            returned: [const { Atomic::new(0) }; Cause::ALL.len()],
        }
    }

    fn took(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Relaxed);
        let mut longest = self.longest.load(Relaxed);
        while nanos > longest {
            match self.longest.cmpxchg(longest, nanos, Relaxed) {
                Ok(_) => break,
                Err(other) => longest = other,
            }
        }
        if let Some(class) = self.times.get(class(nanos)) {
            class.fetch_add(1, Relaxed);
        }
    }
}

fn class(nanos: u64) -> usize {
    let above = (nanos / 1000) >> FIRST;
    ((u64::BITS - above.leading_zeros()) as usize).min(CLASSES - 1)
}

/// The counters of a namespace.
#[pin_data]
pub(crate) struct Promotions {
    ends: [Ends; 2],
    /// Connections that began as TCP, and were left to TCP for good as their programs wanted it.
    given_back: Atomic<u64>,
    reasons: Reasons,
    #[pin]
    peers: SpinLock<Peers>,
}

impl Promotions {
    /// Creates counters of zero.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ends: [const { Ends::new() }; 2],
            given_back: Atomic::new(0),
            reasons: Reasons::new(REASONS)?,
            peers <- new_spinlock!(Peers::new(PEERS)?, "rsmc::Promotions::peers"),
        }? Error)
    }

    fn of(&self, role: Role) -> &Ends {
        let [client, server] = &self.ends;
        match role {
            Role::Client => client,
            Role::Server => server,
        }
    }

    /// Counts an attempt that begins.
    pub(crate) fn begun(&self, role: Role) {
        self.of(role).begun.fetch_add(1, Relaxed);
    }

    /// Counts one whose end has turned, so long after its beginning.
    pub(crate) fn done(&self, role: Role, took: Span, peer: &SockAddr) {
        let ends = self.of(role);
        ends.done.fetch_add(1, Relaxed);
        ends.took(took.0);
        self.peers.lock().count(*peer, PROMOTED);
    }

    /// Counts one that has ended otherwise.
    pub(crate) fn failed(&self, role: Role, reason: Reason, peer: &SockAddr) {
        self.of(role).failed.fetch_add(1, Relaxed);
        self.reason(role, reason, peer);
    }

    /// Counts a connection for which no attempt begins.
    pub(crate) fn refused(&self, role: Role, reason: Reason, peer: &SockAddr) {
        self.of(role).refused.fetch_add(1, Relaxed);
        self.reason(role, reason, peer);
    }

    /// Counts one that goes back to TCP.
    pub(crate) fn returned(&self, role: Role, cause: Cause) {
        if let Some(count) = self.of(role).returned.get(cause as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts a connection that began as TCP and is left to TCP for good.
    pub(crate) fn gave_back(&self) {
        self.given_back.fetch_add(1, Relaxed);
    }

    fn reason(&self, role: Role, reason: Reason, peer: &SockAddr) {
        self.reasons.count(role, reason.code());
        self.peers.lock().count(*peer, reason.code());
    }

    /// Writes what every user may know in `/proc/net/smc_fallback`; the format is an interface.
    pub(crate) fn show(&self, out: &SeqFile) {
        seq_print!(out, "given_back {}\n", self.given_back.load(Relaxed));
        for (role, name) in [(Role::Client, "client"), (Role::Server, "server")] {
            let ends = self.of(role);
            for (what, count) in [
                ("begun", &ends.begun),
                ("done", &ends.done),
                ("failed", &ends.failed),
                ("refused", &ends.refused),
                ("ns", &ends.nanos),
                ("longest_ns", &ends.longest),
            ] {
                seq_print!(out, "promotion_{} {} {}\n", what, name, count.load(Relaxed));
            }
            for (power, count) in (FIRST..=LAST).zip(&ends.times) {
                let count = count.load(Relaxed);
                // The last one has no bound.
                let bound = match power < LAST {
                    true => 1u64.wrapping_shl(power),
                    false => 0,
                };
                if count != 0 {
                    seq_print!(out, "promotion_time {} {} {}\n", name, bound, count);
                }
            }
            for ((_, cause), count) in Cause::ALL.iter().zip(&ends.returned) {
                let count = count.load(Relaxed);
                if count != 0 {
                    seq_print!(out, "promotion_returned {} {} {}\n", name, cause, count);
                }
            }
            for at in 0..REASONS {
                let Some((code, count)) = self.reasons.at(role, at) else {
                    break;
                };
                seq_print!(out, "promotion_reason {} {:#010x} {}\n", name, code, count);
            }
        }
    }

    /// Writes the lines about peers, which are for administrators: address, code of the reason why not (0: promoted),
    /// count, and a number by which later ones are larger.
    pub(crate) fn show_peers(&self, out: &SeqFile) {
        for at in 0..PEERS {
            let peer = self.peers.lock().at(at);
            let Some(peer) = peer else {
                break;
            };
            seq_print!(
                out,
                "promotion_peer {} {:#010x} {} {}\n",
                peer.addr,
                peer.code,
                peer.count,
                peer.seen
            );
        }
    }
}
