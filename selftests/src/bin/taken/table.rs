// SPDX-License-Identifier: GPL-2.0
//! Somebody in the kernel gives a socket another operations table, and the file is closed by that: what the family has
//! of the socket goes all the same, and soon, whatever the socket was.

use super::listener;
use st::errno::Errno;
use st::family::Ip;
use st::fd::Fd;
use st::netlink::{attribute, Generic};
use st::point::{Point, T};
use st::{guest, net, path, smcinfo, sys};
use std::net::{Ipv4Addr, SocketAddr};

/// The points of this file.
pub const LIST: &[Point] = &[
    point!("table.fallback", fallback),
    point!("table.path", cold_path),
    point!("table.local", local),
    point!("table.connecting", connecting),
    point!("table.returned", returned),
    point!("ovpn", ovpn),
];

/// Gives the socket TCP's table.
fn take(fd: &Fd) -> Result<(), String> {
    // SAFETY: No pointers.
    unsafe { libc::fcntl(fd.raw(), libc::F_SETFD, 0) };
    let out = std::process::Command::new("insmod")
        .arg("/rsmc/kmod/intrude.ko")
        .args([format!("fd={}", fd.raw()), "table=1".into()])
        .output()
        .map_err(|e| format!("insmod: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    // SAFETY: No pointers.
    unsafe { libc::fcntl(fd.raw(), libc::F_SETFD, libc::FD_CLOEXEC) };
    match said.to_lowercase().contains("cancel") {
        true => Ok(()),
        false => Err(format!("intrude: {said}")),
    }
}

/// Sockets of the family that the namespace counts.
fn counted() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/protocols").expect("protocols");
    let rows = text.lines().filter(|line| line.contains("SMC"));
    let sockets = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    rows.filter_map(sockets).sum()
}

/// Does something with sockets, takes those that it returns, closes them, and waits until nothing is left of them.
fn gone(t: &mut T, make: impl FnOnce(&mut T) -> Vec<Fd>) {
    gone_but(t, 0, take, make);
}

/// As [`gone`], but for a number of sockets that live on.
fn gone_but(
    t: &mut T,
    living: u64,
    take: impl Fn(&Fd) -> Result<(), String>,
    make: impl FnOnce(&mut T) -> Vec<Fd>,
) {
    // Sockets that somebody may have taken are looked at as often.
    net::sysctl("net.smc.hook_idle_ms", "250").expect("sysctl");
    let before = smcinfo::references();
    let taken = make(t);
    for fd in &taken {
        t.is("taken", take(fd), Ok(()));
    }
    t.check("counted while they live", counted() >= taken.len() as u64);
    drop(taken);
    let most = before.map(|before| before + living as i64);
    let settled = smcinfo::settled(most, sys::patient(10_000));
    t.is("references to the module", settled, Ok(()));
    t.is("sockets", counted(), living);
}

fn connection(client: Fd, server: Fd) -> (Fd, Fd) {
    let (l, at) = listener(server, Ip::V4, 8);
    sys::connect(client.raw(), &at).expect("connect");
    let accepted = sys::accept(l.raw()).expect("accept");
    (client, accepted)
}

fn tcp() -> Fd {
    sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("socket")
}

/// Connections that became TCP.
fn fallback(t: &mut T) {
    gone(t, |t| {
        let (client, _other) = connection(t.socket(), tcp());
        let (_another, accepted) = connection(tcp(), t.socket());
        vec![client, accepted]
    });
}

/// Connections that began as TCP.
fn cold_path(t: &mut T) {
    gone(t, |t| {
        t.is("path", path::local(1), Ok(true));
        let (client, server) = connection(t.socket(), t.socket());
        vec![client, server]
    });
}

/// A connection in memory, of which one end is taken: the other one sees its end.
fn local(t: &mut T) {
    let mut other = None;
    gone_but(t, 1, take, |t| {
        t.is("path", path::local(1), Ok(true));
        let (client, server) = connection(t.socket(), t.socket());
        t.is("local path", path::prove_local(&client, &server), Ok(()));
        other = Some(server);
        vec![client]
    });
    let server = other.expect("server");
    sys::poll_until(server.raw(), libc::POLLIN, 2000);
    let end = sys::recv_vec(server.raw(), 8, libc::MSG_DONTWAIT);
    t.check(
        &format!("end: {end:?}"),
        end.as_ref().map_or(true, Vec::is_empty),
    );
}

/// An attempt that nobody answers, whose end is waited for on the socket's wait queue.
fn connecting(t: &mut T) {
    gone(t, |t| {
        let client = t.socket();
        sys::nonblock(client.raw(), true);
        let begun = sys::connect(client.raw(), &guest::sockaddr(true, Ip::V4, 7));
        t.is("connect", begun, Err(Errno(libc::EINPROGRESS)));
        vec![client]
    });
}

/// One that is TCP's again by an option: it is not looked for as rarely as the others.
fn returned(t: &mut T) {
    net::sysctl("net.smc.hook_idle_ms", "3600000").expect("sysctl");
    let before = smcinfo::references();
    let (_l, at) = listener(tcp(), Ip::V4, 8);
    let client = sys::socket(libc::AF_INET6, libc::SOCK_STREAM, 256).expect("socket");
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let at = SocketAddr::new(mapped.into(), at.port());
    sys::connect(client.raw(), &at).expect("connect");
    t.is("counted", counted(), 1);
    let given = sys::setopt(
        client.raw(),
        libc::IPPROTO_IPV6,
        libc::IPV6_ADDRFORM,
        libc::AF_INET,
    );
    t.is("IPV6_ADDRFORM", given, Ok(0));
    t.is("counted", counted(), 0);
    sys::sleep_ms(600);
    t.check("kept while it lives", smcinfo::references() > before);
    drop(client);
    let settled = smcinfo::settled(before, sys::patient(10_000));
    t.is("references to the module", settled, Ok(()));
}

/// Gives the connection to a device of ovpn's.
fn tunnel(fd: &Fd) -> Result<(), String> {
    const NEW_PEER: u8 = 1;
    const NESTED: u16 = 0x8000;
    net::ip("link add ovpn0 type ovpn")?;
    // SAFETY: A text that ends with a NUL.
    let index = unsafe { libc::if_nametoindex(c"ovpn0".as_ptr()) };
    let number = |kind, value: u32| attribute(kind, &value.to_ne_bytes());
    // Its number and the socket.
    let peer = [number(1, 7), number(6, fd.raw() as u32)].concat();
    let body = [number(1, index), attribute(2 | NESTED, &peer)].concat();
    let ovpn = Generic::open("ovpn").map_err(|e| e.to_string())?;
    ovpn.act(NEW_PEER, &body).map_err(|e| e.to_string())
}

/// A tunnel of OpenVPN's kernel part, whose program ends.
fn ovpn(t: &mut T) {
    if net::sh("modprobe ovpn").is_err() {
        return t.say("skip: no ovpn");
    }
    gone_but(t, 0, tunnel, |t| {
        let (client, other) = connection(t.socket(), tcp());
        // Open until this process ends.
        other.into_raw();
        vec![client]
    });
}
