// SPDX-License-Identifier: GPL-2.0

//! Declines that cross: both ends give SMC up at the same moment.
//!
//! Each has fallen back before the other's decline arrives, which then stands at the head of the
//! program's data. So the socket stays with the family until the first bytes show what they are: a
//! decline is taken out, and nobody gets to see it. It is written at once and shorter than any
//! segment, but something on the way may cut it.

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

/// The receiving direction among the bits of a socket's shutdown.
pub(crate) const RECEIVE: u8 = 1;

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
pub(crate) enum Head {
    /// What it is; it can be read.
    Known,
    /// Nothing: so many bytes are there, which could begin a decline.
    Open(usize),
}

/// Looks at the head of the stream. Whether it is known what that is; it can then be read.
pub(crate) fn is_settled(sock: &Sock) -> bool {
    matches!(look(sock), Head::Known)
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
