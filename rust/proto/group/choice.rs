// SPDX-License-Identifier: GPL-2.0

//! Chooses the group that a new connection joins, or starts.
//!
//! A group is known by what [`Key`] says. The server decides: it joins a group that has room and
//! an active link, else it starts one and sets the first contact bit. The client follows the bit:
//! set, it always starts a group; not set, it must already have the group,
//! else the two are out of sync. First contact is exclusive per key, joining is not: the caller sees to that.

use crate::llc::link::{
    LinkEnd,
    Role, //
};
use crate::reason::Reason;
use crate::wire::clc::Class;
use crate::wire::ids::{
    Gid,
    Mac,
    PeerId, //
};

/// Identity of a group towards a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Key {
    /// Our role.
    pub role: Role,
    /// SMC-R version, 1 or 2.
    pub version: u8,
    /// The peer's id.
    pub peer_id: PeerId,
    /// The peer's GID.
    pub peer_gid: Gid,
    /// The peer's MAC; zero in version 2, where it does not count.
    pub peer_mac: Mac,
    /// VLAN id of the group, zero without.
    pub vlan: u16,
    /// Classes of its packets.
    pub classes: Classes,
}

impl Key {
    /// Reports whether both are of the same role and peer, whatever the classes: the server has chosen by those.
    #[must_use]
    pub fn is_same_peer(&self, other: &Key) -> bool {
        let other = Key {
            classes: self.classes,
            ..*other
        };
        *self == other
    }
}

/// Classes of the packets of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Classes {
    /// Of those that this host sends.
    pub own: Class,
    /// Of those that the client sends, as it has told the server.
    pub peer: Option<Class>,
}

/// State of a group that the server may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its key.
    pub key: Key,
    /// It has an active link on the device wanted and is not ending.
    pub usable: bool,
    /// Connections that still fit.
    pub room: u8,
}

/// Reports whether the server joins this group with a new connection from `key`.
#[must_use]
pub fn server_joins(key: &Key, group: &Candidate) -> bool {
    group.key == *key && group.usable && group.room > 0
}

/// Decisions of a client after an accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientChoice {
    /// Start a group.
    FirstContact,
    /// Join the group found, on the link with this index.
    Join(usize),
    /// Decline for this reason.
    Decline(Reason),
}

/// The client's decision. `links` are the active links of the group found for the accept's key,
/// `None` if there is no such group.
pub fn client_choice(
    first_contact: bool,
    version: u8,
    wanted: &LinkEnd,
    links: Option<&[Option<LinkEnd>]>,
) -> ClientChoice {
    if first_contact {
        return ClientChoice::FirstContact;
    }
    let Some(links) = links else {
        return ClientChoice::Decline(Reason::SyncError);
    };
    let same = |l: &LinkEnd| {
        l.qpn == wanted.qpn && l.gid == wanted.gid && (version > 1 || l.mac == wanted.mac)
    };
    match links.iter().position(|l| l.as_ref().is_some_and(same)) {
        Some(i) => ClientChoice::Join(i),
        None => ClientChoice::Decline(Reason::NoServerLink),
    }
}
