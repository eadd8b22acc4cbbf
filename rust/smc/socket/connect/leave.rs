// SPDX-License-Identifier: GPL-2.0

//! Ends of an attempt, a listener or a connection while the program keeps the socket, which goes
//! back to its initial state or becomes TCP's.

use super::super::{
    listener::Listener,
    smc_sock::SmcSock,
    state::Phase, //
};
use crate::{
    handshake::Negotiation,
    host::fallback::{Fallback, Role}, //
};
use kapi::{
    errno,
    net::{
        args::Addr,
        sock::tcp_state,
        socket::BsdSocket, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        MutexGuard, //
    }, //
};
use smc_proto::reason::Reason;

/// Makes the socket a TCP socket before it has connected.
///
/// # Errors
///
/// `EALREADY` when it is connecting: the peer has been told of SMC. `EPROTONOSUPPORT` in strict mode.
pub(crate) fn give_up(this: &Arc<SmcSock>, socket: &BsdSocket, reason: Reason) -> Result {
    let mut state = this.state.lock();
    match &*state {
        Phase::Init => {
            let fallback = Fallback::own(Role::Client, reason);
            this.may_fall_back(&mut state, &fallback)?;
            this.set_fallback(&mut state, fallback);
            socket.become_native();
            Ok(())
        }
        Phase::Connecting => Err(errno::EALREADY.into()),
        _ => Ok(()),
    }
}

/// Closes the connections that a listener about to end has not handed out, while TCP still listens.
pub(crate) fn stop_listening(this: &SmcSock) {
    let listener = match &*this.state.lock() {
        Phase::Listening(listener) => Some(listener.clone()),
        _ => None,
    };
    if let Some(listener) = listener {
        listener.close();
    }
}

/// Handles connect() with `AF_UNSPEC`, which takes the socket back to its initial state.
pub(super) fn disconnect(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    addr: &Addr<'_>,
    flags: i32,
) -> Result {
    stop_listening(this);
    // In strict mode the next connect() fails.
    let _ = leave_smc(this, socket);
    // No thread goes on with the attempt between its end here and TCP's.
    let slot = this.handshake.lock();
    if matches!(*this.state.lock(), Phase::Connecting) {
        this.abandoned();
    }
    let result = socket.native_connect(addr, flags);
    start_over(this, slot);
    result
}

/// Ends an SMC connection, or a wait for a decline that crosses, while the program keeps the socket:
/// it is a TCP socket from now on.
///
/// # Errors
///
/// `EPROTONOSUPPORT` in strict mode; the connection has ended all the same.
pub(super) fn leave_smc(this: &Arc<SmcSock>, socket: &BsdSocket) -> Result {
    let mut state = this.state.lock();
    let conn = match &*state {
        Phase::Smc(conn) | Phase::Dissolved(conn) => Some(conn.clone()),
        Phase::Path(_) | Phase::Fallback(_) => None,
        _ => return Ok(()),
    };
    // The end of the TCP connection is not to be reported from now on.
    let strict = match (&*state, &conn) {
        (_, Some(conn)) if this.is_strict() => {
            state.set(Phase::Dissolved(conn.clone()));
            true
        }
        (Phase::Fallback(fallback), _) => {
            let settled = fallback.settled();
            state.set(Phase::Fallback(settled));
            false
        }
        _ => {
            let fallback = Fallback::own(Role::Client, Reason::UnsupportedOption);
            this.set_fallback(&mut state, fallback);
            false
        }
    };
    if !strict {
        socket.become_native();
    }
    this.stop_watching();
    drop(state);
    if let Some(local) = this.local() {
        local.dissolve();
    }
    this.dissolve_remote();
    if let Some(conn) = conn {
        // Readers see the end of the stream, writers EPIPE.
        conn.shut_read();
        conn.dissolve();
        this.sock.wake_state();
    }
    if strict {
        return Err(errno::EPROTONOSUPPORT.into());
    }
    Ok(())
}

/// Ends a failed connection attempt. Called with `handshake` locked.
pub(super) fn reset(this: &SmcSock) {
    let mut state = this.state.lock();
    if matches!(*state, Phase::Connecting) {
        // Before another connect() can begin one of its own.
        this.stop_watching();
        state.set(Phase::Init);
    }
    drop(state);
    this.forget_attempt();
}

/// Does [`reset`], or takes a listener that TCP has ended out of the socket and returns it.
fn undo(this: &SmcSock) -> Option<Arc<Listener>> {
    {
        let mut state = this.state.lock();
        if matches!(*state, Phase::Listening(_)) && this.sock.state() != tcp_state::LISTEN {
            this.stop_watching();
            if let Phase::Listening(listener) = state.set(Phase::Init) {
                return Some(listener);
            }
        }
    }
    reset(this);
    None
}

/// Takes the socket back to its initial state, if TCP has ended the connection attempt or the
/// listener.
pub(crate) fn abandon_ended(this: &Arc<SmcSock>) {
    let slot = this.handshake.lock();
    if this.sock.state() == tcp_state::CLOSE {
        start_over(this, slot);
    }
}

/// Ends the attempt or the listener, which TCP has ended already; `slot` is the locked `handshake`.
fn start_over(this: &SmcSock, mut slot: MutexGuard<'_, Option<Negotiation<SmcSock>>>) {
    let listener = undo(this);
    let negotiation = slot.take();
    drop(slot);
    drop(negotiation);
    if let Some(listener) = listener {
        listener.close();
    }
    this.sock.wake_state();
}
