// SPDX-License-Identifier: GPL-2.0
//! Checks a socket that others have to do with, or that memory was short for: a sockmap that wants its
//! stream, a kernel's own accept(), a listener without hooks, a connect() that follows one that failed, one whose
//! operations somebody replaces (`table.`; needs `intrude`).
//!
//! `taken [--family inet,smc] [--ip v4,v6] [PREFIX..]`; `faults.` needs CONFIG_FAULT_INJECTION.

macro_rules! point {
    ($name:literal, $run:expr) => {
        Point {
            name: $name,
            run: $run,
        }
    };
}

mod faults;
mod table;

use st::bpf::Sockhash;
use st::errno::Errno;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::point::{Point, T};
use st::{addr, net, smcinfo, sys};
use std::net::SocketAddr;
use std::time::Instant;

const LIST: &[Point] = &[
    point!("sockmap.smc", sockmap_smc),
    point!("sockmap.tcp", sockmap_tcp),
    point!("sockmap.handshake", sockmap_handshake),
    point!("sendfile.end", sendfile_end),
    point!("kernel_accept", kernel_accept),
    point!("faults.no_hooks", faults::no_hooks),
];

fn main() {
    st::point::main(&[LIST, table::LIST], 1);
}

/// A listener on the loopback device.
pub fn listener(s: Fd, ip: Ip, backlog: i32) -> (Fd, SocketAddr) {
    sys::bind(s.raw(), &SocketAddr::new(addr::loopback(ip), 0)).expect("bind");
    sys::listen(s.raw(), backlog).expect("listen");
    let at = sys::sockname(s.raw()).expect("name");
    (s, at)
}

/// A connected pair of the family, over RDMA or not.
fn pair(t: &mut T, rdma: bool) -> (Fd, Fd) {
    net::lo_up().expect("lo");
    if rdma {
        net::roce_on_loopback().expect("a device");
    }
    let (l, at) = listener(t.socket(), t.ip, 8);
    let c = t.socket();
    sys::connect(c.raw(), &at).expect("connect");
    let s = sys::accept(l.raw()).expect("accept");
    for fd in [&c, &s] {
        let mode = smcinfo::info(fd.raw()).map(|i| i.mode);
        t.is("mode", mode, Ok(u32::from(!rdma)));
    }
    (c, s)
}

fn talks(t: &mut T, c: &Fd, s: &Fd) {
    for (from, to) in [(c, s), (s, c)] {
        for text in [&b"first"[..], b"second"] {
            t.is(
                "send",
                sys::send(from.raw(), text, 0),
                Ok(text.len() as i64),
            );
            sys::poll_until(to.raw(), libc::POLLIN, 2000);
            let got = sys::recv_vec(to.raw(), 64, libc::MSG_DONTWAIT);
            t.is("arrives", got.as_deref(), Ok(text));
        }
    }
}

fn sockmap_smc(t: &mut T) {
    let (c, s) = pair(t, true);
    talks(t, &c, &s);
    let map = Sockhash::new().expect("sockhash");
    t.is("client", map.put(1, &c), Err(Errno(libc::EBUSY)));
    t.is("server", map.put(2, &s), Err(Errno(libc::EBUSY)));
    talks(t, &c, &s);
}

/// Checks that a socket that is TCP's by now may be in one.
fn sockmap_tcp(t: &mut T) {
    let (c, s) = pair(t, false);
    talks(t, &c, &s);
    let map = Sockhash::new().expect("sockhash");
    t.is("client", map.put(1, &c), Ok(0));
    t.is("server", map.put(2, &s), Ok(0));
    talks(t, &c, &s);
}

/// A server that has accepted SMC and says nothing: TCP's connection stands.
fn sockmap_handshake(t: &mut T) {
    use st::packet::SMC_OPTION;
    use st::rawpeer::{wire_addr, Peer, Wire};
    const PORT: u16 = 7700;
    let wire = Wire::open("vb").expect("packet socket");
    if let Err(e) = net::sh(&format!(
        "rdma link add rxt{} type rxe netdev va",
        std::process::id()
    )) {
        t.check(&e, false);
    }
    sys::sleep_ms(300);
    let c = t.socket();
    sys::nonblock(c.raw(), true);
    let r = sys::connect(c.raw(), &SocketAddr::new(wire_addr(true, t.ip), PORT));
    t.is("connect", r, Err(Errno(libc::EINPROGRESS)));
    let mut p = Peer::wait_syn(&wire, t.ip, PORT, 4000).expect("no SYN");
    t.check("ACK", p.syn_ack(&SMC_OPTION));
    let m = st::clc::read(&mut p, 4000).unwrap_or_default();
    let kind = st::clc::header(&m).map(|h| h.ty);
    t.is("proposal", kind, Some(st::clc::PROPOSAL));
    let map = Sockhash::new().expect("sockhash");
    t.is("while it waits", map.put(1, &c), Err(Errno(libc::EBUSY)));
    p.send(&st::clc::decline(0x0303_0000, 2));
    sys::poll_until(c.raw(), libc::POLLOUT, 4000);
    t.is("mode", smcinfo::info(c.raw()).map(|i| i.mode), Ok(1));
    t.is("as TCP", map.put(1, &c), Ok(0));
    p.send(b"program");
    sys::poll_until(c.raw(), libc::POLLIN, 2000);
    let got = sys::recv_vec(c.raw(), 64, libc::MSG_DONTWAIT);
    t.is("arrives", got.as_deref(), Ok(&b"program"[..]));
}

/// sendfile() that asks for more than the file has: nothing waits for the rest.
fn sendfile_end(t: &mut T) {
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;
    let (c, s) = pair(t, true);
    // SAFETY: A literal name.
    let fd = unsafe { libc::memfd_create(c"st".as_ptr(), 0) };
    // SAFETY: The descriptor is fresh and owned.
    let mut f = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    let mut best = u128::MAX;
    // What is held back for want of more comes after 200 ms each time.
    for _ in 0..20 {
        if best < 100 {
            break;
        }
        f.rewind().expect("rewind");
        f.write_all(&[7; 10_240]).expect("file");
        f.rewind().expect("rewind");
        let begun = Instant::now();
        // SAFETY: No offset is given.
        let n = unsafe { libc::sendfile(c.raw(), f.as_raw_fd(), std::ptr::null_mut(), 1 << 30) };
        t.is("sendfile", n, 10_240);
        let got = sys::recv_all(s.raw(), 10_240).map(|v| v.len());
        t.is("received", got, Ok(10_240));
        best = best.min(begun.elapsed().as_millis());
    }
    t.check(&format!("there after {best} ms"), best < 100);
}

fn row(name: &str) -> Option<i64> {
    let all = std::fs::read_to_string("/proc/thread-self/net/protocols").ok()?;
    let line = all
        .lines()
        .find(|l| l.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// Returns the number of references to the module.
fn references() -> Option<i64> {
    let count = std::fs::read_to_string("/sys/module/rsmc/refcnt").ok()?;
    count.trim().parse().ok()
}

/// `kaccept` accepts, asks in vain for another and closes inside of the kernel: the counts of sockets
/// and of references to the module come out even.
fn kernel_accept(t: &mut T) {
    net::lo_up().expect("lo");
    let name = match (t.family, t.ip) {
        (Family::Smc, Ip::V4) => "SMC",
        (Family::Smc, _) => "SMC6",
        (_, Ip::V4) => "INET_SMC",
        (..) => "INET6_SMC",
    };
    let (l, at) = listener(t.socket(), t.ip, 8);
    let before = row(name);
    t.is("one", before, Some(1));
    let held = references();
    t.check(&format!("references: {held:?}"), held > Some(0));
    for _ in 0..3 {
        let c = t.socket();
        sys::connect(c.raw(), &at).expect("connect");
        // SAFETY: No pointers.
        unsafe { libc::fcntl(l.raw(), libc::F_SETFD, 0) };
        let out = std::process::Command::new("insmod")
            .arg("/rsmc/kmod/kaccept.ko")
            .arg(format!("fd={}", l.raw()))
            .output();
        let said = out.map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
        let said = said.unwrap_or_default();
        t.check(
            &format!("kaccept: {said}"),
            said.to_lowercase().contains("cancel"),
        );
        drop(c);
    }
    t.is("as many as before", row(name), before);
    t.is("references as before", references(), held);
}
