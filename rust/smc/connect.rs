// SPDX-License-Identifier: GPL-2.0

//! The client: from connect() to SMC or TCP.
//!
//! The SYN carries the SMC option. When the connection stands, the SYN-ACK's option says whether
//! the peer speaks SMC, and the two talk CLC before the program may use the connection: until
//! [`Phase::Connecting`] has ended, connect() does not return, the socket does not become writable,
//! and other calls wait.

use crate::{
    clc,
    conn::now,
    crossing,
    fallback::{Fallback, Role},
    local::LocalPort,
    namespace,
    shared::CORE,
    socket::{hint, Phase, Socket},
    talk::{Progress, Talk, Waiter}, //
};
use kapi::{
    errno::{self, Errno},
    net::{
        args::Addr,
        sock::state,
        socket as file,
        syn, //
    },
    sys::{hook::TimerHook, wait}, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};
use smc_proto::{
    conn::CloseMode,
    handshake::{Failure, Outcome},
    reason::Reason, //
};

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
        stop_listening(this);
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
            if undecided(this) {
                // The peer is to speak: sleep until it has been decided.
                in_background(this, socket);
                let timeout = this.sock.send_timeout(false);
                settled(this, socket, timeout).map_err(|err| {
                    if err == EAGAIN {
                        errno::EINPROGRESS.into()
                    } else {
                        err
                    }
                })?;
            } else if this.smc().is_some() {
                // Decided at once: nobody watches yet.
                this.watch_smc(socket);
            }
            if matches!(*this.phase.lock(), Phase::Init) {
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

/// Goes on with a connection attempt as far as it can without waiting for the peer.
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
        _ if this.talking.load(Relaxed) != 0 || decide(this, &mut phase) => {
            drop(phase);
            drive(this);
            return;
        }
        _ => (),
    }
    drop(phase);
    let talk = this.talk.lock().take();
    drop(talk);
    this.talking.store(0, Relaxed);
    this.stop_watching();
    // Those who waited for the decision find a TCP socket now.
    this.sock.wake_state();
}

/// The TCP connection stands: SMC or not. Whether a handshake has begun.
fn decide(this: &Arc<Socket>, phase: &mut Phase) -> bool {
    let guard = this.sock.lock();
    let offered = syn::answered(&guard);
    drop(guard);
    let reason = if !offered {
        Reason::PeerNotSmc
    } else {
        match begin_talk(this) {
            Ok(()) => return true,
            Err(reason) => reason,
        }
    };
    let fallback = Fallback::own(Role::Client, reason);
    if this.may_fall_back(phase, &fallback).is_err() {
        return false;
    }
    if offered {
        // The peer waits for a CLC message and must get one before anything else.
        let _ = clc::send(&this.sock, &clc::client_decline(reason));
    }
    become_tcp(this, phase, fallback);
    false
}

fn become_tcp(this: &Socket, phase: &mut Phase, fallback: Fallback) {
    this.set_fallback(phase, fallback);
    if fallback.crossing {
        return;
    }
    let guard = this.sock.lock();
    if let Some(socket) = guard.socket() {
        socket.become_native();
    }
}

/// Begins the handshake, if there is a device to speak of.
fn begin_talk(this: &Arc<Socket>) -> Result<(), Reason> {
    if this.sock.uses_ipsec() {
        return Err(Reason::Ipsec);
    }
    let core = CORE.get().ok_or(Reason::NoDevice)?;
    let port = LocalPort::find(&core, &this.sock).ok_or(Reason::NoDevice)?;
    let policy = namespace::policy(&core, &this.sock);
    let talk = Talk::client(&core, &policy, port).map_err(|_| Reason::NoMemory)?;
    let talk = KBox::new(talk, GFP_KERNEL).map_err(|_| Reason::NoMemory)?;
    let timer = TimerHook::new(this.clone()).map_err(|_| Reason::NoMemory)?;
    *this.timer.lock() = Some(timer);
    *this.talk.lock() = Some(talk);
    this.talking.store(1, Relaxed);
    Ok(())
}

/// Goes on with the handshake.
fn drive(this: &Arc<Socket>) {
    let (talk, outcome) = {
        let mut slot = this.talk.lock();
        let Some(talk) = &mut *slot else { return };
        match talk.advance(&this.sock, &|| Waiter::Client(this.clone())) {
            Progress::Pending(until) => {
                if let Some(timer) = &*this.timer.lock() {
                    let wait = until.since(now()).as_millis_ceil();
                    timer.arm(u32::try_from(wait).unwrap_or(u32::MAX).saturating_add(1));
                }
                return;
            }
            Progress::Done(outcome) => (slot.take(), outcome),
        }
    };
    if let Some(talk) = talk {
        conclude(this, talk, outcome);
    }
}

/// The handshake has ended.
fn conclude(this: &Arc<Socket>, talk: KBox<Talk>, outcome: Outcome) {
    let mut phase = this.phase.lock();
    this.talking.store(0, Relaxed);
    let mut keep_watching = false;
    if matches!(*phase, Phase::Connecting) {
        match outcome {
            Outcome::Established => match KBox::into_inner(talk).commit() {
                Ok(conn) => {
                    this.become_smc(&mut phase, conn, Role::Client);
                    keep_watching = true;
                }
                Err(_) => fail(this, &mut phase, errno::ECONNABORTED),
            },
            Outcome::Fallback {
                reason,
                peer,
                out_of_sync,
                strip,
            } => {
                if out_of_sync {
                    talk.out_of_sync();
                }
                drop(talk);
                let fallback = match peer {
                    Some(peer) => Fallback::declined(Role::Client, peer.code()),
                    None if strip && !crossing::is_settled(&this.sock) => {
                        Fallback::crossed(Role::Client, reason)
                    }
                    None => Fallback::own(Role::Client, reason),
                };
                if this.may_fall_back(&mut phase, &fallback).is_ok() {
                    become_tcp(this, &mut phase, fallback);
                }
            }
            Outcome::Failed(why) => {
                drop(talk);
                if let Some(namespace) = &this.namespace {
                    namespace.counters.failed(Role::Client);
                }
                fail(this, &mut phase, errno_of(why));
            }
        }
    } else if matches!(outcome, Outcome::Established) {
        // close() came in the midst of the last step: the peer's end stands and has to be told.
        if let Ok(conn) = KBox::into_inner(talk).commit() {
            conn.close(CloseMode::Abort);
        }
    }
    drop(phase);
    if keep_watching {
        let timer = this.timer.lock().take();
        drop(timer);
    } else {
        this.stop_watching();
    }
    this.sock.wake_state();
}

/// The connection attempt fails for good, and the TCP connection ends with it.
fn fail(this: &Socket, phase: &mut Phase, error: Errno) {
    *phase = Phase::Init;
    // Before the abortion wakes those who look at it.
    this.hint.store(hint::NONE, Relaxed);
    this.sock.abort_with(error);
}

fn errno_of(why: Failure) -> Errno {
    match why {
        Failure::TimedOut => errno::ETIMEDOUT,
        Failure::Protocol => errno::EPROTO,
        Failure::Tcp => errno::ECONNRESET,
        Failure::Cancelled | Failure::Aborted => errno::ECONNABORTED,
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

/// A listener that is about to end gives up what it has not handed out, while TCP still listens.
pub(crate) fn stop_listening(this: &Socket) {
    let listener = match &*this.phase.lock() {
        Phase::Listening(listener) => Some(listener.clone()),
        _ => None,
    };
    if let Some(listener) = listener {
        listener.close();
    }
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
