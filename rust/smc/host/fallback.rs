// SPDX-License-Identifier: GPL-2.0

//! Giving SMC up: the connection goes on as the TCP connection it already is.
//!
//! No fallback is silent: each has a reason, which the socket keeps and the namespace counts.

use smc_proto::reason::Reason;

/// Which end of the connection fell back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The end that called connect().
    Client,
    /// The end that called accept().
    Server,
}

/// Why a connection is not an SMC connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fallback {
    /// The end that this is.
    pub(crate) role: Role,
    /// Our reason.
    pub(crate) reason: Reason,
    /// The diagnosis that the peer's decline carried; 0 without one.
    pub(crate) peer_diagnosis: u32,
    /// The peer may have declined at the same time as we; see [`crate::socket::crossing`].
    pub(crate) crossing: bool,
}

impl Fallback {
    /// A fallback that is our own decision.
    pub(crate) fn own(role: Role, reason: Reason) -> Self {
        Self {
            role,
            reason,
            peer_diagnosis: 0,
            crossing: false,
        }
    }

    /// Our own decision, of which the peer's decline may not know; see [`crate::socket::crossing`].
    pub(crate) fn crossed(role: Role, reason: Reason) -> Self {
        Self {
            crossing: true,
            ..Self::own(role, reason)
        }
    }

    /// A fallback because the peer declined.
    pub(crate) fn declined(role: Role, peer_diagnosis: u32) -> Self {
        Self {
            role,
            reason: Reason::PeerDeclined,
            peer_diagnosis,
            crossing: false,
        }
    }
}
