// SPDX-License-Identifier: GPL-2.0

//! Calls of a connection with another host that has not been worth promoting: TCP's own functions serve them.
//!
//! What keeps TCP's stream apart from a ring's, [`Remote`](crate::stream::remote::Remote), is made when the connection is
//! worth promoting, or when a call asks for more than the usual. Until then calls go in by the [`Door`] of the state. They do
//! not wait inside of TCP, so a moment comes when nobody is inside. It is shut then, before anything else is done to promote
//! the connection, and all calls go through the `Remote` from then on: nobody gives TCP a byte, or takes one, who does not
//! know of it.
//!
//! [`Door`]: kapi::sys::door::Door

use super::{path, promotion, smc_sock::SmcSock};
use crate::stream::Stream;
use kapi::{
    errno::{self, Errno},
    net::{
        args::{flags, Message, Poll},
        sock::tcp_state,
        socket::BsdSocket,
        wait, //
    }, //
};
use kernel::{prelude::*, sync::Arc};
use smc_trace as trace;

/// Flags that change nothing about what is done here, but for the wait.
const PLAIN: u32 = flags::MSG_DONTWAIT | flags::MSG_NOSIGNAL;
/// Those of a sender.
const PLAIN_TO_SEND: u32 = PLAIN | flags::MSG_MORE | flags::MSG_SPLICE_PAGES;

/// Handles sendmsg(); `None` where TCP is not to do it, or there is more to it.
///
/// # Errors
///
/// Those of `tcp_sendmsg()`.
#[inline(always)]
pub(crate) fn send(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Option<Result<usize>> {
    let door = &this.state.door;
    if !door.is_open() || msg.flags() as u32 & !PLAIN_TO_SEND != 0 || msg.has_control() {
        return None;
    }
    let inside = door.enter()?;
    let sent = socket.native_sendmsg_now(msg);
    drop(inside);
    match sent {
        Ok(bytes) if bytes == msg.len() => (),
        Err(err) if err == EAGAIN && !msg.has(flags::MSG_DONTWAIT) => return None,
        Err(_) => return Some(sent),
        Ok(bytes) => return Some(send_rest(this, socket, msg, bytes)),
    }
    trace::sent(&this.sock, msg.len(), || [0; 64]);
    look(this, socket);
    Some(sent)
}

/// Goes on with a call of which TCP has taken `sent` bytes.
#[cold]
fn send_rest(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
    sent: usize,
) -> Result<usize> {
    let waits = !msg.has(flags::MSG_DONTWAIT);
    let all = match path::stream(this, socket) {
        Some(Stream::Remote(remote)) if waits => remote.send_rest(socket, msg, sent)?,
        None if waits => sent.saturating_add(send_by_tcp(socket, msg, sent)),
        _ => sent,
    };
    trace::sent(&this.sock, all, || [0; 64]);
    look(this, socket);
    Ok(all)
}

/// Has TCP send the rest of a call. Returns how much that was; what has ended it is told to the next call.
fn send_by_tcp(socket: &BsdSocket, msg: &mut Message<'_>, sent: usize) -> usize {
    let sock = socket.sock();
    match socket.native_sendmsg_rest(msg, sent) {
        Ok(more) => more,
        Err(err) => {
            if !errno::EPIPE.is(err) && sock.state() == tcp_state::CLOSE {
                sock.report_error(Errno::of(err));
            }
            0
        }
    }
}

/// Handles recvmsg(); `None` where TCP is not to do it, or there is more to it.
///
/// # Errors
///
/// Those of `tcp_recvmsg()`.
#[inline(always)]
pub(crate) fn receive(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Option<Result<usize>> {
    let sock = &*this.sock;
    let door = &this.state.door;
    let unusual = msg.flags() as u32 & !PLAIN != 0 || msg.len() == 0;
    if !door.is_open() || unusual || !sock.reads_simply() {
        return None;
    }
    let waits = !msg.has(flags::MSG_DONTWAIT);
    let mut left = None;
    if waits && sock.is_quiet() {
        let patience = sock.receive_timeout(false);
        match wait::until_seen(socket, patience, || !sock.is_quiet() || !door.is_open()) {
            Ok(patience) => left = Some(patience),
            Err(err) => return Some(Err(err)),
        }
    }
    let Some(inside) = door.enter() else {
        return left.map(|left| receive_on(this, socket, msg, left));
    };
    let got = socket.native_recvmsg_now(msg);
    drop(inside);
    match (&got, left) {
        (Ok(bytes), _) => trace::received(sock, *bytes, || [0; 64]),
        (Err(err), Some(left)) if *err == EAGAIN => {
            return Some(receive_on(this, socket, msg, left));
        }
        (Err(err), None) if *err == EAGAIN && waits => return None,
        (Err(_), _) => return Some(got),
    }
    look(this, socket);
    Some(got)
}

/// Goes on with a call that has waited, and may wait for `left` jiffies more: others have shut the door, or taken what had
/// come.
#[cold]
fn receive_on(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
    left: isize,
) -> Result<usize> {
    let Some(Stream::Remote(remote)) = path::stream(this, socket) else {
        return socket.native_recvmsg(msg);
    };
    let got = remote.receive_on(socket, msg, left.max(1))?;
    promotion::look(this, socket, remote);
    Ok(got)
}

/// Handles poll(); `None` where TCP is not to do it.
#[inline(always)]
pub(crate) fn poll(this: &SmcSock, socket: &BsdSocket, poll: &Poll<'_>) -> Option<u32> {
    let door = &this.state.door;
    if !door.is_open() {
        return None;
    }
    let events = socket.native_poll(poll);
    // Otherwise what shut it has woken those who wait perhaps before this one was among them.
    door.is_open().then_some(events)
}

/// Looks whether the connection, which has just carried bytes, is worth promoting.
#[inline(always)]
fn look(this: &Arc<SmcSock>, socket: &BsdSocket) {
    let due = this.sock.data_segments().wrapping_sub(this.due_at.get()) as i32;
    if due >= 0 {
        promote(this, socket);
    }
}

#[cold]
fn promote(this: &Arc<SmcSock>, socket: &BsdSocket) {
    if let Some(Stream::Remote(remote)) = path::stream(this, socket) {
        promotion::look(this, socket, remote);
    }
}
