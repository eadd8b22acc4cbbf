// SPDX-License-Identifier: GPL-2.0

//! CONFIRM: the client's end of the connection, and on first contact the GIDs
//! it could use for further links.

use super::{
    accept::{
        body_of,
        emit,
        parse_body,
        Agreement,
        End, //
    },
    header::MsgType,
    reader::RawMessage, //
};
use crate::{
    error::{
        EmitError,
        ParseError, //
    },
    wire::{
        bytes::{
            Reader,
            Writer, //
        },
        ids::Gid,
        list::List, //
    },
};

/// Number of GIDs that are kept of a list. It is advice only (C ignores it and
/// asks again with LLC), so the rest of a longer list is skipped.
pub const MAX_GIDS: usize = 8;
/// Longest confirm that this side writes.
pub const MAX_LEN: usize = super::accept::MAX_LEN + 4 + 16 * MAX_GIDS;

/// A confirm message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// Content shared with accept.
    pub agreement: Agreement,
    /// GIDs of the client. Only on first contact of SMC-R version 2.
    pub gids: List<Gid, MAX_GIDS>,
}

impl Confirm {
    /// Parses a complete confirm.
    pub fn parse(bytes: &[u8]) -> Result<Confirm, ParseError> {
        let (header, body) = super::header::split(bytes, MsgType::Confirm)?;
        let (agreement, rest) = parse_body(&header, body)?;
        let gids = parse_gids(&agreement, rest, false)?;
        Ok(Confirm { agreement, gids })
    }

    /// Writes the message to the start of `buf` and returns its length.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let has_list = has_list(&self.agreement);
        let tail_len = if has_list {
            self.gids.len().saturating_mul(16).saturating_add(4)
        } else if self.gids.is_empty() {
            0
        } else {
            return Err(EmitError::Invalid);
        };
        emit(&self.agreement, MsgType::Confirm, tail_len, buf, |w| {
            if has_list {
                emit_gids(&self.gids, w)?;
            }
            Ok(())
        })
    }
}

/// Parses a confirm taken from a stream.
pub(super) fn parse_raw(raw: &RawMessage<'_>) -> Result<Confirm, ParseError> {
    let body = body_of(raw, MsgType::Confirm)?;
    let (agreement, rest) = parse_body(raw.header(), body)?;
    let gids = parse_gids(&agreement, rest, !raw.is_whole())?;
    Ok(Confirm { agreement, gids })
}

/// Reports whether this confirm carries a GID list.
fn has_list(a: &Agreement) -> bool {
    a.fce.is_some() && matches!(a.end, End::R(_))
}

/// Parses the list after the first contact extension. `cut` says that the end
/// of the message is missing, and then that of the list may be, too.
fn parse_gids(a: &Agreement, rest: &[u8], cut: bool) -> Result<List<Gid, MAX_GIDS>, ParseError> {
    let mut gids = List::new();
    if !has_list(a) || rest.is_empty() {
        return Ok(gids);
    }
    let mut r = Reader::new(rest);
    let count = r.u8()?;
    r.skip(3)?;
    for _ in 0..count {
        match r.array() {
            // Beyond the capacity only the length is checked.
            Ok(gid) => {
                let _ = gids.push(Gid(gid));
            }
            Err(_) if cut => break,
            Err(e) => return Err(e),
        }
    }
    Ok(gids)
}

/// Writes the list.
fn emit_gids(gids: &List<Gid, MAX_GIDS>, w: &mut Writer<'_>) -> Result<(), EmitError> {
    w.u8(gids.count())?;
    w.zero(3)?;
    for gid in gids.iter() {
        w.put(&gid.0)?;
    }
    Ok(())
}
