// SPDX-License-Identifier: GPL-2.0

//! Detects peers, and paths to them, that fail a SYN because of our option, and connects without the option then.
//!
//! Silence: TCP's repeated SYNs leave the option out, see [`SILENCE`].
//!
//! A refusal is a reset, or an ICMP error as firewalls send it. Nearly always the port is just closed; but the option
//! may be the reason, and plain TCP would have connected. So the attempt is repeated at once, one time and without the
//! option, before the program hears of the refusal. If the second SYN is answered, either the option was the reason,
//! or the server began to listen in the round trip between the two SYNs; so the peer is remembered only after this
//! has happened several times. If the second SYN is refused as well, the program gets that refusal.
//!
//! * A blocking connect() has the result of TCP's; it begins again in its place.
//! * Otherwise those who wait are not woken by it ([`suppresses_wakeup`]). A program that looks by itself asks poll(),
//!   the next connect() or its data. All of these go on with the attempt first, or wait for who does. Who asks for
//!   `SO_ERROR` first has been told, and nothing is tried.
//! * While a thread waits in TCP's connect(), nobody else begins the attempt anew: it has no watch then.

use super::super::{
    smc_sock::{attempt, SmcSock},
    state::Phase, //
};
use crate::host::{
    clock::now,
    syn_option::{Answer, Choice, SILENCE},
    sysctl::Sysctl, //
};
use kapi::{
    errno::{self, Errno},
    net::{
        args::Addr,
        sock::Sock,
        socket::BsdSocket,
        stock::syn, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};
use smc_proto::{
    peer_cache::Event,
    reason::Reason,
    time::{Instant, Span}, //
};

/// Tells whether a connection to this peer is to send no option. A program that accepts no TCP asks all the same.
pub(super) fn keeps_off(this: &SmcSock, addr: &Addr<'_>) -> bool {
    let Some(namespace) = this.namespace() else {
        return false;
    };
    let (known, sysctls) = (&namespace.peer_cache, &namespace.sysctls);
    if known.is_empty() || this.is_strict() {
        return false;
    }
    let net = this.sock.namespace();
    addr.inet()
        .is_some_and(|peer| known.keeps_off(sysctls, net, &peer))
}

/// News of the peer that the SYN-ACK brings.
pub(super) struct Heard {
    event: Event,
    /// The reason for which the connection is TCP's, if it is.
    pub(super) reason: Reason,
}

impl Heard {
    /// Draws the conclusion from the answer; nothing was sent since.
    pub(super) fn of(answer: Answer, sock: &Sock) -> Self {
        let bare = || syn::choice(sock) == Some(Choice::BARE.number());
        let (event, reason) = match answer {
            Answer::Tcp if bare() => (Event::Reset, Reason::OptionReset),
            Answer::Tcp if sock.sent_again() >= SILENCE => (Event::Silent, Reason::OptionLost),
            Answer::Echo => (Event::Echoed, Reason::PeerNotSmc),
            // No program's SYN is answered by the last one.
            Answer::Tcp | Answer::Smc | Answer::Join => (Event::Answered, Reason::PeerNotSmc),
            Answer::Local | Answer::Remote => (Event::Succeeded, Reason::PeerNotSmc),
        };
        Self { event, reason }
    }

    /// Has it remembered. May sleep; without the socket's lock.
    pub(super) fn tell(&self, this: &SmcSock) {
        this.heard(self.event);
    }
}

/// Time in which an ICMP error is an answer to the SYN. One that comes later is none: a host that is down is reported by
/// the last router, which has asked for it for three seconds.
const PROMPT: Span = Span::from_millis(2000);

/// Tells whether an attempt that ends with this error was refused by the peer, or by somebody on the way.
fn is_refusal(this: &SmcSock, error: Errno) -> bool {
    let icmp = [
        errno::EACCES,
        errno::EHOSTDOWN,
        errno::EHOSTUNREACH,
        errno::ENETUNREACH,
        errno::ENONET,
        errno::ENOPROTOOPT,
        errno::EOPNOTSUPP,
        errno::EPROTO,
    ];
    let prompt = now().since(Instant(this.began.get())) < PROMPT;
    error == errno::ECONNREFUSED || prompt && icmp.contains(&error)
}

/// Takes note that an attempt begins, whose SYN has the option.
pub(super) fn begins(this: &SmcSock) {
    let kind = match may_begin_anew(this) {
        true => attempt::OFFERED,
        false => attempt::PLAIN,
    };
    this.began.release(now().0);
    this.attempt.store(kind, Relaxed);
}

/// Tells whether a wake-up by TCP is suppressed for the threads that wait for a connect(): the attempt is refused,
/// and begins anew; or it is the first of two wake-ups. In softirq context, or where the socket's lock is released.
///
/// TCP tells of an end with an error twice: by `sk_state_change()`, here `of_state`, and at once by
/// `sk_error_report()`. As both come in a softirq of the waiter's processor, it hears one. But the answer to a second
/// SYN is handled when the worker releases the socket's lock, and the waiter may run between the two.
pub(crate) fn suppresses_wakeup(this: &SmcSock, of_state: bool) -> bool {
    let of_attempt = match this.attempt.load(Relaxed) {
        attempt::ANEW => true,
        before @ (attempt::OFFERED | attempt::SUPPRESSED) => {
            let refused = is_refused(this);
            if refused && before == attempt::OFFERED {
                // The task that ends the attempt has checked this already, or will: TCP ended it before.
                let _ = this
                    .attempt
                    .cmpxchg(attempt::OFFERED, attempt::SUPPRESSED, Relaxed);
            }
            refused
        }
        _ => false,
    };
    of_attempt || of_state && this.sock.unheard_end().is_some()
}

/// Tells whether TCP has ended an attempt because it was refused, and the program does not know yet.
fn is_refused(this: &SmcSock) -> bool {
    let refused = this.sock.unheard_end().is_some_and(|e| is_refusal(this, e));
    refused && this.sock.sent_again() < SILENCE
}

/// Tells whether a refused attempt may begin anew.
fn may_begin_anew(this: &SmcSock) -> bool {
    let Some(namespace) = this.namespace() else {
        return false;
    };
    namespace.sysctls.get(Sysctl::NeighbourTime) != 0 && !this.is_strict()
}

/// Waits for TCP's connection, as connect() on a blocking socket does; begins once more, without the option, if the
/// peer refuses.
///
/// # Errors
///
/// TCP's.
pub(super) fn finish(this: &Arc<SmcSock>, socket: &BsdSocket, addr: &Addr<'_>) -> Result {
    match socket.finish_connect(addr, false) {
        Err(err) if is_refusal(this, Errno::of(err)) && begin_anew(this, socket, addr) => {
            socket.finish_connect(addr, false)
        }
        finished => finished,
    }
}

/// Sends a SYN without the option for a connect() that TCP has refused. Returns whether that is out.
fn begin_anew(this: &SmcSock, socket: &BsdSocket, addr: &Addr<'_>) -> bool {
    let _handshake = this.handshake.lock();
    // Another thread may have come first.
    if !may_begin_anew(this) || !matches!(*this.state.lock(), Phase::Connecting) {
        return false;
    }
    socket.set_choice(Choice::BARE.number());
    this.attempt.store(attempt::PLAIN, Relaxed);
    this.sock.forget_icmp();
    let started = socket.start_connect(addr);
    matches!(started, Err(err) if errno::EINPROGRESS.is(err))
}

/// Does so for an attempt for which no thread waits in TCP, and of whose refusal the program does not know yet. The
/// caller holds `handshake`.
pub(super) fn begin_anew_in_background(this: &SmcSock) -> bool {
    let before = this.attempt.load(Relaxed);
    let offered = matches!(before, attempt::OFFERED | attempt::SUPPRESSED);
    if !offered || !is_refused(this) || this.watch.lock().is_none() {
        return false;
    }
    let guard = this.sock.lock();
    this.attempt.store(attempt::ANEW, Relaxed);
    let begun = guard.connect_again(Choice::BARE.number());
    // Before the lock is free, and with it the answer comes.
    let after = if begun { attempt::PLAIN } else { before };
    this.attempt.store(after, Relaxed);
    begun
}
