// SPDX-License-Identifier: GPL-2.0
//! Memory that the kernel has taken.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Memory of the kernel that it cannot reclaim by itself: its objects, and allocations of some pages like rings. The
/// file stays open, since KASAN keeps for a while what opening and closing it frees: some 20 KiB each time, which count.
pub struct Memory(File);

impl Memory {
    /// Opens the kernel's account.
    pub fn open() -> Result<Memory, String> {
        let file = File::open("/proc/meminfo").map_err(|e| format!("meminfo: {e}"))?;
        Ok(Memory(file))
    }

    /// Returns it in KiB.
    pub fn taken(&self) -> i64 {
        let mut all = [0; 4096];
        let length = self.0.read_at(&mut all, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(all.get(..length).unwrap_or_default());
        let line = text.lines().find_map(|l| l.strip_prefix("SUnreclaim:"));
        let word = line.and_then(|l| l.split_whitespace().next());
        word.and_then(|w| w.parse().ok())
            .expect("SUnreclaim in /proc/meminfo")
    }
}
