// SPDX-License-Identifier: GPL-2.0
//! Creation of sockets: what the family accepts, what it refuses, and with which errno (those of
//! the C module, and of TCP where C has no say).
//!
//! `family`          the table, as KTAP
//! `family hold F`   opens a socket of family F and keeps it until standard input ends
//! `family probe F`  tells in words whether such a socket can be made
//! `family cgroup`   what a BPF program of the cgroup refuses is not counted; as KTAP

use st::args::{bail, Args};
use st::errno::{Errno, R};
use st::family::{Family, Ip, AF_SMC, IPPROTO_SMC};
use st::fd::Fd;
use st::ktap::Ktap;
use st::{addr, path, smcinfo, sys};
use std::net::SocketAddr;

mod cgroup;

const STREAM: i32 = libc::SOCK_STREAM;
/// `mode` of `RSMC_INFO`: TCP, on a connection that began so.
const MODE_PATH: u32 = 3;

/// domain, type, protocol, errno (0: works), name.
const TABLE: &[(i32, i32, i32, i32, &str)] = &[
    (AF_SMC, STREAM, 0, 0, "smc.v4"),
    (AF_SMC, STREAM, 1, 0, "smc.v6"),
    (AF_SMC, STREAM, 2, libc::EPROTONOSUPPORT, "smc.protocol_2"),
    (AF_SMC, STREAM, 6, libc::EPROTONOSUPPORT, "smc.protocol_tcp"),
    (
        AF_SMC,
        STREAM,
        256,
        libc::EPROTONOSUPPORT,
        "smc.protocol_256",
    ),
    (
        AF_SMC,
        STREAM,
        -1,
        libc::EPROTONOSUPPORT,
        "smc.protocol_negative",
    ),
    (
        AF_SMC,
        libc::SOCK_DGRAM,
        0,
        libc::ESOCKTNOSUPPORT,
        "smc.dgram",
    ),
    (AF_SMC, libc::SOCK_RAW, 0, libc::ESOCKTNOSUPPORT, "smc.raw"),
    (
        AF_SMC,
        libc::SOCK_SEQPACKET,
        0,
        libc::ESOCKTNOSUPPORT,
        "smc.seqpacket",
    ),
    (AF_SMC, libc::SOCK_RDM, 0, libc::ESOCKTNOSUPPORT, "smc.rdm"),
    (
        AF_SMC,
        libc::SOCK_DGRAM,
        5,
        libc::ESOCKTNOSUPPORT,
        "smc.dgram_and_bad_protocol",
    ),
    (AF_SMC, 0, 0, libc::ESOCKTNOSUPPORT, "smc.type_0"),
    (AF_SMC, 9, 0, libc::ESOCKTNOSUPPORT, "smc.type_9"),
    (AF_SMC, 11, 0, libc::EINVAL, "smc.type_11"),
    (libc::AF_INET, STREAM, IPPROTO_SMC, 0, "inet.v4"),
    (libc::AF_INET6, STREAM, IPPROTO_SMC, 0, "inet.v6"),
    (
        libc::AF_INET,
        STREAM,
        258,
        libc::EPROTONOSUPPORT,
        "inet.protocol_258",
    ),
    (
        libc::AF_INET,
        libc::SOCK_DGRAM,
        IPPROTO_SMC,
        libc::EPROTONOSUPPORT,
        "inet.v4_dgram",
    ),
    (
        libc::AF_INET6,
        libc::SOCK_DGRAM,
        IPPROTO_SMC,
        libc::EPROTONOSUPPORT,
        "inet.v6_dgram",
    ),
    (
        libc::AF_INET,
        libc::SOCK_SEQPACKET,
        IPPROTO_SMC,
        libc::ESOCKTNOSUPPORT,
        "inet.v4_seqpacket",
    ),
    (
        libc::AF_INET6,
        libc::SOCK_SEQPACKET,
        IPPROTO_SMC,
        libc::ESOCKTNOSUPPORT,
        "inet.v6_seqpacket",
    ),
    (
        libc::AF_UNIX,
        STREAM,
        IPPROTO_SMC,
        libc::EPROTONOSUPPORT,
        "unix",
    ),
];

/// With SCTP, which `ss` loads for instance, IP has sockets of this type, and it is the protocol that is unknown.
fn by_sctp(d: i32, t: i32, want: i32) -> i32 {
    let protocols = || std::fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    match d != AF_SMC && t == libc::SOCK_SEQPACKET && protocols().contains("SCTP") {
        true => libc::EPROTONOSUPPORT,
        false => want,
    }
}

fn create(d: i32, t: i32, p: i32, want: i32) -> Result<(), String> {
    let want = by_sctp(d, t, want);
    let r = sys::socket(d, t, p);
    match (&r, want) {
        (Ok(f), 0) => smcinfo::info(f.raw())
            .map(|_| ())
            .map_err(|e| format!("RSMC_INFO: {e}")),
        (Err(e), w) if e.0 == w && w != 0 => Ok(()),
        (r, w) => Err(format!(
            "socket({d},{t},{p}): {:?}, wanted {}",
            r.as_ref().map(|_| "ok"),
            Errno(w)
        )),
    }
}

fn flags(f: Family) -> Result<(), String> {
    let (d, p) = f.triple(Ip::V4);
    // SAFETY: no pointers.
    let s =
        Fd::new(unsafe { libc::socket(d, STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, p) });
    // SAFETY: no pointers.
    let (fl, fd) = unsafe {
        (
            libc::fcntl(s.raw(), libc::F_GETFL),
            libc::fcntl(s.raw(), libc::F_GETFD),
        )
    };
    if fl & libc::O_NONBLOCK == 0 || fd & libc::FD_CLOEXEC == 0 {
        return Err(format!("flags {fl:#x} {fd:#x}"));
    }
    Ok(())
}

fn socketpair() -> Result<(), String> {
    let mut p = [0; 2];
    // SAFETY: array of two.
    let r = unsafe { libc::socketpair(AF_SMC, STREAM, 0, p.as_mut_ptr()) };
    match st::errno::cvt(i64::from(r)) {
        Err(Errno(libc::EOPNOTSUPP)) => Ok(()),
        r => Err(format!("{r:?}")),
    }
}

/// Number of sockets of a row of /proc/net/protocols.
fn row(name: &str) -> Option<i64> {
    let s = std::fs::read_to_string("/proc/net/protocols").ok()?;
    s.lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .find(|w| w.first() == Some(&name))?
        .get(2)?
        .parse()
        .ok()
}

fn rows_count() -> Result<(), String> {
    for (n, f, ip) in [
        ("SMC", Family::Smc, Ip::V4),
        ("SMC6", Family::Smc, Ip::V6),
        ("INET_SMC", Family::Inet, Ip::V4),
        ("INET6_SMC", Family::Inet, Ip::V6),
    ] {
        let (d, p) = f.triple(ip);
        let before = row(n).ok_or(format!("no row {n}"))?;
        let v: Vec<R<Fd>> = (0..5).map(|_| sys::socket(d, STREAM, p)).collect();
        let with = row(n).unwrap_or(-9);
        // One that the family never sees in use, one that it does.
        if let Some(Ok(fd)) = v.first() {
            let _ = sys::listen(fd.raw(), 1);
        }
        let used = row(n).unwrap_or(-9);
        drop(v);
        settled(n, before)?;
        if with != before + 5 || used != with {
            return Err(format!(
                "{n}: sockets {before}, with five more {with}, with one of them used {used}"
            ));
        }
    }
    Ok(())
}

/// Accepted sockets count as well, whatever they have become.
fn rows_accepted() -> Result<(), String> {
    let show = |e: Errno| e.to_string();
    for (n, f) in [("SMC", Family::Smc), ("INET_SMC", Family::Inet)] {
        let (d, p) = f.triple(Ip::V4);
        let before = row(n).ok_or(format!("no row {n}"))?;
        let listener = sys::socket(d, STREAM, p).map_err(show)?;
        let any = SocketAddr::new(addr::loopback(Ip::V4), 0);
        sys::bind(listener.raw(), &any).map_err(show)?;
        sys::listen(listener.raw(), 1).map_err(show)?;
        let client = sys::socket(libc::AF_INET, STREAM, 0).map_err(show)?;
        let to = sys::sockname(listener.raw()).map_err(show)?;
        sys::connect(client.raw(), &to).map_err(show)?;
        let accepted = sys::accept(listener.raw()).map_err(show)?;
        let with = row(n).unwrap_or(-9);
        drop((listener, client, accepted));
        settled(n, before)?;
        if with != before + 2 {
            return Err(format!(
                "{n}: {before}, with listener and connection {with}"
            ));
        }
    }
    Ok(())
}

/// A connect() that does not wait knows at once that the peer, which is here, wants no handshake: nothing
/// goes on with it behind the program's back. The program hears what TCP says. It runs before all workers
/// of the kernel, so that none can hide behind it where there is one processor.
fn connect_at_once() -> Result<(), String> {
    let set = |policy, sched_priority| {
        let param = libc::sched_param { sched_priority };
        // SAFETY: a valid pointer.
        unsafe { libc::sched_setscheduler(0, policy, &param) }
    };
    if set(libc::SCHED_FIFO, 1) != 0 {
        return Err(format!("SCHED_FIFO: {}", std::io::Error::last_os_error()));
    }
    let found = connect_alone();
    set(libc::SCHED_OTHER, 0);
    found
}

fn connect_alone() -> Result<(), String> {
    let show = |e: Errno| e.to_string();
    path::local(1)?;
    let (d, p) = Family::Inet.triple(Ip::V4);
    let plain = sys::socket(d, STREAM, 0).map_err(show)?;
    let ours = sys::socket(d, STREAM, p).map_err(show)?;
    for (name, listener, want) in [("TCP", plain, smcinfo::MODE_TCP), ("ours", ours, MODE_PATH)] {
        let any = SocketAddr::new(addr::loopback(Ip::V4), 0);
        sys::bind(listener.raw(), &any).map_err(show)?;
        sys::listen(listener.raw(), 1).map_err(show)?;
        let to = sys::sockname(listener.raw()).map_err(show)?;
        let client = sys::socket(d, STREAM | libc::SOCK_NONBLOCK, p).map_err(show)?;
        let called = sys::connect(client.raw(), &to);
        let mode = smcinfo::info(client.raw()).map_err(show)?.mode;
        let ready = sys::poll1(client.raw(), libc::POLLOUT, 5000).map_err(show)?;
        let again = sys::connect(client.raw(), &to);
        let errors = [called, again].map(|r| r.err().map_or(0, |e| e.0));
        if mode != want || errors != [libc::EINPROGRESS, 0] || ready != libc::POLLOUT {
            return Err(format!(
                "{name}: mode {mode}, wanted {want}; errors {errors:?}, events {ready:#x}"
            ));
        }
    }
    Ok(())
}

/// Waits until a row is as before: files are closed a little later than close() says.
fn settled(n: &str, before: i64) -> Result<(), String> {
    for _ in 0..1500 {
        if row(n) == Some(before) {
            return Ok(());
        }
        sys::sleep_ms(20);
    }
    Err(format!("{n}: {before} sockets before, {:?} after", row(n)))
}

/// The most descriptors a process may have: nothing is lost when socket() fails half way.
fn descriptor_limit(f: Family) -> Result<(), String> {
    let lim = libc::rlimit {
        rlim_cur: 40,
        rlim_max: 4096,
    };
    // SAFETY: valid pointer.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &lim) };
    let (d, p) = f.triple(Ip::V4);
    for _ in 0..200 {
        let v: Vec<Fd> = std::iter::from_fn(|| sys::socket(d, STREAM, p).ok()).collect();
        if v.is_empty() {
            return Err("no socket at all".into());
        }
        match sys::socket(d, STREAM, p) {
            Err(Errno(libc::EMFILE)) => {}
            r => return Err(format!("{:?}", r.map(|_| ()))),
        }
    }
    Ok(())
}

fn main() {
    let a = Args::get();
    let fam = |i: usize| {
        a.words
            .get(i)
            .and_then(|w| Family::parse(w))
            .unwrap_or_else(|| bail("tcp|inet|smc"))
    };
    match a.words.first().map(String::as_str) {
        Some("hold") => {
            let (d, p) = fam(1).triple(Ip::V4);
            let s = sys::socket(d, STREAM, p).unwrap_or_else(|e| bail(&e.to_string()));
            println!("holding {}", s.raw());
            let mut l = String::new();
            let _ = std::io::stdin().read_line(&mut l);
            return;
        }
        Some("probe") => {
            let (d, p) = fam(1).triple(Ip::V4);
            println!("{}", st::errno::show_ok(&sys::socket(d, STREAM, p)));
            return;
        }
        Some("cgroup") => {
            let mut k = Ktap::plan(1);
            k.outcome("protocols_refused", cgroup::refused(&row));
            std::process::exit(k.finish());
        }
        _ => {}
    }
    let mut k = Ktap::plan(TABLE.len() + 8);
    for &(d, t, p, e, n) in TABLE {
        k.outcome(&format!("create.{n}"), create(d, t, p, e));
    }
    k.outcome("flags.inet", flags(Family::Inet));
    k.outcome("flags.smc", flags(Family::Smc));
    k.outcome("socketpair", socketpair());
    k.outcome("protocols_count", rows_count());
    k.outcome("protocols_accepted", rows_accepted());
    k.outcome("connect_at_once", connect_at_once());
    k.outcome("descriptor_limit.inet", descriptor_limit(Family::Inet));
    k.outcome("descriptor_limit.smc", descriptor_limit(Family::Smc));
    std::process::exit(k.finish());
}
