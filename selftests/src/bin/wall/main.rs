// SPDX-License-Identifier: GPL-2.0
//! Measures operations between two guests, in nanoseconds of the wall clock.
//!
//! `wall FAMILY [--ip v4] [--mode 1] [--scale N] [--only METRIC,..]` runs in both guests of a pair; the
//! client prints lines `bench METRIC VALUE UNIT`. A connection begins with what is to be done on it; each
//! end proves its own mode. `wall verbs` has no connections: see [`verbs`].

mod verbs;

use st::args::{bail, Args};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::guest::{self, Role};
use st::proof::Proof;
use st::{addr, path, sys};
use std::net::SocketAddr;
use std::time::Instant;

const PORT: u16 = 6900;

/// Task of the server on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Sends back what comes, `size` bytes at a time, until the end.
    Echo,
    /// Takes `size` KiB, then sends one byte.
    Sink,
    /// Ends the program.
    Quit,
}

/// As the first bytes of a connection.
fn header(task: Task, size: u32) -> [u8; 8] {
    let mut b = [0; 8];
    b[..4].copy_from_slice(&(task as u32).to_le_bytes());
    b[4..].copy_from_slice(&size.to_le_bytes());
    b
}

fn parse(b: &[u8]) -> Option<(Task, usize)> {
    let word = |at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
    let task = [Task::Echo, Task::Sink, Task::Quit];
    let task = task.into_iter().find(|t| Some(*t as u32) == word(0))?;
    Some((task, word(4)? as usize))
}

struct Wall {
    family: Family,
    ip: Ip,
    proof: Proof,
    scale: u64,
    only: Vec<String>,
}

impl Wall {
    fn socket(&self) -> Fd {
        let (d, p) = self.family.triple(self.ip);
        let f =
            sys::socket(d, libc::SOCK_STREAM, p).unwrap_or_else(|e| bail(&format!("socket: {e}")));
        let _ = sys::setopt(f.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        f
    }

    fn prove(&self, f: &Fd) {
        let checked = self.proof.check(self.family, f.raw());
        checked.unwrap_or_else(|e| bail(&e));
    }

    /// Serves one connection; false when that was the last.
    fn serve_one(&self, s: &Fd) -> bool {
        let Ok(first) = sys::recv_all(s.raw(), 8) else {
            return true;
        };
        let Some((task, size)) = parse(&first) else {
            bail("a header that says nothing");
        };
        match task {
            Task::Echo => {
                while let Ok(b) = sys::recv_all(s.raw(), size) {
                    if b.len() < size || sys::send_all(s.raw(), &b).is_err() {
                        break;
                    }
                }
            }
            Task::Sink => {
                let mut b = vec![0u8; 128 << 10];
                let mut left = size << 10;
                while left > 0 {
                    match sys::recv(s.raw(), &mut b, 0) {
                        Ok(n) if n > 0 => left = left.saturating_sub(n as usize),
                        _ => break,
                    }
                }
                let _ = sys::send(s.raw(), b"!", libc::MSG_NOSIGNAL);
            }
            Task::Quit => return false,
        }
        true
    }

    fn server(&self) {
        let l = self.socket();
        let _ = sys::setopt(l.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        sys::bind(l.raw(), &SocketAddr::new(addr::any(self.ip), PORT)).expect("bind");
        sys::listen(l.raw(), 128).expect("listen");
        guest::barrier("wall-listens");
        loop {
            let s = sys::accept(l.raw()).expect("accept");
            self.prove(&s);
            if !self.serve_one(&s) {
                return;
            }
        }
    }

    fn open(&self, task: Task, size: u32) -> Fd {
        let c = self.socket();
        sys::connect(c.raw(), &guest::sockaddr(true, self.ip, PORT)).expect("connect");
        sys::send_all(c.raw(), &header(task, size)).expect("send");
        c
    }

    fn wants(&self, metric: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| metric.starts_with(o.as_str()))
    }

    fn amount(&self, full: u64) -> u64 {
        (full / self.scale).max(1)
    }

    fn ping_pong(&self, size: u32, full: u64) {
        let c = self.open(Task::Echo, size);
        self.prove(&c);
        let b = vec![0x5a; size as usize];
        let trip = || {
            let t = Instant::now();
            sys::send_all(c.raw(), &b).expect("send");
            let back = sys::recv_all(c.raw(), b.len()).expect("recv");
            assert_eq!(back.len(), b.len(), "echo");
            t.elapsed().as_nanos() as f64 / 2.0
        };
        let n = self.amount(full);
        (0..n / 10 + 1).for_each(|_| {
            let _warm = trip();
        });
        let mut all: Vec<f64> = (0..n).map(|_| trip()).collect();
        all.sort_by(f64::total_cmp);
        println!("bench pingpong_{size} {:.0} ns", all[all.len() / 2]);
    }

    fn bulk(&self) {
        let kib = self.amount(64) << 10;
        let c = self.open(Task::Sink, kib as u32);
        self.prove(&c);
        let b = vec![0x5a; 128 << 10];
        let t = Instant::now();
        for _ in 0..kib / 128 {
            sys::send_all(c.raw(), &b).expect("send");
        }
        assert_eq!(sys::recv_all(c.raw(), 1).expect("the end"), b"!");
        let ns = t.elapsed().as_nanos() as f64;
        println!("bench bulk_per_KiB {:.0} ns", ns / kib as f64);
    }

    fn short(&self) {
        let once = || {
            let c = self.open(Task::Echo, 4);
            sys::send_all(c.raw(), b"ping").expect("send");
            assert_eq!(sys::recv_all(c.raw(), 4).expect("recv"), b"ping");
            c
        };
        let n = self.amount(500);
        (0..n / 10 + 1).for_each(|_| self.prove(&once()));
        let t = Instant::now();
        (0..n).for_each(|_| drop(once()));
        let ns = t.elapsed().as_nanos() as f64;
        println!("bench connect_request_close {:.0} ns", ns / n as f64);
    }

    fn client(&self) {
        if !guest::barrier("wall-listens") {
            bail("the other guest does not listen");
        }
        if self.wants("pingpong_64") {
            self.ping_pong(64, 5000);
        }
        if self.wants("pingpong_16384") {
            self.ping_pong(16384, 1000);
        }
        if self.wants("bulk_per_KiB") {
            self.bulk();
        }
        if self.wants("connect_request_close") {
            self.short();
        }
        drop(self.open(Task::Quit, 0));
    }
}

fn main() {
    let a = Args::get();
    let only = a.opt("only").unwrap_or_default();
    let only: Vec<String> = only
        .split(',')
        .filter(|o| !o.is_empty())
        .map(Into::into)
        .collect();
    let scale = a.num("scale", 1).max(1);
    let role = guest::role(&a);
    path::off().unwrap_or_else(|e| bail(&e));
    if a.words.first().is_some_and(|w| w == "verbs") {
        let wants =
            |metric: &str| only.is_empty() || only.iter().any(|o| metric.starts_with(o.as_str()));
        return verbs::main(role, scale, wants);
    }
    let family = a.words.first().and_then(|w| Family::parse(w));
    let wall = Wall {
        family: family.unwrap_or_else(|| bail("wall tcp|inet|smc|verbs")),
        ip: a.opt("ip").map_or(Ip::V4, |i| {
            Ip::parse(i).unwrap_or_else(|| bail("--ip v4|v6|mapped"))
        }),
        proof: Proof::from_args(&a),
        scale,
        only,
    };
    match role {
        Role::Server => wall.server(),
        Role::Client => wall.client(),
        Role::Single => bail("runs in a pair of guests"),
    }
}
