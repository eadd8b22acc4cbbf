// SPDX-License-Identifier: GPL-2.0

//! The usual message on a connection that has left TCP: it fits into the ring, or is all that is wanted of
//! it. Everything else goes the way of all lanes; a call is here for as long as nothing else happens.

use super::{pair::Local, put};
use kapi::{
    net::{
        args::{flags, Message},
        socket::BsdSocket, //
    },
    sys::wait, //
};
use kernel::prelude::*;
use smc_trace as trace;

/// Flags that change nothing about what is done here, but for the wait.
const PLAIN: u32 = flags::MSG_DONTWAIT | flags::MSG_NOSIGNAL;

/// sendmsg() of a message for which there is room; `None` for any other.
#[inline]
pub(super) fn send(local: &Local, msg: &mut Message<'_>) -> Option<Result<usize>> {
    let total = msg.len();
    if msg.flags() as u32 & !(PLAIN | flags::MSG_MORE) != 0 || total.wrapping_sub(1) >= put::PART {
        return None;
    }
    let way = local.out();
    let writer = way.writer.lock();
    if !way.route().writes_ring()
        || total > way.room()
        || local.is_to_leave()
        || local.is_tested()
        || !local.own().may_send()
    {
        return None;
    }
    let ring = writer.as_ref()?;
    if ring.write(way.head(), total, msg.source()) < total {
        // Nothing of it is sent.
        return Some(Err(EFAULT));
    }
    way.wrote(total);
    drop(writer);
    put::told(local);
    trace::sent(local.own(), total, name);
    Some(Ok(total))
}

/// recvmsg() of whatever the ring holds, once it holds something; `None` when there is more to it.
#[inline]
pub(super) fn receive(
    local: &Local,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Option<Result<usize>> {
    let wanted = msg.len();
    let sock = local.own();
    if msg.flags() as u32 & !PLAIN != 0 || wanted == 0 || !sock.reads_simply() {
        return None;
    }
    let way = local.inward();
    let mut timeout = None;
    loop {
        if way.there() == 0 {
            if !way.route().is_ring() || local.is_over() || local.seems_astray() {
                return None;
            }
            let nonblock = msg.has(flags::MSG_DONTWAIT);
            let patience = timeout.unwrap_or_else(|| sock.receive_timeout(nonblock));
            let waited = wait::until_changed(socket, wait::Kind::Shared, patience, || {
                let news = way.there() != 0 || local.is_over() || !way.route().is_ring();
                news || local.seems_astray()
            });
            match waited {
                Ok(left) => timeout = Some(left),
                Err(err) => return Some(Err(err)),
            }
            continue;
        }
        let reader = way.reader.lock();
        let there = way.there();
        if !way.route().is_ring() {
            return None;
        }
        if there == 0 {
            continue;
        }
        let len = there.min(wanted);
        let bytes = reader.as_ref()?.read(way.tail(), len, msg.dest());
        if bytes == 0 {
            return Some(Err(EFAULT));
        }
        let room = way.took(bytes);
        drop(reader);
        if room {
            if let Some(peer) = local.peer() {
                peer.wake_for_room();
            }
        }
        trace::received(sock, bytes, name);
        return Some(Ok(bytes));
    }
}

/// Returns the name of the carrier, for the tracepoints.
pub(super) fn name() -> [u8; 64] {
    let mut name = [0; 64];
    for (to, from) in name.iter_mut().zip(b"local") {
        *to = *from;
    }
    name
}
