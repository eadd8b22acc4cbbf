// SPDX-License-Identifier: GPL-2.0

//! Promotion: a connection with another host that began as TCP goes over to SMC-R, in the midst of its stream.
//!
//! When TCP has carried so many segments that it is worth its price (`path_promote`), the client's kernel makes a side
//! connection to the server's (`dialer.rs`): to the same address and port, with an option in the SYN by which the server's
//! kernel keeps it from accept(). Over it goes a [`Join`], which names the connection, and then an ordinary CLC
//! handshake. The server's kernel finds the connection among its [`candidates`], and does that handshake as any other
//! ([`super::listener`]). What comes of it is an SMC-R connection over the socks of the program's connection, apart from
//! it: nothing goes there but the marks by which the two ends agree to turn; see [`crate::stream::remote`]. No program
//! waits for any of that, and where something fails the connection goes on by TCP, to be tried again later.

mod closing;
mod dialer;
mod orphans;
mod words;

pub(crate) use closing::{goes_on, Closing, CLOSINGS};
pub(crate) use dialer::{Dialer, DIALERS};
pub(crate) use orphans::Orphanage;

use words::Words;

use super::{
    candidates::{self, Candidate},
    smc_sock::SmcSock,
    state::{Kind, Phase}, //
};
use crate::{
    handshake::gates::GATES,
    host::{
        fallback::{Path, Role},
        namespace::Namespace,
        peer_addr::PeerAddr,
        sysctl::Sysctl, //
    },
    smcr::{LocalPort, SmcConn},
    stream::remote::{Outcome, Remote, SideConnection}, //
};
use kapi::net::{
    sock::Sock,
    socket::{BsdSocket, OwnedBsdSocket},
};
use kernel::{
    prelude::*,
    sync::{aref::ARef, Arc}, //
};
use smc_proto::{
    promotion::Side,
    reason::Reason,
    wire::promotion::Join, //
};

/// Returns the reason for which a connection with another host that begins now stays TCP's from its beginning, if there
/// is one: this host promotes none. It is counted.
pub(super) fn refuses(namespace: &Namespace, role: Role, sock: &Sock) -> Option<Reason> {
    if namespace.promotes_after() == 0 {
        return Some(Reason::PathRemote);
    }
    let kinds = GATES.with(|gates| gates.registry().devices.kinds());
    let reason = match kinds {
        None | Some((false, false)) => Reason::NoDevice,
        Some((false, true)) if !promotes_over_software(namespace) => Reason::PathSoftware,
        Some(_) => return None,
    };
    let counters = &namespace.counters.promotions;
    counters.refused(role, reason, &sock.peer_addr());
    Some(reason)
}

/// Makes the stream of a connection with another host; nothing of it has been called yet.
///
/// # Errors
///
/// The reason why the connection stays TCP's.
pub(super) fn stream(this: &SmcSock, role: Role) -> Result<Arc<Remote>, Reason> {
    let namespace = this.namespace().ok_or(Reason::PathOff)?;
    if namespace.promotes_after() == 0 {
        return Err(Reason::PathRemote);
    }
    if let Err(reason) = has_devices(namespace) {
        // TCP serves the calls itself: to ask for each whether it is worth promoting would be in vain.
        let peer = this.sock.peer_addr();
        namespace.counters.promotions.refused(role, reason, &peer);
        return Err(reason);
    }
    if !this.sock.claim_stream() {
        return Err(Reason::PathAttached);
    }
    Remote::new(this.sock.sock().clone(), namespace.clone(), role).map_err(|_| Reason::NoMemory)
}

/// Checks whether this host has a device over which connections are promoted at all.
///
/// # Errors
///
/// The reason why not.
fn has_devices(namespace: &Namespace) -> Result<(), Reason> {
    let only_software = GATES.with(|gates| gates.registry().devices.only_software());
    match only_software.flatten() {
        None => Err(Reason::NoDevice),
        Some(true) if !promotes_over_software(namespace) => Err(Reason::PathSoftware),
        Some(_) => Ok(()),
    }
}

fn promotes_over_software(namespace: &Namespace) -> bool {
    namespace.sysctls.get(Sysctl::PathSoftware) != 0
}

/// Returns the initial sequence numbers of a connection.
fn numbers(sock: &Sock, side: Side) -> Join {
    let guard = sock.lock();
    let numbers = guard.initial_numbers(side == Side::Client);
    let (client, server) = match side {
        Side::Client => (numbers.own, numbers.peer),
        Side::Server => (numbers.peer, numbers.own),
    };
    Join { client, server }
}

/// Looks after a connection that has just carried bytes: whether it is worth promoting, or has been promoted.
#[inline]
pub(crate) fn look(this: &Arc<SmcSock>, socket: &BsdSocket, remote: &Remote) {
    if remote.is_through() {
        // Most often, where it has been worth it.
    } else if remote.is_worth_promoting() {
        begin(this, socket, remote);
    } else if remote.is_being_promoted() {
        advance(this);
    }
}

/// Begins an attempt: at a client makes a side connection, at a server waits for the client's.
#[cold]
fn begin(this: &Arc<SmcSock>, socket: &BsdSocket, remote: &Remote) {
    if !this.state.door.close() {
        // Somebody may give TCP bytes by it, for a moment. The next call asks again.
        return;
    }
    remote.tries(|| numbers(&this.sock, remote.side()));
    if let Err(reason) = prepare(this, socket, remote) {
        remote.refuses(reason);
        return;
    }
    if remote.side() == Side::Client {
        remote.begins();
        if let Err(reason) = dialer::dial(this) {
            remote.failed(reason);
        }
    }
}

/// Does what precedes an attempt. A server's begins when the client's side connection has come.
///
/// # Errors
///
/// The reason why there is to be none.
fn prepare(this: &Arc<SmcSock>, socket: &BsdSocket, remote: &Remote) -> Result<(), Reason> {
    may_begin(this, remote)?;
    // The marks of the peer.
    this.start_watching(socket).map_err(|_| Reason::NoMemory)?;
    if remote.side() == Side::Server {
        let numbers = remote.numbers().ok_or(Reason::Internal)?;
        candidates::enter(this.clone(), numbers)?;
    }
    Ok(())
}

fn may_begin(this: &SmcSock, remote: &Remote) -> Result<(), Reason> {
    if this.namespace().map_or(0, |n| n.promotes_after()) == 0 {
        return Err(Reason::PathRemote);
    }
    if let Some(reason) = remote.keeps_to_tcp() {
        return Err(reason);
    }
    port(this)?;
    let gates = GATES.get().ok_or(Reason::NoDevice)?;
    let worse = remote.side() == Side::Client
        && gates
            .registry()
            .has_worse_link_with(PeerAddr::of(&this.sock));
    match worse {
        true => Err(Reason::PathWorse),
        false => Ok(()),
    }
}

impl Candidate for SmcSock {
    fn sock(&self) -> &ARef<Sock> {
        self.sock.sock()
    }

    fn is_open(&self) -> bool {
        self.state.is(Kind::Path)
    }

    fn port(&self) -> Result<LocalPort, Reason> {
        port(self)
    }

    fn begins(&self) -> u64 {
        self.remote().map_or(0, |remote| remote.begins())
    }

    fn failed(&self, attempt: u64, reason: Reason) {
        if let Some(remote) = self.remote() {
            remote.failed_attempt(attempt, reason);
        }
    }

    fn offer(self: Arc<Self>, conn: Arc<SmcConn>, side: OwnedBsdSocket) {
        offer(&self, conn, side);
    }
}

/// Finds the port over which the connection may be promoted.
///
/// # Errors
///
/// The reason why there is none.
fn port(this: &SmcSock) -> Result<LocalPort, Reason> {
    let gates = GATES.get().ok_or(Reason::NoDevice)?;
    let devices = &gates.registry().devices;
    let port = LocalPort::find(devices, &this.sock).ok_or(Reason::NoDevice)?;
    let forced = this.namespace().is_some_and(|n| promotes_over_software(n));
    match port.device.is_software() && !forced {
        true => Err(Reason::PathSoftware),
        false => Ok(port),
    }
}

/// Takes over the SMC-R connection that a handshake has made for this one, and the side connection.
fn offer(this: &Arc<SmcSock>, conn: Arc<SmcConn>, side: OwnedBsdSocket) {
    match this.remote() {
        Some(remote) => {
            let side = match Words::keep(this, remote.side(), side) {
                Ok(words) => Some(words as Arc<dyn SideConnection>),
                Err(_) => None,
            };
            let outcome = remote.offer(conn, side);
            conclude(this, remote, outcome);
        }
        None => conn.dissolve(),
    }
}

/// Goes on with what the peer has said. Process context; does not wait for the peer or the program.
pub(super) fn advance(this: &Arc<SmcSock>) {
    let Some(remote) = this.remote() else {
        return;
    };
    // Otherwise there is no attempt, or one that has brought nothing yet.
    let was_promoted = remote.is_being_promoted();
    let outcome = remote.advance();
    if was_promoted {
        remote.look_at_side();
    }
    conclude(this, remote, outcome);
}

fn conclude(this: &Arc<SmcSock>, remote: &Remote, outcome: Outcome) {
    match outcome {
        Outcome::Nothing => (),
        Outcome::Back(false) => (),
        // The program has ended its direction meanwhile.
        Outcome::Back(true) => this.sock.end_stream(),
        Outcome::Promoted => through(this, remote),
        Outcome::Left => left(this, remote),
    }
}

/// Makes the socket the SMC-R connection's: both directions have left TCP.
#[cold]
fn through(this: &Arc<SmcSock>, remote: &Remote) {
    let mut state = this.state.lock();
    let inside = remote.enter();
    let (&Phase::Path(path), Some(conn)) = (&*state, inside.carrier()) else {
        return;
    };
    if path.tcp_only.is_none() && remote.goes_through() {
        this.become_smc(&mut state, conn.clone(), path.role);
        remote.arrives();
        drop(state);
        if this.tcp_has_spoken() {
            // Before the watch was the SMC-R connection's.
            SmcSock::kick(this);
        }
    }
}

/// Makes the socket one that is on its way back to TCP: its link was lost.
#[cold]
fn left(this: &Arc<SmcSock>, remote: &Remote) {
    let mut state = this.state.lock();
    if matches!(&*state, Phase::Smc(_)) {
        state.set(Phase::Path(Path {
            role: remote.role(),
            tcp_only: None,
            remote: true,
        }));
    }
    drop(state);
    // What has come since was not heard by the watch, which took it for the SMC-R connection's.
    SmcSock::kick(this);
}
