// SPDX-License-Identifier: GPL-2.0

//! Sending and receiving over SMC: between the program's memory and the connection's two rings.
//!
//! A byte that is sent goes from the program into the send ring here, from there by an RDMA WRITE
//! into the peer's ring ([`crate::group`]), and is announced by a CDC message; the peer's
//! `on_cdc` wakes the reader, who copies it out of the ring here.

use crate::{
    conn::{now, SmcConn},
    stats::{Buffer, Stat, Way}, //
};
use kapi::{
    errno,
    net::{
        args::{flags, Message, Poll},
        socket as file, //
    },
    sys::wait,
    trace, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::conn::{
    Actions,
    RecvState,
    SendError,
    SendHint,
    State,
    UrgentError, //
};

/// `how` of shutdown().
const SHUT_RD: i32 = 0;
const SHUT_WR: i32 = 1;
const SHUT_RDWR: i32 = 2;

/// sendmsg(): blocking, it takes everything.
///
/// # Errors
///
/// `EPIPE`, `ECONNRESET`, `ECONNABORTED`, `ENOTCONN`; `EAGAIN`, `EINTR` when nothing was taken.
pub(crate) fn send(
    conn: &Arc<SmcConn>,
    socket: &file::Socket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    let notification = conn.sock().notification(msg)?;
    let sent = send_all(conn, socket, msg)?;
    if let Some(notification) = notification {
        notification.copied();
    }
    trace::sent(conn.sock(), sent, || conn.group().device().name());
    Ok(sent)
}

fn send_all(conn: &Arc<SmcConn>, socket: &file::Socket, msg: &mut Message<'_>) -> Result<usize> {
    let nonblock = msg.has(flags::MSG_DONTWAIT);
    let urgent = msg.has(flags::MSG_OOB);
    let more = msg.has(flags::MSG_MORE) || conn.sock().is_corked();
    let no_signal = msg.has(flags::MSG_NOSIGNAL);
    let mut timeout = conn.sock().send_timeout(nonblock);
    let total = msg.len();
    let mut sent = 0usize;
    let stats = conn.stats();
    stats.add(Stat::TxCalls, 1);
    stats.payload(Way::Tx, total);
    if urgent {
        stats.add(Stat::Urgent, 1);
    }
    if total > conn.send_size() {
        stats.buffer(Way::Tx, Buffer::TooSmall);
    }
    conn.notice_tcp_dead();
    while sent < total {
        match put(conn, msg, total.saturating_sub(sent), urgent, more) {
            Ok(taken) => {
                sent = sent.saturating_add(taken);
                stats.add(Stat::TxBytes, taken as u64);
            }
            Err(Stop::Full) => {
                stats.buffer(Way::Tx, Buffer::Full);
                if conn.proto.lock().is_peer_full() {
                    stats.buffer(Way::Tx, Buffer::PeerFull);
                }
                if conn.peer_size().is_some_and(|size| total > size) {
                    stats.buffer(Way::Tx, Buffer::PeerTooSmall);
                }
                let waited = wait::until(socket, wait::Kind::Shared, timeout, || {
                    !matches!(conn.proto.lock().send_room(), Err(SendError::Full))
                });
                match waited {
                    Ok(left) => timeout = left,
                    Err(_) if sent > 0 => break,
                    Err(err) => return Err(err),
                }
            }
            Err(_) if sent > 0 => break,
            Err(Stop::Fault) => return Err(EFAULT),
            // The connection ends with its device.
            Err(Stop::NoRing(err)) if err == ENODEV => return Err(errno::ECONNABORTED.error()),
            Err(Stop::NoRing(err)) => return Err(err),
            Err(Stop::Gone(error)) => return Err(failed(conn, error, no_signal)),
        }
    }
    Ok(sent)
}

enum Stop {
    Full,
    Fault,
    /// There is no memory for the ring.
    NoRing(Error),
    Gone(SendError),
}

/// Puts as much as fits into the send ring.
fn put(
    conn: &Arc<SmcConn>,
    msg: &mut Message<'_>,
    wanted: usize,
    urgent: bool,
    more: bool,
) -> Result<usize, Stop> {
    let _writer = conn.writers.lock();
    let (room, view) = {
        let mut proto = conn.proto.lock();
        match proto.send_room() {
            Ok(room) => (room as usize, proto.send_view()),
            Err(SendError::Full) => return Err(Stop::Full),
            Err(error) => return Err(Stop::Gone(error)),
        }
    };
    let ring = conn.make_send_ring().map_err(Stop::NoRing)?;
    let mut taken = 0usize;
    for piece in view.iter() {
        let len = (piece.len as usize).min(wanted.min(room).saturating_sub(taken));
        if len == 0 {
            break;
        }
        if ring.write(piece.offset as usize, len, msg.source()) < len {
            // As TCP: what was copied of a piece that cannot be read does not count.
            return Err(Stop::Fault);
        }
        taken = taken.saturating_add(len);
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
    let written = conn.proto.lock().written(len, hint, now());
    // shutdown() has come in between: the caller asks for room again, and hears of it.
    let actions = written.map_err(|_| Stop::Full)?;
    conn.perform(actions);
    Ok(taken)
}

fn failed(conn: &SmcConn, error: SendError, no_signal: bool) -> Error {
    match error {
        SendError::NotConnected => errno::ENOTCONN.error(),
        _ => conn.sock().stream_error(no_signal),
    }
}

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
    if msg.has(flags::MSG_OOB) {
        return receive_urgent(conn, msg);
    }
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
    let stats = conn.stats();
    stats.add(Stat::RxCalls, 1);
    stats.payload(Way::Rx, msg.len());
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
            RecvState::Data(_) => {
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
        let waited = wait::until(socket, wait::Kind::Shared, timeout, || {
            match conn.proto.lock().recv_state() {
                RecvState::Data(there) => there as usize > seen,
                RecvState::Empty => conn.is_read_shut(),
                _ => true,
            }
        });
        match waited {
            Ok(left) => timeout = left,
            Err(_) if got > 0 => return Ok(got),
            Err(err) => return Err(err),
        }
    }
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
        conn.stats().add(Stat::RxBytes, bytes as u64);
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

/// poll().
pub(crate) fn poll(conn: &Arc<SmcConn>, socket: &file::Socket, poll: &Poll<'_>) -> u32 {
    // Registers the poller; of what TCP says only a pending error counts.
    let mut events = socket.native_poll(poll) & flags::EPOLLERR;
    let mut proto = conn.proto.lock();
    // As TCP: more than this may never be there at once.
    let most = conn.recv_ring().size() / 2;
    let low = conn.sock().low_water(false, i32::MAX as usize).min(most);
    // A reset of the TCP connection is shown at once, even if nobody has drawn conclusions yet.
    let reset = conn.is_tcp_dead();
    let open = proto.directions();
    let hearing = open.hearing && !conn.is_read_shut() && !reset;
    let talking = open.talking && !reset;
    let readable = match proto.recv_state() {
        RecvState::Data(there) => there as usize >= low,
        _ => false,
    };
    if readable || !hearing {
        events |= flags::EPOLLIN | flags::EPOLLRDNORM;
    }
    if !hearing {
        events |= flags::EPOLLRDHUP;
    }
    if !hearing && !talking {
        events |= flags::EPOLLHUP;
    }
    if proto.has_urgent() {
        events |= flags::EPOLLPRI;
    }
    // Asked first: who finds no room is told when there is some.
    let room = !matches!(
        proto.send_room(),
        Err(SendError::Full | SendError::NotConnected)
    );
    if room || !talking {
        events |= flags::EPOLLOUT | flags::EPOLLWRNORM;
    }
    events
}

/// ioctl(): what it answers with, if it is about data.
pub(crate) fn ioctl(conn: &Arc<SmcConn>, command: u32) -> Result<Option<i32>> {
    const SIOCOUTQNSD: u32 = 0x894b;
    const SIOCATMARK: u32 = 0x8905;
    const SIOCINQ: u32 = 0x541b;
    const SIOCOUTQ: u32 = 0x5411;
    let proto = conn.proto.lock();
    let count = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
    Ok(match command {
        SIOCINQ => Some(count(u64::from(proto.in_queue()))),
        SIOCOUTQ => Some(count(proto.out_queue())),
        SIOCOUTQNSD => Some(count(proto.out_queue_unsent())),
        SIOCATMARK => Some(i32::from(proto.at_mark())),
        _ => None,
    })
}

/// shutdown(); `how` as in the system call.
///
/// # Errors
///
/// `EINVAL` for a `how` that is none, `ENOTCONN` when the connection has ended.
pub(crate) fn shutdown(conn: &Arc<SmcConn>, how: i32) -> Result {
    let (send, receive) = match how {
        SHUT_RD => (false, true),
        SHUT_WR => (true, false),
        SHUT_RDWR => (true, true),
        _ => return Err(EINVAL),
    };
    let actions = {
        let mut proto = conn.proto.lock();
        let open = proto.directions();
        let over = !open.hearing && !open.talking && !proto.is_draining();
        match (proto.state(), send, receive) {
            (State::Closed, ..) => return Err(errno::ENOTCONN.into()),
            // As with TCP, for which both ends have said so.
            _ if over => return Err(errno::ENOTCONN.into()),
            (_, true, true) => proto.shutdown_both(now()),
            (_, true, false) => proto.shutdown_write(now()),
            _ => Actions::NONE,
        }
    };
    if receive {
        conn.shut_read();
    }
    conn.perform(actions);
    conn.sock().wake_state();
    Ok(())
}
