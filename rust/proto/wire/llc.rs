// SPDX-License-Identifier: GPL-2.0

//! LLC messages: how the two ends of a link group talk about links and memory keys.
//!
//! An LLC message is an RDMA SEND on a link's queue pair: 44 bytes, in version 2 followed by an
//! extension (RFC 7609 section A.3 and IBM's SMC version 2 document).
//!
//! * [`header`]: type byte, version, flags, and the length that C writes in host order.
//! * [`link`]: CONFIRM_LINK, ADD_LINK and its continuation, DELETE_LINK, REQ_ADD_LINK, TEST_LINK.
//! * [`rkey`]: CONFIRM_RKEY and DELETE_RKEY.
//!
//! [`Message::parse`] tolerates unknown types, unknown flags and trailing bytes; responses are
//! made by echoing the request ([`reply`]), as C does. Who may send what when is the module `llc`'s
//! business.

use super::bytes::Reader;
use crate::error::ParseError;

pub mod header;
pub mod link;
pub mod rkey;

pub use header::{
    Header,
    Kind,
    Version, //
};

use link::{
    AddLink,
    AddLinkCont,
    ConfirmLink,
    DeleteLink,
    ReqAddLink,
    TestLink, //
};
use rkey::{
    ConfirmRkey,
    DeleteRkey, //
};

/// Length of an LLC message without a version 2 extension.
pub const LEN: usize = 44;
/// Length of the longest LLC message: ADD_LINK version 2 with 255 keys.
pub const MAX_LEN: usize = 44 + 28 + 255 * 16;

/// The 44 bytes that every LLC message has.
pub type Frame = [u8; LEN];

/// A parsed LLC message: request or response, see [`Header::response`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// Completes or tests the set-up of a link (type 1).
    ConfirmLink(ConfirmLink),
    /// Offers a further link (type 2).
    AddLink(AddLink<'a>),
    /// More keys for a link being added (type 3, version 1 only).
    AddLinkCont(AddLinkCont),
    /// Ends a link or all of them (type 4).
    DeleteLink(DeleteLink),
    /// The client asks for a further link (type 5, version 2 only).
    ReqAddLink(ReqAddLink<'a>),
    /// Announces a memory key (type 6).
    ConfirmRkey(ConfirmRkey),
    /// Further keys of an announcement (type 8); no implementation is known to send it.
    ConfirmRkeyCont,
    /// Asks whether the link works (type 7).
    TestLink(TestLink),
    /// Withdraws memory keys (type 9).
    DeleteRkey(DeleteRkey<'a>),
    /// A type this implementation does not know; to be dropped.
    Unknown,
}

/// An LLC message with its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Type, version and flags.
    pub header: Header,
    /// Content.
    pub body: Body<'a>,
}

impl<'a> Message<'a> {
    /// Takes a received message apart.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] if there are fewer than 44 bytes; [`ParseError::Length`] if the
    /// length field is below that (version 1: differs from it). C drops such messages silently.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
        if bytes.len() < LEN {
            return Err(ParseError::Truncated);
        }
        let mut r = Reader::new(bytes);
        let header = Header::parse(&mut r)?;
        let body = match header.kind() {
            Some(Kind::ConfirmLink) => Body::ConfirmLink(ConfirmLink::parse(&mut r)?),
            Some(Kind::AddLink) => Body::AddLink(AddLink::parse(&mut r, &header)?),
            Some(Kind::AddLinkCont) => Body::AddLinkCont(AddLinkCont::parse(&mut r)?),
            Some(Kind::DeleteLink) => Body::DeleteLink(DeleteLink::parse(&mut r, &header)?),
            Some(Kind::ReqAddLink) => Body::ReqAddLink(ReqAddLink::parse(&mut r)?),
            Some(Kind::ConfirmRkey) => Body::ConfirmRkey(ConfirmRkey::parse(&mut r)?),
            Some(Kind::TestLink) => Body::TestLink(TestLink::parse(&mut r)?),
            Some(Kind::ConfirmRkeyCont) => Body::ConfirmRkeyCont,
            Some(Kind::DeleteRkey) => Body::DeleteRkey(DeleteRkey::parse(&mut r, &header)?),
            None => Body::Unknown,
        };
        Ok(Message { header, body })
    }
}

/// The response to `request`: the same 44 bytes with the response bit and `flags` added.
///
/// Version 2 extensions are not repeated, so the length becomes 44.
#[must_use]
pub fn reply(request: &Frame, flags: u8) -> Frame {
    let mut out = *request;
    let [kind, len_a, len_b, flag_byte, ..] = &mut out;
    if *kind >> 4 == Version::V2 as u8 {
        [*len_a, *len_b] = (LEN as u16).to_le_bytes();
    }
    *flag_byte |= header::RESPONSE | flags;
    out
}

/// The first 44 bytes of a received message.
///
/// # Errors
///
/// [`ParseError::Truncated`] if there are fewer.
pub fn frame(bytes: &[u8]) -> Result<Frame, ParseError> {
    Reader::new(bytes).array()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_odd_lengths() {
        assert_eq!(Message::parse(&[7; 43]), Err(ParseError::Truncated));
        let mut m = [0u8; 44];
        m[0] = 7;
        m[1] = 43;
        assert_eq!(Message::parse(&m), Err(ParseError::Length(43)));
        m[0] = 0x27;
        m[1] = 44;
        assert!(Message::parse(&m).is_ok());
        // Version 2 length in big-endian order, as a peer of other endianness writes it.
        m[1] = 0;
        m[2] = 44;
        assert!(Message::parse(&m).is_ok());
        m[1] = 43;
        m[2] = 0;
        // 43 either way round is below or far above: only the low reading is refused by C on x86,
        // and ours accepts what any host may have written.
        assert!(Message::parse(&m).is_ok());
        m[1] = 0;
        assert_eq!(Message::parse(&m), Err(ParseError::Length(0)));
    }

    #[test]
    fn unknown_types_are_tolerated() {
        for kind in [0x00u8, 0x0a, 0x10, 0x20, 0x2f, 0x31, 0x7f, 0xff] {
            let mut m = [0u8; 44];
            m[0] = kind;
            m[1] = 44;
            assert_eq!(Message::parse(&m).unwrap().body, Body::Unknown, "{kind:#x}");
        }
    }

    #[test]
    fn reply_echoes() {
        let mut req = [0x5au8; 44];
        req[0] = 0x29;
        req[3] = 0;
        let rsp = reply(&req, 0x20);
        assert_eq!(rsp[..4], [0x29, 44, 0, 0xa0]);
        assert_eq!(rsp[4..], req[4..]);
        req[0] = 0x07;
        req[1] = 44;
        assert_eq!(reply(&req, 0)[..4], [0x07, 44, 0x5a, 0x80]);
    }
}
