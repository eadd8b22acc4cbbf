// SPDX-License-Identifier: GPL-2.0
//! The border between TCP and the ring of a local path.
//!
//! `border [--flip N] [--seconds N] [--seed N] [storm|breach|idle|programs|dissolved|hungry|returned|counted|frozen
//! |charged|zerocopy|polled|peeked|kept|limit|departed]`
//!
//! `storm`: eight threads on one connection that changes carriers after at most `--flip` messages, for
//! `--seconds`: each byte arrives once and in order. `breach`: bytes beyond the cut are seen (needs the module
//! `intrude`). `idle`: rings are given back. `programs`: BPF programs of a control group see all packets. `dissolved`: calls
//! that sleep while another thread connects the socket anew. `hungry`: a sender for which TCP has no memory. `returned`: a writer
//! that comes back to TCP early does not wait for acknowledgements. `counted`: the statistics have each byte and call once.
//! `frozen`, `charged`: an end that sleeps in a call keeps the
//! other one waiting for nothing. `zerocopy`: bytes of TCP_ZEROCOPY_RECEIVE are in order. `polled`, `peeked`: room to write is
//! told where TCP tells of it, and a call finds it. `kept`: a direction that cannot leave TCP keeps no ring. `limit`: one
//! user has so much memory of rings and no more. `departed`: a closed end's namespace goes, though the other end is open;
//! and two namespaces of which one says no have no local path between them.

mod breach;
mod counted;
mod cover;
mod departed;
mod dissolved;
mod hungry;
mod idle;
mod polls;
mod programs;
mod returned;
mod storm;
mod stranger;

use breach::Who;
use st::args::Args;
use st::family::{Family, Ip};
use st::fd::Fd;
use st::ktap::Ktap;
use st::{net, path, sys};
use std::time::Duration;

fn e(what: &'static str) -> impl Fn(st::errno::Errno) -> String {
    move |e| format!("{what}: {e}")
}

fn socket(ip: Ip) -> Result<Fd, String> {
    let (domain, protocol) = Family::Inet.triple(ip);
    sys::socket(domain, libc::SOCK_STREAM, protocol).map_err(e("socket"))
}

fn listener(ip: Ip) -> Result<Fd, String> {
    let l = socket(ip)?;
    sys::bind(
        l.raw(),
        &std::net::SocketAddr::new(st::addr::loopback(ip), 0),
    )
    .map_err(e("bind"))?;
    sys::listen(l.raw(), 4).map_err(e("listen"))?;
    Ok(l)
}

/// A connection of sockets that a plain program makes.
fn pair(ip: Ip) -> Result<(Fd, Fd), String> {
    let l = listener(ip)?;
    let to = sys::sockname(l.raw()).map_err(e("getsockname"))?;
    let c = socket(ip)?;
    sys::connect(c.raw(), &to).map_err(e("connect"))?;
    let s = sys::accept(l.raw()).map_err(e("accept"))?;
    Ok((c, s))
}

fn storm(a: &Args, k: &Ktap, ip: Ip) -> Result<(), String> {
    let (c, s) = pair(ip)?;
    path::prove_local(&c, &s)?;
    net::sysctl("net.smc.path_flip", &a.num("flip", 4).to_string())?;
    let time = Duration::from_secs(a.num("seconds", 3));
    let seed = a.num("seed", (u64::from(std::process::id()) << 17) ^ 0x5eed);
    k.diag(&format!("seed {seed}"));
    let said = storm::run(&c, &s, time, seed);
    net::sysctl("net.smc.path_flip", "0")?;
    k.diag(&said?);
    Ok(())
}

fn main() {
    let a = Args::get();
    let wants = |name: &str| a.words.is_empty() || a.words.iter().any(|w| w == name);
    let limit = hungry::Limit::open();
    let ring = std::fs::File::options()
        .write(true)
        .open("/proc/sys/net/smc/path_ring");
    net::private().unwrap_or_else(|e| st::args::bail(&format!("(root needed) {e}")));
    match path::local(1) {
        Ok(true) => {}
        other => st::args::bail(&format!("no local paths: {other:?}")),
    }
    let mut k = Ktap::open();
    if wants("storm") {
        for ip in a.ips() {
            let result = storm(&a, &k, ip);
            k.outcome(&format!("storm.{}", ip.name()), result);
        }
    }
    if wants("breach") {
        for who in [Who::Writer, Who::Reader, Who::Close] {
            let result = pair(Ip::V4).and_then(|(c, s)| breach::run(who, c, s));
            k.outcome(&format!("breach.{who:?}").to_lowercase(), result);
        }
    }
    if wants("idle") {
        let result = idle::run(|| pair(Ip::V4)).map(|said| k.diag(&said));
        k.outcome("idle", result);
    }
    if wants("programs") {
        for (way, name) in [(0, "arrive"), (1, "leave")] {
            let group = programs::Group::new();
            let result = group.and_then(|group| programs::run(&group, way, || pair(Ip::V4)));
            k.outcome(&format!("programs.{name}"), result);
        }
    }
    if wants("dissolved") {
        for (writes, name) in [(true, "send"), (false, "recv")] {
            let result = pair(Ip::V4).and_then(|(c, s)| {
                path::prove_local(&c, &s)?;
                dissolved::run(writes, &c, &s, &listener(Ip::V4)?)
            });
            k.outcome(&format!("dissolved.{name}"), result);
        }
    }
    if wants("dissolved") {
        let result = pair(Ip::V4).and_then(|(c, s)| {
            path::prove_local(&c, &s)?;
            dissolved::late(&c, s, &listener(Ip::V4)?)
        });
        k.outcome("dissolved.late", result);
        let result = pair(Ip::V4).and_then(|(c, s)| {
            path::prove_local(&c, &s)?;
            dissolved::closed(&c, s)
        });
        k.outcome("dissolved.closed", result);
    }
    if wants("hungry") {
        let result = match &limit {
            None => Err("no tcp_mem".into()),
            Some(limit) => pair(Ip::V4).and_then(|(c, s)| hungry::run(limit, &c, &s)),
        };
        k.outcome("hungry", result.map(|said| k.diag(&said)));
    }
    if wants("returned") {
        let result = pair(Ip::V4).and_then(|(c, s)| returned::run(&c, &s));
        k.outcome("returned", result.map(|said| k.diag(&said)));
    }
    if wants("counted") {
        let result = pair(Ip::V4).and_then(|(c, s)| counted::by_memory(c, s));
        k.outcome("counted.memory", result.map(|said| k.diag(&said)));
        let result = pair(Ip::V4).and_then(|(c, s)| counted::in_turn(c, s));
        k.outcome("counted.turns", result.map(|said| k.diag(&said)));
    }
    if wants("frozen") {
        let result = pair(Ip::V4).and_then(|(c, s)| stranger::frozen(c, s));
        k.outcome("frozen", result);
    }
    if wants("charged") {
        let result = pair(Ip::V4).and_then(|(c, s)| stranger::charged(ring.as_ref().ok(), &c, &s));
        k.outcome("charged", result.map(|said| k.diag(&said)));
    }
    if wants("zerocopy") {
        let result = pair(Ip::V4).and_then(|(c, s)| stranger::zerocopy(&c, &s));
        k.outcome("zerocopy", result);
    }
    if wants("polled") {
        for (name, size, count) in polls::SIZES {
            let result = polls::polled(*size, *count, || pair(Ip::V4));
            k.outcome(&format!("polled.{name}"), result.map(|said| k.diag(&said)));
        }
    }
    if wants("peeked") {
        let result = pair(Ip::V4).and_then(|(c, s)| polls::peeked(&c, &s));
        k.outcome("peeked", result);
    }
    if wants("kept") {
        let result = idle::kept(|| pair(Ip::V4)).map(|said| k.diag(&said));
        k.outcome("kept", result);
    }
    if wants("limit") {
        let result = idle::limit(|| pair(Ip::V4));
        k.outcome("limit", result);
    }
    if wants("departed") {
        for (plain, name) in [(true, "tcp"), (false, "local")] {
            k.outcome(&format!("departed.{name}"), departed::run(plain));
        }
        for (narrow, name) in [(true, "here"), (false, "there")] {
            k.outcome(&format!("departed.apart_{name}"), departed::apart(narrow));
        }
    }
    std::process::exit(k.finish());
}
