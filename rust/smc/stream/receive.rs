// SPDX-License-Identifier: GPL-2.0

//! recvmsg(): from a stream to the program.

use super::{
    local::Local,
    remote::{Inside, Remote},
    Stream, StreamIo, Usual,
};
use crate::host::stats::{Stat, TrafficDirection};
use core::cell::Cell;
use kapi::{
    errno,
    net::{
        args::{flags, Message},
        sock::Sock,
        socket::BsdSocket,
        wait, //
    },
};
use kernel::prelude::*;
use smc_proto::conn::{RecvState, UrgentError};
use smc_trace as trace;

/// The purpose of one look at what has arrived.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// Most bytes to take.
    pub(crate) wanted: usize,
    /// Bytes that the call has got already.
    pub(crate) before: usize,
    /// For `MSG_PEEK`: bytes before those, which the call skips.
    pub(crate) passed: usize,
    /// The bytes stay.
    pub(crate) peek: bool,
    /// The bytes are thrown away.
    pub(crate) discard: bool,
    /// Becomes true when bytes of the call have not gone by TCP; for a stream that counts itself.
    pub(crate) carried: &'a Cell<bool>,
}

/// The bytes that one look has brought.
pub(crate) struct Took {
    /// Their number.
    pub(crate) bytes: usize,
    /// Of a peek: urgent bytes before those.
    pub(crate) passed: usize,
    /// There is more to read.
    pub(crate) more: bool,
    /// The read ends here: at the urgent mark.
    pub(crate) stop: bool,
}

/// The result of one look.
pub(crate) enum Look {
    /// Bytes.
    Took(Took),
    /// No bytes; this is why.
    Nothing(RecvState),
    /// No bytes: the urgent mark, which is not to be passed.
    Mark,
}

/// The end of a read that takes nothing more.
pub(crate) const STOP: Look = Look::Took(Took {
    bytes: 0,
    passed: 0,
    more: false,
    stop: true,
});

impl Stream<'_> {
    /// Handles recvmsg().
    ///
    /// # Errors
    ///
    /// Those of `tcp_recvmsg()`.
    pub(crate) fn receive(self, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
        match self {
            Self::Smcr(conn) => receive(conn, conn, socket, msg),
            // Urgent bytes go by TCP, where a read does not wait for them.
            Self::Local(_) if msg.has(flags::MSG_OOB) => socket.native_recvmsg(msg),
            Self::Local(local) => receive_local(local, socket, msg),
            Self::Remote(remote) => receive_remote(remote, socket, msg),
        }
    }
}

// Not inlined: an SMC-R connection's would have fewer registers.
#[inline(never)]
fn receive_local(local: &Local, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    receive(local, local, socket, msg)
}

#[inline(never)]
fn receive_remote(remote: &Remote, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    if msg.has(flags::MSG_OOB) && remote.has_urgent_by_tcp() {
        return socket.native_recvmsg(msg);
    }
    let inside = remote.enter();
    match inside.through() {
        // A peek of what is left in a ring is none of its own.
        Some(usual) if !msg.has(flags::MSG_PEEK) => receive(&usual, &inside, socket, msg),
        _ => receive_either(&inside, socket, msg),
    }
}

// As above.
#[inline(never)]
fn receive_either(inside: &Inside<'_>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    receive(inside, inside, socket, msg)
}

impl Remote {
    /// Handles recvmsg().
    ///
    /// # Errors
    ///
    /// Those of `tcp_recvmsg()`.
    #[inline]
    pub(crate) fn receive(&self, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
        receive_remote(self, socket, msg)
    }

    /// Goes on with a recvmsg() that has waited, and may wait for `left` jiffies more.
    ///
    /// # Errors
    ///
    /// Those of `tcp_recvmsg()`.
    pub(crate) fn receive_on(
        &self,
        socket: &BsdSocket,
        msg: &mut Message<'_>,
        left: isize,
    ) -> Result<usize> {
        let inside = self.enter();
        let carried = Cell::new(false);
        let look = inside.take(msg, &ask(msg, 0, 0, &carried));
        let got = receive_on(&inside, socket, msg, (0, &carried), Some(left), look)?;
        told(inside.sock(), &inside, msg, got, &carried);
        if msg.wants_left() {
            msg.set_left(inside.inq_bytes());
        }
        Ok(got)
    }
}

/// recvmsg(): `usual` does the first step, `stream` what there is besides.
///
/// # Errors
///
/// `ECONNRESET`, `ECONNABORTED` (once), `ENOTCONN`; `EAGAIN`, `EINTR` when nothing was read.
fn receive(
    usual: &impl Usual,
    stream: &impl StreamIo,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    if let Some(stats) = usual.stats() {
        stats.add(Stat::RxCalls, 1);
    }
    let got = match msg.has(flags::MSG_OOB) {
        true => receive_urgent(stream, msg)?,
        false => receive_stream(usual, stream, socket, msg)?,
    };
    if msg.wants_left() {
        msg.set_left(stream.inq_bytes());
    }
    if let (Some(stats), 1..) = (usual.stats(), got) {
        stats.payload(TrafficDirection::Rx, got);
        stats.add(Stat::RxBytes, got as u64);
    }
    Ok(got)
}

fn receive_stream(
    usual: &impl Usual,
    stream: &impl StreamIo,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    let peek = msg.has(flags::MSG_PEEK);
    let sock = usual.sock();
    let offset = if peek { sock.peek_offset() } else { 0 };
    let carried = Cell::new(false);
    let got = receive_from(usual, stream, socket, msg, offset, &carried)?;
    // As TCP: splice() is no read to `SO_PEEK_OFF`.
    if sock.has_peek_offset() && !stream.is_spliced(msg) {
        sock.move_peek_offset(peek, got);
    }
    told(sock, stream, msg, got, &carried);
    Ok(got)
}

/// Tells of `got` bytes what they were asked for beside them.
#[inline]
fn told(
    sock: &Sock,
    stream: &impl StreamIo,
    msg: &mut Message<'_>,
    got: usize,
    carried: &Cell<bool>,
) {
    if sock.wants_stamps() || sock.wants_count() {
        stream.tell(msg, got);
    }
    trace::received(sock, got, || stream.device(carried.get()));
}

/// Asks for what follows `got` bytes, and `passed` before those. For `carried` see [`Ask::carried`].
#[inline]
fn ask<'a>(msg: &Message<'_>, got: usize, passed: usize, carried: &'a Cell<bool>) -> Ask<'a> {
    Ask {
        wanted: msg.len().saturating_sub(got),
        before: got,
        passed,
        peek: msg.has(flags::MSG_PEEK),
        discard: msg.has(flags::MSG_TRUNC),
        carried,
    }
}

/// Returns how many bytes are enough to return.
#[inline]
fn target(sock: &Sock, msg: &Message<'_>) -> usize {
    sock.low_water(msg.has(flags::MSG_WAITALL), msg.len())
}

/// Reads, or peeks from `offset` on. For `carried` see [`Ask::carried`].
fn receive_from(
    usual: &impl Usual,
    stream: &impl StreamIo,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
    offset: usize,
    carried: &Cell<bool>,
) -> Result<usize> {
    let wanted = msg.len();
    let mut timeout = None;
    if wanted > 0 && usual.is_quiet() {
        let nonblock = msg.has(flags::MSG_DONTWAIT);
        let polled = usual.busy_poll(nonblock);
        if !nonblock && (!polled || usual.is_quiet()) {
            // A program that waits for an answer, usually: no bytes have come yet.
            let patience = usual.sock().receive_timeout(nonblock);
            timeout = Some(sleep_first(usual, stream, socket, patience)?);
        }
    }
    let first = ask(msg, 0, offset, carried);
    if usual.is_left() {
        // While it slept.
        let look = stream.take(msg, &first);
        return receive_on(stream, socket, msg, (offset, carried), timeout, look);
    }
    match usual.take(msg, &first) {
        // Most often.
        Ok(Look::Took(took))
            if took.bytes >= wanted
                || took.stop && !usual.is_left()
                || !took.more && took.bytes >= target(usual.sock(), msg) =>
        {
            Ok(took.bytes)
        }
        look => {
            let look = usual.took(msg, &first, look);
            receive_on(stream, socket, msg, (offset, carried), timeout, look)
        }
    }
}

/// Goes on after the first look of a call, which may have waited; `timeout` is what was left then.
#[inline(never)]
fn receive_on(
    stream: &impl StreamIo,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
    (offset, carried): (usize, &Cell<bool>),
    mut timeout: Option<isize>,
    first: Result<Look>,
) -> Result<usize> {
    let nonblock = msg.has(flags::MSG_DONTWAIT);
    let peek = msg.has(flags::MSG_PEEK);
    let wanted = msg.len();
    let target = target(stream.sock(), msg);
    let mut got = 0usize;
    // Of a peek: the bytes that lie before those it has got, urgent ones among them.
    let mut passed = offset;
    let mut first = Some(first);
    loop {
        let look = match first.take() {
            Some(look) => look,
            None => {
                let next = ask(msg, got, passed, carried);
                stream.take(msg, &next)
            }
        };
        let state = match look {
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
                if peek && stream.is_all(got.saturating_add(before(stream, offset, passed))) {
                    return end(stream, got);
                }
                if got > 0 && stream.is_spliced(msg) {
                    // As TCP: splice() takes what is there, whatever `SO_RCVLOWAT` says.
                    return Ok(got);
                }
                None
            }
            Ok(Look::Mark) => return stay_at_mark(stream, nonblock),
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
                    stream.sock().take_error()?;
                }
                return Ok(got);
            }
            Some(RecvState::Empty) if stream.notice_dead() => continue,
            Some(RecvState::Empty) if stream.is_read_shut() => {
                if got == 0 {
                    stream.sock().take_error()?;
                }
                return Ok(got);
            }
            Some(RecvState::Empty) if offset > 0 && stream.is_all(offset) => {
                return end(stream, got)
            }
            Some(RecvState::Empty) => (),
        }
        if got >= target && got > 0 {
            return Ok(got);
        }
        let seen = match peek {
            true => got.saturating_add(before(stream, offset, passed)),
            false => 0,
        };
        let patience = timeout.unwrap_or_else(|| stream.sock().receive_timeout(nonblock));
        match sleep(stream, socket, patience, seen) {
            // As tcp_recvmsg(): a call for 0 bytes waits once, and returns without a second check.
            _ if wanted == 0 && patience != 0 => return Ok(0),
            Ok(left) => timeout = Some(left),
            Err(_) if got > 0 => return Ok(got),
            Err(err) => return Err(err),
        }
    }
}

/// Returns the position of a peek in the units in which `stream` counts: `passed` includes an urgent byte that the peek
/// has stepped over, `offset` does not.
#[inline]
fn before<L: StreamIo>(_stream: &L, offset: usize, passed: usize) -> usize {
    match L::HIDES_URGENT {
        true => offset,
        false => passed,
    }
}

/// Sleeps until there are more than `seen` bytes, or there is no reason to wait for them; at most
/// `timeout` jiffies. Returns what is left of those.
fn sleep(stream: &impl StreamIo, socket: &BsdSocket, timeout: isize, seen: usize) -> Result<isize> {
    stream.sock().sleep_for_data(true);
    let waited = wait::until_changed(socket, wait::Kind::Shared, timeout, || {
        stream.is_readable(seen)
    });
    stream.sock().sleep_for_data(false);
    waited
}

/// Sleeps like [`sleep`] until there may be anything, with fewer steps where the stream allows that: it takes no lock to
/// look. Once for a call: it does not look for signals where the stream is not quiet, so a loop of this could not be
/// ended.
fn sleep_first<U: Usual>(
    usual: &U,
    stream: &impl StreamIo,
    socket: &BsdSocket,
    timeout: isize,
) -> Result<isize> {
    if !U::NEVER_SLEEPS_TO_LOOK {
        return sleep(stream, socket, timeout, 0);
    }
    usual.sock().sleep_for_data(true);
    let waited = wait::until_seen(socket, timeout, || {
        !usual.is_quiet() || usual.is_read_shut()
    });
    usual.sock().sleep_for_data(false);
    waited
}

/// Ends a peek that has seen all: as with TCP that returns the error of a reset, unless the stream had
/// ended before that.
#[cold]
fn end(stream: &impl StreamIo, got: usize) -> Result<usize> {
    stream.notice_dead();
    if got == 0 && stream.is_cut() {
        stream.sock().take_error()?;
    }
    Ok(got)
}

/// Ends a splice() at the urgent mark: as TCP's it neither passes that nor waits.
#[cold]
fn stay_at_mark(stream: &impl StreamIo, nonblock: bool) -> Result<usize> {
    if !stream.can_receive() {
        if stream.is_cut() {
            stream.sock().take_error()?;
        }
    } else if nonblock && !stream.is_read_shut() {
        return Err(EAGAIN);
    }
    Ok(0)
}

#[cold]
fn receive_urgent(stream: &impl StreamIo, msg: &mut Message<'_>) -> Result<usize> {
    stream.notice_dead();
    let peek = msg.has(flags::MSG_PEEK);
    let (over, byte) = stream.take_urgent(peek);
    match byte {
        Ok(byte) => {
            if let Some(stats) = stream.stats() {
                stats.add(Stat::Urgent, 1);
            }
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
        // As tcp_recv_urg(): the end of the stream, if the urgent byte can no longer come.
        Err(UrgentError::NotYet) if stream.is_read_shut() || over => Ok(0),
        Err(UrgentError::NotYet) => Err(EAGAIN),
        Err(UrgentError::None) => Err(EINVAL),
        Err(UrgentError::Cut) => Err(errno::ENOTCONN.into()),
    }
}
