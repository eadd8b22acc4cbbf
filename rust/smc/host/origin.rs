// SPDX-License-Identifier: GPL-2.0

//! Peers as TCP knows them: address and network namespace, which a peer cannot make up.

use kapi::net::sock::Sock;

/// The peer of a TCP connection, in which network namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The address, as IPv6.
    pub(crate) address: [u8; 16],
    /// The cookie of the namespace.
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

/// Lists of what concerns one peer each, so that different peers seldom meet.
pub(crate) const SHARDS: usize = 16;

/// Returns the list of a peer, which it shares with some others.
pub(crate) fn shard<'a, T>(lists: &'a [T; SHARDS], name: &[u8]) -> &'a T {
    let sum = name.iter().fold(0, |sum, byte| sum ^ byte);
    // The mask keeps the index in range.
    &lists[usize::from(sum) & (SHARDS - 1)]
}
