// SPDX-License-Identifier: GPL-2.0

//! The decision which of a namespace's TCP sockets become sockets of the family.

use crate::host::{namespace::Namespace, sysctl::Sysctl};
use kapi::net::{convert::Asked, netns::Net};

/// Decides about the socket that the current task makes.
pub(crate) fn decide(net: &Net, asked: Asked) -> bool {
    let Some(namespace) = Namespace::at(net) else {
        return false;
    };
    match namespace.sysctls.get(Sysctl::Tcp2Smc) {
        0 => false,
        _ => asked == Asked::Tcp,
    }
}
