// SPDX-License-Identifier: GPL-2.0
//! Which link a connection gets: with model cards (`kmod/card`) in the namespaces `a` and `b`, which tell of each
//! queue pair what it was set up with. Packets have the class that the program or the administrator wants, at both ends;
//! connections from two processors have two links, each with its interrupts on its processor.
//!
//! `cardlinks [POINT...]`

use st::args::Args;
use st::card::{self, wanted, Outcome, Pair};
use st::family::Ip;
use st::guest::{run, within};
use st::ktap::Ktap;
use st::{guest, net, smcinfo, sys};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

type Point = (&'static str, fn() -> Outcome);

/// The points, by name.
const POINTS: [Point; 9] = [
    ("class.none", class_none),
    ("class.socket", class_socket),
    ("class.priority", class_priority),
    ("class.sysctl", class_sysctl),
    ("class.server", class_server),
    ("class.limit", class_limit),
    ("by_processor.own", processor_own),
    ("by_processor.unused", processor_unused),
    ("by_processor.limit", processor_limit),
];

/// Messages there and back.
const PINGS: u64 = 50;

/// The reason of a connection that falls back for want of memory.
const NO_MEMORY: u32 = 0x0101_0000;

/// A value of `IP_TOS`: DSCP 26, which networks often give to RoCE.
const TOS: i32 = 0x68;

fn set_class(ns: &'static str, value: &'static str) {
    within(ns, move || net::sysctl("net.smc.traffic_class", value)).expect("sysctl");
}

/// Has both ends begin anew, without link groups: the cards go and come back.
fn begin() {
    card::begin_anew();
    for ns in ["a", "b"] {
        set_class(ns, "-1");
        within(ns, || net::sysctl("net.smc.peer_groups", "8")).expect("sysctl");
    }
}

/// Whether there are two processors.
fn has_two() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// Has the calling thread run on a processor alone.
fn stay_on(cpu: usize) {
    // SAFETY: A set of processors is plain bits, of which the kernel reads as many as it is told.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set)
    };
    assert_eq!(done, 0, "processor {cpu}");
}

/// A connected queue pair, as its card tells of it.
#[derive(Clone, Debug)]
struct Link(BTreeMap<String, u64>);

impl Link {
    fn get(&self, name: &str) -> u64 {
        *self.0.get(name).expect("a number of the card")
    }
}

/// The queue pairs of a card that are connected, by their numbers.
fn links(card: &str) -> BTreeMap<u64, Link> {
    let text = std::fs::read_to_string("/sys/module/card/parameters/links").expect("links");
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] != card {
            continue;
        }
        let numbers = words[1..].chunks(2);
        let link = Link(
            numbers
                .map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a number")))
                .collect(),
        );
        found.insert(link.get("qp"), link);
    }
    found
}

/// What a program wants of a socket.
#[derive(Clone, Copy, Default)]
struct Wants {
    tos: Option<i32>,
    priority: Option<i32>,
    server_tos: Option<i32>,
    /// The processor from which it connects.
    cpu: usize,
    /// Whether it uses the addresses of the VLAN.
    vlan: bool,
}

/// A connection over SMC-R.
fn smc(wants: Wants) -> Result<Pair, String> {
    let pair = connect(wants)?;
    pair.is_smc()?;
    ping(&pair)?;
    Ok(pair)
}

/// The same, whatever carries it.
fn connect(wants: Wants) -> Result<Pair, String> {
    let to = match wants.vlan {
        true => SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 78, 0, 2)), 0),
        false => guest::sockaddr(true, Ip::V4, 0),
    };
    Pair::connect(to, move |fd, server| {
        if !server {
            stay_on(wants.cpu);
        }
        let tos = if server { wants.server_tos } else { wants.tos };
        if let Some(tos) = tos {
            sys::setopt(fd.raw(), libc::IPPROTO_IP, libc::IP_TOS, tos).expect("IP_TOS");
        }
        if let (Some(priority), false) = (wants.priority, server) {
            let name = libc::SO_PRIORITY;
            sys::setopt(fd.raw(), libc::SOL_SOCKET, name, priority).expect("SO_PRIORITY");
        }
    })
}

/// Sends a few bytes there and back.
fn ping(pair: &Pair) -> Outcome {
    for (from, to) in [(&pair.client, &pair.server), (&pair.server, &pair.client)] {
        sys::send_all(from.raw(), b"ping").map_err(|e| format!("send: {e}"))?;
        let got = sys::recv_all(to.raw(), 4).map_err(|e| format!("receive: {e}"))?;
        wanted("bytes", got == b"ping", got)?;
    }
    Ok(())
}

fn from(cpu: usize) -> Result<Pair, String> {
    smc(Wants {
        cpu,
        ..Wants::default()
    })
}

/// Class and level of each link of `a` and of `b`.
type Seen = (Vec<(u64, u64)>, Vec<(u64, u64)>);

/// Checks that these are the classes and levels of the links, at the ends `a` and `b`.
fn classes(a: &[(u64, u64)], b: &[(u64, u64)]) -> Outcome {
    let of = |card| {
        let mut all: Vec<_> = links(card)
            .values()
            .map(|link| (link.get("class"), link.get("level")))
            .collect();
        all.sort();
        all
    };
    let seen: Seen = (of("card_a"), of("card_b"));
    wanted("class and level", seen == (a.to_vec(), b.to_vec()), &seen)
}

/// A program that asks for nothing.
fn class_none() -> Outcome {
    begin();
    let _pair = smc(Wants::default())?;
    classes(&[(0, 0)], &[(0, 0)])
}

/// The class that a program sets is that of both ends' packets; connections of one class share a link, and those of
/// another have another.
fn class_socket() -> Outcome {
    begin();
    let class = TOS as u64;
    let wants = Wants {
        tos: Some(TOS),
        ..Wants::default()
    };
    let _first = smc(wants)?;
    let _second = smc(wants)?;
    classes(&[(class, 0)], &[(class, 0)])?;
    let plain = smc(Wants::default())?;
    classes(&[(0, 0), (class, 0)], &[(0, 0), (class, 0)])?;
    drop(plain);
    let _joins = (smc(Wants::default())?, smc(wants)?);
    classes(&[(0, 0), (class, 0)], &[(0, 0), (class, 0)])
}

/// On a VLAN the priority decides what is in the tag, by each end's own table.
fn class_priority() -> Outcome {
    for (ns, words) in [
        (
            "a",
            "link add link va name va5 type vlan id 5 egress-qos-map 3:5",
        ),
        (
            "b",
            "link add link vb name vb5 type vlan id 5 egress-qos-map 3:6",
        ),
        ("a", "addr add 10.78.0.1/24 dev va5"),
        ("b", "addr add 10.78.0.2/24 dev vb5"),
        ("a", "link set va5 up"),
        ("b", "link set vb5 up"),
    ] {
        run(ns, "ip", words);
    }
    begin();
    let wants = Wants {
        priority: Some(3),
        vlan: true,
        ..Wants::default()
    };
    let done = smc(wants).and_then(|_pair| {
        let _plain = smc(Wants {
            vlan: true,
            ..Wants::default()
        })?;
        classes(&[(0, 0), (0, 5)], &[(0, 0), (0, 6)])
    });
    for (ns, words) in [("a", "link del va5"), ("b", "link del vb5")] {
        run(ns, "ip", words);
    }
    done
}

/// The administrator's value counts for all sockets of the namespace, at its own end and, if the client has it, at a
/// server's that has none.
fn class_sysctl() -> Outcome {
    begin();
    set_class("a", "106");
    let _pair = smc(Wants::default())?;
    let _other = smc(Wants {
        tos: Some(TOS),
        ..Wants::default()
    })?;
    classes(&[(106, 0)], &[(106, 0)])?;
    set_class("b", "96");
    let _third = smc(Wants::default())?;
    classes(&[(106, 0), (106, 0)], &[(96, 0), (106, 0)])
}

/// What the program of the server wants does not matter where the client says what it wants.
fn class_server() -> Outcome {
    begin();
    let _pair = smc(Wants {
        server_tos: Some(TOS),
        ..Wants::default()
    })?;
    classes(&[(0, 0)], &[(0, 0)])
}

/// Programs cannot have links of more than eight classes made; what comes then is carried by TCP, or by a link that is
/// there.
fn class_limit() -> Outcome {
    begin();
    let of = |class: i32| Wants {
        tos: Some(class * 4),
        ..Wants::default()
    };
    let mut pairs = Vec::new();
    for class in 1..=8 {
        pairs.push(smc(of(class))?);
    }
    let ninth = connect(of(9))?;
    let info = smcinfo::info(ninth.client.raw()).expect("info");
    let good = info.mode == smcinfo::MODE_TCP && info.reason == NO_MEMORY;
    wanted("the ninth by TCP", good, info)?;
    ping(&ninth)?;
    pairs.push(smc(of(3))?);
    wanted("links", links("card_a").len() == 8, links("card_a"))
}

/// The processors of the vectors of the links of `a`.
fn processors() -> Vec<u64> {
    let mut all: Vec<_> = links("card_a")
        .values()
        .map(|link| link.get("cpu"))
        .collect();
    all.sort();
    all
}

/// A link for each processor from which programs connect, as soon as the first one is in use; what arrives for a
/// connection interrupts its own.
fn processor_own() -> Outcome {
    begin();
    let pairs = [from(0)?, from(1)?];
    wanted("links", processors() == [0, 1], links("card_a"))?;
    let _joins = (from(1)?, from(0)?, from(1)?);
    wanted("links", processors() == [0, 1], links("card_a"))?;
    for (own, pair) in pairs.iter().enumerate() {
        let told = || -> BTreeMap<u64, (u64, u64)> {
            let all = links("card_a").into_values();
            all.map(|link| {
                (
                    link.get("cpu"),
                    (link.get("interrupts"), link.get("elsewhere")),
                )
            })
            .collect()
        };
        let before = told();
        for _ in 0..PINGS {
            ping(pair)?;
        }
        let after = told();
        let more = |cpu: usize| after[&(cpu as u64)].0 - before[&(cpu as u64)].0;
        // Some are found without an interrupt.
        let good = more(own) > PINGS / 5 && more(1 - own) < more(own) / 4;
        wanted("interrupts on its processor", good, (&before, &after))?;
        wanted("elsewhere", after.values().all(|told| told.1 == 0), &after)?;
    }
    Ok(())
}

/// Waits until no group of `a` has a connection.
fn wait_unused() -> Outcome {
    let until = guest::until(20_000);
    loop {
        let done = within("a", || {
            Command::new("rsmc").args(["link", "--json"]).output()
        });
        let text = String::from_utf8_lossy(&done.expect("rsmc").stdout).into_owned();
        let of_groups = text.matches("\"connections\"").count();
        if of_groups > 0 && text.matches("\"connections\": 0,").count() == of_groups {
            return Ok(());
        }
        wanted(
            "the end of a connection",
            std::time::Instant::now() < until,
            &text,
        )?;
        sys::sleep_ms(20);
    }
}

/// Short connections, one after the other, stay in one link, wherever they come from: a first contact is dear.
fn processor_unused() -> Outcome {
    begin();
    for cpu in [0, 1, 0, 1] {
        drop(from(cpu)?);
        wanted("links", processors() == [0], links("card_a"))?;
        wait_unused()?;
    }
    Ok(())
}

/// No more links than the administrator wants.
fn processor_limit() -> Outcome {
    begin();
    within("a", || net::sysctl("net.smc.peer_groups", "1")).expect("sysctl");
    let _pairs = (from(0)?, from(1)?, from(1)?);
    wanted("links", processors().len() == 1, links("card_a"))
}

fn main() {
    let args = Args::get();
    let picked = |name: &str| args.words.is_empty() || args.words.iter().any(|word| word == name);
    let points: Vec<_> = POINTS.iter().filter(|point| picked(point.0)).collect();
    let mut ktap = Ktap::plan(points.len());
    for (name, run) in points {
        match name.starts_with("by_processor") && !has_two() {
            true => ktap.skip(name, "needs two processors"),
            false => ktap.outcome(name, run()),
        }
    }
    // The cards stay: they have counted.
    for ns in ["a", "b"] {
        set_class(ns, "-1");
        within(ns, || net::sysctl("net.smc.peer_groups", "8")).expect("sysctl");
    }
    std::process::exit(ktap.finish());
}
