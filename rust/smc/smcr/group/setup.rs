// SPDX-License-Identifier: GPL-2.0

//! First contact: the group's link is set up, and the handshake hears of LLC messages meanwhile.

use super::{LinkGroup, PeerFacts};
use crate::host::{clock::now, waiter::Waiter};
use kapi::rdma::route::NextHop;
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    llc::{
        link::{LinkEnd, LinkEvent, Role},
        responder::LlcEvent, //
    },
    wire::ids::Mtu, //
};

impl LinkGroup {
    /// Connects the queue pair so that it receives (RTR). Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(crate) fn to_rtr(&self, peer: LinkEnd, psn: u32, mtu: Mtu, hop: &NextHop) -> Result {
        let initialised = || self.step(LinkEvent::ToInit);
        self.link
            .to_rtr(&peer, psn, mtu, hop, self.class, initialised)?;
        let mut state = self.state.lock();
        state.proto.link.peer = Some(peer);
        state.proto.link.step(LinkEvent::ToRtr, now());
        Ok(())
    }

    /// Allows the queue pair to send (RTS), and makes the memory keys work. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(crate) fn to_rts(&self) -> Result {
        let channel = self.link.to_rts()?;
        self.step(LinkEvent::ToRts);
        let mut slabs = KVec::new();
        loop {
            let len = {
                let guard = self.resources.lock();
                let resources = guard.as_ref().ok_or(ENODEV)?;
                if resources.slabs.len() <= slabs.capacity() {
                    for slab in &resources.slabs {
                        slabs.push_within_capacity(slab.clone())?;
                    }
                    break;
                }
                resources.slabs.len()
            };
            slabs = KVec::with_capacity(len, GFP_KERNEL)?;
        }
        // Nothing else is under way, so this waits for the device alone.
        for slab in &slabs {
            channel.register(slab.mr())?;
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

    /// Tells whether the link goes from the port of `group` to this end.
    pub(crate) fn leads_to(&self, group: &LinkGroup, peer: &LinkEnd) -> bool {
        let (here, there) = (&self.link.at, &group.link.at);
        Arc::ptr_eq(&here.device, &there.device)
            && self.peer_addr.namespace == group.peer_addr.namespace
            && here.port == there.port
            && here.gid == there.gid
            && self.state.lock().proto.link.peer.as_ref() == Some(peer)
    }

    fn step(&self, event: LinkEvent) {
        let _ = self.state.lock().proto.link.step(event, now());
    }

    /// The link is confirmed: the group carries connections from now on. Sleeps.
    pub(crate) fn confirmed(&self, number: u8, peer: PeerFacts) {
        self.confirmed_at.populate(now());
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

    /// Ends the wait for LLC events.
    pub(crate) fn ignore_events(&self) {
        let old = self.state.lock().waiter.take();
        drop(old);
    }

    /// Has the handshake that waits for the link hear of an event. Any context.
    pub(super) fn tell_handshake(&self, event: LlcEvent) {
        let mut state = self.state.lock();
        state.event = Some(event);
        if let Some(waiter) = &state.waiter {
            waiter.clone().kick();
        }
    }

    /// A message in a full packet has been delivered, which a client waits for. A server waits for the answer to it.
    pub(super) fn delivered(&self) {
        if !self.is_server() {
            self.tell_handshake(LlcEvent::Delivered);
        }
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
}
