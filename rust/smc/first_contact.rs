// SPDX-License-Identifier: GPL-2.0

//! Who may start a link group, and how many a peer may have.
//!
//! A group costs nearly a megabyte before the peer has proved anything, and what tells peers apart
//! is what they say of themselves. So what one address may begin at a time, and may keep, is
//! limited; whoever finds a limit waits or gets plain TCP, and the groups of others stay.

mod gates;

pub(crate) use gates::{Gate, Gates};

use crate::{group::LinkGroup, shared::Core};
use kapi::net::sock::Sock;
use kernel::sync::Arc;
use smc_proto::time::Instant;

/// Groups without a connection that are kept for one address.
const IDLE: u32 = 8;
/// Groups of one address.
const GROUPS: u32 = 256;

/// Whom we have a TCP connection with, in which network namespace: all that a peer cannot make up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    address: [u8; 16],
    /// The cookie of the namespace.
    pub(crate) namespace: u64,
}

impl Origin {
    /// The peer of a connection.
    pub(crate) fn of(sock: &Sock) -> Self {
        Self {
            address: sock.peer_addr().mapped(),
            namespace: sock.net_cookie(),
        }
    }
}

/// What [`Core::enter`] has found.
pub(crate) enum Entry {
    /// A group to join.
    Join(Arc<LinkGroup>),
    /// There is none, and this is the only handshake that may start one.
    First(Gate),
    /// There is none, and another handshake has to end before this one may start one.
    Busy,
}

impl Core {
    /// Whether there may be one more group with this peer. If it has many without a connection, the
    /// one that has had none for longest ends soon.
    pub(crate) fn admits(&self, origin: Origin) -> bool {
        let (mut all, mut idle) = (0u32, 0u32);
        let mut longest: Option<(Instant, u32)> = None;
        self.each_group(|group| {
            if group.origin != origin {
                return;
            }
            all = all.saturating_add(1);
            let Some(since) = group.idle_since() else {
                return;
            };
            idle = idle.saturating_add(1);
            if longest.as_ref().is_none_or(|(first, _)| since < *first) {
                longest = Some((since, group.id));
            }
        });
        if let Some((_, id)) = longest.filter(|_| idle > IDLE) {
            let group = self.group_after(u64::from(id).saturating_sub(1));
            if let Some(group) = group.filter(|group| group.id == id) {
                group.retire();
            }
        }
        all < GROUPS
    }
}
