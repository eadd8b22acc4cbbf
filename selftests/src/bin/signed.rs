// SPDX-License-Identifier: GPL-2.0
//! Connections that TCP signs (TCP-MD5, RFC 2385; TCP-AO, RFC 5925): the SMC option is left out, the
//! connection is TCP's and carries bytes, and who has not the key stays outside as ever.
//!
//! `signed [--family inet,smc] [--ip v4,v6] [PREFIX..]`

use st::addr;
use st::errno::Errno;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::packet::{options, smc_options, Seg, ACK, SYN};
use st::point::{Point, T};
use st::rawpeer::Wire;
use st::{net, smcinfo, sys};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// `TCP_AO_ADD_KEY`.
const TCP_AO_ADD_KEY: i32 = 38;
/// The fallback's reason when the peer did not offer SMC, and without a device.
const PEERNOSMC: u32 = 0x0301_0000;
const NOSMCDEV: u32 = 0x0303_0000;
const PORT: u16 = 6600;

/// Signature of the connections.
#[derive(Clone, Copy)]
enum Scheme {
    Md5,
    Ao,
}

impl Scheme {
    /// The kind of TCP option.
    fn option(self) -> u8 {
        match self {
            Scheme::Md5 => 19,
            Scheme::Ao => 29,
        }
    }

    /// Gives a socket the key for all connections with a peer.
    fn key(self, fd: &Fd, peer: IpAddr, key: &[u8]) -> Result<i64, Errno> {
        let name = addr::encode(&SocketAddr::new(peer, 0));
        let (option, value) = match self {
            Scheme::Md5 => {
                // `struct tcp_md5sig`: address, flags, prefix, length, interface, key.
                let mut value = vec![0u8; 216];
                value[..name.len()].copy_from_slice(&name);
                value[130] = key.len() as u8;
                value[136..136 + key.len()].copy_from_slice(key);
                (libc::TCP_MD5SIG, value)
            }
            Scheme::Ao => {
                // `struct tcp_ao_add`: address, algorithm, interface, flags, reserved, prefix, ids,
                // lengths, key.
                let mut value = vec![0u8; 288];
                value[..name.len()].copy_from_slice(&name);
                value[128..138].copy_from_slice(b"hmac(sha1)");
                value[202] = if peer.is_ipv4() { 32 } else { 128 };
                value[203] = 100;
                value[204] = 100;
                value[207] = key.len() as u8;
                value[208..208 + key.len()].copy_from_slice(key);
                (TCP_AO_ADD_KEY, value)
            }
        };
        sys::setopt_raw(fd.raw(), libc::IPPROTO_TCP, option, &value)
    }

    /// Returns the names of the counters of segments with a wrong signature, and of those without one.
    fn counters(self) -> [&'static str; 2] {
        match self {
            Scheme::Md5 => ["TCPMD5Failure", "TCPMD5NotFound"],
            Scheme::Ao => ["TCPAOBad", "TCPAORequired"],
        }
    }
}

const LIST: &[Point] = &[
    point("md5.both", |t| both(t, Scheme::Md5)),
    point("md5.plain_client", |t| plain_client(t, Scheme::Md5)),
    point("md5.plain_server", |t| plain_server(t, Scheme::Md5)),
    point("md5.plain_both", |t| plain_both(t, Scheme::Md5)),
    point("md5.wrong_key", |t| wrong_key(t, Scheme::Md5)),
    point("md5.no_key", |t| no_key(t, Scheme::Md5)),
    point("md5.key_for_others", |t| key_for_others(t, Scheme::Md5)),
    point("ao.both", |t| both(t, Scheme::Ao)),
    point("ao.plain_client", |t| plain_client(t, Scheme::Ao)),
    point("ao.plain_server", |t| plain_server(t, Scheme::Ao)),
    point("ao.plain_both", |t| plain_both(t, Scheme::Ao)),
    point("ao.wrong_key", |t| wrong_key(t, Scheme::Ao)),
    point("ao.no_key", |t| no_key(t, Scheme::Ao)),
    point("ao.key_for_others", |t| key_for_others(t, Scheme::Ao)),
];

const fn point(name: &'static str, run: fn(&mut T)) -> Point {
    Point { name, run }
}

fn patience() -> u64 {
    10_000 * st::guest::slow()
}

fn socket(family: Family, ip: Ip) -> Fd {
    let (domain, protocol) = family.triple(ip);
    let fd = sys::socket(domain, libc::SOCK_STREAM, protocol).expect("socket");
    let _ = sys::set_timeo(fd.raw(), libc::SO_RCVTIMEO, patience() as i64);
    fd
}

/// A listener on loopback, and a socket to call it with.
fn ends(t: &T, client: Family, server: Family) -> (Fd, Fd, SocketAddr) {
    let at = SocketAddr::new(addr::loopback(t.ip), PORT);
    let (client, server) = (socket(client, t.ip), socket(server, t.ip));
    sys::bind(server.raw(), &at).expect("bind");
    sys::listen(server.raw(), 8).expect("listen");
    (client, server, at)
}

/// The first SYN and SYN-ACK that a tap on loopback has seen.
fn handshake(tap: &Wire) -> [Seg; 2] {
    [SYN, SYN | ACK].map(|flags| {
        tap.next(patience(), |s| s.flags & (SYN | ACK) == flags)
            .expect("no handshake seen")
    })
}

/// Notes whether bytes pass both ways.
fn bytes_pass(t: &mut T, client: &Fd, server: &Fd) {
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    for (what, from, to) in [("to", client, server), ("from", server, client)] {
        t.is(what, sys::send_all(from.raw(), &bytes), Ok(()));
        let got = sys::recv_all(to.raw(), bytes.len());
        t.check(
            &format!("bytes {what} the server"),
            got.as_ref() == Ok(&bytes),
        );
    }
}

/// Notes why an SMC socket is TCP.
fn because(t: &mut T, what: &str, fd: &Fd, reason: u32) {
    let info = smcinfo::info(fd.raw()).map(|i| (i.mode, i.reason));
    t.is(what, info, Ok((smcinfo::MODE_TCP, reason)));
}

/// A connection whose ends have the key.
fn agreed(t: &mut T, scheme: Scheme, client: Family, server: Family) {
    let tap = Wire::open("lo").expect("packet socket");
    let (caller, listener, at) = ends(t, client, server);
    for fd in [&caller, &listener] {
        t.is("key", scheme.key(fd, at.ip(), b"secret"), Ok(0));
    }
    t.is("connect", sys::connect(caller.raw(), &at), Ok(0));
    let accepted = sys::accept(listener.raw()).expect("accept");
    for (what, seg) in ["SYN", "SYN-ACK"].iter().zip(handshake(&tap)) {
        let all = options(&seg.opts).unwrap_or_default();
        let signed = all.iter().any(|o| o.0 == scheme.option());
        t.check(&format!("{what} is signed: {all:02x?}"), signed);
        t.is(&format!("{what}: SMC options"), smc_options(&seg.opts), 0);
        t.check("no experiments", all.iter().all(|o| o.0 < 253));
    }
    bytes_pass(t, &caller, &accepted);
    if client != Family::Tcp {
        because(t, "client", &caller, PEERNOSMC);
    }
    if server != Family::Tcp {
        because(t, "server", &accepted, PEERNOSMC);
    }
}

fn both(t: &mut T, scheme: Scheme) {
    agreed(t, scheme, t.family, t.family);
}

fn plain_client(t: &mut T, scheme: Scheme) {
    agreed(t, scheme, Family::Tcp, t.family);
}

fn plain_server(t: &mut T, scheme: Scheme) {
    agreed(t, scheme, t.family, Family::Tcp);
}

/// TCP sockets in a namespace with SMC sockets.
fn plain_both(t: &mut T, scheme: Scheme) {
    let smc = socket(t.family, t.ip);
    sys::listen(smc.raw(), 1).expect("listen");
    agreed(t, scheme, Family::Tcp, Family::Tcp);
}

/// Nobody is let in, and the kernel says for which reason.
fn refused(t: &mut T, caller: &Fd, listener: &Fd, at: &SocketAddr, name: &str) {
    let before = net::tcp_ext(name);
    sys::nonblock(caller.raw(), true);
    let started = sys::connect(caller.raw(), at);
    t.is("connect", started, Err(Errno(libc::EINPROGRESS)));
    let end = Instant::now() + Duration::from_millis(patience());
    // Twice: the option is not to be tried without a signature either.
    while net::tcp_ext(name) < before + 2 && Instant::now() < end {
        sys::sleep_ms(10);
    }
    t.check(&format!("{name} counts"), net::tcp_ext(name) >= before + 2);
    let events = sys::poll1(caller.raw(), libc::POLLOUT, 0);
    t.is("the client still waits", events, Ok(0));
    let events = sys::poll1(listener.raw(), libc::POLLIN, 0);
    t.is("nobody to accept", events, Ok(0));
}

fn wrong_key(t: &mut T, scheme: Scheme) {
    let (caller, listener, at) = ends(t, t.family, t.family);
    t.is("key", scheme.key(&caller, at.ip(), b"guess"), Ok(0));
    t.is("key", scheme.key(&listener, at.ip(), b"secret"), Ok(0));
    refused(t, &caller, &listener, &at, scheme.counters()[0]);
}

fn no_key(t: &mut T, scheme: Scheme) {
    let (caller, listener, at) = ends(t, t.family, t.family);
    t.is("key", scheme.key(&listener, at.ip(), b"secret"), Ok(0));
    refused(t, &caller, &listener, &at, scheme.counters()[1]);
}

/// Keys for other peers do not matter: SMC is negotiated, and there is no device here.
fn key_for_others(t: &mut T, scheme: Scheme) {
    let tap = Wire::open("lo").expect("packet socket");
    let (caller, listener, at) = ends(t, t.family, t.family);
    let other: IpAddr = match at.ip() {
        IpAddr::V4(_) => [192, 0, 2, 1].into(),
        IpAddr::V6(_) => "2001:db8::1".parse().expect("address"),
    };
    t.is("key", scheme.key(&listener, other, b"secret"), Ok(0));
    t.is("connect", sys::connect(caller.raw(), &at), Ok(0));
    let accepted = sys::accept(listener.raw()).expect("accept");
    for seg in handshake(&tap) {
        t.is("SMC options", smc_options(&seg.opts), 1);
    }
    bytes_pass(t, &caller, &accepted);
    because(t, "client", &caller, NOSMCDEV);
}

fn main() {
    st::point::main(&[LIST], 1);
}
