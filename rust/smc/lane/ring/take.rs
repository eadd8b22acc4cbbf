// SPDX-License-Identifier: GPL-2.0

//! Out of the receive ring to the program.

use crate::{
    host::stats::{Buffer, TrafficDirection},
    lane::{Ask, Look, Took, STOP}, //
    smcr::SmcConn,
};
use kapi::net::args::Message;
use kernel::{prelude::*, sync::Arc};
use smc_proto::conn::{RecvState, UrgentError};

/// Copies what is in the ring to the program; see [`Lane::take`](crate::lane::Lane::take).
// One caller each: as calls the two cost 140 instructions of a 64-byte message.
#[inline(always)]
pub(super) fn take(conn: &Arc<SmcConn>, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look> {
    let &Ask {
        wanted,
        before,
        passed,
        peek,
        discard,
        carried: _,
    } = ask;
    let _reader = conn.readers.lock();
    if conn.has_left() {
        return Ok(STOP);
    }
    let peeked = if peek {
        u32::try_from(before.saturating_add(passed))?
    } else {
        0
    };
    let (settings, state, view) = {
        let mut proto = conn.proto.lock();
        let settings = conn.sync_settings(&mut proto);
        (settings, proto.recv_state(), proto.recv_view(peeked))
    };
    conn.perform(settings);
    if view.at_mark {
        if before > 0 {
            return Ok(STOP);
        }
        if conn.is_spliced(msg) {
            return Ok(Look::Mark);
        }
        if wanted == 0 && view.skip > 0 {
            // As TCP: the urgent byte is there, and nothing of it was wanted.
            return Ok(STOP);
        }
    }
    let RecvState::Data(readable) = state else {
        if view.skip > 0 && !peek {
            // As TCP: a read that finds nothing but the urgent byte steps over it, and waits.
            let stepped = conn.proto.lock().read_from(view.from, view.skip);
            conn.perform(stepped.map_err(|_| EINVAL)?);
        }
        return Ok(Look::Nothing(state));
    };
    if before == 0 {
        count_room(conn, readable as usize, wanted);
    }
    let there = view.pieces.len() as usize;
    let mut bytes = 0usize;
    for piece in view.pieces.iter() {
        let len = (piece.len as usize).min(wanted.saturating_sub(bytes));
        if len == 0 {
            break;
        }
        let copied = if discard {
            len
        } else {
            conn.recv_ring()
                .read(piece.offset as usize, len, msg.dest())
        };
        bytes = bytes.saturating_add(copied);
        if copied < len {
            break;
        }
    }
    if bytes == 0 {
        if there > 0 && wanted > 0 {
            if view.skip > 0 && !peek {
                // As TCP, which has stepped over the urgent byte by then.
                let stepped = conn.proto.lock().read_from(view.from, view.skip);
                conn.perform(stepped.map_err(|_| EINVAL)?);
            }
            return Err(EFAULT);
        }
        if there == 0 && wanted == 0 {
            // A peek that has seen all there is.
            return Ok(Look::Nothing(RecvState::Empty));
        }
    }
    if peek {
        return Ok(Look::Took(Took {
            bytes,
            passed: view.skip as usize,
            more: false,
            stop: false,
        }));
    }
    let done = u32::try_from(bytes)?.saturating_add(view.skip);
    let (actions, more) = {
        let mut proto = conn.proto.lock();
        let actions = proto.read_from(view.from, done).map_err(|_| EINVAL)?;
        let more = matches!(proto.recv_state(), RecvState::Data(_));
        // A reader that stands at the urgent byte steps over it before it sleeps.
        conn.news.set(u32::from(more || proto.at_mark()));
        (actions, more)
    };
    conn.perform(actions);
    Ok(Look::Took(Took {
        bytes,
        passed: 0,
        more: more && bytes < wanted,
        stop: false,
    }))
}

/// Counts a ring that was full, and a call that could not take all that was there.
#[inline]
fn count_room(conn: &SmcConn, there: usize, wanted: usize) {
    if there < conn.recv_ring().size() && wanted >= there {
        return;
    }
    if there >= conn.recv_ring().size() {
        conn.stats().buffer(TrafficDirection::Rx, Buffer::Full);
    }
    if wanted < there {
        conn.stats().buffer(TrafficDirection::Rx, Buffer::TooSmall);
    }
}

/// Returns whether a peek that has seen `seen` bytes need not wait for more: what it has seen stays in the
/// ring and hides that nothing follows.
pub(super) fn is_all(conn: &Arc<SmcConn>, seen: usize) -> bool {
    let proto = conn.proto.lock();
    let over = conn.is_read_shut() || !proto.directions().hearing;
    over && !matches!(proto.recv_state(), RecvState::Data(there) if there as usize > seen)
}

/// Takes the urgent byte, or peeks at it. Returns also whether the receiving direction has ended.
#[cold]
pub(super) fn take_urgent(conn: &Arc<SmcConn>, peek: bool) -> (bool, Result<u8, UrgentError>) {
    let (settings, over, byte) = {
        let mut proto = conn.proto.lock();
        let settings = conn.sync_settings(&mut proto);
        let over = !proto.directions().hearing;
        let byte = match proto.is_cut() {
            true => match proto.take_urgent(true) {
                Err(UrgentError::None) => Err(UrgentError::None),
                _ => Err(UrgentError::Cut),
            },
            false => proto.take_urgent(peek),
        };
        (settings, over, byte)
    };
    conn.perform(settings);
    (over, byte)
}
