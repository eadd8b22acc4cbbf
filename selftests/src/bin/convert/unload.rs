// SPDX-License-Identifier: GPL-2.0
//! Unloading the module while TCP sockets are converted: refused while one lives, by a line that names
//! who has it; and no `socket()` fails on its way from one to the other.
//!
//! Unloads the module and loads it again.

use super::{is_smc, plain, turn};
use st::errno::{cvt, Errno};
use st::family::Ip;
use st::ktap::Ktap;
use st::{addr, net, sys};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

type Outcome = Result<(), String>;

fn delete() -> Result<(), Errno> {
    let name = c"rsmc".as_ptr();
    // SAFETY: A string that lives during the call.
    cvt(unsafe { libc::syscall(libc::SYS_delete_module, name, libc::O_NONBLOCK) }).map(drop)
}

/// A converted socket that lives.
fn refused() -> Outcome {
    let held = plain(Ip::V4);
    if !is_smc(&held) {
        return Err("the socket is not converted".into());
    }
    if delete() != Err(Errno(libc::EWOULDBLOCK)) {
        return Err("the module went".into());
    }
    let done = Command::new("rsmc").arg("unload").output();
    let done = done.map_err(|e| format!("rsmc: {e}"))?;
    let line = String::from_utf8_lossy(&done.stderr);
    let wanted = format!("by convert ({}, sockets: 1)", std::process::id());
    match done.status.code() {
        Some(5) if line.contains(&wanted) => Ok(()),
        code => Err(format!("exit code {code:?}: {line}")),
    }
}

/// Threads that make sockets all the time while the module goes.
fn while_sockets_are_made() -> Outcome {
    let (stop, converted, tcp) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let make = || -> Outcome {
        while !stop.load(Relaxed) {
            let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0)
                .map_err(|e| format!("socket: {e}"))?;
            let count = if is_smc(&socket) { &converted } else { &tcp };
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    let gone = std::thread::scope(|scope| -> Outcome {
        let threads = [scope.spawn(make), scope.spawn(make)];
        let limit = Instant::now() + Duration::from_secs(30);
        while converted.load(Relaxed) < 100 && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        while delete().is_err() && Instant::now() < limit {
            std::thread::sleep(Duration::from_micros(300));
        }
        let before = tcp.load(Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        match tcp.load(Relaxed) > before {
            true => Ok(()),
            false => Err("no socket was made afterwards".into()),
        }
    });
    println!(
        "# {} sockets converted, then {} of TCP",
        converted.load(Relaxed),
        tcp.load(Relaxed)
    );
    gone?;
    match (std::fs::exists("/sys/module/rsmc"), converted.load(Relaxed)) {
        (Ok(true), _) => Err("the module is still there".into()),
        (_, 0) => Err("no socket was converted".into()),
        _ => Ok(()),
    }
}

/// A connection of sockets that are TCP's own.
fn afterwards() -> Outcome {
    let socket = || sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).map_err(|e| e.to_string());
    let (l, c) = (socket()?, socket()?);
    let go = || -> Result<Vec<u8>, Errno> {
        sys::bind(l.raw(), &SocketAddr::new(addr::loopback(Ip::V4), 0))?;
        sys::listen(l.raw(), 1)?;
        sys::connect(c.raw(), &sys::sockname(l.raw())?)?;
        let s = sys::accept(l.raw())?;
        sys::send(c.raw(), b"x", 0)?;
        sys::recv_all(s.raw(), 1)
    };
    match go().map_err(|e| e.to_string())? {
        bytes if bytes == b"x" && !is_smc(&c) => Ok(()),
        bytes => Err(format!("{bytes:?}")),
    }
}

fn again() -> Outcome {
    let module = std::env::var("RSMC_KO").map_err(|_| "RSMC_KO is not set".to_owned())?;
    net::sh(&format!("insmod {module}"))?;
    if is_smc(&plain(Ip::V4)) {
        return Err("sockets are converted at once".into());
    }
    turn(1);
    match is_smc(&plain(Ip::V4)) {
        true => Ok(()),
        false => Err("sockets are not converted".into()),
    }
}

/// Runs the points, in a namespace of its own.
pub fn main() -> i32 {
    net::private().expect("private network namespace (root needed)");
    turn(1);
    let mut k = Ktap::plan(4);
    k.outcome("refused", refused());
    k.outcome("while_sockets_are_made", while_sockets_are_made());
    k.outcome("afterwards", afterwards());
    k.outcome("again", again());
    k.finish()
}
