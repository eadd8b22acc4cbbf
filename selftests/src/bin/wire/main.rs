// SPDX-License-Identifier: GPL-2.0
//! Counts what SMC-R does on the wire, packet by packet: keys are not exchanged for each
//! connection, a group is begun once however many connect, a send is one chain of WRITEs, which
//! announce themselves or are followed by one CDC message, and a busy queue makes messages fewer.
//!
//! `wire --family inet [--ip v4,v6] [--plain]`  With `--plain` the hosts agree on nothing beyond the protocol. One family at a time: it begins without a link group. Between namespaces `a` and `b` of the lab, with soft-RoCE
//! on both ends, and no link group from before.

mod tap;

use st::args::Args;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::ktap::Ktap;
use st::proof::Proof;
use st::{guest, net, sys};
use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::thread;
use tap::{Seen, Tap};

const PORT: u16 = 7100;
/// Messages under way on the link that the points here begin, at most; `USUAL` with others.
const SLOTS: usize = 48;
const USUAL: usize = 16;

type Outcome = Result<String, String>;
type Point = fn(&Job) -> Outcome;

/// Holds what a point needs.
#[derive(Clone)]
struct Job {
    family: Family,
    ip: Ip,
    proof: Proof,
    /// The hosts agree that WRITEs announce themselves.
    agreed: bool,
}

impl Job {
    fn socket(&self) -> Result<Fd, String> {
        let (d, p) = self.family.triple(self.ip);
        let s = sys::socket(d, libc::SOCK_STREAM, p).map_err(|e| format!("socket: {e}"))?;
        for o in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let _ = sys::set_timeo(s.raw(), o, 30_000 * guest::slow() as i64);
        }
        let _ = sys::setopt(s.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        Ok(s)
    }

    /// A listener in `b`.
    fn listen(&self) -> Result<Fd, String> {
        let job = self.clone();
        let h = thread::spawn(move || {
            guest::enter("b").map_err(|e| e.to_string())?;
            let s = job.socket()?;
            let _ = sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
            let a = SocketAddr::new(guest::addr(true, job.ip), PORT);
            sys::bind(s.raw(), &a).map_err(|e| format!("bind: {e}"))?;
            sys::listen(s.raw(), 256).map_err(|e| format!("listen: {e}"))?;
            Ok(s)
        });
        h.join().map_err(|_| "listener panicked".to_owned())?
    }

    /// A client in the current namespace.
    fn connect(&self) -> Result<Fd, String> {
        let s = self.socket()?;
        let a = SocketAddr::new(guest::addr(true, self.ip), PORT);
        sys::connect(s.raw(), &a).map_err(|e| format!("connect: {e}"))?;
        self.proof.check(self.family, s.raw())?;
        Ok(s)
    }

    /// A pair of connected sockets.
    fn pair(&self, l: &Fd) -> Result<(Fd, Fd), String> {
        let c = self.connect()?;
        let s = sys::accept(l.raw()).map_err(|e| format!("accept: {e}"))?;
        self.proof.check(self.family, s.raw())?;
        let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 30_000 * guest::slow() as i64);
        let _ = sys::setopt(s.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        Ok((c, s))
    }
}

fn want(good: bool, what: &str, seen: &dyn std::fmt::Debug) -> Result<(), String> {
    if good {
        Ok(())
    } else {
        Err(format!("{what}; {seen:?}"))
    }
}

/// Delay of what `a` sends while this lives: what becomes of a burst does not depend on how busy the machine is.
struct Delayed;

impl Delayed {
    fn begin() -> Result<Self, String> {
        net::sh("tc qdisc add dev va root netem delay 50ms limit 100000")?;
        Ok(Self)
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        let _ = net::sh("tc qdisc del dev va root");
    }
}

fn tapped<R>(f: impl FnOnce() -> Result<R, String>) -> Result<(R, Seen), String> {
    let tap = Tap::start("va")?;
    let r = f();
    let seen = tap.finish();
    Ok((r?, seen?))
}

/// Fifty connect at once where there is no group: one of them begins it.
fn first_contact(j: &Job) -> Outcome {
    const N: usize = 50;
    let l = j.listen()?;
    let (_, seen) = tapped(|| {
        let start = Arc::new(Barrier::new(N));
        let clients: Vec<_> = (0..N)
            .map(|_| {
                let (j, start) = (j.clone(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    j.connect()
                })
            })
            .collect();
        let mut held = vec![];
        for _ in 0..N {
            held.push(sys::accept(l.raw()).map_err(|e| format!("accept: {e}"))?);
        }
        for c in clients {
            held.push(c.join().map_err(|_| "client panicked")??);
        }
        Ok(())
    })?;
    let text = format!(
        "{N} connections: {} agreements, {} of them for a first contact, {} CONFIRM_LINK, {} queue pairs",
        seen.agreements,
        seen.first_contacts,
        seen.llc(1),
        seen.pairs()
    );
    want(
        seen.agreements == 2 * N as u64,
        &text,
        &"accepts and confirms",
    )?;
    want(seen.first_contacts == 2, &text, &"one accept, one confirm")?;
    want(
        seen.llc(1) == 1 && seen.llc(0x81) == 1,
        &text,
        &"CONFIRM_LINK",
    )?;
    want(seen.pairs() == 2, &text, &"queue pairs")?;
    Ok(text)
}

/// Connections one after another and all open at once: no key is made known for any, far fewer keys
/// than connections, and who confirms acknowledges the accept by that.
fn keys(j: &Job) -> Outcome {
    const N: usize = 200;
    let l = j.listen()?;
    let (_, seen) = tapped(|| {
        let mut held = vec![];
        for i in 0..N {
            let (c, s) = j.pair(&l)?;
            sys::send_all(c.raw(), b"one write").map_err(|e| format!("send {i}: {e}"))?;
            sys::recv_all(s.raw(), 9).map_err(|e| format!("recv {i}: {e}"))?;
            held.push((c, s));
        }
        Ok(())
    })?;
    let used = seen.busiest().keys.len();
    let text = format!(
        "{N} connections: {} agreements name {} keys, writes use {used}; CONFIRM_RKEY {} DELETE_RKEY {}; {} acknowledgements alone between proposal and confirm",
        seen.agreements,
        seen.named.len(),
        seen.llc(6) + seen.llc(0x86),
        seen.llc(9) + seen.llc(0x89),
        seen.bare_acks(),
    );
    want(
        seen.agreements == 2 * N as u64,
        &text,
        &"accepts and confirms",
    )?;
    let asked: u64 = [6, 0x86, 9, 0x89].map(|ty| seen.llc(ty)).iter().sum();
    // None for each connection. Memory that an earlier point has left may be given back meanwhile.
    let made = seen.llc(6) + seen.llc(0x86);
    want(
        made == 0 && asked < N as u64 / 4,
        &text,
        &"messages about keys",
    )?;
    // Slabs of 4, 8, 16 and then 20 buffers of 64 KiB: twelve for 200 connections, on each side.
    want(seen.named.len() <= 28, &text, &"keys named")?;
    want(used <= 14, &text, &"keys used")?;
    // A client that the machine stops for 40 ms acknowledges the accept before it answers.
    want(seen.bare_acks() <= N as u64 / 10, &text, &"packets")?;
    Ok(text)
}

/// One send at a time: as many WRITEs as the rings' wraps demand, and one announcement.
fn chains(j: &Job, size: usize) -> Outcome {
    const N: u64 = 500;
    let l = j.listen()?;
    let (c, s) = j.pair(&l)?;
    let (_, seen) = tapped(|| {
        let data = vec![0x77; size];
        for i in 0..N {
            sys::send_all(c.raw(), &data).map_err(|e| format!("send {i}: {e}"))?;
            sys::recv_all(s.raw(), size).map_err(|e| format!("recv {i}: {e}"))?;
            // A byte back comes after the word that the last ones were read, so there is always
            // room for three more.
            if i % 3 == 2 {
                sys::send_all(s.raw(), b"r").map_err(|e| format!("answer {i}: {e}"))?;
                sys::recv_all(c.raw(), 1).map_err(|e| format!("answer {i}: {e}"))?;
            }
        }
        Ok(())
    })?;
    let x = seen.busiest();
    let text = format!(
        "{N} sends of {size}: {} WRITEs of {} bytes, {} immediates, {} CDC messages, {} of them after WRITEs, at most {} WRITEs before one, {} WRITEs of nothing",
        x.writes, x.bytes, x.immediates, x.cdc, x.announced, x.most, x.empty
    );
    want(x.bytes == N * size as u64, &text, &"bytes")?;
    want(x.bare == 0, &text, &"WRITEs that nothing announces")?;
    want(x.announced + x.immediates == N, &text, &"chains")?;
    want(x.cdc == x.announced, &text, &"CDC messages")?;
    // The program that only sends has no cursor to tell.
    want(
        x.cdc == if j.agreed { 0 } else { N },
        &text,
        &"who announces",
    )?;
    // Both rings have 64 KiB and begin at their start, so they wrap together.
    let wraps = N * size as u64 / 65536;
    want(x.writes.abs_diff(N + wraps) <= 1, &text, &"WRITEs")?;
    want(x.most <= 2, &text, &"WRITEs in a chain")?;
    Ok(text)
}

fn small_chain(j: &Job) -> Outcome {
    chains(j, 100)
}

fn wrapping_chain(j: &Job) -> Outcome {
    chains(j, 10_000)
}

/// Small sends faster than the queue can take them: the messages become fewer, no byte is lost.
fn latest_state(j: &Job) -> Outcome {
    // Not because they wait for each other.
    net::sysctl("net.smc.autocorking_size", "0")?;
    let done = more_than_the_queue_takes(j);
    net::sysctl("net.smc.autocorking_size", "65536")?;
    done
}

fn more_than_the_queue_takes(j: &Job) -> Outcome {
    const N: u64 = 20_000;
    let l = j.listen()?;
    let (c, s) = j.pair(&l)?;
    let _delayed = Delayed::begin()?;
    let reader = thread::spawn(move || {
        let mut sum = 0u64;
        loop {
            match sys::recv_vec(s.raw(), 65536, 0) {
                Ok(v) if v.is_empty() => return Ok(sum),
                Ok(v) => sum += v.len() as u64,
                Err(e) => return Err(format!("recv: {e}")),
            }
        }
    });
    let (got, seen) = tapped(|| {
        for i in 0..N {
            sys::send_all(c.raw(), &[i as u8]).map_err(|e| format!("send {i}: {e}"))?;
        }
        drop(c);
        reader.join().map_err(|_| "reader panicked".to_owned())?
    })?;
    let x = seen.busiest();
    let text = format!(
        "{N} sends of one byte: {got} received, {} WRITEs of {} bytes, {} immediates, {} CDC messages",
        x.writes, x.bytes, x.immediates, x.cdc
    );
    want(got == N && x.bytes == N, &text, &"bytes")?;
    let told = x.immediates + x.cdc;
    want(
        (SLOTS as u64..N / 2).contains(&told),
        &text,
        &"announcements",
    )?;
    want(x.bare == 0, &text, &"WRITEs that nothing announces")?;
    Ok(text)
}

/// Small sends: while one is on its way the next ones wait, and leave together; with
/// `net.smc.autocorking_size` 0 nearly each leaves alone.
fn autocork(j: &Job) -> Outcome {
    // Fewer than there are slots, so that nothing else makes messages fewer.
    const BURST: usize = SLOTS - 8;
    const BURSTS: usize = 20;
    const SIZE: usize = 10;
    let l = j.listen()?;
    let announced = |limit: &str| {
        net::sysctl("net.smc.autocorking_size", limit)?;
        let (c, s) = j.pair(&l)?;
        let _delayed = Delayed::begin()?;
        let (_, seen) = tapped(|| {
            for _ in 0..BURSTS {
                for i in 0..BURST {
                    sys::send_all(c.raw(), &[7; SIZE]).map_err(|e| format!("send {i}: {e}"))?;
                }
                sys::recv_all(s.raw(), BURST * SIZE).map_err(|e| format!("recv: {e}"))?;
                sys::send_all(s.raw(), b"r").map_err(|e| format!("answer: {e}"))?;
                sys::recv_all(c.raw(), 1).map_err(|e| format!("answer: {e}"))?;
            }
            Ok(())
        })?;
        let x = seen.busiest();
        want(x.bytes == (BURSTS * BURST * SIZE) as u64, "bytes", &x.bytes)?;
        Ok::<_, String>(x.immediates + x.announced)
    };
    let alone = announced("0");
    let together = announced("65536");
    let (alone, together) = (alone?, together?);
    let text = format!(
        "{} sends: {alone} messages, with autocorking {together}",
        BURSTS * BURST
    );
    // Nearly: while completions of the burst before are still to come, a slot may be missing.
    want(
        10 * alone >= 9 * (BURSTS * BURST) as u64,
        &text,
        &"one each",
    )?;
    // The first one leaves, and the others when its delay is over.
    want(together <= 3 * BURSTS as u64, &text, &"together")?;
    Ok(text)
}

fn main() {
    let a = Args::get();
    let points: [(&str, Point); 6] = [
        // First, while there is no group.
        ("first_contact", first_contact),
        ("keys", keys),
        ("small_chain", small_chain),
        ("wrapping_chain", wrapping_chain),
        ("latest_state", latest_state),
        ("autocork", autocork),
    ];
    let (fams, ips) = (a.families(), a.ips());
    guest::enter("a").expect("namespace a");
    let slots = |n: usize| net::sysctl("net.smc.smcr_max_send_wr", &n.to_string());
    slots(SLOTS).expect("sysctl");
    let plain = a.opt("plain").is_some();
    if plain {
        net::sysctl("net.smc.immediate", "0").expect("sysctl");
    }
    let mut k = Ktap::plan(points.len() * fams.len() * ips.len());
    for (name, point) in points {
        for &family in &fams {
            for &ip in &ips {
                let job = Job {
                    family,
                    ip,
                    agreed: !plain,
                    proof: Proof {
                        mode: Some(0),
                        reason: None,
                        foreign: false,
                        ask: true,
                    },
                };
                let name = format!("{name}.{}.{}", family.name(), ip.name());
                let r = point(&job).map(|text| k.diag(&text));
                k.outcome(&name, r);
            }
        }
    }
    slots(USUAL).expect("sysctl");
    std::process::exit(k.finish());
}
