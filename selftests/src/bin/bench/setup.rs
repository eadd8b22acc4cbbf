// SPDX-License-Identifier: GPL-2.0
//! Measures the cost to set up connections and to keep them.

use crate::meter::{show, Meter};
use crate::place::Place;
use st::fd::Fd;
use st::{args::bail, sys};
use std::time::Instant;

/// Lets link groups without connections end, and what they hold with them: sleeps longer than
/// both modules keep them. Where the clock counts instructions that takes no time.
fn let_groups_end() {
    sys::sleep_ms(700_000);
}

/// socket, connect, accept, close of both, and with `talk` 4 bytes each way in between. One
/// thread does all, so that no queue can fill and nothing depends on scheduling.
fn once(p: &Place, l: &Fd, a: &std::net::SocketAddr, talk: bool) {
    let (c, s) = p.connect(l, a);
    if talk {
        exchange(&c, &s);
    }
}

/// socket and close.
pub fn socket_close(p: &Place, m: &Meter) {
    if !m.wants("socket_close") {
        return;
    }
    let n = m.amount(5000);
    (0..n / 10 + 1).for_each(|_| drop(p.socket(p.client)));
    let t = m.start();
    (0..n).for_each(|_| drop(p.socket(p.client)));
    show("socket_close", t.stop(n) / n as f64, "ns");
}

/// Short connections, one after the other.
pub fn connect_close(p: &Place, m: &Meter) {
    for (metric, talk) in [("connect_close", false), ("connect_request_close", true)] {
        if !m.wants(metric) || !p.is_net() {
            continue;
        }
        let (l, a) = p.listen();
        if p.local.is_some() {
            let (c, s) = p.connect(&l, &a);
            p.prove(&c, &s);
        }
        let n = m.amount(1000);
        (0..n / 10 + 1).for_each(|_| once(p, &l, &a, talk));
        let t = m.start();
        (0..n).for_each(|_| once(p, &l, &a, talk));
        show(metric, t.stop(n) / n as f64, "ns");
    }
}

/// Connections that find no link group.
pub fn first_contact(p: &Place, m: &Meter) {
    if !m.wants("first_contact") || !p.is_net() || !m.counting {
        return;
    }
    let (l, a) = p.listen();
    let plain = p.plain();
    let (plain_l, plain_a) = plain.listen();
    let n = m.amount(5);
    let mut ns = Vec::new();
    for _ in 0..n {
        let_groups_end();
        // The way to the peer is known.
        once(&plain, &plain_l, &plain_a, true);
        let t = Instant::now();
        once(p, &l, &a, true);
        ns.push(t.elapsed().as_nanos() as f64);
    }
    ns.sort_by(f64::total_cmp);
    show("first_contact", ns[ns.len() / 2], "ns");
}

/// Free memory in KiB, with what can be given back given back.
fn free() -> f64 {
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    sys::sleep_ms(2000);
    let text = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text.lines().find_map(|l| l.strip_prefix("MemFree:"));
    let word = line.and_then(|l| l.split_ascii_whitespace().next());
    let free: f64 = word
        .and_then(|w| w.parse().ok())
        .unwrap_or_else(|| bail("no MemFree in /proc/meminfo"));
    free + held_by_processors()
}

/// Free pages, in KiB, that processors keep for themselves: some megabytes, which MemFree leaves out.
fn held_by_processors() -> f64 {
    let text = std::fs::read_to_string("/proc/zoneinfo").expect("zoneinfo");
    let counts = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("count:")?.trim().parse::<f64>().ok());
    counts.sum::<f64>() * 4.0
}

/// Sends 4 bytes each way.
fn exchange(c: &Fd, s: &Fd) {
    for (from, to) in [(c, s), (s, c)] {
        sys::send(from.raw(), b"ping", 0).expect("send");
        assert_eq!(sys::recv_all(to.raw(), 4).expect("recv"), b"ping");
    }
}

/// Measures the memory of idle connections, both ends together: with receive buffers of the default size, with
/// small ones, and two seconds after each has sent 4 bytes each way; and how much of it is still gone
/// five seconds after they are closed, and when the groups have ended.
pub fn memory(p: &Place, m: &Meter) {
    if !p.is_net() || !m.counting {
        return;
    }
    let kinds = [
        ("", None, 1000, false),
        ("_16k", Some(16 << 10), 1000, false),
        ("_used", None, 200, true),
    ];
    for (kind, rcvbuf, full, talk) in kinds {
        let metric = |what: &str| format!("memory_{what}{kind}");
        let all = ["idle", "at_close", "after_close"].map(metric);
        if !all.iter().any(|metric| m.wants(metric)) {
            continue;
        }
        let p = p.with_rcvbuf(rcvbuf);
        let (l, a) = p.listen();
        let n = m.amount(full);
        let open = || {
            let held: Vec<(Fd, Fd)> = (0..n).map(|_| p.connect(&l, &a)).collect();
            if talk {
                held.iter().for_each(|(c, s)| exchange(c, s));
            }
            held
        };
        drop(open());
        let_groups_end();
        let before = free();
        let held = open();
        if let Some((c, s)) = held.last() {
            p.prove(c, s);
        }
        let [idle, at_close, after_close] = all;
        // Looking takes two seconds.
        let tell = |metric: &str| show(metric, (before - free()) / n as f64, "KiB");
        tell(&idle);
        drop(held);
        sys::sleep_ms(3000);
        tell(&at_close);
        let_groups_end();
        tell(&after_close);
    }
}
