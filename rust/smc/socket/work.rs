// SPDX-License-Identifier: GPL-2.0

//! Background work of a socket: a connect() for which no program waits, a listener's new
//! connections, the end of the TCP connection beneath an SMC connection.

use super::{
    connect,
    promotion,
    smc_sock::SmcSock,
    state::{Kind, Phase}, //
};
use crate::{handshake::crossing::RECEIVE, host::syn_option::offers_outstanding};
use kapi::{
    net::sock::tcp_state,
    sys::{hook::Notify, queue}, //
};
use kernel::{
    sync::{
        Arc,
        ArcBorrow, //
    },
    workqueue::WorkItem, //
};

impl Notify for SmcSock {
    fn notify(this: ArcBorrow<'_, Self>) {
        let wanted = match this.state.kind() {
            Kind::Connecting => true,
            Kind::Listening => offers_outstanding() || this.sock.state() != tcp_state::LISTEN,
            Kind::Smc => {
                this.tcp_has_spoken() || this.remote().is_some_and(|remote| remote.is_returning())
            }
            Kind::Path => this
                .remote()
                .is_some_and(|remote| remote.is_being_promoted()),
            Kind::Init | Kind::Crossing | Kind::Other => false,
        };
        if wanted {
            // Before the program is woken.
            if let Some(remote) = this.remote() {
                remote.judge_reset();
            }
            let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
        }
    }

    fn suppresses_wakeup(this: ArcBorrow<'_, Self>, of_state: bool) -> bool {
        this.state.is(Kind::Connecting) && connect::suppresses_wakeup(&this, of_state)
    }
}

impl WorkItem for SmcSock {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut state = this.state.lock();
        match &*state {
            Phase::Listening(listener) => {
                let listener = listener.clone();
                if this.sock.state() == tcp_state::LISTEN {
                    drop(state);
                    listener.pump();
                    return;
                }
                // Another process has ended it (SOCK_DESTROY); what waits for accept() ends, too, and
                // another listen() may follow.
                state.set(Phase::Init);
                drop(state);
                listener.close();
            }
            Phase::Smc(conn) => {
                let conn = conn.clone();
                drop(state);
                let may_return = this.remote().is_some();
                if may_return {
                    promotion::advance(&this);
                    if !this.state.is(Kind::Smc) {
                        return;
                    }
                }
                if conn.is_tcp_dead() {
                    conn.on_tcp_dead();
                } else if !may_return && matches!(this.sock.peek(&mut [0]), Ok(1..)) {
                    conn.fail();
                } else if may_return && this.sock.has_seen_fin()
                    || !may_return && this.sock.shutdown_mask() & RECEIVE != 0
                {
                    // Of one that may return the program, too, shuts TCP's receiving direction.
                    this.fin_noted.set(1);
                    conn.on_tcp_fin();
                }
            }
            Phase::Path(_) => {
                drop(state);
                promotion::advance(&this);
            }
            _ => {
                drop(state);
                connect::advance_blocking(&this);
            }
        }
    }
}
