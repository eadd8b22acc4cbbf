// SPDX-License-Identifier: GPL-2.0

//! One SMC-R connection: two byte streams over two rings, and their end.
//!
//! [`Conn`] decides; it moves no byte. The caller holds it under a lock, reports what happened (a
//! CDC message came, the program wrote, a work request completed, time passed) and carries out
//! the [`Actions`] it gets back. Sending is pulled: an action says that something is due, and
//! when the link has a free slot the caller takes the latest state with [`Conn::take_tx`].
//!
//! * `write`, `tx`: sending. The program's bytes in the send ring, and what is held back (`write`);
//!   the peer's window, and the next message (`tx`).
//! * `rx`, `read`: receiving. The peer's messages, and when it learns that it has room (`rx`); the
//!   program's view of the receive ring (`read`). `urgent`: the urgent byte. [`moves`]: rings that take the place of
//!   others.
//! * [`state`]: states and transitions. `close`: shutdown, close and the drain before the end.
//!   `abort`: the ends that no program asks for, as the loss of the link. `leave`: the rings are left in the midst of the
//!   stream, which goes on by TCP. `tail`: data that a peer
//!   sends after its end. `life`: what is known about the end, with its deadlines.
//! * [`actions`], [`error`]: what comes out.
//!
//! Ring memory, keys, addresses, locks and wake-ups are the caller's.
//!
//! # Examples
//!
//! The path of a few bytes, as the caller sees it:
//!
//! ```
//! use smc_proto::conn::*;
//! use smc_proto::cursor::RingSize;
//! use smc_proto::time::Instant;
//! use smc_proto::wire::ids::AlertToken;
//!
//! let now = Instant(0);
//! let ring = RingSize::MIN_WIRE;
//! let end = |mine, theirs| {
//!     let mut conn = Conn::new(Params {
//!         token: AlertToken(mine),
//!         recv: ring,
//!         send: ring,
//!         recv_most: ring,
//!         send_most: ring,
//!         autocork: 65536,
//!         drain_idle: DRAIN_IDLE,
//!     });
//!     let (immediate, moves, place) = (false, false, Place::default());
//!     conn.set_peer(Peer { token: AlertToken(theirs), ring, place, immediate, moves });
//!     let _ = conn.establish(now);
//!     conn
//! };
//! let (mut a, mut b) = (end(1, 2), end(2, 1));
//!
//! // sendmsg: copy into the pieces of `send_view`, report, look at the actions.
//! assert!(a.send_room().is_ok_and(|room| room >= 5));
//! let todo = a.written(5, SendHint::default(), now).unwrap();
//! assert!(todo.has(Actions::TX_DUE));
//!
//! // The link has a free slot: post the WRITEs and the message as one chain.
//! let tx = a.take_tx(now).unwrap();
//! assert_eq!(tx.plan.iter().count(), 1);
//! let Notice::Cdc(cdc) = tx.notice else { unreachable!() };
//! let wire = cdc.encode();
//!
//! // The other side: a receive completion. The data is already in the ring.
//! let cdc = smc_proto::wire::cdc::Cdc::parse(&wire).unwrap();
//! let todo = b.on_cdc(&cdc, now).unwrap();
//! assert!(todo.has(Actions::WAKE_READER));
//!
//! // recvmsg: copy out of the pieces of `recv_view`, report.
//! let view = b.recv_view(0);
//! assert_eq!(view.pieces.len(), 5);
//! let _ = b.read_done(view.skip + view.pieces.len()).unwrap();
//!
//! // The send completion frees the slot and the send ring.
//! let todo = a.on_tx_done(tx.ticket, now);
//! assert!(!todo.has(Actions::WAKE_WRITER)); // nobody waits for room
//! ```

use crate::cursor::{
    Pos,
    RingSize, //
};
use crate::time::{
    earliest,
    Instant,
    Span, //
};
use crate::wire::cdc::{
    ProdFlags,
    StateFlags, //
};
use crate::wire::ids::AlertToken;

mod abort;
pub mod actions;
mod close;
pub mod error;
mod leave;
mod life;
pub mod moves;
mod read;
mod rx;
pub mod state;
mod tail;
mod tx;
mod urgent;
mod write;

pub use abort::{
    FIN_PATIENCE,
    ROOM_PATIENCE, //
};
pub use actions::Actions;
pub use close::{
    CloseMode,
    Directions,
    Farewell, //
};
pub use error::{
    Misuse,
    ProtoError,
    RecvState,
    SendError,
    UrgentError, //
};
pub use life::DRAIN_RATE;
pub use moves::Place;
pub use read::{
    Plain,
    RxView, //
};
pub use state::{
    CloseProgress,
    ConnEvent,
    ConnState, //
};
pub use tail::TAIL_PATIENCE;
pub use tx::{
    Notice,
    Ticket,
    Tx, //
    LONGEST_TX,
};
pub use write::SendHint;

/// Longest wait of data that the program wants held back (MSG_MORE, TCP_CORK); TCP's limit.
pub const CORK_TIME: Span = Span::from_millis(200);
/// Lifetime of a closed connection with unsent data and without progress; half of it passes before
/// the peer is asked, half before it is given up.
pub const DRAIN_IDLE: Span = Span::from_secs(60);

/// Longest wait of a closed connection for the peer to close as well; TCP's default limit
/// (FIN_WAIT2).
pub const ANSWER_TIME: Span = Span::from_secs(60);

/// Parameters of a connection that does not know its peer yet.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Our alert token, by which the peer addresses CDC messages to this connection; not zero.
    pub token: AlertToken,
    /// Size of our RMBE, as announced.
    pub recv: RingSize,
    /// Size of the local send ring.
    pub send: RingSize,
    /// Size to which our RMBE may grow where the peer agrees to that.
    pub recv_most: RingSize,
    /// Size to which the send ring may grow where the peer's RMBE has.
    pub send_most: RingSize,
    /// Most bytes held back while a message is outstanding (sysctl `autocorking_size`).
    pub autocork: u32,
    /// See [`DRAIN_IDLE`].
    pub drain_idle: Span,
}

/// The peer's end, known from its accept or confirm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Alert token that our CDC messages carry.
    pub token: AlertToken,
    /// Size of the peer's RMBE.
    pub ring: RingSize,
    /// Its beginning.
    pub place: Place,
    /// True if a WRITE may announce itself by an [`Immediate`](crate::wire::immediate::Immediate).
    pub immediate: bool,
    /// True if RMBEs may [move](moves).
    pub moves: bool,
}

/// A connection. See the module documentation.
#[derive(Debug)]
pub struct Conn {
    token: AlertToken,
    peer: Option<Peer>,
    state: ConnState,
    tx: tx::TxSide,
    rx: rx::RxSide,
    life: life::Life,
}

impl Conn {
    /// A connection whose handshake has begun. It can already receive: a peer that has finished
    /// its part may send before this side has seen its confirm.
    #[must_use]
    pub fn new(params: Params) -> Conn {
        Conn {
            token: params.token,
            peer: None,
            state: ConnState::Init,
            tx: tx::TxSide::new(params.send, params.send_most, params.autocork),
            rx: rx::RxSide::new(params.recv, params.recv_most),
            life: life::Life::new(params.drain_idle),
        }
    }

    /// Records the peer's end. Must precede [`Conn::establish`]; a second call is ignored.
    pub fn set_peer(&mut self, peer: Peer) {
        if self.peer.is_none() {
            self.peer = Some(peer);
            self.tx.cursors = peer.ring;
            self.rx.peer_takes_immediates = peer.immediate;
        }
    }

    /// Our alert token.
    #[must_use]
    pub fn token(&self) -> AlertToken {
        self.token
    }

    /// The peer's end, once known.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// The present state.
    #[inline]
    #[must_use]
    pub fn state(&self) -> ConnState {
        self.state
    }

    /// Producer and state flags for `smc_diag`: (last sent, last received).
    #[must_use]
    pub fn flags(&self) -> ((ProdFlags, StateFlags), (ProdFlags, StateFlags)) {
        (
            (self.tx.last_flags, self.life.sent),
            (self.rx.peer_flags, self.life.received),
        )
    }

    /// The sizes of the send ring and of our RMBE.
    #[inline]
    #[must_use]
    pub fn rings(&self) -> (RingSize, RingSize) {
        (self.tx.ring, self.rx.rings.current())
    }

    /// Positions for `smc_diag` and tests.
    #[must_use]
    pub fn positions(&self) -> Positions {
        Positions {
            written: self.tx.prepared,
            sent: self.tx.sent,
            completed: self.tx.completed,
            peer_consumed: self.tx.peer_cons,
            received: self.rx.prod,
            consumed: self.rx.cons,
            announced: self.rx.announced,
        }
    }

    /// Returns the number of bytes ever put into the send ring if none of them is needed: all have
    /// arrived, where the peer keeps TCP its software has said so, and no message is under way. It stays so until the
    /// program writes again.
    #[must_use]
    pub fn send_ring_unused(&self) -> Option<Pos> {
        let t = &self.tx;
        // The peer's record says what is needed of a suspended one.
        let unused = t.is_quiet() && t.seen >= t.prepared && !self.life.suspended;
        unused.then_some(t.prepared)
    }

    /// The one deadline at which [`Conn::on_timer`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let probe = self.tx.urgent_probe.map(|(at, _)| at);
        let end = earliest(self.life.deadline(), self.answer_deadline());
        let end = earliest(end, self.life.fin_deadline());
        let end = earliest(end, self.tail_deadline());
        earliest(earliest(self.tx.cork_deadline(), end), probe)
    }

    /// Time has passed; cheap to call at any time.
    pub fn on_timer(&mut self, now: Instant) -> Actions {
        let mut out = Actions::NONE;
        if self.tx.cork_deadline().is_some_and(|d| now.reached(d)) {
            out |= self.push();
        }
        if self.life.deadline().is_some_and(|d| now.reached(d)) {
            out |= self.drain_expired(now);
        }
        if self.answer_deadline().is_some_and(|d| now.reached(d)) {
            out |= self.forget();
        }
        if self.life.fin_deadline().is_some_and(|d| now.reached(d)) {
            out |= self.fin_expired(now);
        }
        if self.tail_deadline().is_some_and(|d| now.reached(d)) {
            out |= self.tail_expired(now);
        }
        out | self.probe_urgent(now)
    }

    /// The only place where the state changes.
    pub(in crate::conn) fn step(&mut self, event: ConnEvent) -> Actions {
        let progress = CloseProgress {
            released: self.life.released,
            close_sent: self.life.sent.any(StateFlags::ANY_CLOSE),
            close_received: self.life.received.any(StateFlags::ANY_CLOSE),
        };
        let old = self.state;
        self.state = old.next(event, progress);
        if self.state == old {
            return Actions::NONE;
        }
        Actions::STATE | Actions::WAKE_READER | Actions::WAKE_WRITER
    }

    /// Reports whether the internal bookkeeping is consistent; for tests and debug builds.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let peer_len = self.peer.map_or(0, |p| p.ring.len());
        let t = &self.tx;
        let r = &self.rx;
        t.completed <= t.sent
            && t.sent <= t.prepared
            && t.prepared.wrapping_sub(t.completed.min(t.seen)) <= t.ring.len()
            && t.peer_cons <= t.sent
            && t.sent.wrapping_sub(t.peer_cons) <= peer_len
            && r.announced <= r.released()
            && r.released() <= r.prod
            && r.cons <= r.prod
            && r.prod.wrapping_sub(r.announced) <= r.rings.current().len()
    }
}

/// Stream positions of a connection, in bytes from the start of each stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Positions {
    /// Written by the program into the send ring.
    pub written: Pos,
    /// Covered by a message handed out for sending.
    pub sent: Pos,
    /// Known to have reached the peer's ring.
    pub completed: Pos,
    /// Consumed by the peer.
    pub peer_consumed: Pos,
    /// Received from the peer.
    pub received: Pos,
    /// Consumed by the program.
    pub consumed: Pos,
    /// Consumption the peer was told of.
    pub announced: Pos,
}
