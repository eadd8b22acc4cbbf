// SPDX-License-Identifier: GPL-2.0
//! RoCE v2 frames of the reliable connected transport: parsing and building, invariant CRC
//! included. Written from the InfiniBand Architecture Specification, volume 1, chapter 9 and its
//! annex A17, and knows nothing of SMC.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The UDP port of RoCE v2.
pub const PORT: u16 = 4791;

/// Opcodes of the reliable connected transport.
pub mod op {
    /// First packet of a SEND.
    pub const SEND_FIRST: u8 = 0x00;
    /// Middle packet of a SEND.
    pub const SEND_MIDDLE: u8 = 0x01;
    /// Last packet of a SEND.
    pub const SEND_LAST: u8 = 0x02;
    /// A SEND of one packet.
    pub const SEND_ONLY: u8 = 0x04;
    /// A SEND of one packet with an immediate.
    pub const SEND_ONLY_IMM: u8 = 0x05;
    /// First packet of a WRITE; carries the RETH.
    pub const WRITE_FIRST: u8 = 0x06;
    /// Middle packet of a WRITE.
    pub const WRITE_MIDDLE: u8 = 0x07;
    /// Last packet of a WRITE.
    pub const WRITE_LAST: u8 = 0x08;
    /// Last packet of a WRITE with an immediate.
    pub const WRITE_LAST_IMM: u8 = 0x09;
    /// A WRITE of one packet.
    pub const WRITE_ONLY: u8 = 0x0a;
    /// A WRITE of one packet with an immediate.
    pub const WRITE_ONLY_IMM: u8 = 0x0b;
    /// A READ request.
    pub const READ: u8 = 0x0c;
    /// Acknowledgment; carries the AETH.
    pub const ACK: u8 = 0x11;
    /// COMPARE AND SWAP.
    pub const COMPARE_SWAP: u8 = 0x13;
    /// FETCH AND ADD.
    pub const FETCH_ADD: u8 = 0x14;
    /// A SEND of one packet that invalidates a key.
    pub const SEND_ONLY_INV: u8 = 0x17;
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sender.
    pub src: IpAddr,
    /// Receiver.
    pub dst: IpAddr,
    /// See [`op`].
    pub opcode: u8,
    /// Receiving queue pair.
    pub qpn: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// The sender wants an acknowledgment.
    pub ask: bool,
    /// Bytes after the BTH, extension headers included, padding not.
    pub body: Vec<u8>,
}

impl Packet {
    /// Returns whether it is part of a SEND.
    pub fn is_send(&self) -> bool {
        matches!(self.opcode, 0x00..=0x05 | 0x16 | 0x17)
    }

    /// Returns whether it is part of a WRITE.
    pub fn is_write(&self) -> bool {
        matches!(self.opcode, 0x06..=0x0b)
    }

    /// Returns whether it is the end of a WRITE with an immediate, which follows the RETH if there is one.
    pub fn has_write_immediate(&self) -> bool {
        matches!(self.opcode, op::WRITE_LAST_IMM | op::WRITE_ONLY_IMM)
    }

    /// Returns whether it begins a message.
    pub fn is_first(&self) -> bool {
        matches!(
            self.opcode,
            op::SEND_FIRST | 0x04 | 0x05 | 0x17 | op::WRITE_FIRST | 0x0a | 0x0b
        )
    }

    /// Returns whether it ends a message.
    pub fn is_last(&self) -> bool {
        matches!(
            self.opcode,
            op::SEND_LAST | 0x03..=0x05 | 0x08..=0x0b | 0x16 | 0x17
        )
    }
}

/// An RDMA extended transport header.
pub fn reth(addr: u64, rkey: u32, len: u32) -> Vec<u8> {
    let mut v = addr.to_be_bytes().to_vec();
    v.extend(rkey.to_be_bytes());
    v.extend(len.to_be_bytes());
    v
}

/// The CRC of Ethernet, bit by bit.
fn crc32(mut crc: u32, b: &[u8]) -> u32 {
    for byte in b {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    crc
}

/// The invariant CRC over a packet that begins with its IP header and ends before the CRC.
fn icrc(ip: &[u8]) -> [u8; 4] {
    let mut v = ip.to_vec();
    let udp = if v[0] >> 4 == 4 {
        v[1] = 0xff;
        v[8] = 0xff;
        v[10..12].fill(0xff);
        20
    } else {
        v[0] |= 0x0f;
        v[1..4].fill(0xff);
        v[7] = 0xff;
        40
    };
    v[udp + 6..udp + 8].fill(0xff);
    v[udp + 8 + 4] = 0xff;
    let crc = crc32(crc32(u32::MAX, &[0xff; 8]), &v);
    (!crc).to_le_bytes()
}

fn ip_sum(h: &[u8]) -> u16 {
    let mut s: u32 = h
        .chunks(2)
        .map(|c| u32::from(u16::from_be_bytes([c[0], c[1]])))
        .sum();
    while s >> 16 != 0 {
        s = (s & 0xffff) + (s >> 16);
    }
    !(s as u16)
}

/// The Ethernet frame of a packet.
pub fn build(mac_src: [u8; 6], mac_dst: [u8; 6], p: &Packet) -> Vec<u8> {
    let pad = (4 - p.body.len() % 4) % 4;
    let udp_len = (8 + 12 + p.body.len() + pad + 4) as u16;
    let mut ip = Vec::new();
    match (p.src, p.dst) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            ip.extend([0x45, 0]);
            ip.extend((20 + udp_len).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            ip.extend(a.octets());
            ip.extend(b.octets());
            let sum = ip_sum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            ip.extend([0x60, 0, 0, 0]);
            ip.extend(udp_len.to_be_bytes());
            ip.extend([17, 64]);
            ip.extend(a.octets());
            ip.extend(b.octets());
        }
        _ => panic!("mixed address kinds"),
    }
    ip.extend(0xc077u16.to_be_bytes());
    ip.extend(PORT.to_be_bytes());
    ip.extend(udp_len.to_be_bytes());
    ip.extend([0, 0]);
    ip.extend([p.opcode, (pad as u8) << 4, 0xff, 0xff]);
    ip.extend((p.qpn & 0xff_ffff).to_be_bytes());
    ip.extend(((p.psn & 0xff_ffff) | (u32::from(p.ask) << 31)).to_be_bytes());
    ip.extend(&p.body);
    ip.extend(vec![0; pad]);
    let crc = icrc(&ip);
    ip.extend(crc);
    let mut f = mac_dst.to_vec();
    f.extend(mac_src);
    f.extend(if p.src.is_ipv4() {
        [8, 0]
    } else {
        [0x86, 0xdd]
    });
    f.extend(ip);
    f
}

/// Parses an Ethernet frame; `None` if it is not RoCE v2, or if its CRC is wrong.
pub fn parse(f: &[u8]) -> Option<Packet> {
    let ip = f.get(14..)?;
    let (src, dst, udp): (IpAddr, IpAddr, usize) = match f.get(12..14)? {
        [8, 0] => {
            let a = |i: usize| -> Option<IpAddr> {
                Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(i..i + 4)?).ok()?).into())
            };
            if ip.first()? != &0x45 || ip.get(9)? != &17 {
                return None;
            }
            (a(12)?, a(16)?, 20)
        }
        [0x86, 0xdd] => {
            let a = |i: usize| -> Option<IpAddr> {
                Some(Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(i..i + 16)?).ok()?).into())
            };
            if ip.get(6)? != &17 {
                return None;
            }
            (a(8)?, a(24)?, 40)
        }
        _ => return None,
    };
    let u = ip.get(udp..)?;
    if u.get(2..4)? != PORT.to_be_bytes() {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([*u.get(4)?, *u.get(5)?]));
    let whole = ip.get(..udp + len)?;
    let bth = whole.get(udp + 8..)?;
    let rest = bth.get(12..bth.len().checked_sub(4)?)?;
    if icrc(&whole[..whole.len() - 4]) != whole[whole.len() - 4..] {
        return None;
    }
    let pad = usize::from((bth[1] >> 4) & 3);
    let word = |i: usize| u32::from_be_bytes([bth[i], bth[i + 1], bth[i + 2], bth[i + 3]]);
    Some(Packet {
        src,
        dst,
        opcode: bth[0],
        qpn: word(4) & 0xff_ffff,
        psn: word(8) & 0xff_ffff,
        ask: bth[8] & 0x80 != 0,
        body: rest.get(..rest.len().checked_sub(pad)?)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            for n in 0..9 {
                let p = Packet {
                    src: src.parse().unwrap(),
                    dst: dst.parse().unwrap(),
                    opcode: op::SEND_ONLY,
                    qpn: 0x1234,
                    psn: 0xff_fffe,
                    ask: true,
                    body: vec![7; n],
                };
                let mut f = build([2; 6], [4; 6], &p);
                assert_eq!(parse(&f), Some(p));
                let last = f.len() - 1;
                f[last] ^= 1;
                assert_eq!(parse(&f), None);
            }
        }
    }
}
