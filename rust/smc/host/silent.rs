// SPDX-License-Identifier: GPL-2.0

//! Clients that say in their SYN that they speak SMC, and then let the server wait for a message.
//!
//! A connection that was offered SMC reaches its program only when the handshake has ended, and waits for
//! seconds if the client keeps silent. Each time that one has been waited for too long is counted for its address
//! and for its [`Network`](super::peer_addr::Network), in a table of fixed size. As long as there are too many of one, its clients are not
//! offered SMC: their connections are TCP's, and nobody waits for them. Addresses that share a place by chance share
//! that; which ones do is a secret of this host.

use crate::host::{clock::now, peer_addr::PeerAddr};
use kapi::sys::clock;
use kernel::sync::atomic::{Atomic, Relaxed};
use smc_proto::{
    rate::Rate,
    time::{Instant, Span}, //
};

/// Limit of an address: eight at once and ten a minute. At most sixteen count, so SMC is offered again after a
/// minute without one.
const OF_ADDRESS: Rate = Rate {
    burst: 8,
    each: Span::from_secs(6),
    most: 16,
};

/// Limit of a network with many addresses, eight times that: others use it, too.
const OF_NETWORK: Rate = Rate {
    burst: 64,
    each: Span::from_millis(750),
    most: 128,
};

/// Number of places, a power of two.
const PLACES: usize = 1024;

/// The states of both limits for the addresses and networks of each place.
static STATES: [Atomic<u64>; PLACES] = [const { Atomic::new(0) }; PLACES];

/// What chooses the place of an address; 0 until the first one is counted.
static SECRET: Atomic<u64> = Atomic::new(0);

/// Returns what is counted of a peer: the limits, and the places of their states.
fn limits(peer: &PeerAddr, secret: u64) -> impl Iterator<Item = (Rate, &'static Atomic<u64>)> {
    let place = |rate, hash: u64| Some((rate, STATES.get(hash as usize & (PLACES - 1))?));
    let network = peer.network();
    let both = [
        place(OF_ADDRESS, peer.hash(secret)),
        match network.is_one(peer) {
            true => None,
            false => place(OF_NETWORK, network.hash(secret)),
        },
    ];
    both.into_iter().flatten()
}

/// Counts a connection whose client has been silent for too long.
pub(crate) fn count(peer: &PeerAddr) {
    if SECRET.load(Relaxed) == 0 {
        let mut word = [0; 8];
        clock::random(&mut word);
        // If another CPU was first, its secret is as good.
        let _ = SECRET.cmpxchg(0, u64::from_ne_bytes(word) | 1, Relaxed);
    }
    for (rate, state) in limits(peer, SECRET.load(Relaxed)) {
        let mut seen = state.load(Relaxed);
        while let Err(other) = state.cmpxchg(seen, rate.count(Instant(seen), now()).0, Relaxed) {
            seen = other;
        }
    }
}

/// Returns whether a client is not to be offered SMC. Any context.
#[inline]
pub(crate) fn refuses(peer: &PeerAddr) -> bool {
    let secret = SECRET.load(Relaxed);
    // The usual case: the table is empty.
    secret != 0
        && limits(peer, secret)
            .any(|(rate, state)| rate.is_reached(Instant(state.load(Relaxed)), now()))
}
