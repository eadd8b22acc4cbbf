// SPDX-License-Identifier: GPL-2.0
//! Rules with `auto`: services with short connections are not offered SMC for a while, and come back; others are
//! not affected. Over SMC-R, by a soft-RoCE device on loopback.

use super::{plain, policy::policy, turn};
use st::fd::Fd;
use st::point::T;
use st::{addr, net, path, smcinfo, sys};
use std::net::SocketAddr;

st::points![auto_listener, auto_peer, auto_pays];

/// Reasons of connections that are TCP.
const PEERNOSMC: u32 = 0x0301_0000;
const PEERDECL: u32 = 0x0500_0000;
const AUTO: u32 = 0x0306_0109;
/// Credits of a new service.
const CREDITS: u32 = 16;
/// Mode and reason of a connection over SMC-R.
const SMCR: (u32, u32) = (0, 0);

/// Seconds of a pause that no test outlasts.
const LONG: u64 = 600;
/// Seconds of pauses whose end is waited for; the first that is long enough on this machine is taken.
const SHORT: [u64; 4] = [1, 4, 16, 64];

/// A soft-RoCE device, which goes when its sockets have gone.
struct Device(String);

impl Drop for Device {
    fn drop(&mut self) {
        let _ = net::rdma_delete(&self.0, 20 * st::guest::slow());
    }
}

fn pause(seconds: u64) {
    net::sysctl("net.smc.auto_pause", &seconds.to_string()).expect("sysctl");
}

fn set_up(rules: &[&str]) -> Device {
    turn(3);
    path::off().expect("path");
    pause(LONG);
    let device = Device(net::roce_on_loopback().expect("soft-RoCE"));
    for rule in rules {
        policy(&format!("add {rule}"));
    }
    device
}

fn listen(t: &T, port: u16) -> Fd {
    let fd = plain(t.ip);
    let at = SocketAddr::new(addr::loopback(t.ip), port);
    sys::bind(fd.raw(), &at).expect("bind");
    sys::listen(fd.raw(), 16).expect("listen");
    fd
}

fn kind(fd: &Fd) -> (u32, u32) {
    let info = smcinfo::info(fd.raw());
    info.map_or((9, 9), |info| (info.mode, info.reason))
}

/// A connection that moves `bytes` bytes from the client to the server, and what its ends are.
fn connection(t: &mut T, listener: &Fd, bytes: usize) -> [(u32, u32); 2] {
    let client = plain(t.ip);
    let to = sys::sockname(listener.raw()).expect("getsockname");
    t.is("connect", sys::connect(client.raw(), &to), Ok(0));
    let server = sys::accept(listener.raw()).expect("accept");
    let kinds = [kind(&client), kind(&server)];
    let (raw, data) = (client.raw(), vec![7; bytes]);
    let sent = data.clone();
    let sends = std::thread::spawn(move || sys::send_all(raw, &sent));
    t.check("bytes", sys::recv_all(server.raw(), bytes) == Ok(data));
    t.is("send", sends.join().expect("send"), Ok(()));
    t.is("answer", sys::send_all(server.raw(), b"answer"), Ok(()));
    t.is(
        "recv",
        sys::recv_all(client.raw(), 6),
        Ok(b"answer".to_vec()),
    );
    kinds
}

/// Short connections until the ends are TCP: how many were SMC's, and what the first one that was not is.
fn until_paused(t: &mut T, listener: &Fd) -> (u32, [(u32, u32); 2]) {
    let mut made = 0;
    loop {
        let kinds = connection(t, listener, 100);
        if kinds != [SMCR; 2] || made > 2 * CREDITS {
            return (made, kinds);
        }
        made += 1;
    }
}

/// The words of `rsmc policy learned` about a service, behind its name.
fn learned(service: &str) -> Option<String> {
    let all = policy("learned");
    let line = all.lines().find_map(|line| line.strip_prefix(service))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Has a service that is as new pause for a short time, and waits for the end of that. The pauses after it are long. A
/// pause that is over before the connection that finds it is tried again with a longer one.
fn outlast_pause(t: &mut T, listener: &Fd, service: &str) {
    for seconds in SHORT {
        policy("forget");
        t.is("forgotten", learned(service), None);
        // Whose SYN a listener that had a pause has answered without the option, perhaps.
        connection(t, listener, 100);
        pause(seconds);
        let first = learned(service).unwrap_or_default();
        let used = u32::from(first.ends_with(" 0 1"));
        if until_paused(t, listener).0 == CREDITS - used {
            break;
        }
    }
    pause(LONG);
    let over = || learned(service).is_some_and(|all| all.starts_with("with the next"));
    let waited = (0..600 * st::guest::slow()).any(|_| {
        let over = over();
        if !over {
            sys::sleep_ms(100);
        }
        over
    });
    t.check("the pause ends", waited);
}

fn auto_listener(t: &mut T) {
    let _device = set_up(&["auto port=7030-7031"]);
    let (short, other) = (listen(t, 7030), listen(t, 7031));
    let service = "listener on port 7030";
    t.is("nothing yet", learned(service), None);
    // Whose SYN was answered before the listener knew is told by CLC.
    let tcp = |reason| (smcinfo::MODE_TCP, reason);
    let seen = until_paused(t, &short);
    t.is("at first", seen, (CREDITS, [tcp(PEERDECL), tcp(AUTO)]));
    let kinds = connection(t, &short, 100);
    t.is("then no option", kinds, [tcp(PEERNOSMC), tcp(AUTO)]);
    let known = learned(service).unwrap_or_default();
    t.check(
        &format!("learned: {known}"),
        known.starts_with("in ") && known.ends_with(" 0 0 16"),
    );
    let kinds = connection(t, &other, 100);
    t.is("another port", kinds, [SMCR; 2]);
    t.is(
        "of it",
        learned("listener on port 7031"),
        Some("yes 15 0 1".into()),
    );

    outlast_pause(t, &short, service);
    // The one that finds the pause over has had its SYN answered.
    let kinds = connection(t, &short, 100);
    t.is("the last one", kinds, [tcp(PEERNOSMC), tcp(AUTO)]);
    let (made, _) = until_paused(t, &short);
    t.is("half as many", made, CREDITS / 2);
    let known = learned(service).unwrap_or_default();
    // From when its last connection ended, on a slow machine.
    let left = known.split(' ').nth(1).and_then(|left| left.parse().ok());
    t.check(
        &format!("twice as long: {known}"),
        left.is_some_and(|left: u64| (LONG + 1..=2 * LONG).contains(&left)),
    );

    policy("forget");
    t.is("forgotten", learned("listener"), None);
    connection(t, &short, 100);
    let made = until_paused(t, &short).0;
    t.is("as new", made, CREDITS);
    t.is("no more rules", policy("flush"), String::new());
    connection(t, &short, 100);
    let kinds = connection(t, &short, 100);
    t.is("as without", kinds, [SMCR; 2]);
}

/// A client learns of the peer's port.
fn auto_peer(t: &mut T) {
    let loopback = addr::loopback(t.ip);
    let _device = set_up(&[&format!("auto peer={loopback} peer-port=7040-7041")]);
    let (short, other) = (listen(t, 7040), listen(t, 7041));
    let (made, kinds) = until_paused(t, &short);
    t.is("at first", made, CREDITS);
    let tcp = |reason| (smcinfo::MODE_TCP, reason);
    t.is("then none", kinds, [tcp(AUTO), tcp(PEERNOSMC)]);
    let name = match loopback.to_canonical() {
        std::net::IpAddr::V4(address) => format!("{address}:7040"),
        std::net::IpAddr::V6(address) => format!("[{address}]:7040"),
    };
    let known = learned(&name).unwrap_or_default();
    t.check(
        &format!("learned: {known}"),
        known.starts_with("in ") && known.ends_with(" 0 0 16"),
    );
    let kinds = connection(t, &other, 100);
    t.is("another port", kinds, [SMCR; 2]);
    outlast_pause(t, &short, &name);
    let made = until_paused(t, &short).0;
    t.is("half as many", made, CREDITS / 2);
    let why = std::process::Command::new("rsmc").arg("why").output();
    let why = why.map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    let why = why.unwrap_or_default();
    t.check(&why, why.contains("0x03060109 AUTO"));
}

/// Connections that move enough are SMC's for ever, and make up for short ones.
fn auto_pays(t: &mut T) {
    let _device = set_up(&["auto port=7050"]);
    let listener = listen(t, 7050);
    for _ in 0..CREDITS {
        for bytes in [100, 100, 300_000] {
            let kinds = connection(t, &listener, bytes);
            t.is("kinds", kinds, [SMCR; 2]);
        }
    }
    t.is(
        "learned",
        learned("listener on port 7050"),
        Some("yes 16 16 32".into()),
    );
}
