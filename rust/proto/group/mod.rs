// SPDX-License-Identifier: GPL-2.0

//! A link group: one RDMA link shared by up to 255 connections to one peer.
//!
//! [`Group`] is the protocol's view of a group with one link: who the peer is, what was agreed,
//! which of the peer's memory we may write, which connections there are, what the peer's LLC
//! messages mean, and when the group ends. Queue pairs, memory regions and lists are the caller's.
//!
//! * [`choice`]: which group a connection joins; first contact. [`hold`]: a port that fails for a moment.
//! * [`tokens`]: names of our connections. [`slab`]: which RMBEs are in use. [`due`]: who wants to
//!   send.

use core::borrow::BorrowMut;

use crate::llc::link::{
    BeatAction,
    Link,
    LinkEnd,
    LinkEvent,
    LinkState,
    Role, //
};
use crate::llc::progress::Progress;
use crate::llc::requests::{
    Ask,
    Requests,
    Settled, //
};
use crate::llc::responder::{
    respond,
    Context,
    LlcEvent,
    Reaction, //
};
use crate::llc::rtoken::{
    Entry,
    RtokenTable,
    MAX_RTOKENS, //
};
use crate::time::{
    earliest,
    Instant,
    Span, //
};
use crate::wire::clc::Extensions;
use crate::wire::ids::{
    AlertToken,
    Rkey, //
};
use crate::wire::llc::link::{
    DeleteLink,
    DeleteReason,
    TestLink, //
};
use crate::wire::llc::rkey::DeleteRkey;
use crate::wire::llc::{
    Frame,
    Message,
    Version,
    LEN, //
};

pub mod choice;
pub mod due;
pub mod hold;
pub mod silence;
pub mod slab;
pub mod tokens;
pub mod worth;

use choice::{
    Candidate,
    Key, //
};
use hold::{
    Hold,
    PortCheck, //
};
use silence::Silence;
use tokens::{
    TokenTable,
    MAX_CONNS, //
};
use worth::Worth;

/// Idle time after which a server ends a group.
pub const IDLE_SERVER: Span = Span::from_secs(600);
/// Idle time after which a client ends a group; longer, so that the server is first.
pub const IDLE_CLIENT: Span = Span::from_secs(610);
/// Longest time until a memory key works that is registered on the link, after messages that the peer
/// may not take.
pub const REGISTRATION: Span = Span::from_secs(5);
/// Fewest connections per group that a peer may demand (version 2.1).
pub const MIN_CONNS: u8 = 16;

/// Reasons for the end of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// No connection for a long time.
    Idle,
    /// The peer sent DELETE_LINK.
    Peer(DeleteReason),
    /// The link failed or the peer does not answer on it.
    LinkLost,
    /// Decline with the out-of-sync bit, or another breach of the protocol.
    OutOfSync,
    /// Device, port or module goes away, or an operator wants it.
    Local,
}

impl EndReason {
    /// Returns the DELETE_LINK for the peer; `None` if it needs none or cannot hear it.
    #[must_use]
    pub fn to_wire(self) -> Option<DeleteLink> {
        let (reason, orderly) = match self {
            EndReason::Idle => (DeleteReason::PROGRAM, true),
            EndReason::OutOfSync => (DeleteReason::VIOLATION, false),
            EndReason::Local => (DeleteReason::OPERATOR, false),
            EndReason::Peer(_) | EndReason::LinkLost => return None,
        };
        Some(DeleteLink {
            link_num: 0,
            all: true,
            orderly,
            reason,
        })
    }
}

/// Tasks that a group leaves to its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Todo {
    /// Nothing.
    None,
    /// Send this LLC message on the link.
    Send(Frame),
    /// One of our requests was settled.
    Settled(Settled),
    /// A CONFIRM_LINK or ADD_LINK answer for the handshake that holds the group.
    Handshake(LlcEvent),
    /// Call [`Group::judge`]: a test was answered.
    Judge,
    /// Look at the port, and say by [`Group::port_checked`] what has become of it.
    CheckPort,
    /// The group ends now: send the message, if any, kill all connections, flush the queue pair,
    /// free everything. Raised once.
    End {
        /// Reason of the end.
        reason: EndReason,
        /// Last message, best effort.
        last: Option<Frame>,
    },
}

/// Terms of a group, agreed in first contact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Our role, and the peer.
    pub key: Key,
    /// Release within version 2.
    pub release: u8,
    /// Most connections, as agreed.
    pub max_conns: u8,
    /// Most links, as agreed; we use one.
    pub max_links: u8,
    /// Idle time before TEST_LINK; zero for never.
    pub test_idle: Span,
    /// Extensions of this module that the peer has, too.
    pub extensions: Extensions,
}

/// A link group with one link. `R` and `T` are the memory of its two tables, see [`RtokenTable`]
/// and [`TokenTable`]; in the kernel vectors, so that a group is never built on the stack.
#[derive(Debug)]
pub struct Group<R = [Entry<1>; MAX_RTOKENS], T = [u32; MAX_CONNS]> {
    terms: Terms,
    /// The link.
    pub link: Link,
    /// The peer's memory.
    pub rtokens: RtokenTable<R, 1>,
    /// Our requests under way.
    pub requests: Requests,
    tokens: TokenTable<T>,
    progress: Progress,
    /// End of the wait for a registration under way.
    registered_by: Option<Instant>,
    conns: u8,
    idle_since: Option<Instant>,
    hold: Hold,
    /// True once the port has failed.
    has_been_held: bool,
    ended: bool,
    /// Whether the link is better than TCP.
    pub worth: Worth,
    /// Whether it answers at all.
    pub silence: Silence,
}

impl<R: BorrowMut<[Entry<1>]>, T: BorrowMut<[u32]>> Group<R, T> {
    /// A group whose first contact begins. `token_seed` is any number, best random; the memory
    /// holds free entries and zeroes.
    #[must_use]
    pub fn new(terms: Terms, token_seed: u32, rtokens: R, tokens: T) -> Group<R, T> {
        Group {
            terms,
            link: Link::new(terms.test_idle),
            rtokens: RtokenTable::new(rtokens),
            requests: Requests::new(),
            tokens: TokenTable::new(tokens, token_seed),
            progress: Progress::new(terms.test_idle),
            registered_by: None,
            conns: 0,
            idle_since: None,
            hold: Hold::No,
            has_been_held: false,
            ended: false,
            worth: Worth::default(),
            silence: Silence::default(),
        }
    }

    /// Returns what was agreed in first contact.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// LLC version spoken in the group.
    #[must_use]
    pub fn llc_version(&self) -> Version {
        Version::of(self.terms.key.version)
    }

    /// Reports whether connections may be added.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.ended && self.link.state() == LinkState::Active
    }

    /// Reports whether [`Todo::End`] was raised.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the group as a candidate for the server's choice. A peer whose next connection may
    /// need memory that the table has no place for finds no room, as with C.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        let room = if self.rtokens.is_full() {
            0
        } else {
            self.terms.max_conns.saturating_sub(self.conns)
        };
        Candidate {
            key: self.terms.key,
            usable: self.is_usable() && !self.is_held(),
            room,
        }
    }

    /// Since when it has had no connection; `None` before the first and while there are some.
    #[must_use]
    pub fn idle_since(&self) -> Option<Instant> {
        self.idle_since.filter(|_| !self.ended)
    }

    /// Ends the group if it has no connection.
    pub fn end_if_idle(&mut self, now: Instant) -> Todo {
        match self.idle_since {
            Some(_) => self.end(EndReason::Idle, now),
            None => Todo::None,
        }
    }

    /// The link as an accept may name it: the active one. A server names it as soon as it has our
    /// answer to its CONFIRM_LINK, which may be before we ourselves have noted that it is active.
    #[must_use]
    pub fn link_end(&self) -> Option<LinkEnd> {
        let answered = !self.ended
            && self.terms.key.role == Role::Client
            && self.link.state() == LinkState::Activating;
        let waiting = self.hold.is_waiting();
        let usable = answered || self.is_usable();
        self.link.peer.filter(|_| usable && !waiting)
    }

    /// Reports whether new connections are kept from it because of its port. A client joins one that is held for good
    /// if the server says so, which knows nothing of it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold != Hold::No
    }

    /// The port has failed: holds the group, see [`hold`].
    pub fn hold(&mut self, now: Instant) {
        if !self.ended {
            self.has_been_held = true;
            self.hold.begin(now);
        }
    }

    /// Reports whether the port has ever failed: then what was lost says nothing of the path.
    #[must_use]
    pub fn has_been_held(&self) -> bool {
        self.has_been_held
    }

    /// The port is back: what waits for the peer begins to wait again. Reports whether the group has waited for that;
    /// one that is held for good has not.
    pub fn release(&mut self, now: Instant) -> bool {
        let waited = self.hold.is_waiting();
        if waited {
            self.hold = Hold::No;
            self.wait_again(now);
        }
        waited
    }

    /// Tells what [`Todo::CheckPort`] has found. Nothing if an event of the port has come meanwhile, which is newer.
    pub fn port_checked(&mut self, found: PortCheck, now: Instant) -> Todo {
        let Hold::Looking { lost } = self.hold else {
            return Todo::None;
        };
        // What was heard has come by the port: it was up since, between two looks.
        let lost = match self.link.heard_at() {
            Some(heard) => lost.max(heard.after(hold::PATIENCE)),
            None => lost,
        };
        match found {
            _ if self.ended => (),
            PortCheck::Back => {
                self.release(now);
            }
            PortCheck::Moved => {
                self.hold = Hold::ForGood;
                self.wait_again(now);
            }
            PortCheck::Gone if now.reached(lost) => return self.end(EndReason::LinkLost, now),
            PortCheck::Gone => self.hold.wait(lost, now),
        }
        Todo::None
    }

    fn wait_again(&mut self, now: Instant) {
        self.link.heard(now);
        if self.registered_by.is_some() {
            self.registers(now);
        }
    }

    /// Adds a connection: its token and index. `None` if the group is full or ending. The first
    /// contact's own connection is added before the link is active.
    pub fn add_conn(&mut self) -> Option<(AlertToken, u8)> {
        if self.ended || self.conns >= self.terms.max_conns {
            return None;
        }
        let added = self.tokens.alloc()?;
        self.conns = self.conns.saturating_add(1);
        self.idle_since = None;
        Some(added)
    }

    /// Removes a connection; whether it was there.
    pub fn remove_conn(&mut self, token: AlertToken, now: Instant) -> bool {
        if !self.tokens.free(token) {
            return false;
        }
        self.conns = self.conns.saturating_sub(1);
        if self.conns == 0 {
            self.idle_since = Some(now);
        }
        true
    }

    /// Number of connections.
    #[must_use]
    pub fn conns(&self) -> u8 {
        self.conns
    }

    /// An LLC message has arrived. The reply, if any, is sent before anything else is done.
    pub fn on_llc(&mut self, bytes: &[u8], now: Instant) -> (Option<Frame>, Todo) {
        if self.ended {
            return (None, Todo::None);
        }
        self.link.heard(now);
        let mut ctx = Context {
            role: self.terms.key.role,
            state: self.link.state(),
            number: self.link.number,
            link: 0,
            rtokens: &mut self.rtokens,
        };
        let Reaction { reply, event } = respond(&mut ctx, bytes);
        let todo = match event {
            LlcEvent::None | LlcEvent::Dropped | LlcEvent::DeleteAnswered => Todo::None,
            // That it answers is all that the heartbeat wants.
            LlcEvent::Tested(data) => match self.worth.on_answer(&data, now) {
                true => Todo::Judge,
                false => Todo::None,
            },
            LlcEvent::ConfirmLink { .. } | LlcEvent::Delivered => Todo::Handshake(event),
            LlcEvent::RkeyAnswer => self.settle(bytes),
            LlcEvent::Ended { reason, .. } => self.end(EndReason::Peer(reason), now),
        };
        (reply, todo)
    }

    /// Asks the peer to forget one of our memory keys: the message to send, whose answer, or the lack
    /// of one, comes as [`Todo::Settled`]. `None` while the link is not in use, or an earlier request
    /// waits for its answer: C drops a request that comes while it works on another.
    pub fn forget(&mut self, rkey: Rkey, now: Instant) -> Option<Frame> {
        if !self.is_usable() || !self.requests.is_empty() {
            return None;
        }
        let mut frame = [0; LEN];
        DeleteRkey::emit(self.llc_version(), &[rkey], &mut frame).ok()?;
        self.requests.start(Ask::Delete, rkey, now).then_some(frame)
    }

    fn settle(&mut self, bytes: &[u8]) -> Todo {
        let settled = Message::parse(bytes)
            .ok()
            .and_then(|m| self.requests.on_response(&m.header, &m.body));
        settled.map_or(Todo::None, Todo::Settled)
    }

    /// Something other than an LLC message was received on the link at this time, the latest of its kind. To be told
    /// before anything that depends on it: [`Group::next_deadline`], [`Group::on_timer`], [`Group::port_checked`].
    #[inline]
    pub fn heard(&mut self, at: Instant) {
        self.link.heard_before(at);
    }

    /// The one deadline of the group.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.ended {
            return None;
        }
        let d = earliest(self.progress.next_deadline(), self.requests.next_deadline());
        let d = earliest(d, self.idle_deadline());
        if self.hold.is_waiting() {
            return earliest(d, self.hold.deadline());
        }
        let d = earliest(earliest(d, self.registered_by), self.link.next_deadline());
        let d = earliest(d, self.silence.next_deadline());
        earliest(d, self.worth.next_deadline())
    }

    /// Looks whether the link has fallen silent, which ends the group: whether requests are under way, of whose ends the
    /// device was asked to tell, and how many have ended. To be called when [`Silence::next_deadline`] has come.
    pub fn look_for_silence(&mut self, under_way: bool, ended: u32, now: Instant) -> Todo {
        if self.silence.look(under_way, ended, now) && self.is_usable() && !self.hold.is_waiting() {
            return self.end(EndReason::LinkLost, now);
        }
        Todo::None
    }

    /// Goes on with [`Group::worth`], with the bytes that are posted and not acknowledged and those that have arrived.
    /// Returns the message to send.
    pub fn judge(&mut self, now: Instant, ahead: u64, arrived: u64) -> Option<Frame> {
        if !self.is_usable() || self.hold.is_waiting() {
            return None;
        }
        let data = self.worth.on_timer(now, ahead, arrived);
        let mut frame = [0; LEN];
        let version = self.llc_version();
        let sends = data.is_some_and(|data| TestLink { data }.emit(version, &mut frame).is_ok());
        sends.then_some(frame)
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let span = match self.terms.key.role {
            Role::Server => IDLE_SERVER,
            Role::Client => IDLE_CLIENT,
        };
        self.idle_since.map(|t| t.after(span))
    }

    /// Time has passed. To be called until it gives [`Todo::None`].
    pub fn on_timer(&mut self, now: Instant) -> Todo {
        if self.ended {
            return Todo::None;
        }
        if self.idle_deadline().is_some_and(|d| now.reached(d)) {
            return self.end(EndReason::Idle, now);
        }
        if let Some(settled) = self.requests.on_timer(now) {
            return Todo::Settled(settled);
        }
        if self.hold.is_waiting() {
            return match self.hold.looks(now) {
                true => Todo::CheckPort,
                false => Todo::None,
            };
        }
        if self.registered_by.is_some_and(|d| now.reached(d)) {
            return self.end(EndReason::LinkLost, now);
        }
        match self.link.on_timer(self.llc_version(), now) {
            BeatAction::None => Todo::None,
            BeatAction::Send(frame) => Todo::Send(frame),
            BeatAction::Dead => self.end(EndReason::LinkLost, now),
        }
    }

    /// A memory key is about to be registered on the link. If that has not ended within [`REGISTRATION`]
    /// the link is lost.
    pub fn registers(&mut self, now: Instant) {
        self.registered_by = Some(now.after(REGISTRATION));
    }

    /// The registration has ended, or is not wanted any more.
    pub fn registered(&mut self) {
        self.registered_by = None;
    }

    /// Looks whether the peer takes what is under way, see [`Progress::look`]. The first look, when
    /// the link is active, begins it; the others are due with the group's deadline.
    pub fn look(&mut self, under_way: bool, ended: u32, now: Instant) -> Todo {
        if !self.ended && self.progress.look(under_way, ended, now) {
            return self.end(EndReason::LinkLost, now);
        }
        Todo::None
    }

    /// Ends the group. The second and later calls give nothing.
    pub fn end(&mut self, reason: EndReason, now: Instant) -> Todo {
        if self.ended {
            return Todo::None;
        }
        self.ended = true;
        let sends = matches!(self.link.state(), LinkState::Activating | LinkState::Active);
        self.link.step(LinkEvent::Down, now);
        let mut frame = [0; LEN];
        let last = reason
            .to_wire()
            .filter(|_| sends)
            .and_then(|m| m.emit(self.llc_version(), false, &mut frame).ok())
            .map(|_| frame);
        Todo::End { reason, last }
    }
}
