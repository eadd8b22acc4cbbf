// SPDX-License-Identifier: GPL-2.0

//! sendmsg(): from the program into a stream.

use super::{
    local::Local,
    remote::{Inside, Remote},
    Stream,
    StreamIo,
    Usual, //
};
use crate::host::stats::{Stat, TrafficDirection};
use core::cell::Cell;
use kapi::{
    errno,
    net::{
        args::{flags, Message},
        sock::{tcp_state, Sock},
        socket::BsdSocket,
        wait, //
    },
};
use kernel::prelude::*;
use smc_proto::{conn::SendError, cursor::RingSize};
use smc_trace as trace;

/// Time until TCP, which had no memory, is asked again; its own sendmsg() waits for some hundredths of a second, too.
const PAUSE_MS: u32 = 50;

/// The bytes of one put.
pub(crate) struct Put<'a> {
    /// Bytes that are left of the call.
    pub(crate) wanted: usize,
    /// The last byte of the call is urgent.
    pub(crate) urgent: bool,
    /// More will follow at once, so that they may be held back.
    pub(crate) more: bool,
    /// Becomes true when bytes of the call have not gone by TCP; for a stream that counts itself.
    pub(crate) carried: &'a Cell<bool>,
}

/// The reason why nothing was put.
pub(crate) enum Stop {
    /// There is no room.
    Full,
    /// The program's memory cannot be read.
    Fault,
    /// There is no memory for the ring just now.
    NoRing,
    /// TCP has room but no memory just now, and does not wake the writer when it has.
    Later,
    /// The device is gone.
    NoDevice,
    /// The sending direction has ended, or was never open.
    Gone(SendError),
    /// TCP, to which the bytes were given, refuses them.
    Tcp(Error),
}

impl Stream<'_> {
    /// Handles sendmsg().
    ///
    /// # Errors
    ///
    /// Those of `tcp_sendmsg()`.
    pub(crate) fn send(self, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
        match self {
            Self::Smcr(conn) => send(conn, conn, socket, msg),
            Self::Local(local) => send_local(local, socket, msg),
            Self::Remote(remote) => send_remote(remote, socket, msg),
        }
    }
}

// Not inlined: an SMC-R connection's would have fewer registers.
#[inline(never)]
fn send_local(local: &Local, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    send(local, local, socket, msg)
}

#[inline(never)]
fn send_remote(remote: &Remote, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    let inside = remote.enter();
    match inside.through() {
        Some(usual) => send(&usual, &inside, socket, msg),
        None => send_either(&inside, socket, msg),
    }
}

// As above.
#[inline(never)]
fn send_either(inside: &Inside<'_>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    send(inside, inside, socket, msg)
}

impl Remote {
    /// Goes on with a sendmsg() of which TCP has taken `sent` bytes.
    ///
    /// # Errors
    ///
    /// None, as some bytes are sent.
    pub(crate) fn send_rest(
        &self,
        socket: &BsdSocket,
        msg: &mut Message<'_>,
        sent: usize,
    ) -> Result<usize> {
        let carried = Cell::new(false);
        send_on(&self.enter(), socket, msg, &carried, Ok((sent, false)))
    }
}

/// sendmsg(): blocking, it takes everything. `usual` does the first step, `stream` what there is besides.
///
/// # Errors
///
/// `EPIPE`, `ECONNRESET`, `ECONNABORTED`, `ENOTCONN`; `EAGAIN`, `EINTR` when nothing was taken.
fn send(
    usual: &impl Usual,
    stream: &impl StreamIo,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    let sock = usual.sock();
    let notification = sock.notification(msg)?;
    if msg.has_control() {
        sock.check_control(msg)?;
    }
    let total = msg.len();
    let carried = Cell::new(false);
    let sent = send_all(usual, stream, socket, msg, &carried)?;
    if let (Some(stats), 1..) = (usual.stats(), sent) {
        stats.payload(TrafficDirection::Tx, total);
    }
    if let Some(notification) = notification {
        notification.copied();
    }
    trace::sent(sock, sent, || stream.device(carried.get()));
    Ok(sent)
}

/// Returns what is left of a call after `sent` bytes. For `carried` see [`Put::carried`].
#[inline]
fn rest<'a>(sock: &Sock, msg: &Message<'_>, sent: usize, carried: &'a Cell<bool>) -> Put<'a> {
    Put {
        wanted: msg.len().saturating_sub(sent),
        urgent: msg.has(flags::MSG_OOB),
        more: msg.has(flags::MSG_MORE) || sock.is_corked(),
        carried,
    }
}

/// Sends all of it. For `carried` see [`Put::carried`].
fn send_all(
    usual: &impl Usual,
    stream: &impl StreamIo,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
    carried: &Cell<bool>,
) -> Result<usize> {
    let total = msg.len();
    let stats = usual.stats();
    if let Some(stats) = stats {
        stats.add(Stat::TxCalls, 1);
        if msg.has(flags::MSG_OOB) {
            stats.add(Stat::Urgent, 1);
        }
    }
    // No ring is smaller: most calls need not ask.
    let large = total > RingSize::MIN_WIRE.bytes() as usize;
    if large {
        usual.count_size(total);
    }
    usual.notice_dead();
    if total == 0 {
        // As with TCP a call for 0 bytes needs neither room nor a reader; but the direction must be open.
        return match usual.can_send() {
            true => Ok(0),
            false => Err(usual.sock().stream_error(msg.has(flags::MSG_NOSIGNAL))),
        };
    }
    let put = rest(usual.sock(), msg, 0, carried);
    match usual.put(msg, &put) {
        // Most often.
        Ok((taken, _)) if taken >= total => {
            if let Some(stats) = stats {
                stats.add(Stat::TxBytes, taken as u64);
            }
            Ok(taken)
        }
        // What has ended is not the stream.
        Err(Stop::Gone(_)) if usual.is_left() => {
            let first = stream.put(msg, &put);
            send_on(stream, socket, msg, carried, first)
        }
        first => send_on(stream, socket, msg, carried, first),
    }
}

/// Goes on after the first put of a call.
#[inline(never)]
fn send_on(
    stream: &impl StreamIo,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
    carried: &Cell<bool>,
    first: Result<(usize, bool), Stop>,
) -> Result<usize> {
    let nonblock = msg.has(flags::MSG_DONTWAIT);
    let no_signal = msg.has(flags::MSG_NOSIGNAL);
    let total = msg.len();
    let mut timeout = None;
    let mut sent = 0usize;
    let mut put = first;
    loop {
        match put {
            Ok((taken, faulted)) => {
                sent = sent.saturating_add(taken);
                if let Some(stats) = stream.stats() {
                    stats.add(Stat::TxBytes, taken as u64);
                }
                if faulted || sent >= total {
                    return Ok(sent);
                }
            }
            Err(stop @ (Stop::Full | Stop::NoRing | Stop::Later)) => {
                let patience = timeout.unwrap_or_else(|| stream.sock().send_timeout(nonblock));
                let waited = match stop {
                    Stop::Later => wait::a_while(socket, PAUSE_MS, patience),
                    _ => wait_for_room(stream, socket, patience),
                };
                match waited {
                    Ok(left) => timeout = Some(left),
                    Err(_) if sent > 0 => return Ok(sent),
                    Err(err) => return Err(err),
                }
            }
            Err(stop) if sent > 0 => {
                give_back_error(stream, stop);
                return Ok(sent);
            }
            Err(stop) => return Err(failed(stream, stop, no_signal)),
        }
        let more = rest(stream.sock(), msg, sent, carried);
        put = stream.put(msg, &more);
    }
}

/// Sleeps until there is room to write, or memory for that, at most `timeout` jiffies; returns what is left of those.
#[inline(never)]
fn wait_for_room(stream: &impl StreamIo, socket: &BsdSocket, timeout: isize) -> Result<isize> {
    stream.count_full();
    wait::until(socket, wait::Kind::Shared, timeout, || stream.is_writable())
}

/// Has the next call tell of what ended TCP: this one, which has sent something, has fetched it from there.
#[cold]
fn give_back_error(stream: &impl StreamIo, stop: Stop) {
    let sock = stream.sock();
    match stop {
        Stop::Tcp(err) if !errno::EPIPE.is(err) && sock.state() == tcp_state::CLOSE => {
            sock.report_error(errno::Errno::of(err));
        }
        _ => (),
    }
}

#[cold]
fn failed(stream: &impl StreamIo, stop: Stop, no_signal: bool) -> Error {
    match stop {
        // A caller that finds no room or memory waits.
        Stop::Full | Stop::NoRing | Stop::Later => EAGAIN,
        Stop::Fault => EFAULT,
        // The connection ends with its device.
        Stop::NoDevice => errno::ECONNABORTED.error(),
        Stop::Gone(SendError::NotConnected) => errno::ENOTCONN.error(),
        Stop::Tcp(err) if !errno::EPIPE.is(err) => err,
        Stop::Gone(_) | Stop::Tcp(_) => stream.sock().stream_error(no_signal),
    }
}
