// SPDX-License-Identifier: GPL-2.0
//! Clients whose SYN says that they speak SMC, and who then say nothing: others must not wait for
//! them, whether they speak TCP or SMC.

use crate::host::{Host, Role, LISTENER};
use st::errno::R;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::packet::{smc_options, SMC_OPTION};
use st::point::{Point, T};
use st::rawpeer::{network_addr, wire_addr, Peer, Wire};
use st::{clc, guest, net, smcinfo, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The points of this file.
pub const LIST: &[Point] = &[
    Point {
        name: "silent.of_one_address",
        run: |t| crate::with(t, Role::Client, of_one_address),
    },
    Point {
        name: "silent.of_many_addresses",
        run: |t| crate::with(t, Role::Client, of_many_addresses),
    },
    Point {
        name: "silent.trickling",
        run: |t| crate::with(t, Role::Client, trickling),
    },
];

const PORT: u16 = LISTENER + 200;
/// That of a small server; as many connections and one more find place in TCP's own queue.
const BACKLOG: i32 = 5;
/// The module waits for a client's message for 6 s; a little longer.
const WHILE: Duration = Duration::from_millis(7500);
/// After this time without a word a client counts as silent; a little longer.
const COUNTED: Duration = Duration::from_millis(2500);

/// A program that accepts at once, and says a byte to everybody.
pub struct Server {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Server {
    /// Listens on this port.
    pub fn start(t: &T, port: u16, backlog: i32) -> Server {
        let listener = t.socket();
        let here = SocketAddr::new(wire_addr(false, t.ip), port);
        sys::bind(listener.raw(), &here).expect("bind");
        sys::listen(listener.raw(), backlog).expect("listen");
        sys::nonblock(listener.raw(), true);
        let stop = Arc::new(AtomicBool::new(false));
        let end = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut accepted = vec![];
            while !end.load(Ordering::Relaxed) {
                let _ = sys::poll1(listener.raw(), libc::POLLIN, 50);
                while let Ok(fd) = sys::accept(listener.raw()) {
                    let _ = sys::send(fd.raw(), b"!", libc::MSG_NOSIGNAL);
                    accepted.push(fd);
                }
            }
            accepted.len()
        });
        Server { stop, thread }
    }

    /// Returns how many it has accepted.
    pub fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the server")
    }
}

/// What clients of a kind have met.
#[derive(Default)]
pub struct Waits {
    /// How many clients there were.
    pub number: usize,
    /// How many connections were SMC.
    pub smc: usize,
    /// The longest time from connect() to the server's byte, in milliseconds.
    longest: u128,
    failed: Vec<String>,
}

fn visit(family: Family, ip: Ip, to: &SocketAddr) -> R<bool> {
    let (domain, protocol) = family.triple(ip);
    let fd: Fd = sys::socket(domain, libc::SOCK_STREAM, protocol)?;
    let patience = 10_000 * guest::slow() as i64;
    sys::set_timeo(fd.raw(), libc::SO_SNDTIMEO, patience)?;
    sys::set_timeo(fd.raw(), libc::SO_RCVTIMEO, patience)?;
    sys::connect(fd.raw(), to)?;
    sys::recv_all(fd.raw(), 1)?;
    Ok(smcinfo::info(fd.raw()).is_ok_and(|info| info.mode == 0))
}

/// Connects as a client of this family again and again.
fn visits(family: Family, to: SocketAddr, pause: u64, span: Duration) -> Waits {
    let ip = if to.is_ipv4() { Ip::V4 } else { Ip::V6 };
    let mut waits = Waits::default();
    let start = Instant::now();
    while start.elapsed() < span {
        let began = Instant::now();
        match visit(family, ip, &to) {
            Ok(smc) => waits.smc += usize::from(smc),
            Err(e) => waits.failed.push(e.to_string()),
        }
        waits.number += 1;
        waits.longest = waits.longest.max(began.elapsed().as_millis());
        sys::sleep_ms(pause);
    }
    waits
}

/// Lets a plain TCP client come ten times a second for a while, and one of the family twice; nobody may wait
/// for long. Returns what the latter has met.
pub fn others_do_not_wait(t: &mut T, port: u16, span: Duration) -> Waits {
    let to = SocketAddr::new(wire_addr(false, t.ip), port);
    let family = t.family;
    let own = std::thread::spawn(move || visits(family, to, 500, span));
    let tcp = visits(Family::Tcp, to, 100, span);
    let own = own.join().expect("a thread");
    for (name, waits) in [("TCP", &tcp), (family.name(), &own)] {
        t.is(&format!("{name} fails"), waits.failed.first(), None);
        let (number, smc, ms) = (waits.number, waits.smc, waits.longest);
        t.say(&format!(
            "{number} clients of {name}, {smc} of them SMC: the longest wait was {ms} ms"
        ));
        t.check(
            &format!("a client of {name} waits for {ms} ms"),
            ms < u128::from(guest::noticed()),
        );
    }
    own
}

/// More silent clients than the backlog allows come from one address. The others are accepted at once, and
/// speak SMC; clients of that address are not offered SMC any more.
fn of_one_address(t: &mut T, _: &mut Host) {
    let server = Server::start(t, PORT, BACKLOG);
    let module = SocketAddr::new(wire_addr(false, t.ip), PORT);
    let wire = Wire::open("vb").expect("packet socket");
    // As many as the backlog may be in TCP's own queue at once, and more SYNs are dropped then, as with TCP.
    let tries = (31000..31040).filter_map(|n| {
        guest::pause(30);
        Peer::connect(&wire, t.ip, n, PORT, &SMC_OPTION)
    });
    let silent: Vec<_> = tries.take(12).collect();
    t.is("silent clients", silent.len(), 12);
    guest::pause(300);
    for client in &silent {
        t.is("offered SMC", smc_options(&client.syn.opts), 1);
    }
    let own = others_do_not_wait(t, PORT, COUNTED.max(WHILE));
    t.is("all of the family speak SMC", own.smc, own.number);
    let from = SocketAddr::new(wire_addr(true, t.ip), 32000);
    let next = Peer::connect_from(&wire, from, module, &SMC_OPTION);
    let offered = next.map(|next| smc_options(&next.syn.opts));
    t.is("offered to the next one of that address", offered, Some(0));
    let _ = server.finish();
}

/// So many silent clients, each of another network, that SMC is not offered to anybody for a while. Then
/// the program has them, and SMC is offered again.
fn of_many_addresses(t: &mut T, _: &mut Host) {
    const ALL: u8 = 90;
    const ENOUGH: usize = 65;
    let (ip, mac) = (t.ip, net::MAC_B.map(|byte| format!("{byte:02x}")).join(":"));
    let addresses: Vec<_> = (0..ALL).map(|n| network_addr(ip, n)).collect();
    let known: Vec<_> = (addresses.iter())
        .flat_map(|a| {
            let way = format!("route replace {a} dev va");
            [
                way,
                format!("neigh replace {a} lladdr {mac} dev va nud permanent"),
            ]
        })
        .collect();
    t.is("neighbours", net::ip(&known.join("\n")), Ok(()));
    let server = Server::start(t, PORT, BACKLOG);
    let module = SocketAddr::new(wire_addr(false, ip), PORT);
    let wire = Wire::open("vb").expect("packet socket");
    let mut silent = vec![];
    for address in addresses {
        let from = SocketAddr::new(address, 31000);
        silent.extend(Peer::connect_from(&wire, from, module, &SMC_OPTION));
    }
    let offered = silent.iter().filter(|c| smc_options(&c.syn.opts) == 1);
    let offered = offered.count();
    t.say(&format!(
        "{offered} of {} silent clients were offered SMC",
        silent.len()
    ));
    t.check("more than may be under way", offered >= ENOUGH);
    guest::pause(300);
    others_do_not_wait(t, PORT, COUNTED);
    // Whoever comes now is one behind whom the silent ones are handed on.
    let own = others_do_not_wait(t, PORT, WHILE);
    t.check("SMC is offered again", own.smc > 0);
    let accepted = server.finish();
    t.check(
        &format!("the program has {accepted}"),
        accepted > silent.len(),
    );
}

/// Clients that send their proposals byte by byte, so that their handshakes always have something to do. Those that are
/// ready do not wait for them.
fn trickling(t: &mut T, _: &mut Host) {
    const CLIENTS: u16 = 8;
    let server = Server::start(t, PORT, BACKLOG);
    let ip = t.ip;
    let trickle = std::thread::spawn(move || {
        let wire = Wire::open("vb").expect("packet socket");
        let connect = |n| {
            guest::pause(30);
            Peer::connect(&wire, ip, n, PORT, &SMC_OPTION)
        };
        let mut clients: Vec<_> = (33000..33000 + CLIENTS).filter_map(connect).collect();
        let message = clc::message(clc::EYE_R, clc::PROPOSAL, 0x10, &[0; 600]);
        let offered = clients.iter().filter(|c| smc_options(&c.syn.opts) == 1);
        let offered = offered.count();
        for byte in message {
            for client in &mut clients {
                client.send(&[byte]);
            }
            sys::sleep_ms(4);
        }
        offered
    });
    let own = others_do_not_wait(t, PORT, COUNTED);
    let offered = trickle.join().expect("a thread");
    t.is("offered SMC", offered, usize::from(CLIENTS));
    t.is("all of the family speak SMC", own.smc, own.number);
    let _ = server.finish();
}
