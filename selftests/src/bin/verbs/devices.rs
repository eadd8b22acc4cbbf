// SPDX-License-Identifier: GPL-2.0
//! The soft-RoCE devices, and the failures of their verbs.

use st::guest;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Namespace, device and network device of the client's and of the server's end.
const ENDS: [(&str, &str, &str); 2] = [("a", "rxe_a", "va"), ("b", "rxe_b", "vb")];

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
    for (ns, device, netdev) in ENDS {
        run_in(ns, "rdma", &["link", "delete", device])?;
        let words = ["link", "add", device, "type", "rxe", "netdev", netdev];
        run_in(ns, "rdma", &words)?;
    }
    wait_for("active ports with GIDs", || Ok(is_up()))
}

/// Takes the link away for a moment: no group is left. Cheaper than [`renew`].
pub fn interrupt() -> Result<(), String> {
    let link = |how| run_in("a", "ip", &["link", "set", "va", how]);
    link("down")?;
    // A port that is down ends its groups in the background.
    wait_for("the end of all groups", || Ok(!has_queue_pairs()?))?;
    link("up")?;
    wait_for("active ports with GIDs", || Ok(is_up()))
}

fn wait_for(what: &str, mut done: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(10 * guest::slow());
    while !done()? {
        if Instant::now() > end {
            return Err(format!("waited in vain for {what}"));
        }
        st::sys::sleep_ms(2);
    }
    Ok(())
}

fn run_in(ns: &'static str, program: &'static str, words: &[&str]) -> Result<(), String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    // The program is started where its thread is.
    let thread = std::thread::spawn(move || {
        guest::enter(ns).map_err(|e| format!("namespace {ns}: {e}"))?;
        match Command::new(program).args(&words).status() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("{program} {}: {other:?}", words.join(" "))),
        }
    });
    thread.join().map_err(|_| "panic".to_owned())?
}

/// Whether any reliable connected queue pair exists.
fn has_queue_pairs() -> Result<bool, String> {
    let shown = Command::new("rdma")
        .args(["resource", "show", "qp"])
        .output();
    let shown = shown.map_err(|e| format!("rdma resource: {e}"))?;
    Ok(String::from_utf8_lossy(&shown.stdout).contains("type RC"))
}

/// Whether both ports are active, and their tables, which are filled in the background, have the
/// GIDs of their IPv4 addresses.
fn is_up() -> bool {
    let read = |file: String| fs::read_to_string(file).unwrap_or_default();
    ["1", "2"].iter().zip(ENDS).all(|(host, (_, device, _))| {
        let port = format!("/sys/class/infiniband/{device}/ports/1");
        let gid = format!("0000:0000:0000:0000:0000:ffff:0a4d:000{host}");
        read(format!("{port}/state")).contains("ACTIVE")
            && (0..16).any(|i| read(format!("{port}/gids/{i}")).trim() == gid)
    })
}
