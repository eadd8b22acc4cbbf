// SPDX-License-Identifier: GPL-2.0

//! The connections of a group, and the buffers that they have of it.

use super::{
    super::slab::{Lease, RmbSlab},
    LinkGroup,
    Resources,
    SmcConn,
    SPOILED,
    SPOILED_CLIENT, //
};
use crate::host::clock::now;
use kapi::errno;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Relaxed},
        Arc, //
    }, //
};
use smc_proto::{
    cursor::RingSize,
    llc::link::Role,
    time::Instant,
    wire::ids::AlertToken, //
};

impl LinkGroup {
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled.load(Relaxed) >= SPOILED
    }

    /// Counts a buffer that cannot be used again.
    pub(crate) fn spoil(self: &Arc<Self>) {
        self.spoiled.fetch_add(1, Relaxed);
        if self.is_spoiled() {
            self.kick();
        }
    }

    /// Returns since when the group has had no connection; `None` if it has some, or is about to end.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let retired = self.retired.load(Relaxed) != 0;
        self.state.lock().proto.idle_since().filter(|_| !retired)
    }

    /// Has the group end soon, unless it gets a connection before. Any context.
    pub(crate) fn retire(self: &Arc<Self>) {
        self.retired.store(1, Relaxed);
        self.kick();
    }

    /// Takes a slot and a token for a new connection; `None` if the group is full or ending.
    pub(crate) fn reserve(&self) -> Option<(AlertToken, u8)> {
        let mut state = self.state.lock();
        let spoiled = self.spoiled.load(Relaxed);
        let room = match state.proto.terms().key.role {
            Role::Server => u32::from(state.proto.candidate().room),
            Role::Client => SPOILED_CLIENT,
        };
        if spoiled >= room {
            return None;
        }
        state.proto.add_conn()
    }

    /// Gives a slot back that no connection has come to use.
    pub(crate) fn unreserve(&self, token: AlertToken) {
        self.state.lock().proto.remove_conn(token, now());
        self.rearm();
    }

    /// Makes a connection known to incoming messages, and to the end of the group.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` when the group has ended meanwhile; nobody will tell the connection.
    pub(crate) fn insert_conn(&self, conn: &Arc<SmcConn>) -> Result {
        let mut state = self.state.lock();
        let old = match state.conns.get_mut(usize::from(conn.slot())) {
            Some(place) => place.replace(conn.clone()),
            None => None,
        };
        drop(state);
        drop(old);
        // `finish` sets the mark before it looks for connections.
        if self.ended.load(Acquire) != 0 {
            return Err(errno::ECONNABORTED.into());
        }
        Ok(())
    }

    /// Takes a receive buffer of `size`, from a new slab if need be. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(crate) fn lease(self: &Arc<Self>, size: RingSize) -> Result<Lease> {
        let mut guard = self.resources.lock();
        let resources: &mut Resources = (*guard).as_mut().ok_or(ENODEV)?;
        let mut generation = 0u32;
        let mut there = 0u32;
        for slab in resources.slabs.iter().filter(|slab| slab.size() == size) {
            if let Some(lease) = slab.lease() {
                return Ok(lease);
            }
            generation = generation.saturating_add(1);
            there = there.saturating_add(slab.in_service());
        }
        resources.slabs.reserve(1, GFP_KERNEL)?;
        let most = u32::from(self.state.lock().proto.terms().max_conns);
        let wanted = most.saturating_sub(there);
        let slab = RmbSlab::new(&resources.pd, size, generation, wanted)?;
        // Ending the group breaks the queue pair, which ends the registration; that takes `Link::stage`,
        // so it is not held here.
        if let Some(channel) = self.link.sending() {
            if let Some(mr) = slab.key_to_register() {
                self.register(&channel, mr)?;
            }
        }
        let lease = slab.lease().ok_or(ENOMEM)?;
        resources.slabs.push(slab, GFP_KERNEL)?;
        Ok(lease)
    }
}
