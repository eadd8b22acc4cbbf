// SPDX-License-Identifier: GPL-2.0
//! Reasons that need no RDMA device: what TCP's handshake says, and what a host without a device
//! answers.

use crate::host::Role;
use crate::told::{self, ALL};
use st::errno::Errno;
use st::fd::Fd;
use st::packet::{self, SMC_OPTION};
use st::point::{Point, T};
use st::rawpeer::{wire_addr, Peer, Wire, MSS};
use st::{clc, net, sys};
use std::net::SocketAddr;
use std::time::Instant;

/// Points of `tcp.`.
pub const LIST: &[Point] = &[
    point!("tcp.client.no_option", client_no_option),
    point!("tcp.client.option_echoed", client_option_echoed),
    point!("tcp.client.no_device", client_no_device),
    point!("tcp.client.fast_open", client_fast_open),
    point!("tcp.client.strict", client_strict),
    point!("tcp.signed", signed),
    point!("tcp.server.no_option", server_no_option),
    point!("tcp.server.syn_cookies", server_syn_cookies),
    point!("tcp.server.migrating", server_migrating),
    point!("tcp.server.not_clc", server_not_clc),
    point!("tcp.server.silence", server_silence),
    point!("tcp.server.no_device", server_no_device),
    point!("tcp.server.declined", server_declined),
    point!("tcp.server.busy", server_busy),
];

/// Where the packet host listens.
const FAKE: u16 = 7700;
/// Where the module does.
const REAL: u16 = 6600;

fn wire() -> &'static Wire {
    Box::leak(Box::new(Wire::open("vb").expect("packet socket")))
}

/// The module's client, and the packet host that has its SYN.
fn called(t: &T, wire: &'static Wire) -> (Fd, Peer<'static>) {
    let fd = t.socket();
    sys::nonblock(fd.raw(), true);
    let to = SocketAddr::new(wire_addr(true, t.ip), FAKE);
    assert_eq!(
        sys::connect(fd.raw(), &to),
        Err(Errno(libc::EINPROGRESS)),
        "connect"
    );
    let peer = Peer::wait_syn(wire, t.ip, FAKE, 4000).expect("no SYN");
    (fd, peer)
}

fn listen(t: &T) -> Fd {
    let listener = t.socket();
    let at = SocketAddr::new(wire_addr(false, t.ip), REAL);
    sys::bind(listener.raw(), &at).expect("bind");
    sys::listen(listener.raw(), 64).expect("listen");
    listener
}

fn calls(t: &T, wire: &'static Wire, from: u16, option: &[u8]) -> Peer<'static> {
    Peer::connect(wire, t.ip, from, REAL, option).expect("no SYN-ACK")
}

fn accepted(listener: &Fd) -> Fd {
    sys::poll_until(listener.raw(), libc::POLLIN, 15_000 * st::guest::slow());
    sys::accept(listener.raw()).expect("accept")
}

/// The reason that the server gives for its decline.
fn answer(peer: &mut Peer<'_>) -> u32 {
    let m = clc::read(peer, 5000).unwrap_or_default();
    clc::diagnosis(&m).unwrap_or_default()
}

/// A listener's program does nothing for a while: its queue overflows. Who was offered SMC and found
/// no room is told in time, later clients are not offered it, and no connection ends. Once
/// there is room, it is offered again.
fn server_busy(t: &mut T) {
    const BACKLOG: usize = 1;
    let listener = t.socket();
    let at = SocketAddr::new(wire_addr(false, t.ip), REAL);
    sys::bind(listener.raw(), &at).expect("bind");
    sys::listen(listener.raw(), BACKLOG as i32).expect("listen");
    let wire = wire();
    let offers = |peer: &Peer<'_>| peer.syn.opts.windows(4).any(|o| o == &SMC_OPTION[..4]);
    let begun = Instant::now();
    // One place more than the backlog, for connections that are ready and in TCP's queue.
    let mut peers = vec![];
    let mut told = vec![];
    for n in 0..2 * (BACKLOG as u16 + 1) {
        let mut peer = calls(t, wire, 20000 + n, &SMC_OPTION);
        peer.send(&clc::proposal_v1());
        if usize::from(n) <= BACKLOG {
            told.push(answer(&mut peer));
        }
        peers.push(peer);
    }
    t.is("offered", peers.iter().filter(|p| offers(p)).count(), 4);
    told.extend(peers[BACKLOG + 1..].iter_mut().map(answer));
    let (plain, busy) = (told::code("NOSMCDEV"), told::code("BUSY"));
    t.is("told", told, vec![plain, plain, busy, busy]);
    let ms = begun.elapsed().as_millis();
    t.check(
        &format!("within {ms} ms"),
        (1500..20_000 * u128::from(st::guest::slow())).contains(&ms),
    );
    let late = calls(t, wire, 20100, &SMC_OPTION);
    t.check("not offered while busy", !offers(&late));
    peers.push(late);
    for (n, peer) in peers.iter_mut().enumerate() {
        peer.send(&[n as u8]);
    }
    for n in 0..peers.len() {
        let fd = accepted(&listener);
        let got = sys::recv_vec(fd.raw(), 8, 0).ok();
        t.is("in order, to the byte", got, Some(vec![n as u8]));
        if n == 3 {
            told::own(t, Role::Client, &fd, "BUSY");
        }
    }
    let again = (0..60).any(|n| {
        sys::sleep_ms(50);
        let peer = calls(t, wire, 20200 + n, &SMC_OPTION);
        sys::nonblock(listener.raw(), true);
        let _ = sys::accept(listener.raw());
        offers(&peer)
    });
    t.check("offered again", again);
}

fn client_no_option(t: &mut T) {
    let (fd, mut peer) = called(t, wire());
    t.check("ACK", peer.syn_ack(&[]));
    told::own(t, Role::Server, &fd, "PEERNOSMC");
}

/// The canary shows that the peer returns what it does not understand.
fn client_option_echoed(t: &mut T) {
    let (fd, mut peer) = called(t, wire());
    let all = packet::options(&peer.syn.opts).unwrap_or_default();
    let unknown: Vec<_> = all.iter().filter(|option| option.0 >= 253).collect();
    t.check(&format!("no canary in {all:02x?}"), unknown.len() >= 2);
    let echo = &peer.syn.opts[MSS.len()..].to_vec();
    t.check("ACK", peer.syn_ack(echo));
    told::own(t, Role::Server, &fd, "PEERNOSMC");
}

fn client_no_device(t: &mut T) {
    let (fd, mut peer) = called(t, wire());
    t.check("ACK", peer.syn_ack(&SMC_OPTION));
    told::own(t, Role::Server, &fd, "NOSMCDEV");
}

fn client_fast_open(t: &mut T) {
    let fd = t.socket();
    let set = sys::setopt(fd.raw(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1);
    t.is("set", set.ok(), Some(0));
    told::own(t, Role::Server, &fd, "OPTUNSUPP");
}

fn client_strict(t: &mut T) {
    net::sysctl("net.smc.strict", "1").expect("sysctl");
    let (fd, mut peer) = called(t, wire());
    peer.syn_ack(&[]);
    sys::poll_until(fd.raw(), libc::POLLERR, 4000 * st::guest::slow());
    let error = sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR);
    t.is("SO_ERROR", error.ok(), Some(libc::EPROTONOSUPPORT));
    told::refused(t, "PEERNOSMC");
}

/// Signatures take so much of a SYN that the option has no room.
fn signed(t: &mut T) {
    let listener = listen(t);
    let own = SocketAddr::new(wire_addr(false, t.ip), REAL);
    let client = t.socket();
    for fd in [&listener, &client] {
        // `struct tcp_md5sig`: address, flags, prefix, length and interface, key.
        let mut key = vec![0u8; 216];
        let (family, at, bytes) = match own.ip() {
            std::net::IpAddr::V4(a) => (libc::AF_INET, 4, a.octets().to_vec()),
            std::net::IpAddr::V6(a) => (libc::AF_INET6, 8, a.octets().to_vec()),
        };
        key[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        key[at..at + bytes.len()].copy_from_slice(&bytes);
        key[130] = 3;
        key[136..139].copy_from_slice(b"key");
        let set = sys::setopt_raw(fd.raw(), libc::IPPROTO_TCP, libc::TCP_MD5SIG, &key);
        t.is("TCP_MD5SIG", set.ok(), Some(0));
    }
    t.is("connect", sys::connect(client.raw(), &own).ok(), Some(0));
    let server = accepted(&listener);
    told::own(t, Role::Server, &client, "PEERNOSMC");
    told::own(t, Role::Client, &server, "PEERNOSMC");
}

fn server_no_option(t: &mut T) {
    let listener = listen(t);
    let _peer = calls(t, wire(), 2000, &[]);
    told::own(t, Role::Client, &accepted(&listener), "PEERNOSMC");
}

/// A cookie has no room for the option.
fn server_syn_cookies(t: &mut T) {
    net::sysctl("net.ipv4.tcp_syncookies", "2").expect("sysctl");
    let listener = listen(t);
    let mut peer = calls(t, wire(), 2000, &SMC_OPTION);
    peer.send(b"program");
    told::own(t, Role::Client, &accepted(&listener), "PEERNOSMC");
}

/// The connection may become that of a listener of another kind.
fn server_migrating(t: &mut T) {
    net::sysctl("net.ipv4.tcp_migrate_req", "1").expect("sysctl");
    let listener = t.socket();
    let at = SocketAddr::new(wire_addr(false, t.ip), REAL);
    let set = sys::setopt(listener.raw(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
    t.is("SO_REUSEPORT", set.ok(), Some(0));
    sys::bind(listener.raw(), &at).expect("bind");
    sys::listen(listener.raw(), 64).expect("listen");
    // On a loaded machine one of some tries is in time.
    let mut least = u128::MAX;
    for from in 2000..2005 {
        let start = Instant::now();
        let peer = calls(t, wire(), from, &SMC_OPTION);
        t.check("no option", packet::smc_options(&peer.syn.opts) == 0);
        let server = accepted(&listener);
        least = least.min(start.elapsed().as_millis());
        told::own(t, Role::Client, &server, "PEERNOSMC");
        if least < 4000 {
            break;
        }
    }
    t.check(&format!("waited {least} ms for a proposal"), least < 4000);
}

/// Something on the way has put the option into the SYN of a program that knows nothing of it.
fn server_not_clc(t: &mut T) {
    let listener = listen(t);
    let mut peer = calls(t, wire(), 2000, &SMC_OPTION);
    peer.send(b"GET / HTTP/1.0\r\n\r\n");
    told::own(t, Role::Client, &accepted(&listener), "PEERNOSMC");
}

/// Something on the way has kept the option of the SYN-ACK from the client, which waits.
fn server_silence(t: &mut T) {
    let listener = listen(t);
    let _peer = calls(t, wire(), 2000, &SMC_OPTION);
    told::own(t, Role::Client, &accepted(&listener), "PEERNOSMC");
}

fn server_no_device(t: &mut T) {
    let listener = listen(t);
    let mut peer = calls(t, wire(), 2000, &SMC_OPTION);
    peer.send(&clc::proposal_v1());
    told::own(t, Role::Client, &accepted(&listener), "NOSMCDEV");
}

/// A client that declines at once, with every code there is.
fn server_declined(t: &mut T) {
    let listener = listen(t);
    let wire = wire();
    let mut peers = vec![];
    let mut sockets = vec![];
    for (known, from) in ALL.into_iter().zip(2000..) {
        let mut peer = calls(t, wire, from, &SMC_OPTION);
        peer.send(&clc::decline(known.0, 1));
        peers.push(peer);
        sockets.push((accepted(&listener), known));
    }
    told::declined(t, Role::Client, &sockets);
}
