// SPDX-License-Identifier: GPL-2.0
//! `struct smc_diag_msg` and its attributes (`<linux/smc_diag.h>`).

use super::began::Began;
use super::connection::{self, Connection, DmbInfo, LinkInfo};
use super::socket::{End, Fallback, Mode, Socket, State};
use crate::netlink::wire;
use std::net::{Ipv4Addr, Ipv6Addr};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// `sizeof(struct smc_diag_msg)`; attributes follow.
const MESSAGE_SIZE: usize = 64;
/// Attribute `SMC_DIAG_SHUTDOWN`: `u8`, bit 0 receive, bit 1 send.
const SMC_DIAG_SHUTDOWN: u16 = 3;
/// Attribute `SMC_DIAG_FALLBACK`: reason and the peer's diagnosis, `u32` each.
const SMC_DIAG_FALLBACK: u16 = 5;
/// Attribute of rsmc alone: seconds since the program got the socket, `u64`.
const RSMC_DIAG_AGE: u16 = 8;

/// Attribute of rsmc alone: a connection that began as TCP.
const RSMC_DIAG_BEGAN: u16 = 9;

/// Reads one `struct smc_diag_msg` with its attributes. Attributes that are unknown or of a length
/// that makes no sense are passed over; `None` if even the fixed part is not there.
pub fn parse(payload: &[u8]) -> Option<Socket> {
    let fixed = payload.get(..MESSAGE_SIZE)?;
    let family = *fixed.first()?;
    let state = State(*fixed.get(1)?);
    let mode = *fixed.get(2)?;
    let mut shutdown = *fixed.get(3)?;
    let mut fallback = None;
    let mut connection = None;
    let mut link = None;
    let mut dmb = None;
    let mut age = None;
    let mut began = None;
    for attribute in wire::attributes(payload.get(MESSAGE_SIZE..)?) {
        let Ok(attribute) = attribute else { break };
        match attribute.kind {
            SMC_DIAG_SHUTDOWN => {
                shutdown = attribute.payload.first().copied().unwrap_or(shutdown);
            }
            SMC_DIAG_FALLBACK => {
                let reason = wire::u32_at(attribute.payload, 0);
                let peer = wire::u32_at(attribute.payload, 4);
                fallback = reason
                    .zip(peer)
                    .map(|(reason, peer)| Fallback { reason, peer });
            }
            RSMC_DIAG_AGE => age = wire::u64_at(attribute.payload, 0),
            RSMC_DIAG_BEGAN => began = Began::parse(attribute.payload),
            connection::SMC_DIAG_CONNINFO => connection = Connection::parse(attribute.payload),
            connection::SMC_DIAG_LGRINFO => link = LinkInfo::parse(attribute.payload),
            connection::SMC_DIAG_DMBINFO => dmb = DmbInfo::parse(attribute.payload),
            _ => {}
        }
    }
    let is_open = state == State::INIT || state == State::LISTEN;
    let mode = match mode {
        1 => Mode::Tcp,
        0 | 2 if is_open => Mode::Undecided,
        0 => Mode::SmcR,
        2 => Mode::SmcD,
        3 => Mode::TcpFirst,
        other => Mode::Other(other),
    };
    Some(Socket {
        family,
        state,
        mode,
        no_receive: shutdown & 1 != 0,
        no_send: shutdown & 2 != 0,
        local: end(family, fixed, 4, 8)?,
        remote: end(family, fixed, 6, 24)?,
        interface: wire::u32_at(fixed, 40)?,
        cookie: u64::from(wire::u32_at(fixed, 44)?) | (u64::from(wire::u32_at(fixed, 48)?) << 32),
        uid: wire::u32_at(fixed, 52)?,
        inode: wire::u64_at(fixed, 56)?,
        age,
        began,
        fallback: fallback.filter(|fallback| match mode {
            Mode::Tcp => true,
            Mode::TcpFirst => fallback.reason != 0,
            _ => false,
        }),
        connection: connection.filter(|_| mode != Mode::Tcp && !is_open),
        link,
        dmb,
    })
}

/// Port and address from `struct inet_diag_sockid`, both in network byte order. An IPv4 address
/// is in the first of four words; a socket of family 43 does not say which it has.
fn end(family: u8, fixed: &[u8], port: usize, address: usize) -> Option<End> {
    let port: [u8; 2] = fixed.get(port..port.checked_add(2)?)?.try_into().ok()?;
    let bytes: [u8; 16] = fixed
        .get(address..address.checked_add(16)?)?
        .try_into()
        .ok()?;
    let [a, b, c, d, rest @ ..] = bytes;
    let is_v4 = match family {
        AF_INET => true,
        AF_INET6 => rest == [0; 12] && [a, b, c, d] != [0; 4],
        _ => rest == [0; 12],
    };
    Some(End {
        address: if is_v4 {
            Ipv4Addr::new(a, b, c, d).into()
        } else {
            Ipv6Addr::from(bytes).into()
        },
        port: u16::from_be_bytes(port),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::began::{self, Step};
    use super::*;

    /// A message as the kernel builds it, for this and other modules' tests.
    pub(crate) struct Message(pub Vec<u8>);

    impl Message {
        pub(crate) fn new(family: u8, state: u8, mode: u8) -> Self {
            let mut bytes = vec![family, state, mode, 0];
            bytes.resize(MESSAGE_SIZE, 0);
            Self(bytes)
                .put(44, &7u32.to_ne_bytes())
                .put(48, &1u32.to_ne_bytes())
        }

        pub(crate) fn put(mut self, offset: usize, bytes: &[u8]) -> Self {
            self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
            self
        }

        pub(crate) fn ends(self, local: (&[u8], u16), remote: (&[u8], u16)) -> Self {
            self.put(4, &local.1.to_be_bytes())
                .put(6, &remote.1.to_be_bytes())
                .put(8, local.0)
                .put(24, remote.0)
        }

        pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
            let length = (value.len() + 4) as u16;
            self.0.extend_from_slice(&length.to_ne_bytes());
            self.0.extend_from_slice(&kind.to_ne_bytes());
            self.0.extend_from_slice(value);
            self.0.resize(self.0.len().next_multiple_of(4), 0);
            self
        }

        pub(crate) fn fallback(self, reason: u32, peer: u32) -> Self {
            let mut value = reason.to_ne_bytes().to_vec();
            value.extend_from_slice(&peer.to_ne_bytes());
            self.attribute(SMC_DIAG_FALLBACK, &value)
        }
    }

    #[test]
    fn a_fallen_back_connection() {
        let message = Message::new(43, 1, 1)
            .ends((&[10, 0, 0, 1], 40000), (&[10, 0, 0, 2], 6379))
            .put(40, &3u32.to_ne_bytes())
            .put(52, &1000u32.to_ne_bytes())
            .put(56, &0x1_0000_0001u64.to_ne_bytes())
            .attribute(SMC_DIAG_SHUTDOWN, &[2])
            .fallback(0x0301_0000, 0);
        let socket = parse(&message.0).unwrap();
        assert_eq!(socket.state.to_string(), "ACTIVE");
        assert_eq!(socket.mode, Mode::Tcp);
        assert_eq!(socket.local.to_string(), "10.0.0.1:40000");
        assert_eq!(socket.remote.to_string(), "10.0.0.2:6379");
        assert_eq!((socket.interface, socket.uid), (3, 1000));
        assert_eq!(
            (socket.inode, socket.cookie),
            (0x1_0000_0001, 0x1_0000_0007)
        );
        assert!(socket.no_send && !socket.no_receive);
        let fallback = Fallback {
            reason: 0x0301_0000,
            peer: 0,
        };
        assert_eq!(socket.fallback, Some(fallback));
    }

    #[test]
    fn a_connection_that_began_as_tcp() {
        let told = began::tests::bytes(1, [3, 2, 0x0306_010c], [5, 6]);
        let message = Message::new(2, 1, 3).attribute(RSMC_DIAG_BEGAN, &told);
        let socket = parse(&message.fallback(0x0306_010c, 0).0).unwrap();
        assert_eq!(socket.mode, Mode::TcpFirst);
        let began = socket.began.unwrap();
        assert_eq!((began.step, began.failures), (Step::JOINING, 2));
        // One that has a member more, and one that is short.
        let longer = [&told[..], &[7; 8]].concat();
        let parsed = parse(&Message::new(2, 1, 0).attribute(RSMC_DIAG_BEGAN, &longer).0).unwrap();
        let returns = 0x0707_0707;
        assert_eq!(parsed.began, Some(began::Began { returns, ..began }));
        let short = Message::new(2, 1, 0).attribute(RSMC_DIAG_BEGAN, &told[..31]);
        assert_eq!(parse(&short.0).unwrap().began, None);
    }

    #[test]
    fn addresses_by_family() {
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1];
        let one = "::1".parse::<Ipv6Addr>().unwrap().octets();
        let prefix = "2001:db8::".parse::<Ipv6Addr>().unwrap().octets();
        let local = |family: u8, address: &[u8]| {
            let message = Message::new(family, 1, 0).ends((address, 80), (&[], 0));
            parse(&message.0).unwrap().local.to_string()
        };
        assert_eq!(local(43, &mapped), "[::ffff:10.0.0.1]:80");
        assert_eq!(local(10, &mapped), "[::ffff:10.0.0.1]:80");
        assert_eq!(local(43, &one), "[::1]:80");
        assert_eq!(local(2, &[127, 0, 0, 1]), "127.0.0.1:80");
        assert_eq!(local(43, &[127, 0, 0, 1]), "127.0.0.1:80");
        assert_eq!(local(43, &[]), "*:80");
        assert_eq!(local(10, &[]), "*:80");
        // Only the first word set: a family-43 socket cannot say whether that is IPv4.
        assert_eq!(local(43, &prefix), "32.1.13.184:80");
    }

    #[test]
    fn undecided_sockets_have_no_mode() {
        for state in [2, 10] {
            let socket = parse(&Message::new(43, state, 0).fallback(0, 0).0).unwrap();
            assert_eq!((socket.mode, socket.fallback), (Mode::Undecided, None));
        }
        assert_eq!(parse(&Message::new(43, 1, 0).0).unwrap().mode, Mode::SmcR);
        assert_eq!(parse(&Message::new(43, 1, 2).0).unwrap().mode, Mode::SmcD);
        assert_eq!(
            parse(&Message::new(43, 1, 9).0).unwrap().mode,
            Mode::Other(9)
        );
        assert_eq!(
            parse(&Message::new(43, 99, 1).0).unwrap().state.to_string(),
            "STATE99"
        );
    }

    #[test]
    fn short_messages_are_refused_and_bad_attributes_passed_over() {
        let whole = Message::new(43, 1, 1).fallback(0x0500_0000, 0x0303_0000).0;
        for length in 0..whole.len() {
            let parsed = parse(&whole[..length]);
            assert_eq!(parsed.is_some(), length >= MESSAGE_SIZE, "{length}");
            assert!(
                parsed.is_none_or(|socket| socket.fallback.is_none()),
                "{length}"
            );
        }
        for lie in [0u16, 1, 3, 13, 0xffff] {
            let mut hostile = whole.clone();
            hostile[64..66].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(parse(&hostile).unwrap().fallback, None, "{lie}");
        }
        // An attribute too short for its struct, then a good one.
        let message = Message::new(43, 1, 1).attribute(SMC_DIAG_FALLBACK, &[1, 2, 3]);
        assert_eq!(parse(&message.0).unwrap().fallback, None);
        assert!(parse(&message.fallback(1, 2).0).unwrap().fallback.is_some());
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for _ in 0..(seed >> 32) % 160 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push((seed >> 56) as u8);
            }
            if let Some(socket) = parse(&bytes) {
                let _ = format!("{} {} {}", socket.state, socket.local, socket.remote);
            }
        }
    }
}
