// SPDX-License-Identifier: GPL-2.0

//! Connections that begin as TCP: no message precedes the program's bytes, and nothing is allocated
//! before them.
//!
//! [`stream()`] and [`receive`] stand on the way of SMC-R connections, too, as their callers do not tell the
//! two kinds apart: they pass such a stream on as it is.
//!
//! With the first byte that it sends or wants, an end looks for the other one in this kernel; see
//! [`crate::stream::local`]. A connection whose other end is on another host goes by TCP until it is worth promoting to
//! SMC-R; see [`super::promotion`].

use super::{
    promotion,
    smc_sock::SmcSock,
    state::{Kind, Phase, StateGuard}, //
};
use crate::{
    host::{
        fallback::{Path, Role},
        namespace::Namespace, //
    },
    stream::{
        local::RENDEZVOUS,
        remote::{step, threshold, Facts},
        Stream, //
    },
};
use kapi::net::{args::Message, sock::Sock, socket::BsdSocket};
use kernel::{prelude::*, sync::Arc};
use smc_proto::reason::Reason;

/// Returns a new connection that begins as TCP, and perhaps stays so, as this host promotes none with others.
#[inline]
pub(super) fn begins(namespace: Option<&Arc<Namespace>>, sock: &Sock, path: Path) -> Path {
    match namespace {
        Some(namespace) if path.remote && path.tcp_only.is_none() => Path {
            tcp_only: promotion::refuses(namespace, path.role, sock),
            ..path
        },
        _ => path,
    }
}

/// Makes the connecting socket a connection that has begun as TCP.
pub(super) fn become_path(this: &SmcSock, state: &mut StateGuard<'_>, path: Path) {
    let path = begins(this.namespace(), &this.sock, path);
    if path.tcp_only.is_some() {
        if let Some(socket) = this.sock.lock().socket() {
            socket.become_native();
        }
    }
    if let Some(namespace) = this.namespace() {
        namespace.counters.began_as_tcp(path.role);
        if path.remote {
            this.due_at.set(threshold(namespace, path.role));
        }
    }
    state.set(Phase::Path(path));
}

/// Returns the stream of a socket that is to move data; `None` leaves them to TCP. The first byte to send or to receive
/// makes a connection that began as TCP look for its other end.
#[inline]
pub(crate) fn stream<'a>(this: &'a Arc<SmcSock>, socket: &BsdSocket) -> Option<Stream<'a>> {
    match this.stream() {
        Some(stream) => Some(stream),
        None if this.state.is(Kind::Path) => look(this, socket),
        None => None,
    }
}

/// Returns the stream that a socket has, also where another thread is just giving it one.
pub(crate) fn stream_made(this: &Arc<SmcSock>) -> Option<Stream<'_>> {
    let state = this.state.lock();
    let stream = this.stream();
    drop(state);
    stream
}

#[inline(never)]
fn look<'a>(this: &'a Arc<SmcSock>, socket: &BsdSocket) -> Option<Stream<'a>> {
    let mut state = this.state.lock();
    let Phase::Path(path) = *state else {
        // Another thread's call was so much quicker that the connection has been promoted.
        return this.stream();
    };
    if path.tcp_only.is_none() && path.remote {
        if this.remote().is_none() {
            match promotion::stream(this, path.role) {
                Ok(remote) => state.goes_by_tcp(remote),
                Err(reason) => stay(&mut state, path, socket, reason),
            }
        }
    } else if path.tcp_only.is_none() && this.local().is_none() {
        let rendezvous = RENDEZVOUS.get();
        let come = match (&rendezvous, this.namespace()) {
            (Some(rendezvous), Some(namespace)) => {
                rendezvous.come(this.sock.sock(), path.role, namespace)
            }
            _ => Err(Reason::PathOff),
        };
        match come {
            Ok(local) => {
                state.found(local);
            }
            Err(reason) => stay(&mut state, path, socket, reason),
        }
    }
    this.stream()
}

fn stay(state: &mut StateGuard<'_>, path: Path, socket: &BsdSocket, reason: Reason) {
    state.set(Phase::Path(Path {
        tcp_only: Some(reason),
        ..path
    }));
    socket.become_native();
}

/// What there is to tell of a connection that began as TCP.
pub(crate) struct Told {
    /// Our end of it.
    pub(crate) role: Role,
    /// True if the other end is on another host.
    pub(crate) remote: bool,
    /// Of its promotion; of a connection within this kernel the bytes alone.
    pub(crate) facts: Facts,
    /// The code of the reason why it is TCP's, or was reset; 0 without one.
    pub(crate) reason: u32,
}

/// Returns what there is to tell of a connection that began as TCP, whatever carries it now; `None` for others.
pub(crate) fn told(this: &SmcSock) -> Option<Told> {
    let state = this.state.lock();
    let (path, smc) = match &*state {
        Phase::Path(path) => (Some(*path), false),
        Phase::Smc(_) => (None, true),
        _ => return None,
    };
    drop(state);
    let role = match (path, this.remote()) {
        (Some(path), _) => path.role,
        (None, Some(remote)) => remote.role(),
        (None, None) => return None,
    };
    let mut facts = match (this.remote(), this.local()) {
        (Some(remote), _) => remote.facts(),
        (None, Some(local)) => Facts {
            by_ring: local.carried(),
            ..Facts::default()
        },
        (None, None) => Facts::default(),
    };
    if smc {
        facts.step = step::SMC;
    }
    let stays = path.and_then(|path| path.tcp_only);
    let own = match (path, this.remote()) {
        (_, Some(remote)) => remote.reason(),
        (Some(path), None) if path.remote => Reason::PathRemote.code(),
        _ => 0,
    };
    Some(Told {
        role,
        remote: path.is_none_or(|path| path.remote),
        facts,
        reason: stays.map_or(own, |reason| reason.code()),
    })
}

/// Tells whether the connection may be left to TCP for good: it began as TCP, or is TCP's.
pub(crate) fn may_leave(this: &SmcSock) -> bool {
    match &*this.state.lock() {
        Phase::Path(_) => true,
        Phase::Fallback(fallback) => !fallback.crossing,
        _ => false,
    }
}

/// Leaves the connection to TCP for good, whatever carries its bytes.
///
/// # Errors
///
/// `EBUSY` while bytes are in memory that the program has not read, or another thread writes there.
pub(crate) fn leave(this: &SmcSock, socket: &BsdSocket) -> Result {
    loop {
        // Outside of the state's lock: a writer may sleep for a page of its program's memory.
        if let Some(local) = this.local() {
            local.retire()?;
        }
        let remote = this.remote();
        if remote.is_some_and(|remote| !remote.retire()) {
            return Err(EBUSY);
        }
        let mut state = this.state.lock();
        let Phase::Path(path) = *state else {
            return Ok(());
        };
        match (path.tcp_only, this.local()) {
            (None, Some(local)) if !local.is_retired() => continue,
            // It was made meanwhile.
            (None, _) if remote.is_none() && this.remote().is_some() => continue,
            (None, _) => {
                stay(&mut state, path, socket, Reason::PathAttached);
                if let Some(namespace) = this.namespace() {
                    namespace.counters.promotions.gave_back();
                }
            }
            (Some(_), _) => (),
        }
        return Ok(());
    }
}

/// recvmsg() of a stream of any kind. On a local path, bytes that arrive before the other end has come tell that it
/// never will.
///
/// # Errors
///
/// Those of `tcp_recvmsg()`.
#[inline]
pub(crate) fn receive(
    this: &Arc<SmcSock>,
    stream: Stream<'_>,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    let got = stream.receive(socket, msg)?;
    match stream {
        Stream::Local(local) if got != 0 && !local.has_met() => alone(this, socket),
        Stream::Remote(remote) => promotion::look(this, socket, remote),
        _ => (),
    }
    Ok(got)
}

/// sendmsg() of a stream of any kind.
///
/// # Errors
///
/// Those of `tcp_sendmsg()`.
#[inline]
pub(crate) fn send(
    this: &Arc<SmcSock>,
    stream: Stream<'_>,
    socket: &BsdSocket,
    msg: &mut Message<'_>,
) -> Result<usize> {
    let sent = stream.send(socket, msg)?;
    if let Stream::Remote(remote) = stream {
        promotion::look(this, socket, remote);
    }
    Ok(sent)
}

/// Draws the conclusion of bytes that have arrived before the other end has come: it never will.
#[inline(never)]
fn alone(this: &Arc<SmcSock>, socket: &BsdSocket) {
    let mut state = this.state.lock();
    let (&Phase::Path(path), Some(local)) = (&*state, this.local()) else {
        return;
    };
    if path.tcp_only.is_none() && local.give_up() {
        stay(&mut state, path, socket, Reason::PathElsewhere);
    }
}
