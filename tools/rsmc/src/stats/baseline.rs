// SPDX-License-Identifier: GPL-2.0
//! Where `rsmc stats reset` notes the counters: a file for each network namespace.
//!
//! The kernel's counters cannot be set back, by either module. The note lives as long as they do:
//! in a directory that a boot empties, with the boot's id in it, and it counts for nothing as soon as a
//! counter is below it (the module was loaded anew).

use super::tree::{is_amount, Flat};
use super::Statistics;
use crate::clock;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory of root, which all users read.
const COMMON: &str = "/run/rsmc";

/// Contents of the file, as JSON.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Note {
    boot: String,
    since: u64,
    counters: Flat,
}

/// Notes the counters, to count from them.
///
/// # Errors
/// Errors of writing, also for a user without a directory of his own.
pub fn save(statistics: &Statistics) -> Result<()> {
    let Some(directory) = own_directory() else {
        return Err(Error::Io(io::Error::other(
            "there is no place to note the counters: XDG_RUNTIME_DIR is not set",
        )));
    };
    fs::create_dir_all(&directory)?;
    let note = Note {
        boot: boot(),
        since: clock::now(),
        counters: statistics.flat(),
    };
    write(&directory.join(name()?), &note)
}

/// The statistics since they were reset, or as they are if they were not.
pub fn apply(statistics: Statistics) -> Statistics {
    let Ok(name) = name() else {
        return statistics;
    };
    let places = own_directory().into_iter().chain([PathBuf::from(COMMON)]);
    let note = places
        .filter_map(|directory| read(&directory.join(&name)))
        .find(|note| note.boot == boot());
    match note {
        Some(note) if is_before(&note.counters, &statistics.flat()) => {
            let since = note.since;
            let mut statistics = statistics.since(&note.counters);
            statistics.since = Some(since);
            statistics
        }
        _ => statistics,
    }
}

/// True if no counter went backwards.
fn is_before(noted: &Flat, current: &Flat) -> bool {
    // The bytes of a socket that is being closed may be missing.
    let varies = |path: &str| is_amount(path) || path.starts_with("fallback.tcp_");
    noted
        .iter()
        .all(|(path, noted)| varies(path) || *noted <= current.get(path).copied().unwrap_or(0))
}

fn own_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(COMMON));
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty())?;
    Some(Path::new(&runtime).join("rsmc"))
}

/// The file's name, by network namespace.
fn name() -> Result<String> {
    let namespace = fs::metadata("/proc/self/ns/net")?;
    Ok(format!("stats-{}.json", namespace.ino()))
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_string()
}

/// Whole or not at all.
fn write(path: &Path, note: &Note) -> Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, serde_json::to_vec(note)?)?;
    Ok(fs::rename(&temporary, path)?)
}

fn read(path: &Path) -> Option<Note> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn a_note_reads_back() {
        let directory = std::env::temp_dir().join(format!("rsmc-note-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("stats-1.json");
        assert!(read(&path).is_none());
        let note = Note {
            boot: boot(),
            since: 7,
            counters: sample().flat(),
        };
        write(&path, &note).unwrap();
        assert_eq!(read(&path), Some(note));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::write(&path, "{").unwrap();
        assert!(read(&path).is_none());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn counters_that_went_backwards_end_it() {
        let noted = sample().flat();
        let mut current = noted.clone();
        assert!(is_before(&noted, &current));
        current.insert("smc_r.tx_buffer_bytes".into(), 0);
        assert!(is_before(&noted, &current));
        current.insert("smc_r.tx_bytes".into(), 1);
        assert!(!is_before(&noted, &current));
        current.remove("smc_r.tx_bytes");
        assert!(!is_before(&noted, &current));
    }
}
