// SPDX-License-Identifier: GPL-2.0

//! The client: from connect() to SMC or TCP.
//!
//! The SYN carries the SMC option. When the TCP connection is established, the SYN-ACK's option
//! says whether the peer speaks SMC, and the two exchange CLC messages before the program may use
//! the connection: until [`Phase::Connecting`] has ended, connect() does not return, the socket
//! does not become writable, and other calls wait.

mod handshake;
mod leave;
mod without_option;

pub(crate) use self::{
    leave::{abandon_ended, give_up, stop_listening},
    without_option::suppresses_wakeup, //
};

use self::{
    handshake::{conclude, count_failure, decide, drive, fail},
    leave::{disconnect, leave_smc, reset}, //
};
use super::{
    smc_sock::{attempt, SmcSock},
    state::{Kind, Phase}, //
};
use crate::{
    handshake::Negotiation,
    host::{syn_option::Answer, tcp2smc}, //
};
use kapi::{
    errno,
    net::{
        args::Addr,
        sock::tcp_state,
        sockaddr::SockAddr,
        socket::BsdSocket,
        stock::syn,
        wait, //
    },
    sys::host,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        MutexGuard, //
    }, //
};
use smc_proto::reason::Reason;

/// Kind of a call of connect().
enum Call {
    /// The first one, with the result of sending the SYN.
    First(Result),
    /// One more while the first is undecided.
    Repeated,
    /// One that is left to TCP.
    Native,
}

/// Handles connect().
///
/// # Errors
///
/// TCP's.
pub(crate) fn connect(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    addr: &Addr<'_>,
    nonblock: bool,
    flags: i32,
) -> Result {
    if addr.is_unspec() {
        return disconnect(this, socket, addr, flags);
    }
    match begin(this, socket, addr, nonblock)? {
        Call::First(started) => finish_first(this, socket, addr, nonblock, started),
        Call::Repeated => {
            advance_pending(this);
            if nonblock && is_undecided(this) {
                return Err(errno::EALREADY.into());
            }
            wait_decided(this, socket, this.sock.send_timeout(nonblock)).map_err(|err| {
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

/// Determines the kind of a call, and sends the SYN if it is the first.
fn begin(this: &Arc<SmcSock>, socket: &BsdSocket, addr: &Addr<'_>, nonblock: bool) -> Result<Call> {
    // Most often it is the first call.
    if !this.state.is(Kind::Init) {
        let left = match &*this.state.lock() {
            Phase::Init => false,
            Phase::Connecting => return Ok(Call::Repeated),
            Phase::Smc(_) | Phase::Dissolved(_) | Phase::Path(_) if socket.is_unconnected() => true,
            _ => return Ok(Call::Native),
        };
        if left {
            leave_smc(this, socket)?;
            return Ok(Call::Native);
        }
    }
    let named = addr.inet();
    let converted = this.converted.get() != 0;
    let ruling = match (&named, this.namespace()) {
        (Some(named), Some(namespace)) => {
            tcp2smc::connects(namespace, &this.sock, converted, || to_tcp(this, named))
        }
        _ => Ok(()),
    };
    if let Err(reason) = ruling {
        give_up(this, socket, reason)?;
        return Ok(Call::Native);
    }
    if without_option::keeps_off(this, addr) {
        // The peer, or the way to it, has not borne the option before.
        give_up(this, socket, Reason::Neighbour)?;
        return Ok(Call::Native);
    }
    if this.hook().is_err() {
        // Without the hooks the SYN would lack the option, and the peer would be blamed for it.
        give_up(this, socket, Reason::NoMemory)?;
        return Ok(Call::Native);
    }
    // Until the SYN is sent no other thread may look at the attempt: it would seem to have failed.
    let _handshake = this.handshake.lock();
    {
        let mut state = this.state.lock();
        match &*state {
            Phase::Init => (),
            Phase::Connecting => return Ok(Call::Repeated),
            _ => return Ok(Call::Native),
        }
        this.refusal.set(0);
        this.sleep_rule.reset();
        state.set(Phase::Connecting);
    }
    socket.set_choice(this.choice().number());
    without_option::begins(this);
    if nonblock && socket.has_waiters() {
        // A peer of this host may refuse within the call. Without memory they hear of it.
        let _ = this.start_watching(socket);
    }
    this.connects_on.set(host::current_cpu());
    let started = socket.start_connect(addr);
    // Not `addr`: who rewrites it does so in place.
    match &named {
        Some(named) if !this.sock.is_peer(named) => look_at_rewritten(this, named, converted),
        Some(_) if this.rewritten.named().is_some() => this.rewritten.set(None, None),
        _ => (),
    }
    if !matches!(started, Err(err) if errno::EINPROGRESS.is(err)) {
        reset(this);
    }
    Ok(Call::First(started))
}

/// Returns the address that TCP makes of the one that the program says.
fn to_tcp(this: &SmcSock, named: &SockAddr) -> SockAddr {
    named.connected_from(&this.sock.local_addr())
}

/// Looks whether TCP connects to another address than `said`, which the program has, and asks the rules about it.
fn look_at_rewritten(this: &SmcSock, said: &SockAddr, converted: bool) {
    let actual = this.sock.peer_addr();
    let is = |named: &SockAddr| actual.port == named.port && actual.mapped() == named.mapped();
    // The local address has been chosen meanwhile; for an unspecified one that is what TCP has made of it.
    let named = if is(said) { *said } else { to_tcp(this, said) };
    if is(&named) {
        if this.rewritten.named().is_some() {
            this.rewritten.set(None, None);
        }
        return;
    }
    let denied = this
        .namespace()
        .and_then(|n| tcp2smc::connects(n, &this.sock, converted, || actual).err());
    this.rewritten.set(Some(&named), denied);
}

fn finish_first(
    this: &Arc<SmcSock>,
    socket: &BsdSocket,
    addr: &Addr<'_>,
    nonblock: bool,
    started: Result,
) -> Result {
    if !matches!(started, Err(err) if errno::EINPROGRESS.is(err)) {
        return started;
    }
    if nonblock {
        if !is_answered_by_tcp(this) {
            in_background(this, socket);
            return started;
        }
        // A peer of this host has answered while the SYN was sent. As with TCP the program is told later.
        advance_for_program(this, true);
        if is_undecided(this) {
            in_background(this, socket);
        }
        return started;
    }
    match without_option::finish(this, socket, addr) {
        Ok(()) => {
            // Steps that sleep are allowed from now on: the thread is the program's own, whose connect() waits.
            this.sleep_rule.set_next_step_sleeps();
            let slot = this.handshake.lock();
            advance(this, slot, true, true);
            let waits = is_undecided(this);
            if waits {
                // The peer is to speak: sleep until it has been decided. A signal may end that;
                // then another connect() goes on, and is to find what TCP's would.
                socket.go_on_connecting();
                in_background(this, socket);
                let timeout = this.sock.send_timeout(false);
                wait_decided(this, socket, timeout).map_err(|err| {
                    if err == EAGAIN {
                        errno::EINPROGRESS.into()
                    } else {
                        err
                    }
                })?;
            } else if this.smc().is_some() {
                // Decided at once: there is no watch yet.
                this.watch_smc(socket);
            }
            if this.state.is(Kind::Init) {
                return Err(socket.fail_connect());
            }
            if waits {
                return socket.finish_connect(addr, true);
            }
            Ok(())
        }
        Err(err) => {
            if this.sock.state() == tcp_state::CLOSE {
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

/// Tells whether the TCP connection stands already, and the peer wants no handshake first: then it takes
/// nobody's time to decide, and there is nothing to watch for.
fn is_answered_by_tcp(this: &SmcSock) -> bool {
    let guard = this.sock.lock();
    guard.sock().is_established() && Answer::from_number(syn::answer(&this.sock)) != Answer::Smc
}

/// Lets the workqueue finish what connect() began.
fn in_background(this: &Arc<SmcSock>, socket: &BsdSocket) {
    if this.start_watching(socket).is_err() {
        // Without a watch the connection would be established unnoticed, or is already.
        let mut slot = this.handshake.lock();
        let mut state = this.state.lock();
        if matches!(*state, Phase::Connecting) {
            fail(this, &mut state, errno::ENOMEM);
        }
        drop(state);
        let negotiation = slot.take();
        drop(slot);
        drop(negotiation);
        return;
    }
    let decided = matches!(*this.state.lock(), Phase::Path(_) | Phase::Fallback(_));
    if decided {
        // By another thread, before the watch began; there will be no other attempt. A socket that is given
        // back to TCP ends without a word to those who watch it.
        this.stop_watching();
    } else if this.sock.state() != tcp_state::SYN_SENT {
        // It stood before the watch did.
        SmcSock::kick(this);
    }
}

/// Tells whether connect() is not decided yet.
pub(crate) fn is_undecided(this: &SmcSock) -> bool {
    this.state.is(Kind::Connecting)
}

/// Waits until connect() is decided, at most `timeout` jiffies.
///
/// # Errors
///
/// `EAGAIN` when the time is over; `EINTR`, `ERESTARTSYS`.
pub(crate) fn wait_decided(this: &Arc<SmcSock>, socket: &BsdSocket, timeout: isize) -> Result {
    if is_undecided(this) {
        wait::until(socket, wait::Kind::Shared, timeout, || !is_undecided(this))?;
    }
    Ok(())
}

/// Advances a connection attempt that has ended, before the program hears of it. Returns false if a thread waits in
/// TCP for the end of the attempt.
pub(crate) fn advance_ended(this: &Arc<SmcSock>) -> bool {
    let watched = this.watch.lock().is_some();
    if watched {
        advance_pending(this);
    }
    watched
}

/// Goes on with a connection attempt for a program that must not wait: steps whose length the peer
/// determines are left to the worker.
pub(crate) fn advance_pending(this: &Arc<SmcSock>) {
    advance_for_program(this, false);
}

/// The same; `seen` as with `decide`.
fn advance_for_program(this: &Arc<SmcSock>, seen: bool) {
    if this.sleep_rule.next_step_sleeps() {
        return;
    }
    let slot = this.handshake.lock();
    // The worker may have come so far meanwhile; it has released the handshake then.
    if !this.sleep_rule.next_step_sleeps() {
        advance(this, slot, false, seen);
    }
}

/// Goes on with a connection attempt, in the worker or for a program that waits. Sleeps, but not for the peer's CLC
/// messages.
pub(crate) fn advance_blocking(this: &Arc<SmcSock>) {
    let slot = this.handshake.lock();
    let may_block = this.sleep_rule.next_step_sleeps();
    advance(this, slot, may_block, false);
}

/// Goes on with a connection attempt as far as it can without waiting for the peer; `seen` as with `decide`.
///
/// All but close() hold `handshake` while they end an attempt, so the result here is that of the
/// same attempt, not of the program's next one.
fn advance(
    this: &Arc<SmcSock>,
    mut slot: MutexGuard<'_, Option<Negotiation<SmcSock>>>,
    may_block: bool,
    seen: bool,
) {
    if !is_undecided(this) {
        return;
    }
    match this.sock.state() {
        tcp_state::SYN_SENT | tcp_state::SYN_RECV => return,
        tcp_state::CLOSE if slot.is_none() && without_option::begin_anew_in_background(this) => {
            return
        }
        // Refused, reset or timed out, as TCP has reported. Another connect() may follow.
        tcp_state::CLOSE => {
            if slot.is_some() {
                count_failure(this);
            }
            reset(this);
        }
        _ if slot.is_some() || decide(this, &mut slot, seen) => {
            if let Some(outcome) = drive(this, &mut slot, may_block) {
                if let Some(negotiation) = slot.take() {
                    conclude(this, negotiation, outcome);
                }
            }
            return;
        }
        _ => (),
    }
    let suppressed = this.attempt.xchg(attempt::PLAIN, Relaxed) == attempt::SUPPRESSED;
    let ended = this.sock.state() == tcp_state::CLOSE;
    let negotiation = slot.take();
    drop(slot);
    drop(negotiation);
    // Programs that waited for the decision find a TCP socket now.
    if ended && !suppressed {
        // TCP has told those who poll: once.
        this.sock.wake_sleepers();
    } else {
        this.sock.wake_connected();
    }
}
