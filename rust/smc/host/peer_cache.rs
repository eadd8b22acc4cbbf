// SPDX-License-Identifier: GPL-2.0

//! Peers of a namespace to which no option is sent for a while, or with which no link is begun.
//!
//! [`smc_proto::peer_cache`] says what counts and for how long.

use crate::host::{
    clock::now,
    lossy_map::LossyMap,
    sysctl::{Sysctl, Sysctls}, //
};
use kapi::net::{netns::Net, sockaddr::SockAddr};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print, //
};
use smc_proto::{
    peer_cache::{Entry, Event, Peer, PeerCache as Table, View},
    time::Span, //
};

/// A namespace's memory of its peers.
#[pin_data]
pub(crate) struct PeerCache {
    #[pin]
    places: LossyMap<Peer, Entry>,
}

impl PeerCache {
    /// Creates an empty cache.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            places <- LossyMap::new(),
        })
    }

    /// Returns whether the cache is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns whether a connection to `peer` that begins now is to send no option.
    pub(crate) fn keeps_off(&self, sysctls: &Sysctls, net: &Net, peer: &SockAddr) -> bool {
        let peer = key(peer);
        if !self.may_have(&peer) {
            return false;
        }
        let Some(view) = view(sysctls, net) else {
            return false;
        };
        self.places.with(&[peer, peer.host()], |table| {
            Table::new(table).keeps_off(&peer, &view).is_some()
        })
    }

    /// Returns whether no link is to be begun now for a connection that `peer` has begun.
    pub(crate) fn keeps_links_off(&self, sysctls: &Sysctls, net: &Net, peer: &SockAddr) -> bool {
        let peer = key(peer).host();
        if !self.places.may_have(&peer) {
            return false;
        }
        let Some(view) = view(sysctls, net) else {
            return false;
        };
        self.places.with(&[peer], |table| {
            Table::new(table).keeps_links_off(&peer, &view)
        })
    }

    fn may_have(&self, peer: &Peer) -> bool {
        self.places.may_have(peer) || self.places.may_have(&peer.host())
    }

    /// Takes note of what has become of a connection to `peer`. May sleep.
    pub(crate) fn note(&self, sysctls: &Sysctls, net: &Net, peer: &SockAddr, event: Event) {
        let peer = key(peer);
        if event.forgives() && !self.may_have(&peer) {
            return;
        }
        let Some(view) = view(sysctls, net) else {
            return;
        };
        // Without memory nothing is remembered.
        if self.places.prepare().is_ok() {
            self.places.with(&[peer, peer.host()], |table| {
                Table::new(table).note(&peer, event, &view);
            });
        }
    }

    /// Forgets all of an address. Returns whether anything of it was remembered.
    pub(crate) fn forget(&self, address: &[u8; 16]) -> bool {
        !self.is_empty()
            && self
                .places
                .with_all(|table| Table::new(table).forget(address))
    }

    /// Forgets all.
    pub(crate) fn forget_all(&self) {
        self.places.forget_all();
    }

    /// Writes a line for each peer that is remembered: address, cause, seconds that are left, how often it was found
    /// to be so, and the port, or `*` if it is the whole address.
    pub(crate) fn show(&self, out: &SeqFile) {
        let all = (0..).map_while(|at| self.places.at(at)).flatten();
        for (key, entry) in all {
            let Some(cause) = entry.cause() else {
                continue;
            };
            let peer = SockAddr {
                v6: true,
                ip: key.address,
                port: 0,
            };
            let left = entry.left(now()).as_millis_ceil().div_ceil(1000);
            seq_print!(
                out,
                "neighbour {} {} {} {}",
                peer,
                cause.name(),
                left,
                entry.times()
            );
            match key.port {
                0 => seq_print!(out, " *\n"),
                port => seq_print!(out, " {}\n", port),
            }
        }
    }
}

/// Returns whom the table knows a connection's peer by.
fn key(peer: &SockAddr) -> Peer {
    Peer {
        address: peer.mapped(),
        port: peer.port,
    }
}

/// Returns what the table is to be told; `None` if nothing is to be remembered.
fn view(sysctls: &Sysctls, net: &Net) -> Option<View> {
    let seconds = u64::try_from(sysctls.get(Sysctl::NeighbourTime)).ok()?;
    (seconds != 0).then(|| View {
        now: now(),
        first: Span::from_secs(seconds),
        routes: net.routes(),
    })
}
