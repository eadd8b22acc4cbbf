// SPDX-License-Identifier: GPL-2.0
//! TCP's data on connections that fell back: `inet_diag` (`<linux/inet_diag.h>`).

use crate::diag::End;
use crate::netlink::socket::Netlink;
use crate::netlink::wire::{self, Request};
use rustix::net::netlink;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// The states to list, as bits: ESTABLISHED (1) to CLOSING (11) without TIME_WAIT and LISTEN.
const STATES: u32 = 0xbbe;
/// `sizeof(struct inet_diag_req_v2)`.
const REQUEST_SIZE: usize = 56;
/// `sizeof(struct inet_diag_msg)`.
const MESSAGE_SIZE: usize = 72;
/// Attribute `INET_DIAG_INFO`: `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;

/// Bytes and queues of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Bytes received in order.
    pub received: u64,
    /// Bytes sent, each once.
    pub sent: u64,
    /// Bytes received and not read yet.
    pub receive_queue: u64,
    /// Bytes written and not acknowledged yet.
    pub send_queue: u64,
}

/// The TCP connections of this network namespace by their local and remote end. Empty where the
/// kernel cannot list them (without the module `tcp_diag`): their bytes are a nicety.
pub fn connections() -> HashMap<(End, End), Tcp> {
    let mut found = HashMap::new();
    for family in [AF_INET, AF_INET6] {
        let mut body = [0u8; REQUEST_SIZE];
        body[0] = family;
        body[1] = IPPROTO_TCP;
        body[2] = 1 << (INET_DIAG_INFO - 1);
        body[4..8].copy_from_slice(&STATES.to_ne_bytes());
        let request = Request::new(SOCK_DIAG_BY_FAMILY, wire::NLM_F_DUMP, &body);
        let replies = Netlink::open(netlink::SOCK_DIAG)
            .map_err(Into::into)
            .and_then(|mut netlink| netlink.ask("listing TCP sockets", &request));
        for reply in replies.unwrap_or_default() {
            found.extend(parse(&reply.payload));
        }
    }
    found
}

/// An end as both kinds of list name it: IPv4 where it is IPv4, mapped into IPv6 or not.
pub fn plain(end: End) -> End {
    End {
        address: end.address.to_canonical(),
        port: end.port,
    }
}

fn parse(payload: &[u8]) -> Option<((End, End), Tcp)> {
    let fixed = payload.get(..MESSAGE_SIZE)?;
    let end = |port: usize, address: usize| {
        let port: [u8; 2] = fixed.get(port..port.checked_add(2)?)?.try_into().ok()?;
        let bytes: [u8; 16] = fixed
            .get(address..address.checked_add(16)?)?
            .try_into()
            .ok()?;
        let [a, b, c, d, ..] = bytes;
        let address: IpAddr = match fixed.first()? {
            &AF_INET => Ipv4Addr::new(a, b, c, d).into(),
            _ => Ipv6Addr::from(bytes).into(),
        };
        let port = u16::from_be_bytes(port);
        Some(plain(End { address, port }))
    };
    let mut tcp = Tcp {
        receive_queue: u64::from(wire::u32_at(fixed, 56)?),
        send_queue: u64::from(wire::u32_at(fixed, 60)?),
        ..Tcp::default()
    };
    for attribute in wire::attributes(payload.get(MESSAGE_SIZE..)?) {
        let Ok(attribute) = attribute else { break };
        if attribute.kind == INET_DIAG_INFO {
            let number = |offset| wire::u64_at(attribute.payload, offset).unwrap_or(0);
            tcp.received = number(128);
            tcp.sent = number(200).saturating_sub(number(208));
        }
    }
    Some(((end(4, 8)?, end(6, 24)?), tcp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    fn end(address: SocketAddr) -> End {
        End {
            address: address.ip(),
            port: address.port(),
        }
    }

    #[test]
    fn a_connection_of_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        let mut some = [0; 3];
        server.read_exact(&mut some).unwrap();
        let found = connections();
        if found.is_empty() {
            eprintln!("skipped: this kernel does not list TCP sockets");
            return;
        }
        let (a, b) = (
            end(client.local_addr().unwrap()),
            end(client.peer_addr().unwrap()),
        );
        assert_eq!(found[&(a, b)].sent, 5);
        let other = found[&(b, a)];
        assert_eq!((other.received, other.receive_queue), (5, 2));
    }

    #[test]
    fn short_messages_are_refused() {
        for length in 0..MESSAGE_SIZE {
            assert!(parse(&vec![0; length]).is_none());
        }
        let (ends, tcp) = parse(&[0; MESSAGE_SIZE]).unwrap();
        assert_eq!((ends.0.port, tcp), (0, Tcp::default()));
    }
}
