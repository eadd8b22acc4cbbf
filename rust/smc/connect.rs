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
    data,
    fallback::{Fallback, Role},
    listen::Listener,
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
    sync::{
        atomic::{Acquire, Relaxed, Release},
        Arc,
        MutexGuard, //
    }, //
};
use smc_proto::{
    conn::CloseMode,
    handshake::{Failure, Outcome},
    reason::Reason, //
};

/// `how` of shutdown() for the sending direction.
const SHUT_WR: i32 = 1;
/// The sending direction among the bits of a socket's shutdown.
const SEND: u8 = 2;

/// What a call of connect() is.
enum Call {
    /// The first one, and what sending the SYN has come to.
    First(Result),
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
        return disconnect(this, socket, addr, flags);
    }
    match call(this, socket, addr)? {
        Call::First(started) => first(this, socket, addr, nonblock, started),
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

/// Finds out what a call is, and sends the SYN if it is the first.
fn call(this: &Arc<Socket>, socket: &file::Socket, addr: &Addr<'_>) -> Result<Call> {
    let left = match &*this.phase.lock() {
        Phase::Init => false,
        Phase::Connecting => return Ok(Call::Repeated),
        Phase::Smc(_) if socket.is_unconnected() => true,
        _ => return Ok(Call::Native),
    };
    if left {
        leave_smc(this, socket)?;
        return Ok(Call::Native);
    }
    if this.hook().is_err() {
        // Without the hooks the SYN would lack the option, and the peer would be blamed for it.
        give_up(this, socket, Reason::NoMemory)?;
        return Ok(Call::Native);
    }
    // Until the SYN is out nobody may look at the attempt: it would seem to have failed.
    let _talk = this.talk.lock();
    {
        let mut phase = this.phase.lock();
        match &*phase {
            Phase::Init => (),
            Phase::Connecting => return Ok(Call::Repeated),
            _ => return Ok(Call::Native),
        }
        *phase = Phase::Connecting;
        this.refusal.store(0, Relaxed);
        this.heavy.store(0, Release);
        this.hint.store(hint::CONNECTING, Release);
    }
    let started = socket.start_connect(addr);
    if !matches!(started, Err(err) if errno::EINPROGRESS.is(err)) {
        reset(this);
    }
    Ok(Call::First(started))
}

fn first(
    this: &Arc<Socket>,
    socket: &file::Socket,
    addr: &Addr<'_>,
    nonblock: bool,
    started: Result,
) -> Result {
    if !matches!(started, Err(err) if errno::EINPROGRESS.is(err)) {
        return started;
    }
    if nonblock {
        in_background(this, socket);
        return started;
    }
    match socket.finish_connect(addr, false) {
        Ok(()) => {
            // This program waits.
            this.heavy.store(1, Release);
            work(this);
            let waits = undecided(this);
            if waits {
                // The peer is to speak: sleep until it has been decided. A signal may end that;
                // then another connect() goes on, and is to find what TCP's would.
                socket.go_on_connecting();
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
            if waits {
                return socket.finish_connect(addr, true);
            }
            Ok(())
        }
        Err(err) => {
            if this.sock.state() == state::CLOSE {
                abandon_ended(this);
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
        let mut slot = this.talk.lock();
        let mut phase = this.phase.lock();
        if matches!(*phase, Phase::Connecting) {
            fail(this, &mut phase, errno::ENOMEM);
        }
        drop(phase);
        let talk = slot.take();
        drop(slot);
        drop(talk);
        return;
    }
    if this.sock.state() != state::SYN_SENT {
        // It stood before the watch did.
        Socket::kick(this);
    }
}

/// Whether connect() is not decided yet.
pub(crate) fn undecided(this: &Socket) -> bool {
    this.hint.load(Acquire) == hint::CONNECTING
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

/// Whether a connection attempt is under way.
fn is_connecting(this: &Socket) -> bool {
    matches!(*this.phase.lock(), Phase::Connecting)
}

/// Goes on with a connection attempt, for a program that does not want to wait: how long some steps
/// take is up to the peer, so they are left to the worker.
pub(crate) fn proceed(this: &Arc<Socket>) {
    if this.heavy.load(Acquire) != 0 {
        return;
    }
    let slot = this.talk.lock();
    // The worker may have come so far meanwhile; it has let go of the handshake then.
    if this.heavy.load(Acquire) == 0 {
        go_on(this, slot, false);
    }
}

/// Goes on with a connection attempt. Sleeps, but not for the peer's CLC messages.
pub(crate) fn work(this: &Arc<Socket>) {
    let slot = this.talk.lock();
    let patient = this.heavy.load(Acquire) != 0;
    go_on(this, slot, patient);
}

/// Goes on with a connection attempt as far as it can without waiting for the peer.
///
/// Whoever ends an attempt holds `talk` meanwhile, all but close(): so what is found out here is
/// about the attempt that it was begun for, and not about the program's next one.
fn go_on(this: &Arc<Socket>, mut slot: MutexGuard<'_, Option<KBox<Talk>>>, patient: bool) {
    if !is_connecting(this) {
        return;
    }
    match this.sock.state() {
        state::SYN_SENT | state::SYN_RECV => return,
        // Refused, reset or timed out; TCP has told everybody. Another connect() may follow.
        state::CLOSE => reset(this),
        _ if slot.is_some() || decide(this, &mut slot) => {
            if let Some(outcome) = drive(this, &mut slot, patient) {
                if let Some(talk) = slot.take() {
                    conclude(this, talk, outcome);
                }
            }
            return;
        }
        _ => (),
    }
    let talk = slot.take();
    drop(slot);
    drop(talk);
    // Those who waited for the decision find a TCP socket now.
    this.sock.wake_state();
}

/// The TCP connection stands: SMC or not. Whether a handshake has begun; `slot` is that of `talk`.
fn decide(this: &Arc<Socket>, slot: &mut Option<KBox<Talk>>) -> bool {
    let guard = this.sock.lock();
    let offered = syn::answered(&guard);
    drop(guard);
    let begun = if offered {
        begin_talk(this)
    } else {
        Err(Reason::PeerNotSmc)
    };
    let mut phase = this.phase.lock();
    if !matches!(*phase, Phase::Connecting) {
        return false;
    }
    let reason = match begun {
        Ok((talk, timer)) => {
            *slot = Some(talk);
            // close() takes it back.
            *this.timer.lock() = Some(timer);
            return true;
        }
        Err(reason) => reason,
    };
    this.stop_watching();
    let fallback = Fallback::own(Role::Client, reason);
    if this.may_fall_back(&mut phase, &fallback).is_err() {
        return false;
    }
    if offered {
        // The peer waits for a CLC message and must get one before anything else.
        if let Err(err) = clc::send(&this.sock, &clc::client_decline(reason)) {
            // Taken from the program: why the connection has ended.
            if !errno::EPIPE.is(err) && !this.sock.is_established() {
                this.sock.report_error(Errno::of(err));
            }
        }
    }
    become_tcp(this, &mut phase, fallback);
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

/// A handshake and the end of its patience.
type Begun = (KBox<Talk>, Pin<KBox<TimerHook<Socket>>>);

/// Begins the handshake, if there is a device to speak of.
fn begin_talk(this: &Arc<Socket>) -> Result<Begun, Reason> {
    if this.sock.uses_ipsec() {
        return Err(Reason::Ipsec);
    }
    let core = CORE.get().ok_or(Reason::NoDevice)?;
    let port = LocalPort::find(&core, &this.sock).ok_or(Reason::NoDevice)?;
    let policy = namespace::policy(&core, &this.sock);
    let talk = Talk::client(&core, &policy, port).map_err(|_| Reason::NoMemory)?;
    let talk = KBox::new(talk, GFP_KERNEL).map_err(|_| Reason::NoMemory)?;
    let timer = TimerHook::new(this.clone()).map_err(|_| Reason::NoMemory)?;
    Ok((talk, timer))
}

/// Goes on with the handshake; its outcome if it has ended.
fn drive(this: &Arc<Socket>, slot: &mut Option<KBox<Talk>>, patient: bool) -> Option<Outcome> {
    let talk = slot.as_mut()?;
    match talk.advance(&this.sock, &|| Waiter::Client(this.clone()), patient) {
        Progress::Heavy => {
            this.heavy.store(1, Release);
            Socket::kick(this);
            None
        }
        Progress::Pending(until) => {
            if let Some(timer) = &*this.timer.lock() {
                let wait = until.since(now()).as_millis_ceil();
                timer.arm(u32::try_from(wait).unwrap_or(u32::MAX).saturating_add(1));
            }
            None
        }
        Progress::Done(outcome) => Some(outcome),
    }
}

/// The handshake has ended. `talk` is held; what may sleep is done before `phase` is.
fn conclude(this: &Arc<Socket>, talk: KBox<Talk>, outcome: Outcome) {
    match outcome {
        Outcome::Established => {
            let made = KBox::into_inner(talk).commit();
            let mut phase = this.phase.lock();
            match (made, matches!(*phase, Phase::Connecting)) {
                (Ok(conn), true) => {
                    this.become_smc(&mut phase, conn.clone(), Role::Client);
                    // A shutdown() that does not find the connection yet has told TCP before this.
                    let guard = this.sock.lock();
                    let shut = this.sock.shutdown_mask();
                    drop(guard);
                    if shut & SEND != 0 {
                        let _ = data::shutdown(&conn, SHUT_WR);
                    }
                    // The watch stays.
                    let timer = this.timer.lock().take();
                    drop(timer);
                }
                (Ok(conn), false) => {
                    drop(phase);
                    // close() came in the midst of the last step: the peer's end stands and has
                    // to be told.
                    conn.close(CloseMode::Abort);
                }
                (Err(_), true) => {
                    count_failure(this);
                    fail(this, &mut phase, errno::ECONNABORTED);
                }
                (Err(_), false) => (),
            }
        }
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
            let mut phase = this.phase.lock();
            if matches!(*phase, Phase::Connecting) {
                this.stop_watching();
                if this.may_fall_back(&mut phase, &fallback).is_ok() {
                    become_tcp(this, &mut phase, fallback);
                }
            }
        }
        Outcome::Failed(why) => {
            drop(talk);
            let mut phase = this.phase.lock();
            if matches!(*phase, Phase::Connecting) {
                count_failure(this);
                fail(this, &mut phase, errno_of(why));
            }
        }
    }
    this.sock.wake_state();
}

fn count_failure(this: &Socket) {
    if let Some(namespace) = &this.namespace {
        namespace.counters.failed(Role::Client);
    }
}

/// The connection attempt fails for good, and the TCP connection ends with it.
fn fail(this: &Socket, phase: &mut Phase, error: Errno) {
    // Before another connect() can begin one of its own.
    this.stop_watching();
    *phase = Phase::Init;
    // Before the abortion wakes those who look at it.
    this.hint.store(hint::NONE, Release);
    this.end_attempt(error);
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
/// `EALREADY` when it is connecting: the peer has been told of SMC. `EPROTONOSUPPORT` in strict mode.
pub(crate) fn give_up(this: &Arc<Socket>, socket: &file::Socket, reason: Reason) -> Result {
    let mut phase = this.phase.lock();
    match &*phase {
        Phase::Init => {
            let fallback = Fallback::own(Role::Client, reason);
            this.may_fall_back(&mut phase, &fallback)?;
            this.set_fallback(&mut phase, fallback);
            socket.become_native();
            Ok(())
        }
        Phase::Connecting => Err(errno::EALREADY.into()),
        _ => Ok(()),
    }
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

/// connect() with `AF_UNSPEC`: back to the beginning.
fn disconnect(this: &Arc<Socket>, socket: &file::Socket, addr: &Addr<'_>, flags: i32) -> Result {
    stop_listening(this);
    // In strict mode the next connect() fails.
    let _ = leave_smc(this, socket);
    // Nobody goes on with the attempt between its end here and TCP's.
    let mut slot = this.talk.lock();
    let result = socket.native_connect(addr, flags);
    let listener = undo(this);
    let talk = slot.take();
    drop(slot);
    drop(talk);
    if let Some(listener) = listener {
        listener.close();
    }
    this.sock.wake_state();
    result
}

/// Ends an SMC connection, or a wait for a decline that crosses, while the program keeps the socket:
/// it is a TCP socket from now on.
///
/// # Errors
///
/// `EPROTONOSUPPORT` in strict mode; the connection has ended all the same.
fn leave_smc(this: &Arc<Socket>, socket: &file::Socket) -> Result {
    let mut phase = this.phase.lock();
    let conn = match &*phase {
        Phase::Smc(conn) => Some(conn.clone()),
        Phase::Fallback(_) => None,
        _ => return Ok(()),
    };
    let strict = conn.is_some() && this.is_strict();
    if !strict {
        if conn.is_some() {
            let fallback = Fallback::own(Role::Client, Reason::UnsupportedOption);
            this.set_fallback(&mut phase, fallback);
        }
        socket.become_native();
    }
    // What ends the TCP connection now is no news.
    this.hint.store(hint::NONE, Release);
    this.stop_watching();
    drop(phase);
    if let Some(conn) = conn {
        // Who reads sees an end, who writes EPIPE.
        conn.shut_read();
        conn.leave();
        this.sock.wake_state();
    }
    if strict {
        return Err(errno::EPROTONOSUPPORT.into());
    }
    Ok(())
}

/// The connection attempt has failed; `talk` is held.
fn reset(this: &Socket) {
    let mut phase = this.phase.lock();
    if matches!(*phase, Phase::Connecting) {
        // Before another connect() can begin one of its own.
        this.stop_watching();
        *phase = Phase::Init;
        this.hint.store(hint::NONE, Release);
    }
    let guard = this.sock.lock();
    let _ = syn::answered(&guard);
}

/// [`reset`], also for a listener that TCP has ended, which is returned.
fn undo(this: &Socket) -> Option<Arc<Listener>> {
    {
        let mut phase = this.phase.lock();
        if matches!(*phase, Phase::Listening(_)) && this.sock.state() != state::LISTEN {
            this.stop_watching();
            this.hint.store(hint::NONE, Release);
            if let Phase::Listening(listener) = core::mem::replace(&mut *phase, Phase::Init) {
                return Some(listener);
            }
        }
    }
    reset(this);
    None
}

/// Back to the beginning, if TCP has ended the connection attempt or the listener.
pub(crate) fn abandon_ended(this: &Arc<Socket>) {
    let mut slot = this.talk.lock();
    if this.sock.state() != state::CLOSE {
        return;
    }
    let listener = undo(this);
    let talk = slot.take();
    drop(slot);
    drop(talk);
    if let Some(listener) = listener {
        listener.close();
    }
    this.sock.wake_state();
}
