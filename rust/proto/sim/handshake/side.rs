// SPDX-License-Identifier: GPL-2.0

//! One side of a simulated handshake: its byte queues, its timers, the words of its program.

use smc_proto::handshake::Outcome;
use smc_proto::llc::responder::LlcEvent;
use smc_proto::time::Instant;
use smc_proto::wire::clc::{Agreement, RdmaEnd};
use smc_proto::wire::llc::Frame;
use std::collections::VecDeque;

/// A side for the time of one handshake. What the peer sent is queued with its time of arrival.
#[derive(Default)]
pub(super) struct Side {
    /// End of the operation that was admitted.
    pub(super) busy_until: Option<Instant>,
    /// Time at which the driver wants to be called again.
    pub(super) wake_at: Option<Instant>,
    /// Set when the endpoint has changed something.
    pub(super) moved: bool,
    /// TCP segments on their way to this side.
    pub(super) segments: VecDeque<(Instant, Vec<u8>)>,
    /// TCP bytes that have arrived and were not read.
    pub(super) arrived: VecDeque<u8>,
    /// LLC messages on their way to this side.
    pub(super) frames: VecDeque<(Instant, Frame)>,
    /// LLC event that the driver has not taken.
    pub(super) event: Option<LlcEvent>,
    /// When the side hears that its full packet has been delivered.
    pub(super) delivered: Option<Instant>,
    /// Our end of the connection, once acquired.
    pub(super) own: Option<RdmaEnd>,
    /// The peer may write to our RMBE.
    pub(super) exposed: bool,
    /// The peer's accept or confirm.
    pub(super) agreement: Option<Agreement>,
    /// The peer has declined.
    pub(super) declined: bool,
    /// The handshake has started the group.
    pub(super) new_group: bool,
    /// This side has ended its TCP connection.
    pub(super) tcp_closed: bool,
    /// Bytes that the program has written on TCP.
    pub(super) app_wrote: Vec<u8>,
    /// Bytes that the program has read on TCP.
    pub(super) app_read: Vec<u8>,
    /// End of the handshake.
    pub(super) outcome: Option<Outcome>,
    /// CLC messages this side has sent.
    pub(super) sent: Vec<Vec<u8>>,
}

impl Side {
    /// Moves segments that are due to the receive queue; true if there were any.
    pub(super) fn deliver(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while self.segments.front().is_some_and(|s| s.0 <= now) {
            let (_, bytes) = self.segments.pop_front().unwrap();
            self.arrived.extend(bytes);
            moved = true;
        }
        moved
    }

    /// Earliest time after `now` at which something happens to this side.
    pub(super) fn next_time(&self, now: Instant) -> Option<Instant> {
        let times = [
            self.busy_until,
            self.wake_at,
            self.segments.front().map(|s| s.0),
            self.frames.front().map(|f| f.0),
            self.delivered,
        ];
        times.into_iter().flatten().filter(|t| *t > now).min()
    }
}
