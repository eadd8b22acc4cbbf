// SPDX-License-Identifier: GPL-2.0
//! What others see of a socket: /proc/net/tcp, inet_diag (`ss`), and the group of listeners that a BPF
//! program chooses from.

use crate::ctx::T;
use st::bpf;
use st::errno::{Errno, R};
use st::family::Ip;
use st::fd::Fd;
use st::sys;
use std::net::{IpAddr, SocketAddr};

crate::scenarios!(
    seen_in_proc,
    seen_by_diag,
    seen_destroyed,
    seen_incoming_cpu,
    seen_group_by_program,
    seen_group_by_extended,
);

const SOCKET: i32 = libc::SOL_SOCKET;

/// The states of the sockets with this local or remote port, sorted: the listener's, and two of a connection.
fn in_proc(t: &T, port: u16) -> String {
    let file = match t.ip {
        Ip::V4 => "/proc/thread-self/net/tcp",
        _ => "/proc/thread-self/net/tcp6",
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let port = format!(":{port:04X}");
    let mut found: Vec<&str> = text
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
            (local.ends_with(&port) || remote.ends_with(&port)).then_some(state)
        })
        .collect();
    found.sort_unstable();
    found.join(" ")
}

/// The request for all TCP sockets of `NETLINK_SOCK_DIAG`.
fn dump(t: &T) -> Vec<u8> {
    let family = match t.ip {
        Ip::V4 => libc::AF_INET,
        _ => libc::AF_INET6,
    };
    let mut request = vec![0u8; 72];
    request[..4].copy_from_slice(&72u32.to_ne_bytes());
    // SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP
    request[4..6].copy_from_slice(&20u16.to_ne_bytes());
    request[6..8].copy_from_slice(&0x301u16.to_ne_bytes());
    request[16] = family as u8;
    request[17] = libc::IPPROTO_TCP as u8;
    request[20..24].fill(0xff);
    request
}

/// The same by `NETLINK_SOCK_DIAG`.
fn by_diag(t: &T, port: u16) -> R<String> {
    let nl = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, 4)?;
    sys::send(nl.raw(), &dump(t), 0)?;
    let mut found = Vec::new();
    loop {
        let answer = sys::recv_vec(nl.raw(), 65536, 0)?;
        let mut rest = &answer[..];
        while rest.len() >= 16 {
            let len = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let kind = u16::from_ne_bytes([rest[4], rest[5]]);
            if kind != 20 || len < 16 + 8 || len > rest.len() {
                found.sort_unstable();
                return Ok(format!("{found:?}"));
            }
            let body = &rest[16..len];
            let ports = [[body[4], body[5]], [body[6], body[7]]].map(u16::from_be_bytes);
            if ports.contains(&port) {
                found.push(body[1]);
            }
            rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        }
    }
}

fn seen_in_proc(t: &mut T) {
    let (l, a) = t.listener();
    t.rec("listener", in_proc(t, a.port()));
    let (c, s) = t.pair_on(&l, &a);
    t.rec("connection", in_proc(t, a.port()));
    sys::shutdown(c.raw(), libc::SHUT_WR).unwrap();
    sys::recv_all(s.raw(), 8).unwrap();
    sys::sleep_ms(150); // longer than a delayed ACK
    t.rec("half closed", in_proc(t, a.port()));
}

fn seen_by_diag(t: &mut T) {
    let (l, a) = t.listener();
    t.res("listener", &by_diag(t, a.port()));
    let _pair = t.pair_on(&l, &a);
    t.res("connection", &by_diag(t, a.port()));
}

fn seen_incoming_cpu(t: &mut T) {
    let (c, s) = t.pair();
    sys::send_all(c.raw(), b"some").unwrap();
    sys::recv_all(s.raw(), 4).unwrap();
    let of = |fd: &Fd| sys::getopt(fd.raw(), SOCKET, libc::SO_INCOMING_CPU).map(|cpu| cpu >= 0);
    t.res("client", &of(&c));
    t.res("server", &of(&s));
    let set = sys::setopt(c.raw(), SOCKET, libc::SO_INCOMING_CPU, 0);
    t.res("set", &set);
}

/// Ends a connection (`SOCK_DESTROY`, as `ss --kill`).
fn destroy(t: &T, fd: &Fd) -> R<()> {
    const INET_DIAG_NOCOOKIE: u32 = u32::MAX;
    let nl = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, 4)?;
    let mut request = dump(t);
    let (local, remote) = (sys::sockname(fd.raw())?, sys::peername(fd.raw())?);
    // SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK
    request[4..6].copy_from_slice(&21u16.to_ne_bytes());
    request[6..8].copy_from_slice(&0x5u16.to_ne_bytes());
    request[24..26].copy_from_slice(&local.port().to_be_bytes());
    request[26..28].copy_from_slice(&remote.port().to_be_bytes());
    for (at, end) in [(28, local), (44, remote)] {
        match end.ip() {
            IpAddr::V4(ip) => request[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => request[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    request[64..68].copy_from_slice(&INET_DIAG_NOCOOKIE.to_ne_bytes());
    request[68..72].copy_from_slice(&INET_DIAG_NOCOOKIE.to_ne_bytes());
    sys::send(nl.raw(), &request, 0)?;
    let answer = sys::recv_vec(nl.raw(), 4096, 0)?;
    let error = answer.get(16..20).and_then(|e| e.try_into().ok());
    match i32::from_ne_bytes(error.unwrap_or_default()) {
        0 => Ok(()),
        e => Err(Errno(-e)),
    }
}

/// A reset by the administrator, while the peer has a byte that it has not read.
fn seen_destroyed(t: &mut T) {
    let (c, s) = t.pair();
    t.res("send", &sys::send(c.raw(), b"last", 0));
    sys::sleep_ms(50);
    t.ok("destroy", &destroy(t, &c));
    sys::sleep_ms(50);
    for (name, fd) in [("client", &c), ("server", &s)] {
        for _ in 0..3 {
            t.bytes(
                &format!("{name} recv"),
                &sys::recv_vec(fd.raw(), 16, libc::MSG_DONTWAIT),
            );
        }
        t.res(&format!("{name} send"), &sys::send(fd.raw(), b"x", 0));
    }
}

/// A group of listeners of which the program that `set` gives the first chooses one.
fn group(t: &mut T, set: impl Fn(&Fd) -> R<i64>) {
    let mut at = SocketAddr::new(st::addr::loopback(t.ip), 0);
    let mut group = Vec::new();
    for _ in 0..3 {
        let l = t.socket();
        t.res(
            "REUSEPORT",
            &sys::setopt(l.raw(), SOCKET, libc::SO_REUSEPORT, 1),
        );
        t.res("bind", &sys::bind(l.raw(), &at));
        at = sys::sockname(l.raw()).unwrap();
        t.res("listen", &sys::listen(l.raw(), 8));
        sys::nonblock(l.raw(), true);
        group.push(l);
    }
    t.res("program", &set(&group[0]));
    let clients: Vec<Fd> = (0..6)
        .map(|_| {
            let c = t.socket();
            t.res("connect", &sys::connect(c.raw(), &at));
            c
        })
        .collect();
    sys::sleep_ms(200);
    for (number, l) in group.iter().enumerate() {
        let mut taken = 0;
        while sys::accept(l.raw()).is_ok() {
            taken += 1;
        }
        t.rec(&format!("accepted by {number}"), taken);
    }
    drop(clients);
}

fn seen_group_by_program(t: &mut T) {
    const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;
    group(t, |first| {
        // BPF_RET | BPF_K: always the one with number 1.
        let code = [0x06u64 | (1 << 32)];
        let mut program = [0u8; 16];
        program[..2].copy_from_slice(&1u16.to_ne_bytes());
        program[8..].copy_from_slice(&(code.as_ptr() as u64).to_ne_bytes());
        sys::setopt_raw(first.raw(), SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program)
    });
}

/// By a program of BPF's extended kind, which returns the same.
fn seen_group_by_extended(t: &mut T) {
    const SO_ATTACH_REUSEPORT_EBPF: i32 = 52;
    const SOCKET_FILTER: u32 = 1;
    let code = [bpf::insn(0xb7, 0, 0, 0, 2), 0x95];
    group(t, |first| {
        let program = bpf::load(SOCKET_FILTER, 0, &code)?;
        sys::setopt(first.raw(), SOCKET, SO_ATTACH_REUSEPORT_EBPF, program.raw())
    });
}
