// SPDX-License-Identifier: GPL-2.0

//! PROPOSAL: everything the client could use.
//!
//! The longest message, 652 bytes, and the only one with offsets: a fixed part,
//! the SMC-D and version 2 area, the IP prefixes, the version 2 extension and
//! the SMC-D version 2 extension. [`Proposal`] is as large as the message; kernel
//! code keeps it in a box and parses into it.

pub use super::parts::{
    GidChid,
    Ipv4Prefix,
    Ipv6Prefix,
    IsmV2Ext,
    Prefixes,
    V2Ext,
    FEATURE_EMULATED_ISM,
    MAX_EIDS,
    MAX_ISM_GIDS,
    MAX_V6_PREFIXES, //
};

use super::{
    eid::Eid,
    header::{
        split,
        Eyecatcher,
        Header,
        MsgType,
        Path,
        HEADER_LEN,
        TRAILER_LEN,
        V1, //
    },
    parts::{
        ISM_GID_LEN,
        ISM_V2_LEN,
        ISM_V2_OFFSET_FROM,
        PREFIX_LEN,
        V2_LEN,
        V6_PREFIX_LEN, //
    },
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
        ids::{
            Chid,
            Gid,
            IsmGid,
            Mac,
            PeerId, //
        },
        list::List,
    },
};

/// Length of the part up to and including the IP area offset.
const BASE_LEN: usize = 40;
/// Length of the area with SMC-D version 1 and the version 2 offset.
const AREA_LEN: usize = 40;
/// The version 2 offset counts from here.
const V2_OFFSET_FROM: usize = 52;
/// The largest valid version 2 offset: after a full prefix block.
const MAX_V2_OFFSET: u16 = 172;
/// The largest valid SMC-D version 2 offset: after all EIDs.
const MAX_ISM_V2_OFFSET: u16 = 288;
/// Offset of the IP area in all proposals that have the SMC-D area.
const IP_OFFSET: u16 = 40;

/// Shortest valid proposal (version 1 without the SMC-D area).
pub const MIN_LEN: usize = BASE_LEN + PREFIX_LEN + TRAILER_LEN;
/// Longest valid proposal.
pub const MAX_LEN: usize = BASE_LEN
    + AREA_LEN
    + PREFIX_LEN
    + V6_PREFIX_LEN * MAX_V6_PREFIXES
    + V2_LEN
    + Eid::LEN * MAX_EIDS
    + ISM_V2_LEN
    + ISM_GID_LEN * MAX_ISM_GIDS
    + TRAILER_LEN;

/// A proposal message.
///
/// The parts that are there follow from the two path types, see
/// [`prefixes`](Self::prefixes), [`v2`](Self::v2) and [`ism_v2`](Self::ism_v2).
/// Parts that are not there are empty and are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Version of the message. C always sends 2.
    pub version: u8,
    /// Modes on offer with version 1 rules.
    pub path_v1: Path,
    /// Modes on offer with version 2 rules; none if the version is 1.
    pub path_v2: Path,
    /// Client's peer id.
    pub peer_id: PeerId,
    /// RoCE v1 GID.
    pub gid: Gid,
    /// MAC of the RoCE port.
    pub mac: Mac,
    /// The SMC-D area is there. Always, except in version 1 messages of peers
    /// that know SMC-R only.
    pub has_area: bool,
    /// SMC-D version 1 device; zero unless [`path_v1`](Self::path_v1) has SMC-D.
    pub ism_v1: GidChid,
    /// Vendor OUI and vendor's experimental options.
    pub vendor: [u8; 8],
    /// Part of the prefix block.
    pub prefix_block: Prefixes,
    /// Version 2 extension.
    pub v2_ext: V2Ext,
    /// SMC-D version 2 extension.
    pub ism_v2_ext: IsmV2Ext,
}

impl Proposal {
    /// A version 2 proposal that offers nothing.
    pub const EMPTY: Proposal = Proposal {
        version: super::V2,
        path_v1: Path::None,
        path_v2: Path::None,
        peer_id: PeerId::ZERO,
        gid: Gid::ZERO,
        mac: Mac::ZERO,
        has_area: true,
        ism_v1: GidChid {
            gid: IsmGid(0),
            chid: Chid(0),
        },
        vendor: [0; 8],
        prefix_block: Prefixes::NONE,
        v2_ext: V2Ext {
            release: 0,
            has_seid: false,
            roce_gid: Gid::ZERO,
            max_conns: 0,
            max_links: 0,
            features: 0,
            eids: List::filled(Eid::NONE),
        },
        ism_v2_ext: IsmV2Ext {
            seid: Eid::NONE,
            gids: List::filled(GidChid {
                gid: IsmGid(0),
                chid: Chid(0),
            }),
        },
    };

    /// The IP prefixes, if version 1 is on offer.
    pub fn prefixes(&self) -> Option<&Prefixes> {
        (self.path_v1 != Path::None).then_some(&self.prefix_block)
    }

    /// The version 2 extension, if version 2 is on offer.
    pub fn v2(&self) -> Option<&V2Ext> {
        (self.path_v2 != Path::None).then_some(&self.v2_ext)
    }

    /// The SMC-D version 2 extension, if that is on offer.
    pub fn ism_v2(&self) -> Option<&IsmV2Ext> {
        self.path_v2.has_d().then_some(&self.ism_v2_ext)
    }

    /// Parses a complete message into `self`, which is [`EMPTY`](Self::EMPTY)
    /// after an error.
    ///
    /// The rules are C's with these differences: what an offset points to must lie
    /// inside the message (C reads zeroes after it); with SMC-D version 1 an IP area
    /// at another offset than 40 is an error, and so is an impossible offset of the
    /// SMC-D version 2 extension (C goes on without SMC-D); a prefix block that no
    /// path needs is not looked at (C takes a byte of the ISM GID for its count).
    pub fn parse_into(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        let result = self.parse_parts(bytes);
        if result.is_err() {
            *self = Proposal::EMPTY;
        }
        result
    }

    /// Parses a complete message; [`parse_into`](Self::parse_into) uses less stack.
    pub fn parse(bytes: &[u8]) -> Result<Proposal, ParseError> {
        let mut proposal = Proposal::EMPTY;
        proposal.parse_into(bytes)?;
        Ok(proposal)
    }

    /// Parses all parts and checks the length.
    fn parse_parts(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        *self = Proposal::EMPTY;
        let (header, body) = split(bytes, MsgType::Proposal)?;
        // All offsets count from the start of the message.
        let end = HEADER_LEN.saturating_add(body.len());
        let msg = bytes.get(..end).ok_or(ParseError::Truncated)?;

        self.version = header.version;
        self.path_v1 = Path::from_bits(header.path_v1);
        if header.is_v2() {
            self.path_v2 = Path::from_bits(header.path_v2);
        } else if self.path_v1 == Path::None {
            return Err(ParseError::Path(header.path_v1));
        }
        let ip_offset = self.parse_base(body)?;
        if header.is_v2() || ip_offset == IP_OFFSET {
            self.parse_area(msg)?;
        }
        if self.path_v1 != Path::None {
            let start = BASE_LEN.saturating_add(usize::from(ip_offset));
            self.prefix_block.parse(msg, start)?;
        }
        if self.path_v2 != Path::None {
            self.parse_v2(msg)?;
        }
        // The one sum that C checks.
        let gap = if header.is_v2() {
            AREA_LEN
        } else {
            usize::from(ip_offset)
        };
        if self.parts_len().checked_add(gap) != Some(bytes.len()) {
            return Err(ParseError::Length(header.length));
        }
        Ok(())
    }

    /// Parses the fixed part and returns the IP area offset.
    fn parse_base(&mut self, body: &[u8]) -> Result<u16, ParseError> {
        let mut r = Reader::new(body);
        self.peer_id = PeerId(r.array()?);
        self.gid = Gid(r.array()?);
        self.mac = Mac(r.array()?);
        let ip_offset = r.be16()?;
        if ip_offset > IP_OFFSET || (self.path_v1.has_d() && ip_offset != IP_OFFSET) {
            return Err(ParseError::Offset(ip_offset));
        }
        self.has_area = self.version > V1 || ip_offset == IP_OFFSET;
        Ok(ip_offset)
    }

    /// Parses the SMC-D area except for the version 2 offset.
    fn parse_area(&mut self, msg: &[u8]) -> Result<(), ParseError> {
        let mut r = Reader::at(msg, BASE_LEN)?;
        let ism = GidChid::read(&mut r)?;
        if self.path_v1.has_d() {
            self.ism_v1 = ism;
        }
        r.skip(2)?;
        self.vendor = r.array()?;
        Ok(())
    }

    /// Parses the version 2 extensions.
    fn parse_v2(&mut self, msg: &[u8]) -> Result<(), ParseError> {
        let offset = Reader::at(msg, V2_OFFSET_FROM.saturating_sub(2))?.be16()?;
        if offset == 0 || offset > MAX_V2_OFFSET {
            return Err(ParseError::Offset(offset));
        }
        let start = V2_OFFSET_FROM.saturating_add(usize::from(offset));
        let counts = self.v2_ext.parse(msg, start)?;
        if !self.path_v2.has_d() {
            return Ok(());
        }
        let (ism_gids, offset) = counts;
        if offset == 0 || offset > MAX_ISM_V2_OFFSET {
            return Err(ParseError::Offset(offset));
        }
        let start = start
            .saturating_add(ISM_V2_OFFSET_FROM)
            .saturating_add(usize::from(offset));
        self.ism_v2_ext.parse(msg, start, ism_gids)
    }

    /// Length of the message without what lies between the fixed part and the
    /// prefix block.
    fn parts_len(&self) -> usize {
        let mut len = BASE_LEN.saturating_add(TRAILER_LEN);
        if let Some(prefixes) = self.prefixes() {
            len = len.saturating_add(prefixes.len());
        }
        if let Some(v2) = self.v2() {
            len = len.saturating_add(v2.len());
        }
        if let Some(ism) = self.ism_v2() {
            len = len.saturating_add(ism.len());
        }
        len
    }

    /// Length of the message on the wire.
    pub fn wire_len(&self) -> usize {
        let area = if self.has_area { AREA_LEN } else { 0 };
        self.parts_len().saturating_add(area)
    }

    /// Writes the message to the start of `buf` and returns its length.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let v2 = self.version > V1;
        if self.version < V1
            || self.version > 15
            || (v2 && !self.has_area)
            || (!v2 && (self.path_v2 != Path::None || self.path_v1 == Path::None))
            || (self.path_v1.has_d() && !self.has_area)
        {
            return Err(EmitError::Invalid);
        }
        let mut w = Writer::new(buf);
        let length = u16::try_from(self.wire_len()).map_err(|_| EmitError::Invalid)?;
        Header {
            eyecatcher: Eyecatcher::Smcr,
            kind: MsgType::Proposal,
            length,
            version: self.version,
            path_v2: if v2 { self.path_v2.bits() } else { 0 },
            path_v1: self.path_v1.bits(),
        }
        .emit(&mut w)?;
        w.put(&self.peer_id.0)?;
        w.put(&self.gid.0)?;
        w.put(&self.mac.0)?;
        let has_ip_area = self.path_v1 != Path::None && self.has_area;
        w.be16(if has_ip_area { IP_OFFSET } else { 0 })?;
        if self.has_area {
            self.emit_area(&mut w)?;
        }
        if let Some(prefixes) = self.prefixes() {
            prefixes.emit(&mut w)?;
        }
        if let Some(v2) = self.v2() {
            let ism_gids = self.ism_v2().map(|ism| ism.gids.count());
            v2.emit(&mut w, ism_gids)?;
        }
        if let Some(ism) = self.ism_v2() {
            ism.emit(&mut w)?;
        }
        w.put(&Eyecatcher::Smcr.bytes())?;
        Ok(w.len())
    }

    /// Writes the SMC-D area. Without SMC-D version 1 its GID stays zero: C takes
    /// a byte of it for a count then.
    fn emit_area(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        let ism = if self.path_v1.has_d() {
            self.ism_v1
        } else {
            GidChid::default()
        };
        ism.emit(w)?;
        let v2_offset = match self.v2() {
            Some(_) => AREA_LEN
                .saturating_sub(V2_OFFSET_FROM.saturating_sub(BASE_LEN))
                .saturating_add(self.prefixes().map_or(0, Prefixes::len)),
            None => 0,
        };
        w.be16(u16::try_from(v2_offset).map_err(|_| EmitError::Invalid)?)?;
        w.put(&self.vendor)?;
        w.zero(20)
    }
}

impl Default for Proposal {
    fn default() -> Self {
        Proposal::EMPTY
    }
}
