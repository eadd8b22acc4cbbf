// SPDX-License-Identifier: GPL-2.0
//! Clients that say nothing against a listener with a short backlog that accepts late: what becomes of
//! them is what becomes of TCP's.
//!
//! `backlog --family inet|smc[,..] --ip v4|v6[,..] [--clients N] [--late SECONDS] [--rounds N]`
//!
//! All kinds run side by side, plain TCP among them, on a soft-RoCE device of their own. No connect()
//! may fail; whoever is accepted gets a byte. TCP's clients that say nothing are connected when there is
//! no room for them, too, and are never told (with SYN cookies the server knows nothing of them). So some may be
//! left, but none of whom the server's TCP has a connection.
//!
//! Then clients that connect one after the other: accept() gives them in this order, whatever keeps a handshake's end
//! waiting.

use st::args::Args;
use st::errno::{Errno, R};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::ktap::Ktap;
use st::proof::Proof;
use st::{net, sys};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Seconds to wait for clients after the first accept(): longer than the pause between two SYNs, or
/// SYN-ACKs, that TCP has come to by then.
const PATIENCE: u64 = 20;

/// Result for the clients of one kind.
struct Outcome {
    /// Number of clients that got the server's byte.
    served: usize,
    /// Number of clients that still wait at the end, and how many of them believe that they are connected.
    unserved: usize,
    connected: usize,
    /// Number of those with whom the server has a connection.
    kept: usize,
    /// Other results of connect() or recv(), in words.
    failed: Vec<String>,
    /// When the last one was served, since its connect().
    last: Duration,
}

/// One client, as far as it has come.
enum Client {
    Connecting(Fd),
    Connected(Fd),
    Over(Result<(), String>),
}

impl Client {
    fn go_on(self) -> Client {
        let failed = |what: &str, e: Errno| Client::Over(Err(format!("{what}: {e}")));
        match self {
            Client::Connecting(fd) => match sys::poll1(fd.raw(), libc::POLLOUT, 0) {
                Ok(0) => Client::Connecting(fd),
                Ok(_) => match sys::getopt(fd.raw(), libc::SOL_SOCKET, libc::SO_ERROR) {
                    Ok(0) => Client::Connected(fd),
                    Ok(e) => failed("connect", Errno(e)),
                    Err(e) => failed("SO_ERROR", e),
                },
                Err(e) => failed("poll", e),
            },
            Client::Connected(fd) => match sys::recv_vec(fd.raw(), 8, libc::MSG_DONTWAIT) {
                Ok(b) if b == b"!" => Client::Over(Ok(())),
                Ok(b) => Client::Over(Err(format!("got {b:?}"))),
                Err(Errno(libc::EAGAIN)) => Client::Connected(fd),
                Err(e) => failed("recv", e),
            },
            over => over,
        }
    }
}

fn begin(family: Family, ip: Ip, to: &SocketAddr) -> R<Client> {
    let (domain, protocol) = family.triple(ip);
    let fd = sys::socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, protocol)?;
    match sys::connect(fd.raw(), to) {
        Ok(_) | Err(Errno(libc::EINPROGRESS)) => Ok(Client::Connecting(fd)),
        Err(e) => Err(e),
    }
}

/// Ports of the clients with whom a server of this port has a connection.
fn peers(port: u16, ip: Ip) -> R<Vec<u16>> {
    const ESTABLISHED: &str = "01";
    const CLOSE_WAIT: &str = "08";
    let file = match ip {
        Ip::V6 => "/proc/thread-self/net/tcp6",
        _ => "/proc/thread-self/net/tcp",
    };
    let text = std::fs::read_to_string(file).map_err(|_| Errno(libc::EIO))?;
    let end = |word: &str| u16::from_str_radix(word.rsplit(':').next()?, 16).ok();
    let peer = |line: &str| {
        let words: Vec<_> = line.split_whitespace().take(4).collect();
        match words[..] {
            [_, own, peer, ESTABLISHED | CLOSE_WAIT] if end(own) == Some(port) => end(peer),
            _ => None,
        }
    };
    Ok(text.lines().filter_map(peer).collect())
}

fn run(family: Family, ip: Ip, number: usize, late: Duration) -> R<Outcome> {
    let (domain, protocol) = family.triple(ip);
    let listener = sys::socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, protocol)?;
    sys::bind(listener.raw(), &SocketAddr::new(st::addr::loopback(ip), 0))?;
    sys::listen(listener.raw(), 1)?;
    let to = sys::sockname(listener.raw())?;
    let start = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..number {
        clients.push(begin(family, ip, &to)?);
    }
    let end = late + Duration::from_secs(PATIENCE);
    let (mut accepted, mut last) = (Vec::new(), Duration::ZERO);
    while start.elapsed() < end && clients.iter().any(|c| !matches!(c, Client::Over(_))) {
        if start.elapsed() >= late {
            while let Ok(fd) = sys::accept(listener.raw()) {
                sys::send(fd.raw(), b"!", 0)?;
                accepted.push(fd);
                last = start.elapsed();
            }
        }
        clients = clients.into_iter().map(Client::go_on).collect();
        sys::sleep_ms(20);
    }
    let known = peers(to.port(), ip)?;
    let mut kept = 0;
    let mut failed = Vec::new();
    if known.len() < accepted.len() {
        failed.push(format!("/proc/net/tcp has {known:?} of {}", accepted.len()));
    }
    let (mut served, mut unserved, mut connected) = (0, 0, 0);
    for client in clients {
        match client {
            Client::Over(Ok(())) => served += 1,
            Client::Over(Err(e)) => failed.push(e),
            Client::Connecting(_) => unserved += 1,
            Client::Connected(fd) => {
                kept += usize::from(known.contains(&sys::sockname(fd.raw())?.port()));
                unserved += 1;
                connected += 1;
            }
        }
    }
    Ok(Outcome {
        served,
        unserved,
        connected,
        kept,
        failed,
        last,
    })
}

/// Connects three clients one after the other, `rounds` times; returns in which ones accept() gave them otherwise, and
/// how many of the connections were not SMC's.
fn order(family: Family, ip: Ip, rounds: usize) -> Result<(Vec<String>, usize), String> {
    let (domain, protocol) = family.triple(ip);
    let socket = || sys::socket(domain, libc::SOCK_STREAM, protocol);
    let proof = Proof::of_mode(0);
    let go = || -> R<(Vec<String>, usize)> {
        let listener = socket()?;
        sys::bind(listener.raw(), &SocketAddr::new(st::addr::loopback(ip), 0))?;
        sys::listen(listener.raw(), 8)?;
        let to = sys::sockname(listener.raw())?;
        let (mut wrong, mut others) = (vec![], 0);
        let mut last = (vec![], vec![]);
        for round in 0..rounds {
            let mut clients = vec![];
            for _ in 0..3 {
                let client = socket()?;
                sys::connect(client.raw(), &to)?;
                clients.push(client);
            }
            let mut servers = vec![];
            for _ in 0..3 {
                sys::poll1(listener.raw(), libc::POLLIN, 10_000)?;
                servers.push(sys::accept(listener.raw())?);
            }
            let ports = |ends: &[Fd], name: fn(i32) -> R<SocketAddr>| -> R<Vec<u16>> {
                ends.iter().map(|fd| Ok(name(fd.raw())?.port())).collect()
            };
            let (made, given) = (
                ports(&clients, sys::sockname)?,
                ports(&servers, sys::peername)?,
            );
            if made != given {
                wrong.push(format!("{round}: made {made:?}, given {given:?}"));
            }
            let not_smc = |fd: &&Fd| proof.check(family, fd.raw()).is_err();
            others += clients.iter().filter(not_smc).count();
            // Their ends are under way while the next ones begin.
            for end in clients.iter().chain(&servers) {
                sys::send(end.raw(), b"!", 0)?;
            }
            last = (clients, servers);
        }
        drop(last);
        Ok((wrong, others))
    };
    go().map_err(|e| e.to_string())
}

fn main() {
    let a = Args::get();
    let number = a.num("clients", 32) as usize;
    let late = Duration::from_secs(a.num("late", 10));
    let mut all: Vec<(Family, Ip)> = Vec::new();
    for ip in a.ips() {
        all.push((Family::Tcp, ip));
        all.extend(a.families().into_iter().map(|family| (family, ip)));
    }
    let rounds = a.num("rounds", 100) as usize;
    let mut k = Ktap::plan(2 * all.len());
    net::private()
        .map_err(|e| format!("(root needed) {e}"))
        .and_then(|()| net::roce_on_loopback().map(drop))
        .unwrap_or_else(|e| st::args::bail(&e));
    let outcomes: Vec<R<Outcome>> = std::thread::scope(|s| {
        let threads: Vec<_> = all
            .iter()
            .map(|&(family, ip)| s.spawn(move || run(family, ip, number, late)))
            .collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| t.join().expect("a thread");
        threads.into_iter().map(join).collect()
    });
    for ((family, ip), outcome) in all.iter().zip(outcomes) {
        let judge = |o: Outcome| {
            k.diag(&format!(
                "{}.{}: {} of {number} served, the last one after {} ms; {} still wait, {} of them connected, {} with the server",
                family.name(),
                ip.name(),
                o.served,
                o.last.as_millis(),
                o.unserved,
                o.connected,
                o.kept
            ));
            if !o.failed.is_empty() {
                return Err(o.failed.join(", "));
            }
            match (o.served, o.kept) {
                (0, _) => Err("nobody was served".into()),
                (_, 0) => Ok(()),
                (_, kept) => Err(format!("{kept} wait though the server has them")),
            }
        };
        let result = outcome.map_err(|e| format!("the listener or a client: {e}"));
        k.outcome(
            &format!("none_fails.{}.{}", family.name(), ip.name()),
            result.and_then(judge),
        );
    }
    // So that handshakes are by CLC.
    let _ = st::path::set(0);
    for &(family, ip) in &all {
        let result = order(family, ip, rounds).and_then(|(wrong, others)| {
            if others != 0 {
                return Err(format!("{others} connections are not SMC-R"));
            }
            match wrong.len() {
                0 => Ok(()),
                n => Err(format!("{n} of {rounds}: {}", wrong[..n.min(4)].join("; "))),
            }
        });
        k.outcome(&format!("order.{}.{}", family.name(), ip.name()), result);
    }
    std::process::exit(k.finish());
}
