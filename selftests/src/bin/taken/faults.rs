// SPDX-License-Identifier: GPL-2.0
//! Allocations that fail one by one.

use crate::listener;
use st::point::T;
use st::{net, smcinfo, sys};

fn put(n: u32) -> bool {
    std::fs::write("/proc/thread-self/fail-nth", n.to_string()).is_ok()
}

/// Lets the allocation with this number fail while `f` runs; whether one did.
fn failing<V>(n: u32, f: impl FnOnce() -> V) -> (V, bool) {
    put(n);
    let v = f();
    let left = std::fs::read_to_string("/proc/thread-self/fail-nth").unwrap_or_default();
    put(0);
    (v, left.trim() == "0")
}

fn prepare(t: &mut T) -> bool {
    let debug = "/sys/kernel/debug/failslab";
    if !std::path::Path::new(debug).exists() {
        let _ = net::sh("mount -t debugfs none /sys/kernel/debug");
    }
    if !put(0) || !std::path::Path::new(debug).exists() {
        t.say("skip: kernel without fail-nth");
        return false;
    }
    for (file, value) in [
        ("task-filter", "Y"),
        ("ignore-gfp-wait", "N"),
        ("verbose", "0"),
    ] {
        let _ = std::fs::write(format!("{debug}/{file}"), value);
    }
    true
}

/// listen() finds no memory for the namespace's hooks, and others bring them later: the listener's
/// clients are TCP's.
pub fn no_hooks(t: &mut T) {
    if !prepare(t) {
        return;
    }
    let mut without = 0;
    for n in 1..60 {
        net::private().expect("namespace");
        net::lo_up().expect("lo");
        let s = t.socket();
        // A program that looks at SYNs: its listener keeps them whoever else wants to.
        let r = sys::setopt(s.raw(), libc::IPPROTO_TCP, 27, 1);
        t.is("TCP_SAVE_SYN", r, Ok(0));
        sys::bind(
            s.raw(),
            &std::net::SocketAddr::new(st::addr::loopback(t.ip), 0),
        )
        .expect("bind");
        let (r, failed) = failing(n, || sys::listen(s.raw(), 8));
        if !failed {
            break;
        }
        if r.is_err() {
            continue;
        }
        let at = sys::sockname(s.raw()).expect("name");
        let (_other, _) = listener(t.socket(), t.ip, 8);
        let c = t.socket();
        t.is("connects", sys::connect(c.raw(), &at), Ok(0));
        let a = sys::accept(s.raw()).expect("accept");
        t.is("send", sys::send(c.raw(), b"x", 0), Ok(1));
        sys::poll_until(a.raw(), libc::POLLIN, 2000);
        let got = sys::recv_vec(a.raw(), 64, libc::MSG_DONTWAIT);
        t.is("what the server hears", got.as_deref(), Ok(&b"x"[..]));
        let info = smcinfo::info(s.raw()).expect("info");
        without += u32::from(info.mode == 1);
    }
    t.check(&format!("{without} listeners without hooks"), without > 0);
}
