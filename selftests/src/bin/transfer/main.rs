// SPDX-License-Identifier: GPL-2.0
//! Both ways at once, byte exact: every byte depends on its position and direction, so a lost,
//! doubled or misplaced one is found where it happens.
//!
//! `transfer [--family ..] [--ip ..] [--mb 8] [--rest MB] [--seed 1] [--mode 1|any] [--peer FAMILY] [CASE..]`
//!
//! Alone, both ends are threads (in namespaces `a` and `b` if the lab made them, else on
//! loopback of a private one); in a pair, the server's guest listens on port 7000 and up.
//! `--peer` gives the other end's family (default: the same). `--rest` is what is moved in all cases but the
//! first, where that one is to prove an amount.

mod flow;

use flow::{Case, CASES};
use st::args::Args;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::guest::{self, Role};
use st::ktap::Ktap;
use st::proof::Proof;
use st::{addr, net, sys};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// One run of one case.
#[derive(Clone)]
pub struct Job {
    case: &'static Case,
    bytes: u64,
    seed: u64,
    proof: Proof,
    wait: Duration,
}

fn socket(f: Family, ip: Ip) -> Result<Fd, String> {
    let (d, p) = f.triple(ip);
    let s = sys::socket(d, libc::SOCK_STREAM, p).map_err(|e| format!("socket: {e}"))?;
    let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 60_000 * guest::slow() as i64);
    let _ = sys::set_timeo(s.raw(), libc::SO_SNDTIMEO, 60_000 * guest::slow() as i64);
    Ok(s)
}

fn listen(f: Family, ip: Ip, port: u16) -> Result<Fd, String> {
    let s = socket(f, ip)?;
    let _ = sys::setopt(s.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(s.raw(), &SocketAddr::new(addr::any(ip), port))
        .map_err(|e| format!("bind {port}: {e}"))?;
    sys::listen(s.raw(), 8).map_err(|e| format!("listen: {e}"))?;
    Ok(s)
}

fn server(l: &Fd, f: Family, j: &Job) -> Result<String, String> {
    let s = sys::accept(l.raw()).map_err(|e| format!("accept: {e}"))?;
    let path = j.proof.check(f, s.raw())?;
    flow::both_ways(&s, j, true)?;
    Ok(path)
}

fn client(f: Family, ip: Ip, to: &SocketAddr, j: &Job) -> Result<String, String> {
    let end = Instant::now() + j.wait;
    let s = loop {
        let s = socket(f, ip)?;
        match sys::connect(s.raw(), to) {
            Ok(_) => break s,
            Err(e) if e.0 == libc::ECONNREFUSED && Instant::now() < end => sys::sleep_ms(100),
            Err(e) => return Err(format!("connect {to}: {e}")),
        }
    };
    let path = j.proof.check(f, s.raw())?;
    flow::both_ways(&s, j, false)?;
    Ok(path)
}

/// Both ends here, the server in a thread of its own.
fn single(fs: (Family, Family), ip: Ip, j: &Job) -> Result<String, String> {
    let ns = guest::has_netns();
    let (tx, rx) = mpsc::channel();
    let jj = j.clone();
    let t = thread::spawn(move || {
        let go = || {
            if ns {
                guest::enter("b").map_err(|e| format!("setns b: {e}"))?;
            }
            listen(fs.1, ip, 0)
        };
        let l = match go() {
            Ok(l) => l,
            Err(e) => {
                let _ = tx.send(None);
                return Err(e);
            }
        };
        let _ = tx.send(sys::sockname(l.raw()).ok().map(|a| a.port()));
        server(&l, fs.1, &jj)
    });
    let port = rx.recv_timeout(Duration::from_secs(20)).ok().flatten();
    let jj = j.clone();
    let c = port.map(|port| {
        thread::spawn(move || {
            let a = if ns {
                guest::enter("a").map_err(|e| format!("setns a: {e}"))?;
                guest::addr(true, ip)
            } else {
                addr::loopback(ip)
            };
            client(fs.0, ip, &SocketAddr::new(a, port), &jj)
        })
    });
    let c = c.map_or(Err("no listener".into()), |c| {
        c.join().unwrap_or(Err("client thread panicked".into()))
    });
    if port.is_some() && c.as_ref().is_err_and(|e| e.starts_with("connect")) {
        return c; // the server would wait for ever
    }
    let s = t.join().unwrap_or(Err("server thread panicked".into()));
    match (c, s) {
        (Ok(c), Ok(s)) => Ok(format!("client {c}; server {s}")),
        (c, s) => Err(format!("client {c:?}\nserver {s:?}")),
    }
}

fn main() {
    let a = Args::get();
    let role = guest::role(&a);
    if role == Role::Single && !guest::has_netns() {
        net::private().expect("private network namespace (root needed)");
    }
    let mb = a.num("mb", 8);
    let rest = a.num("rest", mb);
    let peer = a
        .opt("peer")
        .map(|p| Family::parse(p).unwrap_or_else(|| st::args::bail("--peer tcp|inet|smc")));
    let cases: Vec<&'static Case> = CASES
        .iter()
        .filter(|c| a.words.is_empty() || a.words.iter().any(|w| w == c.name))
        .collect();
    let (fams, ips) = (a.families(), a.ips());
    let mut k = Ktap::plan(cases.len() * fams.len() * ips.len());
    let mut port = a.num("port", 7000) as u16;
    for &f in &fams {
        for &ip in &ips {
            for case in &cases {
                let j = Job {
                    case,
                    bytes: (if case.name == CASES[0].name { mb } else { rest } << 20) / case.divide,
                    seed: a.num("seed", 1),
                    proof: Proof::from_args(&a),
                    wait: Duration::from_secs(if role == Role::Client {
                        30 * guest::slow()
                    } else {
                        0
                    }),
                };
                let p = peer.unwrap_or(f);
                let t0 = Instant::now();
                // In a pair `--family` is this guest's own: nothing depends on the other's.
                let r = match role {
                    Role::Single => single((f, p), ip, &j),
                    Role::Server => listen(f, ip, port).and_then(|l| server(&l, f, &j)),
                    Role::Client => client(f, ip, &guest::sockaddr(true, ip, port), &j),
                };
                port += 1;
                let name = format!("{}.{}.{}", case.name, f.name(), ip.name());
                if let Ok(path) = &r {
                    k.diag(&format!(
                        "{name}: {} bytes each way in {} ms: {path}",
                        j.bytes,
                        t0.elapsed().as_millis()
                    ));
                }
                k.outcome(&name, r.map(|_| ()));
            }
        }
    }
    std::process::exit(k.finish());
}
