// SPDX-License-Identifier: GPL-2.0
//! Reads what the lab tells a program about the guest it runs in (README, "Convention").

use crate::errno::{cvt, R};
use crate::family::Ip;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

/// Which part of a test this process plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Both ends in one guest.
    Single,
    /// The listening guest of a pair.
    Server,
    /// The connecting guest of a pair.
    Client,
}

/// `RSMC_ROLE`, or `--role`.
pub fn role(a: &crate::args::Args) -> Role {
    let env = std::env::var("RSMC_ROLE").unwrap_or_default();
    match a.opt("role").unwrap_or(&env) {
        "server" => Role::Server,
        "client" => Role::Client,
        _ => Role::Single,
    }
}

/// An address of this guest (`peer` false) or of the other one from the environment.
pub fn addr(peer: bool, ip: Ip) -> IpAddr {
    let (v4, v6) = if peer {
        ("RSMC_PEER_ADDR", "RSMC_PEER_ADDR6")
    } else {
        ("RSMC_ADDR", "RSMC_ADDR6")
    };
    let (d4, d6) = if peer {
        ("10.77.0.2", "fd77::2")
    } else {
        ("10.77.0.1", "fd77::1")
    };
    let get = |n: &str, d: &str| {
        std::env::var(n)
            .unwrap_or(d.into())
            .parse::<IpAddr>()
            .expect(n)
    };
    match (ip, get(v4, d4)) {
        (Ip::V4, a) => a,
        (Ip::V6, _) => get(v6, d6),
        (Ip::Mapped, IpAddr::V4(a)) => a.to_ipv6_mapped().into(),
        (Ip::Mapped, a) => a,
    }
}

/// As [`addr`] with a port.
pub fn sockaddr(peer: bool, ip: Ip, port: u16) -> SocketAddr {
    SocketAddr::new(addr(peer, ip), port)
}

/// Moves the calling thread into the named namespace of `/run/netns`.
pub fn enter(ns: &str) -> R<()> {
    let f = std::fs::File::open(format!("/run/netns/{ns}"))
        .map_err(|e| crate::errno::Errno(e.raw_os_error().unwrap_or(libc::ENOENT)))?;
    enter_file(&f)
}

/// Does something in the named namespace, in a thread of its own. Panics if there is none.
pub fn within<R: Send + 'static>(ns: &'static str, act: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::spawn(move || {
        enter(ns).expect("namespace");
        act()
    });
    thread.join().expect("a thread of the namespace")
}

/// Runs a program in the named namespace. Panics if it fails.
pub fn run(ns: &'static str, program: &'static str, words: &'static str) {
    let done = within(ns, move || {
        Command::new(program).args(words.split(' ')).status()
    });
    assert!(done.is_ok_and(|done| done.success()), "{program} {words}");
}

/// Moves the calling thread into the namespace of an open file below `/proc` or `/run/netns`.
pub fn enter_file(ns: &std::fs::File) -> R<()> {
    // SAFETY: no pointers.
    cvt(i64::from(unsafe {
        libc::setns(ns.as_raw_fd(), libc::CLONE_NEWNET)
    }))?;
    Ok(())
}

/// True if the lab made the namespaces `a` and `b`.
pub fn has_netns() -> bool {
    std::path::Path::new("/run/netns/a").exists() && std::path::Path::new("/run/netns/b").exists()
}

/// Factor for timeouts on slow guests and slow machines.
pub fn slow() -> u64 {
    factor("RSMC_SLOW")
}

/// Returns how many milliseconds to wait for an event. A second or more is a limit for what is sure to come, and on a loaded
/// machine may take many times as long: it costs nothing to wait longer. Less than a second is a pause, which is waited
/// every time.
pub fn limit(ms: u64) -> u64 {
    match ms {
        1000.. => ms * 10,
        _ => ms,
    }
}

/// Returns when such a wait that begins now is over, on this kernel.
pub fn until(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(limit(ms) * slow())
}

/// Returns from how many milliseconds on a wait of a program that has nothing to do with a test is a fault of the
/// module. On a quiet machine such waits are below 200 ms, and the tests print them; on a loaded one a program may stand
/// still for some hundreds. The faults that the tests are about make others wait for two seconds and more.
pub fn noticed() -> u64 {
    1000 * slow()
}

/// By how much slower this kernel is than the fast one: where a test does many of a kind, it does
/// so much less here.
pub fn less() -> u64 {
    factor("RSMC_LESS")
}

/// True where KASAN keeps freed memory for a while: a small amount that is missing means nothing. On `uml-debug` kmemleak
/// looks at the end of the boot.
pub fn keeps_freed() -> bool {
    let kernel = std::env::var("RSMC_KERNEL").unwrap_or_default();
    matches!(kernel.as_str(), "uml-debug" | "lockdep-kasan")
}

/// Waits for what nothing can be asked about, so that somebody else comes along: `ms` on a fast
/// guest, and no more than three times that on a slow one, for this is waited every time.
pub fn pause(ms: u64) {
    crate::sys::sleep_ms(ms * less().min(3));
}

fn factor(variable: &str) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|s| s.parse::<f64>().ok())
        .map_or(1, |f| f.ceil().max(1.0) as u64)
}

/// Meets the other guest's program at a named point (`rsmc-barrier`); at once true outside a pair.
/// The wait ends with that program, too, and at the test's time limit.
pub fn barrier(name: &str) -> bool {
    if role_env() == Role::Single {
        return true;
    }
    Command::new("rsmc-barrier")
        .args([name, "3600"])
        .status()
        .is_ok_and(|s| s.success())
}

fn role_env() -> Role {
    match std::env::var("RSMC_ROLE").as_deref() {
        Ok("server") => Role::Server,
        Ok("client") => Role::Client,
        _ => Role::Single,
    }
}
