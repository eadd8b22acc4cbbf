// SPDX-License-Identifier: GPL-2.0
//! Rules: which of several processes, users, ports and peers get SMC.

use super::{is_smc, plain, turn};
use st::family::Ip;
use st::fd::Fd;
use st::point::T;
use st::{addr, path, smcinfo, sys};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

st::points![
    no_rules,
    by_exe,
    by_comm,
    by_cgroup,
    by_uid,
    order,
    unless_denied,
    by_port,
    by_peer,
    by_rewritten,
    by_client,
    later_rules,
    shares,
    mptcp,
    explicit,
    counted,
    flipping
];

/// The fallback's reason when a rule keeps a socket on TCP.
const POLICY: u32 = 0x0306_0105;

/// `rsmc policy ARGUMENTS`.
pub fn policy(arguments: &str) -> String {
    let done = Command::new("rsmc")
        .arg("policy")
        .args(arguments.split_whitespace())
        .output()
        .expect("rsmc");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{arguments}: {}", text(&done.stderr));
    text(&done.stdout)
}

fn rules(lines: &[&str]) {
    policy("flush");
    for line in lines {
        policy(&format!("add {line}"));
    }
}

/// The program of this test.
fn me() -> String {
    let exe = std::env::current_exe().expect("own path");
    exe.to_str().expect("own path as text").into()
}

/// Whether sockets of this process are converted.
fn here(t: &T) -> bool {
    is_smc(&plain(t.ip))
}

/// Whether those of another program are: a python one.
fn elsewhere(t: &T) -> bool {
    let script = format!(
        "import socket\ns = socket.socket({})\n\
         try:\n s.getsockopt({}, {}, 16); print('smc')\nexcept OSError: print('tcp')",
        super::domain(t.ip),
        smcinfo::SOL_SMC,
        smcinfo::RSMC_INFO
    );
    let done = Command::new("python3")
        .args(["-I", "-S", "-c", &script])
        .output();
    let done = done.expect("python3");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    done.stdout.starts_with(b"smc")
}

fn no_rules(t: &mut T) {
    turn(2);
    t.check("2: none", !here(t));
    turn(3);
    t.check("3: all", here(t));
}

fn by_exe(t: &mut T) {
    turn(2);
    rules(&[&format!("allow exe={}", me())]);
    t.check("this program", here(t));
    t.check("another one", !elsewhere(t));
    rules(&["allow exe=*/python3*"]);
    t.check("no more", !here(t));
    t.check("by a pattern", elsewhere(t));
}

fn by_comm(t: &mut T) {
    turn(2);
    rules(&["allow comm=pyth?n3*"]);
    t.check("another name", !here(t));
    t.check("the name", elsewhere(t));
}

fn by_cgroup(t: &mut T) {
    turn(2);
    let at = std::env::temp_dir().join(format!("cgroup.{}", std::process::id()));
    let top = at.join("top.slice");
    let own = top.join("a.service");
    let mount = |arguments: &[&str]| Command::new("mount").args(arguments).status();
    std::fs::create_dir(&at).expect("directory");
    let done = mount(&["-t", "cgroup2", "none", at.to_str().expect("text")]);
    if !done.is_ok_and(|status| status.success()) {
        return t.say("no cgroups of version 2");
    }
    std::fs::create_dir_all(&own).expect("cgroup");
    let join = |cgroup: &std::path::Path| std::fs::write(cgroup.join("cgroup.procs"), "0");
    join(&own).expect("joining the cgroup");
    for (cgroup, is) in [
        ("/top.slice/a.service", true),
        ("/top.slice", true),
        ("/top.slice/", true),
        ("/", true),
        ("/top", false),
        ("/top.slice/a.service/b", false),
    ] {
        rules(&[&format!("allow cgroup={cgroup}")]);
        t.is(cgroup, here(t), is);
    }
    join(&at).expect("leaving the cgroup");
    t.check("who has left", !here(t));
    for cgroup in [own, top] {
        std::fs::remove_dir(cgroup).expect("removing a cgroup");
    }
    let _ = Command::new("umount").arg(&at).status();
}

fn by_uid(t: &mut T) {
    turn(2);
    rules(&["allow uid=65534"]);
    t.check("another user", !here(t));
    // SAFETY: no pointers; of this thread alone.
    let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
    t.is("setresuid", changed, 0);
    t.check("the user", here(t));
    // SAFETY: as above; the real user is still root.
    unsafe { libc::syscall(libc::SYS_setresuid, -1, 0, -1) };
}

fn order(t: &mut T) {
    turn(2);
    rules(&["deny comm=pyth*", "allow"]);
    t.check("the last one", here(t));
    t.check("the first one", !elsewhere(t));
    policy("add allow comm=python3* --at 1");
    t.check("one before it", elsewhere(t));
}

fn unless_denied(t: &mut T) {
    turn(3);
    rules(&[&format!("deny exe={}", me())]);
    t.check("denied", !here(t));
    t.check("not denied", elsewhere(t));
}

/// A listener and a connection to it, all of this program.
fn connected(t: &T, port: u16) -> (Fd, Fd, Fd) {
    let to = addr::loopback(t.ip);
    connected_to(t, to, port)
}

fn connected_to(t: &T, to: IpAddr, port: u16) -> (Fd, Fd, Fd) {
    let listener = plain(t.ip);
    let _ = sys::setopt(listener.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(listener.raw(), &SocketAddr::new(to, port)).expect("bind");
    sys::listen(listener.raw(), 4).expect("listen");
    let client = plain(t.ip);
    sys::connect(client.raw(), &SocketAddr::new(to, port)).expect("connect");
    let server = sys::accept(listener.raw()).expect("accept");
    (listener, client, server)
}

/// What each end is: its reason to be TCP, or 0 for SMC.
fn kinds(ends: [&Fd; 2]) -> [Option<u32>; 2] {
    ends.map(|fd| match smcinfo::info(fd.raw()) {
        Ok(info) if info.mode == smcinfo::MODE_TCP => Some(info.reason),
        Ok(_) => Some(0),
        Err(_) => None,
    })
}

/// A rule about a port alone: sockets are converted, for it may be theirs, and those of other ports are
/// TCP's from listen() on.
fn by_port(t: &mut T) {
    turn(2);
    path::off().expect("path");
    rules(&["allow port=7001"]);
    let (wanted, _, server) = connected(t, 7001);
    t.check(
        "the listener of the port",
        kinds([&wanted, &server])[0] != Some(POLICY),
    );
    let (other, client, server) = connected(t, 7002);
    t.is("another port", kinds([&other, &server])[0], Some(POLICY));
    t.is(
        "and who connects",
        kinds([&client, &server])[0],
        Some(POLICY),
    );
}

fn by_peer(t: &mut T) {
    turn(3);
    t.is("path", path::local(1), Ok(true));
    let loopback = addr::loopback(t.ip);
    rules(&[&format!("deny peer={loopback} peer-port=7003")]);
    let (denied, client, server) = connected(t, 7003);
    t.is("denied", kinds([&client, &server])[0], Some(POLICY));
    let (_l, client, server) = connected(t, 7004);
    t.is("another port", path::prove_local(&client, &server), Ok(()));
    // No address at all is this machine's loopback, and an IPv6 socket's is that of IPv6.
    let none: IpAddr = match t.ip {
        Ip::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
        Ip::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        Ip::Mapped => return,
    };
    let client = plain(t.ip);
    let done = sys::connect(client.raw(), &SocketAddr::new(none, 7003));
    t.is("connect to no address", done, Ok(0));
    let server = sys::accept(denied.raw()).expect("accept");
    t.is("denied, too", kinds([&client, &server])[0], Some(POLICY));
}

/// A BPF program sends connections to another address, which a rule denies.
fn by_rewritten(t: &mut T) {
    if t.ip != Ip::V4 {
        return;
    }
    turn(3);
    t.is("path", path::local(1), Ok(true));
    rules(&["deny peer=127.0.0.2 peer-port=7005"]);
    for (first, port) in [(1, 7005), (0, 7005), (1, 7006)] {
        t.is(
            "path",
            st::net::sysctl("net.smc.path", &first.to_string()).is_ok(),
            true,
        );
        let listener = plain(t.ip);
        let _ = sys::setopt(listener.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        let at = SocketAddr::new([127, 0, 0, 2].into(), port);
        sys::bind(listener.raw(), &at).expect("bind");
        sys::listen(listener.raw(), 4).expect("listen");
        let rewriting = match st::cgroup::Rewriting::to([127, 0, 0, 2].into()) {
            Ok(rewriting) => rewriting,
            Err(e) => return t.say(&format!("skip: {e}")),
        };
        let client = plain(t.ip);
        let named = SocketAddr::new([127, 0, 0, 1].into(), port);
        t.is("connect", sys::connect(client.raw(), &named), Ok(0));
        drop(rewriting);
        let server = sys::accept(listener.raw()).expect("accept");
        let what = format!("path {first}, port {port}");
        if port == 7005 {
            let reason = smcinfo::info(client.raw()).map(|info| info.reason);
            t.is(&what, reason.ok(), Some(POLICY));
            t.check(&what, path::prove_local(&client, &server).is_err());
        } else {
            t.is(&what, path::prove_local(&client, &server), Ok(()));
        }
    }
}

/// A listener that takes some of its clients only.
fn by_client(t: &mut T) {
    turn(3);
    t.is("path", path::local(1), Ok(true));
    let loopback = addr::loopback(t.ip);
    // The client connects to 7005, so its own rule is another one.
    rules(&[
        "allow peer-port=7005",
        &format!("deny port=7005 peer={loopback}"),
    ]);
    let (_l, client, server) = connected(t, 7005);
    let reason = |fd: &Fd| smcinfo::info(fd.raw()).map(|info| info.reason);
    t.is("the server", reason(&server), Ok(POLICY));
    t.check("the client", reason(&client) != Ok(POLICY));
    for (from, to) in [(&client, &server), (&server, &client)] {
        t.is("send", sys::send_all(from.raw(), b"by client"), Ok(()));
        t.is(
            "recv",
            sys::recv_all(to.raw(), 9),
            Ok(b"by client".to_vec()),
        );
    }
}

/// Rules that come when a server listens already, as they come to one that has just begun.
fn later_rules(t: &mut T) {
    turn(1);
    t.is("path", path::local(1), Ok(true));
    rules(&[]);
    let at = SocketAddr::new(addr::loopback(t.ip), 7007);
    let listener = plain(t.ip);
    sys::bind(listener.raw(), &at).expect("bind");
    sys::listen(listener.raw(), 100).expect("listen");
    let reason = |fd: &Fd| smcinfo::info(fd.raw()).map(|info| info.reason);
    let ip = t.ip;
    let pair = || {
        let client = plain(ip);
        sys::connect(client.raw(), &at).expect("connect");
        (client, sys::accept(listener.raw()).expect("accept"))
    };
    let (client, server) = pair();
    t.is("before", path::prove_local(&client, &server), Ok(()));
    // The client connects to 7007 by the first rule; the second one is about the server, whoever comes.
    for denies in [
        format!("deny port=7007 peer={}", at.ip()),
        "deny port=7007".to_owned(),
        format!("deny port=7007 exe={}", me()),
    ] {
        rules(&["allow peer-port=7007", &denies]);
        turn(3);
        let (client, server) = pair();
        t.is(&denies, reason(&server), Ok(POLICY));
        t.check("not the client's", reason(&client) != Ok(POLICY));
        t.is("send", sys::send_all(client.raw(), b"later"), Ok(()));
        t.is(
            "recv",
            sys::recv_all(server.raw(), 5),
            Ok(b"later".to_vec()),
        );
        turn(1);
        let (client, server) = pair();
        t.is("without rules", path::prove_local(&client, &server), Ok(()));
    }
    rules(&["allow peer-port=7007", "allow port=7007"]);
    turn(2);
    let (client, server) = pair();
    t.is("allowed", path::prove_local(&client, &server), Ok(()));
    policy("flush");
    // Nothing allows it now: the client is TCP from the beginning.
    let (_client, server) = pair();
    t.check("none", reason(&server) != Ok(0));
}

fn shares(t: &mut T) {
    turn(3);
    t.is("path", path::local(1), Ok(true));
    rules(&["allow port=7006", "share=30"]);
    let listener = plain(t.ip);
    let at = SocketAddr::new(addr::loopback(t.ip), 7006);
    sys::bind(listener.raw(), &at).expect("bind");
    sys::listen(listener.raw(), 100).expect("listen");
    let mut smc = 0;
    for _ in 0..200 {
        let client = plain(t.ip);
        sys::connect(client.raw(), &at).expect("connect");
        let server = sys::accept(listener.raw()).expect("accept");
        if kinds([&client, &server])[0] != Some(POLICY) {
            smc += 1;
        }
    }
    t.say(&format!("{smc} of 200"));
    // Six times the deviation to each side.
    t.check("about 60", (21..=99).contains(&smc));
}

/// Sockets that ask for MPTCP, as Go's listeners do.
fn mptcp(t: &mut T) {
    let ask = |t: &T| sys::socket(super::domain(t.ip), libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    if ask(t).is_err() {
        return t.say("no MPTCP");
    }
    for value in [1, 2, 3] {
        turn(value);
        rules(&["allow"]);
        t.check("MPTCP stays", !is_smc(&ask(t).expect("socket")));
        rules(&["allow mptcp"]);
        t.check("unless a rule names it", is_smc(&ask(t).expect("socket")));
    }
}

/// A program that asks for SMC gets it, unless a rule denies it.
fn explicit(t: &mut T) {
    turn(2);
    t.is("path", path::local(1), Ok(true));
    let ask = |t: &T| sys::socket(super::domain(t.ip), libc::SOCK_STREAM, 256).expect("socket");
    let kind = |t: &T, port| {
        let listener = ask(t);
        sys::bind(listener.raw(), &SocketAddr::new(addr::loopback(t.ip), port)).expect("bind");
        sys::listen(listener.raw(), 4).expect("listen");
        kinds([&listener, &listener])[0]
    };
    t.check("no rule", kind(t, 7010) != Some(POLICY));
    rules(&["deny port=7011"]);
    t.is("a rule", kind(t, 7011), Some(POLICY));
    turn(0);
    t.check("no policy", kind(t, 7011) != Some(POLICY));
}

fn counted(t: &mut T) {
    turn(3);
    rules(&["deny port=7020", "allow"]);
    for _ in 0..3 {
        let listener = plain(t.ip);
        sys::bind(listener.raw(), &SocketAddr::new(addr::loopback(t.ip), 7020)).expect("bind");
        sys::listen(listener.raw(), 4).expect("listen");
    }
    let list = policy("list");
    let decided = list
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(1));
    t.is("decisions", decided, Some("3"));
}

/// Rules change while sockets are made and connected: no call fails.
fn flipping(t: &mut T) {
    turn(2);
    t.is("path", path::local(1), Ok(true));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ip = t.ip;
    let made = std::thread::scope(|scope| {
        let calls = || {
            let (listener, mut made) = (plain(ip), 0u64);
            sys::bind(listener.raw(), &SocketAddr::new(addr::loopback(ip), 0)).expect("bind");
            sys::listen(listener.raw(), 16).expect("listen");
            let at = sys::sockname(listener.raw()).expect("getsockname");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let client = plain(ip);
                sys::connect(client.raw(), &at).expect("connect");
                let server = sys::accept(listener.raw()).expect("accept");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    sys::send_all(from.raw(), b"flip").expect("send");
                    assert_eq!(sys::recv_all(to.raw(), 4).expect("recv"), b"flip");
                }
                made += 1;
            }
            made
        };
        let tasks: Vec<_> = (0..3).map(|_| scope.spawn(calls)).collect();
        for _ in 0..if st::guest::less() > 1 { 2 } else { 5 } {
            rules(&["allow"]);
            rules(&["deny peer-port=1-65535", "allow"]);
            rules(&["share=50"]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        tasks
            .into_iter()
            .map(|task| task.join().expect("a call failed"))
            .sum::<u64>()
    });
    t.say(&format!("{made} connections"));
    t.check("some", made > 100);
}
