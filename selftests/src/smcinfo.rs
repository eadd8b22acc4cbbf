// SPDX-License-Identifier: GPL-2.0
//! Asks the module about its sockets: `getsockopt(SOL_SMC, RSMC_INFO)` and `/proc/net/smc_fallback`.

use crate::errno::R;
use crate::sys;
use std::collections::BTreeMap;

/// `SOL_SMC`.
pub const SOL_SMC: i32 = 286;
/// The module's own option with a socket's mode and reason.
pub const RSMC_INFO: i32 = 100;
/// `mode`: data flows over the TCP connection.
pub const MODE_TCP: u32 = 1;
/// `mode` of a connection that began as TCP, while it is TCP's.
pub const MODE_FIRST: u32 = 3;

/// Answer of `RSMC_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// 0 SMC-R, 1 TCP fallback, 2 a local path (SMC-D), 3 TCP first, 255 undecided.
    pub mode: u32,
    /// Why it fell back, 0 if it did not.
    pub reason: u32,
    /// The peer's diagnosis in its decline.
    pub peer_diagnosis: u32,
    /// SMC state number.
    pub state: u32,
}

/// Reads [`Info`] of a socket.
pub fn info(fd: i32) -> R<Info> {
    let v = sys::getopt_raw(fd, SOL_SMC, RSMC_INFO, 16)?;
    let w = |i: usize| match v.get(i * 4..i * 4 + 4) {
        Some(b) => u32::from_ne_bytes([b[0], b[1], b[2], b[3]]),
        None => u32::MAX,
    };
    Ok(Info {
        mode: w(0),
        reason: w(1),
        peer_diagnosis: w(2),
        state: w(3),
    })
}

/// `/proc/net/smc_fallback` as (words before the last number) -> number; `None` without the module.
pub fn counters() -> Option<BTreeMap<String, u64>> {
    // The thread's own view: a thread that changed namespace must not read its leader's.
    let s = std::fs::read_to_string("/proc/thread-self/net/smc_fallback").ok()?;
    let mut m = BTreeMap::new();
    for l in s.lines() {
        let w: Vec<&str> = l.split_whitespace().collect();
        if let Some((n, rest)) = w.split_last() {
            if let Ok(n) = n.parse() {
                m.insert(rest.join(" "), n);
            }
        }
    }
    Some(m)
}

/// References to the module: one or more for each of its sockets. `None` without the module.
pub fn references() -> Option<i64> {
    ["rsmc", "smc"].iter().find_map(|m| {
        std::fs::read_to_string(format!("/sys/module/{m}/refcnt"))
            .ok()?
            .trim()
            .parse()
            .ok()
    })
}

/// Waits until no more than `before` references are left.
pub fn settled(before: Option<i64>, ms: u64) -> Result<(), String> {
    let wait = std::time::Duration::from_millis(crate::guest::limit(ms));
    let end = std::time::Instant::now() + wait;
    loop {
        let now = references();
        if now <= before {
            return Ok(());
        }
        if std::time::Instant::now() > end {
            return Err(format!(
                "references to the module: {before:?} before, {now:?} now"
            ));
        }
        sys::sleep_ms(20);
    }
}
