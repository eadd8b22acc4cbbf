// SPDX-License-Identifier: GPL-2.0

//! A group as netlink and `sock_diag` show it.

use super::LinkGroup;
use crate::host::pnet::PnetId;
use kernel::sync::atomic::Relaxed;
use smc_proto::{
    group::Terms,
    llc::link::{LinkState, Role},
    wire::{
        clc::{fce::HOSTNAME_LEN, Agreement, Eid, Extensions},
        ids::Gid, //
    }, //
};

/// The peer as it described itself at first contact.
#[derive(Clone, Copy)]
pub(crate) struct PeerFacts {
    /// The enterprise id that both have.
    pub(crate) eid: Eid,
    /// Its operating system, as on the wire.
    pub(crate) os: u8,
    hostname: [u8; HOSTNAME_LEN],
    /// Its identifier of the link.
    pub(crate) link_uid: [u8; 4],
}

impl PeerFacts {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        eid: Eid::NONE,
        os: 0,
        hostname: [0; HOSTNAME_LEN],
        link_uid: [0; 4],
    };

    /// Takes the description from an accept or a confirm.
    pub(crate) fn of(agreement: &Agreement) -> Self {
        let fce = agreement.fce;
        Self {
            eid: agreement.eid,
            os: fce.map_or(0, |fce| fce.os.0),
            hostname: fce.map_or([0; HOSTNAME_LEN], |fce| fce.hostname),
            link_uid: [0; 4],
        }
    }

    /// Its name, without what pads it.
    pub(crate) fn host(&self) -> &[u8] {
        self.hostname
            .trim_ascii_end()
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or(&[])
    }
}

/// A group at one moment.
pub(crate) struct GroupFacts {
    /// Its number.
    pub(crate) id: u32,
    /// The cookie of its network namespace.
    pub(crate) cookie: u64,
    /// The net device of its GID.
    pub(crate) ifindex: u32,
    /// VLAN of that device.
    pub(crate) vlan: Option<u16>,
    pnet: Option<PnetId>,
    /// Terms agreed at first contact.
    pub(crate) terms: Terms,
    /// The peer.
    pub(crate) peer: PeerFacts,
    /// True when packets to the peer pass a gateway.
    pub(crate) gateway: bool,
    /// Its connections.
    pub(crate) conns: u8,
    /// The number of its link.
    pub(crate) number: u8,
    /// Our identifier of the link.
    pub(crate) uid: [u8; 4],
    /// State of the link.
    pub(crate) state: LinkState,
    /// True from the end of first contact to the end of the group.
    pub(crate) active: bool,
    /// Bytes of send buffers.
    pub(crate) send_bytes: u64,
    /// Bytes of receive buffers, leased or not.
    pub(crate) recv_bytes: u64,
}

impl GroupFacts {
    /// The name of the physical network, if the administrator has said so.
    pub(crate) fn pnet(&self) -> &[u8] {
        self.pnet.as_ref().map_or(&[], |id| id.text())
    }
}

impl LinkGroup {
    /// Number of the link, our role, and the peer's GID.
    pub(crate) fn link_facts(&self) -> (u8, Role, Gid) {
        let state = self.state.lock();
        let key = &state.proto.terms().key;
        (state.proto.link.number, key.role, key.peer_gid)
    }

    /// Tells whether the group is of version 1.
    pub(crate) fn is_v1(&self) -> bool {
        self.link.at.is_v1()
    }

    /// Tells whether the peer's kernel has this module.
    pub(crate) fn is_with_us(&self) -> bool {
        self.extensions() != Extensions::NONE
    }

    /// Returns the extensions that both ends know.
    pub(crate) fn extensions(&self) -> Extensions {
        self.state.lock().proto.terms().extensions
    }

    /// Describes the group at this moment. Waits for nobody: all of generic netlink waits for a dump.
    pub(crate) fn facts(&self) -> GroupFacts {
        let recv_bytes = self.recv_bytes.load(Relaxed);
        let (qpn, _) = self.link.queue_pair();
        let send_bytes = self.ring_bytes();
        let state = self.state.lock();
        GroupFacts {
            id: self.id,
            cookie: self.peer_addr.namespace,
            ifindex: self.link.at.ifindex,
            vlan: self.link.at.vlan,
            pnet: self.link.at.pnet,
            terms: *state.proto.terms(),
            peer: self.peer.as_ref().copied().unwrap_or(PeerFacts::UNKNOWN),
            gateway: self.link.passes_gateway(),
            conns: state.proto.conns(),
            number: state.proto.link.number,
            uid: qpn.to_be_bytes(),
            state: state.proto.link.state(),
            active: state.proto.is_usable(),
            send_bytes,
            recv_bytes,
        }
    }
}
