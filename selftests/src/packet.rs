// SPDX-License-Identifier: GPL-2.0
//! Ethernet frames with TCP over IPv4 or IPv6: parsing, building, checksums, options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// TCP flags.
pub const FIN: u8 = 1;
/// See [`FIN`].
pub const SYN: u8 = 2;
/// See [`FIN`].
pub const RST: u8 = 4;
/// See [`FIN`].
pub const PSH: u8 = 8;
/// Flag: the last byte is urgent.
pub const URG: u8 = 0x20;
/// See [`FIN`].
pub const ACK: u8 = 16;

/// The SMC option as it stands in SYN and SYN-ACK: two NOPs, kind 254, length 6, "SMCR" in EBCDIC.
pub const SMC_OPTION: [u8; 8] = [1, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9];

/// A TCP segment with what is needed of its IP header.
#[derive(Clone, Debug)]
pub struct Seg {
    /// Source.
    pub src: SocketAddr,
    /// Destination.
    pub dst: SocketAddr,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Flags.
    pub flags: u8,
    /// Window, unscaled.
    pub win: u16,
    /// Options, padding included.
    pub opts: Vec<u8>,
    /// Payload.
    pub data: Vec<u8>,
    /// State of the checksums on the wire; ignored when building.
    pub sums: Sums,
}

/// State of a received frame's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// IP header and TCP checksum are complete and right.
    Good,
    /// The TCP field holds the right pseudo-header sum: the device is to complete it.
    Partial,
    /// Wrong.
    Bad,
}

/// One's complement sum of bytes, continued from `acc`.
fn sum(acc: u32, b: &[u8]) -> u32 {
    let mut a = u64::from(acc);
    for c in b.chunks(2) {
        a += u64::from(u16::from_be_bytes([c[0], *c.get(1).unwrap_or(&0)]));
    }
    while a >> 16 != 0 {
        a = (a & 0xffff) + (a >> 16);
    }
    a as u32
}

fn pseudo(src: &IpAddr, dst: &IpAddr, protocol: u8, len: usize) -> u32 {
    let mut v = Vec::new();
    for a in [src, dst] {
        match a {
            IpAddr::V4(a) => v.extend(a.octets()),
            IpAddr::V6(a) => v.extend(a.octets()),
        }
    }
    v.extend([0, protocol]);
    v.extend((len as u32).to_be_bytes());
    sum(0, &v)
}

fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn be32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// Parses an Ethernet frame; `None` if it is not TCP.
pub fn parse(f: &[u8]) -> Option<Seg> {
    let ip = f.get(14..)?;
    let (src, dst, tcp, ip_ok): (IpAddr, IpAddr, &[u8], bool) = match be16(f, 12)? {
        0x0800 => {
            let hl = usize::from(ip.first()? & 15) * 4;
            let total = usize::from(be16(ip, 2)?);
            if *ip.get(9)? != 6 || total < hl {
                return None;
            }
            let a = |i: usize| -> Option<IpAddr> {
                Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(i..i + 4)?).ok()?).into())
            };
            (
                a(12)?,
                a(16)?,
                ip.get(hl..total.min(ip.len()))?,
                sum(0, ip.get(..hl)?) == 0xffff,
            )
        }
        0x86dd => {
            if *ip.get(6)? != 6 {
                return None;
            }
            let a = |i: usize| -> Option<IpAddr> {
                Some(Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(i..i + 16)?).ok()?).into())
            };
            let end = 40 + usize::from(be16(ip, 4)?);
            (a(8)?, a(24)?, ip.get(40..end.min(ip.len()))?, true)
        }
        _ => return None,
    };
    let off = usize::from(tcp.get(12)? >> 4) * 4;
    let ps = pseudo(&src, &dst, TCP, tcp.len());
    let sums = if !ip_ok {
        Sums::Bad
    } else if sum(ps, tcp) == 0xffff {
        Sums::Good
    } else if u32::from(be16(tcp, 16)?) == ps {
        Sums::Partial
    } else {
        Sums::Bad
    };
    Some(Seg {
        src: SocketAddr::new(src, be16(tcp, 0)?),
        dst: SocketAddr::new(dst, be16(tcp, 2)?),
        seq: be32(tcp, 4)?,
        ack: be32(tcp, 8)?,
        flags: *tcp.get(13)?,
        win: be16(tcp, 14)?,
        opts: tcp.get(20..off)?.to_vec(),
        data: tcp.get(off..)?.to_vec(),
        sums,
    })
}

/// Builds the frame of a segment, with right checksums.
pub fn build(mac_src: [u8; 6], mac_dst: [u8; 6], s: &Seg) -> Vec<u8> {
    let mut opts = s.opts.clone();
    while opts.len() % 4 != 0 {
        opts.push(1);
    }
    let mut tcp = Vec::new();
    tcp.extend(s.src.port().to_be_bytes());
    tcp.extend(s.dst.port().to_be_bytes());
    tcp.extend(s.seq.to_be_bytes());
    tcp.extend(s.ack.to_be_bytes());
    tcp.extend([((20 + opts.len()) as u8 / 4) << 4, s.flags]);
    tcp.extend(s.win.to_be_bytes());
    tcp.extend([0, 0]);
    let urgent = if s.flags & URG != 0 { s.data.len() } else { 0 };
    tcp.extend((urgent as u16).to_be_bytes());
    tcp.extend(&opts);
    tcp.extend(&s.data);
    let c = !sum(pseudo(&s.src.ip(), &s.dst.ip(), TCP, tcp.len()), &tcp) as u16;
    tcp[16..18].copy_from_slice(&c.to_be_bytes());
    frame(mac_src, mac_dst, (s.src.ip(), s.dst.ip()), TCP, &tcp)
}

/// Builds the frame in which the destination of a segment says that it is unreachable, by ICMP or ICMPv6, with this code
/// of its type "destination unreachable".
pub fn unreachable(mac_src: [u8; 6], mac_dst: [u8; 6], s: &Seg, code: u8) -> Vec<u8> {
    let refused = build(mac_dst, mac_src, s);
    // The IP header and what ICMP has to quote of TCP's, which has both ports and the sequence number.
    let head = if s.src.is_ipv4() { 20 } else { 40 };
    let quoted = refused.get(14..14 + head + 8).unwrap_or_default();
    let (kind, protocol) = if s.src.is_ipv4() {
        (3, ICMP)
    } else {
        (1, ICMPV6)
    };
    let mut icmp = vec![kind, code, 0, 0, 0, 0, 0, 0];
    icmp.extend(quoted);
    let (from, to) = (s.dst.ip(), s.src.ip());
    let start = match protocol {
        ICMP => 0,
        _ => pseudo(&from, &to, protocol, icmp.len()),
    };
    let c = !sum(start, &icmp) as u16;
    icmp[2..4].copy_from_slice(&c.to_be_bytes());
    frame(mac_src, mac_dst, (from, to), protocol, &icmp)
}

/// Protocol numbers of IP.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;

/// Builds the frame of an IP packet.
fn frame(
    mac_src: [u8; 6],
    mac_dst: [u8; 6],
    (from, to): (IpAddr, IpAddr),
    protocol: u8,
    body: &[u8],
) -> Vec<u8> {
    let mut f = Vec::new();
    f.extend(mac_dst);
    f.extend(mac_src);
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            f.extend([8, 0]);
            let mut ip = vec![0x45, 0];
            ip.extend((20 + body.len() as u16).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            ip.extend(a.octets());
            ip.extend(b.octets());
            let c = !sum(0, &ip) as u16;
            ip[10..12].copy_from_slice(&c.to_be_bytes());
            f.extend(ip);
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            f.extend((body.len() as u16).to_be_bytes());
            f.extend([protocol, 64]);
            f.extend(a.octets());
            f.extend(b.octets());
        }
        _ => panic!("mixed address kinds"),
    }
    f.extend(body);
    f
}

/// The options as (kind, whole bytes), NOPs and the end mark left out; `None` if malformed.
pub fn options(o: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let (mut v, mut i) = (Vec::new(), 0);
    while i < o.len() {
        match o[i] {
            0 => break,
            1 => i += 1,
            k => {
                let n = usize::from(*o.get(i + 1)?);
                if n < 2 {
                    return None;
                }
                v.push((k, o.get(i..i + n)?.to_vec()));
                i += n;
            }
        }
    }
    Some(v)
}

/// Counts the SMC option's 8 bytes in these options.
pub fn smc_options(o: &[u8]) -> usize {
    o.windows(8).filter(|w| *w == SMC_OPTION).count()
}
