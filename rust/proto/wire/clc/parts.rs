// SPDX-License-Identifier: GPL-2.0

//! The parts of a proposal that may be there or not: IP prefixes, version 2
//! extension, SMC-D version 2 extension.
//!
//! [`proposal`](super::proposal) knows when they are there and where.

use super::eid::Eid;
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
            IsmGid, //
        },
        list::List,
    },
};

/// Most IPv6 prefixes in a proposal.
pub const MAX_V6_PREFIXES: usize = 8;
/// Most EIDs in a proposal (C sends at most four).
pub const MAX_EIDS: usize = 8;
/// Most GID and CHID entries in a proposal.
pub const MAX_ISM_GIDS: usize = 8;

/// Length of the prefix block without IPv6 prefixes.
pub(super) const PREFIX_LEN: usize = 8;
/// Length of one IPv6 prefix.
pub(super) const V6_PREFIX_LEN: usize = 17;
/// Length of the version 2 extension without EIDs.
pub(super) const V2_LEN: usize = 40;
/// Length of the SMC-D version 2 extension without entries.
pub(super) const ISM_V2_LEN: usize = 48;
/// Length of one GID and CHID entry.
pub(super) const ISM_GID_LEN: usize = 10;
/// The SMC-D version 2 offset counts from here, in the version 2 extension.
pub(super) const ISM_V2_OFFSET_FROM: usize = 8;

/// Feature bit: emulated ISM devices with 128-bit GIDs are understood.
pub const FEATURE_EMULATED_ISM: u16 = 1;

/// An IPv4 subnet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv4Prefix {
    /// Address with the host part zero.
    pub addr: [u8; 4],
    /// Number of significant bits.
    pub len: u8,
}

impl Ipv4Prefix {
    /// The subnet of an address.
    pub fn of(addr: [u8; 4], len: u8) -> Ipv4Prefix {
        let len = len.min(32);
        let mask = u32::MAX
            .checked_shl(u32::from(32u8.saturating_sub(len)))
            .unwrap_or(0);
        Ipv4Prefix {
            addr: (u32::from_be_bytes(addr) & mask).to_be_bytes(),
            len,
        }
    }
}

/// An IPv6 prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6Prefix {
    /// Address.
    pub addr: [u8; 16],
    /// Number of significant bits.
    pub len: u8,
}

impl Ipv6Prefix {
    /// The prefix of an address.
    pub fn of(addr: [u8; 16], len: u8) -> Ipv6Prefix {
        let len = len.min(128);
        let mask = u128::MAX
            .checked_shl(u32::from(128u8.saturating_sub(len)))
            .unwrap_or(0);
        Ipv6Prefix {
            addr: (u128::from_be_bytes(addr) & mask).to_be_bytes(),
            len,
        }
    }

    /// Reports whether it is of addresses that mean something on one link only.
    pub fn is_link_local(&self) -> bool {
        let [a, b, ..] = self.addr;
        a == 0xfe && b & 0xc0 == 0x80
    }
}

/// One SMC-D device on offer. An emulated device takes two, with the same
/// channel id and the two halves of its GID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GidChid {
    /// GID.
    pub gid: IsmGid,
    /// Channel id.
    pub chid: Chid,
}

/// Subnets of the client's interface, which version 1 needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// The IPv4 subnet; zero with IPv6.
    pub ipv4: Ipv4Prefix,
    /// The IPv6 prefixes.
    pub ipv6: List<Ipv6Prefix, MAX_V6_PREFIXES>,
}

/// Version 2 extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V2Ext {
    /// Highest release the client knows (1 is "v2.1").
    pub release: u8,
    /// A system EID is in the SMC-D version 2 extension.
    pub has_seid: bool,
    /// RoCE v2 GID of the client; zero without SMC-R version 2.
    pub roce_gid: Gid,
    /// Most connections per link group; zero without SMC-R version 2.
    pub max_conns: u8,
    /// Most links per link group; zero without SMC-R version 2.
    pub max_links: u8,
    /// Supplemental features.
    pub features: u16,
    /// User EIDs.
    pub eids: List<Eid, MAX_EIDS>,
}

/// SMC-D version 2 extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsmV2Ext {
    /// System EID; zero if there is none.
    pub seid: Eid,
    /// Devices on offer.
    pub gids: List<GidChid, MAX_ISM_GIDS>,
}

impl GidChid {
    /// Reads an entry.
    pub(super) fn read(r: &mut Reader<'_>) -> Result<GidChid, ParseError> {
        Ok(GidChid {
            gid: IsmGid(r.be64()?),
            chid: Chid(r.be16()?),
        })
    }

    /// Writes an entry.
    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.be64(self.gid.0)?;
        w.be16(self.chid.0)
    }
}

impl Prefixes {
    /// Prefixes of no interface.
    pub const NONE: Prefixes = Prefixes {
        ipv4: Ipv4Prefix {
            addr: [0; 4],
            len: 0,
        },
        ipv6: List::filled(Ipv6Prefix {
            addr: [0; 16],
            len: 0,
        }),
    };

    /// Reports whether the client is in this subnet of ours. With IPv6 prefixes it is in none of IPv4.
    pub fn has_v4(&self, own: Ipv4Prefix) -> bool {
        self.ipv6.is_empty()
            && self.ipv4.len == own.len
            && Ipv4Prefix::of(self.ipv4.addr, own.len) == own
    }

    /// Reports whether the client has this prefix of ours.
    pub fn has_v6(&self, own: Ipv6Prefix) -> bool {
        let same = |theirs: &Ipv6Prefix| {
            theirs.len == own.len && Ipv6Prefix::of(theirs.addr, own.len) == own
        };
        self.ipv6.iter().any(same)
    }

    /// Length on the wire.
    pub(super) fn len(&self) -> usize {
        let v6 = self.ipv6.len().saturating_mul(V6_PREFIX_LEN);
        PREFIX_LEN.saturating_add(v6)
    }

    /// Parses the block.
    pub(super) fn parse(&mut self, msg: &[u8], start: usize) -> Result<(), ParseError> {
        let mut r = Reader::at(msg, start)?;
        self.ipv4.addr = r.array()?;
        self.ipv4.len = r.u8()?;
        r.skip(2)?;
        let count = r.u8()?;
        for _ in 0..count {
            let prefix = Ipv6Prefix {
                addr: r.array()?,
                len: r.u8()?,
            };
            if !self.ipv6.push(prefix) {
                return Err(ParseError::Count(count));
            }
        }
        Ok(())
    }

    /// Writes the block.
    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.put(&self.ipv4.addr)?;
        w.u8(self.ipv4.len)?;
        w.zero(2)?;
        w.u8(self.ipv6.count())?;
        for prefix in self.ipv6.iter() {
            w.put(&prefix.addr)?;
            w.u8(prefix.len)?;
        }
        Ok(())
    }
}

impl V2Ext {
    /// Length on the wire.
    pub(super) fn len(&self) -> usize {
        let eids = self.eids.len().saturating_mul(Eid::LEN);
        V2_LEN.saturating_add(eids)
    }

    /// Parses the extension; returns the number of GID and CHID entries and the
    /// SMC-D version 2 offset.
    pub(super) fn parse(&mut self, msg: &[u8], start: usize) -> Result<(u8, u16), ParseError> {
        let mut r = Reader::at(msg, start)?;
        let eids = r.u8()?;
        let ism_gids = r.u8()?;
        r.skip(1)?;
        let bits = r.u8()?;
        r.skip(2)?;
        let ism_offset = r.be16()?;
        self.release = bits >> 4;
        self.has_seid = bits & 1 != 0;
        self.roce_gid = Gid(r.array()?);
        self.max_conns = r.u8()?;
        self.max_links = r.u8()?;
        self.features = r.be16()?;
        r.skip(12)?;
        for _ in 0..eids {
            let eid = Eid::read(&mut r)?;
            if !self.eids.push(eid) {
                return Err(ParseError::Count(eids));
            }
        }
        Ok((ism_gids, ism_offset))
    }

    /// Writes the extension; `ism_gids` is the number of entries of the SMC-D version 2 extension that follows, if
    /// one does.
    pub(super) fn emit(&self, w: &mut Writer<'_>, ism_gids: Option<u8>) -> Result<(), EmitError> {
        if self.release > 15 {
            return Err(EmitError::Invalid);
        }
        let ism_offset = match ism_gids {
            Some(_) => self.len().saturating_sub(ISM_V2_OFFSET_FROM),
            None => 0,
        };
        w.u8(self.eids.count())?;
        w.u8(ism_gids.unwrap_or(0))?;
        w.zero(1)?;
        w.u8((self.release << 4) | u8::from(self.has_seid))?;
        w.zero(2)?;
        w.be16(u16::try_from(ism_offset).map_err(|_| EmitError::Invalid)?)?;
        w.put(&self.roce_gid.0)?;
        w.u8(self.max_conns)?;
        w.u8(self.max_links)?;
        w.be16(self.features)?;
        w.zero(12)?;
        for eid in self.eids.iter() {
            w.put(&eid.0)?;
        }
        Ok(())
    }
}

impl IsmV2Ext {
    /// Length on the wire.
    pub(super) fn len(&self) -> usize {
        let gids = self.gids.len().saturating_mul(ISM_GID_LEN);
        ISM_V2_LEN.saturating_add(gids)
    }

    /// Parses the extension with `count` entries.
    pub(super) fn parse(&mut self, msg: &[u8], start: usize, count: u8) -> Result<(), ParseError> {
        let mut r = Reader::at(msg, start)?;
        self.seid = Eid::read(&mut r)?;
        r.skip(16)?;
        for _ in 0..count {
            let entry = GidChid::read(&mut r)?;
            if !self.gids.push(entry) {
                return Err(ParseError::Count(count));
            }
        }
        Ok(())
    }

    /// Writes the extension.
    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), EmitError> {
        w.put(&self.seid.0)?;
        w.zero(16)?;
        for entry in self.gids.iter() {
            entry.emit(w)?;
        }
        Ok(())
    }
}
