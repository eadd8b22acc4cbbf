// SPDX-License-Identifier: GPL-2.0

//! The connections of a group, and the buffers that they have of it.

use super::{
    super::slab::{Lease, RmbSlab},
    tx_scheduler::Token,
    LinkGroup,
    Resources,
    SmcConn,
    QUARANTINE_MAX,
    QUARANTINE_MAX_CLIENT, //
};
use crate::host::{
    clock::now,
    waiter::{has_room, Room, Seat, Waiter}, //
};
use kapi::{errno, rdma::pd::Pd};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Relaxed, Release},
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
    /// Tells whether the group has so many buffers in quarantine that it is to end.
    pub(super) fn is_quarantine_full(&self) -> bool {
        self.quarantined.load(Relaxed) >= QUARANTINE_MAX
    }

    /// Counts a buffer that was quarantined ([`Lease::quarantine`]).
    pub(crate) fn count_quarantined(self: &Arc<Self>) {
        self.quarantined.fetch_add(1, Relaxed);
        if self.is_quarantine_full() {
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

    /// Takes an index and a token for a new connection; `None` if the group is full or ending.
    pub(crate) fn reserve(&self) -> Option<(AlertToken, u8)> {
        let mut state = self.state.lock();
        let quarantined = self.quarantined.load(Relaxed);
        let room = match state.proto.terms().key.role {
            Role::Server => u32::from(state.proto.candidate().room),
            Role::Client => QUARANTINE_MAX_CLIENT,
        };
        if quarantined >= room {
            return None;
        }
        state.proto.add_conn()
    }

    /// Gives an index back that no connection has come to use.
    pub(crate) fn unreserve(&self, token: AlertToken) {
        self.state.lock().proto.remove_conn(token, now());
        self.rearm();
    }

    /// Makes a connection known to incoming messages, and to the end of the group.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` when the group has ended meanwhile, of which the connection will not hear otherwise.
    pub(crate) fn insert_conn(&self, conn: &Arc<SmcConn>) -> Result {
        self.conns.insert(conn);
        // `finish` sets the mark before it looks for connections.
        if self.ended.load(Acquire) != 0 {
            return Err(errno::ECONNABORTED.into());
        }
        Ok(())
    }

    /// Takes a receive buffer of `size`, from a new slab if need be. `None` while the group gets one,
    /// which may take as long as the peer lets its link stand still: `waiter` is kicked at the end of that, and
    /// has to ask again. Sleeps, but not for the device's queue or the peer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, `ENOTCONN` when the link is lost, the driver's.
    pub(crate) fn lease(
        self: &Arc<Self>,
        size: RingSize,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result<Option<Lease>> {
        if self.is_lost() {
            return Err(errno::ENOTCONN.into());
        }
        // Memory that is missing is allocated without the lock, which others wait for, and then all is asked again.
        let (mut seat, mut room): (Option<Seat>, Option<Room<Arc<RmbSlab>>>) = (None, None);
        let (pd, generation, there) = loop {
            let mut guard = self.resources.lock();
            let resources: &mut Resources = (*guard).as_mut().ok_or(ENODEV)?;
            if let Some(room) = &mut room {
                room.take(&mut resources.slabs);
            }
            let mut generation = 0u32;
            let mut there = 0u32;
            for slab in resources.slabs.iter().filter(|slab| slab.size() == size) {
                if let Some(lease) = slab.lease() {
                    return Ok(Some(lease));
                }
                generation = generation.saturating_add(1);
                there = there.saturating_add(slab.in_service());
            }
            // The place in the group is held meanwhile, so there are at most 255 who wait.
            if resources.growing {
                let Some(own) = seat.take() else {
                    drop(guard);
                    seat = Some(Seat::new(waiter())?);
                    continue;
                };
                let left = resources.waiters.add(own);
                drop(guard);
                drop(left);
                return Ok(None);
            }
            if !has_room(&resources.slabs) {
                let len = resources.slabs.len();
                drop(guard);
                room = Some(Room::beyond(len)?);
                continue;
            }
            resources.growing = true;
            break (resources.pd.clone(), generation, there);
        };
        let most = u32::from(self.state.lock().proto.terms().max_conns);
        let leased = self.grow(&pd, size, generation, most.saturating_sub(there), waiter);
        if !matches!(leased, Ok(None)) {
            self.grown();
        }
        leased
    }

    /// Makes a slab, without locks. Returns a buffer of it, or `None` if its key is registered first. Nobody
    /// else makes one until [`LinkGroup::grown`].
    fn grow(
        self: &Arc<Self>,
        pd: &Arc<Pd>,
        size: RingSize,
        generation: u32,
        wanted: u32,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result<Option<Lease>> {
        // Before the link sends, whoever lets it registers all keys there are.
        let channel = self.link.sending();
        let slab = RmbSlab::new(pd, size, generation, wanted, channel.is_none())?;
        let lease = slab.lease();
        let key = match &channel {
            Some(channel) => Some(channel.prepare_key(slab.mr(), Token::Key(slab.clone()))?),
            None => None,
        };
        let seat = match key {
            Some(_) => Some(Seat::new(waiter())?),
            None => None,
        };
        {
            let mut guard = self.resources.lock();
            let resources: &mut Resources = (*guard).as_mut().ok_or(ENODEV)?;
            if let Some(seat) = seat {
                // Nobody has waited for this slab yet, but it may be the same handshake that asks again.
                let _ = resources.waiters.add(seat);
            }
            // There is room for it.
            let _ = resources.slabs.push_within_capacity(slab);
            self.count_slabs(resources);
        }
        let Some(key) = key else {
            return Ok(Some(lease.ok_or(ENOMEM)?));
        };
        self.state.lock().proto.registers(now());
        self.rearm();
        self.register_later(key);
        // The end of the group sets its mark before it looks for one.
        if self.ended.load(Acquire) != 0 {
            self.drop_key();
        }
        Ok(None)
    }

    /// Has the group's work call [`LinkGroup::grown`]. Any context.
    pub(super) fn slab_made(self: &Arc<Self>) {
        self.made.store(1, Release);
        self.kick();
    }

    /// The group has got its slab, or has not: those who wait look again. Sleeps.
    pub(super) fn grown(&self) {
        self.state.lock().proto.registered();
        let waiters = match &mut *self.resources.lock() {
            Some(resources) => {
                resources.growing = false;
                core::mem::take(&mut resources.waiters)
            }
            None => return,
        };
        waiters.kick();
    }

    /// Notes how much memory the slabs have, for who must not wait for `resources`.
    pub(super) fn count_slabs(&self, resources: &Resources) {
        let both = [&resources.slabs, &resources.leaving];
        let slabs = both.into_iter().flatten();
        let bytes = slabs.fold(0, |sum: u64, slab| sum.saturating_add(slab.bytes()));
        self.recv_bytes.store(bytes, Relaxed);
    }
}
