// SPDX-License-Identifier: GPL-2.0

//! The lane of an SMC-R connection: its send ring and its receive ring.
//!
//! A byte that is sent goes from the program into the send ring (`put.rs`), from there by an RDMA WRITE
//! into the peer's ring ([`crate::smcr::group`]), and is announced by a CDC message or an
//! immediate; that wakes the peer's reader, who copies it out of the ring (`take.rs`).

mod facts;
mod put;
mod take;

use crate::{
    host::clock::now, //
    smcr::SmcConn,
};
use kapi::{
    errno,
    net::{
        args::{flags, Poll},
        socket::BsdSocket, //
    }, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::conn::{
    Actions,
    ConnState, //
    RecvState,
    SendError,
};

/// `how` of shutdown().
const SHUT_RD: i32 = 0;
const SHUT_WR: i32 = 1;
const SHUT_RDWR: i32 = 2;

/// Wakes readers if a lower `SO_RCVLOWAT` makes what is there enough.
pub(crate) fn low_water_changed(conn: &Arc<SmcConn>) {
    let enough = conn.has_enough(&conn.proto.lock());
    if enough {
        conn.sock().wake_readers();
    }
}

/// poll().
pub(crate) fn poll(conn: &Arc<SmcConn>, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
    // Registers the poller; of what TCP says only a pending error counts.
    let mut events = socket.native_poll(poll) & flags::EPOLLERR;
    let mut proto = conn.proto.lock();
    // A reset of the TCP connection is shown at once, even if nobody has drawn conclusions yet.
    let reset = conn.is_tcp_dead() && !proto.awaits_end();
    let open = proto.directions();
    let hearing = open.hearing && !conn.is_read_shut() && !reset;
    let talking = open.talking && !reset;
    let readable = conn.has_enough(&proto);
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
    let room = match proto.send_room() {
        Err(SendError::Full | SendError::NotConnected) => false,
        Ok(_) => !conn.is_hungry(),
        Err(_) => true,
    };
    if !room {
        conn.sock().expect_room();
    }
    if room || !talking {
        events |= flags::EPOLLOUT | flags::EPOLLWRNORM;
    }
    events
}

/// Tells whether getpeername() has a peer to name. As with TCP there is none after a reset, or when both
/// ends have sent all; TCP beneath ends only after that.
pub(crate) fn has_peer(conn: &Arc<SmcConn>) -> bool {
    let proto = conn.proto.lock();
    let open = proto.directions();
    open.hearing || open.talking || proto.is_draining()
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

/// Returns how many bytes can be read, and whether the end of the stream follows them at once.
pub(crate) fn unread(conn: &Arc<SmcConn>) -> (usize, bool) {
    let proto = conn.proto.lock();
    let ended = matches!(proto.recv_state(), RecvState::Eof);
    (proto.in_queue() as usize, ended)
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
    let mut ended = false;
    conn.notice_tcp_dead();
    let actions = {
        let mut proto = conn.proto.lock();
        let open = proto.directions();
        // That it is reset TCP may tell before the peer's message does.
        let reset = conn.is_tcp_dead() && !proto.awaits_end();
        let over = reset || !open.hearing && !open.talking && !proto.is_draining();
        match (proto.state(), send, receive) {
            (ConnState::Closed, ..) => {
                ended = true;
                Actions::NONE
            }
            // As with TCP, for which both ends have said so. The peer still hears of the close.
            (state, true, true) if over && state.may_close() => {
                ended = true;
                proto.shutdown_both(now())
            }
            _ if over => {
                ended = true;
                Actions::NONE
            }
            (_, true, true) => proto.shutdown_both(now()),
            // The second of the two ways: nobody will read, and the peer is told so.
            (_, true, false) if conn.is_read_shut() => proto.shutdown_both(now()),
            (_, false, true) if !open.talking => proto.shutdown_both(now()),
            (_, true, false) => proto.shutdown_write(now()),
            _ => Actions::NONE,
        }
    };
    if receive {
        conn.shut_read();
    }
    conn.perform(actions);
    // As TCP, in any case: somebody may wait for nothing else.
    conn.sock().wake_state();
    match ended {
        true => Err(errno::ENOTCONN.into()),
        false => Ok(()),
    }
}
