// SPDX-License-Identifier: GPL-2.0

//! Peers as TCP knows them: address and network namespace, which a peer cannot forge.

use kapi::net::sock::Sock;

/// The peer of a TCP connection: its address, in our network namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Address of the peer, as IPv6.
    pub(crate) address: [u8; 16],
    /// Cookie of our network namespace.
    pub(crate) namespace: u64,
}

impl Origin {
    /// Returns the peer of a connection.
    pub(crate) fn of(sock: &Sock) -> Self {
        Self {
            address: sock.peer_addr().mapped(),
            namespace: sock.net_cookie(),
        }
    }
}

/// Number of lists for data of one peer each, so that different peers seldom contend for a lock.
pub(crate) const SHARDS: usize = 16;

/// Returns the list for the peer that `name` identifies, shared with some other peers.
pub(crate) fn shard<'a, T>(lists: &'a [T; SHARDS], name: &[u8]) -> &'a T {
    let sum = name.iter().fold(0, |sum, byte| sum ^ byte);
    // The mask keeps the index in range.
    &lists[usize::from(sum) & (SHARDS - 1)]
}
