// SPDX-License-Identifier: GPL-2.0
//! What an operation costs, in nanoseconds of the guest's clock; under `-icount` these are
//! instructions, of both ends together.
//!
//! `bench CLIENT [SERVER] [--ip v4] [--mode 1] [--scale N] [--info off]` prints lines `bench METRIC VALUE ns`;
//! CLIENT and SERVER (default: the same) are tcp, inet or smc. `--scale` divides the amounts, for a quick look.
//! The ends are threads in the namespaces `a` and `b`, or on loopback.

use st::args::{bail, Args};
use st::family::{Family, Ip};
use st::fd::Fd;
use st::proof::Proof;
use st::{addr, guest, net, sys};
use std::net::SocketAddr;
use std::time::Instant;

/// Where the ends are.
struct Place {
    client: Family,
    server: Family,
    ip: Ip,
    split: bool,
}

impl Place {
    fn socket(&self, family: Family) -> Fd {
        let (d, p) = family.triple(self.ip);
        sys::socket(d, libc::SOCK_STREAM, p).unwrap_or_else(|e| bail(&format!("socket: {e}")))
    }

    fn enter(&self, ns: &str) {
        if self.split {
            guest::enter(ns).expect("setns");
        }
    }

    /// A listener at the far end and the address it is reached at.
    fn listen(&self) -> (Fd, SocketAddr) {
        self.enter("b");
        let l = self.socket(self.server);
        sys::bind(l.raw(), &SocketAddr::new(addr::any(self.ip), 0)).expect("bind");
        sys::listen(l.raw(), 128).expect("listen");
        let port = sys::sockname(l.raw()).expect("name").port();
        self.enter("a");
        let ip = if self.split {
            guest::addr(true, self.ip)
        } else {
            addr::loopback(self.ip)
        };
        (l, SocketAddr::new(ip, port))
    }

    fn pair(&self, proof: &Proof) -> (Fd, Fd) {
        let (l, a) = self.listen();
        let c = self.socket(self.client);
        sys::connect(c.raw(), &a).expect("connect");
        let s = sys::accept(l.raw()).expect("accept");
        for (f, family) in [(&c, self.client), (&s, self.server)] {
            proof.check(family, f.raw()).unwrap_or_else(|e| bail(&e));
            let _ = sys::setopt(f.raw(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        }
        (c, s)
    }
}

fn show(metric: &str, total: f64, ops: u64) {
    println!("bench {metric} {:.1} ns", total / ops as f64);
}

/// socket, connect, accept, close of both, and with `talk` 4 bytes each way in between. One
/// thread does all, so that no queue can fill and nothing depends on scheduling.
fn connect_close(p: &Place, metric: &str, n: u64, talk: bool) {
    let (l, a) = p.listen();
    let once = || {
        let c = p.socket(p.client);
        sys::connect(c.raw(), &a).expect("connect");
        let s = sys::accept(l.raw()).expect("accept");
        if talk {
            for (from, to) in [(&c, &s), (&s, &c)] {
                sys::send(from.raw(), b"ping", 0).expect("send");
                assert_eq!(sys::recv_all(to.raw(), 4).expect("recv"), b"ping");
            }
        }
    };
    (0..n / 10 + 1).for_each(|_| once());
    let t = Instant::now();
    (0..n).for_each(|_| once());
    show(metric, t.elapsed().as_nanos() as f64, n);
}

/// Half a round trip of `size` bytes.
fn ping_pong(p: &Place, proof: &Proof, size: usize, n: u64) {
    let (c, s) = p.pair(proof);
    let total = n + n / 10 + 1;
    let h = std::thread::spawn(move || {
        for _ in 0..total {
            let Ok(b) = sys::recv_all(s.raw(), size) else {
                return;
            };
            if b.len() < size || sys::send_all(s.raw(), &b).is_err() {
                return;
            }
        }
    });
    let b = vec![0x5a; size];
    let mut t = Instant::now();
    for i in 0..total {
        if i == n / 10 + 1 {
            t = Instant::now();
        }
        sys::send_all(c.raw(), &b).expect("send");
        assert_eq!(sys::recv_all(c.raw(), size).expect("recv").len(), size);
    }
    show(
        &format!("pingpong_{size}"),
        t.elapsed().as_nanos() as f64,
        n * 2,
    );
    let _ = h.join();
}

/// One way, for each KiB. TCP has modes far apart in this: several connections, the median counts.
fn bulk(p: &Place, proof: &Proof, mb: u64) {
    let mut v = Vec::new();
    for _ in 0..5 {
        let (c, s) = p.pair(proof);
        let h = std::thread::spawn(move || {
            let mut b = vec![0u8; 128 << 10];
            let mut left = mb << 20;
            while left > 0 {
                match sys::recv(s.raw(), &mut b, 0) {
                    Ok(n) if n > 0 => left = left.saturating_sub(n as u64),
                    _ => return false,
                }
            }
            let _ = sys::send(s.raw(), b"!", 0);
            true
        });
        let b = vec![0x5a; 128 << 10];
        let t = Instant::now();
        for _ in 0..mb * 8 {
            sys::send_all(c.raw(), &b).expect("send");
        }
        sys::recv_all(c.raw(), 1).expect("the end");
        v.push(t.elapsed().as_nanos() as f64);
        assert!(h.join().expect("receiver"));
    }
    v.sort_by(f64::total_cmp);
    show("bulk_per_KiB", v[v.len() / 2], mb << 10);
}

fn main() {
    let a = Args::get();
    let word = |i: usize| {
        let parse =
            |w: &String| Family::parse(w).unwrap_or_else(|| bail("a family is tcp, inet or smc"));
        a.words.get(i).map(parse)
    };
    let client = word(0).unwrap_or_else(|| bail("bench CLIENT [SERVER]"));
    let server = word(1).unwrap_or(client);
    let ip = a.opt("ip").map_or(Ip::V4, |i| {
        Ip::parse(i).unwrap_or_else(|| bail("--ip v4|v6|mapped"))
    });
    let p = Place {
        client,
        server,
        ip,
        split: guest::has_netns(),
    };
    if !p.split {
        net::private().expect("private network namespace (root needed)");
    }
    let (proof, scale) = (Proof::from_args(&a), a.num("scale", 1).max(1));
    connect_close(&p, "connect_close", 2000 / scale, false);
    connect_close(&p, "connect_request_close", 2000 / scale, true);
    ping_pong(&p, &proof, 64, 20_000 / scale);
    ping_pong(&p, &proof, 16 << 10, 4000 / scale);
    bulk(&p, &proof, (64 / scale).max(1));
}
