// SPDX-License-Identifier: GPL-2.0
//! Answer of a service to SMC's TCP option, from one SYN that never becomes a connection.
//!
//! The SYN carries SMC's option and one that nobody knows. A service that returns the latter echoes any
//! option, and its SMC option means nothing. The kernel, which knows of no such connection, resets
//! it as soon as it is answered.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{self, ipproto, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use smc_proto::wire::tcp_option;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Kind 253, for experiments, with a content that is nobody's.
const UNKNOWN: [u8; 8] = [253, 8, b'w', b'h', b'y', b'?', 0, 0];
/// Number of times that the SYN is sent, and the time to wait for each answer.
const ATTEMPTS: u32 = 3;
const WAIT: Duration = Duration::from_secs(1);
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Our first sequence number; nothing depends on it.
const SEQUENCE: u32 = 0x7273_6d63;

/// Answer to the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A SYN-ACK with SMC's option.
    Smc,
    /// A SYN-ACK without it.
    NoSmc,
    /// A SYN-ACK with the option that nobody knows.
    Echo,
    /// A reset: nothing listens there.
    Refused,
    /// Nothing.
    Silence,
}

/// Asks the service. `source` is the own address on the way there.
///
/// # Errors
/// The kernel's; `PERM` without `CAP_NET_RAW`.
pub fn ask(service: SocketAddr, source: IpAddr) -> Result<Answer, Errno> {
    let family = match service {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    // Holds a port, so that no other connection of this host has it.
    let holder = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::bind(&holder, &SocketAddr::new(source, 0))?;
    let own = SocketAddr::try_from(net::getsockname(&holder)?).map_err(|_| Errno::INVAL)?;
    let flags = flags | SocketFlags::NONBLOCK;
    let raw = net::socket_with(family, SocketType::RAW, flags, Some(ipproto::TCP))?;
    let segment = segment(own, service);
    let mut buffer = [0u8; 2048];
    for _ in 0..ATTEMPTS {
        let to = SocketAddr::new(service.ip(), 0);
        net::sendto(&raw, &segment, SendFlags::empty(), &to)?;
        let end = Instant::now() + WAIT;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let wait = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&raw, PollFlags::IN)], Some(&wait)) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            let (length, from) = match net::recvfrom(&raw, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length, from)) => (length, from),
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            if from.is_none_or(|from| from.ip() != service.ip()) {
                continue;
            }
            let packet = buffer.get(..length).unwrap_or(&[]);
            let header = match service {
                // Raw sockets of IPv4 also get the IP header.
                SocketAddr::V4(_) => tcp_header(packet),
                SocketAddr::V6(_) => Some(packet),
            };
            let ports = (service.port(), own.port());
            if let Some(answer) = header.and_then(|header| read(header, ports)) {
                return Ok(answer);
            }
        }
    }
    Ok(Answer::Silence)
}

/// The SYN with its checksum.
fn segment(own: SocketAddr, service: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(44);
    bytes.extend_from_slice(&own.port().to_be_bytes());
    bytes.extend_from_slice(&service.port().to_be_bytes());
    bytes.extend_from_slice(&SEQUENCE.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    // 10 words of header; a window of 64240; checksum and urgent pointer.
    bytes.extend_from_slice(&[10 << 4, SYN, 0xfa, 0xf0, 0, 0, 0, 0]);
    // A segment size that every way takes.
    bytes.extend_from_slice(&[2, 4, 0x02, 0x18]);
    bytes.extend_from_slice(&tcp_option::OPTION);
    bytes.extend_from_slice(&UNKNOWN);
    let sum = checksum(own.ip(), service.ip(), &bytes);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The Internet checksum of a TCP segment with the addresses around it.
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let mut bytes = Vec::new();
    for address in [from, to] {
        match address {
            IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
        }
    }
    bytes.extend_from_slice(&[0, 6]);
    bytes.extend_from_slice(&(segment.len() as u16).to_be_bytes());
    bytes.extend_from_slice(segment);
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the bytes after the header of an IPv4 packet.
fn tcp_header(packet: &[u8]) -> Option<&[u8]> {
    packet.get(usize::from(packet.first()? & 0x0f) * 4..)
}

/// An answer to our SYN; `None` for any other packet.
fn read(header: &[u8], (theirs, ours): (u16, u16)) -> Option<Answer> {
    let field = |at: usize| Some(u16::from_be_bytes([*header.get(at)?, *header.get(at + 1)?]));
    let acknowledged = (u32::from(field(8)?) << 16) | u32::from(field(10)?);
    if field(0)? != theirs || field(2)? != ours || acknowledged != SEQUENCE + 1 {
        return None;
    }
    let flags = *header.get(13)?;
    if flags & RST != 0 {
        return Some(Answer::Refused);
    }
    if flags & (SYN | ACK) != SYN | ACK {
        return None;
    }
    let end = usize::from(*header.get(12)? >> 4) * 4;
    let options = header.get(20..end)?;
    // A look at all bytes: an echo need not keep the order or the padding.
    let echoed = options.windows(6).any(|window| UNKNOWN.starts_with(window));
    Some(match (echoed, tcp_option::find(options)) {
        (true, _) => Answer::Echo,
        (false, Some(_)) => Answer::Smc,
        (false, None) => Answer::NoSmc,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn() -> Vec<u8> {
        let own = "10.0.0.1:40000".parse().unwrap();
        segment(own, "10.0.0.2:80".parse().unwrap())
    }

    /// The answer of a service that has these options.
    fn answer(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = syn();
        bytes.truncate(20);
        bytes[0..4].copy_from_slice(&[0, 80, 0x9c, 0x40]);
        bytes[8..12].copy_from_slice(&(SEQUENCE + 1).to_be_bytes());
        bytes[12] = (((20 + options.len()) / 4) << 4) as u8;
        bytes[13] = flags;
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn the_checksum_is_right() {
        let syn = syn();
        assert_eq!(syn.len(), 40);
        let (own, service): (IpAddr, IpAddr) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        // Over a segment with its checksum in place, the result is 0.
        assert_eq!(checksum(own, service, &syn), 0);
        assert_ne!(checksum(service, "10.0.0.3".parse().unwrap(), &syn), 0);
    }

    #[test]
    fn answers() {
        let read = |bytes: &[u8]| read(bytes, (80, 40000));
        let both = [&tcp_option::OPTION[..], &UNKNOWN].concat();
        assert_eq!(read(&answer(SYN | ACK, &[])), Some(Answer::NoSmc));
        assert_eq!(
            read(&answer(SYN | ACK, &tcp_option::OPTION)),
            Some(Answer::Smc)
        );
        assert_eq!(read(&answer(SYN | ACK, &both)), Some(Answer::Echo));
        assert_eq!(read(&answer(RST | ACK, &[])), Some(Answer::Refused));
        assert_eq!(read(&answer(ACK, &[])), None);
        // Our own SYN, and a header that says it is longer than it is.
        assert_eq!(read(&syn()), None);
        let mut short = answer(SYN | ACK, &both);
        short.truncate(30);
        assert_eq!(read(&short), None);
        for length in 0..20 {
            assert_eq!(read(&answer(SYN | ACK, &[])[..length]), None, "{length}");
        }
    }
}
