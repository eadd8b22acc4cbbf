// SPDX-License-Identifier: GPL-2.0

//! From the program into the send ring.

use crate::{
    host::{
        clock::now,
        stats::{Buffer, TrafficDirection}, //
    },
    lane::{Put, Stop}, //
    smcr::SmcConn,
};
use kapi::net::args::Message;
use kernel::{prelude::*, sync::Arc};
use smc_proto::conn::{Conn, SendError, SendHint};

/// The program's memory is copied in chunks of this size. Nothing of a chunk that faults is sent; TCP's chunks are
/// at most as large.
const PART: usize = 32 << 10;

/// Puts as much as fits into the send ring; see [`Lane::put`](crate::lane::Lane::put).
// One caller each: as calls the two cost 140 instructions of a 64-byte message.
#[inline(always)]
pub(super) fn put(
    conn: &Arc<SmcConn>,
    msg: &mut Message<'_>,
    &Put {
        wanted,
        urgent,
        more,
        carried: _,
    }: &Put<'_>,
) -> Result<(usize, bool), Stop> {
    let mut writers = conn.writers.lock();
    let (room, view) = {
        let mut proto = conn.proto.lock();
        match proto.send_room() {
            Ok(room) => (room as usize, proto.send_view()),
            Err(SendError::Full) => {
                conn.sock().expect_room();
                return Err(Stop::Full);
            }
            Err(error) => return Err(Stop::Gone(error)),
        }
    };
    let ring = conn
        .send_ring(&mut writers)
        .map_err(|error| no_ring(conn, error))?;
    let wanted_now = wanted.min(room);
    let mut taken = 0usize;
    let mut faulted = false;
    'copy: for piece in view.iter() {
        let mut done = 0usize;
        loop {
            let left = (piece.len as usize).saturating_sub(done);
            let len = left.min(wanted_now.saturating_sub(taken)).min(PART);
            if len == 0 {
                break;
            }
            let at = (piece.offset as usize).saturating_add(done);
            if ring.write(at, len, msg.source()) < len {
                faulted = true;
                break 'copy;
            }
            done = done.saturating_add(len);
            taken = taken.saturating_add(len);
        }
    }
    if taken == 0 {
        return Err(Stop::Fault);
    }
    let last = taken == wanted;
    let hint = SendHint {
        more,
        urgent: urgent && last,
        push: false,
    };
    let len = u32::try_from(taken).map_err(|_| Stop::Fault)?;
    let written = |proto: &mut Conn| proto.written(len, hint, now());
    // shutdown() has come in between: the caller asks for room again, and hears of it.
    let actions = conn
        .group()
        .change_and_send(conn, written)
        .map_err(|_| Stop::Full)?;
    conn.perform(actions);
    Ok((taken, faulted))
}

/// Returns why there is no ring. As TCP does when memory is short, a send waits and tries again.
#[cold]
fn no_ring(conn: &SmcConn, error: Error) -> Stop {
    match conn.proto.lock().send_room() {
        // It has ended since there was room.
        Err(over) if over != SendError::Full => Stop::Gone(over),
        _ if error == ENOMEM => Stop::Hungry,
        _ => Stop::NoDevice,
    }
}

/// Counts rings that are too small for what a call sends.
#[inline(never)]
pub(super) fn count_size(conn: &SmcConn, total: usize) {
    if total > conn.send_size() {
        conn.stats().buffer(TrafficDirection::Tx, Buffer::TooSmall);
    }
    if conn.peer_size().is_some_and(|size| total > size) {
        conn.stats()
            .buffer(TrafficDirection::Tx, Buffer::PeerTooSmall);
    }
}
