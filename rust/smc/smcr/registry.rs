// SPDX-License-Identifier: GPL-2.0

//! The module's singleton: its peer ID, the RDMA devices, and the link groups over them.

mod drains;
mod lanes;

use super::{
    devices::Devices,
    group::{LinkGroup, Owner},
    port::LocalPort, //
};
use crate::host::{
    peer_addr::{shard, PeerAddr, SHARDS},
    rate_limit::RateLimit,
    waiter, //
};
use kapi::{
    rdma::{
        client::{ClientOps, Event},
        device::Device, //
    },
    sys::{clock, global::Global, shrinker}, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex,
        MutexGuard, //
    }, //
};
use smc_proto::{
    group::{
        choice::{client_choice, server_joins, ClientChoice, Key},
        EndReason, //
    },
    llc::link::LinkEnd,
    reason::Reason,
    wire::ids::PeerId, //
};

/// The one [`SmcrRegistry`], while the module is loaded.
pub(crate) static SMCR: Global<SmcrRegistry> = Global::new();

/// The module's devices and link groups.
#[pin_data]
pub(crate) struct SmcrRegistry {
    /// Peer ID of this load of the module, random, by which peers tell it apart.
    pub(crate) peer_id: PeerId,
    #[pin]
    pub(crate) devices: Devices,
    /// Link groups, in lists by a hash of the peer ID, so that handshakes with different peers
    /// seldom contend for a lock.
    #[pin]
    groups: [Mutex<KVec<Arc<LinkGroup>>>; SHARDS],
    /// Number of the newest group.
    last_id: Atomic<u32>,
    rate_limit: RateLimit,
}

impl SmcrRegistry {
    /// Creates a registry without devices or groups.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let mut id = [0; 8];
        clock::random(&mut id);
        Arc::pin_init(
            pin_init!(Self {
                peer_id: PeerId(id),
                devices <- Devices::new(),
                groups <- pin_init::pin_init_array_from_fn(|_| {
                    new_mutex!(KVec::new(), "rsmc::SmcrRegistry::groups")
                }),
                last_id: Atomic::new(0),
                rate_limit: RateLimit::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Locks the list that has the groups with `peer`, and some with other peers.
    fn groups(&self, peer: &PeerId) -> MutexGuard<'_, KVec<Arc<LinkGroup>>> {
        self.list(peer).lock()
    }

    fn list(&self, peer: &PeerId) -> &Mutex<KVec<Arc<LinkGroup>>> {
        shard(&self.groups, u64::from_ne_bytes(peer.0))
    }

    /// Returns the group that a server's new connection joins. The key is only what the client
    /// claims, so the group must also have been begun from the same address (`peer_addr`): only that
    /// host may use, and end, what belongs to the peer.
    pub(crate) fn server_group(
        &self,
        key: &Key,
        port: &LocalPort,
        peer_addr: PeerAddr,
    ) -> Option<Arc<LinkGroup>> {
        self.groups(&key.peer_id)
            .iter()
            .find(|group| {
                group.peer_addr == peer_addr
                    && group.link.is_on(port)
                    && !group.is_lost()
                    && server_joins(key, &group.candidate())
            })
            .cloned()
    }

    /// Returns the group that a client's new connection joins, by the link that the server names.
    /// The group must use `port` and must have been begun with the same address: a server must not
    /// reach a group of another namespace or of another host.
    ///
    /// # Errors
    ///
    /// The reason of the decline, when there is no such group or link.
    pub(crate) fn client_group(
        &self,
        key: &Key,
        wanted: &LinkEnd,
        port: &LocalPort,
        peer_addr: PeerAddr,
    ) -> Result<Arc<LinkGroup>, Reason> {
        let groups = self.groups(&key.peer_id);
        let mut reason = Reason::SyncError;
        let known = |group: &&Arc<LinkGroup>| {
            group.link.is_on(port) && !group.is_lost() && group.candidate().key.is_same_peer(key)
        };
        for group in groups.iter().filter(known) {
            if group.peer_addr != peer_addr {
                // It says nothing against the group, which a decline out of sync would end if this
                // is another address of the same host.
                reason = Reason::NoServerLink;
                continue;
            }
            let link = group.link_end();
            match client_choice(false, key.version, wanted, Some(&[link])) {
                ClientChoice::Join(_) => return Ok(group.clone()),
                // Two hosts of ours may have several groups. One with another link says nothing of the one that the
                // server means; one whose link cannot be told at present may be that.
                ClientChoice::Decline(_) if link.is_some() && group.is_with_us() => (),
                ClientChoice::Decline(why) => reason = why,
                ClientChoice::FirstContact => (),
            }
        }
        Err(reason)
    }

    /// Adds a group to the list of its peer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add_group(&self, group: &Arc<LinkGroup>) -> Result {
        waiter::push(self.list(&group.peer_id), group.clone())
    }

    /// Returns the group with the lowest number above `last`.
    pub(crate) fn group_after(&self, last: u64) -> Option<Arc<LinkGroup>> {
        let mut next: Option<Arc<LinkGroup>> = None;
        for groups in &self.groups {
            let here = {
                let groups = groups.lock();
                let later = groups.iter().filter(|group| u64::from(group.id) > last);
                later.min_by_key(|group| group.id).cloned()
            };
            // Outside of the lock: this may drop the last reference to a group.
            next = match (next, here) {
                (Some(next), Some(here)) if next.id < here.id => Some(next),
                (next, here) => here.or(next),
            };
        }
        next
    }

    /// Returns the group with this number.
    pub(crate) fn group(&self, id: u32) -> Option<Arc<LinkGroup>> {
        let next = self.group_after(u64::from(id).saturating_sub(1));
        next.filter(|group| group.id == id)
    }

    /// Returns the number of links over a port.
    pub(crate) fn links_on(&self, device: &Arc<Device>, port: u32) -> u32 {
        let mut links = 0u32;
        self.each_group(|group| {
            let there = group.link.uses(device) && group.link.port() == port;
            links = links.saturating_add(u32::from(there));
        });
        links
    }

    /// Tells whether a group with this peer is held because of its port, which may be back soon.
    pub(crate) fn holds_group_of(&self, peer_addr: PeerAddr) -> bool {
        let mut held = false;
        self.each_group(|group| held |= group.peer_addr == peer_addr && group.is_held());
        held
    }

    /// Tells whether a link with this peer, which this host has begun, is worse than TCP.
    pub(crate) fn has_worse_link_with(&self, peer_addr: PeerAddr) -> bool {
        let mut worse = false;
        self.each_group(|group| worse |= group.peer_addr == peer_addr && group.is_worse());
        worse
    }

    /// Returns a number for a new group, from 1.
    pub(crate) fn next_group_id(&self) -> u32 {
        self.last_id.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Calls `f` for every group, with its list locked: `f` must not drop a group.
    pub(crate) fn each_group(&self, mut f: impl FnMut(&Arc<LinkGroup>)) {
        for groups in &self.groups {
            groups.lock().iter().for_each(&mut f);
        }
    }

    /// Ends older groups whose link leads to the queue pair number that the peer uses for `group`:
    /// since the number was reused they are over, even if no error has said so, and must not be
    /// joined in place of `group`. Not to be called before the peer has been heard on the link:
    /// anybody can name a queue pair. Sleeps.
    pub(crate) fn supersede(&self, group: &LinkGroup) {
        let Some(peer) = group.peer_end() else {
            return;
        };
        self.end_groups(
            |other| !core::ptr::eq(other, group) && other.leads_to(group, &peer),
            EndReason::LinkLost,
        );
    }

    /// Ends every group for which `which` returns true, and waits for their ends.
    pub(crate) fn end_groups(&self, which: impl Fn(&LinkGroup) -> bool, reason: EndReason) {
        let mut last = 0;
        let mut found = false;
        loop {
            match self.group_after(last) {
                Some(group) => {
                    last = u64::from(group.id);
                    if which(&group) {
                        group.end(reason);
                        self.forget(&group);
                        found = true;
                    }
                }
                // Numbers are given before groups become known: an older one may have come.
                None if found => (last, found) = (0, false),
                None => break,
            }
        }
    }
}

impl Owner for SmcrRegistry {
    fn forget(&self, group: &LinkGroup) {
        let removed = {
            let mut groups = self.groups(&group.peer_id);
            let at = groups
                .iter()
                .position(|other| core::ptr::eq(&**other, group));
            at.and_then(|at| groups.remove(at).ok())
        };
        drop(removed);
    }

    fn shed_drain(&self, namespace: u64) -> bool {
        self.shed(namespace)
    }

    fn rate_limit(&self) -> &RateLimit {
        &self.rate_limit
    }
}

/// Only tries the locks of the lists, since the allocation that runs the shrinker may hold one:
/// groups of a locked list keep their spare memory.
impl shrinker::Spare for SmcrRegistry {
    fn count(&self) -> usize {
        let lists = self.groups.iter().filter_map(|groups| groups.try_lock());
        lists.fold(0, |sum: usize, groups| {
            let pages = groups.iter().map(|group| group.spare_pages());
            sum.saturating_add(pages.fold(0, usize::saturating_add))
        })
    }

    fn give_back(&self, wanted: usize) -> usize {
        let mut freed = 0usize;
        for groups in self.groups.iter().filter_map(|groups| groups.try_lock()) {
            for group in groups.iter() {
                let left = wanted.saturating_sub(freed);
                if left == 0 {
                    return freed;
                }
                freed = freed.saturating_add(group.shrink(left));
            }
        }
        freed
    }
}

/// Handler of the RDMA core's device events.
pub(crate) struct Hotplug(pub(crate) Arc<SmcrRegistry>);

impl ClientOps for Hotplug {
    fn add(&self, device: &Arc<Device>) -> Result {
        self.0.devices.add(device)
    }

    fn remove(&self, device: &Arc<Device>) {
        self.0.devices.remove(device);
        self.0
            .end_groups(|group| group.link.uses(device), EndReason::LinkLost);
    }

    /// Holds the groups of a port that has failed, perhaps for a moment, and releases them when it is back. Those of a
    /// device that has failed send nothing any more. Ending groups takes long, and the RDMA core, which holds the lock
    /// of its GID table meanwhile, has other clients to call: each group ends by itself later.
    fn event(&self, device: &Arc<Device>, event: Event) {
        let act = |group: &Arc<LinkGroup>| match event {
            Event::DeviceFatal => group.lose(),
            Event::PortError(port) | Event::PortActive(port) | Event::GidChange(port)
                if group.link.port() == port =>
            {
                // The event comes late: the port may be another than it says, and the group newer than that.
                match group.link.has_active_port() && group.link.has_gid() {
                    true => group.release(),
                    false => group.hold(),
                }
            }
            _ => (),
        };
        self.0.each_group(|group| {
            if group.link.uses(device) {
                act(group);
            }
        });
    }
}
