// SPDX-License-Identifier: GPL-2.0
//! What programs attach to their own sockets: filters, time stamps, signatures, repair, another address family.

use crate::{blocked, mode, moves, prepared, stays, talks, warm, ATTACHED, MODE_FIRST};
use st::addr;
use st::errno::{Errno, R};
use st::family::Ip;
use st::fd::Fd;
use st::point::T;
use st::sys;
use std::net::SocketAddr;

const SO_ATTACH_FILTER: i32 = 26;
const SO_DETACH_FILTER: i32 = 27;
const TCP: i32 = libc::IPPROTO_TCP;

/// Gives a socket a filter that lets the first bytes of each packet pass.
fn filter(fd: &Fd, bytes: u32) -> R<i64> {
    // BPF_RET | BPF_K
    let code = [0x06u64 | (u64::from(bytes) << 32)];
    let address = code.as_ptr() as u64;
    let mut program = [0u8; 16];
    program[..2].copy_from_slice(&1u16.to_ne_bytes());
    program[8..].copy_from_slice(&address.to_ne_bytes());
    sys::setopt_raw(fd.raw(), libc::SOL_SOCKET, SO_ATTACH_FILTER, &program)
}

pub fn filter_before(t: &mut T) {
    let (c, s) = prepared(t, |fd, _| {
        filter(fd, u32::MAX).expect("filter");
    });
    stays(t, &c, &s);
    for fd in [&c, &s] {
        t.is("mode", mode(fd), Ok((MODE_FIRST, ATTACHED)));
    }
}

/// A filter that comes later sees each byte that follows.
pub fn filter_after(t: &mut T) {
    let (c, s) = warm(t);
    t.is("drops all", filter(&s, 0), Ok(0));
    t.check("kept back", blocked(&c, &s));
    let none = sys::setopt(s.raw(), libc::SOL_SOCKET, SO_DETACH_FILTER, 0);
    t.is("detach", none, Ok(0));
    t.is("arrives", sys::recv_all(s.raw(), 4), Ok(b"lost".to_vec()));
    talks(t, &c, &s);
    t.is("again in memory", moves(&c, &s), Ok(false));
}

/// A program for packets at the control group of both ends; `border.programs` counts every byte.
pub fn cgroup(t: &mut T) {
    use std::os::fd::AsRawFd;
    let Ok(counter) = st::bpf::Counter::new(0) else {
        return t.say("skip: no programs for packets at control groups");
    };
    let all = st::cgroup::Hierarchy::new().expect("cgroup");
    all.enter().expect("into the cgroup");
    let group = std::fs::File::open(all.inside()).expect("cgroup");
    let (c, s) = warm(t);
    st::bpf::attach(group.as_raw_fd(), &counter.program, 0).expect("attached");
    stays(t, &c, &s);
    let seen = counter.bytes().expect("counter");
    t.check(&format!("it has seen {seen} bytes"), seen >= 32);
    let (c, s) = prepared(t, |_, _| {});
    stays(t, &c, &s);
    t.is("mode", mode(&c), Ok((MODE_FIRST, ATTACHED)));
    all.leave();
}

/// Sets `SO_TIMESTAMPING` to stamps by software of what is received, or sent.
fn stamping(fd: &Fd, sent: bool) -> R<i64> {
    // SOF_TIMESTAMPING_SOFTWARE, with TX_SOFTWARE or RX_SOFTWARE; OPT_ID, OPT_TSONLY for what is sent.
    let flags = if sent {
        (1 << 4) | (1 << 1) | (1 << 7) | (1 << 11)
    } else {
        (1 << 4) | (1 << 3)
    };
    sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

pub fn stamps_before(t: &mut T) {
    let (c, s) = prepared(t, |fd, _| {
        stamping(fd, false).expect("stamps");
    });
    stays(t, &c, &s);
    t.is("mode", mode(&c), Ok((MODE_FIRST, ATTACHED)));
}

/// Whether recvmsg() says when its bytes came.
fn stamped(fd: &Fd, flags: i32) -> bool {
    let mut bytes = [0u8; 64];
    let mut control = [0u64; 64];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: Plain data; pointers to what lives as long as the call.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        if libc::recvmsg(fd.raw(), &mut message, flags) < 0 {
            return false;
        }
        let mut one = libc::CMSG_FIRSTHDR(&message);
        while !one.is_null() {
            if (*one).cmsg_level == libc::SOL_SOCKET && (*one).cmsg_type == libc::SO_TIMESTAMPING {
                return true;
            }
            one = libc::CMSG_NXTHDR(&message, one);
        }
    }
    false
}

pub fn stamps_received(t: &mut T) {
    let (c, s) = warm(t);
    t.is("on", stamping(&s, false), Ok(0));
    let seen = || {
        sys::send_all(c.raw(), b"stamped").expect("send");
        sys::poll_until(s.raw(), libc::POLLIN, 2000);
        stamped(&s, 0)
    };
    // A worker of the kernel turns the stamps of packets on.
    let begun = (0..100).any(|_| {
        sys::sleep_ms(10);
        seen()
    });
    t.check("a stamp", begun);
    for _ in 0..3 {
        t.check("another", seen());
    }
    t.is("this way by TCP", moves(&c, &s), Ok(true));
    t.is("and that way", moves(&s, &c), Ok(true));
}

/// Stamps of what was sent are in the error queue.
pub fn stamps_sent(t: &mut T) {
    let (c, s) = warm(t);
    t.is("on", stamping(&c, true), Ok(0));
    for _ in 0..3 {
        sys::send_all(c.raw(), b"stamped").expect("send");
        let got = sys::recv_all(s.raw(), 7);
        t.is("arrives", got, Ok(b"stamped".to_vec()));
        sys::poll_until(c.raw(), libc::POLLERR, 2000);
        t.check(
            "a stamp",
            stamped(&c, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT),
        );
    }
    t.is("by TCP", moves(&c, &s), Ok(true));
}

/// `struct tcp_md5sig` for a peer.
fn md5_key(at: &SocketAddr) -> (i32, Vec<u8>) {
    let name = addr::encode(&SocketAddr::new(at.ip(), 0));
    let mut value = vec![0u8; 216];
    value[..name.len()].copy_from_slice(&name);
    value[130] = 6;
    value[136..142].copy_from_slice(b"secret");
    (libc::TCP_MD5SIG, value)
}

/// `struct tcp_ao_add` for a peer.
fn ao_key(at: &SocketAddr) -> (i32, Vec<u8>) {
    const TCP_AO_ADD_KEY: i32 = 38;
    let name = addr::encode(&SocketAddr::new(at.ip(), 0));
    let mut value = vec![0u8; 288];
    value[..name.len()].copy_from_slice(&name);
    value[128..138].copy_from_slice(b"hmac(sha1)");
    let v4 = at.ip().to_canonical().is_ipv4();
    value[202] = if v4 { 32 } else { 128 };
    value[203] = 100;
    value[204] = 100;
    value[207] = 6;
    value[208..214].copy_from_slice(b"secret");
    (TCP_AO_ADD_KEY, value)
}

/// Signed connections are TCP's: their SYN has no room, or no leave, for the options.
fn signed(t: &mut T, key: fn(&SocketAddr) -> (i32, Vec<u8>)) {
    let (c, s) = prepared(t, |fd, at| {
        let (option, value) = key(at);
        sys::setopt_raw(fd.raw(), TCP, option, &value).expect("key");
    });
    stays(t, &c, &s);
}

pub fn md5(t: &mut T) {
    signed(t, md5_key);
}

pub fn ao(t: &mut T) {
    signed(t, ao_key);
}

/// Keys that come later sign each byte that follows.
pub fn md5_after(t: &mut T) {
    let (c, s) = warm(t);
    for (fd, peer) in [(&c, &s), (&s, &c)] {
        let at = sys::sockname(peer.raw()).expect("name");
        let (option, value) = md5_key(&at);
        t.is("key", sys::setopt_raw(fd.raw(), TCP, option, &value), Ok(0));
    }
    stays(t, &c, &s);
}

/// Repair looks at TCP's queues: it begins when nothing is in memory.
pub fn repair(t: &mut T) {
    let (c, s) = warm(t);
    let on = |fd: &Fd, value| sys::setopt(fd.raw(), TCP, libc::TCP_REPAIR, value);
    sys::send_all(c.raw(), b"unread").expect("send");
    t.is("unread bytes", on(&s, 1), Err(Errno(libc::EBUSY)));
    let got = sys::recv_all(s.raw(), 6);
    t.is("they are there", got, Ok(b"unread".to_vec()));
    t.is("on", on(&s, 1), Ok(0));
    for queue in [1, 2] {
        t.is(
            "queue",
            sys::setopt(s.raw(), TCP, libc::TCP_REPAIR_QUEUE, queue),
            Ok(0),
        );
        t.check(
            "number",
            sys::getopt(s.raw(), TCP, libc::TCP_QUEUE_SEQ).is_ok(),
        );
    }
    t.is("off", on(&s, 0), Ok(0));
    stays(t, &c, &s);
    t.is("mode", mode(&s), Ok((MODE_FIRST, ATTACHED)));
}

/// An IPv6 socket of an IPv4 connection becomes an IPv4 one.
pub fn addrform(t: &mut T) {
    const IPV6_ADDRFORM: i32 = 1;
    let domain = |fd: &Fd| sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_DOMAIN);
    let form = |fd: &Fd| sys::setopt(fd.raw(), libc::IPPROTO_IPV6, IPV6_ADDRFORM, libc::AF_INET);
    let (c, s) = warm(t);
    if t.ip != Ip::Mapped {
        let why = if t.ip == Ip::V4 {
            libc::ENOPROTOOPT
        } else {
            libc::EADDRNOTAVAIL
        };
        t.is("not possible", form(&c), Err(Errno(why)));
        talks(t, &c, &s);
        return;
    }
    sys::send_all(c.raw(), b"unread").expect("send");
    t.is("unread bytes", form(&s), Err(Errno(libc::EBUSY)));
    t.is("domain", domain(&s), Ok(libc::AF_INET6));
    let got = sys::recv_all(s.raw(), 6);
    t.is("they are there", got, Ok(b"unread".to_vec()));
    for fd in [&s, &c] {
        t.is("done", form(fd), Ok(0));
        t.is("domain", domain(fd), Ok(libc::AF_INET));
        stays(t, &c, &s);
    }
    t.check("name", sys::peername(c.raw()).is_ok_and(|at| at.is_ipv4()));
}
