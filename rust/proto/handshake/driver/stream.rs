// SPDX-License-Identifier: GPL-2.0

//! Takes the messages of CLC from the TCP stream, and events from the new link.
//!
//! Two rules decide which bytes are taken from the stream, as those of the program stand after
//! the messages of CLC:
//!
//! * A server takes nothing before a whole CLC header is there: the first bytes may be a program's,
//!   if something on the way has merely echoed the TCP option.
//! * Where only a decline can come, one that is not complete stays there: the wait may end before
//!   its rest arrives, which [`strip`](crate::handshake::strip) then finds in one piece.

use super::{
    Driver,
    Machine, //
};
use crate::error::ReadError;
use crate::handshake::endpoint::{
    Endpoint,
    StreamError, //
};
use crate::handshake::strip::{
    judge,
    Verdict, //
};
use crate::handshake::{
    Input,
    Step, //
};
use crate::time::Instant;
use crate::wire::clc::header::HEADER_LEN;
use crate::wire::clc::{
    decline,
    ClcReader,
    Message,
    MsgType,
    Proposal, //
};

/// Result of a look at the TCP stream.
enum Heard {
    Nothing,
    Message,
    Broken(ReadError),
    TcpError,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Driver<B> {
    /// Takes [`Step::Await`]; `None` while nothing has happened on the link or in the stream. Not
    /// inlined, for its room on the stack: an operation of another step goes deeper.
    #[inline(never)]
    pub(super) fn hear<E: Endpoint<Buffer = B>>(
        &mut self,
        endpoint: &mut E,
        clc: MsgType,
        llc: bool,
        until: Instant,
    ) -> Option<Step> {
        if llc {
            if let Some(event) = endpoint.take_llc() {
                return Some(self.input(endpoint, Input::Llc(event)));
            }
            if endpoint.is_link_lost() {
                return Some(self.input(endpoint, Input::LinkLost));
            }
        }
        if self.expected != clc {
            self.expected = clc;
            self.reader = None;
        }
        match self.read(endpoint) {
            Heard::Message => Some(self.digest(endpoint)),
            // A client is connected once it has answered on the link, a server once it has the
            // answer; the end of the stream may come before the answer, or before we know that it
            // was delivered, which take another way.
            Heard::Broken(ReadError::Closed) | Heard::TcpError
                if llc && self.machine.may_be_connected() && !endpoint.now().reached(until) =>
            {
                None
            }
            Heard::Broken(error) => Some(self.input(endpoint, Input::Broken(error))),
            Heard::TcpError => Some(self.input(endpoint, Input::TcpError)),
            Heard::Nothing if endpoint.now().reached(until) => {
                Some(self.input(endpoint, Input::Timer))
            }
            Heard::Nothing => None,
        }
    }

    /// Takes the bytes of the message that have arrived, and not one beyond it.
    fn read<E: Endpoint<Buffer = B>>(&mut self, endpoint: &mut E) -> Heard {
        if !self.begun {
            match probe(endpoint) {
                Heard::Message => self.begun = true,
                other => return other,
            }
        }
        let partial = self.reader.as_ref().is_some_and(|r| !r.taken().is_empty());
        if !partial && self.expected == MsgType::Decline && awaits_decline(endpoint) {
            return Heard::Nothing;
        }
        if self.reader.is_none() {
            let Some(buf) = endpoint.buffer() else {
                return Heard::TcpError;
            };
            self.reader = Some(ClcReader::new(buf, self.expected));
        }
        let Some(reader) = &mut self.reader else {
            return Heard::TcpError;
        };
        loop {
            let received = match endpoint.receive(reader.space()) {
                Ok(0) => return Heard::Broken(reader.end_of_stream()),
                Ok(received) => received,
                Err(StreamError::Empty) => return Heard::Nothing,
                Err(StreamError::Failed) => return Heard::TcpError,
            };
            match reader.advance(received) {
                Ok(false) => (),
                Ok(true) => return Heard::Message,
                Err(error) => return Heard::Broken(error),
            }
        }
    }

    /// Asks the endpoint for what version 1 needs, where that is the only one left.
    fn look_for_v1<E: Endpoint<Buffer = B>>(&mut self, endpoint: &mut E, proposal: &Proposal) {
        let Machine::Server(server) = &mut self.machine else {
            return;
        };
        if server.falls_to_v1(proposal) {
            if let Err(reason) = endpoint.take_v1(&proposal.prefix_block) {
                server.refuse(reason);
            }
        }
    }

    /// Decodes the complete message and gives it to the machine.
    fn digest<E: Endpoint<Buffer = B>>(&mut self, endpoint: &mut E) -> Step {
        let reader = self.reader.take();
        let Some(raw) = reader.as_ref().and_then(ClcReader::message) else {
            return self.input(endpoint, Input::TcpError);
        };
        match Message::decode(raw) {
            Ok(Message::Proposal(raw)) => {
                let Some(mut proposal) = endpoint.proposal() else {
                    return self.input(endpoint, Input::TcpError);
                };
                match proposal.parse_into(raw.bytes()) {
                    Ok(()) => {
                        self.look_for_v1(endpoint, &proposal);
                        self.input(endpoint, Input::Proposal(&proposal))
                    }
                    Err(_) => self.input(endpoint, Input::Broken(ReadError::Cut)),
                }
            }
            Ok(Message::Accept(accept)) => {
                endpoint.agreed(&accept);
                self.input(endpoint, Input::Accept(&accept))
            }
            Ok(Message::Confirm(confirm)) => {
                endpoint.agreed(&confirm.agreement);
                self.input(endpoint, Input::Confirm(&confirm))
            }
            Ok(Message::Decline(decline)) => {
                endpoint.declined();
                self.input(endpoint, Input::Decline(&decline))
            }
            Err(error) => self.input(endpoint, Input::Broken(ReadError::Malformed(error))),
        }
    }
}

/// Looks for a whole CLC header at the head of the stream, without taking anything.
fn probe<E: Endpoint>(endpoint: &mut E) -> Heard {
    let mut head = [0; HEADER_LEN];
    let seen = match endpoint.peek(&mut head) {
        Ok(0) => return Heard::Broken(ReadError::Closed),
        Ok(len) => head.get(..len).unwrap_or(&head),
        Err(StreamError::Empty) => return Heard::Nothing,
        Err(StreamError::Failed) => return Heard::TcpError,
    };
    let mut reader = ClcReader::new([0; HEADER_LEN], MsgType::Proposal);
    match reader.feed(seen) {
        Err(ReadError::NotClc) => Heard::Broken(ReadError::NotClc),
        // An eyecatcher with nonsense after it is taken, too, and fails then.
        Ok(_) | Err(_) if seen.len() == HEADER_LEN => Heard::Message,
        Ok(_) | Err(_) => Heard::Nothing,
    }
}

/// Reports whether the head of the stream has to be left there: a decline that has begun to arrive
/// and is not complete, as its rest would be taken for the program's; or nothing, which may be the
/// beginning of one by the time it is taken.
fn awaits_decline<E: Endpoint>(endpoint: &mut E) -> bool {
    // Asked before: what comes between the two is then seen.
    let ended = endpoint.is_shut();
    let mut first = [0; decline::MAX_LEN];
    match endpoint.peek(&mut first) {
        Ok(0) => false,
        Ok(len) => !ended && judge(first.get(..len).unwrap_or(&first)) == Verdict::NeedMore,
        Err(error) => error == StreamError::Empty,
    }
}
