// SPDX-License-Identifier: GPL-2.0

//! The cache: everything built or downloaded, outside the checkout.
//!
//! An entry is a directory `<kind>/<name>-<key>`, the key being a hash of all
//! that went into it. It is valid once it holds the file `.complete`, written
//! last. Entries are made in place rather than renamed because kernel build
//! directories hold their own absolute path; an interrupted one is wiped or, if
//! its recipe can continue, resumed. A lock file per entry keeps two runs apart.

use crate::{progress, space};
use anyhow::{Context, Result};
use rustix::fs::{flock, FlockOperation};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

const COMPLETE: &str = ".complete";

/// The checkout this tool belongs to (set by `tools/bootstrap`).
pub fn top() -> PathBuf {
    match std::env::var_os("RSMC_TOP") {
        Some(top) => top.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    }
}

/// The cache directory: `RSMC_CACHE`, else `XDG_CACHE_HOME/rsmc`, else
/// `~/.cache/rsmc`.
pub fn root() -> PathBuf {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = var("RSMC_CACHE") {
        return dir.into();
    }
    if let Some(dir) = var("XDG_CACHE_HOME") {
        return Path::new(&dir).join("rsmc");
    }
    Path::new(&var("HOME").unwrap_or_else(|| "/root".into())).join(".cache/rsmc")
}

/// Work files of this checkout (module builds, test results): in the cache,
/// not keyed by content, kept for incremental builds (set by `tools/bootstrap`).
pub fn work() -> PathBuf {
    match std::env::var_os("RSMC_WORK") {
        Some(dir) => dir.into(),
        None => root().join("work/default"),
    }
}

/// Hash of everything an entry is made from.
#[derive(Clone)]
pub struct Key(Sha256);

impl Key {
    /// An empty key.
    pub fn new() -> Self {
        Key(Sha256::new())
    }

    /// Adds one named input.
    pub fn add(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.0.update((name.len() as u64).to_le_bytes());
        self.0.update(name);
        self.0.update((value.len() as u64).to_le_bytes());
        self.0.update(value);
        self
    }

    /// The first 16 hexadecimal digits.
    pub fn short(&self) -> String {
        let digest = format!("{:x}", self.0.clone().finalize());
        digest.chars().take(16).collect()
    }
}

/// Treatment of an interrupted entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// It is wiped and made again.
    Clean,
    /// Its recipe continues where it stopped.
    Resume,
}

/// Returns the entry's directory, running `make` on it first if it is not complete.
pub fn entry(
    kind: &str,
    name: &str,
    key: &Key,
    restart: Restart,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let dir = place(kind, name, key);
    let done = dir.join(COMPLETE);
    if !done.exists() {
        let _lock = lock(&format!("{kind}-{name}-{}", key.short()))?;
        if !done.exists() {
            if restart == Restart::Clean {
                remove(&dir)?;
            }
            fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
            space::check()?;
            make(&dir)?;
            File::create(&done).with_context(|| done.display().to_string())?;
        }
    }
    // The marker's time is that of the last use: what `gc` looks at.
    if let Ok(file) = File::options().write(true).open(&done) {
        file.set_modified(SystemTime::now()).ok();
    }
    Ok(dir)
}

/// The directory of an entry.
fn place(kind: &str, name: &str, key: &Key) -> PathBuf {
    let name = format!("{name}-{}", key.short());
    root().join(kind).join(name)
}

/// Whether an entry is there and need not be made.
pub fn is_complete(kind: &str, name: &str, key: &Key) -> bool {
    place(kind, name, key).join(COMPLETE).exists()
}

/// An advisory lock of the cache, held until dropped.
pub struct Lock(#[allow(dead_code, reason = "held for its drop")] File);

/// Takes the named lock, waiting (and saying so) while another run holds it.
pub fn lock(name: &str) -> Result<Lock> {
    let dir = root().join("lock");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    lock_file(&dir.join(name))
}

/// Takes a lock on a given file, creating it if needed.
pub fn lock_file(path: &Path) -> Result<Lock> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let what = path.file_name().unwrap_or_default().to_string_lossy();
        let watch = progress::Watch::new(&format!("waiting for another run ({what})"));
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            watch.tick("");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(Lock(file))
}

/// Removes a directory tree if it exists.
pub fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => remove_file(dir),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => remove_mapped(dir)
            .then_some(())
            .ok_or(error)
            .with_context(|| format!("removing {}", dir.display())),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Removes a tree with files of other ids: without root, those of a sysroot's
/// services, which are ours inside a user namespace only.
fn remove_mapped(dir: &Path) -> bool {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--map-auto"]);
    command
        .args(["rm", "-rf", "--one-file-system", "--"])
        .arg(dir);
    command.status().is_ok_and(|status| status.success())
}

/// Removes a file if it exists.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// One entry found in the cache.
pub struct Found {
    /// `<kind>/<name>-<key>`.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Time since its last use; `None` if it is incomplete.
    pub idle: Option<Duration>,
}

/// Lists the cache's entries.
pub fn list() -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for kind in ["sysroot", "packages", "source", "kernel", "root", "tool"] {
        let Ok(entries) = fs::read_dir(root().join(kind)) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let used = fs::metadata(path.join(COMPLETE)).and_then(|meta| meta.modified());
            found.push(Found {
                name: format!("{kind}/{}", entry.file_name().to_string_lossy()),
                idle: used.ok().map(|time| time.elapsed().unwrap_or_default()),
                path,
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The lock that whoever makes an entry holds; `tools/bootstrap` has one for all sysroots.
fn maker(name: &str) -> String {
    match name.split_once('/') {
        Some(("sysroot", _)) => "sysroot".to_owned(),
        _ => name.replace('/', "-"),
    }
}

/// Removes incomplete entries that nobody is making, and those unused for longer than `keep`.
pub fn gc(keep: Duration) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for found in list()? {
        if found.idle.is_some_and(|idle| idle <= keep) {
            continue;
        }
        fs::create_dir_all(root().join("lock"))?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root().join("lock").join(maker(&found.name)))?;
        // Nor what has been completed since it was listed.
        let stale = || found.idle.is_some() || !found.path.join(COMPLETE).exists();
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && stale() {
            remove(&found.path)?;
            removed.push(found.name);
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_made_is_known_by_its_makers_lock() {
        assert_eq!(maker("sysroot/trixie-0123.tmp"), "sysroot");
        assert_eq!(maker("kernel/uml-0123"), "kernel-uml-0123");
        let bootstrap = include_str!("../../bootstrap");
        assert!(bootstrap.contains("9>\"$cache/lock/sysroot\""));
    }
}
