// SPDX-License-Identifier: GPL-2.0

//! Peers as TCP knows them: address and network namespace, which a peer cannot forge.

use kapi::net::sock::Sock;

/// The peer of a TCP connection: its address, in our network namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerAddr {
    /// Address of the peer, as IPv6.
    pub(crate) address: [u8; 16],
    /// Cookie of our network namespace.
    pub(crate) namespace: u64,
}

impl PeerAddr {
    /// Returns the peer of a connection.
    pub(crate) fn of(sock: &Sock) -> Self {
        Self {
            address: sock.peer_addr().mapped(),
            namespace: sock.net_cookie(),
        }
    }

    /// Returns a number that cannot be predicted without the secret.
    pub(crate) fn hash(&self, secret: u64) -> u64 {
        hash(u128::from_be_bytes(self.address), self.namespace, secret)
    }

    /// Returns the network that the peer belongs to.
    pub(crate) fn network(&self) -> Network {
        Network::of(self.address, self.namespace)
    }
}

/// What limits count: an address of IPv4, or all addresses of IPv6 that one host may have, which are those with
/// the same first 64 bits (RFC 4291, section 2.5.4; RFC 7934 has networks give each host many of them).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// The address as IPv6, or its first half and zeros.
    address: u128,
    /// Cookie of our network namespace.
    pub(crate) namespace: u64,
}

impl Network {
    /// Prefixes of IPv6 whose last 32 bits are an address of IPv4: mapped ones, and NAT64 (RFC 6052).
    const OF_IPV4: [u128; 2] = [0xffff << 32, 0x0064_ff9b << 96];

    /// Returns the network of an address, which is in this form of IPv6.
    pub(crate) fn of(address: [u8; 16], namespace: u64) -> Self {
        let address = u128::from_be_bytes(address);
        let address = match Self::OF_IPV4.contains(&(address >> 32 << 32)) {
            true => address,
            false => address >> 64 << 64,
        };
        Self { address, namespace }
    }

    /// Returns a number that depends on the address alone.
    pub(crate) fn number(&self) -> u64 {
        self.address as u64 ^ (self.address >> 64) as u64
    }

    /// Returns whether it is a single address, this peer's.
    pub(crate) fn is_one(&self, peer: &PeerAddr) -> bool {
        self.address == u128::from_be_bytes(peer.address)
    }

    /// Returns a number that cannot be predicted without the secret.
    pub(crate) fn hash(&self, secret: u64) -> u64 {
        hash(self.address, self.namespace, secret)
    }
}

fn hash(address: u128, namespace: u64, secret: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let factor = u128::from(secret.rotate_left(32) ^ ODD);
    let words = [(address >> 64) as u64, address as u64, namespace];
    words.iter().fold(secret, |hash, word| {
        let product = u128::from(hash ^ word).wrapping_mul(factor);
        product as u64 ^ (product >> 64) as u64
    })
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
