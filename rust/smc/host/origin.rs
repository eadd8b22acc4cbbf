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

    /// Returns a number that depends on the address alone.
    pub(crate) fn number(&self) -> u64 {
        let both = u128::from_ne_bytes(self.address);
        both as u64 ^ (both >> 64) as u64
    }
}

/// Number of lists for data of one peer each, so that different peers seldom contend for a lock.
pub(crate) const SHARDS: usize = 16;

/// Returns the list for the peer that `name` identifies, shared with some other peers.
pub(crate) fn shard<T>(lists: &[T; SHARDS], name: u64) -> &T {
    // The exclusive or of all bytes is in the lowest one.
    let sum = name ^ name >> 32;
    let sum = sum ^ sum >> 16;
    let sum = sum ^ sum >> 8;
    // The mask keeps the index in range.
    &lists[sum as usize & (SHARDS - 1)]
}
