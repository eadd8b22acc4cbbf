// SPDX-License-Identifier: GPL-2.0

//! What is counted and told of a promotion. Nothing of it is on the way of a connection that is not being promoted.

use super::{threshold, Remote, MOST_DOUBLINGS, MOST_LOSSES};
use crate::{
    host::{
        clock::now_exactly,
        fallback::{Fallback, Role},
        promotions::{Cause, Promotions}, //
    },
    smcr::SmcConn,
};
use kapi::sys::word::Word;
use kernel::sync::atomic::{Atomic, Relaxed};
use smc_proto::{
    promotion::{Side, Stage},
    reason::Reason,
    time::Instant,
    wire::promotion::Join, //
};
use smc_trace as trace;

/// How far a connection has come on its way from TCP to SMC-R, as `sock_diag` and the tracepoint number it.
pub(crate) mod step {
    /// All bytes go by TCP, and no attempt is under way.
    pub(crate) const TCP: u8 = 0;
    /// An attempt is: the side connection, and the handshake over it.
    pub(crate) const JOINING: u8 = 1;
    // OFFERED 2, BOUND 3, DUE 4 and TURNED 5 are those of `Stage`.
    /// The socket is the SMC-R connection's.
    pub(crate) const SMC: u8 = 6;
    /// Its rings are left, and the stream is on its way back to TCP.
    pub(crate) const RETURNING: u8 = 7;
}

/// What a connection counts of its attempts.
pub(super) struct Attempts {
    /// Number of them, those included that a reason of this end has kept from beginning.
    all: Word,
    /// Number of those that have not promoted the connection.
    failures: Word,
    /// Number of times that the connection has gone back to TCP, and of these that its link was lost.
    returns: Word,
    losses: Word,
    /// Time when the one under way has begun, in nanoseconds; 0 without one.
    begun: Atomic<u64>,
}

impl Attempts {
    pub(super) const fn new() -> Self {
        Self {
            all: Word::new(0),
            failures: Word::new(0),
            returns: Word::new(0),
            losses: Word::new(0),
            begun: Atomic::new(0),
        }
    }

    fn counts(&self) {
        self.all.set(self.all.get().saturating_add(1));
    }

    fn ends(&self) -> Option<Instant> {
        let begun = self.begun.xchg(0, Relaxed);
        (begun != 0).then_some(Instant(begun))
    }
}

/// What `sock_diag` tells of a connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Facts {
    /// One of [`step`].
    pub(crate) step: u8,
    /// Attempts to promote it.
    pub(crate) attempts: u32,
    /// Those of them that have failed.
    pub(crate) failures: u32,
    /// Times that it has gone back to TCP.
    pub(crate) returns: u32,
    /// Bytes that have gone, and have come, by the ring.
    pub(crate) by_ring: (u64, u64),
}

impl Remote {
    /// Returns the end that this is.
    pub(crate) fn role(&self) -> Role {
        match self.side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        }
    }

    /// Returns the number of times that the connection has gone back to TCP.
    pub(super) fn returns(&self) -> u32 {
        self.attempts.returns.get()
    }

    fn promotions(&self) -> &Promotions {
        &self.namespace.counters.promotions
    }

    pub(super) fn trace(&self, step: u8, code: u32) {
        trace::promotion(&self.sock, self.side == Side::Server, step, code);
    }

    /// Returns what there is to tell.
    pub(crate) fn facts(&self) -> Facts {
        let step = match self.stage() {
            Stage::Tcp if self.attempts.begun.load(Relaxed) != 0 => step::JOINING,
            Stage::Tcp => step::TCP,
            stage => of(stage),
        };
        Facts {
            step,
            attempts: self.attempts.all.get(),
            failures: self.attempts.failures.get(),
            returns: self.attempts.returns.get(),
            by_ring: {
                let [out, _, back] = self.carried();
                (out, back)
            },
        }
    }

    /// Takes note that the connection is worth promoting, so that no attempt begins at once again; `numbers` returns the
    /// initial sequence numbers.
    pub(crate) fn tries(&self, numbers: impl FnOnce() -> Join) {
        if self.numbers.as_ref().is_none() {
            self.numbers.populate(numbers());
        }
        self.put_off(MOST_DOUBLINGS);
    }

    /// Takes note that an attempt begins: the client's side connection, or at a server the join that has come over one.
    /// Returns its number.
    pub(crate) fn begins(&self) -> u64 {
        // One that has not ended meanwhile.
        self.ended(Reason::PathUnreached);
        self.attempts.counts();
        // Not 0.
        let begun = now_exactly().0 | 1;
        self.attempts.begun.store(begun, Relaxed);
        self.promotions().begun(self.role());
        self.trace(step::JOINING, 0);
        begun
    }

    /// Takes note that none begins, for this reason; the next one is worth its price after twice as much.
    pub(crate) fn refuses(&self, reason: Reason) {
        self.attempts.counts();
        let peer = self.sock.peer_addr();
        self.promotions().refused(self.role(), reason, &peer);
        self.trace(step::TCP, reason.code());
        self.try_later(reason);
    }

    /// Takes note that the attempt under way has failed for this reason; the next one is worth its price after twice as
    /// much.
    pub(crate) fn failed(&self, reason: Reason) {
        if self.ended(reason) {
            self.try_later(reason);
        }
    }

    /// As [`Remote::failed`] for the attempt with this number, if it is the one under way: a server's may last longer than
    /// the client's, which has begun the next one then.
    pub(crate) fn failed_attempt(&self, number: u64, reason: Reason) {
        if self.attempts.begun.cmpxchg(number, 0, Relaxed).is_ok() {
            self.tells_failure(reason);
            self.try_later(reason);
        }
    }

    /// Takes note that the attempt under way has ended for this reason without promoting the connection. Returns false if
    /// there was none.
    pub(super) fn ended(&self, reason: Reason) -> bool {
        if self.attempts.ends().is_none() {
            return false;
        }
        self.tells_failure(reason);
        true
    }

    fn tells_failure(&self, reason: Reason) {
        let peer = self.sock.peer_addr();
        self.promotions().failed(self.role(), reason, &peer);
        self.trace(step::TCP, reason.code());
    }

    /// Takes note that this end has turned.
    pub(super) fn succeeded(&self) {
        if let Some(begun) = self.attempts.ends() {
            let took = now_exactly().since(begun);
            let peer = self.sock.peer_addr();
            self.promotions().done(self.role(), took, &peer);
        }
    }

    /// Takes note that the socket is the SMC-R connection's.
    pub(crate) fn arrives(&self) {
        self.trace(step::SMC, 0);
    }

    fn try_later(&self, reason: Reason) {
        let failures = self.attempts.failures.get().saturating_add(1);
        self.attempts.failures.set(failures);
        self.reason.set(reason.code());
        self.put_off(failures);
    }

    fn put_off(&self, doublings: u32) {
        let distance = threshold(&self.namespace, self.role()).max(1);
        let distance = distance.saturating_mul(1 << doublings.min(MOST_DOUBLINGS));
        let distance = distance.min(1 << 30);
        self.due_at
            .set(self.sock.data_segments().wrapping_add(distance));
    }

    /// Takes note that the connection is to be aborted, since bytes have come by TCP although it has left that.
    pub(super) fn astray(&self, conn: &SmcConn) {
        if self.reason() == Reason::PathBreach.code() {
            // It was told.
            return;
        }
        self.is_reset(Reason::PathBreach);
        conn.group().tell_astray();
    }

    /// Takes note that the connection is to be reset, and why.
    pub(super) fn is_reset(&self, reason: Reason) {
        self.reason.set(reason.code());
        let fallback = Fallback::own(self.role(), reason);
        let counters = &self.namespace.counters;
        counters.broken(&fallback, &self.sock.peer_addr());
    }

    /// Takes note that the stream is TCP's again. After a loss the next attempt is worth its price after twice as much, and after a link that was worse than TCP; and
    /// the connection stays TCP's after [`MOST_LOSSES`]. Otherwise the next one is as the first: a connection that is
    /// idle each night is promoted each morning.
    pub(super) fn returned(&self, cause: Cause) {
        self.promotions().returned(self.role(), cause);
        let returns = &self.attempts.returns;
        returns.set(returns.get().saturating_add(1));
        if cause == Cause::Worse {
            self.trace(step::TCP, Reason::PathWorse.code());
            self.try_later(Reason::PathWorse);
            return;
        }
        if cause != Cause::Lost {
            self.trace(step::TCP, Reason::PathLeft.code());
            self.reason.set(Reason::PathLeft.code());
            self.put_off(0);
            return;
        }
        self.trace(step::TCP, Reason::PathReturned.code());
        self.try_later(Reason::PathReturned);
        let losses = self.attempts.losses.get().saturating_add(1);
        self.attempts.losses.set(losses);
        if losses >= MOST_LOSSES {
            self.bind_to_tcp();
        }
    }
}

/// Returns the step that a stage is.
pub(super) fn of(stage: Stage) -> u8 {
    match stage {
        Stage::Tcp => step::TCP,
        Stage::Returning => step::RETURNING,
        stage => (stage as u8).wrapping_add(1),
    }
}
