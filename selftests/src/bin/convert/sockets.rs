// SPDX-License-Identifier: GPL-2.0
//! Which sockets are converted, and what they are then.

use super::writers::has_gone;
use super::{domain, is_smc, plain, turn};
use st::errno::Errno;
use st::fd::Fd;
use st::point::T;
use st::{addr, guest, net, path, sys};
use std::net::SocketAddr;

st::points![
    off, all, others, identity, existing, namespaces, values, refused, ring, bytes, threads,
];

/// Whether the kernel lets a module redirect one of its functions.
pub fn redirects() -> bool {
    std::fs::exists("/proc/sys/kernel/ftrace_enabled").unwrap_or(false)
}

/// Nothing changes by itself.
fn off(t: &mut T) {
    t.check("a TCP socket is one", !is_smc(&plain(t.ip)));
}

fn all(t: &mut T) {
    turn(1);
    t.check("by default", is_smc(&plain(t.ip)));
    let named = sys::socket(domain(t.ip), libc::SOCK_STREAM, libc::IPPROTO_TCP).expect("socket");
    t.check("by number", is_smc(&named));
    let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let flagged = sys::socket(domain(t.ip), flags, 0).expect("socket");
    t.check("with flags", is_smc(&flagged));
    let asked = sys::socket(domain(t.ip), libc::SOCK_STREAM, 256).expect("socket");
    t.check("that ask for SMC", is_smc(&asked));
    turn(0);
    t.check("no more", !is_smc(&plain(t.ip)));
}

/// Sockets that are no TCP sockets stay what they are.
fn others(t: &mut T) {
    turn(1);
    for (what, kind, protocol) in [
        ("UDP", libc::SOCK_DGRAM, 0),
        ("ICMP", libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ("MPTCP", libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
        ("SCTP", libc::SOCK_STREAM, libc::IPPROTO_SCTP),
    ] {
        match sys::socket(domain(t.ip), kind, protocol) {
            Ok(fd) => {
                t.is(
                    what,
                    sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_TYPE),
                    Ok(kind),
                );
                t.check(what, !is_smc(&fd));
            }
            Err(e) => t.check(&format!("{what}: {e}"), e == Errno(libc::EPROTONOSUPPORT)),
        }
    }
    let unix = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).expect("socket");
    t.check("AF_UNIX", !is_smc(&unix));
    t.is(
        "a wrong protocol",
        sys::socket(domain(t.ip), libc::SOCK_STREAM, 9999).map(|_| ()),
        Err(Errno(libc::EINVAL)),
    );
}

/// What a program may ask a socket about itself, it hears as from TCP.
fn identity(t: &mut T) {
    turn(1);
    let fd = plain(t.ip);
    for (what, option, want) in [
        ("SO_PROTOCOL", libc::SO_PROTOCOL, libc::IPPROTO_TCP),
        ("SO_DOMAIN", libc::SO_DOMAIN, domain(t.ip)),
        ("SO_TYPE", libc::SO_TYPE, libc::SOCK_STREAM),
    ] {
        t.is(
            what,
            sys::getopt(fd.raw(), libc::SOL_SOCKET, option),
            Ok(want),
        );
    }
}

/// A socket stays what it was made as.
fn existing(t: &mut T) {
    let before = plain(t.ip);
    turn(1);
    t.check("made before", !is_smc(&before));
    let during = plain(t.ip);
    turn(0);
    t.check("made meanwhile", is_smc(&during));
}

/// Each namespace has its own value, and new ones begin without.
fn namespaces(t: &mut T) {
    turn(1);
    let here = std::fs::File::open("/proc/thread-self/ns/net").expect("namespace");
    net::private().expect("private namespace");
    t.check("another namespace", !is_smc(&plain(t.ip)));
    turn(1);
    t.check("converts by itself", is_smc(&plain(t.ip)));
    guest::enter_file(&here).expect("setns");
    // The other one has gone with its value.
    sys::sleep_ms(100);
    t.check("and the first one still does", is_smc(&plain(t.ip)));
}

/// Wrong values change nothing.
fn values(t: &mut T) {
    turn(1);
    for wrong in ["-1", "4", "x", ""] {
        t.check(
            &format!("{wrong:?} is refused"),
            wrong.is_empty() || net::sysctl(super::TCP2SMC, wrong).is_err(),
        );
    }
    t.check("still on", is_smc(&plain(t.ip)));
    // Again and again: the same value, and from one way to another.
    for value in [1, 3, 1, 0, 0, 1] {
        turn(value);
    }
    t.check("on once more", is_smc(&plain(t.ip)));
    turn(0);
    t.check("off", !is_smc(&plain(t.ip)));
}

/// Where ftrace is off, nothing is converted, and the one who turns it on hears that.
fn refused(t: &mut T) {
    let ftrace = |value: &str| std::fs::write("/proc/sys/kernel/ftrace_enabled", value);
    if t.ip != st::family::Ip::V4 {
        return t.say("not once more");
    }
    t.check("nothing is redirected any more", has_gone());
    ftrace("0").expect("ftrace_enabled");
    for _ in 0..3 {
        let refused = net::sysctl(super::TCP2SMC, "1").expect_err("converts without ftrace");
        t.check(&refused, refused.contains("os error 16"));
    }
    t.check("nothing is converted", !is_smc(&plain(t.ip)));
    ftrace("1").expect("ftrace_enabled");
    turn(1);
    t.check("converts", is_smc(&plain(t.ip)));
    t.check("ftrace stays on meanwhile", ftrace("0").is_err());
    t.check("still converts", is_smc(&plain(t.ip)));
    turn(0);
    t.check("and may be off then", has_gone());
}

/// Sockets that io_uring makes do not come by the place where others are converted: they are TCP's, and meet a
/// listener that is not.
fn ring(t: &mut T) {
    use io_uring::{opcode, IoUring};
    turn(1);
    let listener = plain(t.ip);
    sys::bind(listener.raw(), &SocketAddr::new(addr::loopback(t.ip), 0)).expect("bind");
    sys::listen(listener.raw(), 8).expect("listen");
    let at = sys::sockname(listener.raw()).expect("name");
    let Ok(mut ring) = IoUring::new(4) else {
        return t.say("no io_uring");
    };
    let ask = opcode::Socket::new(domain(t.ip), libc::SOCK_STREAM, 0).build();
    // SAFETY: The entry points to nothing.
    unsafe { ring.submission().push(&ask).expect("room") };
    ring.submit_and_wait(1).expect("submit");
    let made = ring.completion().next().map_or(-1, |done| done.result());
    t.check(&format!("a socket: {made}"), made >= 0);
    if made < 0 {
        return;
    }
    let client = Fd::new(made);
    t.check("it is TCP's", !is_smc(&client));
    t.is("connect", sys::connect(client.raw(), &at), Ok(0));
    let server = sys::accept(listener.raw()).expect("accept");
    t.is("send", sys::send(client.raw(), b"some", 0), Ok(4));
    let got = sys::recv_vec(server.raw(), 8, 0);
    t.is("arrives", got, Ok(b"some".to_vec()));
}

/// A server and a client that know nothing of SMC have a path within the kernel.
fn bytes(t: &mut T) {
    turn(1);
    t.is("path", path::local(1), Ok(true));
    let listener = plain(t.ip);
    sys::bind(listener.raw(), &SocketAddr::new(addr::loopback(t.ip), 0)).expect("bind");
    sys::listen(listener.raw(), 4).expect("listen");
    let client = plain(t.ip);
    let at = sys::sockname(listener.raw()).expect("getsockname");
    sys::connect(client.raw(), &at).expect("connect");
    let server = sys::accept(listener.raw()).expect("accept");
    t.is("local path", path::prove_local(&client, &server), Ok(()));
}

/// Sockets are made by many tasks while the value changes: each is one or the other, and none fails.
fn threads(t: &mut T) {
    let (ip, stop) = (t.ip, std::sync::atomic::AtomicBool::new(false));
    turn(1);
    let (smc, tcp) = std::thread::scope(|scope| {
        let count = || {
            let (mut smc, mut tcp) = (0u64, 0u64);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let fd: Fd = plain(ip);
                match is_smc(&fd) {
                    true => smc += 1,
                    false => tcp += 1,
                }
            }
            (smc, tcp)
        };
        let tasks: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        for _ in 0..8 {
            for value in [0, 1] {
                turn(value);
                sys::sleep_ms(10);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        tasks
            .into_iter()
            .map(|task| task.join().expect("a socket could not be made"))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    });
    t.say(&format!("{smc} SMC, {tcp} TCP"));
    t.check("both kinds", smc > 0 && tcp > 0);
}
