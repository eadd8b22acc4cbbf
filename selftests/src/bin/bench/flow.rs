// SPDX-License-Identifier: GPL-2.0
//! Measures the cost of bytes on a connection.

use crate::ends::{beside, pipes, Duplex};
use crate::meter::{show, Meter};
use crate::place::{End, Place};
use crate::shared;
use std::time::Instant;

/// Half a round trip: the median and the 99th percentile.
pub fn ping_pong(p: &Place, m: &Meter, size: usize, full: u64) {
    let metric = format!("pingpong_{size}");
    if !m.wants(&metric) {
        return;
    }
    let n = m.amount(full);
    match p.client {
        End::Pipe => trips(p, m, &metric, size, n, pipes()),
        End::Shared => trips(p, m, &metric, size, n, shared::halves()),
        _ => trips(p, m, &metric, size, n, p.pair()),
    }
}

fn trips<E: Duplex>(p: &Place, m: &Meter, metric: &str, size: usize, n: u64, pair: (E, E)) {
    let warm = n / 10 + 1;
    let (c, far) = beside(p.apart, pair, move |s| {
        let mut b = vec![0; size];
        (0..warm + n).all(|_| s.fill(&mut b) && s.put(&b).is_ok())
    });
    let mut b = vec![0x5a; size];
    let mut trip = || {
        let t = Instant::now();
        c.put(&b).expect("send");
        assert!(c.fill(&mut b), "echo");
        t.elapsed().as_nanos() as f64 / 2.0
    };
    for _ in 0..warm {
        trip();
    }
    let t = m.start();
    let mut all: Vec<f64> = (0..n).map(|_| trip()).collect();
    t.stop(n * 2);
    all.sort_by(f64::total_cmp);
    show(metric, all[all.len() / 2], "ns");
    show(&format!("{metric}_p99"), all[all.len() * 99 / 100], "ns");
    assert!(far.join(), "the far end");
}

/// One way, for each KiB. TCP has modes far apart in this: several connections, the median counts.
pub fn bulk(p: &Place, m: &Meter) {
    if !m.wants("bulk_per_KiB") {
        return;
    }
    let mb = m.amount(16);
    let round = |_| match p.client {
        End::Pipe => one_way(p, m, mb, pipes()),
        End::Shared => one_way(p, m, mb, shared::halves()),
        _ => one_way(p, m, mb, p.pair()),
    };
    let mut v: Vec<f64> = (0..5).map(round).collect();
    v.sort_by(f64::total_cmp);
    show("bulk_per_KiB", v[v.len() / 2] / (mb << 10) as f64, "ns");
}

fn one_way<E: Duplex>(p: &Place, m: &Meter, mb: u64, pair: (E, E)) -> f64 {
    let apart = p.apart;
    let (c, far) = beside(apart, pair, move |s| {
        let mut b = vec![0u8; 128 << 10];
        // A process that has just been forked pays for each page it writes to first: not in this.
        if apart {
            b.fill(1);
            if s.put(b"?").is_err() {
                return false;
            }
        }
        let mut left = mb << 20;
        while left > 0 {
            match s.take(&mut b) {
                Ok(n) if n > 0 => left = left.saturating_sub(n as u64),
                _ => return false,
            }
        }
        s.put(b"!").is_ok()
    });
    let b = vec![0x5a; 128 << 10];
    if apart {
        assert!(c.fill(&mut [0]), "the far end begins");
    }
    let t = m.start();
    for _ in 0..mb * 8 {
        c.put(&b).expect("send");
    }
    assert!(c.fill(&mut [0]), "the end");
    let ns = t.stop(mb << 10);
    assert!(far.join(), "receiver");
    ns
}
