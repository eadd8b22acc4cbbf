// SPDX-License-Identifier: GPL-2.0

//! Declines that cross: both ends give SMC up at the same moment.
//!
//! Each has fallen back before the other's decline arrives, which then stands at the head of the
//! program's data. So the socket stays with the family until the first bytes show what they are: a
//! decline is taken out, and nobody gets to see it. A decline is shorter than any segment and is
//! written at once, hence what has arrived at all has arrived whole.

use crate::{
    fallback::{Fallback, Role},
    socket::{hint, Socket}, //
};
use kapi::{
    errno::{self, Errno},
    net::{sock::Sock, socket as file},
    sys::wait, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Release},
        Arc, //
    }, //
};
use smc_proto::{
    handshake::strip::{self, Verdict},
    reason::Reason,
    wire::clc, //
};

/// What a handshake that has ended without SMC makes of the connection; `strip` says that a decline
/// of the peer may cross ours.
pub(crate) fn fallback(
    role: Role,
    sock: &Sock,
    reason: Reason,
    peer: Option<Reason>,
    strip: bool,
) -> Fallback {
    match peer {
        Some(peer) => Fallback::declined(role, peer.code()),
        None if strip && !is_settled(sock) => Fallback::crossed(role, reason),
        None => Fallback::own(role, reason),
    }
}

/// Looks at the head of the stream. Whether it is known what that is; it can then be read.
pub(crate) fn is_settled(sock: &Sock) -> bool {
    let there = sock.has_unread();
    if !there && sock.has_error() {
        // For the program.
        return true;
    }
    let mut first = [0; clc::decline::MAX_LEN];
    match sock.peek(&mut first) {
        Ok(there) => {
            if let Verdict::Decline(len) = strip::judge(first.get(..there).unwrap_or(&first)) {
                if let Some(room) = first.get_mut(..len) {
                    let _ = sock.receive(room);
                }
            }
            true
        }
        // Something that no ordinary read returns: an urgent byte, and no decline is that. (What
        // `settle` waits for is that something is there, so it would not wait for the next.)
        Err(err) if err == EAGAIN => there,
        Err(err) => {
            // Taken from the program, which would see a good end instead.
            if !errno::ENOTCONN.is(err) {
                sock.report_error(Errno::of(err));
            }
            true
        }
    }
}

/// Whether the head of the stream is not known yet.
#[inline]
pub(crate) fn is_open(this: &Socket) -> bool {
    this.hint.load(Acquire) == hint::CROSSING
}

/// Leaves the socket to TCP if the head of the stream is known by now; whether it is not.
pub(crate) fn is_still_open(this: &Socket, socket: &file::Socket) -> bool {
    if !is_open(this) {
        return false;
    }
    // One at a time: the second would take a decline out of the program's own data.
    let _phase = this.phase.lock();
    if !is_open(this) {
        return false;
    }
    if !is_settled(&this.sock) {
        return true;
    }
    this.hint.store(hint::NONE, Release);
    socket.become_native();
    false
}

/// Waits until the head of the stream is known, at most `timeout` jiffies.
///
/// # Errors
///
/// `EAGAIN` when the time is over; `EINTR`, `ERESTARTSYS`.
pub(crate) fn settle(this: &Arc<Socket>, socket: &file::Socket, timeout: isize) -> Result {
    while is_still_open(this, socket) {
        wait::until(socket, wait::Kind::Shared, timeout, || {
            !is_open(this) || this.sock.has_unread() || this.sock.shutdown_mask() & 1 != 0
        })?;
    }
    Ok(())
}
