// SPDX-License-Identifier: GPL-2.0

//! One link: the steps of its queue pair, its life, its heartbeat.

use super::DEVICE_PATIENCE;
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::ids::{
    Gid,
    Mac,
    Qpn, //
};
use crate::wire::llc::link::TestLink;
use crate::wire::llc::{
    Frame,
    Version,
    LEN, //
};

/// Idle time after which a link is tested, unless set otherwise (sysctl `smcr_testlink_time`).
pub const TEST_IDLE: Span = Span::from_secs(30);

/// Our side of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Role {
    /// We accepted its first connection.
    Server,
    /// We opened its first connection.
    Client,
}

/// The end of an active link as an accept names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkEnd {
    /// Queue pair of the peer.
    pub qpn: Qpn,
    /// GID of the peer.
    pub gid: Gid,
    /// MAC of the peer; compared in version 1 only.
    pub mac: Mac,
}

/// State of a link. Each step of the queue pair is taken once, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LinkState {
    /// The queue pair exists.
    Reset,
    /// It can be given receive buffers.
    Init,
    /// It receives: the peer's queue pair is known.
    Rtr,
    /// It sends. The link is being confirmed.
    Activating,
    /// Confirmed: connections may use it.
    Active,
    /// Failed or deleted; never used again.
    Inactive,
}

/// Events in the life of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The queue pair was moved to INIT.
    ToInit,
    /// The queue pair was moved to RTR.
    ToRtr,
    /// The queue pair was moved to RTS.
    ToRts,
    /// CONFIRM_LINK was exchanged.
    Confirmed,
    /// An error, a missing answer, DELETE_LINK, or the end of the group.
    Down,
}

impl LinkState {
    /// The state after `event`, or `None` if it cannot happen here.
    #[must_use]
    pub fn next(self, event: LinkEvent) -> Option<LinkState> {
        Some(match (self, event) {
            (LinkState::Reset, LinkEvent::ToInit) => LinkState::Init,
            (LinkState::Init, LinkEvent::ToRtr) => LinkState::Rtr,
            (LinkState::Rtr, LinkEvent::ToRts) => LinkState::Activating,
            (LinkState::Activating, LinkEvent::Confirmed) => LinkState::Active,
            (LinkState::Inactive, LinkEvent::Down) => return None,
            (_, LinkEvent::Down) => LinkState::Inactive,
            _ => return None,
        })
    }

    /// Reports whether LLC messages can be received.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(
            self,
            LinkState::Rtr | LinkState::Activating | LinkState::Active
        )
    }
}

/// The heartbeat of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beat {
    /// Not running.
    Off,
    /// Something was heard at this time.
    Heard(Instant),
    /// A test was sent at this time.
    Asked(Instant),
}

/// Actions of the heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BeatAction {
    /// Nothing.
    None,
    /// Send this TEST_LINK.
    Send(Frame),
    /// The peer does not answer: the link is down.
    Dead,
}

/// A link.
#[derive(Debug)]
pub struct Link {
    state: LinkState,
    /// Number in the group, assigned by the server; 0 until known.
    pub number: u8,
    /// Our identifier, for display.
    pub uid: [u8; 4],
    /// The peer's end; in an accept it names the link.
    pub peer: Option<LinkEnd>,
    beat: Beat,
    test_idle: Span,
    tests: u32,
}

impl Link {
    /// A link whose queue pair was just created. `test_idle` zero turns the heartbeat off.
    #[must_use]
    pub const fn new(test_idle: Span) -> Link {
        Link {
            state: LinkState::Reset,
            number: 0,
            uid: [0; 4],
            peer: None,
            beat: Beat::Off,
            test_idle,
            tests: 0,
        }
    }

    /// The present state.
    #[must_use]
    pub const fn state(&self) -> LinkState {
        self.state
    }

    /// Takes a step; false if it cannot happen here, and nothing changes.
    pub fn step(&mut self, event: LinkEvent, now: Instant) -> bool {
        let Some(next) = self.state.next(event) else {
            return false;
        };
        self.state = next;
        self.beat = match next {
            LinkState::Active if self.test_idle != Span::ZERO => Beat::Heard(now),
            _ => Beat::Off,
        };
        true
    }

    /// Something was received on the link: it works.
    #[inline]
    pub fn heard(&mut self, now: Instant) {
        if self.beat != Beat::Off {
            self.beat = Beat::Heard(now);
        }
    }

    /// Something was received on the link at this time, which may be before what is known already.
    pub fn heard_before(&mut self, at: Instant) {
        match self.beat {
            Beat::Heard(known) | Beat::Asked(known) if at > known => self.beat = Beat::Heard(at),
            _ => (),
        }
    }

    /// Returns when something was heard of the peer last; `None` without a heartbeat, or while it waits for an answer.
    #[must_use]
    pub const fn heard_at(&self) -> Option<Instant> {
        match self.beat {
            Beat::Heard(at) => Some(at),
            Beat::Off | Beat::Asked(_) => None,
        }
    }

    /// Returns the time of the next [`Link::on_timer`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.beat {
            Beat::Off => None,
            Beat::Heard(at) => Some(at.after(self.test_idle)),
            // What the device repeats is not lost. If it gives up the link is lost before.
            Beat::Asked(at) => Some(at.after(DEVICE_PATIENCE)),
        }
    }

    /// Time has passed.
    pub fn on_timer(&mut self, version: Version, now: Instant) -> BeatAction {
        if !self.next_deadline().is_some_and(|d| now.reached(d)) {
            return BeatAction::None;
        }
        if let Beat::Asked(_) = self.beat {
            self.beat = Beat::Off;
            return BeatAction::Dead;
        }
        self.beat = Beat::Asked(now);
        self.tests = self.tests.wrapping_add(1);
        let mut data = [0; 16];
        let [a, b, c, d, ..] = &mut data;
        [*a, *b, *c, *d] = self.tests.to_be_bytes();
        let mut frame = [0; LEN];
        // The frame has exactly the length the message needs.
        match (TestLink { data }).emit(version, &mut frame) {
            Ok(_) => BeatAction::Send(frame),
            Err(_) => BeatAction::None,
        }
    }
}
