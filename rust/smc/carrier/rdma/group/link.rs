// SPDX-License-Identifier: GPL-2.0

//! A group's one link: setting its queue pair up, and what arrives on it.

use super::{turns::Token, LinkGroup, PeerFacts, Stage};
use crate::host::{clock::now, waiter::Waiter};
use kapi::rdma::{
    channel::{Channel, Handler},
    completion::{Completion, Status},
    config::Path,
    route::NextHop,
    wr::Received, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};
use smc_proto::{
    group::{NotAgreed, Todo},
    llc::{
        link::{LinkEnd, LinkEvent, Role},
        responder::LlcEvent, //
    },
    wire::{
        cdc::{self, Cdc},
        ids::Mtu,
        immediate::Immediate, //
    }, //
};

/// Hop limit of packets that pass a gateway.
const FAR: u8 = 64;

/// Bytes of a message to look at: a DELETE_RKEY of version 2 with all keys that it can name.
const LONGEST_LLC: usize = 8 + 255 * 4;

impl LinkGroup {
    /// Connects the queue pair so that it receives. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(crate) fn receive_from(&self, peer: LinkEnd, psn: u32, mtu: Mtu, hop: &NextHop) -> Result {
        let mut stage = self.stage.lock();
        let reset = match core::mem::replace(&mut *stage, Stage::None) {
            Stage::Reset(qp) => qp,
            other => {
                *stage = other;
                return Err(EINVAL);
            }
        };
        // To an address of this host there is no hop; the peer is the same port.
        let dmac = if hop.mac == [0; 6] {
            peer.mac.0
        } else {
            hop.mac
        };
        self.gateway.store(u32::from(hop.gateway), Relaxed);
        let init = reset.init(self.port)?;
        self.step(LinkEvent::ToInit);
        let receiving = init.ready_to_receive(&Path {
            mtu: mtu.code(),
            qpn: peer.qpn.get(),
            psn,
            sgid: self.gid.0,
            sgid_index: self.gid_index,
            dgid: peer.gid.0,
            dmac,
            hop_limit: if hop.gateway { FAR } else { 1 },
        })?;
        {
            let mut state = self.state.lock();
            state.proto.link.peer = Some(peer);
            state.proto.link.step(LinkEvent::ToRtr, now());
        }
        *stage = Stage::Receiving(receiving);
        Ok(())
    }

    /// Allows the queue pair to send, and makes the memory keys work. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(crate) fn send_to(&self) -> Result {
        let mut stage = self.stage.lock();
        let sending = match core::mem::replace(&mut *stage, Stage::None) {
            Stage::Receiving(qp) => qp.ready_to_send()?,
            other => {
                *stage = other;
                return Err(EINVAL);
            }
        };
        let channel = sending.channel().clone();
        *stage = Stage::Sending(sending);
        drop(stage);
        self.step(LinkEvent::ToRts);
        let slabs = {
            let guard = self.resources.lock();
            let resources = guard.as_ref().ok_or(ENODEV)?;
            let mut slabs = KVec::with_capacity(resources.slabs.len(), GFP_KERNEL)?;
            for slab in &resources.slabs {
                slabs.push(slab.clone(), GFP_KERNEL)?;
            }
            slabs
        };
        for mr in slabs.iter().filter_map(|slab| slab.key_to_register()) {
            channel.register(mr)?;
        }
        Ok(())
    }

    /// Returns the peer's end of the link, once it has named it.
    pub(crate) fn peer_end(&self) -> Option<LinkEnd> {
        self.state.lock().proto.link.peer
    }

    /// Returns whether this end is the server's.
    pub(crate) fn is_server(&self) -> bool {
        self.state.lock().proto.terms().key.role == Role::Server
    }

    /// Whether the link goes from the port of `group` to this end.
    pub(crate) fn leads_to(&self, group: &LinkGroup, peer: &LinkEnd) -> bool {
        Arc::ptr_eq(&self.device, &group.device)
            && self.origin.namespace == group.origin.namespace
            && self.port == group.port
            && self.gid == group.gid
            && self.state.lock().proto.link.peer.as_ref() == Some(peer)
    }

    fn step(&self, event: LinkEvent) {
        let _ = self.state.lock().proto.link.step(event, now());
    }

    /// The link is confirmed: the group carries connections from now on. Sleeps.
    pub(crate) fn confirmed(&self, number: u8, peer: PeerFacts) {
        self.peer.populate(peer);
        {
            let mut state = self.state.lock();
            state.proto.link.number = number;
            state.proto.link.step(LinkEvent::Confirmed, now());
            state.waiter = None;
        }
        // The first look: nothing can be stuck yet.
        let _ = self.look();
        self.rearm();
    }

    /// Names the handshake that is to hear of LLC events.
    pub(crate) fn await_events(&self, waiter: Arc<dyn Waiter>, number: u8) {
        let mut state = self.state.lock();
        state.proto.link.number = number;
        let old = state.waiter.replace(waiter);
        drop(state);
        drop(old);
    }

    /// Nobody waits for LLC events any more.
    pub(crate) fn ignore_events(&self) {
        let old = self.state.lock().waiter.take();
        drop(old);
    }

    /// An LLC event that has come for the handshake.
    pub(crate) fn take_event(&self) -> Option<LlcEvent> {
        self.state.lock().event.take()
    }

    pub(super) fn wake_waiter(&self) {
        let state = self.state.lock();
        if let Some(waiter) = &state.waiter {
            waiter.clone().kick();
        }
    }

    fn on_cdc(&self, bytes: &[u8]) {
        let Ok(cdc) = Cdc::parse(bytes) else { return };
        let conn = {
            let mut state = self.state.lock();
            state.proto.heard(now());
            state
                .proto
                .slot(cdc.token)
                .and_then(|slot| state.conns.get(usize::from(slot)).cloned().flatten())
        };
        if let Some(conn) = conn {
            conn.on_cdc(&cdc);
        }
    }

    fn on_immediate(&self, immediate: Immediate) -> core::result::Result<(), NotAgreed> {
        let conn = {
            let mut state = self.state.lock();
            let slot = state.proto.slot_of(immediate)?;
            state.proto.heard(now());
            slot.and_then(|slot| state.conns.get(usize::from(slot)).cloned().flatten())
        };
        if let Some(conn) = conn {
            conn.on_immediate(immediate);
        }
        Ok(())
    }

    /// A message with a tail: a DELETE_RKEY of version 2 names up to 255 keys. What follows in others
    /// is about further links, which we decline. Not inlined, for its room on the stack.
    #[inline(never)]
    fn on_long_llc(self: &Arc<Self>, message: &Received<'_>) {
        let mut bytes = [0u8; LONGEST_LLC];
        let len = message.read(0, &mut bytes);
        self.on_llc(bytes.get(..len).unwrap_or(&[]));
    }

    fn on_llc(self: &Arc<Self>, bytes: &[u8]) {
        let (reply, todo) = self.state.lock().proto.on_llc(bytes, now());
        if let Some(frame) = reply {
            self.send_llc(frame);
        }
        match todo {
            Todo::Handshake(event) => {
                let mut state = self.state.lock();
                state.event = Some(event);
                if let Some(waiter) = &state.waiter {
                    waiter.clone().kick();
                }
            }
            Todo::End { .. } => {
                self.broken.store(1, Relaxed);
                self.kick();
            }
            Todo::Send(frame) => self.send_llc(frame),
            Todo::Settled(settled) => self.note_answer(settled),
            Todo::None => (),
        }
    }
}

impl Handler for LinkGroup {
    type Token = Token;

    fn sent(this: &Arc<Self>, _: &Arc<Channel<Self>>, token: Token, done: &Completion) {
        // Completions of a queue pair come one after the other.
        this.done.set(this.done.get().wrapping_add(1));
        if let Token::Conn(conn, ticket) = token {
            // After a failure the connections learn of it when the group ends, but a message that
            // is not reported would keep its connection for ever.
            let actions = if done.status.is_success() {
                conn.proto.lock().on_tx_done(ticket, now())
            } else {
                conn.proto.lock().on_tx_failed()
            };
            conn.perform(actions);
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
        if this.on_immediate(Immediate::from_wire(number)).is_err() {
            channel.fail();
        }
    }

    fn failed(this: &Arc<Self>, _: &Arc<Channel<Self>>, status: Status) {
        this.failure.populate(status);
        this.broken.store(1, Relaxed);
        this.wake_waiter();
        this.kick();
    }
}
