// SPDX-License-Identifier: GPL-2.0

//! Waits until it is known whether the stream of a socket that fell back begins with a decline that
//! crossed ours; see [`crate::handshake::crossing`].

use super::{
    smc_sock::SmcSock,
    state::{Kind, Phase}, //
};
use crate::handshake::crossing::{look, Head, RECEIVE};
use kapi::net::{socket::BsdSocket, wait};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Tells whether the head of the stream is not known yet.
#[inline]
pub(crate) fn is_open(this: &SmcSock) -> bool {
    this.state.is(Kind::Crossing)
}

/// Leaves the socket to TCP if the head of the stream is known by now. Returns whether it is not.
pub(crate) fn is_still_open(this: &SmcSock, socket: &BsdSocket) -> bool {
    open_after(this, socket).is_some()
}

/// Does the same as [`is_still_open`]. Returns the number of bytes seen if the head is not known.
fn open_after(this: &SmcSock, socket: &BsdSocket) -> Option<usize> {
    if !is_open(this) {
        return None;
    }
    // One at a time: the second would take a decline out of the program's own data.
    let mut state = this.state.lock();
    let fallback = match &*state {
        Phase::Fallback(fallback) if fallback.crossing => *fallback,
        _ => return None,
    };
    if let Head::Open(seen) = look(&this.sock) {
        return Some(seen);
    }
    state.set(Phase::Fallback(fallback.settled()));
    socket.become_native();
    None
}

/// Waits until the head of the stream is known, at most `timeout` jiffies.
///
/// # Errors
///
/// `EAGAIN` when the time is over; `EINTR`, `ERESTARTSYS`.
pub(crate) fn settle(this: &Arc<SmcSock>, socket: &BsdSocket, timeout: isize) -> Result {
    let mut left = timeout;
    while let Some(seen) = open_after(this, socket) {
        left = wait::until(socket, wait::Kind::Shared, left, || {
            let more = match seen {
                0 => this.sock.has_unread(),
                _ => this.sock.unread() > seen,
            };
            !is_open(this) || more || this.sock.shutdown_mask() & RECEIVE != 0
        })?;
    }
    Ok(())
}
