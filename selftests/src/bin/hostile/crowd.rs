// SPDX-License-Identifier: GPL-2.0
//! As many first contacts as the module lets be under way in all. Whoever comes meanwhile has to
//! wait, other points as well: these run alone, and only when they are named.

use crate::bystander::Bystanders;
use crate::host::{Host, Role, LISTENER};
use st::packet::SMC_OPTION;
use st::point::{Point, T};
use st::rawpeer::{other_addr, wire_addr, Peer, Wire};
use st::{clc, guest, net, sys};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The points of this file.
pub const LIST: &[Point] = &[
    Point {
        name: "crowd.many_begin",
        run: |t| crate::with(t, Role::Client, many_begin),
    },
    Point {
        name: "crowd.many_join",
        run: |t| crate::with(t, Role::Client, many_join),
    },
];

/// The last byte of the first address.
const FIRST: u8 = 100;
const ALL: u8 = 70;
const AT_ONCE: usize = 64;
const PORT: u16 = LISTENER + 100;
/// Nobody has given up before: the module waits for 6 s, and who waits his turn for 5 s.
const PATIENCE: Duration = Duration::from_secs(3);
const SILENCE: Duration = Duration::from_millis(500);
/// A slow guest takes its time to end first contacts.
const LONG_SILENCE: Duration = Duration::from_secs(2);
/// Time that a first contact waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// More than a workqueue works on at a time.
const JOINERS: u16 = 1100;
/// Milliseconds that a program waits at most which has nothing to do with any of that.
const UNNOTICED: u64 = 200;

/// A peer without receives, and as many connections of it as the module would have workers, all of which
/// want to join its group, which has to register memory first: nobody else waits for that.
fn many_join(t: &mut T, h: &mut Host) {
    let joiners = JOINERS / if guest::less() > 1 { 4 } else { 1 };
    t.is("backlog", net::sysctl("net.core.somaxconn", "4096"), Ok(()));
    let module = SocketAddr::new(wire_addr(false, t.ip), PORT);
    let listener = t.socket();
    sys::bind(listener.raw(), &module).expect("bind");
    sys::listen(listener.raw(), 4096).expect("listen");
    let mut all = vec![];
    for _ in 0..4 {
        let Some(c) = h.open(t) else { return };
        all.push(c);
    }
    let others = match Bystanders::start(t) {
        Ok(others) => others,
        Err(error) => return t.check(&error, false),
    };
    h.rc.never_ready();
    let r = sys::send(all[0].fd.raw(), b"nobody takes this", libc::MSG_NOSIGNAL);
    t.is("send", r.ok(), Some(17));
    let wire = Wire::open("vb").expect("packet socket");
    let from = |n| SocketAddr::new(wire_addr(true, t.ip), 30001 + n);
    let mut waiting = vec![];
    for n in 0..joiners {
        // Whom the module does not let in takes nothing of it, either.
        let Some(mut tcp) = Peer::connect_from(&wire, from(n), module, &SMC_OPTION) else {
            break;
        };
        let me = h.end();
        tcp.send(&clc::proposal_v2(&me, 1));
        waiting.push(tcp);
    }
    t.say(&format!("{} of {joiners} want to join", waiting.len()));
    t.check(
        "many want to join",
        waiting.len() > usize::from(joiners) / 2,
    );
    for (i, c) in all.iter().enumerate() {
        c.dead_within(t, &format!("connection {i}"), 12_000);
    }
    others.finish(t, UNNOTICED);
    drop((waiting, listener));
}

/// First contacts none of which goes on, from so many addresses that each may begin one alone, and
/// some have to wait for those of others; an honest one that comes when they have gone is served.
fn many_begin(t: &mut T, h: &mut Host) {
    let ip = t.ip;
    let addresses = (FIRST..FIRST + ALL).map(|last| other_addr(ip, last));
    let mac = net::MAC_B.map(|byte| format!("{byte:02x}")).join(":");
    let known: Vec<_> = addresses
        .clone()
        .map(|a| format!("neigh replace {a} lladdr {mac} dev va nud permanent"))
        .collect();
    t.is("neighbours", net::ip(&known.join("\n")), Ok(()));
    let module = SocketAddr::new(wire_addr(false, t.ip), PORT);
    let listener = t.socket();
    sys::bind(listener.raw(), &module).expect("bind");
    sys::listen(listener.raw(), 2 * i32::from(ALL)).expect("listen");
    let wire = Wire::open("vb").expect("packet socket");
    let began = Instant::now();
    let mut waiting: Vec<_> = addresses
        .map(|address| {
            let from = SocketAddr::new(address, 30001);
            Peer::connect_from(&wire, from, module, &SMC_OPTION).expect("no SYN-ACK")
        })
        .collect();
    for (n, tcp) in (0..).zip(&mut waiting) {
        let mut me = h.end();
        me.peer_id = [n; 8];
        tcp.send(&clc::proposal_v2(&me, 1));
    }
    // A loaded machine may be silent before it has answered all.
    let mut first = accepted(&wire, &mut waiting, AT_ONCE, PATIENCE);
    first.extend(accepted(&wire, &mut waiting, 1, SILENCE));
    let early = began.elapsed() < PATIENCE;
    if early {
        t.is("as many as may be", first.len(), AT_ONCE);
    } else {
        t.check("some are answered", !first.is_empty());
    }
    first.into_iter().for_each(|mut tcp| tcp.send_rst());
    let all = waiting.len();
    let second = accepted(&wire, &mut waiting, all, LONG_SILENCE);
    // Nobody gave up before the silence began.
    if early && began.elapsed() < TURN + LONG_SILENCE {
        t.is("still waiting", waiting.len(), 0);
    }
    second.into_iter().for_each(|mut tcp| tcp.send_rst());
    drop(listener);
    let Some(mut c) = h.open(t) else { return };
    c.lives(t, &h.rc, "an honest one");
}

/// Takes those out of `waiting` that are accepted, up to `most`, until there has been silence for a
/// while.
fn accepted<'a>(
    wire: &Wire,
    waiting: &mut Vec<Peer<'a>>,
    most: usize,
    silence: Duration,
) -> Vec<Peer<'a>> {
    let mut accepted = vec![];
    while accepted.len() < most {
        let Some(heard) = wire.next_until(Instant::now() + silence, |s| {
            s.src.port() == PORT && s.data.get(4) == Some(&clc::ACCEPT)
        }) else {
            break;
        };
        if let Some(at) = waiting.iter().position(|tcp| tcp.me == heard.dst) {
            accepted.push(waiting.remove(at));
        }
    }
    accepted
}
