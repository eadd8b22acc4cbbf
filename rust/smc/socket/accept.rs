// SPDX-License-Identifier: GPL-2.0

//! accept() and poll() of a listener.

use super::{
    listener::{Listener, Ready, Verdict},
    path,
    smc_sock::SmcSock,
    state::Phase, //
};
use crate::host::fallback::{Fallback, Role};
use kapi::net::{
    args::{flags, Poll},
    sock::tcp_state,
    socket::BsdSocket,
    wait, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{conn::CloseMode, reason::Reason};

/// Handles accept(): gives `new` a connection.
///
/// # Errors
///
/// TCP's.
pub(crate) fn accept(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    new: &BsdSocket,
    nonblock: bool,
) -> Result<Arc<SmcSock>> {
    let (listener, inherited) = match &*this.state.lock() {
        Phase::Listening(listener) => (Some(listener.clone()), None),
        Phase::Fallback(fallback) => (None, Some(*fallback)),
        _ => (None, None),
    };
    let keeps_syn = listener.as_ref().is_none_or(|l| l.keeps_syns());
    let mut timeout = socket.sock().receive_timeout(nonblock);
    loop {
        // One that was destroyed hands out nothing, even before the worker has come to it.
        let listening = this.sock.state() == tcp_state::LISTEN;
        let busy = |listener: &&Arc<Listener>| listening && listener.is_busy();
        if let Some(listener) = listener.as_ref().filter(busy) {
            listener.hurry_older();
            if let Some((ready, full)) = listener.pop_ready() {
                if full && this.sock.accept_pending() {
                    SmcSock::kick(this);
                }
                return hand_out(this, socket, new, ready, keeps_syn);
            }
        }
        let taken = match &listener {
            Some(listener) => listener.take(),
            None => this.sock.accept(),
        };
        match taken {
            Ok(sock) => {
                let ready = match &listener {
                    Some(listener) => listener.admit(sock, None),
                    None => {
                        let fallback = Fallback {
                            role: Role::Server,
                            ..inherited.unwrap_or(Fallback::own(Role::Server, Reason::PeerNotSmc))
                        };
                        Some(Ready::new(0, sock, Verdict::Tcp(fallback)))
                    }
                };
                let Some(ready) = ready else {
                    continue;
                };
                match listener.as_ref().filter(|l| l.has_queue()) {
                    Some(listener) => listener.push_ready(ready),
                    None => return hand_out(this, socket, new, ready, keeps_syn),
                }
                continue;
            }
            Err(err) if err != EAGAIN => return Err(err),
            Err(err) => {
                if let Some(listener) = &listener {
                    listener.advance_pending();
                    if listener.has_ready() {
                        continue;
                    }
                }
                if timeout == 0 {
                    return Err(err);
                }
            }
        }
        timeout = wait::until(socket, wait::Kind::Exclusive, timeout, || {
            this.sock.state() != tcp_state::LISTEN
                || this.sock.accept_pending() && listener.as_ref().is_none_or(|l| l.has_room())
                || listener.as_ref().is_some_and(|l| l.has_ready())
        })?;
    }
}

/// Tells whether accept() would find a connection now.
pub(crate) fn accepts_more(this: &SmcSock) -> bool {
    if this.sock.accept_pending() {
        return true;
    }
    let listener = match &*this.state.lock() {
        Phase::Listening(listener) => Some(listener.clone()),
        _ => None,
    };
    listener.is_some_and(|listener| listener.has_ready())
}

fn hand_out(
    this: &SmcSock,
    socket: &BsdSocket,
    new: &BsdSocket,
    ready: Ready,
    keeps_syn: bool,
) -> Result<Arc<SmcSock>> {
    match ready.verdict {
        Verdict::Tcp(fallback) => {
            let data = this.child(ready.sock.sock(), Phase::Fallback(fallback))?;
            new.adopt(socket, ready.sock, keeps_syn);
            if !fallback.crossing {
                new.become_native();
            }
            Ok(data)
        }
        Verdict::Path(path) => {
            let path = path::begins(this.namespace(), &ready.sock, path);
            let data = this.child(ready.sock.sock(), Phase::Path(path))?;
            new.adopt(socket, ready.sock, keeps_syn);
            if path.tcp_only.is_some() {
                new.become_native();
            }
            Ok(data)
        }
        Verdict::Smc(conn) => match this.child(ready.sock.sock(), Phase::Smc(conn.clone())) {
            Ok(data) => {
                new.adopt(socket, ready.sock, keeps_syn);
                data.watch_smc(new);
                Ok(data)
            }
            Err(err) => {
                conn.close(CloseMode::Abort);
                Err(err)
            }
        },
    }
}

/// Returns the events of a listening socket for poll().
pub(crate) fn poll(listener: &Arc<Listener>, socket: &BsdSocket, poll: &Poll<'_>) -> u32 {
    let native = socket.native_poll(poll);
    if listener.is_plain() || listener.sock.state() != tcp_state::LISTEN {
        return native;
    }
    listener.pump();
    if !listener.has_ready() {
        listener.advance_pending();
    }
    let readable = flags::EPOLLIN | flags::EPOLLRDNORM;
    if listener.has_ready() {
        native | readable
    } else {
        native & !readable
    }
}
