// SPDX-License-Identifier: GPL-2.0

//! Options that replace a socket's operations table: `TCP_ULP`, of kernel TLS, and `IPV6_ADDRFORM`.
//!
//! A socket that is TCP's is given back to it before. One that moves its bytes by RDMA cannot be: neither
//! would see them. It answers `EBUSY`, which is TCP's own word for a stream that another part of the kernel
//! has, and TLS libraries go on without the kernel's help.

use crate::socket::{connect, crossing, path, Phase, SmcSock};
use kapi::{
    errno,
    net::{
        args::SetOption,
        overlay::Handled,
        socket::BsdSocket,
        uapi::{AF_INET, AF_INET6}, //
    }, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::reason::Reason;

/// Beginning of the name of MPTCP's protocol above TCP.
const MPTCP: i32 = i32::from_ne_bytes(*b"mptc");

/// Handles `TCP_ULP`.
///
/// # Errors
///
/// `ENOTCONN` while the program knows of no connection; `EBUSY` over SMC-R, or while memory has bytes that the
/// program has not read.
pub(super) fn ulp(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    option: &SetOption<'_>,
) -> Result<Handled> {
    if option.int() == Ok(MPTCP) {
        // The kernel's own alone: TCP refuses, and touches nothing. Programs ask to learn whether there is MPTCP.
        return Ok(Handled::Native);
    }
    let unused = match &*this.state.lock() {
        Phase::Init => true,
        Phase::Connecting | Phase::Listening(_) | Phase::Closed => {
            return Err(errno::ENOTCONN.into())
        }
        _ => false,
    };
    if unused {
        // TCP validates the name of the ULP, and decides whether this socket may have it.
        connect::give_up(this, socket, Reason::UnsupportedOption)?;
    }
    give_back(this, socket)
}

/// Handles `IPV6_ADDRFORM`.
///
/// # Errors
///
/// As TCP: `EINVAL`, `ENOTCONN`, and `EADDRNOTAVAIL` when the peer has an IPv6 address; `EBUSY` as in [`ulp`].
pub(super) fn addrform(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    option: &SetOption<'_>,
) -> Result<Handled> {
    let sock = socket.sock();
    if i32::from(sock.family()) != AF_INET6 || option.int()? != AF_INET {
        // Nothing that TCP would do.
        return Ok(Handled::Native);
    }
    if connect::is_undecided(this) || !sock.is_established() {
        return Err(errno::ENOTCONN.into());
    }
    if sock.peer_addr().v4().is_none() {
        return Err(errno::EADDRNOTAVAIL.into());
    }
    give_back(this, socket)
}

fn give_back(this: &Arc<SmcSock>, socket: &BsdSocket) -> Result<Handled> {
    // A decline that may still come stands before the program's bytes.
    crossing::is_still_open(this, socket);
    if !path::may_leave(this) {
        return Err(EBUSY);
    }
    path::leave(this, socket)?;
    Ok(Handled::Leave)
}
