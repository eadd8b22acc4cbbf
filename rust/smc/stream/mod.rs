// SPDX-License-Identifier: GPL-2.0

//! What moves a socket's bytes between the program and its peer: an SMC-R connection with its two rings
//! (`ring.rs`), a connection within this kernel (`local.rs`), whose bytes go by TCP or through memory, or one with
//! another host that has begun as TCP and may become an SMC-R connection (`remote.rs`).
//!
//! [`StreamIo`] has all operations of a stream, and [`Stream`] is the one type that tells them apart. recvmsg()
//! and sendmsg() wait, peek, time out and fail in `receive.rs` and `send.rs`, once for all: a stream says what has
//! arrived and what there is room for, and copies. The calls of a socket that fell back are TCP's own functions and do
//! not come here.

pub(crate) mod local;
mod receive;
pub(crate) mod remote;
mod ring;
mod send;

pub(crate) use self::ring::shut_down;

use self::{
    local::Local,
    receive::{Ask, Look, Took, STOP},
    remote::Remote,
    send::{Put, Stop}, //
};
use crate::{host::stats::Stats, smcr::SmcConn};
use kapi::net::{
    args::{Message, Poll, Splice},
    sock::Sock,
    socket::BsdSocket, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::conn::UrgentError;

/// The stream of a socket that has left TCP's functions. Its `send` and `receive` are in the files of these names.
#[derive(Clone, Copy)]
pub(crate) enum Stream<'a> {
    /// An SMC-R connection.
    Smcr(&'a Arc<SmcConn>),
    /// A connection within this kernel.
    Local(&'a Local),
    /// A connection with another host that has begun as TCP.
    Remote(&'a Remote),
}

impl Stream<'_> {
    /// Handles splice() from the socket.
    ///
    /// # Errors
    ///
    /// Those of `tcp_splice_read()`.
    pub(crate) fn splice(self, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
        match self {
            Self::Smcr(conn) => conn.splice(socket, splice),
            Self::Local(local) => local.splice(socket, splice),
            Self::Remote(remote) => remote.enter().splice(socket, splice),
        }
    }

    /// Handles poll(): registers the poller and returns the events.
    #[inline]
    pub(crate) fn poll(self, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
        match self {
            Self::Smcr(conn) => conn.poll(socket, poll),
            Self::Local(local) => local.poll(socket, poll),
            Self::Remote(remote) => remote.enter().poll(socket, poll),
        }
    }

    /// Handles shutdown(); `how` as in the system call.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a `how` that is none, `ENOTCONN` when the connection has ended.
    pub(crate) fn shutdown(self, socket: &BsdSocket, how: i32) -> Result {
        match self {
            Self::Smcr(conn) => conn.shutdown(socket, how),
            Self::Local(local) => local.shutdown(socket, how),
            Self::Remote(remote) => remote.enter().shutdown(socket, how),
        }
    }

    /// Answers an ioctl(); `None` leaves it to TCP.
    pub(crate) fn ioctl(self, command: u32) -> Option<i32> {
        match self {
            Self::Smcr(conn) => conn.ioctl(command),
            Self::Local(local) => local.ioctl(command),
            Self::Remote(remote) => remote.enter().ioctl(command),
        }
    }

    /// Returns how many bytes can be read, and whether the end of the stream has arrived.
    pub(crate) fn unread(self) -> (usize, bool) {
        match self {
            Self::Smcr(conn) => conn.unread(),
            Self::Local(local) => local.unread(),
            Self::Remote(remote) => remote.enter().unread(),
        }
    }

    /// Tells whether getpeername() has a peer to name.
    pub(crate) fn has_peer(self) -> bool {
        match self {
            Self::Smcr(conn) => conn.has_peer(),
            Self::Local(local) => local.has_peer(),
            Self::Remote(remote) => remote.enter().has_peer(),
        }
    }

    /// Wakes readers if a lower `SO_RCVLOWAT` makes what is there enough.
    pub(crate) fn low_water_changed(self) {
        match self {
            Self::Smcr(conn) => conn.low_water_changed(),
            Self::Local(local) => local.low_water_changed(),
            Self::Remote(remote) => {
                let inside = remote.enter();
                inside.low_water_changed();
                // TCP's caller has the socket locked.
                inside.leave();
            }
        }
    }
}

/// What the first step of a sendmsg() or recvmsg() asks of a stream, which most often is all that there is to do.
pub(crate) trait Usual {
    /// True if [`StreamIo::is_readable`] takes no lock but spinlocks, so that a task which is about to sleep may ask.
    const NEVER_SLEEPS_TO_LOOK: bool;

    /// Returns the TCP connection, whose options, time-outs and wait queue are the stream's.
    fn sock(&self) -> &Sock;

    /// Returns the counters of its bytes and calls; `None` for a stream that counts them itself, since some
    /// are TCP's.
    fn stats(&self) -> Option<&Stats>;

    /// Notes the end of the TCP connection if that was not noted yet. Returns whether that changes
    /// what can be read or written.
    fn notice_dead(&self) -> bool;

    /// Copies what has arrived to the program.
    ///
    /// # Errors
    ///
    /// `EFAULT` when the program's memory cannot be written.
    fn take(&self, msg: &mut Message<'_>, ask: &Ask<'_>) -> Result<Look>;

    /// Tells whether the stream has gone elsewhere since the call has come, so that no step is to be taken here.
    #[inline]
    fn is_left(&self) -> bool {
        false
    }

    /// Goes on with what [`Usual::take`] has brought, where that is not all of the call.
    ///
    /// # Errors
    ///
    /// As [`Usual::take`].
    #[inline]
    fn took(&self, _msg: &mut Message<'_>, _ask: &Ask<'_>, look: Result<Look>) -> Result<Look> {
        look
    }

    /// Tells whether nothing has arrived since a read took all there was: a hint, without a lock.
    fn is_quiet(&self) -> bool;

    /// Polls what data arrive by, if the program wants that, before a read that finds the stream quiet sleeps or fails.
    /// Returns whether it has.
    fn busy_poll(&self, _nonblock: bool) -> bool {
        false
    }

    /// Tells whether the program has shut the receiving direction.
    fn is_read_shut(&self) -> bool;

    /// Takes as much from the program as there is room for. Returns how much that was, and whether the
    /// program's memory could not be read beyond it.
    ///
    /// # Errors
    ///
    /// The reason why nothing was taken.
    fn put(&self, msg: &mut Message<'_>, put: &Put<'_>) -> Result<(usize, bool), Stop>;

    /// Tells whether the program may still send.
    fn can_send(&self) -> bool;

    /// Counts a send of `total` bytes for which a buffer is too small.
    fn count_size(&self, total: usize);
}

/// A stream of bytes between the program and its peer.
pub(crate) trait StreamIo: Usual {
    /// True if the count of unread bytes excludes an urgent byte at the head of the stream.
    const HIDES_URGENT: bool;

    /// See [`Stream::splice`].
    ///
    /// # Errors
    ///
    /// Those of `tcp_splice_read()`.
    fn splice(&self, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize>;

    /// See [`Stream::poll`].
    fn poll(&self, socket: &BsdSocket, poll: &Poll<'_>) -> u32;

    /// See [`Stream::shutdown`].
    ///
    /// # Errors
    ///
    /// `EINVAL` for a `how` that is none, `ENOTCONN` when the connection has ended.
    fn shutdown(&self, socket: &BsdSocket, how: i32) -> Result;

    /// See [`Stream::ioctl`].
    fn ioctl(&self, command: u32) -> Option<i32>;

    /// See [`Stream::unread`].
    fn unread(&self) -> (usize, bool);

    /// See [`Stream::has_peer`].
    fn has_peer(&self) -> bool;

    /// See [`Stream::low_water_changed`].
    fn low_water_changed(&self);

    /// Returns the name of the device that has carried a call's bytes, for the tracepoints; empty if that is
    /// TCP. `carried` is what the stream has made of [`Ask::carried`] or [`Put::carried`].
    fn device(&self, carried: bool) -> [u8; 64];

    /// Returns how many bytes can be read, as `TCP_INQ` tells: an end that has arrived counts as one.
    fn inq_bytes(&self) -> u32;

    /// Tells the program what it wants to know beside the `got` bytes: when the latest ones arrived, and how
    /// many are left (`TCP_INQ`).
    fn tell(&self, msg: &mut Message<'_>, got: usize);

    /// Takes the urgent byte, or peeks at it. Returns also whether the receiving direction has ended.
    fn take_urgent(&self, peek: bool) -> (bool, Result<u8, UrgentError>);

    /// Tells whether a reader has no reason to sleep: there are more than `seen` bytes, or none will come.
    fn is_readable(&self, seen: usize) -> bool;

    /// Tells whether no bytes will follow the first `seen`.
    fn is_all(&self, seen: usize) -> bool;

    /// Tells whether the peer may still send.
    fn can_receive(&self) -> bool;

    /// Tells whether the stream was reset before its end had arrived.
    fn is_cut(&self) -> bool;

    /// Tells whether this is the recvmsg() of a splice().
    fn is_spliced(&self, msg: &Message<'_>) -> bool;

    /// Tells whether a writer has no reason to sleep: there is room, or there will never be any.
    fn is_writable(&self) -> bool;

    /// Counts a send that has to wait for room.
    fn count_full(&self);
}
