// SPDX-License-Identifier: GPL-2.0

//! The first four bytes of an LLC message.
//!
//! Version 1: type, length 44, low nibble with the ADD_LINK reject reason, flags. Version 2: type
//! with 2 in its high nibble, 16-bit length, flags. C stores that length in the byte order of its
//! host, and only checks that it is at least 44; this codec writes little-endian and accepts both.

use crate::error::{
    EmitError,
    ParseError, //
};
use crate::wire::bytes::{
    Reader,
    Writer, //
};

use super::LEN;

/// Flag of every response.
pub const RESPONSE: u8 = 0x80;
/// ADD_LINK response: rejected.
pub const ADD_LINK_REJECT: u8 = 0x40;
/// ADD_LINK reject reason: there is no alternate path.
pub const REASON_NO_ALT_PATH: u8 = 1;
/// DELETE_LINK: all links of the group.
pub const DELETE_ALL: u8 = 0x40;
/// DELETE_LINK: orderly, not after a failure.
pub const DELETE_ORDERLY: u8 = 0x20;
/// CONFIRM_RKEY and DELETE_RKEY response: not done.
pub const RKEY_NEGATIVE: u8 = 0x20;
/// CONFIRM_RKEY response: not done, worth another try.
pub const RKEY_RETRY: u8 = 0x10;
/// CONFIRM_LINK: the RMBEs have no eyecatcher; C sets both bits and demands one of them.
pub const NO_EYECATCHER: u8 = 0x03;

/// Protocol version of an LLC message: the high nibble of its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Version {
    /// RFC 7609.
    V1 = 0,
    /// SMC version 2.
    V2 = 2,
}

impl Version {
    /// The version of messages in a group of this version of SMC-R.
    #[must_use]
    pub const fn of(smc: u8) -> Version {
        if smc > 1 {
            Version::V2
        } else {
            Version::V1
        }
    }
}

/// Type of an LLC message: the low nibble of its type byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// CONFIRM_LINK.
    ConfirmLink = 1,
    /// ADD_LINK.
    AddLink = 2,
    /// ADD_LINK_CONT, version 1 only.
    AddLinkCont = 3,
    /// DELETE_LINK.
    DeleteLink = 4,
    /// REQ_ADD_LINK, version 2 only.
    ReqAddLink = 5,
    /// CONFIRM_RKEY.
    ConfirmRkey = 6,
    /// TEST_LINK.
    TestLink = 7,
    /// CONFIRM_RKEY_CONT.
    ConfirmRkeyCont = 8,
    /// DELETE_RKEY.
    DeleteRkey = 9,
}

impl Kind {
    fn from_nibble(n: u8) -> Option<Kind> {
        Some(match n {
            1 => Kind::ConfirmLink,
            2 => Kind::AddLink,
            3 => Kind::AddLinkCont,
            4 => Kind::DeleteLink,
            5 => Kind::ReqAddLink,
            6 => Kind::ConfirmRkey,
            7 => Kind::TestLink,
            8 => Kind::ConfirmRkeyCont,
            9 => Kind::DeleteRkey,
            _ => return None,
        })
    }

    /// Reports whether this type exists in `version`.
    #[must_use]
    pub fn exists_in(self, version: Version) -> bool {
        match self {
            Kind::AddLinkCont => version == Version::V1,
            Kind::ReqAddLink => version == Version::V2,
            _ => true,
        }
    }
}

/// The first four bytes of an LLC message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The type byte as received.
    pub raw_type: u8,
    /// Reason of an ADD_LINK reject in version 1, else zero.
    pub reject_reason: u8,
    /// The flag byte.
    pub flags: u8,
}

impl Header {
    /// The header of a request.
    #[must_use]
    pub const fn request(version: Version, kind: Kind) -> Header {
        Header {
            raw_type: ((version as u8) << 4) | kind as u8,
            reject_reason: 0,
            flags: 0,
        }
    }

    /// This header with `flags` added.
    #[must_use]
    pub const fn with_flags(mut self, flags: u8) -> Header {
        self.flags |= flags;
        self
    }

    /// The version; `None` for one not known.
    #[must_use]
    pub const fn version(&self) -> Option<Version> {
        match self.raw_type >> 4 {
            0 => Some(Version::V1),
            2 => Some(Version::V2),
            _ => None,
        }
    }

    /// The type; `None` if unknown or not of its version.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        let version = self.version()?;
        Kind::from_nibble(self.raw_type & 0x0f).filter(|k| k.exists_in(version))
    }

    /// Reports whether this is a response.
    #[must_use]
    pub const fn response(&self) -> bool {
        self.has(RESPONSE)
    }

    /// Reports whether all bits of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Reports whether the message is of version 2.
    #[must_use]
    pub const fn is_v2(&self) -> bool {
        matches!(self.version(), Some(Version::V2))
    }

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Header, ParseError> {
        let [raw_type, a, b, flags] = r.array()?;
        let mut header = Header {
            raw_type,
            reject_reason: 0,
            flags,
        };
        if raw_type >> 4 == 0 {
            if usize::from(a) != LEN {
                return Err(ParseError::Length(u16::from(a)));
            }
            header.reject_reason = b & 0x0f;
        } else {
            let little = u16::from_le_bytes([a, b]);
            let big = u16::from_be_bytes([a, b]);
            if usize::from(little.max(big)) < LEN {
                return Err(ParseError::Length(little));
            }
        }
        Ok(header)
    }

    /// Writes the header of a message of `len` bytes.
    pub(super) fn emit(&self, w: &mut Writer<'_>, len: usize) -> Result<(), EmitError> {
        let len = u16::try_from(len).map_err(|_| EmitError::Invalid)?;
        w.u8(self.raw_type)?;
        if self.is_v2() {
            w.le16(len)?;
        } else {
            let short = u8::try_from(len).map_err(|_| EmitError::Invalid)?;
            w.put(&[short, self.reject_reason & 0x0f])?;
        }
        w.u8(self.flags)
    }
}
