// SPDX-License-Identifier: GPL-2.0

//! What a socket of the family is at present.
//!
//! [`Phase`] says it, and lies under a mutex that is taken before the socket lock and never while that is held. Calls
//! that must not wait read [`State::kind`] or the connection, which [`StateGuard::set`] derives from the phase: nothing
//! else writes them.

use super::listener::Listener;
use crate::{
    host::fallback::{Fallback, Path},
    smcr::SmcConn,
    stream::{local::Local, remote::Remote}, //
};
use core::{mem, ops::Deref};
use kapi::sys::{
    door::Door,
    word::{Count, Word}, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard,
        SetOnce, //
    }, //
};

/// Kind of a socket at present.
pub(crate) enum Phase {
    /// Neither connecting nor listening; SMC is still possible.
    Init,
    /// connect() was called, and it is not decided yet between SMC and TCP.
    Connecting,
    /// A listening socket.
    Listening(Arc<Listener>),
    /// An SMC connection.
    Smc(Arc<SmcConn>),
    /// An SMC connection of a strict socket that has dissolved it by connect(): the end of TCP is not reported.
    Dissolved(Arc<SmcConn>),
    /// A TCP connection for good, or a socket that will be one.
    Fallback(Fallback),
    /// A connection that began as TCP; see [`super::path`].
    Path(Path),
    /// close() was called.
    Closed,
}

/// What the phase means for those who do not lock it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// Nothing special.
    Other,
    /// Neither connecting nor listening.
    Init,
    /// connect() is undecided.
    Connecting,
    /// A listener.
    Listening,
    /// An SMC connection.
    Smc,
    /// TCP, but the head of the stream may be a decline; see [`super::crossing`].
    Crossing,
    /// A connection that began as TCP and may leave it; see [`super::path`].
    Path,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Other,
        Self::Init,
        Self::Connecting,
        Self::Listening,
        Self::Smc,
        Self::Crossing,
        Self::Path,
    ];

    fn of(phase: &Phase) -> Self {
        match phase {
            Phase::Init => Self::Init,
            Phase::Connecting => Self::Connecting,
            Phase::Listening(_) => Self::Listening,
            Phase::Smc(_) => Self::Smc,
            Phase::Fallback(fallback) if fallback.crossing => Self::Crossing,
            Phase::Path(path) if path.tcp_only.is_none() => Self::Path,
            Phase::Dissolved(_) | Phase::Fallback(_) | Phase::Path(_) | Phase::Closed => {
                Self::Other
            }
        }
    }
}

/// Tells whether TCP's own functions serve the calls of a connection until it is worth promoting.
#[inline]
fn is_plain(phase: &Phase) -> bool {
    matches!(phase, Phase::Path(path) if path.remote && path.tcp_only.is_none())
}

/// Values of [`State::carrier`]: a look at it saves looks at what is not there.
mod carrier {
    pub(super) const NONE: u32 = 0;
    pub(super) const SMC: u32 = 1;
    pub(super) const LOCAL: u32 = 2;
    pub(super) const REMOTE: u32 = 3;
}

/// State of a socket.
#[pin_data]
pub(crate) struct State {
    #[pin]
    phase: Mutex<Phase>,
    /// A [`Kind`]. A reader that sees a value sees the state of the socket that came with it, too.
    kind: Count,
    /// Which of the following there is: none, or one of [`carrier`].
    carrier: Word,
    /// By it calls go straight to TCP's functions: open on a connection with another host that began as TCP, until its
    /// [`Remote`] is needed. It opens and shuts under the lock of `phase`, and [closes](Door::close) without.
    pub(crate) door: Door,
    /// The SMC connection, once there is one; it stays, so that it can be found without a lock. That of a connection
    /// which began as TCP is `remote`'s.
    conn: SetOnce<Arc<SmcConn>>,
    /// The end of a local path, from the first byte of a connection that may be one.
    local: SetOnce<Local>,
    /// The same of a connection with another host that may be promoted to SMC-R.
    remote: SetOnce<Arc<Remote>>,
}

impl State {
    pub(super) fn new(phase: Phase) -> impl PinInit<Self> {
        let conn = SetOnce::new();
        let mut carrier = carrier::NONE;
        if let Phase::Smc(smc) = &phase {
            conn.populate(smc.clone());
            carrier = carrier::SMC;
        }
        let kind = Kind::of(&phase) as u64;
        let door = Door::new();
        if is_plain(&phase) {
            door.open();
        }
        pin_init!(Self {
            phase <- new_mutex!(phase, "rsmc::State::phase"),
            kind: Count::new(kind),
            carrier: Word::new(carrier),
            door,
            conn,
            local: SetOnce::new(),
            remote: SetOnce::new(),
        })
    }

    /// Locks the phase.
    pub(crate) fn lock(&self) -> StateGuard<'_> {
        StateGuard {
            state: self,
            phase: self.phase.lock(),
        }
    }

    /// Tells whether the socket is of this kind, without a lock.
    #[inline]
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind.acquire() == kind as u64
    }

    /// Returns what the socket is, without a lock.
    pub(crate) fn kind(&self) -> Kind {
        let kind = self.kind.acquire() as usize;
        Kind::ALL.get(kind).copied().unwrap_or(Kind::Other)
    }

    /// Returns the SMC connection, if this is one and did not begin as TCP.
    #[inline]
    pub(crate) fn smc(&self) -> Option<&Arc<SmcConn>> {
        match self.carrier.get() {
            carrier::SMC => self.conn.as_ref(),
            _ => None,
        }
    }

    /// Returns the end of a local path, if this is one; it may be on TCP still.
    #[inline]
    pub(crate) fn local(&self) -> Option<&Local> {
        match self.carrier.get() {
            carrier::LOCAL => self.local.as_ref(),
            _ => None,
        }
    }

    /// Returns the stream of a connection with another host that began as TCP, if this is one.
    #[inline]
    pub(crate) fn remote(&self) -> Option<&Arc<Remote>> {
        match self.carrier.get() {
            carrier::REMOTE => self.remote.as_ref(),
            _ => None,
        }
    }
}

/// The locked phase.
pub(crate) struct StateGuard<'a> {
    state: &'a State,
    phase: MutexGuard<'a, Phase>,
}

impl StateGuard<'_> {
    /// Makes `phase` the socket's, and returns what it was.
    #[inline]
    pub(crate) fn set(&mut self, phase: Phase) -> Phase {
        if let Phase::Smc(conn) = &phase {
            self.becomes_smc(conn);
        }
        let kind = Kind::of(&phase) as u64;
        match is_plain(&phase) {
            true => self.opens(),
            false if self.state.door.is_open() => self.state.door.shut(),
            false => (),
        }
        let old = mem::replace(&mut *self.phase, phase);
        self.state.kind.release(kind);
        old
    }

    /// Lets calls go straight to TCP, unless there has been another carrier.
    #[inline(never)]
    fn opens(&self) {
        if self.state.carrier.get() == carrier::NONE {
            self.state.door.open();
        }
    }

    // Not inlined: connections that are none of SMC-R have fewer registers to save.
    #[inline(never)]
    fn becomes_smc(&self, conn: &Arc<SmcConn>) {
        if self.state.remote().is_none() {
            self.state.conn.populate(conn.clone());
            self.state.carrier.set(carrier::SMC);
        }
    }

    /// Has found the other end of a connection that began as TCP.
    pub(super) fn found(&mut self, local: Local) {
        self.state.local.populate(local);
        self.state.carrier.set(carrier::LOCAL);
    }

    /// Has made the stream of a connection with another host that began as TCP.
    pub(super) fn goes_by_tcp(&mut self, remote: Arc<Remote>) {
        self.state.remote.populate(remote);
        self.state.carrier.set(carrier::REMOTE);
    }
}

impl Deref for StateGuard<'_> {
    type Target = Phase;

    fn deref(&self) -> &Phase {
        &self.phase
    }
}
