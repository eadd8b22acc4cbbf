// SPDX-License-Identifier: GPL-2.0

//! Fallback: the connection goes on as the TCP connection it already is.
//!
//! No fallback is silent: each has a reason, which the socket keeps and the namespace counts. A connection that begins as
//! TCP and may leave it ([`Path`]) has one as soon as it is to stay there.

use super::syn_option::Answer;
use smc_proto::reason::Reason;

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The end that called connect().
    Client,
    /// The end that called accept().
    Server,
}

impl Role {
    /// Returns the end that called connect() (`active`), or the other.
    pub(crate) fn of(active: bool) -> Self {
        if active {
            Self::Client
        } else {
            Self::Server
        }
    }
}

/// Reason why a connection is not an SMC connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fallback {
    /// Our end of the connection.
    pub(crate) role: Role,
    /// Our reason.
    pub(crate) reason: Reason,
    /// The diagnosis that the peer's decline carried; 0 without one.
    pub(crate) peer_diagnosis: u32,
    /// True if the peer may have declined at the same time; see [`crate::socket::crossing`].
    pub(crate) crossing: bool,
}

impl Fallback {
    /// Returns a fallback by our own decision.
    pub(crate) fn own(role: Role, reason: Reason) -> Self {
        Self {
            role,
            reason,
            peer_diagnosis: 0,
            crossing: false,
        }
    }

    /// Returns a fallback by our own decision that a decline of the peer may cross; see
    /// [`crate::socket::crossing`].
    pub(crate) fn crossed(role: Role, reason: Reason) -> Self {
        Self {
            crossing: true,
            ..Self::own(role, reason)
        }
    }

    /// Returns the same fallback once no decline of the peer can cross it any more.
    pub(crate) fn settled(self) -> Self {
        Self {
            crossing: false,
            ..self
        }
    }

    /// Returns a fallback because the peer declined.
    pub(crate) fn declined(role: Role, peer_diagnosis: u32) -> Self {
        Self {
            role,
            reason: Reason::PeerDeclined,
            peer_diagnosis,
            crossing: false,
        }
    }
}

/// A connection that began as TCP.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    /// Our end of it.
    pub(crate) role: Role,
    /// The reason why it stays TCP's, if it does.
    pub(crate) tcp_only: Option<Reason>,
    /// True if the other end is on another host.
    pub(crate) remote: bool,
}

impl Path {
    /// Returns the state of a new connection on which the two ends have agreed by `answer`; `None` for an
    /// answer that means something else.
    pub(crate) fn new(role: Role, answer: Answer) -> Option<Self> {
        let remote = match answer {
            Answer::Local => false,
            Answer::Remote => true,
            Answer::Tcp | Answer::Smc | Answer::Echo | Answer::Join => return None,
        };
        Some(Self {
            role,
            tcp_only: None,
            remote,
        })
    }
}
