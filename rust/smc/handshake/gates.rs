// SPDX-License-Identifier: GPL-2.0

//! First contacts as server that are under way.
//!
//! One address meets only itself and a few others here: the gates are in lists by the address. What
//! all have in common is a number, and who waits while it is at its limit.

use crate::{
    carrier::{Core, LinkGroup, LocalPort},
    host::{
        origin::{shard, Origin, SHARDS},
        waiter::{is_same, Waiter}, //
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

/// First contacts that one address may have under way.
const AT_ONCE: usize = 8;
/// First contacts that may be under way in all. Of the second half of them each address may have
/// one: a few that let theirs stand still do not keep all others waiting.
const AT_ONCE_IN_ALL: u32 = 64;

/// A first contact that is under way, and the handshakes that wait for its end.
struct Busy {
    key: Key,
    /// Where it is; a peer with the same addresses in another namespace is another peer.
    port: LocalPort,
    origin: Origin,
    waiters: KVec<Arc<dyn Waiter>>,
}

impl Busy {
    fn is(&self, key: &Key, port: &LocalPort, origin: Origin) -> bool {
        self.key == *key && self.port.is(port) && self.origin == origin
    }
}

/// Where everybody finds the one [`Gates`].
pub(crate) static GATES: Global<Gates> = Global::new();

/// A server's way into a group.
pub(crate) enum Entry {
    /// A group to join.
    Join(Arc<LinkGroup>),
    /// There is none, and this is the only handshake that may start one.
    First(Gate),
    /// There is none, and another handshake has to end before this one may start one.
    Busy,
}

/// All first contacts that are under way.
#[pin_data]
pub(crate) struct Gates {
    core: Arc<Core>,
    #[pin]
    lists: [Mutex<KVec<Busy>>; SHARDS],
    /// How many there are, at most [`AT_ONCE_IN_ALL`].
    under_way: Atomic<u32>,
    /// Who found that there are as many as there may be. Taken only then.
    #[pin]
    crowd: Mutex<KVec<Arc<dyn Waiter>>>,
}

impl Gates {
    /// None is under way.
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

    fn list(&self, origin: Origin) -> &Mutex<KVec<Busy>> {
        shard(&self.lists, &origin.address)
    }

    /// Whether there was room for one more. It is counted.
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

    /// Counts one more, or keeps `waiter` until there may be one more. Whether it is counted.
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

    /// Counts one less.
    fn discount(&self) {
        if self.under_way.fetch_sub(1, Relaxed) == AT_ONCE_IN_ALL {
            let crowd = core::mem::take(&mut *self.crowd.lock());
            crowd.into_iter().for_each(Waiter::kick);
        }
    }

    /// How many first contacts an address may have under way just now.
    fn most(&self) -> usize {
        if self.under_way.load(Relaxed) < AT_ONCE_IN_ALL / 2 {
            AT_ONCE
        } else {
            1
        }
    }
}

fn add(waiters: &mut KVec<Arc<dyn Waiter>>, waiter: Arc<dyn Waiter>) -> Result {
    if !waiters.iter().any(|other| is_same(other, &waiter)) {
        waiters.push(waiter, GFP_KERNEL)?;
    }
    Ok(())
}

/// The first contact of the same address to wait for, if a further one may not begin.
fn before<'a>(
    list: &'a mut [Busy],
    key: &Key,
    port: &LocalPort,
    origin: Origin,
    most: usize,
) -> Option<&'a mut Busy> {
    let same = |busy: &Busy| busy.is(key, port, origin);
    let own = |busy: &Busy| busy.origin == origin;
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
    /// A server's way into a group: join one, or begin the first contact with the peer if nobody
    /// else is at it. If somebody is, `waiter` is kicked at its end, and has to enter again.
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
        let busy = Busy {
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
