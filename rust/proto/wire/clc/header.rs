// SPDX-License-Identifier: GPL-2.0

//! The eight bytes every CLC message starts with, and what they already decide.

use super::{
    decline,
    proposal, //
};
use crate::{
    error::{
        EmitError,
        ParseError, //
    },
    wire::bytes::{
        Reader,
        Writer, //
    },
};

/// Length of the header.
pub const HEADER_LEN: usize = 8;
/// Length of the trailer, an eyecatcher.
pub const TRAILER_LEN: usize = 4;

/// Version 1, RFC 7609.
pub const V1: u8 = 1;
/// Version 2 (releases 0 and 1: "v2.0" and "v2.1").
pub const V2: u8 = 2;

/// Marks at the start and at the end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eyecatcher {
    /// "SMCR" in EBCDIC. Also in proposals and declines of any mode.
    Smcr,
    /// "SMCD" in EBCDIC.
    Smcd,
}

impl Eyecatcher {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// The bytes on the wire.
    pub const fn bytes(self) -> [u8; 4] {
        match self {
            Eyecatcher::Smcr => [0xe2, 0xd4, 0xc3, 0xd9],
            Eyecatcher::Smcd => [0xe2, 0xd4, 0xc3, 0xc4],
        }
    }

    /// Recognizes the bytes of the wire.
    pub const fn from_bytes(bytes: [u8; 4]) -> Option<Eyecatcher> {
        match bytes {
            [0xe2, 0xd4, 0xc3, 0xd9] => Some(Eyecatcher::Smcr),
            [0xe2, 0xd4, 0xc3, 0xc4] => Some(Eyecatcher::Smcd),
            _ => None,
        }
    }

    /// Reports whether `bytes` (of any length) can be the start of an eyecatcher.
    pub fn may_start(bytes: &[u8]) -> bool {
        let r = Eyecatcher::Smcr.bytes();
        let d = Eyecatcher::Smcd.bytes();
        let head = bytes.get(..Self::LEN).unwrap_or(bytes);
        r.starts_with(head) || d.starts_with(head)
    }
}

/// Type of a CLC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsgType {
    /// Client to server: what could be used.
    Proposal,
    /// Server to client: what is used.
    Accept,
    /// Client to server: agreed.
    Confirm,
    /// Either way: stay with TCP.
    Decline,
}

impl MsgType {
    /// The byte on the wire.
    pub const fn code(self) -> u8 {
        match self {
            MsgType::Proposal => 1,
            MsgType::Accept => 2,
            MsgType::Confirm => 3,
            MsgType::Decline => 4,
        }
    }

    /// Recognizes the byte of the wire.
    pub const fn from_code(code: u8) -> Option<MsgType> {
        match code {
            1 => Some(MsgType::Proposal),
            2 => Some(MsgType::Accept),
            3 => Some(MsgType::Confirm),
            4 => Some(MsgType::Decline),
            _ => None,
        }
    }
}

/// Path type: which modes a message speaks of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// SMC-R only.
    R,
    /// SMC-D only.
    D,
    /// Neither.
    #[default]
    None,
    /// Both.
    Both,
}

impl Path {
    /// The two bits on the wire.
    pub const fn bits(self) -> u8 {
        match self {
            Path::R => 0,
            Path::D => 1,
            Path::None => 2,
            Path::Both => 3,
        }
    }

    /// Takes the low two bits.
    pub const fn from_bits(bits: u8) -> Path {
        match bits & 3 {
            0 => Path::R,
            1 => Path::D,
            2 => Path::None,
            _ => Path::Both,
        }
    }

    /// The path type that stands for these modes.
    pub const fn of(r: bool, d: bool) -> Path {
        match (r, d) {
            (true, false) => Path::R,
            (false, true) => Path::D,
            (false, false) => Path::None,
            (true, true) => Path::Both,
        }
    }

    /// Reports whether SMC-R is among them.
    pub const fn has_r(self) -> bool {
        matches!(self, Path::R | Path::Both)
    }

    /// Reports whether SMC-D is among them.
    pub const fn has_d(self) -> bool {
        matches!(self, Path::D | Path::Both)
    }
}

/// Plan for taking the bytes after a header from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// Bytes to keep, after the header.
    pub keep: usize,
    /// Bytes to take and throw away after that.
    pub drain: usize,
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The eyecatcher.
    pub eyecatcher: Eyecatcher,
    /// The message type.
    pub kind: MsgType,
    /// Length of the whole message, header and trailer included.
    pub length: u16,
    /// Version, 1 to 15.
    pub version: u8,
    /// Bits 3 and 2 of the last byte. In proposals the version 2 [`Path`]; else
    /// the upper one is a flag, see [`Header::flag`].
    pub path_v2: u8,
    /// Bits 1 and 0 of the last byte, a [`Path`].
    pub path_v1: u8,
}

impl Header {
    /// Decodes the first eight bytes of a message. Checks eyecatcher, type and
    /// version, not the length (see [`Header::check_length`]).
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Header, ParseError> {
        let mut r = Reader::new(bytes);
        let eyecatcher = Eyecatcher::from_bytes(r.array()?).ok_or(ParseError::Eyecatcher)?;
        let code = r.u8()?;
        let length = r.be16()?;
        let bits = r.u8()?;
        let version = bits >> 4;

        if version < V1 {
            return Err(ParseError::Version(version));
        }
        Ok(Header {
            eyecatcher,
            kind: MsgType::from_code(code).ok_or(ParseError::Type(code))?,
            length,
            version,
            path_v2: (bits >> 2) & 3,
            path_v1: bits & 3,
        })
    }

    /// Writes the header.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.put(&self.eyecatcher.bytes())?;
        w.u8(self.kind.code())?;
        w.be16(self.length)?;
        w.u8(self.flags_byte())
    }

    /// The last byte of the header: version and path bits.
    pub const fn flags_byte(&self) -> u8 {
        (self.version << 4) | ((self.path_v2 & 3) << 2) | (self.path_v1 & 3)
    }

    /// Bit 3: first contact in accept and confirm, out of sync in decline.
    pub const fn flag(&self) -> bool {
        self.path_v2 & 2 != 0
    }

    /// Reports whether the message is of version 2 or later. All later versions are
    /// laid out as version 2, as far as this side looks.
    pub const fn is_v2(&self) -> bool {
        self.version > V1
    }

    /// Checks the length as far as the header alone decides it. A message that
    /// fails here fails in any case, so a reader need not wait for the rest.
    pub fn check_length(&self) -> Result<(), ParseError> {
        let len = usize::from(self.length);
        let fits = match self.kind {
            MsgType::Proposal => (proposal::MIN_LEN..=proposal::MAX_LEN).contains(&len),
            MsgType::Decline => len == decline::len(self.version),
            MsgType::Accept | MsgType::Confirm => {
                let base = match Path::from_bits(self.path_v1) {
                    Path::R if self.is_v2() => super::BASE_LEN_R_V2,
                    Path::D if self.is_v2() => super::BASE_LEN_D_V2,
                    Path::R => super::LEN_R_V1,
                    Path::D => super::LEN_D_V1,
                    Path::None | Path::Both => return Err(ParseError::Path(self.path_v1)),
                };
                len == base || (self.is_v2() && len > base)
            }
        };
        if fits {
            Ok(())
        } else {
            Err(ParseError::Length(self.length))
        }
    }

    /// Plans how to read the rest of the message into a buffer of `cap` bytes that
    /// already holds the header.
    pub fn plan(&self, cap: usize) -> ReadPlan {
        let body = usize::from(self.length).saturating_sub(HEADER_LEN);
        let keep = body.min(cap.saturating_sub(HEADER_LEN));
        ReadPlan {
            keep,
            drain: body.saturating_sub(keep),
        }
    }
}

/// Splits a complete message into header and the bytes between header and
/// trailer, after checking that `bytes` is as long as the header says and that
/// the trailer is an eyecatcher.
pub(super) fn split(bytes: &[u8], kind: MsgType) -> Result<(Header, &[u8]), ParseError> {
    let (header, body) = split_untrailed(bytes, kind)?;
    let cut = body.len().checked_sub(TRAILER_LEN);
    let (body, trailer) = cut
        .and_then(|cut| body.split_at_checked(cut))
        .ok_or(ParseError::Truncated)?;
    let mut r = Reader::new(trailer);
    if Eyecatcher::from_bytes(r.array()?).is_none() {
        return Err(ParseError::Trailer);
    }
    Ok((header, body))
}

/// The same without looking at the trailer, which stays in the second part.
pub(super) fn split_untrailed(bytes: &[u8], kind: MsgType) -> Result<(Header, &[u8]), ParseError> {
    let mut r = Reader::new(bytes);
    let header = Header::parse(&r.array()?)?;
    if header.kind != kind {
        return Err(ParseError::Type(header.kind.code()));
    }
    header.check_length()?;
    if bytes.len() != usize::from(header.length) {
        return Err(ParseError::Length(header.length));
    }
    Ok((header, r.rest()))
}
