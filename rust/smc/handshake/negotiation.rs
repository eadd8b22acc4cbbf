// SPDX-License-Identifier: GPL-2.0

//! A handshake as the socket owns it: the run with its deadlines, the question of who may go on with it, and what it
//! comes to. A connecting socket and an incoming connection each own one.

use super::{crossing, gates::Gates, run::HandshakeRun, Progress};
use crate::{
    host::{
        clock::arm,
        fallback::{Fallback, Role},
        waiter::Waiter, //
    },
    smcr::{LocalPort, SmcConn}, //
};
use kapi::{
    net::sock::Sock,
    sys::hook::{Notify, TimerHook}, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Acquire, Atomic, Release},
        Arc, //
    }, //
};
use smc_proto::{
    handshake::{Failure, Outcome},
    peer_cache::Event,
    reason::Reason,
    time::{Instant, Span}, //
};

/// Says which threads may go on with a handshake: all; or only those that may sleep, since the next step may do so for
/// as long as the peer likes. Those are the worker, and a program that waits in connect().
pub(crate) struct SleepRule {
    /// 1 when only those may go on that may sleep.
    next_step_sleeps: Atomic<u32>,
}

impl SleepRule {
    /// All threads may go on.
    pub(crate) fn new() -> Self {
        Self {
            next_step_sleeps: Atomic::new(0),
        }
    }

    /// Has another attempt begin, with which all threads may go on.
    pub(crate) fn reset(&self) {
        self.next_step_sleeps.store(0, Release);
    }

    /// Leaves the handshake to those that may sleep.
    pub(crate) fn set_next_step_sleeps(&self) {
        self.next_step_sleeps.store(1, Release);
    }

    /// Tells whether the next step may sleep: only those that may do so may take it.
    pub(crate) fn next_step_sleeps(&self) -> bool {
        self.next_step_sleeps.load(Acquire) != 0
    }
}

/// A handshake under way.
pub(crate) struct Negotiation<T: Notify> {
    run: KBox<HandshakeRun>,
    /// Fires at the handshake's deadlines.
    timer: Pin<KBox<TimerHook<T>>>,
}

/// What a handshake has come to.
pub(crate) enum Conclusion {
    /// A connection; the end of the TCP connection beneath it is to be watched.
    Smc(Arc<SmcConn>),
    /// The link was lost with the last step, or memory was short. The peer believes in a connection, so TCP ends.
    Lost,
    /// The connection goes on as TCP.
    Tcp {
        /// As the socket keeps it.
        fallback: Fallback,
        /// The diagnosis of the peer's decline.
        declined: Option<Reason>,
    },
    /// The stream cannot be handed to a program any more, unless nothing was taken from it.
    Failed {
        /// The cause.
        why: Failure,
        /// True if a byte was taken.
        begun: bool,
    },
}

impl<T: Notify + Waiter + 'static> Negotiation<T> {
    /// Begins a client's handshake; see [`HandshakeRun::client`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn client(
        owner: &Arc<T>,
        gates: &Arc<Gates>,
        sock: &Sock,
        port: LocalPort,
        v1: Option<LocalPort>,
        cpu: u32,
    ) -> Result<Self> {
        let run = HandshakeRun::client(gates, sock, port, v1, cpu)?;
        Ok(Self {
            run: KBox::new(run, GFP_KERNEL)?,
            timer: TimerHook::new(owner.clone())?,
        })
    }

    /// Begins a server's handshake; see [`HandshakeRun::server`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn server(
        owner: &Arc<T>,
        gates: &Arc<Gates>,
        sock: &Sock,
        port: Result<LocalPort, Reason>,
        payer: ARef<Sock>,
    ) -> Result<Self> {
        Ok(Self {
            run: KBox::new(HandshakeRun::server(gates, sock, port, payer)?, GFP_KERNEL)?,
            timer: TimerHook::new(owner.clone())?,
        })
    }

    /// Makes the connection for another socket; see [`HandshakeRun::set_apart`].
    pub(crate) fn apart(mut self) -> Self {
        self.run.set_apart();
        self
    }

    /// Goes on as far as possible. May sleep if `may_block`, but not for the peer's CLC messages. A step that may
    /// sleep is left to the worker otherwise.
    pub(crate) fn advance(
        &mut self,
        owner: &Arc<T>,
        sleep_rule: &SleepRule,
        sock: &ARef<Sock>,
        may_block: bool,
    ) -> Progress {
        self.advance_for(owner, sleep_rule, sock, sock, may_block)
    }

    /// The same, with the messages on `stream`, for the connection `sock`.
    pub(crate) fn advance_for(
        &mut self,
        owner: &Arc<T>,
        sleep_rule: &SleepRule,
        stream: &Sock,
        sock: &ARef<Sock>,
        may_block: bool,
    ) -> Progress {
        let progress = self.run.advance(stream, sock, &|| owner.clone(), may_block);
        if let Progress::Heavy = progress {
            sleep_rule.set_next_step_sleeps();
            owner.clone().kick();
        }
        progress
    }

    /// Has the owner told when this time has come, if nothing else happens before.
    pub(crate) fn wait_until(&self, until: Instant) {
        arm(&self.timer, until);
    }

    /// Tells whether a byte of the stream has been taken.
    pub(crate) fn has_begun(&self) -> bool {
        self.run.has_begun()
    }

    /// Returns when a client whose turn it is to send a CLC message will have been silent for this span.
    pub(crate) fn silent_for(&self, span: Span) -> Option<Instant> {
        self.run.silent_for(span)
    }

    /// Draws the conclusion from the outcome of [`Negotiation::advance`], and says what it shows of links to the peer,
    /// if anything. May sleep.
    pub(crate) fn conclude(
        self,
        role: Role,
        sock: &Sock,
        outcome: Outcome,
    ) -> (Conclusion, Option<Event>) {
        let link = match outcome {
            Outcome::Fallback { reason, peer, .. } => self
                .run
                .first_contact_took()
                .and_then(|took| Event::of_first_contact(reason, peer, took))
                .filter(|_| !self.run.has_port_failed()),
            _ => None,
        };
        let conclusion = self.end(role, sock, outcome);
        let link = match conclusion {
            Conclusion::Smc(_) => Some(Event::LinkConfirmed),
            _ => link,
        };
        (conclusion, link)
    }

    fn end(self, role: Role, sock: &Sock, outcome: Outcome) -> Conclusion {
        let Self { run, timer } = self;
        drop(timer);
        match outcome {
            Outcome::Established => match KBox::into_inner(run).commit() {
                Ok(conn) => Conclusion::Smc(conn),
                Err(_) => Conclusion::Lost,
            },
            Outcome::Fallback {
                reason,
                peer,
                out_of_sync,
                strip,
            } => {
                if out_of_sync {
                    run.out_of_sync();
                }
                drop(run);
                Conclusion::Tcp {
                    fallback: crossing::fallback(role, sock, reason, peer, strip),
                    declined: peer,
                }
            }
            Outcome::Failed(why) => Conclusion::Failed {
                why,
                begun: run.has_begun(),
            },
        }
    }
}
