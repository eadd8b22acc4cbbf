// SPDX-License-Identifier: GPL-2.0

//! From the program into the send ring.

use crate::{
    carrier::SmcConn,
    host::{
        clock::now,
        stats::{Buffer, Stat, Way},
    }, //
};
use kapi::{
    errno,
    net::{
        args::{flags, Message},
        socket as file, //
    },
    sys::wait, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    conn::{Conn, SendError, SendHint},
    cursor::RingSize, //
};
use smc_trace as trace;

/// sendmsg(): blocking, it takes everything.
///
/// # Errors
///
/// `EPIPE`, `ECONNRESET`, `ECONNABORTED`, `ENOTCONN`; `EAGAIN`, `EINTR` when nothing was taken.
pub(crate) fn send(
    conn: &Arc<SmcConn>,
    socket: &file::BsdSocket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    let notification = conn.sock().notification(msg)?;
    let total = msg.len();
    let sent = send_all(conn, socket, msg)?;
    if sent > 0 {
        conn.stats().payload(Way::Tx, total);
    }
    if let Some(notification) = notification {
        notification.copied();
    }
    trace::sent(conn.sock(), sent, || conn.group().device().name());
    Ok(sent)
}

fn send_all(conn: &Arc<SmcConn>, socket: &file::BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    let nonblock = msg.has(flags::MSG_DONTWAIT);
    let urgent = msg.has(flags::MSG_OOB);
    let more = msg.has(flags::MSG_MORE) || conn.sock().is_corked();
    let no_signal = msg.has(flags::MSG_NOSIGNAL);
    let mut timeout = None;
    let total = msg.len();
    let mut sent = 0usize;
    let stats = conn.stats();
    stats.add(Stat::TxCalls, 1);
    if urgent {
        stats.add(Stat::Urgent, 1);
    }
    // No ring is smaller: most calls need not ask.
    let large = total > RingSize::MIN_WIRE.bytes() as usize;
    if large {
        count_size(conn, total);
    }
    conn.notice_tcp_dead();
    if total == 0 {
        // As with TCP nothing needs no room, and nobody to read it; but the way must be open.
        return match conn.proto.lock().directions().talking {
            true => Ok(0),
            false => Err(conn.sock().stream_error(no_signal)),
        };
    }
    loop {
        match put(conn, msg, total.saturating_sub(sent), urgent, more) {
            Ok((taken, faulted)) => {
                sent = sent.saturating_add(taken);
                stats.add(Stat::TxBytes, taken as u64);
                if faulted || sent >= total {
                    return Ok(sent);
                }
            }
            Err(Stop::Full | Stop::Hungry) => {
                let patience = timeout.unwrap_or_else(|| conn.sock().send_timeout(nonblock));
                match wait_for_room(conn, socket, patience) {
                    Ok(left) => timeout = Some(left),
                    Err(_) if sent > 0 => return Ok(sent),
                    Err(err) => return Err(err),
                }
            }
            Err(_) if sent > 0 => return Ok(sent),
            Err(stop) => return Err(failed(conn, stop, no_signal)),
        }
    }
}

/// Counts rings that are too small for what a call sends.
#[inline(never)]
fn count_size(conn: &SmcConn, total: usize) {
    if total > conn.send_size() {
        conn.stats().buffer(Way::Tx, Buffer::TooSmall);
    }
    if conn.peer_size().is_some_and(|size| total > size) {
        conn.stats().buffer(Way::Tx, Buffer::PeerTooSmall);
    }
}

/// What a send without a ring has met. As TCP does when memory is short, it waits and tries again.
#[cold]
fn no_ring(conn: &SmcConn, error: Error) -> Stop {
    match conn.proto.lock().send_room() {
        // It has ended since there was room.
        Err(over) if over != SendError::Full => Stop::Gone(over),
        _ if error == ENOMEM => Stop::Hungry,
        _ => Stop::NoDevice,
    }
}

/// Sleeps until there is room to write, or memory for that, at most `timeout` jiffies; returns what is left of those.
#[inline(never)]
fn wait_for_room(conn: &Arc<SmcConn>, socket: &file::BsdSocket, timeout: isize) -> Result<isize> {
    let stats = conn.stats();
    if !conn.is_hungry() {
        stats.buffer(Way::Tx, Buffer::Full);
    }
    if conn.proto.lock().is_peer_full() {
        stats.buffer(Way::Tx, Buffer::PeerFull);
    }
    wait::until(socket, wait::Kind::Shared, timeout, || {
        match conn.proto.lock().send_room() {
            Err(SendError::Full) => false,
            Ok(_) => !conn.is_hungry(),
            Err(_) => true,
        }
    })
}

enum Stop {
    Full,
    Fault,
    /// There is no memory for the ring just now.
    Hungry,
    /// The device is gone.
    NoDevice,
    Gone(SendError),
}

/// The program's memory is copied in parts of so many bytes; of one that cannot be read to its end
/// nothing is sent. TCP's are at most as large.
const PART: usize = 32 << 10;

/// Puts as much as fits into the send ring. Returns how much that was, and whether the program's memory
/// could not be read beyond it.
fn put(
    conn: &Arc<SmcConn>,
    msg: &mut Message<'_>,
    wanted: usize,
    urgent: bool,
    more: bool,
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

#[cold]
fn failed(conn: &SmcConn, stop: Stop, no_signal: bool) -> Error {
    match stop {
        // Who finds no room or memory waits.
        Stop::Full | Stop::Hungry => EAGAIN,
        Stop::Fault => EFAULT,
        // The connection ends with its device.
        Stop::NoDevice => errno::ECONNABORTED.error(),
        Stop::Gone(SendError::NotConnected) => errno::ENOTCONN.error(),
        Stop::Gone(_) => conn.sock().stream_error(no_signal),
    }
}
