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
    if got > 0 && conn.sock().wants_stamps() {
        conn.tell_stamp(msg);
    }
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
    let mut timeout = None;
    let mut got = 0usize;
    // Of a peek: the bytes that lie before those it has got, urgent ones among them.
    let mut passed = offset;
    if conn.news.get() == 0 && !nonblock && wanted > 0 && !conn.is_tcp_dead() {
        // The usual case of a program that waits for an answer: there is nothing to look at.
        let patience = conn.sock().receive_timeout(nonblock);
        timeout = Some(sleep(conn, socket, patience, 0)?);
    }
    loop {
        let ask = Ask {
            wanted: wanted.saturating_sub(got),
            before: got,
            passed,
            peek,
            discard,
        };
        let state = match take(conn, msg, &ask) {
            Ok(Look::Took(took)) => {
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
                    return end(conn, got);
                }
                if got > 0 && conn.is_spliced(msg) {
                    // As TCP: splice() takes what is there, whatever `SO_RCVLOWAT` says.
                    return Ok(got);
                }
                None
            }
            Ok(Look::Mark) => return stay_at_mark(conn, nonblock),
            Ok(Look::Nothing(state)) => Some(state),
            // What was copied before has left the ring.
            Err(_) if got > 0 => return Ok(got),
            Err(err) => return Err(err),
        };
        match state {
            None | Some(RecvState::Data(_)) => (),
            Some(RecvState::Eof) => return Ok(got),
            Some(RecvState::NotConnected) if got == 0 => return Err(errno::ENOTCONN.into()),
            Some(RecvState::Reset | RecvState::Aborted | RecvState::NotConnected) => {
                if got == 0 {
                    conn.sock().take_error()?;
                }
                return Ok(got);
            }
            Some(RecvState::Empty) if conn.notice_tcp_dead() => continue,
            Some(RecvState::Empty) if conn.is_read_shut() => {
                if got == 0 {
                    conn.sock().take_error()?;
                }
                return Ok(got);
            }
            Some(RecvState::Empty) if offset > 0 && is_all(conn, offset) => return end(conn, got),
            Some(RecvState::Empty) => (),
        }
        if got >= target && got > 0 {
            return Ok(got);
        }
        let seen = if peek { got.saturating_add(offset) } else { 0 };
        let patience = timeout.unwrap_or_else(|| conn.sock().receive_timeout(nonblock));
        match sleep(conn, socket, patience, seen) {
            // As TCP: who wants nothing has waited, and does not look again.
            _ if wanted == 0 && patience != 0 => return Ok(0),
            Ok(left) => timeout = Some(left),
            Err(_) if got > 0 => return Ok(got),
            Err(err) => return Err(err),
        }
    }
}

/// Sleeps until there are more than `seen` bytes, or there is no reason to wait for them; at most
/// `timeout` jiffies. Returns what is left of those.
fn sleep(conn: &Arc<SmcConn>, socket: &file::Socket, timeout: isize, seen: usize) -> Result<isize> {
    let is_over = || {
        let proto = conn.proto.lock();
        match proto.recv_state() {
            RecvState::Data(there) if there as usize > seen => true,
            RecvState::Data(_) => conn.is_read_shut() || !proto.directions().hearing,
            RecvState::Empty => conn.is_read_shut(),
            _ => true,
        }
    };
    conn.sock().sleep_for_data(true);
    let waited = wait::until_changed(socket, wait::Kind::Shared, timeout, is_over);
    conn.sock().sleep_for_data(false);
    waited
}

/// Counts a ring that was full, and a call that could not take all that was there.
#[inline]
fn count_room(conn: &SmcConn, there: usize, wanted: usize) {
    if there < conn.recv_ring().size() && wanted >= there {
        return;
    }
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

/// What a peek returns that has come to the end: as with TCP the error of a reset, unless the stream
/// had ended before that.
#[cold]
fn end(conn: &Arc<SmcConn>, got: usize) -> Result<usize> {
    conn.notice_tcp_dead();
    if got == 0 && conn.proto.lock().is_cut() {
        conn.sock().take_error()?;
    }
    Ok(got)
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

/// What one look into the ring has found.
enum Look {
    /// Bytes.
    Took(Took),
    /// No bytes; this is why.
    Nothing(RecvState),
    /// No bytes: the urgent mark, which is not to be passed.
    Mark,
}

/// The end of a read that takes nothing more.
const STOP: Look = Look::Took(Took {
    bytes: 0,
    passed: 0,
    more: false,
    stop: true,
});

fn take(conn: &Arc<SmcConn>, msg: &mut Message<'_>, ask: &Ask) -> Result<Look> {
    let &Ask {
        wanted,
        before,
        passed,
        peek,
        discard,
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
        // Who stands at the urgent byte steps over it before it sleeps.
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

/// What a splice() that stands at the urgent mark returns: as TCP's it neither passes that nor waits.
#[cold]
fn stay_at_mark(conn: &Arc<SmcConn>, nonblock: bool) -> Result<usize> {
    let hearing = conn.proto.lock().directions().hearing;
    if !hearing {
        conn.sock().take_error()?;
    } else if nonblock && !conn.is_read_shut() {
        return Err(EAGAIN);
    }
    Ok(0)
}

#[cold]
fn receive_urgent(conn: &Arc<SmcConn>, msg: &mut Message<'_>) -> Result<usize> {
    conn.notice_tcp_dead();
    let peek = msg.has(flags::MSG_PEEK);
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
        // As TCP: who will not get it any more is at the end.
        Err(UrgentError::NotYet) if conn.is_read_shut() || over => Ok(0),
        Err(UrgentError::NotYet) => Err(EAGAIN),
        Err(UrgentError::None) => Err(EINVAL),
        Err(UrgentError::Cut) => Err(errno::ENOTCONN.into()),
    }
}
