// SPDX-License-Identifier: GPL-2.0

//! First contacts as server that are under way.
//!
//! The gates are in lists by the peer's network, so that different peers seldom contend for a lock.
//! They share the count of those under way, and a list of the handshakes that wait for a place in it.

use crate::{
    host::{
        peer_addr::{shard, Network, PeerAddr, SHARDS},
        waiter::{with_room, Seat, Waiter, Waiters}, //
    }, //
    smcr::{LinkGroup, LocalPort, SmcrRegistry},
};
use kapi::sys::global::Global;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use smc_proto::group::choice::Key;

/// Most first contacts of one address under way at a time.
const AT_ONCE: usize = 8;
/// Most first contacts under way in all. Once half of them are, each address may have one: a few
/// addresses that let theirs stall do not block all others.
///
/// No namespace of ours has more than it leaves free: half if it is alone, a third if there are two. And no network of
/// a peer has more than is left to its namespace then. So there is always a place for somebody else, however
/// many addresses or containers let theirs stall.
const AT_ONCE_IN_ALL: usize = 64;

/// A first contact that is under way, and the handshakes that wait for its end.
struct FirstContact {
    key: Key,
    /// Local port: a peer with the same addresses in another namespace is another peer.
    port: LocalPort,
    peer_addr: PeerAddr,
    waiters: Waiters,
}

impl FirstContact {
    fn is(&self, key: &Key, port: &LocalPort, peer_addr: PeerAddr) -> bool {
        self.key == *key && self.port.is(port) && self.peer_addr == peer_addr
    }
}

/// The one [`Gates`], while the module is loaded.
pub(crate) static GATES: Global<Gates> = Global::new();

/// A server's way into a group, see [`Gates::enter`].
pub(crate) enum Entry {
    /// A group to join.
    Join(Arc<LinkGroup>),
    /// No group: this is the only handshake that may start one.
    First(Gate),
    /// No group: another handshake has to end before this one may start one.
    Busy,
}

/// The networks of the peers of all first contacts under way, and the handshakes that wait for a place.
struct Places {
    /// At most [`AT_ONCE_IN_ALL`], for which there is room.
    taken: KVec<Network>,
    waiting: Waiters,
}

impl Places {
    /// Takes one more place, if there is one for this network.
    fn take(&mut self, network: Network) -> bool {
        let free = AT_ONCE_IN_ALL.saturating_sub(self.taken.len());
        let of_namespace = |of: &&Network| of.namespace == network.namespace;
        let left = free.saturating_sub(self.taken.iter().filter(of_namespace).count());
        let own = self.taken.iter().filter(|of| **of == network).count();
        own < left && self.taken.push_within_capacity(network).is_ok()
    }

    /// Gives a place back. Returns the handshakes that wait for one.
    fn give_back(&mut self, network: Network) -> Waiters {
        if let Some(at) = self.taken.iter().position(|of| *of == network) {
            let _ = self.taken.remove(at);
        }
        core::mem::take(&mut self.waiting)
    }
}

/// All first contacts that are under way.
#[pin_data]
pub(crate) struct Gates {
    registry: Arc<SmcrRegistry>,
    #[pin]
    lists: [Mutex<KVec<FirstContact>>; SHARDS],
    #[pin]
    places: Mutex<Places>,
}

impl Gates {
    /// Creates the gates, without a first contact under way.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(registry: Arc<SmcrRegistry>) -> Result<Arc<Self>> {
        let taken = KVec::with_capacity(AT_ONCE_IN_ALL, GFP_KERNEL)?;
        let gates = pin_init!(Self {
            registry,
            lists <- pin_init::pin_init_array_from_fn(|_| {
                new_mutex!(KVec::new(), "rsmc::Gates::lists")
            }),
            places <- new_mutex!(
                Places {
                    taken,
                    waiting: Waiters::new(),
                },
                "rsmc::Gates::places"
            ),
        });
        Arc::pin_init(gates, GFP_KERNEL)
    }

    /// Returns the groups that a handshake may join.
    pub(crate) fn registry(&self) -> &Arc<SmcrRegistry> {
        &self.registry
    }

    fn list(&self, peer_addr: PeerAddr) -> &Mutex<KVec<FirstContact>> {
        shard(&self.lists, peer_addr.network().number())
    }

    /// Takes a place, or keeps the waiter until somebody gives one back. Returns whether it was taken, and the memory
    /// that is left.
    fn take_or_wait(&self, network: Network, seat: Seat) -> (bool, Option<Seat>) {
        let mut places = self.places.lock();
        match places.take(network) {
            true => (true, Some(seat)),
            false => (false, places.waiting.add(seat)),
        }
    }

    /// Gives a place back, and has those look again who wait for one.
    fn give_back(&self, network: Network) {
        let waiting = self.places.lock().give_back(network);
        waiting.kick();
    }

    /// Returns the number of first contacts that an address may have under way at present.
    fn most(&self) -> usize {
        if self.places.lock().taken.len() < AT_ONCE_IN_ALL / 2 {
            AT_ONCE
        } else {
            1
        }
    }
}

/// Returns the first contact of the same address to wait for, if a further one may not begin.
fn before<'a>(
    list: &'a mut [FirstContact],
    key: &Key,
    port: &LocalPort,
    peer_addr: PeerAddr,
    most: usize,
) -> Option<&'a mut FirstContact> {
    let same = |busy: &FirstContact| busy.is(key, port, peer_addr);
    let own = |busy: &FirstContact| busy.peer_addr == peer_addr;
    let at = match list.iter().position(same) {
        Some(at) => at,
        None if list.iter().filter(|busy| own(busy)).count() < most => return None,
        None => list.iter().position(own)?,
    };
    list.get_mut(at)
}

/// The exclusive right to first contact with one peer; dropping it lets the others look again.
pub(crate) struct Gate {
    gates: Arc<Gates>,
    key: Key,
    port: LocalPort,
    peer_addr: PeerAddr,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let gates = &self.gates;
        let left = {
            let mut list = gates.list(self.peer_addr).lock();
            let at = list
                .iter()
                .position(|busy| busy.is(&self.key, &self.port, self.peer_addr));
            at.and_then(|at| list.remove(at).ok())
        };
        gates.give_back(self.peer_addr.network());
        if let Some(left) = left {
            left.waiters.kick();
        }
    }
}

impl Gates {
    /// Finds a group to join, or begins the first contact with the peer if no other handshake has.
    /// If one has, `waiter` is kicked at its end, and has to enter again.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &Key,
        port: &LocalPort,
        peer_addr: PeerAddr,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result<Entry> {
        let known = || self.registry.server_group(key, port, peer_addr);
        if let Some(group) = known() {
            return Ok(Entry::Join(group));
        }
        // Memory first: others wait for the locks.
        let seat = Seat::new(waiter())?;
        let (room, mut list) = with_room(self.list(peer_addr))?;
        // Again, now that nobody can leave the gate.
        if let Some(group) = known() {
            return Ok(Entry::Join(group));
        }
        if let Some(busy) = before(&mut list, key, port, peer_addr, self.most()) {
            let left = busy.waiters.add(seat);
            drop(list);
            drop(left);
            return Ok(Entry::Busy);
        }
        let (taken, left) = self.take_or_wait(peer_addr.network(), seat);
        if taken {
            let busy = FirstContact {
                key: *key,
                port: port.clone(),
                peer_addr,
                waiters: Waiters::new(),
            };
            // There is room, so no place is left taken.
            let _ = list.push_within_capacity(busy);
        }
        drop(list);
        drop((left, room));
        if !taken {
            return Ok(Entry::Busy);
        }
        Ok(Entry::First(Gate {
            gates: self.clone(),
            key: *key,
            port: port.clone(),
            peer_addr,
        }))
    }
}
