// SPDX-License-Identifier: GPL-2.0
//! As many first contacts as the module lets be under way in all. Whoever comes meanwhile has to
//! wait, other points as well: these run alone, and only when they are named.

use crate::bystander::Bystanders;
use crate::host::{gid, Host, Role, LISTENER};
use crate::silent::{others_do_not_wait, Server};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::packet::SMC_OPTION;
use st::point::{Point, T};
use st::rawpeer::{network_addr, other_addr, wire_addr, Peer, Wire};
use st::{clc, guest, net, sys};
use std::net::{IpAddr, SocketAddr};
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
    Point {
        name: "crowd.of_one_network",
        run: |t| crate::with(t, Role::Client, of_one_network),
    },
];

const ALL: u8 = 70;
/// Half of all first contacts: a namespace leaves as many to others.
const AT_ONCE: usize = 32;
const PORT: u16 = LISTENER + 100;
/// Nobody has given up before: the module waits for 6 s, and a handshake that waits for its turn for 5 s.
const PATIENCE: Duration = Duration::from_secs(3);
const SILENCE: Duration = Duration::from_millis(500);
/// A slow guest takes its time to end first contacts.
const LONG_SILENCE: Duration = Duration::from_secs(2);
/// Time that a first contact waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// More than a workqueue works on at a time.
const JOINERS: u16 = 1100;

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
    others.finish(t);
    drop((waiting, listener));
}

/// Tells the kernel's end where these addresses are.
fn introduce(t: &mut T, addresses: &[IpAddr]) {
    let mac = net::MAC_B.map(|byte| format!("{byte:02x}")).join(":");
    let known: Vec<_> = (addresses.iter())
        .map(|a| {
            format!("route replace {a} dev va\nneigh replace {a} lladdr {mac} dev va nud permanent")
        })
        .collect();
    t.is("neighbours", net::ip(&known.join("\n")), Ok(()));
}

/// Begins a first contact from each of these addresses, and lets it lie.
fn begin<'a>(
    wire: &'a Wire,
    h: &mut Host,
    module: SocketAddr,
    addresses: &[IpAddr],
) -> Vec<Peer<'a>> {
    let up = |address: &IpAddr| {
        let from = SocketAddr::new(*address, 30001);
        Peer::connect_from(wire, from, module, &SMC_OPTION).expect("no SYN-ACK")
    };
    let mut all: Vec<_> = addresses.iter().map(up).collect();
    for (n, tcp) in (0..).zip(&mut all) {
        let mut me = h.end();
        me.peer_id = [n; 8];
        tcp.send(&clc::proposal_v2(&me, 1));
    }
    all
}

/// A listener of the module with room for all.
fn listen(t: &T) -> (Fd, SocketAddr) {
    let module = SocketAddr::new(wire_addr(false, t.ip), PORT);
    let listener = t.socket();
    sys::bind(listener.raw(), &module).expect("bind");
    sys::listen(listener.raw(), 2 * i32::from(ALL)).expect("listen");
    (listener, module)
}

/// First contacts none of which goes on, from networks enough for each to begin one alone, and
/// some have to wait for those of others; an honest one that comes when they have gone is served.
fn many_begin(t: &mut T, h: &mut Host) {
    let ip = t.ip;
    let addresses: Vec<_> = (0..ALL).map(|n| network_addr(ip, n)).collect();
    introduce(t, &addresses);
    let (listener, module) = listen(t);
    let wire = Wire::open("vb").expect("packet socket");
    let began = Instant::now();
    let mut waiting = begin(&wire, h, module, &addresses);
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
    loop {
        let next = accepted(&wire, &mut waiting, AT_ONCE, LONG_SILENCE);
        if next.is_empty() {
            break;
        }
        next.into_iter().for_each(|mut tcp| tcp.send_rst());
    }
    // Nobody gave up before the silence began.
    if early && began.elapsed() < TURN + LONG_SILENCE {
        t.is("still waiting", waiting.len(), 0);
    }
    drop(listener);
    let Some(mut c) = h.open(t) else { return };
    c.lives(t, &h.rc, "an honest one");
}

/// The diagnosis of a decline for want of a device.
const NO_DEVICE: u32 = 0x0303_0000;

/// First contacts of 64 addresses, none of which goes on. Of IPv6 one host may have them all: a first contact from
/// another network is answered at once. So is one in another namespace, whoever they are.
fn of_one_network(t: &mut T, h: &mut Host) {
    let ip = t.ip;
    let addresses: Vec<_> = (100..164).map(|last| other_addr(ip, last)).collect();
    let stranger = network_addr(ip, 1);
    introduce(t, &addresses);
    introduce(t, &[stranger]);
    let server = Server::start(t, PORT, 128);
    let module = SocketAddr::new(wire_addr(false, ip), PORT);
    let wire = Wire::open("vb").expect("packet socket");
    let all = begin(&wire, h, module, &addresses);
    // Until the module has come to all of them.
    guest::pause(300);
    let most = u128::from(guest::noticed());
    let mut answered = |what: &str, mut tcp: Peer, me: &clc::End| {
        let start = Instant::now();
        tcp.send(&clc::proposal_v2(me, 1));
        let m = clc::read(&mut tcp, 8000).unwrap_or_default();
        let ms = start.elapsed().as_millis();
        t.say(&format!("{what}: answered after {ms} ms"));
        t.is(what, clc::header(&m).map(|h| h.ty), Some(clc::ACCEPT));
        t.check(&format!("{what} waits for {ms} ms"), ms < most);
    };
    let from = SocketAddr::new(stranger, 30001);
    let tcp = Peer::connect_from(&wire, from, module, &SMC_OPTION).expect("no SYN-ACK");
    let mut me = h.end();
    me.peer_id = [0xee; 8];
    // As many addresses of IPv4 are as many hosts, who may have what this namespace has.
    if ip == Ip::V6 {
        answered("a stranger", tcp, &me);
    }
    let family = t.family;
    let ms = std::thread::spawn(move || elsewhere(family, ip)).join();
    match ms.unwrap_or_else(|_| Err("panicked".into())) {
        Ok(ms) => {
            t.say(&format!("in another namespace: answered after {ms} ms"));
            t.check(&format!("in another namespace: after {ms} ms"), ms < most);
        }
        Err(e) => t.check(&format!("in another namespace: {e}"), false),
    }
    // Of this namespace: clients of TCP, and of a host whose group there is.
    others_do_not_wait(t, PORT, Duration::from_secs(2));
    let _ = server.finish();
    drop(all);
}

/// Has a client of a listener in a namespace of its own begin a first contact. Returns how long the answer took, in
/// milliseconds.
fn elsewhere(family: Family, ip: Ip) -> Result<u128, String> {
    net::private().map_err(|e| e.to_string())?;
    net::wire()?;
    // SAFETY: No pointers.
    let device = format!("rxc{}", unsafe { libc::gettid() });
    net::sh(&format!("rdma link add {device} type rxe netdev va"))?;
    let (domain, protocol) = family.triple(ip);
    let listener = sys::socket(domain, libc::SOCK_STREAM, protocol).map_err(|e| e.to_string())?;
    let module = SocketAddr::new(wire_addr(false, ip), PORT);
    sys::bind(listener.raw(), &module).map_err(|e| e.to_string())?;
    sys::listen(listener.raw(), 64).map_err(|e| e.to_string())?;
    let wire = Wire::open("vb").map_err(|e| e.to_string())?;
    let me = clc::End {
        peer_id: [0xdd; 8],
        gid: gid(wire_addr(true, ip)),
        mac: net::MAC_B,
        qpn: 0x7000,
        rkey: 1,
        idx: 1,
        token: 1,
        size: 2,
        mtu: 3,
        addr: 0x1000,
        psn: 1,
    };
    let mut result = Err("no accept".to_owned());
    // The device's GIDs may come a moment after the device.
    for port in 30001..30051 {
        let mut tcp = Peer::connect(&wire, ip, port, PORT, &SMC_OPTION).ok_or("no SYN-ACK")?;
        let start = Instant::now();
        tcp.send(&clc::proposal_v2(&me, 1));
        let m = clc::read(&mut tcp, 8000).unwrap_or_default();
        if clc::diagnosis(&m) == Some(NO_DEVICE) {
            sys::sleep_ms(20);
            continue;
        }
        if clc::header(&m).map(|h| h.ty) == Some(clc::ACCEPT) {
            result = Ok(start.elapsed().as_millis());
        }
        tcp.send_rst();
        break;
    }
    drop(listener);
    net::rdma_delete(&device, 10 * guest::slow())?;
    result
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
