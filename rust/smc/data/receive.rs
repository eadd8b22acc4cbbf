// SPDX-License-Identifier: GPL-2.0

//! Out of the receive ring to the program.

use crate::{
    conn::SmcConn,
    stats::{Buffer, Stat, Way}, //
};
use kapi::{
    errno,
    net::{
        args::{flags, Message},
        socket as file, //
    },
    sys::wait,
    trace, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::conn::{RecvState, UrgentError};

/// recvmsg().
///
/// # Errors
///
/// `ECONNRESET`, `ECONNABORTED` (once), `ENOTCONN`; `EAGAIN`, `EINTR` when nothing was read.
pub(crate) fn receive(
    conn: &Arc<SmcConn>,
    socket: &file::Socket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    conn.stats().add(Stat::RxCalls, 1);
    let got = match msg.has(flags::MSG_OOB) {
        true => receive_urgent(conn, msg)?,
        false => receive_stream(conn, socket, msg)?,
    };
    if got > 0 {
        conn.stats().payload(Way::Rx, got);
        conn.stats().add(Stat::RxBytes, got as u64);
    }
    Ok(got)
}

fn receive_stream(
    conn: &Arc<SmcConn>,
    socket: &file::Socket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    let peek = msg.has(flags::MSG_PEEK);
    let offset = if peek { conn.sock().peek_offset() } else { 0 };
    let got = receive_from(conn, socket, msg, offset)?;
    conn.sock().move_peek_offset(peek, got);
    trace::received(conn.sock(), got, || conn.group().device().name());
    Ok(got)
}

/// Reads, or peeks from `offset` on.
fn receive_from(
    conn: &Arc<SmcConn>,
    socket: &file::Socket,
    msg: &mut Message<'_>,
    offset: usize,
) -> Result<usize> {
    let nonblock = msg.has(flags::MSG_DONTWAIT);
    let peek = msg.has(flags::MSG_PEEK);
    let discard = msg.has(flags::MSG_TRUNC);
    let wanted = msg.len();
    let target = conn.sock().low_water(msg.has(flags::MSG_WAITALL), wanted);
    let mut timeout = conn.sock().receive_timeout(nonblock);
    let mut got = 0usize;
    // Of a peek: the bytes that lie before those it has got, urgent ones among them.
    let mut passed = offset;
    loop {
        let state = conn.proto.lock().recv_state();
        match state {
            RecvState::Data(there) => {
                if got == 0 {
                    count_room(conn, there as usize, wanted);
                }
                let ask = Ask {
                    wanted: wanted.saturating_sub(got),
                    before: got,
                    passed,
                    peek,
                    discard,
                };
                let took = match take(conn, msg, &ask) {
                    Ok(took) => took,
                    // What was copied before has left the ring.
                    Err(_) if got > 0 => return Ok(got),
                    Err(err) => return Err(err),
                };
                got = got.saturating_add(took.bytes);
                passed = passed.saturating_add(took.passed);
                if got >= wanted || got >= target && !took.more || took.stop {
                    return Ok(got);
                }
                if peek && !took.more && got > 0 && got < target && nonblock {
                    return Ok(got);
                }
                if took.more {
                    continue;
                }
                if peek && is_all(conn, got.saturating_add(offset)) {
                    return Ok(got);
                }
            }
            RecvState::Eof => return Ok(got),
            RecvState::NotConnected if got == 0 => return Err(errno::ENOTCONN.into()),
            RecvState::Reset | RecvState::Aborted | RecvState::NotConnected => {
                if got == 0 {
                    conn.sock().take_error()?;
                }
                return Ok(got);
            }
            RecvState::Empty if conn.is_read_shut() => return Ok(got),
            RecvState::Empty if conn.notice_tcp_dead() => continue,
            RecvState::Empty => (),
        }
        if got >= target && got > 0 {
            return Ok(got);
        }
        let seen = if peek { got.saturating_add(offset) } else { 0 };
        conn.sock().sleep_for_data(true);
        let waited = wait::until(socket, wait::Kind::Shared, timeout, || {
            let proto = conn.proto.lock();
            match proto.recv_state() {
                RecvState::Data(there) if there as usize > seen => true,
                RecvState::Data(_) => conn.is_read_shut() || !proto.directions().hearing,
                RecvState::Empty => conn.is_read_shut(),
                _ => true,
            }
        });
        conn.sock().sleep_for_data(false);
        match waited {
            Ok(left) => timeout = left,
            Err(_) if got > 0 => return Ok(got),
            Err(err) => return Err(err),
        }
    }
}

/// Counts a ring that was full, and a call that could not take all that was there.
fn count_room(conn: &SmcConn, there: usize, wanted: usize) {
    if there >= conn.recv_ring().size() {
        conn.stats().buffer(Way::Rx, Buffer::Full);
    }
    if wanted < there {
        conn.stats().buffer(Way::Rx, Buffer::TooSmall);
    }
}

/// Whether a peek that has seen so many bytes need not wait for more: what it has seen stays in the
/// ring and hides that nothing follows.
fn is_all(conn: &Arc<SmcConn>, seen: usize) -> bool {
    let proto = conn.proto.lock();
    let over = conn.is_read_shut() || !proto.directions().hearing;
    over && !matches!(proto.recv_state(), RecvState::Data(there) if there as usize > seen)
}

/// What one look into the ring is for.
struct Ask {
    wanted: usize,
    /// Bytes that the call has got already.
    before: usize,
    /// Of a peek: others that lie before those.
    passed: usize,
    peek: bool,
    discard: bool,
}

/// What one look into the ring has brought.
struct Took {
    bytes: usize,
    /// Of a peek: urgent bytes before those.
    passed: usize,
    /// There is more to read.
    more: bool,
    /// The read ends here: at the urgent mark.
    stop: bool,
}

fn take(conn: &Arc<SmcConn>, msg: &mut Message<'_>, ask: &Ask) -> Result<Took> {
    let &Ask {
        wanted,
        before,
        passed,
        peek,
        discard,
    } = ask;
    let _reader = conn.readers.lock();
    if conn.has_left() {
        return Ok(Took {
            bytes: 0,
            passed: 0,
            more: false,
            stop: true,
        });
    }
    let peeked = if peek {
        u32::try_from(before.saturating_add(passed))?
    } else {
        0
    };
    let (settings, view) = {
        let mut proto = conn.proto.lock();
        (conn.sync_settings(&mut proto), proto.recv_view(peeked))
    };
    conn.perform(settings);
    if view.at_mark && before > 0 {
        return Ok(Took {
            bytes: 0,
            passed: 0,
            more: false,
            stop: true,
        });
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
    if bytes == 0 && there > 0 && wanted > 0 {
        return Err(EFAULT);
    }
    if !peek {
        let done = u32::try_from(bytes)?.saturating_add(view.skip);
        let actions = conn
            .proto
            .lock()
            .read_from(view.from, done)
            .map_err(|_| EINVAL)?;
        conn.perform(actions);
    }
    let more = if peek {
        false
    } else {
        matches!(conn.proto.lock().recv_state(), RecvState::Data(_))
    };
    Ok(Took {
        bytes,
        passed: if peek { view.skip as usize } else { 0 },
        more: more && bytes < wanted,
        stop: false,
    })
}

fn receive_urgent(conn: &Arc<SmcConn>, msg: &mut Message<'_>) -> Result<usize> {
    let peek = msg.has(flags::MSG_PEEK);
    let (settings, byte) = {
        let mut proto = conn.proto.lock();
        (conn.sync_settings(&mut proto), proto.take_urgent(peek))
    };
    conn.perform(settings);
    match byte {
        Ok(byte) => {
            conn.stats().add(Stat::Urgent, 1);
            msg.set_result_flag(flags::MSG_OOB);
            if msg.len() == 0 {
                msg.set_result_flag(flags::MSG_TRUNC);
                return Ok(0);
            }
            if msg.has(flags::MSG_TRUNC) {
                return Ok(1);
            }
            msg.put(&[byte])?;
            Ok(1)
        }
        Err(UrgentError::NotYet) => Err(EAGAIN),
        Err(UrgentError::None) => Err(EINVAL),
    }
}
