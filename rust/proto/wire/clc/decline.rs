// SPDX-License-Identifier: GPL-2.0

//! DECLINE: "let us stay with TCP", with a reason.
//!
//! A decline is never answered. After its last byte the stream belongs to the
//! programs at both ends.

use super::header::{
    split_untrailed,
    Eyecatcher,
    Header,
    MsgType,
    V1,
    V2, //
};
use crate::{
    error::{
        EmitError,
        ParseError, //
    },
    reason::Reason,
    wire::{
        bytes::{
            Reader,
            Writer, //
        },
        ids::PeerId, //
    },
};

/// Length in version 1.
pub const LEN_V1: usize = 28;
/// Length in version 2.
pub const LEN_V2: usize = 44;
/// Room that any decline fits in.
pub const MAX_LEN: usize = LEN_V2;

/// Length of a decline of this version.
#[inline]
pub const fn len(version: u8) -> usize {
    if version > V1 {
        LEN_V2
    } else {
        LEN_V1
    }
}

/// Operating system of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Os(
    /// The four bits on the wire.
    pub u8,
);

impl Os {
    /// Not stated (version 1).
    pub const NONE: Os = Os(0);
    /// z/OS.
    pub const ZOS: Os = Os(1);
    /// Linux.
    pub const LINUX: Os = Os(2);
    /// AIX.
    pub const AIX: Os = Os(3);
}

/// A decline message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decline {
    /// Version of the message; decides its length.
    pub version: u8,
    /// Out of sync: the receiver must give up the link group it had in mind.
    pub out_of_sync: bool,
    /// Sender's peer id; zero if it has none or the mode is SMC-D.
    pub peer_id: PeerId,
    /// Reason of the decline ("peer diagnosis").
    pub reason: Reason,
    /// Sender's operating system; zero in version 1.
    pub os: Os,
    /// Further diagnosis words of version 2; zero from a C peer.
    pub more: [u32; 4],
}

impl Decline {
    /// A decline as C would send it: the out-of-sync bit follows from the
    /// reason, the operating system is stated from version 2 on. Versions other
    /// than 1 become 2.
    pub const fn new(version: u8, reason: Reason, peer_id: PeerId) -> Decline {
        let version = if version == V1 { V1 } else { V2 };
        Decline {
            version,
            out_of_sync: matches!(reason, Reason::SyncError),
            peer_id,
            reason,
            os: if version == V1 { Os::NONE } else { Os::LINUX },
            more: [0; 4],
        }
    }

    /// The client's decline before it has an accept. Version 2 only if this
    /// host can do SMC-D version 2, version 1 otherwise.
    pub const fn by_client(ism_v2_capable: bool, reason: Reason, peer_id: PeerId) -> Decline {
        Decline::new(if ism_v2_capable { V2 } else { V1 }, reason, peer_id)
    }

    /// The client's decline after the server's accept: the accept's version.
    pub const fn by_client_after_accept(
        accept: &Header,
        reason: Reason,
        peer_id: PeerId,
    ) -> Decline {
        Decline::new(accept.version, reason, peer_id)
    }

    /// The server's decline: the proposal's version, and version 1 where no
    /// proposal has been read.
    pub const fn by_server(proposal: Option<&Header>, reason: Reason, peer_id: PeerId) -> Decline {
        let version = match proposal {
            Some(header) => header.version,
            None => V1,
        };
        Decline::new(version, reason, peer_id)
    }

    /// Parses a complete message.
    ///
    /// As C does, the trailer is not looked at. The length must be the one of
    /// the version.
    pub fn parse(bytes: &[u8]) -> Result<Decline, ParseError> {
        let (header, body) = split_untrailed(bytes, MsgType::Decline)?;
        let mut r = Reader::new(body);
        let peer_id = PeerId(r.array()?);
        let reason = Reason::from_code(r.be32()?);
        let os = Os(r.u8()? >> 4);
        r.skip(3)?;
        let mut more = [0; 4];
        if header.is_v2() {
            for word in more.iter_mut() {
                *word = r.be32()?;
            }
        }
        Ok(Decline {
            version: header.version,
            out_of_sync: header.flag(),
            peer_id,
            reason,
            os,
            more,
        })
    }

    /// Writes the message, 28 or 44 bytes, to the start of `buf`.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        if self.version < V1 || self.version > 15 {
            return Err(EmitError::Invalid);
        }
        let length = u16::try_from(len(self.version)).map_err(|_| EmitError::Invalid)?;
        let mut w = Writer::new(buf);
        Header {
            eyecatcher: Eyecatcher::Smcr,
            kind: MsgType::Decline,
            length,
            version: self.version,
            path_v2: if self.out_of_sync { 2 } else { 0 },
            path_v1: 0,
        }
        .emit(&mut w)?;
        w.put(&self.peer_id.0)?;
        w.be32(self.reason.code())?;
        w.u8((self.os.0 & 0x0f) << 4)?;
        w.zero(3)?;
        if self.version > V1 {
            for word in self.more {
                w.be32(word)?;
            }
        }
        w.put(&Eyecatcher::Smcr.bytes())?;
        Ok(w.len())
    }
}
