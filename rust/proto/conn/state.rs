// SPDX-License-Identifier: GPL-2.0

//! States of a connection and every transition between them, as in `net/smc/smc_close.c`.
//!
//! The numbers are those that C shows in `smc_diag`. [`ConnState::next`] is the whole table: it takes
//! the old state and returns the new one, and it is called from one place.

/// State of a connection. LISTEN (10) belongs to sockets without a connection and is not here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum ConnState {
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

/// Events that change the state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnEvent {
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

/// Ends that have been said and heard, on which transitions depend besides state and event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CloseProgress {
    /// The program has closed its last descriptor.
    pub released: bool,
    /// "Closed" or "abort" was sent before this event.
    pub close_sent: bool,
    /// "Closed" or "abort" was received.
    pub close_received: bool,
}

impl ConnState {
    /// The state after `event`; the same state if the event means nothing here.
    #[must_use]
    pub fn next(self, event: ConnEvent, progress: CloseProgress) -> ConnState {
        match event {
            ConnEvent::Established => match self {
                ConnState::Init => ConnState::Active,
                other => other,
            },
            ConnEvent::LocalDone => match self {
                ConnState::Active => ConnState::PeerCloseWait1,
                ConnState::AppCloseWait1 => ConnState::AppCloseWait2,
                other => other,
            },
            ConnEvent::LocalClose => self.after_local_close(progress),
            ConnEvent::PeerDone => match self {
                ConnState::Init | ConnState::Active => ConnState::AppCloseWait1,
                ConnState::PeerCloseWait1 => ConnState::PeerCloseWait2,
                other => other,
            },
            ConnEvent::PeerClosed => self.after_peer_closed(progress),
            ConnEvent::PeerAborted => self.after_peer_aborted(),
            ConnEvent::Killed => match self {
                ConnState::Init => ConnState::Init,
                ConnState::Closed => ConnState::Closed,
                _ => ConnState::PeerAbortWait,
            },
            ConnEvent::Flushed => match self {
                ConnState::PeerAbortWait => ConnState::Closed,
                other => other,
            },
        }
    }

    fn after_local_close(self, progress: CloseProgress) -> ConnState {
        match self {
            ConnState::Active => ConnState::PeerCloseWait1,
            ConnState::AppCloseWait1 | ConnState::AppCloseWait2 => {
                if progress.close_received {
                    ConnState::Closed
                } else {
                    ConnState::PeerFinCloseWait
                }
            }
            ConnState::Init
            | ConnState::AppFinCloseWait
            | ConnState::ProcessAbort
            | ConnState::PeerAbortWait
            | ConnState::Closed => ConnState::Closed,
            // The peer's answer decides.
            ConnState::PeerCloseWait1 | ConnState::PeerCloseWait2 | ConnState::PeerFinCloseWait => {
                self
            }
        }
    }

    fn after_peer_closed(self, progress: CloseProgress) -> ConnState {
        match self {
            ConnState::Init | ConnState::Active => ConnState::AppCloseWait1,
            ConnState::PeerCloseWait1 | ConnState::PeerCloseWait2 => {
                if progress.released && progress.close_sent {
                    ConnState::Closed
                } else {
                    ConnState::AppFinCloseWait
                }
            }
            ConnState::PeerFinCloseWait => ConnState::Closed,
            other => other,
        }
    }

    fn after_peer_aborted(self) -> ConnState {
        match self {
            ConnState::Init
            | ConnState::Active
            | ConnState::AppCloseWait1
            | ConnState::AppFinCloseWait => ConnState::ProcessAbort,
            // Unlike C, also when the program has only shut its own way: there is nothing left to wait
            // for, and the peer is told at once.
            ConnState::PeerCloseWait1
            | ConnState::PeerCloseWait2
            | ConnState::AppCloseWait2
            | ConnState::PeerFinCloseWait
            | ConnState::PeerAbortWait => ConnState::Closed,
            ConnState::ProcessAbort | ConnState::Closed => self,
        }
    }

    /// Reports whether the program may still be given room to send.
    #[inline]
    #[must_use]
    pub fn may_send(self) -> bool {
        matches!(self, ConnState::Active | ConnState::AppCloseWait1)
    }

    /// Reports whether a program that has shut its way, or whose peer has, may still close both.
    #[must_use]
    pub fn may_close(self) -> bool {
        matches!(
            self,
            ConnState::PeerCloseWait1
                | ConnState::PeerCloseWait2
                | ConnState::AppCloseWait1
                | ConnState::AppCloseWait2
                | ConnState::AppFinCloseWait
        )
    }

    /// Reports whether getpeername works, in these two states only as with C.
    #[must_use]
    pub fn has_peer_name(self) -> bool {
        matches!(self, ConnState::Active | ConnState::AppCloseWait1)
    }
}
