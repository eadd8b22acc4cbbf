// SPDX-License-Identifier: GPL-2.0
//! Measures a ping-pong whose both ends busy-poll, over model cards (`kmod/card`).
//!
//! One thread has both ends, so one processor is enough and nobody is woken: it sends by one and reads by the other,
//! whose read polls the card until the wire's latency is over. All that happens on two processors happens here, one
//! after the other. What polls find nothing is waiting, and is taken off by whoever reads the profile: the same with
//! another latency (`far_`) has more of it and nothing else.

use crate::meter::{show, Meter};
use crate::place::Place;
use st::{card, sys};

const SIZE: usize = 64;
const TRIPS: u64 = 1000;
/// Nanoseconds for which a request is on its way.
const LATENCIES: [(&str, u32); 2] = [("busy_poll_64", 20_000), ("far_busy_poll_64", 40_000)];
/// Microseconds for which a read polls: more than any takes.
const POLLS: i32 = 100_000;
const SO_BUSY_POLL: i32 = 46;

/// Half a round trip, polls included, and the time from a doorbell until the program has what was sent, less the
/// wire's. Only if it is asked for by name.
pub fn ping_pong(p: &Place, m: &Meter) {
    for (metric, latency) in LATENCIES {
        if !m.only.is_empty() && m.wants(metric) {
            measure(p, m, metric, latency);
        }
    }
}

fn cards(latency: u32, polled: u32) {
    for name in ["card_a", "card_b"] {
        card::trouble(name, "latency", latency);
        card::trouble(name, "polled", polled);
    }
}

fn measure(p: &Place, m: &Meter, metric: &str, latency: u32) {
    let (one, other) = p.pair();
    let mut bytes = [0x5a; SIZE];
    let mut way = |from: i32, to: i32| {
        sys::send_all(from, &bytes).expect("send");
        let mut have = 0;
        while have < SIZE {
            have += sys::recv(to, &mut bytes[have..], 0).expect("receive") as usize;
        }
    };
    for fd in [&one, &other] {
        sys::setopt(fd.raw(), libc::SOL_SOCKET, SO_BUSY_POLL, POLLS).expect("SO_BUSY_POLL");
    }
    let (one, other) = (one.raw(), other.raw());
    cards(latency, 1);
    let mut trip = || {
        way(one, other);
        way(other, one);
    };
    let n = m.amount(TRIPS);
    for _ in 0..n / 10 + 1 {
        trip();
    }
    let (before, t) = (polled(), m.start());
    for _ in 0..n {
        trip();
    }
    let ns = t.stop(2 * n);
    let found = polled() - before;
    assert!(found * 10 >= n * 2 * 9, "{found} of {} polled", 2 * n);
    show(metric, ns / (2 * n) as f64, "ns");
    let mut all: Vec<u64> = (0..n / 10 + 1)
        .map(|_| {
            way(one, other);
            let at = now();
            let delay = at - card::counted("card_a", "doorbell_at") - u64::from(latency);
            way(other, one);
            delay
        })
        .collect();
    all.sort_unstable();
    show(&format!("{metric}_delay"), all[all.len() / 2] as f64, "ns");
    cards(0, 0);
}

/// The clock by which the card tells times.
fn now() -> u64 {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The place is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// What was found by polling: contexts of cards belong to the initial namespace.
fn polled() -> u64 {
    let text = std::fs::read_to_string("/proc/1/net/netstat").expect("netstat");
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut all = names.split(' ').zip(values.split(' '));
    let found = all.find(|(name, _)| *name == "BusyPollRxPackets");
    found
        .expect("BusyPollRxPackets")
        .1
        .parse()
        .expect("a number")
}
