// SPDX-License-Identifier: GPL-2.0

//! First contacts as server that are under way.
//!
//! The gates are in lists by the peer's address, so that different peers seldom contend for a lock.
//! They share one count, and a list of the handshakes that wait while the count is at its limit.

use crate::{
    carrier::{Core, LinkGroup, LocalPort},
    host::{
        origin::{shard, Origin, SHARDS},
        waiter::{add, Waiter}, //
    }, //
};
use kapi::sys::global::Global;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex, //
    }, //
};
use smc_proto::group::choice::Key;

/// Most first contacts of one address under way at a time.
const AT_ONCE: usize = 8;
/// Most first contacts under way in all. Once half of them are, each address may have one: a few
/// addresses that let theirs stall do not block all others.
const AT_ONCE_IN_ALL: u32 = 64;

/// A first contact that is under way, and the handshakes that wait for its end.
struct FirstContact {
    key: Key,
    /// Local port: a peer with the same addresses in another namespace is another peer.
    port: LocalPort,
    origin: Origin,
    waiters: KVec<Arc<dyn Waiter>>,
}

impl FirstContact {
    fn is(&self, key: &Key, port: &LocalPort, origin: Origin) -> bool {
        self.key == *key && self.port.is(port) && self.origin == origin
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

/// All first contacts that are under way.
#[pin_data]
pub(crate) struct Gates {
    core: Arc<Core>,
    #[pin]
    lists: [Mutex<KVec<FirstContact>>; SHARDS],
    /// Number of first contacts under way, at most [`AT_ONCE_IN_ALL`].
    under_way: Atomic<u32>,
    /// Handshakes that wait because that limit is reached. Locked only then.
    #[pin]
    crowd: Mutex<KVec<Arc<dyn Waiter>>>,
}

impl Gates {
    /// Creates the gates, without a first contact under way.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(core: Arc<Core>) -> Result<Arc<Self>> {
        let gates = pin_init!(Self {
            core,
            lists <- pin_init::pin_init_array_from_fn(|_| {
                new_mutex!(KVec::new(), "rsmc::Gates::lists")
            }),
            under_way: Atomic::new(0),
            crowd <- new_mutex!(KVec::new(), "rsmc::Gates::crowd"),
        });
        Arc::pin_init(gates, GFP_KERNEL)
    }

    /// Returns the groups that a handshake may join.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn list(&self, origin: Origin) -> &Mutex<KVec<FirstContact>> {
        shard(&self.lists, origin.network().number())
    }

    /// Counts one more first contact; returns false at the limit.
    fn count(&self) -> bool {
        let mut seen = self.under_way.load(Relaxed);
        while seen < AT_ONCE_IN_ALL {
            match self.under_way.cmpxchg(seen, seen.wrapping_add(1), Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Counts one more first contact, or keeps `waiter` until there is room. Returns whether it was
    /// counted.
    fn count_or_wait(&self, waiter: &dyn Fn() -> Arc<dyn Waiter>) -> Result<bool> {
        if self.count() {
            return Ok(true);
        }
        let mut crowd = self.crowd.lock();
        // Again, under the lock: whoever makes room from now on finds the waiter.
        if self.count() {
            return Ok(true);
        }
        add(&mut crowd, waiter())?;
        Ok(false)
    }

    /// Counts one first contact less, and kicks the waiters if the limit was reached.
    fn discount(&self) {
        if self.under_way.fetch_sub(1, Relaxed) == AT_ONCE_IN_ALL {
            let crowd = core::mem::take(&mut *self.crowd.lock());
            crowd.into_iter().for_each(Waiter::kick);
        }
    }

    /// Returns the number of first contacts that an address may have under way at present.
    fn most(&self) -> usize {
        if self.under_way.load(Relaxed) < AT_ONCE_IN_ALL / 2 {
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
    origin: Origin,
    most: usize,
) -> Option<&'a mut FirstContact> {
    let same = |busy: &FirstContact| busy.is(key, port, origin);
    let own = |busy: &FirstContact| busy.origin == origin;
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
    origin: Origin,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let gates = &self.gates;
        let left = {
            let mut list = gates.list(self.origin).lock();
            let at = list
                .iter()
                .position(|busy| busy.is(&self.key, &self.port, self.origin));
            at.and_then(|at| list.remove(at).ok())
        };
        gates.discount();
        if let Some(left) = left {
            left.waiters.into_iter().for_each(Waiter::kick);
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
        origin: Origin,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result<Entry> {
        let known = || self.core.server_group(key, port, origin);
        if let Some(group) = known() {
            return Ok(Entry::Join(group));
        }
        let mut list = self.list(origin).lock();
        // Again, now that nobody can leave the gate.
        if let Some(group) = known() {
            return Ok(Entry::Join(group));
        }
        if let Some(busy) = before(&mut list, key, port, origin, self.most()) {
            add(&mut busy.waiters, waiter())?;
            return Ok(Entry::Busy);
        }
        list.reserve(1, GFP_KERNEL)?;
        if !self.count_or_wait(waiter)? {
            return Ok(Entry::Busy);
        }
        let busy = FirstContact {
            key: *key,
            port: port.clone(),
            origin,
            waiters: KVec::new(),
        };
        // There is room, so nothing is left counted.
        let _ = list.push_within_capacity(busy);
        Ok(Entry::First(Gate {
            gates: self.clone(),
            key: *key,
            port: port.clone(),
            origin,
        }))
    }
}
