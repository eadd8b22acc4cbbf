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

/// A decline with a diagnosis code.
pub fn decline(diag: u32, v: u8) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend([0, 1, 2, 0x77, 0, 0, 0, 2]);
    b.extend(diag.to_be_bytes());
    b.extend([0; 4]);
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

/// What is known of a message from its header.
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

/// Reads one whole message from a packet peer.
pub fn read(p: &mut crate::rawpeer::Peer, ms: u64) -> Option<Vec<u8>> {
    let mut v = p.recv(8, ms)?;
    let h = header(&v)?;
    v.extend(p.recv(h.len.checked_sub(8)?, ms)?);
    Some(v)
}
