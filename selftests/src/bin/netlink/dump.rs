// SPDX-License-Identifier: GPL-2.0
//! Dumps of thousands of sockets while others come and go: each that was there all the time is
//! told once, and none twice.

use crate::sockets;
use st::errno::R;
use st::family::{Ip, AF_SMC};
use st::fd::Fd;
use st::{addr, sys};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Sockets that stay.
const STAY: u64 = 3000;
/// Sockets that each of the threads has at a time.
const GO: usize = 50;
const THREADS: usize = 2;
const DUMPS: usize = 30;

/// A listener: listed, and made soon.
fn listener() -> R<Fd> {
    let fd = sys::socket(AF_SMC, libc::SOCK_STREAM, 0)?;
    sys::bind(fd.raw(), &SocketAddr::new(addr::loopback(Ip::V4), 0))?;
    sys::listen(fd.raw(), 1)?;
    Ok(fd)
}

/// Runs it; the error says what was wrong.
pub fn run() -> Result<(), String> {
    let failed = |e: st::errno::Errno| e.to_string();
    sys::more_files(STAY + 1000).map_err(failed)?;
    let stay: R<Vec<Fd>> = (0..STAY).map(|_| listener()).collect();
    let stay = stay.map_err(failed)?;
    let wanted: HashSet<u64> = stay.iter().map(sockets::inode).collect();
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let go: Vec<_> = (0..GO).map(|_| listener()).collect();
                    drop(go);
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let all = (0..DUMPS).try_for_each(|n| one(n, &wanted, &turns));
        stop.store(true, Ordering::Relaxed);
        all
    })
}

fn one(n: usize, wanted: &HashSet<u64>, turns: &AtomicU64) -> Result<(), String> {
    // Others have come and gone since the last dump.
    let before = turns.load(Ordering::Relaxed);
    while turns.load(Ordering::Relaxed) == before {
        std::thread::yield_now();
    }
    let told = sockets::all(0).map_err(|e| format!("dump {n}: {e}"))?;
    // A cookie is never used again; an inode of one that has gone may be.
    let mut cookies: HashMap<&[u8], u64> = HashMap::new();
    for (inode, socket) in &told {
        if let Some(other) = cookies.insert(&socket.fixed[44..52], *inode) {
            return Err(format!(
                "dump {n}: inodes {inode} and {other} are one socket"
            ));
        }
    }
    let inodes: HashSet<u64> = told.iter().map(|t| t.0).collect();
    match wanted.difference(&inodes).count() {
        0 => Ok(()),
        lost => Err(format!("dump {n}: {lost} of {} are missing", wanted.len())),
    }
}
