// SPDX-License-Identifier: GPL-2.0
//! `net.smc.tcp2smc`: its value now, and that which `/etc/sysctl.d` gives it at boot.

use super::files::{self, MARK};
use crate::error::{Error, Result};
use crate::module::TCP2SMC;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The file that `rsmc enable` makes.
pub const FILE: &str = "/etc/sysctl.d/50-rsmc.conf";
/// Value for the sockets that rules allow.
pub const RULES: i32 = 2;
/// Value for all sockets.
pub const ALL: i32 = 1;

/// Directories of settings, those that count most first.
const DIRECTORIES: [&str; 5] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
];

/// A value that a file gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The value.
    pub value: i32,
    /// The file.
    pub file: PathBuf,
}

impl Configured {
    /// True if `rsmc enable` made the file.
    pub fn is_ours(&self) -> bool {
        self.file.ends_with(FILE.trim_start_matches('/'))
            && matches!(files::look(&self.file), Ok(files::Found::Ours(_)))
    }
}

/// The value that the files below `root` give it, as sysctl(8) `--system` reads them.
pub fn configured(root: &Path) -> Option<Configured> {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let mut by_name: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for directory in DIRECTORIES {
        let entries = fs::read_dir(at(directory)).ok().into_iter().flatten();
        for entry in entries.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let hidden = name.to_string_lossy().starts_with('.');
            if !hidden && path.extension().is_some_and(|kind| kind == "conf") {
                by_name.entry(name).or_insert(path);
            }
        }
    }
    let last = at("/etc/sysctl.conf");
    let mut found = None;
    for file in by_name.into_values().chain([last]) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        if let Some(value) = text.lines().filter_map(assigned).next_back() {
            found = Some(Configured { value, file });
        }
    }
    found
}

/// The value in a line of such a file.
fn assigned(line: &str) -> Option<i32> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim().trim_start_matches('-').trim();
    if key.replace('/', ".") != "net.smc.tcp2smc" {
        return None;
    }
    value.trim().parse().ok()
}

/// The contents of [`FILE`].
pub fn contents(value: i32) -> String {
    format!("{MARK}\n-net.smc.tcp2smc = {value}\n")
}

/// Its value in this network namespace; `None` without the module.
pub fn live() -> Option<i32> {
    fs::read_to_string(TCP2SMC).ok()?.trim().parse().ok()
}

/// Gives it a value in this network namespace.
///
/// # Errors
/// The kernel's: it cannot convert sockets, for instance.
pub fn set(value: i32) -> Result<()> {
    use rustix::io::Errno;
    fs::write(TCP2SMC, value.to_string()).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::BUSY) => {
            Error::Io(std::io::Error::other(format!(
                "net.smc.tcp2smc cannot be {value}: {error}; the kernel's log says what is missing"
            )))
        }
        _ => Error::at(Path::new(TCP2SMC), error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for (line, value) in [
            ("net.smc.tcp2smc=1", Some(1)),
            (" - net/smc/tcp2smc = 2 ", Some(2)),
            ("-net.smc.tcp2smc = 3", Some(3)),
            ("# net.smc.tcp2smc = 3", None),
            (";net.smc.tcp2smc = 3", None),
            ("net.smc.tcp2smc = x", None),
            ("net.smc.wmem = 3", None),
            ("net.smc.tcp2smc", None),
        ] {
            assert_eq!(assigned(line), value, "{line}");
        }
        assert_eq!(
            contents(2).lines().filter_map(assigned).next_back(),
            Some(2)
        );
    }

    #[test]
    fn the_last_file_counts_and_a_name_counts_once() {
        let root = std::env::temp_dir().join(format!("rsmc-mode-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let value = || configured(&root).map(|found| (found.value, found.is_ours()));
        assert_eq!(value(), None);
        write("usr/lib/sysctl.d/90-site.conf", "net.smc.tcp2smc=1\n");
        assert_eq!(value(), Some((1, false)));
        write("etc/sysctl.d/90-site.conf", "net.smc.wmem=1\n");
        assert_eq!(value(), None);
        write("etc/sysctl.d/50-rsmc.conf", &contents(2));
        assert_eq!(value(), Some((2, true)));
        write("etc/sysctl.d/50-rsmc.conf", "net.smc.tcp2smc=2\n");
        assert_eq!(value(), Some((2, false)));
        write("etc/sysctl.conf", "net.smc.tcp2smc=3\nnet.smc.tcp2smc=0\n");
        assert_eq!(value(), Some((0, false)));
        fs::remove_dir_all(root).unwrap();
    }
}
