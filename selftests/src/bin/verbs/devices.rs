// SPDX-License-Identifier: GPL-2.0
//! The soft-RoCE devices, and the failures of their verbs.

use st::guest;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const ARM: &str = "/sys/module/verb_fault/parameters/arm";

/// Says what is to fail; see `verb_fault`.
pub fn arm(what: &str) -> Result<(), String> {
    fs::write(ARM, what).map_err(|e| format!("arming '{what}': {e}"))
}

/// How many calls have failed since something was armed.
pub fn hits() -> u32 {
    let text = fs::read_to_string(ARM).unwrap_or_default();
    let hits = text.split_whitespace().nth(1);
    hits.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Makes both devices anew: no group, no memory and no queue is left of what was before.
pub fn renew() -> Result<(), String> {
    for (ns, device, netdev) in [("a", "rxe_a", "va"), ("b", "rxe_b", "vb")] {
        // The program is started where its thread is.
        let made = std::thread::spawn(move || {
            guest::enter(ns).map_err(|e| format!("namespace {ns}: {e}"))?;
            rdma(&["link", "delete", device])?;
            rdma(&["link", "add", device, "type", "rxe", "netdev", netdev])
        });
        made.join().map_err(|_| "panic".to_owned())??;
    }
    for (device, v4, v6) in [("rxe_a", "0a4d:0001", "0001"), ("rxe_b", "0a4d:0002", "0002")] {
        let v4 = format!("0000:0000:0000:0000:0000:ffff:{v4}");
        let v6 = format!("fd77:0000:0000:0000:0000:0000:0000:{v6}");
        let end = Instant::now() + Duration::from_secs(10 * guest::slow());
        while !(has_gid(device, &v4) && has_gid(device, &v6)) {
            if Instant::now() > end {
                return Err(format!("{device} has no GID for its addresses"));
            }
            st::sys::sleep_ms(2);
        }
    }
    Ok(())
}

fn rdma(words: &[&str]) -> Result<(), String> {
    match Command::new("rdma").args(words).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("rdma {}: {other:?}", words.join(" "))),
    }
}

/// Whether the table of port 1, which is filled in the background, has this GID.
fn has_gid(device: &str, gid: &str) -> bool {
    let table = format!("/sys/class/infiniband/{device}/ports/1/gids");
    (0..16).any(|i| {
        fs::read_to_string(format!("{table}/{i}")).is_ok_and(|text| text.trim() == gid)
    })
}
