// SPDX-License-Identifier: GPL-2.0
//! CLC messages as a fake peer sends them (layouts from SMC-R/SMC-D's public specification,
//! RFC 7609 and its v2 successors). Written without the module's codec on purpose.

/// "SMCR" in EBCDIC.
pub const EYE_R: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xd9];
/// "SMCD" in EBCDIC.
pub const EYE_D: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xc4];
/// Message types.
pub const PROPOSAL: u8 = 1;
/// See [`PROPOSAL`].
pub const ACCEPT: u8 = 2;
/// See [`PROPOSAL`].
pub const CONFIRM: u8 = 3;
/// See [`PROPOSAL`].
pub const DECLINE: u8 = 4;

/// A message: eyecatcher, type, length, version and flags byte, body, trailer.
pub fn message(eye: [u8; 4], ty: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let len = (8 + body.len() + 4) as u16;
    let mut v = eye.to_vec();
    v.push(ty);
    v.extend(len.to_be_bytes());
    v.push(flags);
    v.extend(body);
    v.extend(eye);
    v
}

/// An SMC-R v1 proposal with an IPv4 prefix 10.77.0.0/24.
pub fn proposal_v1() -> Vec<u8> {
    let mut b = Vec::new();
    b.extend([0, 1, 2, 0x77, 0, 0, 0, 2]); // peer id
    b.extend([0u8; 16]); // GID
    b.extend([2, 0x77, 0, 0, 0, 2]); // MAC
    b.extend([0, 0]); // offset of the prefix part
    b.extend([10, 77, 0, 0, 24, 0, 0, 0]); // network, prefix length, reserved, v6 prefixes
    message(EYE_R, PROPOSAL, 0x10, &b)
}

/// A proposal of SMC-D v1 alone, which has another part before the prefix.
pub fn proposal_ism_v1() -> Vec<u8> {
    let mut b = proposal_v1()[8..48].to_vec();
    b[31] = 40;
    let prefix = b.split_off(32);
    b.extend([0; 40]);
    b.extend(prefix);
    message(EYE_R, PROPOSAL, 0x11, &b)
}

/// A decline with a diagnosis code.
pub fn decline(diag: u32, v: u8) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend([0, 1, 2, 0x77, 0, 0, 0, 2]);
    b.extend(diag.to_be_bytes());
    b.extend([0; 4]);
    if v == 2 {
        b.extend([0; 16]);
    }
    message(EYE_R, DECLINE, v << 4, &b)
}

/// An SMC-R v1 accept or confirm with plausible contents.
pub fn accept_v1(ty: u8) -> Vec<u8> {
    let mut b = vec![0, 1, 2, 0x77, 0, 0, 0, 2];
    b.extend([0u8; 16]);
    b.extend([2, 0x77, 0, 0, 0, 2]);
    b.extend([0, 0, 5]); // QP number
    b.extend([0, 0, 0, 1]); // rkey
    b.push(1); // element index
    b.extend([0, 0, 0, 9]); // token
    b.extend([0x21, 0]); // buffer size and MTU, reserved
    b.extend([0u8; 8]); // address
    b.push(0);
    b.extend([0, 0, 1]); // initial PSN
    message(EYE_R, ty, 0x10, &b)
}

/// One end of an SMC-R connection as accept and confirm name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// The host.
    pub peer_id: [u8; 8],
    /// GID of its port.
    pub gid: [u8; 16],
    /// MAC of its port.
    pub mac: [u8; 6],
    /// Queue pair.
    pub qpn: u32,
    /// Key of the buffer's region.
    pub rkey: u32,
    /// Number of the buffer in the region, from 1.
    pub idx: u8,
    /// Name of the connection.
    pub token: u32,
    /// Size of the buffer: 16 KiB shifted left by this.
    pub size: u8,
    /// MTU: 3 is 1024.
    pub mtu: u8,
    /// Address of the region.
    pub addr: u64,
    /// First sequence number of the queue pair.
    pub psn: u32,
}

impl End {
    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        0x4000 << self.size
    }

    /// Where the buffer begins.
    pub fn start(&self) -> u64 {
        let before = u64::from(self.idx.wrapping_sub(1)) * self.bytes();
        self.addr.wrapping_add(before)
    }

    fn put(&self, b: &mut Vec<u8>) {
        b.extend(self.peer_id);
        b.extend(self.gid);
        b.extend(self.mac);
        b.extend(&self.qpn.to_be_bytes()[1..]);
        b.extend(self.rkey.to_be_bytes());
        b.push(self.idx);
        b.extend(self.token.to_be_bytes());
        b.extend([(self.size << 4) | self.mtu, 0]);
        b.extend(self.addr.to_be_bytes());
        b.extend(self.psn.to_be_bytes());
    }

    /// From an accept or confirm of version 2.
    pub fn parse(m: &[u8]) -> Option<End> {
        let word = |i: usize| Some(u32::from_be_bytes(m.get(i..i + 4)?.try_into().ok()?));
        Some(End {
            peer_id: m.get(8..16)?.try_into().ok()?,
            gid: m.get(16..32)?.try_into().ok()?,
            mac: m.get(32..38)?.try_into().ok()?,
            qpn: word(37)? & 0xff_ffff,
            rkey: word(41)?,
            idx: *m.get(45)?,
            token: word(46)?,
            size: m.get(50)? >> 4,
            mtu: m.get(50)? & 15,
            addr: u64::from_be_bytes(m.get(52..60)?.try_into().ok()?),
            psn: word(60)? & 0xff_ffff,
        })
    }
}

/// The EID that every host of this module offers.
pub const EID: [u8; 32] = *b"RSMC-DEFAULT                    ";

/// An SMC-R proposal of version 2, release 1.
pub fn proposal_v2(me: &End, max_links: u8) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(me.peer_id);
    b.extend(me.gid);
    b.extend(me.mac);
    b.extend([0, 0]); // no prefix part
    b.extend([0; 10]); // no ISM device
    b.extend([0, 28]); // offset of the version 2 part
    b.extend([0; 28]);
    b.extend([1, 0, 0, 0x10, 0, 0, 0, 0]); // one EID, release 1
    b.extend(me.gid);
    b.extend([255, max_links]);
    b.extend([0; 14]);
    b.extend(EID);
    message(EYE_R, PROPOSAL, 0x22, &b)
}

/// An accept or confirm of version 2; with `first` the limits of a first contact.
pub fn agreement_v2(ty: u8, end: &End, first: Option<(u8, u8)>) -> Vec<u8> {
    let mut b = Vec::new();
    end.put(&mut b);
    b.extend(EID);
    b.extend([0; 8]);
    if let Some((max_conns, max_links)) = first {
        b.extend([0x80, 0x21, 0, 0]); // direct; Linux, release 1
        b.extend(*b"hostile                         ");
        b.extend([max_conns, max_links]);
        b.extend([0; 14]);
        if ty == CONFIRM {
            b.extend([1, 0, 0, 0]);
            b.extend(end.gid);
        }
    }
    message(EYE_R, ty, if first.is_some() { 0x28 } else { 0x20 }, &b)
}

/// Returns whether an accept or confirm begins a link group.
fn is_first(m: &[u8]) -> bool {
    m[7] & 8 != 0
}

/// The same proposal or first contact, with the field by which two hosts of this module agree on
/// WRITEs that announce themselves.
pub fn extended(mut m: Vec<u8>) -> Vec<u8> {
    let at = match header(&m).map(|h| h.ty) {
        Some(PROPOSAL) => 52,
        _ if !is_first(&m) => return m,
        _ => 144,
    };
    m[at..at + 4].copy_from_slice(b"RSM\x01");
    m
}

/// The same proposal or first contact of release 0 ("v2.0"); the latter with the `long` extension of
/// later releases, all zero, or the short one of the kernels that knew no other.
pub fn release_0(mut m: Vec<u8>, long: bool) -> Vec<u8> {
    if header(&m).map(|h| h.ty) == Some(PROPOSAL) {
        m[83] = 0;
        m[104..106].fill(0);
        return m;
    }
    if !is_first(&m) {
        return m;
    }
    m[105] = 0x20;
    if long {
        m[140..156].fill(0);
    } else {
        m.drain(140..156);
        let len = m.len() as u16;
        m[5..7].copy_from_slice(&len.to_be_bytes());
    }
    m
}

/// The same message with another EID; `EID` is where a proposal has its only one.
pub fn with_eid(mut m: Vec<u8>, eid: &[u8; 32]) -> Vec<u8> {
    let at = if header(&m).map(|h| h.ty) == Some(PROPOSAL) {
        120
    } else {
        64
    };
    assert_eq!(m[at..at + 32], EID);
    m[at..at + 32].copy_from_slice(eid);
    m
}

/// Header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Type.
    pub ty: u8,
    /// Whole length.
    pub len: usize,
    /// Version nibble.
    pub version: u8,
}

/// Parses the 8 bytes of a header; `None` if they are none.
pub fn header(b: &[u8]) -> Option<Header> {
    let eye: [u8; 4] = b.get(0..4)?.try_into().ok()?;
    if eye != EYE_R && eye != EYE_D {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([*b.get(5)?, *b.get(6)?]));
    Some(Header {
        ty: *b.get(4)?,
        len,
        version: b.get(7)? >> 4,
    })
}

/// The diagnosis of a decline.
pub fn diagnosis(b: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(b.get(16..20)?.try_into().ok()?))
}

/// Reads one whole message from a packet peer, which comes within `ms` on a fast guest.
pub fn read(p: &mut crate::rawpeer::Peer, ms: u64) -> Option<Vec<u8>> {
    read_within(p, ms * crate::guest::slow())
}

/// The same within `ms`, however slow the guest.
pub fn read_within(p: &mut crate::rawpeer::Peer, ms: u64) -> Option<Vec<u8>> {
    let mut v = p.recv(8, ms)?;
    let h = header(&v)?;
    v.extend(p.recv(h.len.checked_sub(8)?, ms)?);
    Some(v)
}
