// SPDX-License-Identifier: GPL-2.0

//! listen(): a socket begins to listen, and its SYN-ACKs to answer SMC's option.

use super::{
    listener::Listener,
    smc_sock::SmcSock,
    state::Phase, //
};
use crate::host::{
    fallback::{Fallback, Role},
    tcp2smc, //
};
use kapi::net::{
    socket::BsdSocket,
    stock::syn, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use smc_proto::reason::Reason;

/// Handles listen().
///
/// # Errors
///
/// TCP's.
pub(crate) fn listen(this: &Arc<SmcSock>, socket: &BsdSocket, backlog: i32) -> Result {
    let mut state = this.state.lock();
    if matches!(*state, Phase::Smc(_) | Phase::Dissolved(_)) {
        return Err(EINVAL);
    }
    if !matches!(*state, Phase::Init) {
        drop(state);
        return socket.native_listen(backlog);
    }
    let converted = this.converted.get() != 0;
    let asking = match this.namespace() {
        Some(namespace) => tcp2smc::listens(namespace, &this.sock, converted)?,
        None => None,
    };
    let plain = match &asking {
        None if this.namespace().is_some() => Some(Reason::Policy),
        // Others may bring the hooks later: they must find a socket of TCP's then.
        _ if this.hook().is_err() => Some(Reason::NoMemory),
        _ => None,
    };
    if let Some(reason) = plain {
        this.set_fallback(&mut state, Fallback::own(Role::Server, reason));
        socket.become_native();
        drop(state);
        return socket.native_listen(backlog);
    }
    let user_save_syn = this.user_save_syn.get() != 0;
    let limited = this.limit_hs.get() != 0;
    let choice = this.choice();
    let listener = Listener::new(
        this.sock.sock().clone(),
        choice,
        asking,
        limited,
        user_save_syn,
    )?;
    socket.set_choice(choice.number());
    // Without a saved SYN the option is not answered, and no client sends a proposal in vain.
    syn::keep_syns(&this.sock, || {
        user_save_syn || !this.sock.migrates_requests()
    });
    socket.native_listen(backlog)?;
    state.set(Phase::Listening(listener));
    drop(state);
    let watching = this.start_watching(socket);
    if this.sock.accept_pending() {
        // They have come before the watch.
        SmcSock::kick(this);
    }
    watching
}
