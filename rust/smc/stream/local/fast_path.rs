// SPDX-License-Identifier: GPL-2.0

//! The usual message on a connection that has left TCP: it fits into the ring, or is all that is wanted of
//! it. Everything else goes the way of all streams; a call is here for as long as nothing else happens. And
//! poll() where the rings alone decide.

use super::{
    pair::{suffices, End, Local},
    put, //
};
use crate::stream::StreamIo;
use kapi::net::{
    args::{flags, Message, Poll},
    sock::Sock,
    socket::BsdSocket,
    wait, //
};
use kernel::prelude::*;
use smc_trace as trace;

/// Events that bytes to read mean, and room to write.
pub(super) const READABLE: u32 = flags::EPOLLIN | flags::EPOLLRDNORM;
pub(super) const WRITABLE: u32 = flags::EPOLLOUT | flags::EPOLLWRNORM;

/// Flags that change nothing about what is done here, but for the wait.
const PLAIN: u32 = flags::MSG_DONTWAIT | flags::MSG_NOSIGNAL;
/// Those of a sender: pages of sendfile() are copied like other bytes.
const PLAIN_TO_SEND: u32 = PLAIN | flags::MSG_MORE | flags::MSG_SPLICE_PAGES;

/// Handles sendmsg() of a message for which there is room; `None` for any other, which
/// [`Stream::send`](crate::stream::Stream::send) sends.
///
/// # Errors
///
/// `EFAULT`.
#[inline(always)]
pub(crate) fn send_quickly(local: &Local, msg: &mut Message<'_>) -> Option<Result<usize>> {
    let total = msg.len();
    if msg.flags() as u32 & !PLAIN_TO_SEND != 0 || total == 0 || msg.has_control() {
        return None;
    }
    let (own, other) = local.ends();
    let direction = &own.out;
    let writer = direction.writer.lock();
    if !direction.route().writes_ring() || total > direction.room() {
        return None;
    }
    if local.leaves_to(other) || local.is_tested() || !local.own().may_send() {
        return None;
    }
    let ring = writer.as_ref()?;
    if !ring.write_all(direction.head(), total, msg.source(), || {
        direction.there() == 0
    }) {
        // Of more than a part the beginning is sent, elsewhere.
        return (total <= put::PART).then_some(Err(EFAULT));
    }
    direction.wrote(total);
    direction.counts_put();
    drop(writer);
    put::told(local, other);
    trace::sent(local.own(), total, name);
    Some(Ok(total))
}

/// Handles recvmsg() of whatever the ring holds, once it holds something; `None` when there is more to it, which
/// [`Stream::receive`](crate::stream::Stream::receive) does.
///
/// # Errors
///
/// Those of a wait: `EAGAIN`, `EINTR`, `ERESTARTSYS`; `EFAULT`.
#[inline(always)]
pub(crate) fn receive_quickly(
    local: &Local,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Option<Result<usize>> {
    let wanted = msg.len();
    let sock = local.own();
    let (own, other) = local.ends();
    let direction = &other.out;
    let simple = sock.reads_simply() && own.details.get() == 0;
    if msg.flags() as u32 & !PLAIN != 0 || wanted == 0 || !simple || direction.is_untouched() {
        return None;
    }
    let mut timeout = None;
    loop {
        if direction.there() == 0 {
            let patience = match timeout {
                None => sock.receive_timeout(msg.has(flags::MSG_DONTWAIT)),
                Some(left) => left,
            };
            let ends = || !direction.route().is_ring() || local.is_over() || local.seems_astray();
            // A first wait would see this, too.
            if (patience == 0 || timeout.is_some()) && ends() {
                return None;
            }
            let waited = wait::until_seen(socket, patience, || direction.there() != 0 || ends());
            match waited {
                Ok(left) => timeout = Some(left),
                Err(err) => return Some(Err(err)),
            }
        }
        let reader = direction.reader.lock();
        let there = direction.there();
        if !direction.route().is_ring() {
            return None;
        }
        if there == 0 {
            continue;
        }
        let len = there.min(wanted);
        let bytes = reader.as_ref()?.read(direction.tail(), len, msg.dest());
        if bytes != 0 {
            direction.took(bytes);
            direction.counts_take();
        }
        drop(reader);
        if direction.tells() {
            tell_room(other);
        }
        if bytes == 0 {
            return Some(Err(EFAULT));
        }
        if msg.wants_left() {
            msg.set_left(local.inq_bytes());
        }
        trace::received(sock, bytes, name);
        return Some(Ok(bytes));
    }
}

/// Returns the events of a poller that is registered; `None` where TCP has a say.
#[inline]
pub(super) fn events(local: &Local, poll: &Poll<'_>) -> Option<u32> {
    let sock = local.own();
    let (own, other) = local.ends();
    if !other.out.route().is_ring()
        || !own.out.route().writes_ring()
        || !sock.is_plainly_open()
        || local.seems_astray()
    {
        return None;
    }
    let mut events = 0;
    let there = other.out.there();
    if suffices(&other.out, sock, there) {
        events |= READABLE;
    }
    if poll.wants(WRITABLE) && local.has_room() {
        events |= WRITABLE;
    }
    Some(events)
}

/// Wakes a writer that waits for room.
#[inline(never)]
fn tell_room(other: &End) {
    other.sock.with(Sock::wake_for_room);
}

/// Returns the name of the carrier, for the tracepoints.
pub(super) fn name() -> [u8; 64] {
    let mut name = [0; 64];
    for (to, from) in name.iter_mut().zip(b"local") {
        *to = *from;
    }
    name
}
