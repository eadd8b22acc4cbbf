// SPDX-License-Identifier: GPL-2.0
//! Paths on which RDMA does not get through, or not everything of it, though TCP does, and ports that fail for a
//! moment: with model cards (`kmod/card`) in the namespaces `a` and `b`, that lose what they are told to lose. Of a bad
//! path one connection is slow or lost, and both ends remember it. A port that is back in time costs nothing.
//!
//! `cardpath [POINT...]`

use st::args::Args;
use st::card::{self, counted, rsmc, wanted, Outcome, Pair};
use st::errno::Errno;
use st::guest::{run, within};
use st::ktap::Ktap;
use st::smcinfo::MODE_TCP;
use st::{guest, net, rng, sys};
use std::os::fd::RawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::Instant;

/// Reasons of connections.
const NEIGHBOUR: u32 = 0x0306_0106;
const LINKFAILED: u32 = 0x0306_010a;
const NOROUTE: u32 = 0x030e_0000;
const PEERDECL: u32 = 0x0500_0000;
/// Ends of a first contact whose link is not confirmed, in either end's words.
const UNCONFIRMED: [u32; 2] = [0x0201_0000, 0x0999_0002];

const TRANSFER: usize = 100 << 10;

type Point = (&'static str, fn() -> Outcome);

/// The points, by name.
const POINTS: [Point; 15] = [
    ("route_mtu", route_mtu),
    ("route_of_the_port", route_of_the_port),
    ("route_of_the_mark", route_of_the_mark),
    ("black_hole", black_hole),
    ("server_remembers", server_remembers),
    ("small_mtu", small_mtu),
    ("small_mtu_towards_server", small_mtu_towards_server),
    ("forgotten", forgotten),
    ("own_port", own_port),
    ("peer_device", peer_device),
    ("flap", flap),
    ("wire_down", wire_down),
    ("stays_down", stays_down),
    ("acknowledged_removed", acknowledged_removed),
    ("acknowledged_reset", acknowledged_reset),
];

/// Has the card of `a` be in trouble.
fn trouble(word: &str, number: u32) {
    card::trouble("card_a", word, number);
}

/// Has both ends begin anew, with a path on which all gets through.
fn begin() {
    for word in ["black_hole", "mtu", "sent_mtu"] {
        trouble(word, 0);
    }
    for ns in ["a", "b"] {
        rsmc(ns, "why --forget");
    }
}

/// The same without a link group.
fn begin_anew() {
    card::begin_anew();
    begin();
}

/// Checks that the next connection is TCP's from the beginning, and works.
fn goes_without() -> Outcome {
    let pair = Pair::new()?;
    let (client, _) = pair.info();
    let good = (client.mode, client.reason) == (MODE_TCP, NEIGHBOUR);
    wanted("a connection after that", good, client)?;
    pair.transfer(TRANSFER)
}

/// Checks that the next connection is SMC's, and works.
fn is_smc() -> Outcome {
    let pair = Pair::new()?;
    pair.is_smc()?;
    pair.transfer(TRANSFER)
}

/// Whether an end remembers the other one for this cause, and says it in words.
fn remembers(ns: &'static str, peer: &str) -> Outcome {
    let file = within(ns, || {
        std::fs::read_to_string("/proc/thread-self/net/smc_fallback").expect("counters")
    });
    let line = format!("neighbour {peer} link ");
    wanted(ns, file.contains(&line) && file.contains(" *\n"), &file)?;
    let said = rsmc(ns, "why");
    let words = format!("{peer} is not reached by RDMA, or links to it break soon (found once)");
    wanted("rsmc why", said.contains(&words), &said)
}

/// The way is narrower than the ports, and the routes of one end say so, as they do once TCP has found out: packets are
/// as small.
fn route_mtu() -> Outcome {
    for (ns, words) in [
        ("a", "route add 10.77.0.2/32 dev va mtu 700"),
        ("b", "route add 10.77.0.1/32 dev vb mtu 700"),
    ] {
        begin_anew();
        trouble("mtu", 700);
        run(ns, "ip", words);
        let done = is_smc();
        run(ns, "ip", &*words.replace("add", "del").leak());
        done?;
    }
    Ok(())
}

/// Where routes lead elsewhere than the port, as between hosts with two ports in one subnet, the way is the port's own.
/// Here TCP alone is led to the peer.
fn route_of_the_port() -> Outcome {
    begin_anew();
    let words = [
        "link add elsewhere type dummy",
        "link set elsewhere up",
        "route add 10.77.0.2/32 dev elsewhere mtu 300",
        "route add 10.77.0.2/32 dev va table 77",
        "rule add ipproto tcp table 77",
    ];
    for word in words {
        run("a", "ip", word);
    }
    let done = is_smc();
    for word in [
        "rule del ipproto tcp table 77",
        "link del elsewhere",
        "route flush table 77",
    ] {
        run("a", "ip", word);
    }
    done
}

/// Routes that are for packets with a mark are those of RDMA, too, where the connection has it.
fn route_of_the_mark() -> Outcome {
    begin_anew();
    let words = [
        // Too small for any packet of RDMA.
        "route add 10.77.0.2/32 dev va mtu 300",
        "route add 10.77.0.2/32 dev va table 77",
        "rule add fwmark 7 table 77",
    ];
    for word in words {
        run("a", "ip", word);
    }
    let done = Pair::new().and_then(|pair| {
        let (client, _) = pair.info();
        let good = (client.mode, client.reason) == (MODE_TCP, NOROUTE);
        wanted("a connection without the mark", good, client)?;
        let to = guest::sockaddr(true, st::family::Ip::V4, 0);
        let pair = Pair::connect(to, |fd, server| {
            let mark = if server { 0 } else { 7 };
            sys::setopt(fd.raw(), libc::SOL_SOCKET, libc::SO_MARK, mark).expect("mark");
        })?;
        pair.is_smc()?;
        pair.transfer(TRANSFER)
    });
    for word in [
        "rule del fwmark 7 table 77",
        "route flush table 77",
        "route del 10.77.0.2/32",
    ] {
        run("a", "ip", word);
    }
    done
}

/// Checks that a connection's link was not confirmed.
fn is_unconfirmed(pair: &Pair) -> Outcome {
    let (client, server) = pair.info();
    let own = [client.reason, client.peer_diagnosis];
    let good = client.mode == MODE_TCP && own.iter().any(|reason| UNCONFIRMED.contains(reason));
    wanted(
        "the first",
        good && server.mode == MODE_TCP,
        (client, server),
    )
}

/// The first connect() finds out, and all after it send no option.
fn black_hole() -> Outcome {
    begin_anew();
    trouble("black_hole", 1);
    let first = Pair::new()?;
    is_unconfirmed(&first)?;
    first.transfer(TRANSFER)?;
    for _ in 0..5 {
        goes_without()?;
    }
    remembers("a", "10.77.0.2")?;
    remembers("b", "10.77.0.1")
}

/// A client that knows nothing is declined at once by a server that does, and learns nothing by that.
fn server_remembers() -> Outcome {
    begin_anew();
    trouble("black_hole", 1);
    drop(Pair::new()?);
    rsmc("a", "why --forget");
    for _ in 0..20 {
        let pair = Pair::new()?;
        let (client, server) = pair.info();
        let told = (client.mode, client.reason, client.peer_diagnosis);
        wanted("client", told == (MODE_TCP, PEERDECL, LINKFAILED), client)?;
        let own = (server.mode, server.reason);
        wanted("server", own == (MODE_TCP, LINKFAILED), server)?;
    }
    Pair::new()?.transfer(TRANSFER)
}

/// Whoever runs the hosts has both forget it, and they look again.
fn forgotten() -> Outcome {
    begin_anew();
    trouble("black_hole", 1);
    drop(Pair::new()?);
    goes_without()?;
    begin();
    is_smc()?;
    is_smc()
}

/// The ports of both ends fail while a link is begun, and are back before it is given up: that says nothing of the path.
fn own_port() -> Outcome {
    begin_anew();
    trouble("black_hole", 1);
    let first = std::thread::scope(|threads| {
        let first = threads.spawn(Pair::new);
        sys::sleep_ms(500);
        port(false);
        port(true);
        first.join().expect("a connection")
    })?;
    is_unconfirmed(&first)?;
    trouble("black_hole", 0);
    is_smc()
}

/// The peer's device is taken away while data are under way, which TCP says: nor does that.
fn peer_device() -> Outcome {
    begin_anew();
    let pair = Pair::new()?;
    pair.is_smc()?;
    trouble("black_hole", 1);
    sys::send_all(pair.client.raw(), &[0; 100]).map_err(|e| format!("send: {e}"))?;
    run("b", "rdma", "link delete card_b");
    let end = sys::recv(pair.client.raw(), &mut [0], 0);
    wanted("the end", end == Err(Errno(libc::ECONNRESET)), end)?;
    // Until the device of `a` has given up, which keeps what it has to send.
    sys::sleep_ms(4000);
    trouble("black_hole", 0);
    run("b", "rdma", "link add card_b type card netdev vb");
    is_smc()
}

/// No connection is by SMC where the card has this trouble with large packets; the client remembers it.
fn goes_without_large(word: &str) -> Outcome {
    begin_anew();
    trouble(word, 600);
    let first = Pair::new()?;
    is_unconfirmed(&first)?;
    first.transfer(TRANSFER)?;
    drop(first);
    for _ in 0..3 {
        goes_without()?;
    }
    remembers("a", "10.77.0.2")
}

/// Only small packets get through. CONFIRM_LINK fills one of the path MTU, so no link is confirmed, and the first
/// connection goes by TCP.
fn small_mtu() -> Outcome {
    goes_without_large("mtu")
}

/// The same where only what the client sends is too large: its answer, which it waits for.
fn small_mtu_towards_server() -> Outcome {
    goes_without_large("sent_mtu")?;
    remembers("b", "10.77.0.1")
}

/// The card of `b` acknowledges bytes that never reach memory, and dies, as `ending` says. Its program reads what did
/// arrive, not one byte else, and then learns that the connection is lost; so does the other one.
fn acknowledged(ending: impl Fn()) -> Outcome {
    const ARRIVED: usize = 5000;
    begin_anew();
    let pair = Pair::new()?;
    pair.is_smc()?;
    let mut bytes = vec![0; ARRIVED + TRANSFER / 4];
    rng::fill(1, 0, &mut bytes);
    let send =
        |part: &[u8]| sys::send_all(pair.client.raw(), part).map_err(|e| format!("send: {e}"));
    send(&bytes[..ARRIVED])?;
    let got = sys::recv_all(pair.server.raw(), 1).map_err(|e| format!("receive: {e}"))?;
    let before = counted("card_b", "forgotten");
    card::trouble("card_b", "forgets", 1);
    send(&bytes[ARRIVED..])?;
    let until = guest::until(10_000);
    while counted("card_b", "forgotten") == before {
        wanted("acknowledged", Instant::now() < until, before)?;
        sys::sleep_ms(10);
    }
    ending();
    let rest = sys::recv_all(pair.server.raw(), ARRIVED - 1).map_err(|e| format!("rest: {e}"))?;
    let good = [got, rest].concat() == bytes[..ARRIVED];
    wanted("what did arrive", good, ())?;
    card::lost(
        "the server's end",
        sys::recv(pair.server.raw(), &mut [0; 9], 0),
    )?;
    card::lost(
        "the client's end",
        sys::recv(pair.client.raw(), &mut [0; 9], 0),
    )
}

/// The device goes.
fn acknowledged_removed() -> Outcome {
    let done = acknowledged(|| run("b", "rdma", "link delete card_b"));
    run("b", "rdma", "link add card_b type card netdev vb");
    done.and_then(|()| is_smc())
}

/// The device says that it is broken, and its driver recovers it.
fn acknowledged_reset() -> Outcome {
    let done = acknowledged(|| {
        card::trouble("card_b", "fatal", 1);
        card::trouble("card_b", "forgets", 0);
    });
    card::trouble("card_b", "forgets", 0);
    done?;
    begin_anew();
    is_smc()
}

/// Connections whose four ends all send and receive until they are told to stop.
struct Load {
    pairs: Vec<Pair>,
    stop: AtomicBool,
    /// Bytes that each end has received.
    received: Vec<AtomicU64>,
    /// What went wrong first; the rest follows from that.
    error: OnceLock<String>,
}

impl Load {
    const CONNECTIONS: usize = 4;

    fn new() -> Result<Load, String> {
        let pairs: Result<Vec<_>, _> = (0..Load::CONNECTIONS).map(|_| Pair::new()).collect();
        let pairs = pairs?;
        for pair in &pairs {
            pair.is_smc()?;
        }
        Ok(Load {
            received: (0..2 * pairs.len()).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
            error: OnceLock::new(),
            pairs,
        })
    }

    fn send(&self, fd: RawFd, seed: u64) -> Outcome {
        let (mut at, mut bytes) = (0, vec![0; 16 << 10]);
        while !self.stop.load(Relaxed) {
            rng::fill(seed, at, &mut bytes);
            sys::send_all(fd, &bytes).map_err(|e| format!("send: {e}"))?;
            at += bytes.len() as u64;
            // On one processor the others need a turn.
            sys::sleep_ms(1);
        }
        sys::shutdown(fd, libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"))?;
        Ok(())
    }

    fn receive(&self, fd: RawFd, seed: u64, count: &AtomicU64) -> Outcome {
        let mut bytes = vec![0; 16 << 10];
        loop {
            let got = sys::recv(fd, &mut bytes, 0).map_err(|e| format!("recv: {e}"))?;
            let (at, got) = (count.load(Relaxed), got as usize);
            if got == 0 {
                return Ok(());
            }
            rng::check(seed, at, &bytes[..got]).map_err(|at| format!("wrong byte at {at}"))?;
            count.store(at + got as u64, Relaxed);
        }
    }

    /// Has all others end after one that has failed.
    fn ended(&self, end: Outcome) {
        if let Err(error) = end {
            let _ = self.error.set(error);
            self.stop.store(true, Relaxed);
            for pair in &self.pairs {
                let _ = sys::shutdown(pair.client.raw(), libc::SHUT_RDWR);
                let _ = sys::shutdown(pair.server.raw(), libc::SHUT_RDWR);
            }
        }
    }

    /// Waits until each end has received some more.
    fn goes_on(&self) -> Outcome {
        let before: Vec<_> = self.received.iter().map(|n| n.load(Relaxed)).collect();
        let until = guest::until(30_000);
        let more = |(count, before): (&AtomicU64, &u64)| count.load(Relaxed) > before + (64 << 10);
        while !self.received.iter().zip(&before).all(more) {
            if self.stop.load(Relaxed) {
                return Err("a connection is lost".into());
            }
            if Instant::now() > until {
                return Err(format!("stands still: {before:?}, {:?}", self.received));
            }
            sys::sleep_ms(10);
        }
        Ok(())
    }

    /// Has all go on while `act` is done, and checks that no connection is lost and no byte wrong.
    fn during(&self, act: impl FnOnce() -> Outcome) -> Outcome {
        std::thread::scope(|threads| {
            let mut tasks = vec![];
            for (at, pair) in self.pairs.iter().enumerate() {
                let (one, other) = (pair.client.raw(), pair.server.raw());
                let seed = 2 * at as u64;
                let [here, there] = [2 * at, 2 * at + 1].map(|end| &self.received[end]);
                let send = |fd, seed| threads.spawn(move || self.ended(self.send(fd, seed)));
                let receive = |fd, seed, count| {
                    threads.spawn(move || self.ended(self.receive(fd, seed, count)))
                };
                tasks.extend([send(one, seed), send(other, seed + 1)]);
                tasks.extend([receive(other, seed, here), receive(one, seed + 1, there)]);
            }
            let done = self
                .goes_on()
                .and_then(|()| act())
                .and_then(|()| self.goes_on());
            self.stop.store(true, Relaxed);
            for task in tasks {
                task.join().expect("a task");
            }
            // That says more than that there was one.
            let error = self
                .error
                .get()
                .map(|error| format!("{error}; {}", losses()));
            error.map_or(done, Err)
        })
    }
}

/// What the kernel says of the links that were lost last, and when.
fn losses() -> String {
    let log = Command::new("dmesg").output().expect("dmesg").stdout;
    let log = String::from_utf8_lossy(&log).into_owned();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("link group"))
        .collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// Takes the wire down or up; the cards of both ends say so.
fn port(up: bool) {
    let (word, event) = match up {
        true => ("link set va up", "port_active"),
        false => ("link set va down", "port_error"),
    };
    run("a", "ip", word);
    for card in ["card_a", "card_b"] {
        card::trouble(card, event, 0);
    }
}

/// 200 ms without a port, and with a wire that loses everything: the card repeats, and no connection is lost. Both ends'
/// ports are down, as they share the wire. New connections are SMC's afterwards.
fn flap() -> Outcome {
    begin();
    is_smc()?;
    let load = Load::new()?;
    load.during(|| {
        for _ in 0..3 {
            trouble("down", 200);
            port(false);
            sys::sleep_ms(200);
            port(true);
            load.goes_on()?;
        }
        Ok(())
    })?;
    is_smc()
}

/// The same without an event of the port.
fn wire_down() -> Outcome {
    begin();
    let load = Load::new()?;
    load.during(|| {
        trouble("down", 200);
        sys::sleep_ms(200);
        Ok(())
    })?;
    is_smc()
}

/// A port that is not back in time: programs learn it that only wait for the peer.
fn stays_down() -> Outcome {
    begin();
    let pair = Pair::new()?;
    pair.transfer(TRANSFER)?;
    port(false);
    let end = sys::recv(pair.client.raw(), &mut [0], 0);
    port(true);
    card::lost("the end", end)
}

fn main() {
    let args = Args::get();
    let picked = |name: &str| args.words.is_empty() || args.words.iter().any(|word| word == name);
    let points: Vec<_> = POINTS.iter().filter(|point| picked(point.0)).collect();
    let mut ktap = Ktap::plan(points.len());
    for ns in ["a", "b"] {
        // Long enough for no connection to try again meanwhile.
        within(ns, || net::sysctl("net.smc.neighbour_time", "36000")).expect("sysctl");
    }
    for (name, run) in points {
        ktap.outcome(name, run());
    }
    begin();
    std::process::exit(ktap.finish());
}
