// SPDX-License-Identifier: GPL-2.0

//! Bodies of the LLC messages about memory keys: CONFIRM_RKEY and DELETE_RKEY.

use super::header::{
    Header,
    Kind,
    Version, //
};
use super::{
    Frame,
    LEN, //
};
use crate::error::{
    EmitError,
    ParseError, //
};
use crate::wire::bytes::{
    Reader,
    Writer, //
};
use crate::wire::ids::Rkey;

/// A key and address of an RMB on one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyOnLink {
    /// Number of the link; in the first token of CONFIRM_RKEY the count of further tokens.
    pub link_num: u8,
    /// Remote key.
    pub rkey: Rkey,
    /// Address of the start of the RMB.
    pub addr: u64,
}

/// CONFIRM_RKEY: announces an RMB on the link the message arrives on and on up to two more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConfirmRkey {
    /// The key on the link that carries the message (its `link_num` is the count of the others).
    pub here: KeyOnLink,
    /// Keys on further links; only the first `here.link_num` are meant.
    pub others: [KeyOnLink; 2],
}

impl ConfirmRkey {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<ConfirmRkey, ParseError> {
        let mut token = || -> Result<KeyOnLink, ParseError> {
            Ok(KeyOnLink {
                link_num: r.u8()?,
                rkey: Rkey(r.be32()?),
                addr: r.be64()?,
            })
        };
        Ok(ConfirmRkey {
            here: token()?,
            others: [token()?, token()?],
        })
    }

    /// Keys on further links, at most two whatever the count says.
    pub fn further(&self) -> impl Iterator<Item = KeyOnLink> {
        self.others
            .into_iter()
            .take(usize::from(self.here.link_num))
    }

    /// Writes a request.
    ///
    /// # Errors
    ///
    /// [`EmitError::NoSpace`] if `out` holds fewer than 44 bytes.
    pub fn emit(&self, version: Version, out: &mut [u8]) -> Result<usize, EmitError> {
        let mut w = Writer::new(out);
        Header::request(version, Kind::ConfirmRkey).emit(&mut w, LEN)?;
        let [b, c] = self.others;
        for t in [self.here, b, c] {
            w.u8(t.link_num)?;
            w.be32(t.rkey.0)?;
            w.be64(t.addr)?;
        }
        w.zero(1)?;
        Ok(w.len())
    }
}

/// DELETE_RKEY: withdraws RMBs, named by their keys on the link that carries the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeleteRkey<'a> {
    /// Response: bit mask of unknown keys, MSB first (version 1) or their number (version 2).
    pub errors: u8,
    keys: &'a [u8],
}

impl<'a> DeleteRkey<'a> {
    /// Keys a version 1 message has room for.
    pub const MAX_V1: usize = 8;
    /// Keys that the first 44 bytes of a version 2 message hold.
    pub const INLINE_V2: usize = 9;

    pub(super) fn parse(r: &mut Reader<'a>, header: &Header) -> Result<DeleteRkey<'a>, ParseError> {
        let count = usize::from(r.u8()?);
        let errors = r.u8()?;
        r.skip(2)?;
        let max = if header.is_v2() { 255 } else { Self::MAX_V1 };
        let count = count.min(max).min(r.left() / 4);
        Ok(DeleteRkey {
            errors,
            keys: r.slice(count.saturating_mul(4))?,
        })
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = Rkey> + 'a {
        self.keys
            .chunks_exact(4)
            .filter_map(|c| c.try_into().ok().map(u32::from_be_bytes).map(Rkey))
    }

    /// Number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.len() / 4
    }

    /// Writes a request for `keys`.
    ///
    /// # Errors
    ///
    /// [`EmitError::Invalid`] if there are more keys than `version` allows, [`EmitError::NoSpace`]
    /// if `out` is too short.
    pub fn emit(version: Version, keys: &[Rkey], out: &mut [u8]) -> Result<usize, EmitError> {
        let (max, inline) = match version {
            Version::V1 => (Self::MAX_V1, Self::MAX_V1),
            Version::V2 => (255, Self::INLINE_V2),
        };
        if keys.len() > max {
            return Err(EmitError::Invalid);
        }
        let count = u8::try_from(keys.len()).map_err(|_| EmitError::Invalid)?;
        let more = keys.len().saturating_sub(inline).saturating_mul(4);
        let mut w = Writer::new(out);
        Header::request(version, Kind::DeleteRkey).emit(&mut w, LEN.saturating_add(more))?;
        w.put(&[count, 0, 0, 0])?;
        for k in keys {
            w.be32(k.0)?;
        }
        let done = w.len();
        w.zero(LEN.saturating_sub(done))?;
        Ok(w.len())
    }

    /// The response to `request`, whose parsed header is `header`: `unknown` counts the keys that
    /// were not known and `mask` has a bit per key, most significant first.
    #[must_use]
    pub fn reply(request: &Frame, header: &Header, unknown: u8, mask: u8) -> Frame {
        let negative = if unknown != 0 {
            super::header::RKEY_NEGATIVE
        } else {
            0
        };
        let mut out = super::reply(request, negative);
        let [_, _, _, _, _, errors, ..] = &mut out;
        *errors = if header.is_v2() { unknown } else { mask };
        out
    }
}
