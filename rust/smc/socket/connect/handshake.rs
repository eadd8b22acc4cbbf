// SPDX-License-Identifier: GPL-2.0

//! The client's handshake: from an established TCP connection to SMC, TCP, or failure.

use super::{
    super::{
        path,
        smc_sock::SmcSock,
        state::{Phase, StateGuard}, //
    },
    without_option::Heard, //
};
use crate::{
    handshake::{
        decline,
        gates::GATES,
        Conclusion,
        Negotiation,
        Progress, //
    },
    host::{
        fallback::{Fallback, Path, Role},
        syn_option::Answer, //
    },
    smcr::LocalPort,
    stream::shut_down,
};
use kapi::{
    errno::{self, Errno},
    net::stock::syn, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use smc_proto::{
    conn::CloseMode,
    handshake::{Failure, Outcome},
    peer_cache::Event,
    reason::Reason, //
};

/// `how` of shutdown() for the sending direction.
const SHUT_WR: i32 = 1;
/// Bit of the sending direction in a socket's shutdown mask.
const SEND: u8 = 2;

/// Begins the handshake on the established TCP connection, or falls back. Returns whether a
/// handshake has begun. `slot` is the content of `handshake`, which is locked. `seen` says that this thread has had
/// the sock locked since the connection is established.
pub(super) fn decide(
    this: &Arc<SmcSock>,
    slot: &mut Option<Negotiation<SmcSock>>,
    seen: bool,
) -> bool {
    let mut answer = match seen {
        true => Answer::from_number(syn::answer(&this.sock)),
        false => Answer::Tcp,
    };
    if !seen || answer == Answer::Smc {
        let guard = this.sock.lock();
        answer = Answer::from_number(syn::answered(&guard));
        if answer == Answer::Smc {
            // The accept is answered by a confirm.
            guard.delay_acks(true);
        }
    }
    let offered = answer == Answer::Smc;
    let heard = Heard::of(answer, &this.sock);
    heard.tell(this);
    let denied = this.rewritten.denied();
    if let Some(path) = Path::new(Role::Client, answer) {
        let path = Path {
            tcp_only: path.tcp_only.or(denied),
            ..path
        };
        let mut state = this.state.lock();
        if matches!(*state, Phase::Connecting) {
            this.stop_watching();
            path::become_path(this, &mut state, path);
        }
        return false;
    }
    let begun = match denied {
        _ if !offered => Err(heard.reason),
        Some(reason) => Err(reason),
        None => begin_handshake(this),
    };
    let mut state = this.state.lock();
    if !matches!(*state, Phase::Connecting) {
        return false;
    }
    let reason = match begun {
        Ok(negotiation) => {
            // close() takes it back.
            this.stirs();
            *slot = Some(negotiation);
            return true;
        }
        Err(reason) => reason,
    };
    this.stop_watching();
    let fallback = Fallback::own(Role::Client, reason);
    if this.may_fall_back(&mut state, &fallback).is_err() {
        return false;
    }
    if offered {
        // The peer waits for a CLC message and must get one before anything else.
        if let Err(err) = decline::send(&this.sock, &decline::client_decline(reason)) {
            // Taken from the program: the cause of the connection's end.
            if !errno::EPIPE.is(err) && !this.sock.is_established() {
                this.sock.report_error(Errno::of(err));
            }
        }
    }
    become_tcp(this, &mut state, fallback);
    false
}

fn become_tcp(this: &SmcSock, state: &mut StateGuard<'_>, fallback: Fallback) {
    this.set_fallback(state, fallback);
    let guard = this.sock.lock();
    guard.delay_acks(false);
    if fallback.crossing {
        return;
    }
    if let Some(socket) = guard.socket() {
        socket.become_native();
    }
}

/// Begins the handshake, if there is an RDMA port for it.
fn begin_handshake(this: &Arc<SmcSock>) -> Result<Negotiation<SmcSock>, Reason> {
    if this.sock.uses_ipsec() {
        return Err(Reason::Ipsec);
    }
    if this.sock.wants_packets() {
        return Err(Reason::UnsupportedOption);
    }
    // Before the first CLC message: only the family may read the answer. The end of the attempt
    // gives it back.
    if !this.sock.claim_stream() {
        return Err(Reason::Attached);
    }
    let gates = GATES.get().ok_or(Reason::NoDevice)?;
    let port = LocalPort::find(&gates.registry().devices, &this.sock).ok_or(Reason::NoDevice)?;
    let v1 = port.v1(&this.sock);
    let cpu = this.connects_on.get();
    Negotiation::client(this, &gates, &this.sock, port, v1, cpu).map_err(|_| Reason::NoMemory)
}

/// Goes on with the handshake. Returns its outcome if it has ended.
pub(super) fn drive(
    this: &Arc<SmcSock>,
    slot: &mut Option<Negotiation<SmcSock>>,
    may_block: bool,
) -> Option<Outcome> {
    let negotiation = slot.as_mut()?;
    match negotiation.advance(this, &this.sleep_rule, this.sock.sock(), may_block) {
        Progress::Heavy => None,
        Progress::Pending(until) => {
            negotiation.wait_until(until);
            None
        }
        Progress::Done(outcome) => Some(outcome),
    }
}

/// Turns the socket into what the handshake has come to. Called with `handshake` locked; what may
/// sleep is done before the state is locked.
pub(super) fn conclude(this: &Arc<SmcSock>, negotiation: Negotiation<SmcSock>, outcome: Outcome) {
    let (conclusion, link) = negotiation.conclude(Role::Client, &this.sock, outcome);
    if let Some(event) = link {
        this.heard(event);
    }
    match &conclusion {
        Conclusion::Smc(_) | Conclusion::Lost => this.heard(Event::Succeeded),
        Conclusion::Tcp { declined, .. } => {
            if let Some(peer) = *declined {
                this.heard(Event::Declined(peer));
            }
        }
        Conclusion::Failed { why, .. } => {
            if matches!(why, Failure::TimedOut | Failure::Protocol) {
                this.heard(Event::Failed);
            }
        }
    }
    let mut state = this.state.lock();
    match (conclusion, matches!(*state, Phase::Connecting)) {
        (Conclusion::Smc(conn), true) => {
            this.become_smc(&mut state, conn.clone(), Role::Client);
            // A shutdown() that does not find the connection yet has told TCP before this.
            let guard = this.sock.lock();
            guard.delay_acks(false);
            let shut = this.sock.shutdown_mask();
            drop(guard);
            if shut & SEND != 0 {
                let _ = shut_down(&conn, SHUT_WR);
            }
            // The watch stays.
        }
        (Conclusion::Smc(conn), false) => {
            drop(state);
            // close() came in the midst of the last step: the peer's end stands and has
            // to be told.
            conn.close(CloseMode::Abort);
        }
        (Conclusion::Tcp { fallback, .. }, true) => {
            this.stop_watching();
            if this.may_fall_back(&mut state, &fallback).is_ok() {
                become_tcp(this, &mut state, fallback);
            }
        }
        (Conclusion::Lost, true) => {
            count_failure(this);
            fail(this, &mut state, errno::ECONNABORTED);
        }
        (Conclusion::Failed { why, .. }, true) => {
            count_failure(this);
            fail(this, &mut state, errno_of(why));
        }
        (Conclusion::Tcp { .. } | Conclusion::Lost | Conclusion::Failed { .. }, false) => (),
    }
    this.sock.wake_connected();
}

pub(super) fn count_failure(this: &SmcSock) {
    if let Some(namespace) = this.namespace() {
        namespace.counters.failed(Role::Client);
    }
}

/// Fails the connection attempt for good, and ends the TCP connection.
pub(super) fn fail(this: &SmcSock, state: &mut StateGuard<'_>, error: Errno) {
    // Before another connect() can begin one of its own.
    this.stop_watching();
    // Before the abort wakes those who look at it.
    state.set(Phase::Init);
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
