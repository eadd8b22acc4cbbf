// SPDX-License-Identifier: GPL-2.0

//! Lines in the kernel log for a lost link, and for a connection whose peer broke the protocol: programs
//! see only an error.

use super::LinkGroup;
use crate::host::{
    clock::now,
    text::{name, GidText},
};
use core::{fmt, str};
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed}, //
};
use smc_proto::conn::ProtoError;

/// At most one line in this time: a peer that breaks its links by itself must not fill the log.
const PAUSE_MS: u32 = 1000;

/// When there was a line, so that the next one can wait.
pub(crate) struct LastWord {
    /// Milliseconds; those of some 49 days.
    at: Atomic<u32>,
    /// Events without a line since.
    silent: Atomic<u32>,
}

impl LastWord {
    /// Nothing was said yet.
    pub(crate) fn new() -> Self {
        Self {
            at: Atomic::new(clock().wrapping_sub(PAUSE_MS)),
            silent: Atomic::new(0),
        }
    }

    /// Returns the number of events without a line if there may be one now.
    fn may_speak(&self) -> Option<u32> {
        let (last, time) = (self.at.load(Relaxed), clock());
        let early = time.wrapping_sub(last) < PAUSE_MS;
        if early || self.at.cmpxchg(last, time, Relaxed).is_err() {
            self.silent.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.silent.xchg(0, Relaxed))
    }
}

fn clock() -> u32 {
    // It may wrap.
    (now().0 / 1_000_000) as u32
}

impl LinkGroup {
    /// Says that the link is lost, and why, if anybody had it.
    pub(super) fn tell_loss(&self) {
        let conns = self.state.lock().proto.conns();
        if conns == 0 {
            return;
        }
        // First, as what was under way has failed for that, too.
        let why = match self.link.failure() {
            _ if !self.link.has_port() => "the port is down or has lost its address",
            Some(status) => status.text(),
            None => "the peer does not answer",
        };
        self.say(format_args!("lost, {conns} connections aborted: {why}"));
    }

    /// Says that a connection was aborted, and why. Any context.
    pub(crate) fn tell_breach(&self, error: ProtoError) {
        let what = match error {
            ProtoError::Token => "another connection's token",
            ProtoError::ProducerCursor => "a producer cursor beyond its room",
            ProtoError::ConsumerCursor => "a consumer cursor beyond what was sent",
            ProtoError::FailoverGap => "a failover that has lost messages",
        };
        self.say(format_args!("aborted a connection: the peer sent {what}"));
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        let Some(silent) = self.owner.last_word().may_speak() else {
            return;
        };
        let (_, _, peer) = self.link_facts();
        let device = self.link.device().name();
        pr_warn!(
            "SMC-R link group {:08x} ({} to {}) {} ({} such lines left out)\n",
            self.id,
            word(name(&device)),
            word(GidText::new(&peer).text()),
            what,
            silent
        );
    }
}

fn word(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or("?")
}
