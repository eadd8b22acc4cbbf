// SPDX-License-Identifier: GPL-2.0
//! SMC under load and in trouble: many connections, at once and one after the other, half closed,
//! aborted, with urgent bytes, and with processes killed on either side.
//!
//! `stress [--family ..] [--ip v4] [--mode 0] [--concurrent 600] [--short 2000] [--bulk MIB]
//! [--kills 5] [--resets off] [CASE..]`
//!
//! Alone, the server is a process in namespace `b`; in a pair, it is the other guest's, which may
//! run another implementation (`--info off` there). One family and IP version for each run.

mod cases;
mod data;
mod edges;
mod server;

use st::args::Args;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::guest::{self, Role};
use st::ktap::Ktap;
use st::proof::Proof;
use st::{child, net, sys};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Where the server is, and how much to do.
pub struct Context {
    family: Family,
    ip: Ip,
    to: SocketAddr,
    proof: Proof,
    netns: bool,
    /// Connections at the same time.
    pub concurrent: usize,
    /// MiB each way.
    pub bulk: u64,
    /// Connections one after the other.
    pub short: u64,
    /// True if a reset arrives as one: the C module makes an end of file of it, both ways.
    pub resets: bool,
    /// Number of times that processes are killed.
    pub kills: u64,
}

impl Context {
    /// Moves the calling thread to where clients are.
    pub fn settle(&self) -> Result<(), String> {
        if self.netns {
            guest::enter("a").map_err(|e| format!("setns a: {e}"))?;
        }
        Ok(())
    }

    /// A connection to the server, of the mode that is wanted.
    pub fn connect(&self) -> Result<Fd, String> {
        self.connect_to(self.to.port())
    }

    /// The same to another port.
    pub fn connect_to(&self, port: u16) -> Result<Fd, String> {
        let (d, p) = self.family.triple(self.ip);
        let s = sys::socket(d, libc::SOCK_STREAM, p).map_err(|e| format!("socket: {e}"))?;
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let _ = sys::set_timeo(s.raw(), name, 30_000 * guest::slow() as i64);
        }
        let to = SocketAddr::new(self.to.ip(), port);
        sys::connect(s.raw(), &to).map_err(|e| format!("connect: {e}"))?;
        self.proof.check(self.family, s.raw())?;
        Ok(s)
    }
}

fn main() {
    let a = Args::get();
    let role = guest::role(&a);
    let netns = role == Role::Single && guest::has_netns();
    if role == Role::Single && !netns {
        net::private().expect("private network namespace (root needed)");
    }
    // A descriptor for each connection, on both sides.
    if let Err(e) = sys::more_files(8192) {
        st::args::bail(&format!("RLIMIT_NOFILE: {e}"));
    }
    let (family, ip) = (
        a.opt("family")
            .and_then(Family::parse)
            .unwrap_or(Family::Inet),
        a.opt("ip").and_then(Ip::parse).unwrap_or(Ip::V4),
    );
    let port = a.num("port", 7500) as u16;
    let proof = Proof::from_args(&a);
    let serve = || -> i32 {
        if netns && guest::enter("b").is_err() {
            return 1;
        }
        match server::listener(family, ip, port, 1024) {
            Ok(l) => server::serve(family, ip, &l, &proof),
            Err(e) => {
                println!("# server: {e}");
                1
            }
        }
    };
    if role == Role::Server {
        let mut k = Ktap::plan(1);
        let pid = child::spawn(serve);
        guest::barrier("stress-begin");
        let met = guest::barrier("stress-end");
        // SAFETY: our own child.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        child::reap(pid, 0);
        k.result(met, "served");
        std::process::exit(k.finish());
    }
    let server = (role == Role::Single).then(|| child::spawn(serve));
    let c = Context {
        family,
        ip,
        to: if role == Role::Single && !netns {
            SocketAddr::new(st::addr::loopback(ip), port)
        } else {
            guest::sockaddr(true, ip, port)
        },
        proof: proof.clone(),
        netns,
        concurrent: a.num("concurrent", 600) as usize,
        bulk: a.num("bulk", 128),
        short: a.num("short", 2000),
        resets: a.opt("resets") != Some("off"),
        kills: a.num("kills", 5),
    };
    guest::barrier("stress-begin");
    c.settle().expect("namespace a");
    let cases: Vec<_> = cases::CASES
        .iter()
        .filter(|(n, _)| a.words.is_empty() || a.words.iter().any(|w| n.starts_with(w.as_str())))
        .collect();
    let mut k = Ktap::plan(cases.len());
    let end = Instant::now() + Duration::from_secs(10 * guest::slow());
    // The server may still be on its way, and this first connection is nobody's first contact.
    while c.probe().is_err() && Instant::now() < end {
        sys::sleep_ms(50);
    }
    for (name, case) in cases {
        let t0 = Instant::now();
        let r = case(&c);
        k.diag(&format!("{name}: {} ms", t0.elapsed().as_millis()));
        k.outcome(&format!("{name}.{}.{}", family.name(), ip.name()), r);
    }
    guest::barrier("stress-end");
    if let Some(pid) = server {
        // SAFETY: our own child.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        child::reap(pid, 0);
    }
    std::process::exit(k.finish());
}

impl Context {
    /// Checks that somebody listens, asked by plain TCP.
    fn probe(&self) -> Result<(), String> {
        let (d, p) = Family::Tcp.triple(self.ip);
        let s = sys::socket(d, libc::SOCK_STREAM, p).map_err(|e| e.to_string())?;
        sys::connect(s.raw(), &self.to).map_err(|e| e.to_string())?;
        Ok(())
    }
}
