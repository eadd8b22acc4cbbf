// SPDX-License-Identifier: GPL-2.0

//! The place where the two ends of a connection find each other in this kernel.
//!
//! They are matched by the initial sequence numbers of both directions, which differ between the two
//! connections of a proxy. A host that ends two connections with forged packets could give them the
//! same numbers. So one of the two ends must also have the other's address as its peer's; not both,
//! since one address may have been translated on the way.
//!
//! An end comes here with its first byte to send or receive. So if bytes arrive and no other end has
//! been here, the peer is not a socket of ours.

use super::pair::{Local, Pair};
use crate::host::{
    fallback::Role,
    namespace::Namespace,
    rate_limit::RateLimit,
    sysctl::Sysctl, //
};
use kapi::{
    net::sock::{Shareable, Sock},
    sys::global::Global, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    }, //
};
use smc_proto::reason::Reason;

/// Ends that wait for the other one.
#[pin_data]
pub(crate) struct Rendezvous {
    /// When the kernel log had a line about a connection.
    pub(super) rate_limit: RateLimit,
    #[pin]
    waiting: Mutex<RBTree<u64, Arc<Pair>>>,
}

/// The one [`Rendezvous`], while the module is loaded.
pub(crate) static RENDEZVOUS: Global<Rendezvous> = Global::new();

impl Rendezvous {
    /// Creates the place.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                rate_limit: RateLimit::new(),
                waiting <- new_mutex!(RBTree::new(), "rsmc::Rendezvous::waiting"),
            }),
            GFP_KERNEL,
        )
    }

    /// Finds the pair of the connection `sock`, or waits in a new one for the other end.
    ///
    /// # Errors
    ///
    /// The reason why the connection stays TCP's.
    pub(crate) fn come(
        &self,
        sock: &ARef<Sock>,
        role: Role,
        namespace: &Arc<Namespace>,
    ) -> Result<Local, Reason> {
        if namespace.sysctls.get(Sysctl::PathLocal) == 0 {
            return Err(Reason::PathOff);
        }
        let active = role == Role::Client;
        let numbers = {
            let guard = sock.lock();
            if guard.needs_tcp() {
                return Err(Reason::PathAttached);
            }
            guard.initial_numbers(active)
        };
        if sock.uses_ipsec() || sock.has_packet_programs(sock) || !sock.claim_stream() {
            return Err(Reason::PathAttached);
        }
        let (first, second) = if active {
            (numbers.own, numbers.peer)
        } else {
            (numbers.peer, numbers.own)
        };
        let key = u64::from(first) << 32 | u64::from(second);
        // On an error the caller gives the socket back to TCP.
        let pair = self.join(key, active, sock)?;
        Ok(Local::new(pair, active, sock.clone(), namespace.clone()))
    }

    fn join(&self, key: u64, active: bool, sock: &ARef<Sock>) -> Result<Arc<Pair>, Reason> {
        let none = |_| Reason::NoMemory;
        let shared = Shareable::new(sock.clone()).map_err(none)?;
        let mut found = self.find(key, active, sock)?;
        if found.is_none() {
            let pair = Pair::new(key).map_err(none)?;
            let node = RBTreeNode::new(key, pair.clone(), GFP_KERNEL).map_err(none)?;
            let mut waiting = self.waiting.lock();
            if waiting.get(&key).is_none() {
                pair.end(active).sock.set(shared);
                waiting.insert(node);
                return Ok(pair);
            }
            drop(waiting);
            // It has come meanwhile.
            found = self.find(key, active, sock)?;
        }
        let pair = found.ok_or(Reason::PathElsewhere)?;
        pair.join(active, shared);
        Ok(pair)
    }

    /// Takes the pair in which the other end waits out.
    fn find(&self, key: u64, active: bool, sock: &Sock) -> Result<Option<Arc<Pair>>, Reason> {
        let mut waiting = self.waiting.lock();
        let Some(there) = waiting.get(&key) else {
            return Ok(None);
        };
        // Two clients, or two servers, with the same numbers are no pair: chance, or an attack.
        let other = there.end(!active).sock.with(|other| {
            let near = other.net_cookie() == sock.net_cookie();
            (near, Namespace::of(other), is_peer(sock, other))
        });
        let Some((near, place, peers)) = other else {
            return Err(Reason::PathElsewhere);
        };
        let narrow = |place: Option<Arc<Namespace>>| {
            place.is_none_or(|place| place.sysctls.get(Sysctl::PathLocal) != 2)
        };
        if !near && (narrow(place) || narrow(Namespace::of(sock))) {
            return Err(Reason::PathOff);
        }
        if !peers {
            return Err(Reason::PathElsewhere);
        }
        let node = waiting.remove_node(&key);
        drop(waiting);
        Ok(node.map(|node| node.to_key_value().1))
    }

    /// Removes a pair whose second end has not come. Returns whether it was still there.
    pub(crate) fn leave(&self, pair: &Arc<Pair>) -> bool {
        let mut waiting = self.waiting.lock();
        let mine = waiting
            .get(&pair.key)
            .is_some_and(|there| Arc::ptr_eq(there, pair));
        let node = if mine {
            waiting.remove_node(&pair.key)
        } else {
            None
        };
        drop(waiting);
        drop(node);
        mine
    }
}

/// Tells whether one of two ends has the other's address for that of its peer.
///
/// Only a host on the path between the two could forge that: packets to an address of this machine do not
/// leave it, and packets from such an address are not let in.
fn is_peer(one: &Sock, other: &Sock) -> bool {
    let has = |one: &Sock, other: &Sock| {
        let (peer, own) = (one.peer_addr(), other.local_addr());
        (peer.mapped(), peer.port) == (own.mapped(), own.port)
    };
    has(one, other) || has(other, one)
}
