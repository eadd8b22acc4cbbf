// SPDX-License-Identifier: GPL-2.0
//! An honest connection of the module with itself on the same device, that goes on all the while.

use st::fd::Fd;
use st::point::T;
use st::rawpeer::wire_addr;
use st::{net, smcinfo, sys};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Where it listens.
pub const PORT: u16 = 9900;

/// The connection, and the process that uses it.
pub struct Honest {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), String>>>,
    device: String,
    _listener: Fd,
}

fn pair(t: &T) -> Result<(Fd, Fd, Fd), String> {
    let l = t.socket();
    let a = SocketAddr::new(wire_addr(false, t.ip), PORT);
    let _ = sys::setopt(l.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(l.raw(), &a).map_err(|e| format!("bind: {e}"))?;
    sys::listen(l.raw(), 4).map_err(|e| format!("listen: {e}"))?;
    // The device's GIDs come after the device, when a work of the kernel's has had the processor.
    let end = st::guest::until(1000);
    loop {
        let c = t.socket();
        sys::connect(c.raw(), &a).map_err(|e| format!("connect: {e}"))?;
        let s = sys::accept(l.raw()).map_err(|e| format!("accept: {e}"))?;
        let i = smcinfo::info(c.raw()).map_err(|e| format!("RSMC_INFO: {e}"))?;
        if i.mode == 0 {
            return Ok((c, s, l));
        }
        if Instant::now() > end {
            let (mode, reason) = (i.mode, i.reason);
            return Err(format!(
                "the honest connection has mode {mode}, reason {reason:#x}"
            ));
        }
        sys::sleep_ms(20);
    }
}

impl Honest {
    /// Makes the RDMA device and connects.
    pub fn start(t: &T) -> Result<Honest, String> {
        // SAFETY: No pointers.
        let device = format!("rxh{}", unsafe { libc::gettid() });
        net::sh(&format!("rdma link add {device} type rxe netdev va"))?;
        let (c, s, listener) = pair(t)?;
        for fd in [&c, &s] {
            let _ = sys::set_timeo(fd.raw(), libc::SO_RCVTIMEO, 8000 * st::guest::slow() as i64);
        }
        let (rounds, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (n, end) = (rounds.clone(), stop.clone());
        let client = std::thread::spawn(move || {
            let mut i = 0u64;
            while !end.load(Ordering::Relaxed) {
                let b = i.to_le_bytes().repeat(1 + i as usize % 700);
                sys::send_all(c.raw(), &b).map_err(|e| format!("honest client: {e}"))?;
                let r =
                    sys::recv_all(c.raw(), b.len()).map_err(|e| format!("honest client: {e}"))?;
                if r != b {
                    return Err("honest client: wrong bytes".to_owned());
                }
                i += 1;
                n.store(i, Ordering::Relaxed);
                // Several of these at full speed leave a slow kernel no time for anything else.
                sys::sleep_ms((st::guest::less() * st::guest::less()).min(200));
            }
            Ok(())
        });
        let server = std::thread::spawn(move || loop {
            let b = sys::recv_vec(s.raw(), 8192, 0).map_err(|e| format!("honest server: {e}"))?;
            if b.is_empty() {
                return Ok(());
            }
            sys::send_all(s.raw(), &b).map_err(|e| format!("honest server: {e}"))?;
        });
        Ok(Honest {
            rounds,
            stop,
            threads: vec![client, server],
            device,
            _listener: listener,
        })
    }

    /// Removes the device while the connection is in use, which must end it soon.
    pub fn lose_device(self, t: &mut T) {
        let removal = |device: &str| {
            let start = std::time::Instant::now();
            let r = net::rdma_delete(device, 20 * st::guest::slow());
            (r, start.elapsed().as_millis())
        };
        let (r, ms) = removal(&self.device);
        t.is("device goes", r, Ok(()));
        let mut most = 3000 * u128::from(st::guest::slow());
        if ms >= most {
            // The RDMA core itself takes long for it, the longer the more namespaces there are.
            let idle = format!("{}i", self.device);
            let r = net::sh(&format!("rdma link add {idle} type rxe netdev va"));
            t.is("another device", r, Ok(()));
            let (r, alone) = removal(&idle);
            t.is("it goes", r, Ok(()));
            t.say(&format!(
                "removal of a device that nobody used took {alone} ms"
            ));
            most += 2 * alone;
        }
        t.check(&format!("removal took {ms} ms"), ms < most);
        for h in self.threads {
            let r = h.join().unwrap_or_else(|_| Err("thread panicked".into()));
            t.check(&format!("honest: {r:?}"), r.is_err());
        }
    }

    /// Returns how often a message has come back.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Ends the connection and removes the device.
    pub fn finish(self, t: &mut T) {
        let before = self.rounds();
        for _ in 0..300 * st::guest::slow() {
            if self.rounds() >= before + 20 {
                break;
            }
            sys::sleep_ms(10);
        }
        t.check(
            "the honest connection goes on",
            self.rounds() >= before + 20,
        );
        self.stop.store(true, Ordering::Relaxed);
        for h in self.threads {
            let r = h.join().unwrap_or_else(|_| Err("thread panicked".into()));
            t.is("honest", r, Ok(()));
        }
        let r = net::rdma_delete(&self.device, 10 * st::guest::slow());
        t.is("device goes", r, Ok(()));
    }
}
