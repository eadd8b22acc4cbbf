// SPDX-License-Identifier: GPL-2.0

//! Limits on the link groups of one peer address, and of one network.
//!
//! A group costs nearly a megabyte before the peer has proved anything, and a peer chooses the IDs
//! that tell it from others. So the groups that one TCP address may begin at a time, and may keep,
//! are limited; a peer beyond the limit waits or gets plain TCP, and the groups of others stay. A host with IPv6 has as
//! many addresses as it likes, so its network is limited, too, with room for the hosts of a cluster.

use crate::{
    host::peer_addr::PeerAddr, //
    smcr::{LinkGroup, SmcrRegistry},
};
use smc_proto::time::Instant;

/// Numbers of groups.
struct Most {
    /// Without a connection, which are kept.
    idle: u32,
    all: u32,
}

/// Of one address.
const OF_ADDRESS: Most = Most { idle: 8, all: 256 };
/// Of one network.
const OF_NETWORK: Most = Most {
    idle: 64,
    all: 1024,
};

/// The groups of an address or a network.
#[derive(Default)]
struct Groups {
    idle: u32,
    all: u32,
    /// The one that has been without a connection for longest.
    longest: Option<(Instant, u32)>,
}

impl Groups {
    fn count(&mut self, group: &LinkGroup) {
        self.all = self.all.saturating_add(1);
        let Some(since) = group.idle_since() else {
            return;
        };
        self.idle = self.idle.saturating_add(1);
        if self.longest.is_none_or(|(first, _)| since < first) {
            self.longest = Some((since, group.id));
        }
    }

    /// Tells whether one more is allowed. If many have no connection, ends one of those, soon.
    fn admit(&self, registry: &SmcrRegistry, most: &Most) -> bool {
        if let Some((_, id)) = self.longest.filter(|_| self.idle > most.idle) {
            if let Some(group) = registry.group(id) {
                group.retire();
            }
        }
        self.all < most.all
    }
}

/// Tells whether one more group with this peer is allowed. If the peer, or its network, has many without a
/// connection, ends the one that has had none for longest, soon.
pub(super) fn admits(registry: &SmcrRegistry, peer_addr: PeerAddr) -> bool {
    let network = peer_addr.network();
    let (mut own, mut all) = (Groups::default(), Groups::default());
    registry.each_group(|group| {
        if group.peer_addr == peer_addr {
            own.count(group);
        }
        if group.peer_addr.network() == network {
            all.count(group);
        }
    });
    let admitted = own.admit(registry, &OF_ADDRESS);
    all.admit(registry, &OF_NETWORK) && admitted
}
