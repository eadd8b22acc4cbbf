// SPDX-License-Identifier: GPL-2.0

//! ACCEPT, and the part it shares with CONFIRM.
//!
//! Server and client tell each other the same things in the same layout: the end
//! of the connection that each of them offers. Accept is exactly that,
//! [`confirm`](super::confirm) may add a list of GIDs.

use super::{
    eid::Eid,
    fce::FirstContact,
    header::{
        Eyecatcher,
        Header,
        MsgType,
        Path,
        HEADER_LEN,
        V1, //
    },
    reader::RawMessage,
    BASE_LEN_D_V2,
    BASE_LEN_R_V2,
    LEN_D_V1,
    LEN_R_V1, //
};
use crate::{
    error::{
        EmitError,
        ParseError, //
    },
    wire::{
        bufsize::BufSize,
        bytes::{
            Reader,
            Writer, //
        },
        ids::{
            AlertToken,
            Chid,
            DmbToken,
            Gid,
            GroupId,
            IsmGid,
            Mac,
            Mtu,
            PeerId,
            Psn,
            Qpn,
            Rkey, //
        },
    },
};

/// Longest accept that this side writes.
pub const MAX_LEN: usize = BASE_LEN_R_V2 + super::fce::LONG_LEN;

/// The sender's end of an SMC-R connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaEnd {
    /// Sender's peer id.
    pub peer_id: PeerId,
    /// GID of the link.
    pub gid: Gid,
    /// MAC of the link's port.
    pub mac: Mac,
    /// Queue pair of the link.
    pub qpn: Qpn,
    /// Key of the memory region that holds the receive buffer.
    pub rkey: Rkey,
    /// Number of the buffer in the region, from 1: it starts at
    /// `addr + size * (rmbe_idx - 1)`.
    pub rmbe_idx: u8,
    /// Names the connection in CDC messages to the sender; never zero.
    pub token: AlertToken,
    /// Size of the receive buffer.
    pub size: BufSize,
    /// Path MTU: in accept the sender's, in confirm the smaller of both.
    pub mtu: Mtu,
    /// Address of the memory region; opaque to the peer.
    pub addr: u64,
    /// First packet sequence number of the sender's queue pair.
    pub psn: Psn,
}

/// The sender's end of an SMC-D connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IsmEnd {
    /// GID of the sender's device.
    pub gid: IsmGid,
    /// Token of the receive buffer.
    pub token: DmbToken,
    /// Element of it; 0.
    pub dmbe_idx: u8,
    /// Size of the receive buffer, its header included.
    pub size: BufSize,
    /// Sender's link group.
    pub group: GroupId,
    /// Channel of the device. Version 2.
    pub chid: Chid,
    /// Second half of an emulated device's GID. Version 2.
    pub gid_ext: IsmGid,
}

/// The end of the connection that a message offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SMC-R.
    R(RdmaEnd),
    /// SMC-D.
    D(IsmEnd),
}

/// Content of an accept, and most of a confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Version of the message.
    pub version: u8,
    /// A new link group begins with this connection.
    pub first_contact: bool,
    /// Sender's end.
    pub end: End,
    /// The EID both have. Version 2; none if the mode needs none.
    pub eid: Eid,
    /// First contact extension, in version 2 with every first contact.
    pub fce: Option<FirstContact>,
}

impl Agreement {
    /// Parses a complete accept.
    pub fn parse_accept(bytes: &[u8]) -> Result<Agreement, ParseError> {
        let (header, body) = super::header::split(bytes, MsgType::Accept)?;
        parse_body(&header, body).map(|(agreement, _)| agreement)
    }

    /// Writes an accept to the start of `buf` and returns its length.
    pub fn emit_accept(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        emit(self, MsgType::Accept, 0, buf, |_| Ok(()))
    }

    /// Length of the message without a GID list.
    pub(super) fn len(&self) -> usize {
        let base = match self.end {
            End::R(_) if self.version > V1 => BASE_LEN_R_V2,
            End::D(_) if self.version > V1 => BASE_LEN_D_V2,
            End::R(_) => LEN_R_V1,
            End::D(_) => LEN_D_V1,
        };
        base.saturating_add(self.fce.as_ref().map_or(0, FirstContact::wire_len))
    }
}

/// Parses an accept taken from a stream.
pub(super) fn parse_raw(raw: &RawMessage<'_>) -> Result<Agreement, ParseError> {
    let body = body_of(raw, MsgType::Accept)?;
    parse_body(raw.header(), body).map(|(agreement, _)| agreement)
}

/// The bytes between header and trailer, or to the end of what was kept of the
/// message if not all of it was (then C does not look at the trailer either).
pub(super) fn body_of<'a>(raw: &RawMessage<'a>, kind: MsgType) -> Result<&'a [u8], ParseError> {
    if raw.is_whole() {
        super::header::split(raw.bytes(), kind).map(|(_, body)| body)
    } else if raw.header().kind == kind {
        raw.bytes().get(HEADER_LEN..).ok_or(ParseError::Truncated)
    } else {
        Err(ParseError::Type(raw.header().kind.code()))
    }
}

/// Parses what lies between header and trailer. Also returns what lies after
/// the first contact extension.
pub(super) fn parse_body<'a>(
    header: &Header,
    body: &'a [u8],
) -> Result<(Agreement, &'a [u8]), ParseError> {
    let mut r = Reader::new(body);
    let mut eid = Eid::NONE;
    let is_r = Path::from_bits(header.path_v1) == Path::R;
    let end = if is_r {
        let end = parse_rdma(&mut r)?;
        if header.is_v2() {
            eid = Eid::read(&mut r)?;
            r.skip(8)?;
        }
        End::R(end)
    } else {
        let mut end = parse_ism(&mut r)?;
        if header.is_v2() {
            end.chid = Chid(r.be16()?);
            eid = Eid::read(&mut r)?;
            end.gid_ext = IsmGid(r.be64()?);
        }
        End::D(end)
    };
    let fce = if header.is_v2() && header.flag() {
        let gid_list = is_r && header.kind == MsgType::Confirm;
        let fce = FirstContact::parse(r.rest(), gid_list)?;
        r.skip(fce.wire_len())?;
        Some(fce)
    } else {
        None
    };
    let agreement = Agreement {
        version: header.version,
        first_contact: header.flag(),
        end,
        eid,
        fce,
    };
    Ok((agreement, r.rest()))
}

/// Parses the SMC-R part, bytes 8 to 63.
fn parse_rdma(r: &mut Reader<'_>) -> Result<RdmaEnd, ParseError> {
    let peer_id = PeerId(r.array()?);
    let gid = Gid(r.array()?);
    let mac = Mac(r.array()?);
    let qpn = Qpn::new(r.be24()?);
    let rkey = Rkey(r.be32()?);
    let rmbe_idx = r.u8()?;
    let token = AlertToken(r.be32()?);
    let bits = r.u8()?;
    r.skip(1)?;
    let addr = r.be64()?;
    r.skip(1)?;
    let psn = Psn::new(r.be24()?);
    Ok(RdmaEnd {
        peer_id,
        gid,
        mac,
        qpn,
        rkey,
        rmbe_idx,
        token,
        size: BufSize::from_code(bits >> 4),
        mtu: Mtu::from_code(bits),
        addr,
        psn,
    })
}

/// Parses the SMC-D part, bytes 8 to 31.
fn parse_ism(r: &mut Reader<'_>) -> Result<IsmEnd, ParseError> {
    let gid = IsmGid(r.be64()?);
    let token = DmbToken(r.be64()?);
    let dmbe_idx = r.u8()?;
    let bits = r.u8()?;
    r.skip(2)?;
    let group = GroupId(r.be32()?);
    Ok(IsmEnd {
        gid,
        token,
        dmbe_idx,
        size: BufSize::from_code(bits >> 4),
        group,
        chid: Chid::default(),
        gid_ext: IsmGid::default(),
    })
}

/// Writes an accept or confirm; `tail` writes the `tail_len` bytes between first
/// contact extension and trailer.
pub(super) fn emit(
    a: &Agreement,
    kind: MsgType,
    tail_len: usize,
    buf: &mut [u8],
    tail: impl FnOnce(&mut Writer<'_>) -> Result<(), EmitError>,
) -> Result<usize, EmitError> {
    let v2 = a.version > V1;
    let fce_due = v2 && a.first_contact;
    if a.version < V1 || a.version > 15 || a.fce.is_some() != fce_due || (!v2 && a.eid != Eid::NONE)
    {
        return Err(EmitError::Invalid);
    }
    let (eyecatcher, path) = match a.end {
        End::R(_) => (Eyecatcher::Smcr, Path::R),
        End::D(_) => (Eyecatcher::Smcd, Path::D),
    };
    let length = a.len().saturating_add(tail_len);
    let mut w = Writer::new(buf);
    Header {
        eyecatcher,
        kind,
        length: u16::try_from(length).map_err(|_| EmitError::Invalid)?,
        version: a.version,
        path_v2: if a.first_contact { 2 } else { 0 },
        path_v1: path.bits(),
    }
    .emit(&mut w)?;
    match &a.end {
        End::R(end) => {
            emit_rdma(end, &mut w)?;
            if v2 {
                w.put(&a.eid.0)?;
                w.zero(8)?;
            }
        }
        End::D(end) => {
            emit_ism(end, &mut w)?;
            if v2 {
                w.be16(end.chid.0)?;
                w.put(&a.eid.0)?;
                w.be64(end.gid_ext.0)?;
            } else if end.chid != Chid::default() || end.gid_ext != IsmGid::default() {
                return Err(EmitError::Invalid);
            } else {
                w.zero(12)?;
            }
        }
    }
    if let Some(fce) = &a.fce {
        fce.emit(&mut w)?;
    }
    tail(&mut w)?;
    w.put(&eyecatcher.bytes())?;
    Ok(w.len())
}

/// Writes the SMC-R part.
fn emit_rdma(end: &RdmaEnd, w: &mut Writer<'_>) -> Result<(), EmitError> {
    w.put(&end.peer_id.0)?;
    w.put(&end.gid.0)?;
    w.put(&end.mac.0)?;
    w.be24(end.qpn.get())?;
    w.be32(end.rkey.0)?;
    w.u8(end.rmbe_idx)?;
    w.be32(end.token.0)?;
    w.u8((end.size.code() << 4) | end.mtu.code())?;
    w.zero(1)?;
    w.be64(end.addr)?;
    w.zero(1)?;
    w.be24(end.psn.get())
}

/// Writes the SMC-D part.
fn emit_ism(end: &IsmEnd, w: &mut Writer<'_>) -> Result<(), EmitError> {
    w.be64(end.gid.0)?;
    w.be64(end.token.0)?;
    w.u8(end.dmbe_idx)?;
    w.u8(end.size.code() << 4)?;
    w.zero(2)?;
    w.be32(end.group.0)
}
