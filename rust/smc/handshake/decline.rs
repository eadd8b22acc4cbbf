// SPDX-License-Identifier: GPL-2.0

//! The client's decline without a handshake, for lack of an RDMA port.

use kapi::net::sock::Sock;
use kernel::prelude::*;
use smc_proto::{
    reason::Reason,
    wire::{
        clc::{decline, Decline},
        ids::PeerId, //
    }, //
};

/// Sends a CLC decline: this end does not go on with SMC.
///
/// # Errors
///
/// TCP's; the connection is then as good as dead, and its user will learn so.
pub(crate) fn send(sock: &Sock, decline: &Decline) -> Result {
    let mut buf = [0; decline::MAX_LEN];
    let len = decline.emit(&mut buf).map_err(|_| EINVAL)?;
    let bytes = buf.get(..len).ok_or(EINVAL)?;
    // The unused send buffer of a new connection takes a message whole.
    if sock.send(bytes)? != len {
        return Err(EPIPE);
    }
    Ok(())
}

/// Returns the client's decline in answer to a SYN-ACK with the SMC option.
pub(crate) fn client_decline(reason: Reason) -> Decline {
    Decline::by_client(false, reason, PeerId::default())
}
