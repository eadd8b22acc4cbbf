// SPDX-License-Identifier: GPL-2.0

//! Arrivals on the link: CDC messages and immediates for connections, LLC messages for the group, and
//! completions of what was sent.

use super::{tx_scheduler::Token, LinkGroup};
use crate::host::clock::now;
use kapi::{
    rdma::{
        channel::{Channel, Handler},
        completion::{Completion, Status},
        wr::Received, //
    },
    sys::lock::lock_with_bh_off, //
};
use kernel::sync::Arc;
use smc_proto::{
    group::{tokens::Name, Todo},
    time::Instant,
    wire::{
        cdc::{self, Cdc},
        immediate::Immediate, //
    }, //
};

/// Bytes of a message to look at: a DELETE_RKEY of version 2 with all keys that it can name.
const LONGEST_LLC: usize = 8 + 255 * 4;

impl LinkGroup {
    /// Notes that the peer has sent something; messages come one after the other.
    #[inline]
    fn note_heard(&self) -> Instant {
        let now = now();
        self.heard.release(now.0);
        now
    }

    fn on_cdc(&self, bytes: &[u8]) {
        let Ok(cdc) = Cdc::parse(bytes) else { return };
        let now = self.note_heard();
        if let Some(conn) = self.conns.named_by(Name::of(cdc.token)) {
            conn.on_cdc(&cdc, now);
        }
    }

    fn on_immediate(&self, immediate: Immediate) {
        let now = self.note_heard();
        if let Some(conn) = self.conns.named_by(Name::of_immediate(immediate)) {
            conn.on_immediate(immediate, now);
        }
    }

    /// A message with a tail: a DELETE_RKEY of version 2 names up to 255 keys. What follows in others
    /// is about further links, which we decline. Not inlined, for its room on the stack.
    #[inline(never)]
    fn on_long_llc(self: &Arc<Self>, message: &Received<'_>) {
        let mut bytes = [0u8; LONGEST_LLC];
        let len = message.read(0, &mut bytes);
        self.on_llc(bytes.get(..len).unwrap_or(&[]));
    }

    /// Handles the end of a chain that is the group's.
    #[inline(never)]
    fn group_sent(self: &Arc<Self>, token: Token, done: &Completion) {
        match token {
            Token::FullLlc if done.status.is_success() => self.delivered(),
            Token::Conn(..) | Token::Llc | Token::FullLlc => (),
            Token::Key(slab) => self.key_ended(&slab, done.status.is_success()),
        }
    }

    fn on_llc(self: &Arc<Self>, bytes: &[u8]) {
        let (reply, todo) = self.state.lock().proto.on_llc(bytes, now());
        if let Some(frame) = reply {
            self.send_llc(frame);
        }
        match todo {
            Todo::Handshake(event) => self.tell_handshake(event),
            Todo::End { .. } => {
                self.link.mark_broken();
                self.kick();
            }
            Todo::Send(frame) => self.send_llc(frame),
            Todo::Settled(settled) => self.note_answer(settled),
            // That comes of the timer alone.
            Todo::Judge => self.kick(),
            Todo::None | Todo::CheckPort => (),
        }
    }
}

impl Handler for LinkGroup {
    type Token = Token;

    fn sent(this: &Arc<Self>, _: &Arc<Channel<Self>>, token: Token, done: &Completion) {
        // Completions of a queue pair come one after the other.
        this.link.count_done();
        if let Token::Conn(conn, ticket) = token {
            // After a failure the connections learn of it when the group ends, but a message that
            // is not reported would keep its connection for ever.
            let mut proto = lock_with_bh_off(&conn.proto);
            let actions = match done.status.is_success() {
                true => proto.on_tx_done(ticket, now()),
                false => proto.on_tx_failed(),
            };
            drop(proto);
            conn.perform(actions);
        } else {
            this.group_sent(token, done);
        }
        this.slot_freed();
    }

    fn received(this: &Arc<Self>, _: &Arc<Channel<Self>>, message: &Received<'_>) {
        let head = message.head();
        match head.first() {
            Some(&cdc::TYPE) => this.on_cdc(head),
            Some(_) if message.len() > head.len() => this.on_long_llc(message),
            Some(_) => this.on_llc(head),
            None => (),
        }
    }

    fn immediate(this: &Arc<Self>, channel: &Arc<Channel<Self>>, number: u32) {
        match this.takes_immediates {
            true => this.on_immediate(Immediate::from_wire(number)),
            false => channel.fail(),
        }
    }

    fn failed(this: &Arc<Self>, _: &Arc<Channel<Self>>, status: Status) {
        this.link.note_failure(status);
        this.wake_waiter();
        this.kick();
    }
}
