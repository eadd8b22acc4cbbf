// SPDX-License-Identifier: GPL-2.0

//! Socket operations of the family: each serves SMC itself and leaves TCP to TCP.

use crate::{
    entry::sockopt,
    handshake::crossing::RECEIVE,
    socket::{accept, by_tcp, connect, crossing, listen, path, promotion, Phase, SmcSock}, //
    stream::{
        local::{receive_quickly, send_quickly},
        remote::Remote,
        Stream, //
    },
};
use kapi::net::{
    args::{flags, Addr, GetOption, Message, Poll, SetOption, Splice},
    overlay::{Handled, Overlay},
    socket::{BsdSocket, OwnedBsdSocket},
    uapi::{O_NONBLOCK, SHUT_RD, SHUT_RDWR}, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::reason::Reason;

/// The SMC family.
pub(crate) struct Smc;

impl Smc {
    /// Waits until connect() is decided between SMC and TCP, at most `timeout` jiffies: data cannot
    /// be moved before.
    fn settle(data: &Arc<SmcSock>, socket: &BsdSocket, timeout: isize) -> Result {
        if connect::is_undecided(data) {
            connect::advance_pending(data);
            connect::wait_decided(data, socket, timeout)?;
        }
        Ok(())
    }
}

impl Overlay for Smc {
    type Data = SmcSock;
    type Rest = Arc<Remote>;

    fn create(socket: &BsdSocket) -> Result<Arc<SmcSock>> {
        let data = SmcSock::new(socket.sock().into(), Phase::Init)?;
        if socket.is_converted() {
            data.converted.set(1);
        }
        Ok(data)
    }

    fn attached(data: &Arc<SmcSock>, socket: &BsdSocket) {
        data.attached(socket);
    }

    fn is_plain(data: &Arc<SmcSock>) -> bool {
        // The stream was claimed before its first byte; see `Sock::claim_stream`.
        data.is_cold_path()
    }

    fn left(data: &Arc<SmcSock>) {
        data.given_back();
    }

    fn release(data: &Arc<SmcSock>, socket: &BsdSocket) -> Option<Arc<Remote>> {
        data.close(Some(socket))
    }

    fn goes_on(remote: Arc<Remote>, socket: Option<OwnedBsdSocket>) {
        promotion::goes_on(remote, socket);
    }

    fn connect(data: &Arc<SmcSock>, socket: &BsdSocket, addr: &Addr<'_>, flags: i32) -> Result {
        connect::connect(data, socket, addr, flags & O_NONBLOCK != 0, flags)
    }

    fn listen(data: &Arc<SmcSock>, socket: &BsdSocket, backlog: i32) -> Result {
        listen::listen(data, socket, backlog)
    }

    fn accept(
        data: &Arc<SmcSock>,
        socket: &BsdSocket,
        new: &BsdSocket,
        nonblock: bool,
    ) -> Result<Arc<SmcSock>> {
        accept::accept(data, socket, new, nonblock)
    }

    fn accepts_more(data: &Arc<SmcSock>) -> bool {
        accept::accepts_more(data)
    }

    #[inline]
    fn poll(data: &Arc<SmcSock>, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
        match data.stream() {
            Some(stream) => stream.poll(socket, poll),
            None => by_tcp::poll(data, socket, poll)
                .unwrap_or_else(|| poll_without_stream(data, socket, poll)),
        }
    }

    fn has_peer(data: &Arc<SmcSock>) -> bool {
        data.stream().is_none_or(Stream::has_peer)
    }

    fn shutdown(data: &Arc<SmcSock>, socket: &BsdSocket, how: i32) -> Result {
        if connect::is_undecided(data) {
            connect::advance_pending(data);
        }
        if let Some(stream) = data.stream() {
            return stream.shutdown(socket, how);
        }
        if matches!(how, SHUT_RD | SHUT_RDWR) {
            connect::stop_listening(data);
        }
        let inside = data.state.door.enter();
        if inside.is_none() {
            if let Some(stream @ Stream::Remote(_)) = data.stream() {
                // It has become one meanwhile.
                return stream.shutdown(socket, how);
            }
        }
        let result = socket.native_shutdown(how);
        drop(inside);
        connect::abandon_ended(data);
        match (&result, path::stream_made(data)) {
            // It has become one meanwhile; see `connect::conclude`.
            (Ok(()), Some(stream @ Stream::Smcr(_))) => stream.shutdown(socket, how),
            (Ok(()), Some(stream @ Stream::Remote(_))) => {
                // That has not seen it. TCP has been told, and does nothing the second time.
                let _ = stream.shutdown(socket, how);
                result
            }
            _ => result,
        }
    }

    fn ioctl(data: &Arc<SmcSock>, socket: &BsdSocket, command: u32) -> Result<Option<i32>> {
        crossing::is_still_open(data, socket);
        Ok(data.stream().and_then(|stream| stream.ioctl(command)))
    }

    #[inline]
    fn sendmsg(data: &Arc<SmcSock>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
        match data.stream() {
            Some(stream @ Stream::Smcr(_)) if !msg.has(flags::MSG_FASTOPEN) => {
                stream.send(socket, msg)
            }
            Some(Stream::Local(local)) => {
                send_quickly(local, msg).unwrap_or_else(|| send(data, socket, msg))
            }
            Some(stream @ Stream::Remote(_)) if !msg.has(flags::MSG_FASTOPEN) => {
                path::send(data, stream, socket, msg)
            }
            None => by_tcp::send(data, socket, msg).unwrap_or_else(|| send(data, socket, msg)),
            _ => send(data, socket, msg),
        }
    }

    #[inline]
    fn recvmsg(data: &Arc<SmcSock>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
        match data.stream() {
            Some(stream @ Stream::Smcr(_)) if !msg.has(flags::MSG_ERRQUEUE) => {
                stream.receive(socket, msg)
            }
            Some(Stream::Local(local)) => {
                receive_quickly(local, socket, msg).unwrap_or_else(|| receive(data, socket, msg))
            }
            Some(Stream::Remote(remote)) if !msg.has(flags::MSG_ERRQUEUE) => {
                let got = remote.receive(socket, msg)?;
                promotion::look(data, socket, remote);
                Ok(got)
            }
            None => {
                by_tcp::receive(data, socket, msg).unwrap_or_else(|| receive(data, socket, msg))
            }
            _ => receive(data, socket, msg),
        }
    }

    fn splice(data: &Arc<SmcSock>, socket: &BsdSocket, splice: &mut Splice<'_>) -> Result<usize> {
        // As TCP: the flags concern the pipe, for the socket its file's mode counts.
        let nonblock = socket.is_nonblocking();
        Self::settle(data, socket, data.sock.receive_timeout(nonblock))?;
        crossing::settle(data, socket, data.sock.receive_timeout(nonblock))?;
        match path::stream(data, socket) {
            Some(stream) => stream.splice(socket, splice),
            None => socket.native_splice(splice),
        }
    }

    fn splice_ended(data: &Arc<SmcSock>) -> bool {
        let Some(conn) = data.written_smc() else {
            return false;
        };
        // As TCP: what only waited for more of the source goes out, what TCP_CORK holds stays.
        if !conn.sock().is_corked() {
            conn.push();
        }
        true
    }

    fn low_water_changed(data: &Arc<SmcSock>) {
        if let Some(stream) = data.stream() {
            stream.low_water_changed();
        }
    }

    fn set_option(
        data: &Arc<SmcSock>,
        socket: &BsdSocket,
        option: &SetOption<'_>,
    ) -> Result<Handled> {
        sockopt::set(data, socket, option)
    }

    fn get_option(
        data: &Arc<SmcSock>,
        socket: &BsdSocket,
        option: &GetOption<'_>,
    ) -> Result<Handled> {
        sockopt::get(data, socket, option)
    }
}

/// poll() of a socket that is not a stream: undecided, TCP's, or a listener.
#[inline(never)]
fn poll_without_stream(data: &Arc<SmcSock>, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
    let listener = match &*data.state.lock() {
        Phase::Listening(listener) => Some(listener.clone()),
        _ => None,
    };
    if let Some(listener) = listener {
        return accept::poll(&listener, socket, poll);
    }
    if let Some(stream) = data.stream() {
        // It has become one meanwhile.
        return stream.poll(socket, poll);
    }
    let open = connect::is_undecided(data);
    let mut native = socket.native_poll(poll);
    // Perhaps refused, and then it may begin anew, or does at this moment, and be refused again. An edge-triggered
    // poller must not see such an end before TCP has told all those who wait: it would hear of it twice.
    for _ in 0..2 {
        let ended = native & (flags::EPOLLERR | flags::EPOLLHUP) != 0;
        if !(ended && connect::is_undecided(data) && connect::advance_ended(data)) {
            break;
        }
        native = socket.native_poll(poll);
    }
    if connect::is_undecided(data) && data.sock.is_established() {
        // TCP is connected, the program is not yet.
        return native & (flags::EPOLLERR | flags::EPOLLHUP);
    }
    if open && !connect::is_undecided(data) {
        // It has been decided between the two; what lay in TCP's queue was the handshake's.
        if let Some(stream) = data.stream() {
            return stream.poll(socket, poll);
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

/// sendmsg(), but for the usual message of a stream.
#[inline(never)]
fn send(data: &Arc<SmcSock>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    if msg.has(flags::MSG_FASTOPEN) {
        connect::give_up(data, socket, Reason::UnsupportedOption)?;
    }
    if let Some(stream) = data.stream() {
        return path::send(data, stream, socket, msg);
    }
    let nonblock = msg.has(flags::MSG_DONTWAIT);
    Smc::settle(data, socket, data.sock.send_timeout(nonblock))?;
    match path::stream(data, socket) {
        Some(stream) => path::send(data, stream, socket, msg),
        None => socket.native_sendmsg(msg),
    }
}

/// recvmsg(), but for the usual message of a stream.
#[inline(never)]
fn receive(data: &Arc<SmcSock>, socket: &BsdSocket, msg: &mut Message<'_>) -> Result<usize> {
    if msg.has(flags::MSG_ERRQUEUE) {
        // Not the stream: ICMP errors, completions.
        return socket.native_recvmsg(msg);
    }
    if let Some(stream) = data.stream() {
        return path::receive(data, stream, socket, msg);
    }
    let nonblock = msg.has(flags::MSG_DONTWAIT);
    Smc::settle(data, socket, data.sock.receive_timeout(nonblock))?;
    crossing::settle(data, socket, data.sock.receive_timeout(nonblock))?;
    match path::stream(data, socket) {
        Some(stream) => path::receive(data, stream, socket, msg),
        None => socket.native_recvmsg(msg),
    }
}
