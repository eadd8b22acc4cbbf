// SPDX-License-Identifier: GPL-2.0
//! BPF programs of a control group that decide about sockets: when they are made, connected, established, and
//! have options set.

use crate::ctx::T;
use st::bpf::{self, insn};
use st::cgroup::Hierarchy;
use st::family::Ip;
use st::fd::Fd;
use st::sys;
use std::os::fd::AsRawFd;

crate::scenarios!(
    cgroup_create,
    cgroup_connect,
    cgroup_sockops,
    cgroup_options,
);

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const MARK: i32 = 77;

/// Leaves the cgroup again, whatever happens.
struct Inside(Hierarchy);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A cgroup of this process, with programs: type, way to attach, instructions. `None` (recorded) where the
/// kernel has none of that type.
fn inside(t: &mut T, programs: &[(u32, u32, &[u64])]) -> Option<Inside> {
    let all = Hierarchy::new().expect("cgroup");
    let group = std::fs::File::open(all.inside()).expect("cgroup");
    for (kind, way, code) in programs {
        let set = bpf::load(*kind, *way, code)
            .and_then(|program| bpf::attach(group.as_raw_fd(), &program, *way));
        t.ok("program", &set);
        set.ok()?;
    }
    all.enter().expect("into the cgroup");
    Some(Inside(all))
}

const EXIT: u64 = 0x95;

/// It forbids sockets that are not TCP's, and marks the others.
fn cgroup_create(t: &mut T) {
    const CGROUP_SOCK: u32 = 9;
    const SOCK_CREATE: u32 = 2;
    let code = [
        // r2 = protocol
        insn(0x61, 2, 1, 12, 0),
        insn(0x15, 2, 0, 2, TCP),
        insn(0xb7, 0, 0, 0, 0),
        EXIT,
        // mark = MARK
        insn(0xb7, 2, 0, 0, MARK),
        insn(0x63, 1, 2, 16, 0),
        insn(0xb7, 0, 0, 0, 1),
        EXIT,
    ];
    let Some(_inside) = inside(t, &[(CGROUP_SOCK, SOCK_CREATE, &code)]) else {
        return;
    };
    let udp = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
    t.ok("a datagram socket", &udp);
    let (domain, protocol) = t.family.triple(t.ip);
    let made = sys::socket(domain, libc::SOCK_STREAM, protocol);
    t.ok("a stream socket", &made);
    let Ok(made) = made else { return };
    t.res("mark", &sys::getopt(made.raw(), SOCKET, libc::SO_MARK));
    let (c, s) = t.pair();
    for fd in [&c, &s] {
        t.res("mark", &sys::getopt(fd.raw(), SOCKET, libc::SO_MARK));
    }
}

/// It sends connections to another port.
fn cgroup_connect(t: &mut T) {
    const SOCK_ADDR: u32 = 18;
    let way = if t.ip == Ip::V4 { 10 } else { 11 };
    let (l, a) = t.listener();
    let closed = t.closed_port();
    let code = [
        insn(0xb7, 2, 0, 0, i32::from(a.port().to_be())),
        insn(0x63, 1, 2, 24, 0),
        insn(0xb7, 0, 0, 0, 1),
        EXIT,
    ];
    let Some(redirected) = inside(t, &[(SOCK_ADDR, way, &code)]) else {
        return;
    };
    let c = t.socket();
    t.res("connect", &sys::connect(c.raw(), &closed));
    let s = sys::accept(l.raw()).unwrap();
    let peer = sys::peername(c.raw());
    t.rec(
        "the listener's port",
        peer.is_ok_and(|p| p.port() == a.port()),
    );
    t.prove("client", &c);
    t.prove("server", &s);
    t.res("send", &sys::send(c.raw(), b"sent on", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 16, 0));
    // "Refused"
    let no = [insn(0xb7, 0, 0, 0, 0), EXIT];
    drop(redirected);
    let Some(_refused) = inside(t, &[(SOCK_ADDR, way, &no)]) else {
        return;
    };
    let c = t.socket();
    t.res("refused", &sys::connect(c.raw(), &a));
    t.so_error("SO_ERROR", c.raw());
}

/// It marks connections that are established, at either end.
fn cgroup_sockops(t: &mut T) {
    const SOCK_OPS: u32 = 13;
    const WAY: u32 = 3;
    let code = [
        insn(0xbf, 6, 1, 0, 0),
        insn(0x61, 2, 1, 0, 0),
        // BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB
        insn(0x15, 2, 0, 3, 4),
        insn(0x15, 2, 0, 2, 5),
        insn(0xb7, 0, 0, 0, 1),
        EXIT,
        // bpf_setsockopt(ctx, SOL_SOCKET, SO_MARK, &MARK, 4)
        insn(0x62, 10, 0, -4, MARK),
        insn(0xbf, 1, 6, 0, 0),
        insn(0xb7, 2, 0, 0, SOCKET),
        insn(0xb7, 3, 0, 0, libc::SO_MARK),
        insn(0xbf, 4, 10, 0, 0),
        insn(0x07, 4, 0, 0, -4),
        insn(0xb7, 5, 0, 0, 4),
        insn(0x85, 0, 0, 0, 49),
        insn(0xb7, 0, 0, 0, 1),
        EXIT,
    ];
    let Some(_inside) = inside(t, &[(SOCK_OPS, WAY, &code)]) else {
        return;
    };
    let (c, s) = t.pair();
    for fd in [&c, &s] {
        t.res("mark", &sys::getopt(fd.raw(), SOCKET, libc::SO_MARK));
    }
    t.res("send", &sys::send(c.raw(), b"marked", 0));
    t.bytes("recv", &sys::recv_vec(s.raw(), 16, 0));
}

/// It forbids `TCP_NODELAY` to be set, and to be asked for.
fn cgroup_options(t: &mut T) {
    const SOCKOPT: u32 = 25;
    let code = [
        // level, optname
        insn(0x61, 2, 1, 24, 0),
        insn(0x61, 3, 1, 28, 0),
        insn(0xb7, 0, 0, 0, 1),
        insn(0x55, 2, 0, 2, TCP),
        insn(0x55, 3, 0, 1, libc::TCP_NODELAY),
        insn(0xb7, 0, 0, 0, 0),
        EXIT,
    ];
    let Some(_inside) = inside(t, &[(SOCKOPT, 21, &code), (SOCKOPT, 22, &code)]) else {
        return;
    };
    let look = |t: &mut T, what: &str, fd: &Fd| {
        for option in [libc::TCP_NODELAY, libc::TCP_KEEPIDLE, libc::TCP_CORK] {
            let set = sys::setopt(fd.raw(), TCP, option, 1);
            t.res(&format!("{what} set {option}"), &set);
            let get = sys::getopt(fd.raw(), TCP, option);
            t.res(&format!("{what} get {option}"), &get);
            let _ = sys::setopt(fd.raw(), TCP, option, 0);
        }
    };
    let fresh = t.socket();
    look(t, "fresh", &fresh);
    let (c, s) = t.pair();
    look(t, "client", &c);
    look(t, "server", &s);
}
