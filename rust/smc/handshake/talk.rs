// SPDX-License-Identifier: GPL-2.0

//! One end of a handshake: the protocol's machine, and the hands that do what it asks.
//!
//! A [`Talk`] never waits for the peer. It goes on as far as it can and says until when it is to be
//! called again at the latest; arrivals of data and LLC events kick its owner, see [`Waiter`].

use super::{
    attempt::Attempt,
    crossing,
    gates::Gates, //
};
use crate::{
    carrier::{LocalPort, PeerFacts, SmcConn},
    host::{clock::now, waiter::Waiter}, //
};
use kapi::net::sock::Sock;
use kernel::{
    prelude::*,
    sync::{aref::ARef, Arc}, //
};
use smc_proto::{
    error::ReadError,
    handshake::{
        server,
        Client,
        Facts,
        Input,
        Outcome,
        Policy,
        Server,
        Step, //
    },
    reason::Reason,
    time::{Instant, Span},
    wire::clc::{self, ClcReader, Header, Message, MsgType, Proposal}, //
};

/// How long a server's handshake waits for another one that makes the group which it will join. The
/// client waits a little longer for our accept.
const WAIT_TURN: Span = Span::from_secs(5);
/// How often the stream is looked at where TCP does not tell.
const LOOK_AGAIN: Span = Span::from_millis(10);
/// Bytes of a CLC header.
const HEADER: usize = 8;

struct Buffer(KVec<u8>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

enum Machine {
    Client(KBox<Client>),
    Server(KBox<Server>),
}

/// How far a handshake has come.
pub(crate) enum Progress {
    /// It goes on when something happens, or at this time.
    Pending(Instant),
    /// What comes next may sleep, for seconds if the peer likes, and was not done.
    Heavy,
    /// It has ended.
    Done(Outcome),
}

/// A handshake under way.
pub(crate) struct Talk {
    machine: Machine,
    step: Step,
    reader: Option<ClcReader<Buffer>>,
    expected: MsgType,
    /// Whether a byte was taken from the stream.
    begun: bool,
    attempt: Attempt,
    /// What the peer's accept or confirm has said of it.
    peer: PeerFacts,
    /// Until when to wait for a first contact that others have begun.
    turn: Option<Instant>,
}

enum Heard {
    Nothing,
    Message,
    Broken(ReadError),
    TcpError,
}

impl Talk {
    /// A client's handshake over a connection whose SYN-ACK had the option.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn client(gates: &Arc<Gates>, policy: &Policy, port: LocalPort) -> Result<Self> {
        let facts = Facts {
            option: true,
            refuse: None,
        };
        let (machine, step) = Client::start(policy, port.facts(), &facts, now());
        Ok(Self {
            machine: Machine::Client(KBox::new(machine, GFP_KERNEL)?),
            step,
            reader: None,
            expected: MsgType::Accept,
            begun: true,
            attempt: Attempt::new(gates.clone(), Some(port), None),
            peer: PeerFacts::UNKNOWN,
            turn: None,
        })
    }

    /// A server's handshake over a connection whose SYN had the option. Without a port every
    /// proposal is declined for the reason that there is instead. The listener pays for the memory: its
    /// connection is nobody's before accept().
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn server(
        gates: &Arc<Gates>,
        policy: &Policy,
        port: Result<LocalPort, Reason>,
        payer: ARef<Sock>,
    ) -> Result<Self> {
        let facts = Facts {
            option: true,
            refuse: port.as_ref().err().copied(),
        };
        let (machine, step) = Server::start(policy, &facts, now());
        Ok(Self {
            machine: Machine::Server(KBox::new(machine, GFP_KERNEL)?),
            step,
            reader: None,
            expected: MsgType::Proposal,
            begun: false,
            attempt: Attempt::new(gates.clone(), port.ok(), Some(payer)),
            peer: PeerFacts::UNKNOWN,
            turn: None,
        })
    }

    /// Whether a byte of the stream has been taken.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Goes on as far as possible. With `patient` it sleeps, but not for the peer's CLC messages.
    pub(crate) fn advance(
        &mut self,
        sock: &ARef<Sock>,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
        patient: bool,
    ) -> Progress {
        loop {
            if !patient && (matches!(self.step, Step::Acquire(_)) || self.attempt.holds_group()) {
                return Progress::Heavy;
            }
            self.step = match self.step {
                Step::Finish(outcome) => return Progress::Done(outcome),
                Step::Send => {
                    let sent = self.send(sock);
                    self.input(if sent { Input::Sent } else { Input::TcpError })
                }
                Step::Await { clc, llc, until } => match self.hear(sock, clc, llc, until) {
                    Some(step) => step,
                    None => return Progress::Pending(look_again(sock, until)),
                },
                Step::Acquire(want) => {
                    let peer = self.peer_end();
                    let acquired = self.attempt.acquire(&want, sock, peer.as_ref(), waiter);
                    match acquired {
                        Ok(Some(acquired)) => self.input(Input::Acquired(&acquired)),
                        Ok(None) => {
                            let until = *self.turn.get_or_insert(now().after(WAIT_TURN));
                            if !now().reached(until) {
                                return Progress::Pending(until);
                            }
                            self.input(Input::Failed(Reason::ConfirmLinkTimeout))
                        }
                        Err(reason) => self.input(Input::Failed(reason)),
                    }
                }
                Step::Adopt { first_contact, mtu } => {
                    let peer = self.peer_end();
                    let done = self
                        .attempt
                        .adopt(first_contact, mtu, sock, peer.as_ref(), waiter);
                    self.settle(done, Reason::ReadyLinkError)
                }
                Step::ToRts => {
                    let done = self.attempt.send_to();
                    self.settle(done, Reason::ReadyLinkError)
                }
                Step::SendLlc(frame) => {
                    let done = self.attempt.send_llc(frame);
                    self.settle(done, Reason::ReadyLinkError)
                }
            };
        }
    }

    /// Ends the handshake as well as it went: the connection it has made.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` when the link was lost meanwhile; `ENOMEM`.
    pub(crate) fn commit(self) -> Result<Arc<SmcConn>> {
        let (number, link_uid) = match &self.machine {
            Machine::Client(machine) => machine.link(),
            Machine::Server(machine) => (server::FIRST_LINK, machine.peer_link_uid()),
        };
        let mut peer = self.peer;
        peer.link_uid = link_uid;
        self.attempt.commit(number, peer)
    }

    /// The peer says that it does not know our group.
    pub(crate) fn out_of_sync(&self) {
        self.attempt.out_of_sync();
    }

    fn peer_end(&self) -> Option<clc::RdmaEnd> {
        match &self.machine {
            Machine::Client(machine) => machine.peer_end().copied(),
            Machine::Server(machine) => machine.peer_end().copied(),
        }
    }

    fn input(&mut self, input: Input<'_>) -> Step {
        match &mut self.machine {
            Machine::Client(machine) => machine.step(input, now()),
            Machine::Server(machine) => machine.step(input, now()),
        }
    }

    fn settle(&mut self, done: Result, reason: Reason) -> Step {
        match done {
            Ok(()) => self.input(Input::Done),
            Err(_) => self.input(Input::Failed(reason)),
        }
    }

    /// Sends the machine's message; whether that worked.
    fn send(&mut self, sock: &Sock) -> bool {
        let Ok(mut buf) = KVec::from_elem(0u8, clc::MAX_LEN, GFP_KERNEL) else {
            return false;
        };
        let len = match &self.machine {
            Machine::Client(machine) => machine.emit(&mut buf),
            Machine::Server(machine) => machine.emit(&mut buf),
        };
        let Some(bytes) = len.ok().and_then(|len| buf.get(..len)) else {
            return false;
        };
        let head = bytes
            .first_chunk()
            .and_then(|head| Header::parse(head).ok());
        if let Some(MsgType::Accept | MsgType::Confirm) = head.map(|head| head.kind) {
            self.attempt.expose();
        }
        // The send buffer of a connection that nobody has used takes a message whole.
        sock.send(bytes) == Ok(bytes.len())
    }

    /// What has happened on the link or in the stream; `None` when nothing has.
    fn hear(&mut self, sock: &Sock, clc: MsgType, llc: bool, until: Instant) -> Option<Step> {
        if llc {
            if let Some(event) = self.attempt.take_event() {
                return Some(self.input(Input::Llc(event)));
            }
            if self.attempt.is_lost() {
                return Some(self.input(Input::LinkLost));
            }
        }
        if self.expected != clc {
            self.expected = clc;
            self.reader = None;
        }
        match self.read(sock) {
            Heard::Message => Some(self.digest()),
            // A client is connected once it has answered on the link; the end of its stream may
            // come before that answer, which takes another way.
            Heard::Broken(ReadError::Closed) | Heard::TcpError
                if llc && matches!(self.machine, Machine::Server(_)) && !now().reached(until) =>
            {
                None
            }
            Heard::Broken(error) => Some(self.input(Input::Broken(error))),
            Heard::TcpError => Some(self.input(Input::TcpError)),
            Heard::Nothing if now().reached(until) => Some(self.input(Input::Timer)),
            Heard::Nothing => None,
        }
    }

    /// Takes what has arrived of the message, and not a byte beyond it.
    fn read(&mut self, sock: &Sock) -> Heard {
        if !self.begun {
            match look(sock) {
                Heard::Message => self.begun = true,
                other => return other,
            }
        }
        let begun = self.reader.as_ref().is_some_and(|r| !r.taken().is_empty());
        if !begun && self.expected == MsgType::Decline && crossing::is_to_stay(sock) {
            return Heard::Nothing;
        }
        if self.reader.is_none() {
            let Ok(buf) = KVec::from_elem(0u8, clc::MAX_LEN, GFP_KERNEL) else {
                return Heard::TcpError;
            };
            self.reader = Some(ClcReader::new(Buffer(buf), self.expected));
        }
        let Some(reader) = &mut self.reader else {
            return Heard::TcpError;
        };
        loop {
            let received = match sock.receive(reader.space()) {
                Ok(0) => return Heard::Broken(reader.end_of_stream()),
                Ok(received) => received,
                Err(err) if err == EAGAIN => return Heard::Nothing,
                Err(_) => return Heard::TcpError,
            };
            match reader.advance(received) {
                Ok(false) => (),
                Ok(true) => return Heard::Message,
                Err(error) => return Heard::Broken(error),
            }
        }
    }

    /// Gives the complete message to the machine.
    fn digest(&mut self) -> Step {
        let Some(reader) = self.reader.take() else {
            return self.input(Input::TcpError);
        };
        let Some(raw) = reader.message() else {
            return self.input(Input::TcpError);
        };
        match Message::decode(raw) {
            Ok(Message::Proposal(raw)) => {
                let Ok(mut proposal) = KBox::new(Proposal::default(), GFP_KERNEL) else {
                    return self.input(Input::TcpError);
                };
                match proposal.parse_into(raw.bytes()) {
                    Ok(()) => self.input(Input::Proposal(&proposal)),
                    Err(_) => self.input(Input::Broken(ReadError::Cut)),
                }
            }
            Ok(Message::Accept(accept)) => {
                self.peer = PeerFacts::of(&accept);
                self.input(Input::Accept(&accept))
            }
            Ok(Message::Confirm(confirm)) => {
                self.peer = PeerFacts::of(&confirm.agreement);
                self.input(Input::Confirm(&confirm))
            }
            Ok(Message::Decline(decline)) => {
                self.attempt.declined();
                self.input(Input::Decline(&decline))
            }
            Err(error) => self.input(Input::Broken(ReadError::Malformed(error))),
        }
    }
}

/// When to look at the stream again at the latest: TCP tells nobody of a message that is shorter
/// than the program's `SO_RCVLOWAT`, which may be a listener's.
fn look_again(sock: &Sock, until: Instant) -> Instant {
    if sock.low_water(false, usize::MAX) > 1 {
        until.min(now().after(LOOK_AGAIN))
    } else {
        until
    }
}

/// Whether a CLC header has arrived, without taking anything: what a client says first may be its
/// program's.
fn look(sock: &Sock) -> Heard {
    let mut head = [0; HEADER];
    let there = match sock.peek(&mut head) {
        Ok(0) => return Heard::Broken(ReadError::Closed),
        Ok(there) => there,
        Err(err) if err == EAGAIN => return Heard::Nothing,
        Err(_) => return Heard::TcpError,
    };
    let seen = head.get(..there).unwrap_or(&head);
    let mut probe = ClcReader::new([0; HEADER], MsgType::Proposal);
    match probe.feed(seen) {
        Err(ReadError::NotClc) => Heard::Broken(ReadError::NotClc),
        // An eyecatcher with nonsense behind it is taken, too, and fails then.
        Ok(_) | Err(_) if there == HEADER => Heard::Message,
        Ok(_) | Err(_) => Heard::Nothing,
    }
}
