// SPDX-License-Identifier: GPL-2.0

//! Room on the cache's disk. A log on a full disk does not say that it is full, so the disk is asked: before
//! something large is made, and when something has failed.

use crate::cache;
use anyhow::{bail, Result};
use std::io::ErrorKind;

/// MiB the largest single entry of the cache may take.
const ENTRY: u64 = 2048;

/// With fewer MiB than these a failure is for want of them.
const FULL: u64 = 64;

/// Advice against a full disk.
const ADVICE: &str =
    "the cache needs 15 GB (RSMC_CACHE moves it, 'tools/bootstrap cache gc' frees some)";

/// MiB that are free, if that can be told.
fn free() -> Option<u64> {
    // The cache may not be there yet.
    let root = cache::root();
    let there = root.ancestors().find(|path| path.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize) >> 20)
}

fn line(free: u64) -> String {
    let root = cache::root();
    format!(
        "the disk is full: {free} MB are free at {}; {ADVICE}",
        root.display()
    )
}

/// Fails if there is no room for one more entry.
pub fn check() -> Result<()> {
    judge(free())
}

fn judge(free: Option<u64>) -> Result<()> {
    match free {
        Some(free) if free < ENTRY => bail!("{}", line(free)),
        _ => Ok(()),
    }
}

/// The line that says so, if the disk is full now.
pub fn full() -> Option<String> {
    free().filter(|free| *free < FULL).map(line)
}

/// The line for an error that ends the tool.
pub fn explain(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let for_want_of_room = error.chain().any(|cause| {
        let kind = cause.downcast_ref().map(std::io::Error::kind);
        matches!(
            kind,
            Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        )
    });
    match full() {
        _ if text.contains("the disk is full") => text,
        Some(line) => format!("{line} ({text})"),
        None if for_want_of_room => format!("the disk is full: {text}; {ADVICE}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_full_disk_is_one_line() {
        let error = judge(Some(ENTRY - 1)).unwrap_err().to_string();
        assert!(
            error.starts_with("the disk is full: 2047 MB are free at "),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
        assert!(judge(Some(ENTRY)).is_ok());
        assert!(judge(None).is_ok());

        let io = std::io::Error::from(ErrorKind::StorageFull);
        let error = Err::<(), _>(io).context("some/file").unwrap_err();
        let said = explain(&error);
        assert!(said.starts_with("the disk is full: some/file: "), "{said}");
        assert_eq!(said.lines().count(), 1);
    }

    #[test]
    fn what_is_free_can_be_told() {
        assert!(free().is_some());
    }
}
