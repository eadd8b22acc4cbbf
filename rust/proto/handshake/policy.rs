// SPDX-License-Identifier: GPL-2.0

//! Terms that this host offers and accepts in a handshake.

use crate::group::choice::Classes;
use crate::wire::clc::fce::{
    FirstContact,
    Limits,
    HOSTNAME_LEN, //
};
use crate::wire::clc::proposal::{
    FEATURE_EMULATED_ISM,
    MAX_EIDS, //
};
use crate::wire::clc::{
    Class,
    Eid,
    Extensions,
    Os, //
};
use crate::wire::ids::PeerId;
use crate::wire::list::List;

/// User EID that every host with this module has beside the configured ones, so that two of them
/// speak SMC-R with nothing configured.
pub const DEFAULT_UEID: Eid = Eid(*b"RSMC-DEFAULT                    ");

/// Release of version 2 that we speak: 1 is "v2.1".
pub const RELEASE: u8 = 1;
/// Connections per group where the release has no limit to agree on, and in version 1.
pub const MAX_CONNS: u8 = 255;
/// Links per group where the release has no limit to agree on, and in version 1.
pub const MAX_LINKS: u8 = 2;
/// Fewest connections per group that a limit may demand.
pub const MIN_CONNS: u8 = 16;

/// Offers of this host and what it accepts; a snapshot for one handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Our peer id.
    pub peer_id: PeerId,
    /// Our host name, padded with blanks.
    pub hostname: [u8; HOSTNAME_LEN],
    /// Connections per group, 16 to 255.
    pub max_conns: u8,
    /// Links per group; 1 if there is only one usable device.
    pub max_links: u8,
    /// Extensions of this module on offer.
    pub extensions: Extensions,
    /// Class of this end's packets, as its socket or the administrator wants it.
    pub class: Class,
    /// Whether the administrator wants it. Else a server's packets are of the client's class, if it tells one.
    pub class_is_fixed: bool,
    eids: List<Eid, MAX_EIDS>,
}

impl Policy {
    /// A policy with the default EID alone.
    #[must_use]
    pub fn new(peer_id: PeerId, hostname: &[u8]) -> Policy {
        let mut eids = List::filled(Eid::NONE);
        let _ = eids.push(DEFAULT_UEID);
        Policy {
            peer_id,
            hostname: FirstContact::pad_hostname(hostname),
            max_conns: MAX_CONNS,
            max_links: 1,
            extensions: Extensions::ALL,
            class: Class::default(),
            class_is_fixed: false,
            eids,
        }
    }

    /// Replaces the configured EIDs; they come before the default one. At most 7 fit, more are
    /// left out (C takes up to 8 in a proposal and configures at most 4).
    pub fn set_eids(&mut self, configured: &[Eid]) {
        self.eids.clear();
        let room = MAX_EIDS.saturating_sub(1);
        for eid in configured.iter().take(room) {
            if eid.is_some() && !self.has_eid(eid) {
                let _ = self.eids.push(*eid);
            }
        }
        if !self.has_eid(&DEFAULT_UEID) {
            let _ = self.eids.push(DEFAULT_UEID);
        }
    }

    /// Takes all EIDs away: without one there is no version 2.
    pub fn clear_eids(&mut self) {
        self.eids.clear();
    }

    /// The EIDs to propose, in order.
    #[must_use]
    pub fn eids(&self) -> &List<Eid, MAX_EIDS> {
        &self.eids
    }

    /// Reports whether this EID is ours.
    #[must_use]
    pub fn has_eid(&self, eid: &Eid) -> bool {
        self.eids.iter().any(|e| e == eid)
    }

    /// The first of the client's EIDs that is ours too.
    #[must_use]
    pub fn match_eid(&self, proposed: &[Eid]) -> Option<Eid> {
        proposed
            .iter()
            .find(|e| e.is_some() && self.has_eid(e))
            .copied()
    }

    /// The classes of a server's group with a client that says this of its own packets.
    pub(super) fn classes(&self, peer: Option<Class>) -> Classes {
        let own = match peer {
            Some(told) if !self.class_is_fixed => told,
            _ => self.class,
        };
        Classes { own, peer }
    }

    /// Features we know.
    pub(super) const fn features(&self) -> u16 {
        FEATURE_EMULATED_ISM
    }

    /// Our first contact extension with agreed values.
    pub(super) fn first_contact(&self, terms: &Agreed, direct: bool) -> FirstContact {
        FirstContact {
            direct,
            os: Os::LINUX,
            release: terms.release,
            hostname: self.hostname,
            limits: Some(if terms.release == 0 {
                Limits::default()
            } else {
                Limits {
                    max_conns: terms.max_conns,
                    max_links: terms.max_links,
                    features: terms.features,
                    vendor: u32::from_be_bytes(terms.extensions.to_wire()),
                }
            }),
        }
    }
}

/// Terms that both sides agree on for a new group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Agreed {
    pub(super) release: u8,
    pub(super) max_conns: u8,
    pub(super) max_links: u8,
    pub(super) features: u16,
    pub(super) extensions: Extensions,
}

impl Agreed {
    /// Release 0 agrees on nothing, nor does version 1: these are C's fixed values.
    pub(super) const fn on_nothing() -> Agreed {
        Agreed {
            release: 0,
            max_conns: MAX_CONNS,
            max_links: MAX_LINKS,
            features: 0,
            extensions: Extensions::NONE,
        }
    }
}
