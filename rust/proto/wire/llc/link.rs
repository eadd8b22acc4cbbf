// SPDX-License-Identifier: GPL-2.0

//! Bodies of the LLC messages about links: CONFIRM_LINK, ADD_LINK, ADD_LINK_CONT, DELETE_LINK,
//! REQ_ADD_LINK, TEST_LINK.

use super::header::{
    self,
    Header,
    Kind,
    Version, //
};
use super::LEN;
use crate::error::{
    EmitError,
    ParseError, //
};
use crate::wire::bytes::{
    Reader,
    Writer, //
};
use crate::wire::ids::{
    Gid,
    Mac,
    Psn,
    Qpn,
    Rkey, //
};

/// CONFIRM_LINK: first message on a new link; the server assigns the link number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConfirmLink {
    /// MAC address of the sender's port.
    pub mac: Mac,
    /// GID of the sender's port.
    pub gid: Gid,
    /// Queue pair of the sender.
    pub qpn: Qpn,
    /// Number of the link within the group, from 1; the server's value holds.
    pub link_num: u8,
    /// Sender's identifier of the link, unique on its host; for display only.
    pub link_uid: [u8; 4],
    /// Links the sender supports in the group.
    pub max_links: u8,
    /// Connections the sender supports in the group (version 2; zero in C).
    pub max_conns: u8,
}

impl ConfirmLink {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<ConfirmLink, ParseError> {
        Ok(ConfirmLink {
            mac: Mac(r.array()?),
            gid: Gid(r.array()?),
            qpn: Qpn::new(r.be24()?),
            link_num: r.u8()?,
            link_uid: r.array()?,
            max_links: r.u8()?,
            max_conns: r.u8()?,
        })
    }

    /// Writes the message; both "no RMBE eyecatcher" flags are always set, as C does.
    ///
    /// # Errors
    ///
    /// [`EmitError::NoSpace`] if `out` holds fewer than 44 bytes.
    pub fn emit(
        &self,
        version: Version,
        response: bool,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let mut flags = header::NO_EYECATCHER;
        if response {
            flags |= header::RESPONSE;
        }
        let mut w = Writer::new(out);
        Header::request(version, Kind::ConfirmLink)
            .with_flags(flags)
            .emit(&mut w, LEN)?;
        w.put(&self.mac.0)?;
        w.put(&self.gid.0)?;
        w.be24(self.qpn.get())?;
        w.u8(self.link_num)?;
        w.put(&self.link_uid)?;
        w.u8(self.max_links)?;
        w.u8(self.max_conns)?;
        w.zero(8)?;
        Ok(w.len())
    }
}

/// The keys of one RMB for a link being added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyPair {
    /// Key of the RMB on the existing link, which identifies it.
    pub on_old: Rkey,
    /// Key of the RMB on the new link.
    pub on_new: Rkey,
    /// Address of the RMB on the new link.
    pub addr: u64,
}

impl KeyPair {
    const LEN: usize = 16;

    fn parse(r: &mut Reader<'_>) -> Result<KeyPair, ParseError> {
        Ok(KeyPair {
            on_old: Rkey(r.be32()?),
            on_new: Rkey(r.be32()?),
            addr: r.be64()?,
        })
    }

    fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.be32(self.on_old.0)?;
        w.be32(self.on_new.0)?;
        w.be64(self.addr)
    }
}

/// ADD_LINK: offers a second link. A request without queue pair is a client's mere suggestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddLink<'a> {
    /// MAC address of the sender's port.
    pub mac: Mac,
    /// GID of the sender's port.
    pub gid: Gid,
    /// Queue pair of the sender; zero in a suggestion.
    pub qpn: Qpn,
    /// Number of the new link, assigned by the server.
    pub link_num: u8,
    /// MTU code 1 to 5; a C client rejects a request with 0 at once.
    pub mtu: u8,
    /// Initial packet sequence number of the sender.
    pub psn: Psn,
    /// Version 2 extension, if present.
    pub ext: Option<AddLinkExt<'a>>,
}

/// Version 2 extension of ADD_LINK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddLinkExt<'a> {
    /// True if the peers are reachable without a gateway.
    pub direct: bool,
    /// GID of the receiver that the new link is meant for.
    pub target: Gid,
    keys: &'a [u8],
}

impl<'a> AddLinkExt<'a> {
    /// Length without keys.
    pub const FIXED: usize = 28;

    /// Keys of all RMBs on the new link.
    pub fn keys(&self) -> impl Iterator<Item = KeyPair> + 'a {
        self.keys
            .chunks_exact(KeyPair::LEN)
            .filter_map(|c| KeyPair::parse(&mut Reader::new(c)).ok())
    }

    fn parse(r: &mut Reader<'a>) -> Result<AddLinkExt<'a>, ParseError> {
        let direct = r.u8()? & 0x80 != 0;
        r.skip(1)?;
        let target = Gid(r.array()?);
        r.skip(8)?;
        // C writes the count in host order; a sane one fits a byte in exactly one reading.
        let [a, b] = r.array()?;
        let count = u16::from_le_bytes([a, b]).min(u16::from_be_bytes([a, b]));
        let fits = r.left() / KeyPair::LEN;
        let count = usize::from(count).min(fits).min(255);
        Ok(AddLinkExt {
            direct,
            target,
            keys: r.slice(count.saturating_mul(KeyPair::LEN))?,
        })
    }
}

impl<'a> AddLink<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, header: &Header) -> Result<AddLink<'a>, ParseError> {
        let mac = Mac(r.array()?);
        r.skip(2)?;
        let gid = Gid(r.array()?);
        let qpn = Qpn::new(r.be24()?);
        let link_num = r.u8()?;
        let mtu = r.u8()? & 0x0f;
        let psn = Psn::new(r.be24()?);
        r.skip(8)?;
        let ext = if header.is_v2() && r.left() >= AddLinkExt::FIXED {
            Some(AddLinkExt::parse(r)?)
        } else {
            None
        };
        Ok(AddLink {
            mac,
            gid,
            qpn,
            link_num,
            mtu,
            psn,
            ext,
        })
    }

    /// Reports whether this is a client's suggestion: everything after the header is zero.
    #[must_use]
    pub fn is_suggestion(&self) -> bool {
        let empty = AddLink {
            ext: self.ext,
            ..AddLink::default()
        };
        *self == empty
    }

    /// Writes a request with the given keys for the new link (version 2; ignored in version 1).
    ///
    /// # Errors
    ///
    /// [`EmitError::NoSpace`] if `out` is too short, [`EmitError::Invalid`] for more than 255 keys.
    pub fn emit(
        &self,
        version: Version,
        keys: &[KeyPair],
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let ext = self.ext.filter(|_| version == Version::V2);
        if keys.len() > 255 {
            return Err(EmitError::Invalid);
        }
        let len = match ext {
            Some(_) => keys
                .len()
                .saturating_mul(KeyPair::LEN)
                .saturating_add(AddLinkExt::FIXED.saturating_add(LEN)),
            None => LEN,
        };
        let mut w = Writer::new(out);
        Header::request(version, Kind::AddLink).emit(&mut w, len)?;
        w.put(&self.mac.0)?;
        w.zero(2)?;
        w.put(&self.gid.0)?;
        w.be24(self.qpn.get())?;
        w.u8(self.link_num)?;
        w.u8(self.mtu & 0x0f)?;
        w.be24(self.psn.get())?;
        w.zero(8)?;
        if let Some(e) = ext {
            w.put(&[if e.direct { 0x80 } else { 0 }, 0])?;
            w.put(&e.target.0)?;
            w.zero(8)?;
            w.le16(u16::try_from(keys.len()).map_err(|_| EmitError::Invalid)?)?;
            for k in keys {
                k.emit(&mut w)?;
            }
        }
        Ok(w.len())
    }
}

/// ADD_LINK_CONT: two more key pairs, sent to and fro until both sides are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddLinkCont {
    /// Number of the new link.
    pub link_num: u8,
    /// Key pairs the sender still has to send, these included.
    pub left: u8,
    /// Up to two key pairs.
    pub keys: [KeyPair; 2],
}

impl AddLinkCont {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<AddLinkCont, ParseError> {
        let link_num = r.u8()?;
        let left = r.u8()?;
        r.skip(2)?;
        Ok(AddLinkCont {
            link_num,
            left,
            keys: [KeyPair::parse(r)?, KeyPair::parse(r)?],
        })
    }

    /// Writes a request (version 1 only).
    ///
    /// # Errors
    ///
    /// [`EmitError::NoSpace`] if `out` holds fewer than 44 bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let mut w = Writer::new(out);
        Header::request(Version::V1, Kind::AddLinkCont).emit(&mut w, LEN)?;
        w.put(&[self.link_num, self.left, 0, 0])?;
        for k in &self.keys {
            k.emit(&mut w)?;
        }
        w.zero(4)?;
        Ok(w.len())
    }
}

/// Reason for the deletion of a link (32 bits on the wire).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct DeleteReason(pub u32);

impl DeleteReason {
    /// The path was lost.
    pub const LOST_PATH: DeleteReason = DeleteReason(0x0001_0000);
    /// An operator asked for it.
    pub const OPERATOR: DeleteReason = DeleteReason(0x0002_0000);
    /// A program asked for it (also: the group was idle).
    pub const PROGRAM: DeleteReason = DeleteReason(0x0003_0000);
    /// The peer violated the protocol.
    pub const VIOLATION: DeleteReason = DeleteReason(0x0004_0000);
    /// An asymmetric link is no longer needed.
    pub const ASYMMETRIC: DeleteReason = DeleteReason(0x0005_0000);
    /// In a response: there is no such link.
    pub const UNKNOWN_LINK: DeleteReason = DeleteReason(0x0010_0000);
}

/// DELETE_LINK: ends one link or all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeleteLink {
    /// Number of the link; meaningless with `all`.
    pub link_num: u8,
    /// All links of the group.
    pub all: bool,
    /// Not after a failure.
    pub orderly: bool,
    /// Reason of the deletion.
    pub reason: DeleteReason,
}

impl DeleteLink {
    pub(super) fn parse(r: &mut Reader<'_>, header: &Header) -> Result<DeleteLink, ParseError> {
        Ok(DeleteLink {
            link_num: r.u8()?,
            all: header.has(header::DELETE_ALL),
            orderly: header.has(header::DELETE_ORDERLY),
            reason: DeleteReason(r.be32()?),
        })
    }

    /// Writes the message.
    ///
    /// # Errors
    ///
    /// [`EmitError::NoSpace`] if `out` holds fewer than 44 bytes.
    pub fn emit(
        &self,
        version: Version,
        response: bool,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let mut flags = 0;
        for (on, flag) in [
            (self.all, header::DELETE_ALL),
            (self.orderly, header::DELETE_ORDERLY),
            (response, header::RESPONSE),
        ] {
            if on {
                flags |= flag;
            }
        }
        let mut w = Writer::new(out);
        Header::request(version, Kind::DeleteLink)
            .with_flags(flags)
            .emit(&mut w, LEN)?;
        w.u8(self.link_num)?;
        w.be32(self.reason.0)?;
        w.zero(35)?;
        Ok(w.len())
    }
}

/// REQ_ADD_LINK: the client names its GIDs and asks the server to add a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReqAddLink<'a> {
    gids: &'a [u8],
}

impl<'a> ReqAddLink<'a> {
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<ReqAddLink<'a>, ParseError> {
        r.skip(20)?;
        let count = usize::from(r.u8()?);
        r.skip(3)?;
        let count = count.min(r.left() / Gid::LEN);
        Ok(ReqAddLink {
            gids: r.slice(count.saturating_mul(Gid::LEN))?,
        })
    }

    /// GIDs of the client, as far as the message holds them.
    pub fn gids(&self) -> impl Iterator<Item = Gid> + 'a {
        self.gids
            .chunks_exact(Gid::LEN)
            .filter_map(|c| c.try_into().ok().map(Gid))
    }

    /// Writes a request that offers `gids`.
    ///
    /// # Errors
    ///
    /// [`EmitError::NoSpace`] if `out` is too short, [`EmitError::Invalid`] for more than 255 GIDs.
    pub fn emit(gids: &[Gid], out: &mut [u8]) -> Result<usize, EmitError> {
        let count = u8::try_from(gids.len()).map_err(|_| EmitError::Invalid)?;
        let len = gids
            .len()
            .saturating_mul(Gid::LEN)
            .saturating_add(28)
            .max(LEN);
        let mut w = Writer::new(out);
        Header::request(Version::V2, Kind::ReqAddLink).emit(&mut w, len)?;
        w.zero(20)?;
        w.put(&[count, 0, 0, 0])?;
        for g in gids {
            w.put(&g.0)?;
        }
        if gids.is_empty() {
            w.zero(16)?;
        }
        Ok(w.len())
    }
}

/// TEST_LINK: 16 bytes that come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TestLink {
    /// Anything; the response repeats it.
    pub data: [u8; 16],
}

impl TestLink {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<TestLink, ParseError> {
        Ok(TestLink { data: r.array()? })
    }

    /// Writes a request.
    ///
    /// # Errors
    ///
    /// [`EmitError::NoSpace`] if `out` holds fewer than 44 bytes.
    pub fn emit(&self, version: Version, out: &mut [u8]) -> Result<usize, EmitError> {
        let mut w = Writer::new(out);
        Header::request(version, Kind::TestLink).emit(&mut w, LEN)?;
        w.put(&self.data)?;
        w.zero(24)?;
        Ok(w.len())
    }
}
