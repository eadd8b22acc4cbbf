// SPDX-License-Identifier: GPL-2.0
//! What sysctl.d(5) gives the settings below `net.smc`. At boot systemd-sysctl(8) runs before the module
//! is loaded and passes over them, so whatever loads the module puts them in place.

use crate::visible::complain;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The settings of this network namespace.
const LIVE: &str = "/proc/sys/net/smc";
/// Directories of files, those that count most first.
const DIRECTORIES: [&str; 5] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
];

/// A value that a file gives a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name below `net.smc`.
    pub name: String,
    /// The value.
    pub value: String,
    /// The file.
    pub file: PathBuf,
    /// It may fail: the line begins with `-`.
    pub optional: bool,
}

/// All that the files below `root` say, as sysctl(8) `--system` reads them: of several lines about a name
/// the last one counts. Patterns (`net.smc.*`) are passed over.
pub fn configured(root: &Path) -> Vec<Setting> {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let mut by_name: BTreeMap<OsString, PathBuf> = BTreeMap::new();
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
    let mut found: BTreeMap<String, Setting> = BTreeMap::new();
    for file in by_name.into_values().chain([at("/etc/sysctl.conf")]) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (name, value, optional) in text.lines().filter_map(assigned) {
            let (name, value, file) = (name.to_string(), value.to_string(), file.clone());
            let setting = Setting {
                name,
                value,
                file,
                optional,
            };
            found.insert(setting.name.clone(), setting);
        }
    }
    found.into_values().collect()
}

/// Name and value in a line of such a file, and whether it may fail.
fn assigned(line: &str) -> Option<(&str, &str, bool)> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let (key, optional) = match key.strip_prefix('-') {
        Some(key) => (key.trim(), true),
        None => (key, false),
    };
    let name = ["net.smc.", "net/smc/"]
        .iter()
        .find_map(|prefix| key.strip_prefix(prefix))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(plain)).then_some((name, value.trim(), optional))
}

/// Gives all settings but `tcp2smc` their configured values, and says which cannot have them; returns
/// whether all have them. `tcp2smc` comes last of all, with the rules: see [`crate::up`].
pub fn apply() -> bool {
    let mut fine = true;
    for setting in configured(Path::new("/")) {
        let Setting {
            name,
            value,
            file,
            optional,
        } = &setting;
        if name == "tcp2smc" {
            continue;
        }
        match put(Path::new(LIVE), name, value) {
            Err(error) if !optional => {
                fine = false;
                let what = format!("{}: net.smc.{name} = {value}: {error}", file.display());
                complain("rsmc: warning", &what);
            }
            _ => {}
        }
    }
    fine
}

/// Writes a value unless it is there.
fn put(directory: &Path, name: &str, value: &str) -> io::Result<()> {
    let path = directory.join(name);
    let words = |text: &str| {
        text.split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    if words(&fs::read_to_string(&path)?) == words(value) {
        return Ok(());
    }
    fs::write(&path, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for (line, found) in [
            ("net.smc.tcp2smc=1", Some(("tcp2smc", "1", false))),
            (" - net/smc/tcp2smc = 2 ", Some(("tcp2smc", "2", true))),
            ("-net.smc.strict = 3", Some(("strict", "3", true))),
            ("# net.smc.tcp2smc = 3", None),
            (";net.smc.tcp2smc = 3", None),
            ("net.smc.tcp2smc", None),
            ("net.smc.* = 1", None),
            ("net/smc/../core/somaxconn = 1", None),
            ("net.core.somaxconn = 1", None),
            ("net.smc. = 1", None),
        ] {
            assert_eq!(assigned(line), found, "{line}");
        }
    }

    #[test]
    fn the_last_file_counts_and_a_name_counts_once() {
        let root = std::env::temp_dir().join(format!("rsmc-settings-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let all = || -> Vec<String> {
            let one = |setting: Setting| format!("{}={}", setting.name, setting.value);
            configured(&root).into_iter().map(one).collect()
        };
        assert!(all().is_empty());
        write(
            "usr/lib/sysctl.d/90-site.conf",
            "net.smc.tcp2smc=1\nnet.smc.strict=1\n",
        );
        write(
            "usr/lib/sysctl.d/10-site.conf",
            "net.smc.path_local=0\nnet.smc.strict=0\n",
        );
        assert_eq!(all(), ["path_local=0", "strict=1", "tcp2smc=1"]);
        write("etc/sysctl.d/90-site.conf", "net.smc.wmem=16384\n");
        assert_eq!(all(), ["path_local=0", "strict=0", "wmem=16384"]);
        write("etc/sysctl.conf", "net.smc.wmem=1\nnet.smc.wmem=2\n");
        assert_eq!(all(), ["path_local=0", "strict=0", "wmem=2"]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_is_there_is_not_written() {
        let directory = std::env::temp_dir().join(format!("rsmc-put-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("strict"), "0\n").unwrap();
        put(&directory, "strict", "1").unwrap();
        assert_eq!(fs::read_to_string(directory.join("strict")).unwrap(), "1");
        fs::write(directory.join("strict"), "1 \n").unwrap();
        put(&directory, "strict", "1").unwrap();
        assert_eq!(
            fs::read_to_string(directory.join("strict")).unwrap(),
            "1 \n"
        );
        // A setting that this module does not have is an error, not a file.
        assert!(put(&directory, "other", "1").is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
