// SPDX-License-Identifier: GPL-2.0

//! A stream protocol laid over TCP.
//!
//! A user's overlay socket *is* a TCP socket, with another operations table: `struct socket` points
//! to the TCP `struct sock` itself, so options, errors, wait queues, SIGIO, accounting and
//! diagnosis are TCP's without any copying. What the overlay knows about a socket, its
//! [`Overlay::Data`], hangs beside it (in the inode's private pointer, which sockets do not use).
//! A socket that gives the overlay up becomes an ordinary TCP socket: [`Socket::become_native`]
//! switches to a table that holds TCP's own functions.

use crate::net::{
    args::{Addr, GetOption, Message, Poll, SetOption, Splice},
    socket::Socket, //
};
use kernel::{prelude::*, sync::Arc};

/// What an operation did with an option.
pub enum Handled {
    /// The overlay dealt with it.
    Done,
    /// TCP is to deal with it.
    Native,
}

/// The policy of an overlay family. All functions are called in process context, without locks.
pub trait Overlay: Sized + Send + Sync + 'static {
    /// What the overlay keeps for each socket.
    type Data: Send + Sync + 'static;

    /// Makes the data of a socket that is used for the first time.
    ///
    /// # Errors
    ///
    /// Whatever the operation that needed the data shall return.
    fn create(socket: &Socket) -> Result<Arc<Self::Data>>;

    /// `data` is the data of `socket` from now on, until [`Overlay::release`]; called once.
    ///
    /// What [`Overlay::create`] has made may be thrown away instead, when two threads use a new
    /// socket at once.
    fn attached(data: &Arc<Self::Data>, socket: &Socket);

    /// The socket is being closed; TCP's own release follows.
    fn release(data: Arc<Self::Data>, socket: &Socket);

    /// connect(); see TCP's for the errors.
    fn connect(data: &Arc<Self::Data>, socket: &Socket, addr: &Addr<'_>, flags: i32) -> Result;

    /// listen().
    fn listen(data: &Arc<Self::Data>, socket: &Socket, backlog: i32) -> Result;

    /// accept(): gives `new` a connection, and its data; one that is TCP's
    /// [becomes native](Socket::become_native).
    ///
    /// # Errors
    ///
    /// TCP's; without a connection `new` is left alone.
    fn accept(
        data: &Arc<Self::Data>,
        socket: &Socket,
        new: &Socket,
        nonblock: bool,
    ) -> Result<Arc<Self::Data>>;

    /// poll(): the `EPOLL` events that hold now.
    fn poll(data: &Arc<Self::Data>, socket: &Socket, poll: &Poll<'_>) -> u32;

    /// Whether getpeername() may name TCP's peer, if TCP has one.
    fn has_peer(data: &Arc<Self::Data>) -> bool;

    /// shutdown(); `how` as in the system call.
    fn shutdown(data: &Arc<Self::Data>, socket: &Socket, how: i32) -> Result;

    /// ioctl(): the int that the overlay answers with, or `None` to leave the command to TCP.
    fn ioctl(data: &Arc<Self::Data>, socket: &Socket, command: u32) -> Result<Option<i32>>;

    /// sendmsg(), returns the bytes taken.
    fn sendmsg(data: &Arc<Self::Data>, socket: &Socket, msg: &mut Message<'_>) -> Result<usize>;

    /// recvmsg(), returns the bytes given.
    fn recvmsg(data: &Arc<Self::Data>, socket: &Socket, msg: &mut Message<'_>) -> Result<usize>;

    /// splice() from the socket, returns the bytes moved.
    fn splice(data: &Arc<Self::Data>, socket: &Socket, splice: &mut Splice<'_>) -> Result<usize>;

    /// sendfile() or splice() into the socket has come to the end of its source; whether that is all
    /// there is to do. Otherwise TCP hears of it, too.
    fn splice_ended(data: &Arc<Self::Data>) -> bool;

    /// `SO_RCVLOWAT` has another value. In contrast to the others this is called with the socket
    /// locked, and by BPF programs in softirq: it must not sleep.
    fn low_water_changed(data: &Arc<Self::Data>);

    /// setsockopt(), of every level but `SOL_SOCKET`.
    fn set_option(
        data: &Arc<Self::Data>,
        socket: &Socket,
        option: &SetOption<'_>,
    ) -> Result<Handled>;

    /// getsockopt(), of every level but `SOL_SOCKET`.
    fn get_option(
        data: &Arc<Self::Data>,
        socket: &Socket,
        option: &GetOption<'_>,
    ) -> Result<Handled>;
}
