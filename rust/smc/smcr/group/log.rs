// SPDX-License-Identifier: GPL-2.0

//! Lines in the kernel log for a lost link, and for a connection whose peer broke the protocol: programs
//! see only an error.

use super::LinkGroup;
use crate::host::text::{name, GidText};
use core::{fmt, str};
use kernel::prelude::*;
use smc_proto::conn::ProtoError;

impl LinkGroup {
    /// Says that the link is lost, and why, if it had connections.
    pub(super) fn tell_loss(&self) {
        let conns = self.state.lock().proto.conns();
        if conns == 0 {
            return;
        }
        // The port is checked first: when it goes down, requests under way fail as well.
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
            ProtoError::Ring => "a receive ring out of turn",
            ProtoError::Record => "a record of bytes that are not there",
        };
        self.say(format_args!("aborted a connection: the peer sent {what}"));
    }

    /// Says that a connection under promotion was aborted, as its peer has broken the order of the marks.
    pub(crate) fn tell_mark(&self) {
        self.say(format_args!(
            "aborted a connection: the peer sent a mark out of its order or place"
        ));
    }

    /// Says that a connection was aborted since bytes do not come by TCP that precede the ring's.
    pub(crate) fn tell_missing(&self) {
        self.say(format_args!(
            "aborted a connection: TCP does not bring all that the peer has sent before it left that"
        ));
    }

    /// Says that a connection was aborted since bytes have come by TCP after it had left that.
    pub(crate) fn tell_astray(&self) {
        self.say(format_args!(
            "aborted a connection: bytes went by TCP where it had left that"
        ));
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        let Some(silent) = self.owner.rate_limit().allow() else {
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
