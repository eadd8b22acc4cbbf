// SPDX-License-Identifier: GPL-2.0

//! The record of one peer.

use crate::{
    reason::Reason,
    time::{Instant, Span},
};

/// Declines in a row, without a connection that became SMC's, for which a peer is left alone.
pub const MANY: u8 = 8;
/// Declines for which a handshake counts that came to nothing.
const FAILURE: u8 = MANY / 2;
/// Declines for which a reset counts: the third one is enough. It costs a connection no more than a round trip, and
/// the program may have begun to listen just between the two SYNs.
const RESET: u8 = 3;
/// Part of the time, as a power of two, that what is doubtful counts for; and after which new routes count.
const PART: u8 = 6;
/// Longest time, unless the first one is longer.
const LONGEST: Span = Span::from_secs(24 * 3600);
/// Time in which only one connection tries whether a peer is still bad.
const TRIAL: Span = Span::from_secs(10);
/// Age of a link below which its failure counts: twice the longest that a device repeats before it gives up (7 times 4
/// times 268 ms), since programs begin with their data at once. When an older one fails the path was good, and the
/// peer is gone.
pub const YOUNG: Span = Span::from_secs(16);

/// Time after which the end of a first contact counts: less than any device repeats before it gives up, and than any end
/// waits for the other.
pub const SLOW: Span = Span::from_secs(1);

/// The cause for which a peer is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It sends any TCP option back.
    Echo,
    /// It does not answer SYNs with the option, and answers those without.
    Silence,
    /// It resets SYNs with the option, and answers those without.
    Reset,
    /// It keeps declining, or handshakes with it fail.
    Declines,
    /// Links to it fail: RDMA does not get through, though TCP does.
    Link,
}

impl Cause {
    /// A short stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Echo => "echo",
            Cause::Silence => "silence",
            Cause::Reset => "reset",
            Cause::Declines => "declines",
            Cause::Link => "link",
        }
    }
}

/// Fate of a connection that this host began; of links the fate of those that the peer began, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The SYN-ACK had what only a SYN has.
    Echoed,
    /// SYNs with the option stayed without an answer, and one without it got one. The option may have been the cause,
    /// or a queue of connections that was full.
    Silent,
    /// The program has given up after at least two SYNs, all with the option and without an answer. The host
    /// may as well have been down.
    Abandoned,
    /// A SYN with the option was reset, and one without it, at once afterwards, was answered. The program may
    /// have begun to listen in between.
    Reset,
    /// The peer has declined, for this reason.
    Declined(Reason),
    /// The handshake has failed, though TCP went on.
    Failed,
    /// A SYN with the option was answered as SYNs are.
    Answered,
    /// The connection is SMC's, or may leave TCP. It says nothing of links.
    Succeeded,
    /// A new link was not confirmed, or broke within [`YOUNG`] because the peer's device did not answer.
    LinkFailed,
    /// A link carries the connection.
    LinkConfirmed,
}

impl Event {
    /// Returns the event that the end of a first contact is in TCP, given our own reason and the peer's if it was the one
    /// to decline, and how long there has been a link. `None` if it tells nothing of the path: the decline has come before
    /// there was a link, or for another reason, such as memory that is short; or so soon that nobody can have waited for
    /// the other, as where a device refuses something.
    pub fn of_first_contact(own: Reason, peer: Option<Reason>, took: Span) -> Option<Event> {
        if took < SLOW {
            return None;
        }
        let reason = match peer {
            Some(peer) => peer,
            None => own,
        };
        match reason {
            Reason::ConfirmLinkTimeout | Reason::ReadyLinkError => Some(Event::LinkFailed),
            _ => None,
        }
    }

    /// Reports whether it shows that something gets through.
    pub const fn forgives(self) -> bool {
        matches!(
            self,
            Event::Answered | Event::Succeeded | Event::LinkConfirmed
        )
    }

    /// Reports whether it tells of a port, and of the address only together with another port: a service that is
    /// stopped, or that begins, looks the same, and somebody else's program decides about it.
    pub(super) const fn is_of_a_port(self) -> bool {
        matches!(self, Event::Silent | Event::Abandoned | Event::Reset)
    }

    /// The cause that it is evidence for, and for how many declines it counts; `None` if for nothing that lasts.
    pub(super) const fn weight(self) -> Option<(Cause, u8)> {
        match self {
            Event::Echoed => Some((Cause::Echo, MANY)),
            Event::Silent | Event::Abandoned => Some((Cause::Silence, MANY)),
            Event::Reset => Some((Cause::Reset, RESET)),
            Event::Declined(reason) if lasts(reason) => Some((Cause::Declines, 1)),
            Event::Failed => Some((Cause::Declines, FAILURE)),
            Event::LinkFailed => Some((Cause::Link, MANY)),
            Event::Declined(_) | Event::Answered | Event::Succeeded | Event::LinkConfirmed => None,
        }
    }
}

/// Returns whether a peer that declines for this reason will do so again. What is a matter of the moment, or
/// of one of its programs, does not count.
const fn lasts(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::NoMemory
            | Reason::Busy
            | Reason::ConfirmLinkTimeout
            | Reason::AddLinkTimeout
            | Reason::Attached
            | Reason::UnsupportedOption
            | Reason::Policy
            | Reason::Unpaid
            | Reason::NoActiveLink
            | Reason::NoServerLink
            | Reason::SyncError
            | Reason::Internal
            | Reason::RtokenError
            | Reason::ReadyLinkError
            | Reason::RegisterBufferError
            | Reason::LinkFailed
            | Reason::Other(0)
    )
}

/// Circumstances, which each call tells the table.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The present time.
    pub now: Instant,
    /// Time for which a peer is left alone at first.
    pub first: Span,
    /// A number that changes with the host's routes and addresses.
    pub routes: u32,
}

/// State of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has declined, and not often enough. Or a link was confirmed after others had failed: until `until` one more
    /// failure counts as before, as a path that drops large packets alone lets links be confirmed.
    Watched,
    /// It is left alone.
    Off,
    /// One connection tries.
    Trial,
}

/// The record of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    cause: Cause,
    state: State,
    /// Declines in a row.
    declines: u8,
    /// The time it gets is the first one, doubled so often, divided by 2 to the [`PART`].
    level: u8,
    /// Number of times that it was given a time.
    times: u32,
    from: Instant,
    until: Instant,
    routes: u32,
    /// In the record of an address that is only watched: the port that was found to be bad, until `until`; or 0.
    witness: u16,
}

impl Entry {
    pub(super) const fn new(view: &View) -> Self {
        Self {
            cause: Cause::Declines,
            state: State::Watched,
            declines: 0,
            level: 0,
            times: 0,
            from: view.now,
            until: view.now,
            routes: view.routes,
            witness: 0,
        }
    }

    /// The cause for which the peer is remembered; `None` if it is only watched.
    pub fn cause(&self) -> Option<Cause> {
        (self.state != State::Watched).then_some(self.cause)
    }

    /// Number of times that it was found to be bad.
    pub fn times(&self) -> u32 {
        self.times
    }

    /// The time that is left until a connection tries; none if the next one will, or one does.
    pub fn left(&self, now: Instant) -> Span {
        match self.state {
            State::Off => self.until.since(now),
            State::Watched | State::Trial => Span::ZERO,
        }
    }

    /// The loss if it is forgotten: the time that it has still to run.
    pub(super) fn worth(&self, view: &View) -> u64 {
        self.left(view.now).0
    }

    pub(super) fn keeps_off(&mut self, view: &View) -> Option<Cause> {
        if self.state == State::Watched {
            return None;
        }
        let whole = self.until.since(self.from);
        // Never sooner than what the shortest time is: routes change all the time where there are containers.
        let some = Span(whole.max(view.first).0 >> PART);
        let moved = self.routes != view.routes && view.now.reached(self.from.after(some));
        if !view.now.reached(self.until) && !moved {
            return Some(self.cause);
        }
        self.state = State::Trial;
        self.from = view.now;
        self.until = view.now.after(TRIAL);
        self.routes = view.routes;
        None
    }

    /// Reports whether the peer is forgiven because of `event`, one that tells of the option. Only SMC shows that
    /// somebody who declined does not any more, and only a link that another one does not fail.
    pub(super) fn is_forgiven(&self, event: Event) -> bool {
        match self.cause {
            Cause::Link => false,
            Cause::Declines => event == Event::Succeeded,
            Cause::Echo | Cause::Silence | Cause::Reset => true,
        }
    }

    /// Takes note that a link to the peer was confirmed.
    pub(super) fn is_confirmed(&mut self, view: &View) {
        if self.cause() == Some(Cause::Link) {
            self.state = State::Watched;
            self.until = view.now.after(self.time(view.first));
        }
    }

    /// Takes note of an event. Returns the cause if the peer is left alone from now on because of it.
    pub(super) fn note(&mut self, event: Event, view: &View) -> Option<Cause> {
        let (cause, weight) = event.weight()?;
        if self.is_off(view.now) {
            // Another connection that began before this was known: it is no new finding.
            return None;
        }
        if self.state == State::Watched && self.times != 0 && view.now.reached(self.until) {
            *self = Self::new(view);
        }
        self.cause = cause;
        self.declines = self.declines.saturating_add(weight);
        if self.declines < MANY && self.state == State::Watched {
            return None;
        }
        // The connection that tries tells a queue that was full once from an option that is dropped, and a peer that
        // stood still from a path that is bad.
        let doubtful = match event {
            Event::Silent | Event::LinkFailed => self.times == 0,
            event => event == Event::Abandoned,
        };
        self.leave_alone(if doubtful { 0 } else { PART }, view);
        Some(cause)
    }

    /// Takes note, in the record of an address, that one of its ports is left alone from now on, for `cause`.
    /// A second port makes it the address's matter.
    pub(super) fn confirm(&mut self, port: u16, cause: Cause, view: &View) {
        if self.is_off(view.now) {
            return;
        }
        let second = ![0, port].contains(&self.witness) && !view.now.reached(self.until);
        if self.state == State::Watched && !second {
            self.witness = port;
            self.until = view.now.after(view.first);
            return;
        }
        self.cause = cause;
        self.witness = 0;
        self.leave_alone(PART, view);
    }

    fn is_off(&self, now: Instant) -> bool {
        self.state == State::Off && !now.reached(self.until)
    }

    /// Takes note that a port of the address answers SYNs with the option.
    pub(super) fn is_answered(&mut self) {
        self.witness = 0;
    }

    /// Leaves the peer alone for a time whose level is the next one, and `least` at least.
    fn leave_alone(&mut self, least: u8, view: &View) {
        self.level = match self.times {
            0 => least,
            _ => self.level.saturating_add(1).max(least),
        };
        self.times = self.times.saturating_add(1);
        self.state = State::Off;
        self.declines = 0;
        self.from = view.now;
        self.until = view.now.after(self.time(view.first));
        self.routes = view.routes;
    }

    fn time(&self, first: Span) -> Span {
        let factor = 1u64.checked_shl(u32::from(self.level)).unwrap_or(u64::MAX);
        let time = (first.0 >> PART).max(1).saturating_mul(factor);
        Span(time.min(first.max(LONGEST).0))
    }
}
