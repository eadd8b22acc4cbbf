// SPDX-License-Identifier: GPL-2.0

//! The family's socket operations: which part of the family each call concerns.

use crate::{
    connect,
    crossing,
    data,
    listen,
    socket::{Phase, Socket, RECEIVE},
    sockopt, //
};
use kapi::net::{
    args::{flags, Addr, GetOption, Message, Poll, SetOption, Splice},
    overlay::{Handled, Overlay},
    socket as file, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::reason::Reason;

/// `O_NONBLOCK` among the flags of connect().
const O_NONBLOCK: i32 = 0o4000;
/// `how` of shutdown() with which a listener ends.
const SHUT_RD: i32 = 0;
const SHUT_RDWR: i32 = 2;

/// The SMC family.
pub(crate) struct Smc;

impl Smc {
    /// Before data can flow it has to be known whether it flows by SMC or TCP.
    fn settle(data: &Arc<Socket>, socket: &file::Socket, timeout: isize) -> Result {
        if connect::undecided(data) {
            connect::proceed(data);
            connect::settled(data, socket, timeout)?;
        }
        Ok(())
    }
}

impl Overlay for Smc {
    type Data = Socket;

    fn create(socket: &file::Socket) -> Result<Arc<Socket>> {
        Socket::new(socket.sock().into(), Phase::Init)
    }

    fn attached(data: &Arc<Socket>, socket: &file::Socket) {
        data.attached(socket);
    }

    fn release(data: Arc<Socket>, socket: &file::Socket) {
        data.close(socket);
    }

    fn connect(data: &Arc<Socket>, socket: &file::Socket, addr: &Addr<'_>, flags: i32) -> Result {
        connect::connect(data, socket, addr, flags & O_NONBLOCK != 0, flags)
    }

    fn listen(data: &Arc<Socket>, socket: &file::Socket, backlog: i32) -> Result {
        listen::listen(data, socket, backlog)
    }

    fn accept(
        data: &Arc<Socket>,
        socket: &file::Socket,
        new: &file::Socket,
        nonblock: bool,
    ) -> Result<Arc<Socket>> {
        listen::accept(data, socket, new, nonblock)
    }

    fn poll(data: &Arc<Socket>, socket: &file::Socket, poll: &Poll<'_>) -> u32 {
        if let Some(conn) = data.smc() {
            return data::poll(conn, socket, poll);
        }
        let listener = match &*data.phase.lock() {
            Phase::Listening(listener) => Some(listener.clone()),
            _ => None,
        };
        if let Some(listener) = listener {
            return listen::poll(&listener, socket, poll);
        }
        let open = connect::undecided(data);
        let mut native = socket.native_poll(poll);
        if connect::undecided(data) && data.sock.is_established() {
            // TCP is connected, the program is not yet.
            return native & (flags::EPOLLERR | flags::EPOLLHUP);
        }
        if open {
            // It has been decided between the two; what lay in TCP's queue was the handshake's.
            if let Some(conn) = data.smc() {
                return data::poll(conn, socket, poll);
            }
            native = socket.native_poll(poll);
        }
        if crossing::is_open(data) {
            let hidden = crossing::is_still_open(data, socket);
            if hidden || !data.sock.has_unread() && data.sock.shutdown_mask() & RECEIVE == 0 {
                return native & !(flags::EPOLLIN | flags::EPOLLRDNORM);
            }
        }
        native
    }

    fn has_peer(data: &Arc<Socket>) -> bool {
        data.smc().is_none_or(data::has_peer)
    }

    fn shutdown(data: &Arc<Socket>, socket: &file::Socket, how: i32) -> Result {
        if connect::undecided(data) {
            connect::proceed(data);
        }
        if let Some(conn) = data.smc() {
            return data::shutdown(conn, how);
        }
        if matches!(how, SHUT_RD | SHUT_RDWR) {
            connect::stop_listening(data);
        }
        let result = socket.native_shutdown(how);
        connect::abandon_ended(data);
        match (&result, data.smc()) {
            // It has become one meanwhile; see `connect::conclude`.
            (Ok(()), Some(conn)) => data::shutdown(conn, how),
            _ => result,
        }
    }

    fn ioctl(data: &Arc<Socket>, socket: &file::Socket, command: u32) -> Result<Option<i32>> {
        crossing::is_still_open(data, socket);
        match data.smc() {
            Some(conn) => data::ioctl(conn, command),
            None => Ok(None),
        }
    }

    fn sendmsg(data: &Arc<Socket>, socket: &file::Socket, msg: &mut Message<'_>) -> Result<usize> {
        if msg.has(flags::MSG_FASTOPEN) {
            connect::give_up(data, socket, Reason::UnsupportedOption)?;
        }
        if let Some(conn) = data.smc() {
            return data::send(conn, socket, msg);
        }
        let nonblock = msg.has(flags::MSG_DONTWAIT);
        Self::settle(data, socket, data.sock.send_timeout(nonblock))?;
        match data.smc() {
            Some(conn) => data::send(conn, socket, msg),
            None => socket.native_sendmsg(msg),
        }
    }

    fn recvmsg(data: &Arc<Socket>, socket: &file::Socket, msg: &mut Message<'_>) -> Result<usize> {
        if msg.has(flags::MSG_ERRQUEUE) {
            // Not the stream: ICMP errors, completions.
            return socket.native_recvmsg(msg);
        }
        if let Some(conn) = data.smc() {
            return data::receive(conn, socket, msg);
        }
        let nonblock = msg.has(flags::MSG_DONTWAIT);
        Self::settle(data, socket, data.sock.receive_timeout(nonblock))?;
        crossing::settle(data, socket, data.sock.receive_timeout(nonblock))?;
        match data.smc() {
            Some(conn) => data::receive(conn, socket, msg),
            None => socket.native_recvmsg(msg),
        }
    }

    fn splice(data: &Arc<Socket>, socket: &file::Socket, splice: &mut Splice<'_>) -> Result<usize> {
        // As TCP: the flags concern the pipe, for the socket its file's mode counts.
        let nonblock = socket.is_nonblocking();
        Self::settle(data, socket, data.sock.receive_timeout(nonblock))?;
        crossing::settle(data, socket, data.sock.receive_timeout(nonblock))?;
        if let Some(conn) = data.smc() {
            return conn.splice(socket, splice);
        }
        socket.native_splice(splice)
    }

    fn splice_ended(data: &Arc<Socket>) -> bool {
        let Some(conn) = data.smc() else { return false };
        // As TCP: what only waited for more of the source goes out, what TCP_CORK holds stays.
        if !conn.sock().is_corked() {
            conn.push();
        }
        true
    }

    fn low_water_changed(data: &Arc<Socket>) {
        if let Some(conn) = data.smc() {
            data::low_water_changed(conn);
        }
    }

    fn set_option(
        data: &Arc<Socket>,
        socket: &file::Socket,
        option: &SetOption<'_>,
    ) -> Result<Handled> {
        sockopt::set(data, socket, option)
    }

    fn get_option(
        data: &Arc<Socket>,
        _socket: &file::Socket,
        option: &GetOption<'_>,
    ) -> Result<Handled> {
        sockopt::get(data, option)
    }
}
