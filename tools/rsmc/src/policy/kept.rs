// SPDX-License-Identifier: GPL-2.0
//! The rules that are kept in files: `/etc/rsmc/policy.conf`, and behind them those of
//! `/etc/rsmc/policy.d/*.conf` by name.

use super::rule::{self, Rule};
use crate::cli::POLICY_FILE;
use crate::error::{Error, Result};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory.
pub const DIRECTORY: &str = "/etc/rsmc/policy.d";

/// The rules of one file.
///
/// # Errors
/// Errors of reading it, `Usage` for a rule that is none.
pub fn file(path: &Path) -> Result<Vec<Rule>> {
    let text = fs::read_to_string(path).map_err(|error| Error::at(path, error))?;
    rule::from_file(&path.display().to_string(), &text)
}

/// The files of the directory below `root` in their order.
///
/// # Errors
/// Errors of reading the directory.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let at = root.join(DIRECTORY.trim_start_matches('/'));
    let mut found = Vec::new();
    match fs::read_dir(&at) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => {
            for entry in entries.map_err(|error| Error::at(&at, error))? {
                found.push(entry.map_err(|error| Error::at(&at, error))?.path());
            }
        }
    }
    let hidden = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    found.retain(|path| path.extension().is_some_and(|kind| kind == "conf") && !hidden(path));
    found.sort();
    Ok(found)
}

/// The rules of the directory alone.
///
/// # Errors
/// As [`file()`].
pub fn of_directory(root: &Path) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for path in files(root)? {
        rules.extend(file(&path)?);
    }
    Ok(rules)
}

/// All rules, none twice: the second would never match. `None` without any file.
///
/// # Errors
/// As [`file()`].
pub fn all(root: &Path) -> Result<Option<Vec<Rule>>> {
    let main = root.join(POLICY_FILE.trim_start_matches('/'));
    let main = match main.exists() {
        true => Some(file(&main)?),
        false => None,
    };
    let more = of_directory(root)?;
    if main.is_none() && more.is_empty() {
        return Ok(None);
    }
    let mut rules: Vec<Rule> = Vec::new();
    for rule in main.into_iter().flatten().chain(more) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    Ok(Some(rules))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rule::{conditions, verdict_text};

    #[test]
    fn the_file_then_the_directory_each_rule_once() {
        let root = std::env::temp_dir().join(format!("rsmc-kept-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        assert_eq!(all(&root).unwrap(), None);
        let directory = root.join("etc/rsmc/policy.d");
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(all(&root).unwrap(), None);
        fs::write(
            root.join("etc/rsmc/policy.conf"),
            "deny port=1\nallow exe=/x\n",
        )
        .unwrap();
        fs::write(directory.join("b.conf"), "allow exe=/b\n").unwrap();
        fs::write(directory.join("a.conf"), "allow exe=/a\nallow exe=/x\n").unwrap();
        for other in [".b.conf.rsmc-old", ".c.conf", "readme"] {
            fs::write(directory.join(other), "nonsense\n").unwrap();
        }
        let rules = all(&root).unwrap().unwrap();
        let lines: Vec<String> = rules
            .iter()
            .map(|rule| format!("{} {}", verdict_text(rule.verdict), conditions(rule)))
            .collect();
        assert_eq!(
            lines,
            [
                "deny port=1",
                "allow exe=/x",
                "allow exe=/a",
                "allow exe=/b"
            ]
        );
        fs::write(directory.join("c.conf"), "\nnonsense\n").unwrap();
        let error = all(&root).unwrap_err().to_string();
        assert!(error.contains("c.conf:2:"), "{error}");
        fs::remove_dir_all(root).unwrap();
    }
}
