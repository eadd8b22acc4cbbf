// SPDX-License-Identifier: GPL-2.0
//! Many short connections from several threads, closed in every order; afterwards nothing is left.
//!
//! `churn [--family ..] [--ip ..] [--count 10000] [--threads 2] [--mode 1]`

use st::args::Args;
use st::errno::Errno;
use st::family::{Family, Ip};
use st::ktap::Ktap;
use st::proof::{Counters, Proof};
use st::rng::Rng;
use st::{addr, net, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One connection, ended in one of several ways.
fn one(f: Family, ip: Ip, a: &SocketAddr, r: &mut Rng, proof: &Proof) -> Result<(), String> {
    let (d, p) = f.triple(ip);
    let s = sys::socket(d, libc::SOCK_STREAM, p).map_err(|e| format!("socket: {e}"))?;
    let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 20_000);
    sys::connect(s.raw(), a).map_err(|e| format!("connect: {e}"))?;
    let way = r.draw() % 6;
    if way == 0 {
        return Ok(()); // closed without a word
    }
    if way == 1 {
        let _ = sys::linger(s.raw(), 1, 0);
    }
    sys::send(s.raw(), &[b'a' + way as u8; 4], 0).map_err(|e| format!("send: {e}"))?;
    if way == 2 {
        return Ok(()); // its answer is never read
    }
    if way == 3 {
        sys::shutdown(s.raw(), libc::SHUT_WR).map_err(|e| format!("shutdown: {e}"))?;
    }
    let b = sys::recv_all(s.raw(), 4).map_err(|e| format!("recv: {e}"))?;
    if b != [b'a' + way as u8; 4] {
        return Err(format!("answer {b:?} to {way}"));
    }
    if r.draw() % 64 == 0 {
        proof.check(f, s.raw())?;
    }
    Ok(())
}

/// Answers until told to stop; which side closes first varies.
fn serve(l: i32, served: Arc<AtomicU64>) {
    let mut r = Rng::new(l as u64);
    loop {
        let s = match sys::accept(l) {
            Ok(s) => s,
            Err(Errno(libc::EINVAL)) => return, // shut down: the end
            Err(_) => continue,
        };
        let _ = sys::set_timeo(s.raw(), libc::SO_RCVTIMEO, 20_000);
        served.fetch_add(1, Ordering::Relaxed);
        if let Ok(b) = sys::recv_all(s.raw(), 4) {
            let _ = sys::send(s.raw(), &b, 0);
            if r.draw() % 2 == 0 {
                let _ = sys::recv_vec(s.raw(), 1, 0); // lets the client close first
            }
        }
    }
}

/// Sockets of the family that exist now, by /proc/net/protocols.
fn left() -> i64 {
    let t = std::fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    t.lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .filter(|w| w.first().is_some_and(|n| n.contains("SMC")))
        .filter_map(|w| w.get(2)?.parse::<i64>().ok())
        .filter(|n| *n > 0)
        .sum()
}

fn run(f: Family, ip: Ip, count: u64, threads: u64, proof: &Proof, k: &Ktap) -> Result<(), String> {
    let before = left();
    let refs = st::smcinfo::references();
    let counters = Counters::now();
    let (d, p) = f.triple(ip);
    let l = sys::socket(d, libc::SOCK_STREAM, p).map_err(|e| format!("socket: {e}"))?;
    sys::bind(l.raw(), &SocketAddr::new(addr::loopback(ip), 0))
        .map_err(|e| format!("bind: {e}"))?;
    sys::listen(l.raw(), 256).map_err(|e| format!("listen: {e}"))?;
    let a = sys::sockname(l.raw()).map_err(|e| e.to_string())?;
    let served = Arc::new(AtomicU64::new(0));
    let t0 = Instant::now();
    let srv: Vec<_> = (0..threads + 1)
        .map(|_| {
            let (fd, n) = (l.raw(), served.clone());
            std::thread::spawn(move || serve(fd, n))
        })
        .collect();
    let cl: Vec<_> = (0..threads)
        .map(|i| {
            let proof = proof.clone();
            std::thread::spawn(move || {
                let mut r = Rng::new(i);
                for n in 0..count / threads {
                    one(f, ip, &a, &mut r, &proof)
                        .map_err(|e| format!("connection {n} of thread {i}: {e}"))?;
                }
                Ok::<(), String>(())
            })
        })
        .collect();
    let mut res = Ok(());
    for c in cl {
        res = res.and(c.join().unwrap_or(Err("client panicked".into())));
    }
    // Every connection that was made must come out of accept, except those reset before.
    let end = Instant::now() + Duration::from_secs(60);
    while served.load(Ordering::Relaxed) < count * 3 / 4 && Instant::now() < end && res.is_ok() {
        sys::sleep_ms(20);
    }
    sys::sleep_ms(100);
    let _ = sys::shutdown(l.raw(), libc::SHUT_RDWR);
    for s in srv {
        let _ = s.join();
    }
    drop(l);
    let ms = t0.elapsed().as_millis().max(1) as u64;
    let n = served.load(Ordering::Relaxed);
    k.diag(&format!(
        "{} {}: {count} connections in {ms} ms, {}/s, {n} accepted",
        f.name(),
        ip.name(),
        count * 1000 / ms
    ));
    res?;
    if n * 4 < count * 3 {
        return Err(format!("only {n} of {count} were accepted"));
    }
    if f != Family::Tcp && proof.is_ours() {
        let (c, s) = (
            counters.grown("fallback_client"),
            counters.grown("fallback_server"),
        );
        k.diag(&format!(
            "counters: fallback_client +{c} fallback_server +{s}"
        ));
        if proof.mode == Some(1) && (c < count || s < n) {
            return Err("the fallback counters did not follow".into());
        }
    }
    let end = Instant::now() + Duration::from_secs(60);
    while left() > before {
        if Instant::now() > end {
            return Err(format!(
                "{} sockets of the family are left",
                left() - before
            ));
        }
        sys::sleep_ms(50);
    }
    st::smcinfo::settled(refs, 10_000)
}

fn main() {
    let a = Args::get();
    net::private().expect("private network namespace (root needed)");
    // The ports of the other end stay in TIME_WAIT: enough of them, and reuse.
    let _ = net::sysctl("net.ipv4.ip_local_port_range", "1100 65000");
    let _ = net::sysctl("net.ipv4.tcp_tw_reuse", "1");
    let (fams, ips) = (a.families(), a.ips());
    let (count, threads) = (a.num("count", 10_000), a.num("threads", 2));
    let proof = Proof::from_args(&a);
    let mut k = Ktap::plan(fams.len() * ips.len());
    for &f in &fams {
        for &ip in &ips {
            let r = run(f, ip, count, threads, &proof, &k);
            k.outcome(&format!("churn.{}.{}", f.name(), ip.name()), r);
        }
    }
    std::process::exit(k.finish());
}
