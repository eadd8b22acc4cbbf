// SPDX-License-Identifier: GPL-2.0
//! Which hooks netfilter has: asked by `linux/netfilter/nfnetlink_hook.h`.

use crate::{calling, idle, listening};
use st::netlink::{attribute, attributes, Netlink};
use st::point::{Point, T};
use st::rawpeer::Peer;
use st::{net, sys};
use std::time::{Duration, Instant};

/// Points of `seen.`.
pub const LIST: &[Point] = &[
    point!("seen.none_at_first", none_at_first),
    point!("seen.go_after_client", go_after_client),
    point!("seen.go_after_listener", go_after_listener),
    point!("seen.stay_between_short_ones", stay_between_short_ones),
    point!("seen.stay_with_fallback", stay_with_fallback),
    point!("seen.come_and_go", come_and_go),
];

/// `NFNL_SUBSYS_HOOK` and `NFNL_MSG_HOOK_GET`.
const GET: u16 = 12 << 8;
const HOOKNUM: u16 = 1;
const MODULE_NAME: u16 = 5;
const LOCAL_OUT: u32 = 3;

/// Returns the time limit for the kernel's workers, in milliseconds.
fn patience() -> u64 {
    10_000 * st::guest::slow()
}

/// Counts the module's hooks in this namespace: two are right, one for each kind of address.
fn count() -> usize {
    let netlink = Netlink::open(libc::NETLINK_NETFILTER).expect("netlink");
    let of = |family: i32| {
        let mut body = vec![family as u8, 0, 0, 0];
        body.extend(attribute(HOOKNUM, &LOCAL_OUT.to_be_bytes()));
        let answers = netlink.ask(GET, true, &body).expect("list of hooks");
        let ours = |m: &&Vec<u8>| {
            let all = attributes(m.get(4..).unwrap_or_default()).expect("attributes");
            all.iter().any(|a| a.0 == MODULE_NAME && a.1 == b"rsmc\0")
        };
        answers.iter().filter(ours).count()
    };
    of(libc::AF_INET) + of(libc::AF_INET6)
}

/// Notes whether there will be `n` hooks soon.
fn soon(t: &mut T, what: &str, n: usize) {
    let end = Instant::now() + Duration::from_millis(patience());
    while count() != n && Instant::now() < end {
        sys::sleep_ms(1);
    }
    t.is(what, count(), n);
}

/// Notes whether there are hooks all the time for many times `ms`.
fn all_along(t: &mut T, what: &str, ms: u64) {
    let end = Instant::now() + Duration::from_millis(20 * ms);
    while Instant::now() < end {
        t.is(what, count(), 2);
        sys::sleep_ms(ms);
    }
}

fn none_at_first(t: &mut T) {
    t.is("fresh namespace", count(), 0);
    for name in ["strict", "limit_smc_hs"] {
        net::sysctl(&format!("net.smc.{name}"), "1").expect("sysctl");
    }
    idle(10);
    t.is("with sysctls", count(), 0);
    let fd = t.socket();
    t.is("with a socket", count(), 0);
    let _ = sys::setopt(fd.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    t.is("with a socket that was used", count(), 0);
    drop(fd);
    t.is("afterwards", count(), 0);
}

fn go_after_client(t: &mut T) {
    idle(20);
    let fd = calling(t);
    t.is("with the SYN", count(), 2);
    all_along(t, "while the handshake is under way", 20);
    drop(fd);
    soon(t, "after close", 0);
    let fd = calling(t);
    t.is("with the next one", count(), 2);
    drop(fd);
    soon(t, "after its close", 0);
}

fn go_after_listener(t: &mut T) {
    idle(20);
    let listeners = [listening(t), {
        let fd = t.socket();
        sys::listen(fd.raw(), 8).expect("listen");
        fd
    }];
    t.is("listening", count(), 2);
    let [first, second] = listeners;
    drop(first);
    all_along(t, "with another listener", 20);
    drop(second);
    soon(t, "after close", 0);
}

/// Short connections one after the other: the hooks stay although there is no socket in between.
fn stay_between_short_ones(t: &mut T) {
    idle(3_600_000);
    for _ in 0..20 {
        drop(calling(t));
        t.is("between", count(), 2);
        sys::sleep_ms(5);
    }
}

/// A connection that has become TCP, and that only the client has.
fn stay_with_fallback(t: &mut T) {
    idle(20);
    let fd = calling(t);
    let mut peer = Peer::wait_syn(&t.wire, t.ip, crate::FAKE, 4000).expect("no SYN");
    let acknowledged = peer.syn_ack(&[]);
    drop(peer);
    t.check("ACK", acknowledged);
    sys::poll_until(fd.raw(), libc::POLLOUT, patience());
    t.is("writes", sys::send(fd.raw(), b"x", 0), Ok(1));
    all_along(t, "with a connection", 20);
    drop(fd);
    soon(t, "after close", 0);
}

fn come_and_go(t: &mut T) {
    idle(10);
    for _ in 0..10 {
        drop(calling(t));
        soon(t, "gone", 0);
    }
}
