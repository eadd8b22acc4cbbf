// SPDX-License-Identifier: GPL-2.0

//! Who may start a link group, and how many a peer may have.
//!
//! A group costs nearly a megabyte before the peer has proved anything, and what tells peers apart
//! is what they say of themselves. So what one address may begin at a time, and may keep, is
//! limited; whoever finds a limit waits or gets plain TCP, and the groups of others stay.

use crate::{group::LinkGroup, local::LocalPort, shared::Core, talk::Waiter};
use kapi::net::sock::Sock;
use kernel::{prelude::*, sync::Arc};
use smc_proto::{group::choice::Key, time::Instant};

/// First contacts as server that one address may have under way.
const AT_ONCE: usize = 8;
/// First contacts as server that may be under way in all. Of the second half of them each address
/// may have one: a few that let theirs stand still do not keep all others waiting.
pub(crate) const AT_ONCE_IN_ALL: usize = 64;
/// Groups without a connection that are kept for one address.
const IDLE: u32 = 8;
/// Groups of one address.
const GROUPS: u32 = 256;

/// Whom we have a TCP connection with, in which network namespace: all that a peer cannot make up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    address: [u8; 16],
    /// The cookie of the namespace.
    pub(crate) namespace: u64,
}

impl Origin {
    /// The peer of a connection.
    pub(crate) fn of(sock: &Sock) -> Self {
        Self {
            address: sock.peer_addr().mapped(),
            namespace: sock.net_cookie(),
        }
    }
}

/// A first contact that is under way, and the handshakes that wait for its end.
pub(crate) struct Busy {
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

/// What [`Core::enter`] has found.
pub(crate) enum Entry {
    /// A group to join.
    Join(Arc<LinkGroup>),
    /// There is none, and this is the only handshake that may start one.
    First(Gate),
    /// There is none, and another handshake has to end before this one may start one.
    Busy,
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
        let left = {
            let mut gates = self.core.gates.lock();
            let at = gates
                .iter()
                .position(|busy| busy.is(&self.key, &self.port, self.origin));
            at.and_then(|at| gates.remove(at).ok())
        };
        if let Some(left) = left {
            for waiter in &left.waiters {
                waiter.kick();
            }
        }
    }
}

/// The first contact to wait for, if a further one may not begin.
fn before<'a>(
    gates: &'a mut [Busy],
    key: &Key,
    port: &LocalPort,
    origin: Origin,
) -> Option<&'a mut Busy> {
    let same = |busy: &Busy| busy.is(key, port, origin);
    let most = if gates.len() < AT_ONCE_IN_ALL / 2 {
        AT_ONCE
    } else {
        1
    };
    let at = match gates.iter().position(same) {
        Some(at) => at,
        None if gates.iter().filter(|busy| busy.origin == origin).count() >= most => {
            gates.iter().position(|busy| busy.origin == origin)?
        }
        None if gates.len() >= AT_ONCE_IN_ALL => 0,
        None => return None,
    };
    gates.get_mut(at)
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
        waiter: Waiter,
    ) -> Result<Entry> {
        if let Some(group) = self.server_group(key, port, origin) {
            return Ok(Entry::Join(group));
        }
        let mut gates = self.gates.lock();
        // Again, now that nobody can leave the gate.
        if let Some(group) = self.server_group(key, port, origin) {
            return Ok(Entry::Join(group));
        }
        if let Some(busy) = before(&mut gates, key, port, origin) {
            if !busy.waiters.iter().any(|other| other.is(&waiter)) {
                busy.waiters.push(waiter, GFP_KERNEL)?;
            }
            return Ok(Entry::Busy);
        }
        let busy = Busy {
            key: *key,
            port: port.clone(),
            origin,
            waiters: KVec::new(),
        };
        gates.push(busy, GFP_KERNEL)?;
        Ok(Entry::First(Gate {
            core: self.clone(),
            key: *key,
            port: port.clone(),
            origin,
        }))
    }

    /// Whether there may be one more group with this peer. If it has many without a connection, the
    /// one that has had none for longest ends soon.
    pub(crate) fn admits(&self, origin: Origin) -> bool {
        let (mut all, mut idle) = (0u32, 0u32);
        let mut longest: Option<(Instant, u32)> = None;
        self.each_group(|group| {
            if group.origin != origin {
                return;
            }
            all = all.saturating_add(1);
            let Some(since) = group.idle_since() else {
                return;
            };
            idle = idle.saturating_add(1);
            if longest.as_ref().is_none_or(|(first, _)| since < *first) {
                longest = Some((since, group.id));
            }
        });
        if let Some((_, id)) = longest.filter(|_| idle > IDLE) {
            let group = self.group_after(u64::from(id).saturating_sub(1));
            if let Some(group) = group.filter(|group| group.id == id) {
                group.retire();
            }
        }
        all < GROUPS
    }
}
