// SPDX-License-Identifier: GPL-2.0
//! Control groups of version 2: where they are mounted, and that of this process.

use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Identity of the kernel's first cgroup namespace (`PROC_CGROUP_INIT_INO`).
const INITIAL: &str = "cgroup:[4026531835]";

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The cgroup at the top of it.
    root: String,
    /// The directory.
    at: PathBuf,
}

impl Mount {
    /// Finds it.
    ///
    /// # Errors
    /// `NotThere` when none is mounted, or when this process is in a cgroup namespace of its own: rules name
    /// cgroups from the host's root, which it cannot see.
    pub fn find() -> Result<Self> {
        host_root()?;
        let text = fs::read_to_string("/proc/self/mountinfo")?;
        mounted(&text).ok_or_else(|| {
            Error::NotThere("no cgroups of version 2 are mounted here (/sys/fs/cgroup)".into())
        })
    }

    /// The directory of a cgroup; `None` if that is not below the mount.
    pub fn directory(&self, cgroup: &str) -> Option<PathBuf> {
        let below = match self.root.as_str() {
            "/" => cgroup,
            root => cgroup.strip_prefix(root)?,
        };
        match below.is_empty() || below.starts_with('/') {
            true => Some(self.at.join(below.trim_start_matches('/'))),
            false => None,
        }
    }
}

/// Checks that this process sees cgroups from the host's root.
///
/// # Errors
/// `NotThere` if it does not.
pub fn host_root() -> Result<()> {
    let own = fs::read_link("/proc/self/ns/cgroup");
    match own.is_ok_and(|own| own != Path::new(INITIAL)) {
        false => Ok(()),
        true => Err(Error::NotThere(
            "this is a container with cgroups of its own, and rules name cgroups as the host sees them: \
             do it on the host"
                .into(),
        )),
    }
}

/// The cgroup of this process.
///
/// # Errors
/// `NotThere` without cgroups of version 2.
pub fn own() -> Result<String> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(String::from)
        .ok_or_else(|| Error::NotThere("this kernel has no cgroups of version 2".into()))
}

/// The mount of version 2 in a text like `/proc/self/mountinfo`; the last one hides those before it.
fn mounted(text: &str) -> Option<Mount> {
    let mut found = None;
    for line in text.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let mut fields = left.split(' ').skip(3);
        if let (Some("cgroup2"), Some(root), Some(at)) =
            (right.split(' ').next(), fields.next(), fields.next())
        {
            found = Some(Mount {
                root: plain(root),
                at: plain(at).into(),
            });
        }
    }
    found
}

/// A path without the escapes of spaces and the like.
fn plain(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_string(), |text, (from, to)| text.replace(from, to))
}

/// Whether a process is in the cgroup of this directory, or in one below it; `None` if there is no such cgroup.
pub fn populated(directory: &Path) -> Option<bool> {
    let text = fs::read_to_string(directory.join("cgroup.events")).ok()?;
    Some(text.lines().any(|line| line == "populated 1"))
}

/// Removes a cgroup and those in it, which have no processes.
///
/// # Errors
/// The kernel's.
pub fn remove(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let text = "1 0 0:1 / / rw - ext4 /dev/a rw\n\
                    20 1 0:38 / /sys/fs/a\\040b rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        let mount = mounted(text).unwrap();
        assert_eq!(mount.directory("/").unwrap(), Path::new("/sys/fs/a b"));
        assert_eq!(
            mount.directory("/x/y").unwrap(),
            Path::new("/sys/fs/a b/x/y")
        );
        let bound = mounted("20 1 0:38 /x /mnt rw - cgroup2 cgroup2 rw\n").unwrap();
        assert_eq!(bound.directory("/x").unwrap(), Path::new("/mnt"));
        assert_eq!(bound.directory("/x/y").unwrap(), Path::new("/mnt/y"));
        assert_eq!(bound.directory("/xy"), None);
        assert_eq!(mounted("1 0 0:1 / / rw - cgroup cgroup rw\n"), None);
    }

    #[test]
    fn who_is_in_a_cgroup() {
        let at = std::env::temp_dir().join(format!("rsmc-cgroup-{}", std::process::id()));
        fs::create_dir_all(&at).unwrap();
        assert_eq!(populated(&at), None);
        fs::write(at.join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert_eq!(populated(&at), Some(false));
        fs::write(at.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert_eq!(populated(&at), Some(true));
        fs::remove_dir_all(&at).unwrap();
    }
}
