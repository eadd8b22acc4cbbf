// SPDX-License-Identifier: GPL-2.0

//! The client: from connect() to SMC or TCP.
//!
//! The SYN carries the SMC option. When the connection stands, the SYN-ACK's option says whether
//! the peer speaks SMC, and the two talk CLC before the program may use the connection: until
//! [`Phase::Connecting`] has ended, connect() does not return, the socket does not become writable,
//! and other calls wait.

use crate::{
    clc,
    fallback::{Fallback, Role},
    socket::{hint, Phase, Socket}, //
};
use kapi::{
    errno,
    net::{
        args::Addr,
        sock::state,
        socket as file,
        syn, //
    },
    sys::wait, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};
use smc_proto::reason::Reason;

/// What a call of connect() is.
enum Call {
    /// The first one.
    First,
    /// One more while the first is undecided.
    Repeated,
    /// None of the family's business.
    Native,
}

/// connect().
///
/// # Errors
///
/// TCP's.
pub(crate) fn connect(
    this: &Arc<Socket>,
    socket: &file::Socket,
    addr: &Addr<'_>,
    nonblock: bool,
    flags: i32,
) -> Result {
    if addr.is_unspec() {
        let result = socket.native_connect(addr, flags);
        abandon(this);
        return result;
    }
    let call = {
        let mut phase = this.phase.lock();
        match &*phase {
            Phase::Init => {
                *phase = Phase::Connecting;
                this.refusal.store(0, Relaxed);
                this.hint.store(hint::CONNECTING, Relaxed);
                Call::First
            }
            Phase::Connecting => Call::Repeated,
            _ => Call::Native,
        }
    };
    match call {
        Call::First => first(this, socket, addr, nonblock, flags),
        Call::Repeated => {
            proceed(this);
            if nonblock && undecided(this) {
                return Err(errno::EALREADY.into());
            }
            settled(this, socket, this.sock.send_timeout(nonblock)).map_err(|err| {
                if err == EAGAIN {
                    errno::EALREADY.into()
                } else {
                    err
                }
            })?;
            socket.native_connect(addr, flags)
        }
        Call::Native => socket.native_connect(addr, flags),
    }
}

fn first(
    this: &Arc<Socket>,
    socket: &file::Socket,
    addr: &Addr<'_>,
    nonblock: bool,
    flags: i32,
) -> Result {
    if this.hook().is_err() {
        // Without the hooks the SYN would lack the option, and the peer would be blamed for it.
        give_up(this, socket, Reason::NoMemory)?;
        return socket.native_connect(addr, flags);
    }
    let started = socket.start_connect(addr);
    if !matches!(started, Err(err) if errno::EINPROGRESS.is(err)) {
        abandon(this);
        return started;
    }
    if nonblock {
        in_background(this, socket);
        return started;
    }
    match socket.finish_connect(addr, false) {
        Ok(()) => {
            proceed(this);
            if this.refusal.load(Relaxed) != 0 {
                return Err(socket.fail_connect());
            }
            Ok(())
        }
        Err(err) => {
            if this.sock.state() == state::CLOSE {
                abandon(this);
                return Err(err);
            }
            // A signal or SO_SNDTIMEO ended the wait, but TCP goes on connecting.
            in_background(this, socket);
            if errno::EALREADY.is(err) {
                return Err(errno::EINPROGRESS.into());
            }
            Err(err)
        }
    }
}

/// Lets the workqueue finish what connect() began.
fn in_background(this: &Arc<Socket>, socket: &file::Socket) {
    if this.start_watching(socket).is_err() {
        // Nobody would notice when the connection stands. It may stand already.
        // What is refused is reported as the connection's error.
        let _ = give_up(this, socket, Reason::NoMemory);
        return;
    }
    if this.sock.state() != state::SYN_SENT {
        // It stood before the watch did.
        Socket::kick(this);
    }
}

/// Whether connect() is not decided yet.
pub(crate) fn undecided(this: &Socket) -> bool {
    this.hint.load(Relaxed) == hint::CONNECTING
}

/// Waits until connect() is decided, at most `timeout` jiffies.
///
/// # Errors
///
/// `EAGAIN` when the time is over; `EINTR`, `ERESTARTSYS`.
pub(crate) fn settled(this: &Arc<Socket>, socket: &file::Socket, timeout: isize) -> Result {
    if undecided(this) {
        wait::until(socket, wait::Kind::Shared, timeout, || !undecided(this))?;
    }
    Ok(())
}

/// Goes on with a connection attempt as far as it can without waiting.
pub(crate) fn proceed(this: &Arc<Socket>) {
    let mut phase = this.phase.lock();
    if !matches!(*phase, Phase::Connecting) {
        return;
    }
    match this.sock.state() {
        state::SYN_SENT | state::SYN_RECV => return,
        state::CLOSE => {
            // Refused, reset or timed out; TCP has told everybody. Another connect() may follow.
            *phase = Phase::Init;
            this.hint.store(hint::NONE, Relaxed);
            let guard = this.sock.lock();
            let _ = syn::answered(&guard);
        }
        _ => decide(this, &mut phase),
    }
    drop(phase);
    this.stop_watching();
    // Those who waited for the decision find a TCP socket now.
    this.sock.wake_state();
}

/// The TCP connection stands: SMC or not.
fn decide(this: &Socket, phase: &mut Phase) {
    let guard = this.sock.lock();
    let offered = syn::answered(&guard);
    drop(guard);
    let reason = if offered {
        Reason::NoDevice
    } else {
        Reason::PeerNotSmc
    };
    let fallback = Fallback::own(Role::Client, reason);
    if this.may_fall_back(phase, &fallback).is_err() {
        return;
    }
    if offered {
        // The peer waits for a CLC message and must get one before anything else.
        let _ = clc::send(&this.sock, &clc::client_decline(reason));
    }
    this.set_fallback(phase, fallback);
    let guard = this.sock.lock();
    if let Some(socket) = guard.socket() {
        socket.become_native();
    }
}

/// Makes the socket a TCP socket before it has connected.
///
/// # Errors
///
/// `EPROTONOSUPPORT` in strict mode.
pub(crate) fn give_up(this: &Arc<Socket>, socket: &file::Socket, reason: Reason) -> Result {
    let mut phase = this.phase.lock();
    let mut result = Ok(());
    if matches!(*phase, Phase::Init | Phase::Connecting) {
        let guard = this.sock.lock();
        let offered = syn::answered(&guard);
        drop(guard);
        let fallback = Fallback::own(Role::Client, reason);
        result = this.may_fall_back(&mut phase, &fallback);
        if result.is_ok() {
            if offered && this.sock.is_established() {
                let _ = clc::send(&this.sock, &clc::client_decline(reason));
            }
            this.set_fallback(&mut phase, fallback);
            socket.become_native();
        }
    }
    drop(phase);
    this.stop_watching();
    this.sock.wake_state();
    result
}

/// Back to the beginning: the connection attempt has failed or was undone.
fn abandon(this: &Arc<Socket>) {
    let old = {
        let mut phase = this.phase.lock();
        let back = match &*phase {
            Phase::Connecting => true,
            Phase::Listening(_) => this.sock.state() != state::LISTEN,
            _ => false,
        };
        if back {
            this.hint.store(hint::NONE, Relaxed);
            Some(core::mem::replace(&mut *phase, Phase::Init))
        } else {
            None
        }
    };
    if let Some(Phase::Listening(listener)) = old {
        listener.close();
    }
    let guard = this.sock.lock();
    let _ = syn::answered(&guard);
    drop(guard);
    this.stop_watching();
    this.sock.wake_state();
}

/// As [`abandon`], if the socket is not connected, connecting or listening any more.
pub(crate) fn abandon_ended(this: &Arc<Socket>) {
    if this.sock.state() == state::CLOSE {
        abandon(this);
    }
}
