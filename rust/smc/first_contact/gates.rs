// SPDX-License-Identifier: GPL-2.0

//! First contacts as server that are under way.
//!
//! One address meets only itself and a few others here: the gates are in lists by the address. What
//! all have in common is a number, and who waits while it is at its limit.

use super::{Entry, Origin};
use crate::{
    local::LocalPort,
    shared::{shard, Core, SHARDS},
    talk::Waiter, //
};
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
    waiters: KVec<Waiter>,
}

impl Busy {
    fn is(&self, key: &Key, port: &LocalPort, origin: Origin) -> bool {
        self.key == *key && self.port.is(port) && self.origin == origin
    }
}

/// All first contacts that are under way.
#[pin_data]
pub(crate) struct Gates {
    #[pin]
    lists: [Mutex<KVec<Busy>>; SHARDS],
    /// How many there are, at most [`AT_ONCE_IN_ALL`].
    under_way: Atomic<u32>,
    /// Who found that there are as many as there may be. Taken only then.
    #[pin]
    crowd: Mutex<KVec<Waiter>>,
}

impl Gates {
    /// None is under way.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            lists <- pin_init::pin_init_array_from_fn(|_| {
                new_mutex!(KVec::new(), "rsmc::Gates::lists")
            }),
            under_way: Atomic::new(0),
            crowd <- new_mutex!(KVec::new(), "rsmc::Gates::crowd"),
        })
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
    fn count_or_wait(&self, waiter: &dyn Fn() -> Waiter) -> Result<bool> {
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
            crowd.iter().for_each(Waiter::kick);
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

fn add(waiters: &mut KVec<Waiter>, waiter: Waiter) -> Result {
    if !waiters.iter().any(|other| other.is(&waiter)) {
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
    core: Arc<Core>,
    key: Key,
    port: LocalPort,
    origin: Origin,
}

impl Drop for Gate {
    fn drop(&mut self) {
        let gates = &self.core.gates;
        let left = {
            let mut list = gates.list(self.origin).lock();
            let at = list
                .iter()
                .position(|busy| busy.is(&self.key, &self.port, self.origin));
            at.and_then(|at| list.remove(at).ok())
        };
        gates.discount();
        if let Some(left) = left {
            left.waiters.iter().for_each(Waiter::kick);
        }
    }
}

impl Core {
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
        waiter: &dyn Fn() -> Waiter,
    ) -> Result<Entry> {
        let known = || self.server_group(key, port, origin);
        if let Some(group) = known() {
            return Ok(Entry::Join(group));
        }
        let mut list = self.gates.list(origin).lock();
        // Again, now that nobody can leave the gate.
        if let Some(group) = known() {
            return Ok(Entry::Join(group));
        }
        if let Some(busy) = before(&mut list, key, port, origin, self.gates.most()) {
            add(&mut busy.waiters, waiter())?;
            return Ok(Entry::Busy);
        }
        list.reserve(1, GFP_KERNEL)?;
        if !self.gates.count_or_wait(waiter)? {
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
            core: self.clone(),
            key: *key,
            port: port.clone(),
            origin,
        }))
    }
}
