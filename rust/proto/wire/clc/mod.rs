// SPDX-License-Identifier: GPL-2.0

//! CLC: the handshake in the TCP stream, before any data of the programs.
//!
//! Client: PROPOSAL. Server: ACCEPT. Client: CONFIRM. Instead of any of these, or
//! after them while the RDMA link is being brought up, either side can say
//! DECLINE; then the connection stays plain TCP.
//!
//! * [`reader`] takes exactly one message from a byte stream.
//! * [`header`] decodes what all messages have in common.
//! * [`proposal`], [`accept`], [`confirm`], [`decline`] are the messages,
//!   [`fce`], [`eid`] and [`vendor`] parts of them.
//!
//! Length rules are C's (`net/smc/smc_clc.c`), plus one: whatever a message
//! points to must lie inside of it.

pub mod accept;
pub mod confirm;
pub mod decline;
pub mod eid;
pub mod fce;
pub mod header;
mod parts;
pub mod proposal;
pub mod reader;
pub mod vendor;

pub use accept::{
    Agreement,
    End,
    IsmEnd,
    RdmaEnd, //
};
pub use confirm::Confirm;
pub use decline::{
    Decline,
    Os, //
};
pub use eid::Eid;
pub use fce::FirstContact;
pub use header::{
    Eyecatcher,
    Header,
    MsgType,
    Path,
    V1,
    V2, //
};
pub use proposal::Proposal;
pub use reader::{
    ClcReader,
    RawMessage, //
};
pub use vendor::{
    Class,
    Extensions, //
};

use crate::error::ParseError;

/// Length of accept and confirm, SMC-R version 1.
pub const LEN_R_V1: usize = 68;
/// Length of accept and confirm, SMC-D version 1.
pub const LEN_D_V1: usize = 48;
/// Length of accept and confirm without extensions, SMC-R version 2.
pub const BASE_LEN_R_V2: usize = 108;
/// Length of accept and confirm without extensions, SMC-D version 2.
pub const BASE_LEN_D_V2: usize = 78;
/// Size of a buffer that holds every message this side parses completely.
pub const MAX_LEN: usize = proposal::MAX_LEN;

/// A received message, decoded.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// A proposal; large, hence still encoded. See [`Proposal::parse_into`].
    Proposal(RawMessage<'a>),
    /// The server's accept.
    Accept(Agreement),
    /// The client's confirm.
    Confirm(Confirm),
    /// A decline.
    Decline(Decline),
}

impl<'a> Message<'a> {
    /// Decodes a message that has been taken from a stream.
    pub fn decode(raw: RawMessage<'a>) -> Result<Message<'a>, ParseError> {
        Ok(match raw.header().kind {
            MsgType::Proposal => Message::Proposal(raw),
            MsgType::Accept => Message::Accept(accept::parse_raw(&raw)?),
            MsgType::Confirm => Message::Confirm(confirm::parse_raw(&raw)?),
            MsgType::Decline => Message::Decline(Decline::parse(raw.bytes())?),
        })
    }
}
