// SPDX-License-Identifier: GPL-2.0

//! The terms that this host offers and accepts in a handshake.

use crate::host::{
    namespace::Namespace,
    sysctl::Sysctl, //
};
use kapi::{net::sock::Sock, sys::host};
use smc_proto::{
    handshake::Policy,
    wire::{
        clc::Extensions,
        ids::PeerId, //
    }, //
};

/// Returns the terms that this host offers and accepts in a handshake over `sock`.
pub(crate) fn policy(peer_id: PeerId, sock: &Sock) -> Policy {
    let namespace = Namespace::of(sock);
    let name = namespace
        .as_ref()
        .map_or(host::Name::NONE, |here| here.host_name());
    let mut policy = Policy::new(peer_id, name.text());
    if let Some(initial) = Namespace::initial() {
        let eids = initial.eids.of_user();
        if !eids.is_empty() {
            policy.set_eids(&eids);
        }
    }
    if let Some(namespace) = namespace {
        let most = namespace.sysctls.get(Sysctl::MaxConns);
        policy.max_conns = u8::try_from(most).unwrap_or(u8::MAX);
        if namespace.sysctls.get(Sysctl::Immediate) == 0 {
            policy.extensions = Extensions::NONE;
        }
    }
    policy
}
