// SPDX-License-Identifier: GPL-2.0

//! Drives a handshake: takes each [`Step`] of its machine and reports the outcome to it.
//!
//! A [`Driver`] never waits. It goes on as far as it can and says until when it is to be called
//! again at the latest; the caller calls it earlier when bytes arrive on the TCP stream, when an
//! LLC event comes, and when the link fails.
//!
//! Its part `stream` takes the messages of CLC from the TCP stream.

use super::client::Client;
use super::endpoint::Endpoint;
use super::policy::Policy;
use super::server::{
    Server,
    FIRST_LINK, //
};
use super::{
    Eligibility,
    Input,
    Outcome,
    Port,
    Step,
    Want,
    WAIT_CLC, //
};
use crate::error::EmitError;
use crate::reason::Reason;
use crate::time::{
    Instant,
    Span, //
};
use crate::wire::clc::{
    ClcReader,
    Header,
    MsgType,
    RdmaEnd, //
};

mod stream;

/// Longest wait of a server for another first contact with the same client, whose group it joins
/// then. A client waits a little longer for the accept ([`WAIT_CLC`]).
pub const WAIT_FIRST_CONTACT: Span = Span::from_secs(5);

/// Tells how far a handshake has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    /// It waits for the peer, until this time.
    Awaiting(Instant),
    /// It waits for another first contact on this host, until this time.
    Queued(Instant),
    /// [`Endpoint::admits`] has put the next step off.
    Deferred,
    /// It has ended.
    Done(Outcome),
}

/// A number and the peer's identifier for the link of a first contact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkName {
    /// Number in the group, given by the server.
    pub number: u8,
    /// Identifier that the peer gave its end.
    pub peer_uid: [u8; 4],
}

/// The machine of either role.
#[derive(Debug)]
enum Machine {
    Client(Client),
    Server(Server),
}

impl Machine {
    fn step(&mut self, input: Input<'_>, now: Instant) -> Step {
        match self {
            Machine::Client(client) => client.step(input, now),
            Machine::Server(server) => server.step(input, now),
        }
    }

    fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        match self {
            Machine::Client(client) => client.emit(buf),
            Machine::Server(server) => server.emit(buf),
        }
    }

    /// Tells whether the peer may have its connection while we wait for the link.
    fn may_be_connected(&self) -> bool {
        match self {
            Machine::Client(client) => client.has_answered(),
            Machine::Server(_) => true,
        }
    }

    fn peer_end(&self) -> Option<&RdmaEnd> {
        match self {
            Machine::Client(client) => client.peer_end(),
            Machine::Server(server) => server.peer_end(),
        }
    }
}

/// A handshake under way; `B` is the [`Endpoint::Buffer`] of its endpoint.
#[derive(Debug)]
pub struct Driver<B> {
    machine: Machine,
    step: Step,
    reader: Option<ClcReader<B>>,
    /// Message that `reader` awaits.
    expected: MsgType,
    /// Bytes may be taken from the stream.
    begun: bool,
    /// End of the wait for another first contact.
    queued_until: Option<Instant>,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Driver<B> {
    /// Begins a client's handshake over a TCP connection that was just established.
    #[must_use]
    pub fn client(policy: &Policy, port: Port, eligibility: &Eligibility) -> Self {
        let (client, step) = Client::start(policy, port, eligibility);
        Driver::new(Machine::Client(client), step, MsgType::Accept, true)
    }

    /// Begins a server's handshake over a TCP connection that was just accepted.
    #[must_use]
    pub fn server(policy: &Policy, eligibility: &Eligibility, now: Instant) -> Self {
        let (server, step) = Server::start(policy, eligibility, now);
        Driver::new(Machine::Server(server), step, MsgType::Proposal, false)
    }

    fn new(machine: Machine, step: Step, expected: MsgType, begun: bool) -> Self {
        Driver {
            machine,
            step,
            reader: None,
            expected,
            begun,
            queued_until: None,
        }
    }

    /// Reports whether the stream was found to speak CLC, so that bytes of it may be gone. A
    /// client's always counts as such.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns when the client of a server's handshake will have been silent for this span, if it is its turn
    /// to send a message of CLC. What we have taken before does not count, nor does the wait for the link, or
    /// for a decline that says why that did not come.
    #[must_use]
    pub fn silent_for(&self, span: Span) -> Option<Instant> {
        match self.step {
            Step::Await {
                clc: MsgType::Proposal | MsgType::Confirm,
                llc: false,
                until,
            } => Some(until.before(WAIT_CLC).after(span)),
            _ => None,
        }
    }

    /// Returns the peer's end, once known.
    #[must_use]
    pub fn peer_end(&self) -> Option<&RdmaEnd> {
        self.machine.peer_end()
    }

    /// Returns the name of the link that a first contact has brought up.
    #[must_use]
    pub fn link(&self) -> LinkName {
        let (number, peer_uid) = match &self.machine {
            Machine::Client(client) => client.link(),
            Machine::Server(server) => (FIRST_LINK, server.peer_link_uid()),
        };
        LinkName { number, peer_uid }
    }

    /// Goes on as far as possible.
    pub fn advance<E: Endpoint<Buffer = B>>(&mut self, endpoint: &mut E) -> Progress {
        loop {
            if !endpoint.admits(&self.step) {
                return Progress::Deferred;
            }
            self.step = match self.step {
                Step::Finish(outcome) => return Progress::Done(outcome),
                Step::Send => {
                    let sent = self.send(endpoint);
                    let input = if sent { Input::Sent } else { Input::TcpError };
                    self.input(endpoint, input)
                }
                Step::Await { clc, llc, until } => match self.hear(endpoint, clc, llc, until) {
                    Some(step) => step,
                    None => return Progress::Awaiting(until),
                },
                Step::Acquire(want) => match self.acquire(endpoint, &want) {
                    Ok(step) => step,
                    Err(until) => return Progress::Queued(until),
                },
                Step::Adopt { first_contact, mtu } => {
                    let done = match self.machine.peer_end() {
                        Some(peer) => endpoint.adopt(first_contact, mtu, peer),
                        None => Err(Reason::Internal),
                    };
                    self.settle(endpoint, done)
                }
                Step::ToRts => {
                    let done = endpoint.to_rts();
                    self.settle(endpoint, done)
                }
                Step::SendLlc { frame, full } => {
                    let done = endpoint.send_llc(&frame, full);
                    self.settle(endpoint, done)
                }
            };
        }
    }

    fn input<E: Endpoint<Buffer = B>>(&mut self, endpoint: &E, input: Input<'_>) -> Step {
        self.machine.step(input, endpoint.now())
    }

    fn settle<E: Endpoint<Buffer = B>>(&mut self, endpoint: &E, done: Result<(), Reason>) -> Step {
        let input = done.map_or_else(Input::Failed, |()| Input::Done);
        self.input(endpoint, input)
    }

    /// Sends the machine's message; false when that failed.
    fn send<E: Endpoint<Buffer = B>>(&mut self, endpoint: &mut E) -> bool {
        let Some(mut buf) = endpoint.buffer() else {
            return false;
        };
        let len = self.machine.emit(buf.as_mut());
        let Some(bytes) = len.ok().and_then(|len| buf.as_ref().get(..len)) else {
            return false;
        };
        let header = bytes
            .first_chunk()
            .and_then(|head| Header::parse(head).ok());
        if let Some(MsgType::Accept | MsgType::Confirm) = header.map(|header| header.kind) {
            endpoint.expose();
        }
        endpoint.send(bytes)
    }

    /// Takes [`Step::Acquire`]; `Err` with the end of the wait for another first contact.
    fn acquire<E: Endpoint<Buffer = B>>(
        &mut self,
        endpoint: &mut E,
        want: &Want,
    ) -> Result<Step, Instant> {
        Ok(match endpoint.acquire(want, self.machine.peer_end()) {
            Ok(Some(acquired)) => self.input(endpoint, Input::Acquired(&acquired)),
            Ok(None) => {
                let now = endpoint.now();
                let until = *self
                    .queued_until
                    .get_or_insert(now.after(WAIT_FIRST_CONTACT));
                if !endpoint.now().reached(until) {
                    return Err(until);
                }
                self.input(endpoint, Input::Failed(Reason::ConfirmLinkTimeout))
            }
            Err(reason) => self.input(endpoint, Input::Failed(reason)),
        })
    }
}
