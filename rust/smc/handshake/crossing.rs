// SPDX-License-Identifier: GPL-2.0

//! Declines that cross: both ends give SMC up at the same moment.
//!
//! Each has fallen back before the other's decline arrives, which then stands at the head of the
//! program's data. So the socket stays with the family until the first bytes show what they are: a
//! decline is taken out, and the program does not see it. It is sent at once and shorter than any
//! segment, but a middlebox may cut it.

use crate::host::fallback::{Fallback, Role};
use kapi::{
    errno::{self, Errno},
    net::sock::Sock, //
};
use kernel::prelude::*;
use smc_proto::{
    handshake::strip::{self, Verdict},
    reason::Reason,
    wire::clc, //
};

/// Bit of the receiving direction in a socket's shutdown mask.
pub(crate) const RECEIVE: u8 = 1;

/// Returns the fallback of a handshake that has ended without SMC; `strip` says that a decline of
/// the peer may cross ours.
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

/// State of the head of the stream.
pub(crate) enum Head {
    /// Known, and no decline: the stream can be read.
    Known,
    /// Not known: this many bytes are there, which may begin a decline.
    Open(usize),
}

/// Looks at the head of the stream. Returns whether it is known and the stream can be read.
pub(crate) fn is_settled(sock: &Sock) -> bool {
    matches!(look(sock), Head::Known)
}

/// Peeks at the head of the stream. Returns the number of bytes there and the verdict on them; at
/// the end of the stream the beginning of a decline is data.
fn peek(sock: &Sock, first: &mut [u8]) -> Result<(usize, Verdict)> {
    // Asked before: what comes between the two is then seen.
    let ended = sock.shutdown_mask() & RECEIVE != 0;
    let there = sock.peek(first)?;
    match strip::judge(first.get(..there).unwrap_or(first)) {
        Verdict::NeedMore if ended || there == 0 => Ok((there, Verdict::Data)),
        verdict => Ok((there, verdict)),
    }
}

/// Looks at the head of the stream, and takes a decline out of it.
pub(crate) fn look(sock: &Sock) -> Head {
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
