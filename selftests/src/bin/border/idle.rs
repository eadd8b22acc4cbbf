// SPDX-License-Identifier: GPL-2.0
//! Rings that nobody uses are given back: after a while, and at once when memory is short.

use st::fd::Fd;
use st::memory::Memory;
use st::{path, sys};
use std::time::{Duration, Instant};

/// Connections.
const MANY: usize = 200;
/// What their rings take at least, in KiB: one of 16 KiB in each direction.
const RINGS: i64 = 2 * 16 * MANY as i64;
/// Time after which idle rings go, with the look that finds them.
const WHILE: Duration = Duration::from_secs(8);

/// Waits until the rings are gone: less than a quarter of them is left.
fn gone(memory: &Memory, cold: i64, until: Duration) -> Result<i64, String> {
    let end = Instant::now() + until;
    loop {
        let left = memory.taken() - cold;
        if left < RINGS / 4 {
            return Ok(left);
        }
        if Instant::now() > end {
            return Err(format!("{left} KiB more than cold connections are left"));
        }
        sys::sleep_ms(20);
    }
}

/// Uses all of them, which have no rings; returns by how much memory grows. Beside the rings it is the whole kernel's,
/// so not compared with what it was a while ago. When the machine is so slow that the first are idle again before the
/// last are used: once more.
fn use_all(memory: &Memory, all: &[(Fd, Fd)], which: &str) -> Result<i64, String> {
    let cold = memory.taken();
    let mut used = 0;
    for _ in 0..5 {
        let begin = Instant::now();
        for (c, s) in all {
            path::prove_local(c, s)?;
            path::prove_local(c, s)?;
        }
        used = memory.taken() - cold;
        if used > RINGS * 3 / 4 {
            return Ok(used);
        }
        if begin.elapsed() < WHILE / 8 {
            break;
        }
    }
    Err(format!("rings take only {used} KiB when used {which}"))
}

/// Uses many connections, leaves them alone, and uses them again.
pub fn run(pair: impl Fn() -> Result<(Fd, Fd), String>) -> Result<String, String> {
    let memory = Memory::open()?;
    let mut all = Vec::new();
    for _ in 0..MANY {
        let (c, s) = pair()?;
        // Bytes by TCP, in one direction: cold connections that have been looked at.
        sys::send_all(c.raw(), b"cold").map_err(|e| format!("send: {e}"))?;
        sys::recv_all(s.raw(), 4).map_err(|e| format!("recv: {e}"))?;
        all.push((c, s));
    }
    let cold = memory.taken();
    let used = use_all(&memory, &all, "at first")?;
    sys::sleep_ms(1500);
    let kept = memory.taken() - cold;
    let begin = Instant::now();
    let idle = gone(&memory, cold, WHILE * st::guest::slow() as u32)?;
    let after = begin.elapsed().as_millis() + 1500;
    let again = use_all(&memory, &all, "again")?;
    std::fs::write("/proc/sys/vm/drop_caches", "2").map_err(|e| format!("drop_caches: {e}"))?;
    // Before the worker has come round.
    let short = gone(&memory, cold, Duration::from_millis(1500))?;
    let last = use_all(&memory, &all, "at last")?;
    if kept < RINGS / 2 {
        return Err(format!("after 1.5 s only {kept} KiB were left: too early"));
    }
    Ok(format!(
        "KiB more than {MANY} cold connections: used {used}, idle {idle} after {after} ms, used {again}, \
         drop_caches {short}, used {last}"
    ))
}
