// SPDX-License-Identifier: GPL-2.0

//! The terms that this host offers and accepts in a handshake.

use crate::host::{
    eid,
    namespace::Namespace,
    sysctl::Sysctl, //
};
use kapi::{net::sock::Sock, sys::host};
use smc_proto::{
    handshake::Policy,
    wire::{
        clc::{Eid, Extensions},
        ids::PeerId, //
    }, //
};

/// Most EIDs that a proposal names.
const EIDS: usize = 8;

/// Returns the terms that this host offers and accepts in a handshake over `sock`.
pub(crate) fn policy(peer_id: PeerId, sock: &Sock) -> Policy {
    let mut policy = Policy::new(peer_id, host::name().text());
    let mut eids = [Eid::NONE; EIDS];
    let mut count = 0usize;
    for (place, eid) in eids.iter_mut().zip(offered()) {
        *place = eid;
        count = count.saturating_add(1);
    }
    policy.set_eids(eids.get(..count).unwrap_or(&[]));
    if let Some(namespace) = Namespace::of(sock) {
        let most = namespace.sysctls.get(Sysctl::MaxConns);
        policy.max_conns = u8::try_from(most).unwrap_or(u8::MAX);
        if namespace.sysctls.get(Sysctl::Immediate) == 0 {
            policy.extensions = Extensions::NONE;
        }
    }
    policy
}

/// Returns the ids to offer, in order of preference: the user's, then the built-in one.
fn offered() -> impl Iterator<Item = Eid> {
    let initial = Namespace::initial();
    (0..=eid::MAX).map_while(move |at| initial.as_ref()?.eids.at(at))
}
