// SPDX-License-Identifier: GPL-2.0
//! Allocations that fail in the kernel's workers, where handshakes run: the counterpart of
//! `fault/sockets.sh`, whose failures only reach what runs in the calling task.

use std::fs;

const DEBUG: &str = "/sys/kernel/debug";
const KINDS: [&str; 2] = ["failslab", "fail_page_alloc"];

/// More failures than there are to come.
const ENOUGH: u32 = 1_000_000;

fn set(kind: &str, what: &str, value: &str) -> Result<(), String> {
    let file = format!("{DEBUG}/{kind}/{what}");
    fs::write(&file, value).map_err(|e| format!("{file}: {e}"))
}

/// Lets allocations fail that may sleep, too, of any size, but not those for user space.
///
/// # Errors
///
/// This kernel cannot inject failures.
pub fn prepare() -> Result<(), String> {
    let _ = set("failslab", "cache-filter", "N");
    set("fail_page_alloc", "min-order", "0")?;
    for kind in KINDS {
        for (what, value) in [
            ("ignore-gfp-wait", "N"),
            ("task-filter", "Y"),
            ("probability", "0"),
            ("interval", "1"),
            ("verbose", "0"),
        ] {
            set(kind, what, value)?;
        }
    }
    Ok(())
}

/// The workers that serve unbound queues, such as ours.
fn workers() -> Vec<String> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names
        .map(|entry| entry.path().display().to_string())
        .filter(|path| {
            fs::read_to_string(format!("{path}/comm")).is_ok_and(|c| c.starts_with("kworker/u"))
        })
        .collect()
}

/// Failures that have been asked for.
pub struct Armed {
    workers: Vec<String>,
    always: bool,
}

/// From now on the `nth` allocation of each worker fails, or with `always` all of them.
pub fn arm(nth: u32, always: bool) -> Result<Armed, String> {
    let (file, value) = if always {
        for kind in KINDS {
            set(kind, "times", &ENOUGH.to_string())?;
            set(kind, "probability", "100")?;
        }
        ("make-it-fail", 1)
    } else {
        ("fail-nth", nth)
    };
    let mut workers = workers();
    // Some may have ended meanwhile.
    workers.retain(|worker| fs::write(format!("{worker}/{file}"), value.to_string()).is_ok());
    if workers.is_empty() {
        return Err(format!("no worker has {file}"));
    }
    Ok(Armed { workers, always })
}

impl Armed {
    /// Ends it; how many allocations have failed.
    pub fn disarm(self) -> Result<u32, String> {
        let read = |file: String| fs::read_to_string(file).unwrap_or_default();
        let mut hits = 0;
        if self.always {
            for kind in KINDS {
                set(kind, "probability", "0")?;
                let left = read(format!("{DEBUG}/{kind}/times"));
                hits += ENOUGH - left.trim().parse().unwrap_or(ENOUGH);
            }
        }
        for worker in &self.workers {
            if self.always {
                let _ = fs::write(format!("{worker}/make-it-fail"), "0");
            } else {
                hits += u32::from(read(format!("{worker}/fail-nth")).trim() == "0");
                let _ = fs::write(format!("{worker}/fail-nth"), "0");
            }
        }
        Ok(hits)
    }
}
