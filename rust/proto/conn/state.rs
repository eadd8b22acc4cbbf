// SPDX-License-Identifier: GPL-2.0

//! States of a connection and every transition between them, as in `net/smc/smc_close.c`.
//!
//! The numbers are those that C shows in `smc_diag`. [`State::next`] is the whole table: it takes
//! the old state and returns the new one, and it is called from one place.

/// State of a connection. LISTEN (10) belongs to sockets without a connection and is not here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum State {
    /// Both sides may send.
    Active = 1,
    /// The handshake has not finished.
    Init = 2,
    /// Over.
    Closed = 7,
    /// We said that we are done or closed; the peer has said nothing.
    PeerCloseWait1 = 20,
    /// We said that we are done or closed; the peer is done writing.
    PeerCloseWait2 = 21,
    /// The peer is done or has closed; we have said nothing.
    AppCloseWait1 = 22,
    /// The peer is done or has closed; we are done writing.
    AppCloseWait2 = 23,
    /// We were first, the peer has closed; the program has not closed yet.
    AppFinCloseWait = 24,
    /// The peer was done first and we have closed; the peer has not.
    PeerFinCloseWait = 25,
    /// We aborted; outstanding work is being flushed.
    PeerAbortWait = 26,
    /// The peer aborted; the program has not closed yet.
    ProcessAbort = 27,
}

/// What can happen to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The handshake finished.
    Established,
    /// shutdown(SHUT_WR), and everything before it is sent: "done writing" goes out.
    LocalDone,
    /// close or shutdown(SHUT_RDWR), and everything before it is sent: "closed" or "abort" goes
    /// out unless one of them has already.
    LocalClose,
    /// The peer is done writing.
    PeerDone,
    /// The peer has closed.
    PeerClosed,
    /// The peer has aborted, or its TCP connection has died.
    PeerAborted,
    /// The link group ends, or the connection must be aborted from this side.
    Killed,
    /// The last outstanding work request of an aborted connection has completed.
    Flushed,
}

/// What the transitions depend on besides state and event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// The program has closed its last descriptor.
    pub released: bool,
    /// "Closed" or "abort" was sent before this event.
    pub close_sent: bool,
    /// "Closed" or "abort" was received.
    pub close_received: bool,
}

impl State {
    /// The state after `event`; the same state if the event means nothing here.
    #[must_use]
    pub fn next(self, event: Event, facts: Facts) -> State {
        match event {
            Event::Established => match self {
                State::Init => State::Active,
                other => other,
            },
            Event::LocalDone => match self {
                State::Active => State::PeerCloseWait1,
                State::AppCloseWait1 => State::AppCloseWait2,
                other => other,
            },
            Event::LocalClose => self.after_local_close(facts),
            Event::PeerDone => match self {
                State::Init | State::Active => State::AppCloseWait1,
                State::PeerCloseWait1 => State::PeerCloseWait2,
                other => other,
            },
            Event::PeerClosed => self.after_peer_closed(facts),
            Event::PeerAborted => self.after_peer_aborted(),
            Event::Killed => match self {
                State::Init => State::Init,
                State::Closed => State::Closed,
                _ => State::PeerAbortWait,
            },
            Event::Flushed => match self {
                State::PeerAbortWait => State::Closed,
                other => other,
            },
        }
    }

    fn after_local_close(self, facts: Facts) -> State {
        match self {
            State::Active => State::PeerCloseWait1,
            State::AppCloseWait1 | State::AppCloseWait2 => {
                if facts.close_received {
                    State::Closed
                } else {
                    State::PeerFinCloseWait
                }
            }
            State::Init
            | State::AppFinCloseWait
            | State::ProcessAbort
            | State::PeerAbortWait
            | State::Closed => State::Closed,
            // The peer's answer decides.
            State::PeerCloseWait1 | State::PeerCloseWait2 | State::PeerFinCloseWait => self,
        }
    }

    fn after_peer_closed(self, facts: Facts) -> State {
        match self {
            State::Init | State::Active => State::AppCloseWait1,
            State::PeerCloseWait1 | State::PeerCloseWait2 => {
                if facts.released && facts.close_sent {
                    State::Closed
                } else {
                    State::AppFinCloseWait
                }
            }
            State::PeerFinCloseWait => State::Closed,
            other => other,
        }
    }

    fn after_peer_aborted(self) -> State {
        match self {
            State::Init | State::Active | State::AppCloseWait1 | State::AppFinCloseWait => {
                State::ProcessAbort
            }
            // Unlike C, also when the program has only shut its own way: there is nothing left to wait
            // for, and the peer is told at once.
            State::PeerCloseWait1
            | State::PeerCloseWait2
            | State::AppCloseWait2
            | State::PeerFinCloseWait
            | State::PeerAbortWait => State::Closed,
            State::ProcessAbort | State::Closed => self,
        }
    }

    /// Whether the program may still be given room to send.
    #[inline]
    #[must_use]
    pub fn may_send(self) -> bool {
        matches!(self, State::Active | State::AppCloseWait1)
    }

    /// Whether a program that has shut its way, or whose peer has, may still close both.
    #[must_use]
    pub fn may_close(self) -> bool {
        matches!(
            self,
            State::PeerCloseWait1
                | State::PeerCloseWait2
                | State::AppCloseWait1
                | State::AppCloseWait2
                | State::AppFinCloseWait
        )
    }

    /// Whether getpeername works: C allows it in these two states only.
    #[must_use]
    pub fn has_peer_name(self) -> bool {
        matches!(self, State::Active | State::AppCloseWait1)
    }
}
