// SPDX-License-Identifier: GPL-2.0

//! Lanes: several link groups with one server, over which a client spreads its connections by CPU.
//!
//! One group is one queue pair, whose completions are handled on one CPU. How a connection gets its lane, see
//! [`SmcrRegistry::choose_lane`](super::registry::SmcrRegistry::choose_lane). A server knows its peers by their ids, so
//! each lane has a peer id of its own: with another instance ID, the first two bytes (RFC 7609). So do the lanes by IPv4
//! and those by IPv6: to a server of version 1 both would be one group, as their GIDs are the same, and here they are not.

use super::port::LocalPort;
use crate::host::peer_addr::PeerAddr;
use smc_proto::wire::{clc::Class, ids::PeerId};

/// How many lanes there may be.
pub(crate) const NUMBERS: u8 = 32;
/// How many classes of packets the groups with one peer may have: any program may choose a class, and a group takes
/// near a megabyte.
pub(crate) const MOST_CLASSES: usize = 8;

/// The lane of a client's connection.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    /// Tells the lanes with one peer apart.
    pub(crate) number: u8,
    /// The CPU for which it was begun. If the device has a vector there, the completions of its queue pair are handled
    /// on this one.
    pub(crate) cpu: u32,
}

impl Lane {
    /// Returns the peer id that this host has in the lane, by IPv6 if `v6`.
    pub(crate) fn peer_id(self, own: PeerId, v6: bool) -> PeerId {
        let mut id = own;
        let [family, instance, ..] = &mut id.0;
        *family ^= u8::from(v6);
        *instance ^= self.number;
        id
    }
}

/// What a connection wants of its lane.
pub(crate) struct LaneWanted<'a> {
    /// The port by which it leaves.
    pub(crate) port: &'a LocalPort,
    /// Its peer.
    pub(crate) peer_addr: PeerAddr,
    /// The class of its packets.
    pub(crate) class: Class,
    /// The CPU on which the program has called connect().
    pub(crate) cpu: u32,
    /// Most lanes with one peer.
    pub(crate) most: u32,
}
