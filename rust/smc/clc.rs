// SPDX-License-Identifier: GPL-2.0

//! Sending and receiving CLC messages over the TCP connection (RFC 7609, section 3.2).

use kapi::net::sock::Sock;
use kernel::prelude::*;
use smc_proto::{
    reason::Reason,
    wire::{
        clc::{decline, ClcReader, Decline, Header, MsgType},
        ids::PeerId, //
    }, //
};

/// Bytes of a message that are looked at: a decline's all.
const BUFFER: usize = decline::MAX_LEN;
/// Length of a CLC header.
const HEADER: usize = 8;

/// Tells the peer that this end does not go on with SMC.
///
/// # Errors
///
/// TCP's; the connection is then as good as dead, and its user will learn so.
pub(crate) fn send(sock: &Sock, decline: &Decline) -> Result {
    let mut buf = [0; decline::MAX_LEN];
    let len = decline.emit(&mut buf).map_err(|_| EINVAL)?;
    let bytes = buf.get(..len).ok_or(EINVAL)?;
    // The send buffer of a connection that nobody has used takes a message whole.
    if sock.send(bytes)? != len {
        return Err(EPIPE);
    }
    Ok(())
}

/// The client's decline in answer to a SYN-ACK with the SMC option.
pub(crate) fn client_decline(reason: Reason) -> Decline {
    Decline::by_client(false, reason, PeerId::default())
}

/// What a client has to say first.
pub(crate) enum Opening {
    /// Not enough has arrived.
    Incomplete,
    /// A proposal, of which this is the header.
    Proposal(Header),
    /// A decline with its diagnosis.
    Declined(u32),
    /// The bytes that have arrived are the program's, and still all there.
    NotClc,
    /// The peer has broken the protocol, and bytes are missing from the stream.
    Broken,
    /// The connection has ended; whoever reads it will see how.
    Ended,
}

/// The first message of a client, as it comes in.
pub(crate) struct OpeningReader {
    reader: ClcReader<[u8; BUFFER]>,
    /// Whether the header was found to be one; until then nothing is taken from the stream.
    begun: bool,
}

impl OpeningReader {
    /// Awaits a proposal or a decline.
    pub(crate) fn new() -> Self {
        Self {
            reader: ClcReader::new([0; BUFFER], MsgType::Proposal),
            begun: false,
        }
    }

    /// Takes what has arrived, and not a byte beyond the message.
    pub(crate) fn advance(&mut self, sock: &Sock) -> Opening {
        if !self.begun {
            match Self::look(sock) {
                Ok(true) => self.begun = true,
                Ok(false) => return Opening::Incomplete,
                Err(opening) => return opening,
            }
        }
        loop {
            let received = match sock.receive(self.reader.space(), false) {
                Ok(0) => return Opening::Ended,
                Ok(received) => received,
                Err(err) if err == EAGAIN => return Opening::Incomplete,
                Err(_) => return Opening::Ended,
            };
            match self.reader.advance(received) {
                Ok(false) => (),
                Ok(true) => return self.decode(),
                Err(_) => return Opening::Broken,
            }
        }
    }

    /// Whether a CLC header has arrived; says what else has, if not.
    fn look(sock: &Sock) -> Result<bool, Opening> {
        let mut head = [0; HEADER];
        let there = match sock.receive(&mut head, true) {
            Ok(0) => return Err(Opening::Ended),
            Ok(there) => there,
            Err(err) if err == EAGAIN => return Ok(false),
            Err(_) => return Err(Opening::Ended),
        };
        let seen = head.get(..there).unwrap_or(&head);
        let mut probe = ClcReader::new([0; BUFFER], MsgType::Proposal);
        match probe.feed(seen) {
            Ok(_) => Ok(there == HEADER),
            Err(smc_proto::error::ReadError::NotClc) => Err(Opening::NotClc),
            // An eyecatcher with nonsense behind it: take it, and fail on it.
            Err(_) => Ok(true),
        }
    }

    fn decode(&self) -> Opening {
        let Some(raw) = self.reader.message() else {
            return Opening::Broken;
        };
        match raw.header().kind {
            MsgType::Decline => match Decline::parse(raw.bytes()) {
                Ok(decline) => Opening::Declined(decline.reason.code()),
                Err(_) => Opening::Broken,
            },
            MsgType::Proposal => Opening::Proposal(*raw.header()),
            _ => Opening::Broken,
        }
    }
}
