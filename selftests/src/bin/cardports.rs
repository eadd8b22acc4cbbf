// SPDX-License-Identifier: GPL-2.0
//! Devices with two ports: model cards (`kmod/card`, `ports=2`) in the namespaces `a` and `b`, whose second ports have
//! a network of their own, 10.79.0.0/24. Each port carries connections, and one that fails does not disturb the other.
//!
//! `cardports [POINT...]`

use st::args::Args;
use st::card::{begin_anew, lost, rsmc, trouble, wanted, Outcome, Pair};
use st::guest::{run, within};
use st::ktap::Ktap;
use st::{net, sys};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const TRANSFER: usize = 300 << 10;

type Point = (&'static str, fn() -> Outcome);

/// The points, by name.
const POINTS: [Point; 4] = [
    ("named", named),
    ("second", second),
    ("second_down", second_down),
    ("second_goes", second_goes),
];

/// The second ports get their network and their place.
fn join() {
    for (ns, program, words) in [
        (
            "a",
            "ip",
            "link add va2 type veth peer name vb2 netns /run/netns/b",
        ),
        ("a", "ip", "addr add 10.79.0.1/24 dev va2"),
        ("b", "ip", "addr add 10.79.0.2/24 dev vb2"),
        ("a", "ip", "link set va2 up"),
        ("b", "ip", "link set vb2 up"),
        ("a", "rdma", "link add card_a type card netdev va2"),
        ("b", "rdma", "link add card_b type card netdev vb2"),
    ] {
        run(ns, program, words);
    }
}

/// Without them.
fn part() {
    run("a", "ip", "link del va2");
}

/// A connection by the second ports.
fn by_second() -> Result<Pair, String> {
    let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 79, 0, 2)), 0);
    let pair = Pair::connect(to, |_, _| ())?;
    pair.is_smc()?;
    pair.transfer(TRANSFER)?;
    Ok(pair)
}

/// A connection by the first ports.
fn by_first() -> Result<Pair, String> {
    let pair = Pair::new()?;
    pair.is_smc()?;
    pair.transfer(TRANSFER)?;
    Ok(pair)
}

/// What `rsmc dev` says of a port of `card_a`.
fn told(port: u32) -> String {
    let all = rsmc("a", "dev");
    let name = format!("card_a/{port} ");
    let line = all.lines().find(|line| line.starts_with(&name));
    line.map_or(all.clone(), |line| {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

/// The ports of `a` that have links, by `rsmc link`, each with its interface's number.
fn linked() -> Vec<(u64, u64)> {
    let text = rsmc("a", "link --json");
    let numbers = |name: &str| -> Vec<u64> {
        let name = format!("\"{name}\": ");
        let found = text.lines().filter_map(|line| {
            let number = line.trim().strip_prefix(&name)?;
            number.trim_end_matches(',').parse().ok()
        });
        found.collect()
    };
    let mut all: Vec<_> = numbers("port")
        .into_iter()
        .zip(numbers("ifindex"))
        .collect();
    all.sort();
    all
}

fn ifindex(name: &'static str) -> u64 {
    within("a", move || {
        let name = std::ffi::CString::new(name).expect("a name");
        // SAFETY: A string that ends with zero.
        u64::from(unsafe { libc::if_nametoindex(name.as_ptr()) })
    })
}

/// A port without a network device is there, and says what it lacks; with one it can be used.
fn named() -> Outcome {
    begin_anew();
    let before = [told(1), told(2)];
    let good = before[0].starts_with("card_a/1 active ") && before[0].ends_with(" yes");
    let lacks = before[1].starts_with("card_a/2 down ") && before[1].contains("no: no interface");
    wanted("without", good && lacks, &before)?;
    join();
    let after = [told(1), told(2)];
    part();
    let good = after[1].starts_with("card_a/2 active ") && after[1].ends_with(" yes");
    wanted("with", good && after[0] == before[0], &after)
}

/// Connections by both ports; each link is one of its port.
fn second() -> Outcome {
    begin_anew();
    join();
    let done = by_second().and_then(|second| {
        wanted("links", linked() == [(2, ifindex("va2"))], linked())?;
        let first = by_first()?;
        let both = [(1, ifindex("va")), (2, ifindex("va2"))];
        wanted("links", linked() == both, linked())?;
        second.transfer(TRANSFER)?;
        first.transfer(TRANSFER)
    });
    part();
    done
}

/// The second port fails for good. Its connection ends, those of the first go on and new ones are made; then it is
/// back.
fn second_down() -> Outcome {
    begin_anew();
    join();
    let done = by_first().and_then(|first| {
        let second = by_second()?;
        trouble("card_a/2", "black_hole", 1);
        run("a", "ip", "link set va2 down");
        let _ = sys::send_all(second.client.raw(), &[0; 100]);
        first.transfer(TRANSFER)?;
        // Both ends, as one that has its group still would have the next connection join it.
        for end in [&second.client, &second.server] {
            lost("the second's end", sys::recv(end.raw(), &mut [0], 0))?;
        }
        first.transfer(TRANSFER)?;
        let next = by_first()?;
        trouble("card_a/2", "black_hole", 0);
        run("a", "ip", "link set va2 up");
        for ns in ["a", "b"] {
            rsmc(ns, "why --forget");
        }
        by_second()?;
        next.transfer(TRANSFER)?;
        first.transfer(TRANSFER)
    });
    part();
    done
}

/// The second port's network device goes, and with it what it carries; the first is not disturbed.
fn second_goes() -> Outcome {
    begin_anew();
    join();
    let done = by_first().and_then(|first| {
        let second = by_second()?;
        part();
        lost(
            "the second's end",
            sys::recv(second.client.raw(), &mut [0], 0),
        )?;
        first.transfer(TRANSFER)?;
        by_first()?;
        let told = told(2);
        wanted("told", told.contains("no: no interface"), &told)?;
        join();
        by_second()?;
        first.transfer(TRANSFER)
    });
    part();
    done
}

fn main() {
    let args = Args::get();
    let picked = |name: &str| args.words.is_empty() || args.words.iter().any(|word| word == name);
    let points: Vec<_> = POINTS.iter().filter(|point| picked(point.0)).collect();
    let mut ktap = Ktap::plan(points.len());
    for ns in ["a", "b"] {
        // A peer that keeps silent is found out soon.
        within(ns, || net::sysctl("net.smc.smcr_testlink_time", "2")).expect("sysctl");
    }
    for (name, run) in points {
        ktap.outcome(name, run());
    }
    std::process::exit(ktap.finish());
}
