// SPDX-License-Identifier: GPL-2.0

//! The lane of a connection whose two ends are in this kernel.
//!
//! It begins as plain TCP. When both ends have met ([`rendezvous`]) each direction may leave TCP for a ring in
//! memory (`direction.rs`) and come back, at a position of TCP's stream that both know. A byte is copied into
//! the ring (`put.rs`) and out of it (`take.rs`), by the two programs themselves. Connection, errors, end
//! and options stay TCP's: a FIN follows the last byte of the ring, and a reset ends both.

mod cut_check;
mod direction;
mod facts;
mod fast_path;
mod idle;
mod leave;
mod limit;
mod pair;
mod put;
mod rendezvous;
mod stay;
mod take;

use self::fast_path::{READABLE, WRITABLE};
pub(crate) use self::{
    idle::Registration,
    pair::Local, //
    rendezvous::{Rendezvous, RENDEZVOUS},
};

use crate::lane;
use kapi::{
    net::{
        args::{flags, Message, Poll, Splice},
        socket::BsdSocket, //
    },
    sys::word::full_barrier, //
};
use kernel::{prelude::*, sync::atomic::Relaxed};

/// sendmsg() of the usual message; `None` for any other, which [`send`] sends.
///
/// # Errors
///
/// TCP's.
#[inline(always)]
pub(crate) fn send_quickly(local: &Local, msg: &mut Message<'_>) -> Option<Result<usize>> {
    fast_path::send(local, msg)
}

/// sendmsg().
///
/// # Errors
///
/// TCP's.
pub(crate) fn send(local: &Local, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    lane::send(local, socket, msg)
}

/// recvmsg() of the usual message; `None` for any other, which [`receive`] receives.
///
/// # Errors
///
/// TCP's.
#[inline(always)]
pub(crate) fn receive_quickly(
    local: &Local,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Option<Result<usize>> {
    fast_path::receive(local, socket, msg)
}

/// recvmsg().
///
/// # Errors
///
/// TCP's.
pub(crate) fn receive(local: &Local, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    if msg.has(flags::MSG_OOB) {
        // Urgent bytes go by TCP, and nobody waits for them there.
        return socket.native_recvmsg(msg);
    }
    lane::receive(local, socket, msg)
}

/// splice() from the socket.
///
/// # Errors
///
/// TCP's.
pub(crate) fn splice(local: &Local, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
    local.splices().add(1, Relaxed);
    let moved = socket.copy_splice(splice);
    local.splices().add(-1, Relaxed);
    moved
}

/// poll(): TCP's events, but for what the rings hold.
pub(crate) fn poll(local: &Local, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
    // What is looked at from here on, and changes later, wakes the poller.
    socket.register(poll);
    if let Some(events) = fast_path::events(local, poll) {
        return events;
    }
    // TCP is asked first: if it reports the end of the stream, the ring is already complete.
    let native = socket.native_events(poll);
    let mut events = native;
    if local.ring_holds() && !local.is_over() && local.has_enough() {
        events |= READABLE;
    }
    let failed = native & (flags::EPOLLHUP | flags::EPOLLERR) != 0;
    if local.writes_ring() && !failed && poll.wants(WRITABLE) {
        events &= !WRITABLE;
        if local.has_room() {
            events |= WRITABLE;
        }
    }
    events
}

/// ioctl(): what it answers with, if it is about received data.
pub(crate) fn ioctl(local: &Local, command: u32) -> Option<i32> {
    const SIOCATMARK: u32 = 0x8905;
    const SIOCINQ: u32 = 0x541b;
    if !local.ring_holds() {
        return None;
    }
    match command {
        SIOCINQ => Some(i32::try_from(local.readable()).unwrap_or(i32::MAX)),
        // The mark is in TCP's stream.
        SIOCATMARK => Some(0),
        _ => None,
    }
}

/// Returns how many bytes can be read, and whether the end of the stream has arrived.
pub(crate) fn unread(local: &Local) -> (usize, bool) {
    // In this order: what precedes an end is seen with it.
    let ended = local.own().has_seen_fin();
    (local.readable(), ended)
}

/// Wakes readers if a lower `SO_RCVLOWAT` makes what is there enough.
pub(crate) fn low_water_changed(local: &Local) {
    // Between the new limit and the look at the bytes: a writer looks at them the other way round.
    full_barrier();
    if local.ring_holds() && local.has_enough() {
        local.own().wake_readers();
    }
}
