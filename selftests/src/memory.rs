// SPDX-License-Identifier: GPL-2.0
//! Memory that the kernel has taken for this process.

use crate::cgroup::Hierarchy;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's memory that is charged to a control group of the calling process alone: sockets, the rings of local
/// paths, and what else its calls allocate. What other processes do does not show, as it would in `/proc/meminfo`.
/// The process is in the group as long as this lives. The file stays open, since KASAN keeps for a while what opening and
/// closing it frees.
pub struct Memory {
    stat: File,
    group: Hierarchy,
}

impl Memory {
    /// Moves the calling process into a group of its own.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn open() -> Result<Memory, String> {
        let group = Hierarchy::new()?;
        let stat = group.count_memory().and_then(|()| group.enter());
        let stat = stat.and_then(|()| File::open(group.inside().join("memory.stat")));
        let stat = stat.map_err(|e| format!("memory of a control group: {e}"))?;
        Ok(Memory { stat, group })
    }

    /// Returns it in KiB. What was charged or given back a moment ago may be missing: up to 256 KiB on each processor,
    /// for two seconds.
    pub fn taken(&self) -> i64 {
        let mut all = [0; 8192];
        let length = self.stat.read_at(&mut all, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(all.get(..length).unwrap_or_default());
        let bytes = text.lines().find_map(|l| l.strip_prefix("kernel "));
        let bytes: Option<i64> = bytes.and_then(|b| b.parse().ok());
        bytes.expect("kernel in memory.stat") / 1024
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.group.leave();
    }
}
