// SPDX-License-Identifier: GPL-2.0

//! State of a connection that began as TCP.

use crate::host::{fallback::Role, syn_option::Answer};
use smc_proto::reason::Reason;

/// A connection that began as TCP.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    /// Our end of it.
    pub(crate) role: Role,
    /// The reason why it stays TCP's, if it does.
    pub(crate) tcp_only: Option<Reason>,
}

impl Path {
    /// Returns the state of a new connection on which the two ends have agreed by `answer`; `None` for an
    /// answer that means something else.
    pub(crate) fn new(role: Role, answer: Answer) -> Option<Self> {
        let tcp_only = match answer {
            Answer::Local => None,
            Answer::Remote => Some(Reason::PathRemote),
            Answer::Tcp | Answer::Smc | Answer::Echo => return None,
        };
        Some(Self { role, tcp_only })
    }
}
