// SPDX-License-Identifier: GPL-2.0

//! The statistics of SMC-R that `SMC_NETLINK_GET_STATS` shows: C's, by the numbers of their
//! attributes.
//!
//! The counters of a namespace are shared by all CPUs. So what happens per message is counted in
//! the connection, whose counts are added to the namespace's when it ends; a report adds up both.

use kapi::{
    net::netlink::Message,
    sys::word::Tally, //
};
use kernel::prelude::*;

/// Numbers of `SMC_NLA_STATS_T_…`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stat {
    /// Clients' connections by version 1.
    ClientConnectionsV1 = 7,
    /// Clients' connections by version 2.
    ClientConnections = 8,
    /// Servers' connections by version 1.
    ServerConnectionsV1 = 9,
    /// Servers' connections by version 2.
    ServerConnections = 10,
    /// Calls of splice() from a socket.
    Splices = 12,
    /// Times that `TCP_CORK` was cleared.
    Corked = 13,
    /// Times that `TCP_NODELAY` was set.
    NoDelay = 14,
    /// Urgent bytes sent, and received or looked at.
    Urgent = 15,
    /// Bytes that programs have received, or looked at.
    RxBytes = 16,
    /// Bytes that programs have sent.
    TxBytes = 17,
    /// Calls that have received.
    RxCalls = 18,
    /// Calls that have sent.
    TxCalls = 19,
}

/// Numbers of `SMC_NLA_STATS_RMB_…`: events of a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// The peer's buffer was too small for the bytes of a send call.
    PeerTooSmall = 1,
    /// Our buffer was too small for the bytes of a send call, or a receive call could not take all
    /// that was there.
    TooSmall = 2,
    /// The peer's buffer was full.
    PeerFull = 3,
    /// Our buffer was full.
    Full = 4,
    /// A used buffer was taken.
    Reused = 5,
    /// A new buffer was allocated.
    Allocated = 6,
    // 7 would be a buffer that is smaller than wanted for lack of memory; there are none.
}

/// TrafficDirection of data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrafficDirection {
    /// To the peer.
    Tx,
    /// From the peer.
    Rx,
}

/// Classes of sizes: to 8 KiB, to 16 KiB and so on to 1 MiB, and above.
const CLASSES: usize = 9;
/// Kinds of [`Buffer`].
const BUFFERS: usize = 7;
/// `SMC_NLA_STATS_T_CLNT_V1_SUCC`, the first plain number.
const FIRST_PLAIN: usize = 7;
/// `SMC_NLA_STATS_T_TX_CNT`, the last plain number of 64 bits.
const LAST_PLAIN: usize = 19;
/// `SMC_NLA_STATS_T_RX_RMB_USAGE` and `SMC_NLA_STATS_T_TX_RMB_USAGE`.
const USAGES: [u16; 2] = [20, 21];

/// First slots of the histograms of buffer sizes (tx, rx) and payloads (tx, rx), of the two blocks
/// of [`Buffer`], of the plain numbers and of the usages, and the end.
const HISTOGRAMS: usize = 0;
const EVENTS: usize = HISTOGRAMS + 4 * CLASSES;
const PLAIN: usize = EVENTS + 2 * BUFFERS;
const USAGE: usize = PLAIN + LAST_PLAIN - FIRST_PLAIN + 1;
const SLOTS: usize = USAGE + USAGES.len();
/// Number of slots that are looked at together.
const STRIDE: usize = 8;
/// The slots and some that are never used, so that it is a multiple of [`STRIDE`].
const ROOM: usize = SLOTS.next_multiple_of(STRIDE);

/// Statistics of a namespace, or those of a connection that are still to be added to them.
pub(crate) struct Stats([Tally; ROOM]);

impl Stats {
    /// Creates statistics of zero.
    pub(crate) const fn new() -> Self {
        Self([const { Tally::new(0) }; ROOM])
    }

    fn bump(&self, slot: usize, by: u64) {
        if let Some(slot) = self.0.get(slot) {
            slot.add(by);
        }
    }

    fn read(&self, slot: usize) -> u64 {
        self.0.get(slot).map_or(0, Tally::get)
    }

    /// Adds `by` to a number.
    pub(crate) fn add(&self, stat: Stat, by: u64) {
        self.bump(PLAIN - FIRST_PLAIN + stat as usize, by);
    }

    /// Returns a number.
    pub(crate) fn get(&self, stat: Stat) -> u64 {
        self.read(PLAIN - FIRST_PLAIN + stat as usize)
    }

    /// Counts an event of a buffer.
    pub(crate) fn buffer(&self, direction: TrafficDirection, what: Buffer) {
        self.bump(EVENTS + direction as usize * BUFFERS + what as usize - 1, 1);
    }

    /// Counts the size of a new buffer, in bytes.
    pub(crate) fn buffer_size(&self, direction: TrafficDirection, size: usize) {
        self.bump(HISTOGRAMS + direction as usize * CLASSES + class(size), 1);
    }

    /// Counts a call by the bytes that it was to send, or has received; calls that moved nothing
    /// are not to be counted.
    pub(crate) fn payload(&self, direction: TrafficDirection, len: usize) {
        self.bump(
            HISTOGRAMS + (2 + direction as usize) * CLASSES + class(len),
            1,
        );
    }

    /// Adds to the memory in use for buffers, in bytes; a negative number takes away.
    pub(crate) fn usage(&self, direction: TrafficDirection, by: i64) {
        // A negative number wraps the sum around to the difference.
        let slot = match direction {
            TrafficDirection::Rx => USAGE,
            TrafficDirection::Tx => USAGE + 1,
        };
        self.bump(slot, by as u64);
    }

    /// Moves the counts of `other` here.
    pub(crate) fn absorb(&self, other: &Stats) {
        let theirs = other.0.chunks_exact(STRIDE);
        for (to, from) in self.0.chunks_exact(STRIDE).zip(theirs) {
            // Most have counted nothing, and an exchange is dear.
            if from.iter().fold(0, |any, slot| any | slot.get()) == 0 {
                continue;
            }
            for (to, from) in to.iter().zip(from) {
                if from.get() != 0 {
                    to.add(from.take());
                }
            }
        }
    }
}

/// Sum of several [`Stats`].
pub(crate) struct Total([u64; SLOTS]);

impl Total {
    /// Creates a sum of zero.
    pub(crate) fn new() -> Self {
        Self([0; SLOTS])
    }

    /// Adds the counts of `stats`.
    pub(crate) fn add(&mut self, stats: &Stats) {
        for (sum, slot) in self.0.iter_mut().zip(&stats.0) {
            *sum = sum.wrapping_add(slot.get());
        }
    }

    /// Adds `by` to a number.
    pub(crate) fn count(&mut self, stat: Stat, by: u64) {
        if let Some(sum) = self.0.get_mut(PLAIN - FIRST_PLAIN + stat as usize) {
            *sum = sum.wrapping_add(by);
        }
    }

    /// Writes the attributes of `SMC_NLA_STATS_SMCR_TECH`.
    pub(crate) fn write(&self, out: &mut Message<'_>) -> Result {
        write(out, |slot| self.0.get(slot).copied().unwrap_or(0))
    }
}

/// Writes the attributes of `SMC_NLA_STATS_SMCD_TECH`: all zero, as there is no SMC-D.
pub(crate) fn write_none(out: &mut Message<'_>) -> Result {
    write(out, |_| 0)
}

fn class(size: usize) -> usize {
    // 0 to 8 KiB is class 0, and each class is twice as wide as the one before.
    let above = size.saturating_sub(1) >> 13;
    ((usize::BITS - above.leading_zeros()) as usize).min(CLASSES - 1)
}

fn write(out: &mut Message<'_>, read: impl Fn(usize) -> u64) -> Result {
    let block = |out: &mut Message<'_>, kind: u16, start: usize, len: usize| {
        out.nest(kind, |out| {
            for (number, slot) in (1..).zip(start..start + len) {
                out.put_u64(number, read(slot), 0)?;
            }
            Ok(())
        })
    };
    for (kind, at) in (1..).zip(0..4) {
        block(out, kind, HISTOGRAMS + at * CLASSES, CLASSES)?;
    }
    for (kind, at) in (5..).zip(0..2) {
        block(out, kind, EVENTS + at * BUFFERS, BUFFERS)?;
    }
    for (number, slot) in (FIRST_PLAIN as u16..).zip(PLAIN..USAGE) {
        out.put_u64(number, read(slot), 0)?;
    }
    for (number, slot) in USAGES.into_iter().zip(USAGE..SLOTS) {
        let value = read(slot);
        // As `nla_put_uint` does: in 32 bits if it fits.
        match u32::try_from(value) {
            Ok(short) => out.put(number, &short.to_ne_bytes())?,
            Err(_) => out.put(number, &value.to_ne_bytes())?,
        }
    }
    Ok(())
}
