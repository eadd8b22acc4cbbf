// SPDX-License-Identifier: GPL-2.0
//! Measures the cost of bytes on a connection.

use crate::meter::{show, Meter};
use crate::place::Place;
use st::sys;
use std::time::Instant;

/// Receives until the buffer is full; false at the end of the stream.
fn fill(fd: i32, b: &mut [u8]) -> bool {
    let mut have = 0;
    while have < b.len() {
        match sys::recv(fd, &mut b[have..], 0) {
            Ok(n) if n > 0 => have += n as usize,
            _ => return false,
        }
    }
    true
}

/// Half a round trip: the median and the 99th percentile.
pub fn ping_pong(p: &Place, m: &Meter, size: usize, full: u64) {
    let metric = format!("pingpong_{size}");
    if !m.wants(&metric) {
        return;
    }
    let (c, s) = p.pair();
    let n = m.amount(full);
    let warm = n / 10 + 1;
    let h = std::thread::spawn(move || {
        let mut b = vec![0; size];
        for _ in 0..warm + n {
            if !fill(s.raw(), &mut b) || sys::send_all(s.raw(), &b).is_err() {
                return;
            }
        }
    });
    let mut b = vec![0x5a; size];
    let mut trip = || {
        let t = Instant::now();
        sys::send_all(c.raw(), &b).expect("send");
        assert!(fill(c.raw(), &mut b), "echo");
        t.elapsed().as_nanos() as f64 / 2.0
    };
    for _ in 0..warm {
        trip();
    }
    let t = m.start();
    let mut all: Vec<f64> = (0..n).map(|_| trip()).collect();
    t.stop(n * 2);
    all.sort_by(f64::total_cmp);
    show(&metric, all[all.len() / 2], "ns");
    show(&format!("{metric}_p99"), all[all.len() * 99 / 100], "ns");
    let _ = h.join();
}

/// One way, for each KiB. TCP has modes far apart in this: several connections, the median counts.
pub fn bulk(p: &Place, m: &Meter) {
    if !m.wants("bulk_per_KiB") {
        return;
    }
    let mb = m.amount(16);
    let rounds = if m.mark { 1 } else { 5 };
    let mut v = Vec::new();
    for _ in 0..rounds {
        let (c, s) = p.pair();
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
        let t = m.start();
        for _ in 0..mb * 8 {
            sys::send_all(c.raw(), &b).expect("send");
        }
        sys::recv_all(c.raw(), 1).expect("the end");
        v.push(t.stop(mb << 10));
        assert!(h.join().expect("receiver"));
    }
    v.sort_by(f64::total_cmp);
    show("bulk_per_KiB", v[v.len() / 2] / (mb << 10) as f64, "ns");
}
