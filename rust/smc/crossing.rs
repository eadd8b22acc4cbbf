// SPDX-License-Identifier: GPL-2.0

//! Declines that cross: both ends give SMC up at the same moment.
//!
//! Each has fallen back before the other's decline arrives, which then stands at the head of the
//! program's data. So the socket stays with the family until the first bytes show what they are: a
//! decline is taken out, and nobody gets to see it. It is written at once and shorter than any
//! segment, but something on the way may cut it.

use crate::{
    fallback::{Fallback, Role},
    socket::{hint, Socket, RECEIVE}, //
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

/// What is known of the head of the stream.
enum Head {
    /// What it is; it can be read.
    Known,
    /// Nothing: so many bytes are there, which could begin a decline.
    Open(usize),
}

/// Looks at the head of the stream. Whether it is known what that is; it can then be read.
pub(crate) fn is_settled(sock: &Sock) -> bool {
    matches!(look(sock), Head::Known)
}

/// Whether the head of the stream has to be left there: a decline that has begun to arrive and is not
/// complete, as what is missing would be taken for the program's; or nothing, which may be the beginning
/// of one by the time it is taken.
pub(crate) fn is_to_stay(sock: &Sock) -> bool {
    let mut first = [0; clc::decline::MAX_LEN];
    match peek(sock, &mut first) {
        Ok((there, verdict)) => there != 0 && verdict == Verdict::NeedMore,
        Err(err) => err == EAGAIN,
    }
}

/// How many bytes are there, and what they are; nothing more is needed where the stream has ended.
fn peek(sock: &Sock, first: &mut [u8]) -> Result<(usize, Verdict)> {
    // Asked before: what comes between the two is then seen.
    let ended = sock.shutdown_mask() & RECEIVE != 0;
    let there = sock.peek(first)?;
    match strip::judge(first.get(..there).unwrap_or(first)) {
        Verdict::NeedMore if ended || there == 0 => Ok((there, Verdict::Data)),
        verdict => Ok((there, verdict)),
    }
}

fn look(sock: &Sock) -> Head {
    let there = sock.has_unread();
    if !there && sock.has_error() {
        // For the program.
        return Head::Known;
    }
    let mut first = [0; clc::decline::MAX_LEN];
    match peek(sock, &mut first) {
        Ok((seen, Verdict::NeedMore)) => Head::Open(seen),
        Ok((_, Verdict::Decline(len))) => {
            if let Some(room) = first.get_mut(..len) {
                let _ = sock.receive(room);
            }
            Head::Known
        }
        Ok((_, Verdict::Data)) => Head::Known,
        // Something that no ordinary read returns: an urgent byte, and no decline is that. (What
        // `settle` waits for is that something is there, so it would not wait for the next.)
        Err(err) if err == EAGAIN && there => Head::Known,
        Err(err) if err == EAGAIN => Head::Open(0),
        Err(err) => {
            // Taken from the program, which would see a good end instead.
            if !errno::ENOTCONN.is(err) {
                sock.report_error(Errno::of(err));
            }
            Head::Known
        }
    }
}

/// Whether the head of the stream is not known yet.
#[inline]
pub(crate) fn is_open(this: &Socket) -> bool {
    this.hint.load(Acquire) == hint::CROSSING
}

/// Leaves the socket to TCP if the head of the stream is known by now; whether it is not.
pub(crate) fn is_still_open(this: &Socket, socket: &file::BsdSocket) -> bool {
    open_after(this, socket).is_some()
}

/// The same; how many bytes have been seen if it is not.
fn open_after(this: &Socket, socket: &file::BsdSocket) -> Option<usize> {
    if !is_open(this) {
        return None;
    }
    // One at a time: the second would take a decline out of the program's own data.
    let _phase = this.phase.lock();
    if !is_open(this) {
        return None;
    }
    if let Head::Open(seen) = look(&this.sock) {
        return Some(seen);
    }
    this.hint.store(hint::NONE, Release);
    socket.become_native();
    None
}

/// Waits until the head of the stream is known, at most `timeout` jiffies.
///
/// # Errors
///
/// `EAGAIN` when the time is over; `EINTR`, `ERESTARTSYS`.
pub(crate) fn settle(this: &Arc<Socket>, socket: &file::BsdSocket, timeout: isize) -> Result {
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
