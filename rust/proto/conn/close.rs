// SPDX-License-Identifier: GPL-2.0

//! The end of a connection: shutdown, close, abort, loss of the link, and the drain before them.
//!
//! shutdown and close first let everything written so far reach the peer's ring. That never
//! blocks here: a pending end is settled when the last byte goes out, in the same message. A
//! closed connection whose peer reads nothing at all for half of `Params::drain_idle` is aborted,
//! and one whose peer does not close for [`ANSWER_TIME`] is forgotten.
//!
//! A connection keeps one reference to itself from the handshake to [`Actions::FREE`], which is
//! raised exactly once: when the state is CLOSED, the program has let go, and nothing is due or
//! outstanding.

use super::{
    Actions,
    Conn,
    Event,
    Misuse,
    State,
    ANSWER_TIME, //
};
use crate::cursor::Pos;
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::cdc::{
    ProdFlags,
    StateFlags, //
};

/// How long after the peer's FIN, and after its last message, it may take until a message says that
/// it has ended; longer than any device repeats a packet.
pub const FIN_PATIENCE: Span = Span::from_secs(10);

/// How much of that there is for a peer that has learned of room in our ring only meanwhile.
pub const ROOM_PATIENCE: Span = Span::from_secs(2);

/// How the program closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseMode {
    /// Everything written is still delivered.
    Graceful,
    /// SO_LINGER with time zero: the peer sees a reset, unsent data is lost.
    Abort,
}

/// Which directions of a connection are still open, as TCP would count it: what is in the ring can
/// be read all the same, and that the peer has closed does not end what the program may try to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directions {
    /// The peer may send more.
    pub hearing: bool,
    /// The program may send more.
    pub talking: bool,
}

/// An end that waits for unsent data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pending {
    /// "Done writing".
    Done,
    /// "Closed".
    Close,
}

/// The connection's reference to itself; given up once.
#[derive(Debug)]
struct Keep(bool);

impl Keep {
    fn give_up(&mut self) -> bool {
        core::mem::replace(&mut self.0, false)
    }
}

/// Everything about the end of a connection.
#[derive(Debug)]
pub(super) struct Life {
    /// End flags that our messages carry.
    pub(super) sent: StateFlags,
    /// End flags that the peer's messages carried.
    pub(super) received: StateFlags,
    pub(super) pending: Option<Pending>,
    /// The program cannot write any more.
    pub(super) write_shut: bool,
    /// The program has closed its last descriptor.
    pub(super) released: bool,
    /// Ended from our side without the peer's consent: no more receiving.
    pub(super) killed: bool,
    /// Nothing can be sent any more.
    pub(super) link_lost: bool,
    /// The peer knows our RMBE and has not said that it will not write there.
    exposed: bool,
    keep: Keep,
    drain_idle: Span,
    last_progress: Instant,
    /// The peer was asked for its cursor since the last progress.
    probed: bool,
    /// The peer's TCP has ended, but nothing has told us so here: until when that may come.
    fin: Option<Instant>,
    /// How far the program had read when that was set.
    fin_read: Pos,
}

impl Life {
    pub(super) fn new(drain_idle: Span) -> Life {
        Life {
            sent: StateFlags::NONE,
            received: StateFlags::NONE,
            pending: None,
            write_shut: false,
            released: false,
            killed: false,
            link_lost: false,
            exposed: false,
            keep: Keep(true),
            drain_idle,
            last_progress: Instant(0),
            probed: false,
            fin: None,
            fin_read: 0,
        }
    }

    /// The peer has sent a message.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.fin.is_some() {
            self.fin = Some(now.after(FIN_PATIENCE));
        }
    }

    /// When the silence after the peer's FIN is judged.
    pub(super) fn fin_deadline(&self) -> Option<Instant> {
        self.fin
    }

    /// The peer or the network did something for us.
    pub(super) fn progress(&mut self, now: Instant) {
        self.last_progress = self.last_progress.max(now);
        self.probed = false;
    }

    /// When a drain without progress is probed and then given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let half = Span(self.drain_idle.0 / 2);
        let wait = if self.probed { self.drain_idle } else { half };
        (self.released && self.pending.is_some()).then(|| self.last_progress.after(wait))
    }
}

impl Conn {
    /// The handshake has finished. What the peer did meanwhile stays done.
    ///
    /// # Errors
    ///
    /// [`Misuse`] if the peer is not known or the connection was killed meanwhile.
    pub fn establish(&mut self, now: Instant) -> Result<Actions, Misuse> {
        if self.peer.is_none() || self.life.killed || self.state == State::Closed {
            return Err(Misuse);
        }
        self.life.progress(now);
        Ok(self.step(Event::Established) | self.tx_due())
    }

    /// Our accept or confirm was sent: the peer may write into our ring from now on.
    pub fn expose(&mut self) {
        self.life.exposed = true;
    }

    /// The peer has declined: it will not write into our ring.
    pub fn peer_declined(&mut self) {
        self.life.exposed = false;
    }

    /// shutdown(SHUT_WR).
    pub fn shutdown_write(&mut self, now: Instant) -> Actions {
        if !self.state.may_send() || self.life.write_shut {
            return Actions::NONE;
        }
        self.life.write_shut = true;
        self.life.pending = Some(Pending::Done);
        self.life.progress(now);
        let out = self.push() | Actions::WAKE_WRITER;
        out | self.settle_pending() | self.tx_due()
    }

    /// shutdown(SHUT_RDWR): closes towards the peer, but the program keeps the socket, and may still
    /// read what has come: as with TCP that is no reason to abort.
    pub fn shutdown_both(&mut self, now: Instant) -> Actions {
        self.begin_close(CloseMode::Graceful, now)
    }

    /// The program has closed its last descriptor. With unread data the peer sees an abort.
    pub fn close(&mut self, mode: CloseMode, now: Instant) -> Actions {
        self.life.released = true;
        let mode = if self.rx.has_unread() {
            CloseMode::Abort
        } else {
            mode
        };
        self.begin_close(mode, now)
    }

    fn begin_close(&mut self, mode: CloseMode, now: Instant) -> Actions {
        self.life.write_shut = true;
        self.life.pending = Some(Pending::Close);
        self.life.progress(now);
        let mut out = self.push() | Actions::TIMER | Actions::WAKE_WRITER;
        out |= match mode {
            CloseMode::Graceful => self.settle_pending(),
            CloseMode::Abort => self.finish_pending(true),
        };
        out | self.tx_due() | self.settle_end()
    }

    /// Performs the pending end if nothing stands in its way.
    pub(super) fn settle_pending(&mut self) -> Actions {
        let waits = matches!(
            self.state,
            State::Active | State::AppCloseWait1 | State::AppCloseWait2
        ) && self.tx.unsent() > 0
            && !self.life.received.any(StateFlags::ANY_CLOSE)
            && !(self.life.released && self.rx.has_unread());
        if waits {
            return Actions::NONE;
        }
        self.finish_pending(false)
    }

    /// Performs the pending end now.
    fn finish_pending(&mut self, abort: bool) -> Actions {
        let Some(pending) = self.life.pending.take() else {
            return Actions::NONE;
        };
        let out = Actions::TIMER;
        match pending {
            Pending::Done => {
                self.life.sent = self.life.sent.with(StateFlags::DONE_WRITING);
                self.tx.due = true;
                out | self.step(Event::LocalDone)
            }
            Pending::Close => {
                let flag = self.close_flag(abort);
                if flag != StateFlags::NONE {
                    self.life.sent = self.life.sent.with(flag);
                    self.tx.due = true;
                }
                out | self.step(Event::LocalClose)
            }
        }
    }

    /// Which flag tells the peer that we close.
    fn close_flag(&self, abort: bool) -> StateFlags {
        match self.state {
            State::Init | State::Closed | State::PeerAbortWait => StateFlags::NONE,
            State::ProcessAbort => StateFlags::ABORT,
            _ if self.life.sent.any(StateFlags::ANY_CLOSE) => StateFlags::NONE,
            _ if abort || self.life.released && self.rx.has_unread() => StateFlags::ABORT,
            _ => StateFlags::CLOSED,
        }
    }

    /// The peer made no progress while a closed connection had data for it: first it is asked how
    /// far it is, since it may read too slowly to say so by itself.
    pub(super) fn drain_expired(&mut self, now: Instant) -> Actions {
        if !self.life.probed {
            self.life.probed = true;
            self.tx.due = true;
            self.tx.ask = true;
            return Actions::TIMER | self.tx_due();
        }
        // From now on it is the peer's answer that is waited for.
        self.life.progress(now);
        self.finish_pending(true) | self.tx_due() | self.settle_end()
    }

    /// When a peer that does not answer our close is not waited for any longer.
    pub(super) fn answer_deadline(&self) -> Option<Instant> {
        let waits = self.life.released
            && !self.life.killed
            && self.life.sent.any(StateFlags::ANY_CLOSE)
            && matches!(
                self.state,
                State::PeerCloseWait1 | State::PeerCloseWait2 | State::PeerFinCloseWait
            );
        waits.then(|| self.life.last_progress.after(ANSWER_TIME))
    }

    /// Ends a connection of which the peer knows that it is closed.
    pub(super) fn forget(&mut self) -> Actions {
        self.end_locally() | self.settle_end()
    }

    /// What the program can still hear from the peer, and say to it.
    #[must_use]
    pub fn directions(&self) -> Directions {
        let aborted = self.life.killed || self.life.received.has(StateFlags::ABORT);
        Directions {
            hearing: !aborted
                && (!self.life.received.any(StateFlags::ANY_END) || self.expects_tail()),
            talking: !aborted && !self.life.write_shut,
        }
    }

    /// Which ways are shut, as `sk_shutdown` has it: 1 if the peer sends nothing more, 2 if the program
    /// has shut its own.
    #[must_use]
    pub fn shut_ways(&self) -> u8 {
        let peer = self.life.killed || self.life.received.any(StateFlags::ANY_END);
        let own = self.life.killed || self.life.write_shut;
        u8::from(peer) | (u8::from(own) << 1)
    }

    /// Whether shutdown or close still waits for unsent data (SO_LINGER waits for its end).
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.life.pending.is_some()
    }

    /// The link or its group is gone: nothing will be sent or received any more. Outstanding
    /// requests are still to be reported with [`Conn::on_tx_failed`].
    pub fn kill(&mut self) -> Actions {
        self.life.link_lost = true;
        let was_killed = self.life.killed;
        let out = self.end_locally();
        let report = !was_killed && !matches!(self.state, State::Init);
        out.with_if(
            Actions::ERR_ABORTED | Actions::TCP_ABORT,
            report && out.has(Actions::STATE),
        ) | self.settle_end()
    }

    /// The peer broke the protocol: it is told "abort", the program ECONNABORTED.
    pub fn fail(&mut self) -> Actions {
        let out = self.abort_towards_peer();
        out.with_if(
            Actions::ERR_ABORTED | Actions::TCP_ABORT,
            out.has(Actions::STATE),
        )
    }

    /// The idle TCP connection was reset or timed out, which ends the connection unless it was
    /// ending anyway. The program sees ECONNRESET. After the peer's FIN it says nothing new: the peer
    /// has closed, its TCP knows nothing of the connection after a minute, and what was written may
    /// take longer to be read.
    pub fn on_tcp_dead(&mut self) -> Actions {
        let closing = self
            .life
            .received
            .with(self.life.sent)
            .any(StateFlags::ANY_CLOSE);
        if closing || self.awaits_end() {
            return Actions::NONE;
        }
        let out = self.abort_towards_peer();
        out.with_if(Actions::ERR_RESET, out.has(Actions::STATE))
    }

    /// The peer has sent a FIN on the idle TCP connection. That it will write no more is said by a
    /// message, which may come later; but a Linux peer whose process is killed while its send queue
    /// is full never sends it, and the FIN is all there will ever be.
    pub fn on_tcp_fin(&mut self, now: Instant) -> Actions {
        if self.life.fin.is_some() || !self.may_be_forsaken() {
            return Actions::NONE;
        }
        self.life.fin = Some(now.after(FIN_PATIENCE));
        self.life.fin_read = self.rx.cons;
        Actions::TIMER
    }

    /// Whether the peer's FIN has come and its message that says so has not.
    #[must_use]
    pub fn awaits_end(&self) -> bool {
        self.life.fin.is_some() && self.may_be_forsaken()
    }

    fn may_be_forsaken(&self) -> bool {
        !self.life.killed
            && self.state != State::Closed
            && !self.life.received.any(StateFlags::ANY_END)
    }

    /// The peer has been silent since its FIN. If there was room in our ring all the while it has
    /// nothing left to send, so its end was lost on the way.
    pub(super) fn fin_expired(&mut self, now: Instant) -> Actions {
        self.life.fin = None;
        if !self.may_be_forsaken() {
            return Actions::NONE;
        }
        if self.rx.has_unread() {
            return self.on_tcp_fin(now);
        }
        if self.rx.cons != self.life.fin_read {
            self.life.fin_read = self.rx.cons;
            self.life.fin = Some(now.after(ROOM_PATIENCE));
            return Actions::TIMER;
        }
        let closed = self.life.sent.any(StateFlags::ANY_CLOSE);
        let out = self.abort_towards_peer();
        out.with_if(Actions::ERR_RESET, out.has(Actions::STATE) && !closed)
    }

    fn abort_towards_peer(&mut self) -> Actions {
        if self.life.killed {
            return Actions::NONE;
        }
        let tell = !matches!(self.state, State::Init | State::Closed);
        let out = self.end_locally();
        if tell {
            self.life.sent = self.life.sent.with(StateFlags::ABORT);
            self.tx.due = true;
        }
        out | self.tx_due() | self.settle_end()
    }

    fn end_locally(&mut self) -> Actions {
        self.life.killed = true;
        self.life.pending = None;
        self.life.write_shut = true;
        self.tx.cork_until = None;
        self.tx.due = false;
        self.step(Event::Killed) | Actions::WAKE_READER | Actions::WAKE_WRITER | Actions::TIMER
    }

    /// Finishes what only waited for outstanding requests, and gives the self-reference up.
    pub(super) fn settle_end(&mut self) -> Actions {
        if self.tx.in_flight > 0 || self.wants_tx() {
            return Actions::NONE;
        }
        let mut out = Actions::NONE;
        if self.state == State::PeerAbortWait {
            out |= self.step(Event::Flushed);
        }
        if self.state == State::Closed && self.life.released && self.life.keep.give_up() {
            out |= Actions::FREE;
        }
        out
    }

    /// Whether [`Actions::FREE`] was raised.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !self.life.keep.0
    }

    /// Whether the RMBE can be given to another connection: no write of the peer can still land
    /// in it, because the peer has ended, or declined, or the link is gone. If not, it must stay
    /// unused until the link is gone. A Linux peer that ends with data left, after waiting two
    /// seconds for room, goes on writing when it learns of some; until it has our end, an abort of
    /// its own does not keep it from that.
    #[must_use]
    pub fn rmbe_reusable(&self) -> bool {
        let blocked = self.rx.peer_flags.has(ProdFlags::WRITE_BLOCKED);
        let ended = self.life.received.any(StateFlags::ANY_CLOSE) && !blocked;
        !self.life.exposed || self.life.link_lost || ended
    }
}
