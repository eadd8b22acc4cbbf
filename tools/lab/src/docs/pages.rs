// SPDX-License-Identifier: GPL-2.0

//! What is asked of single pages: commands that a test runs, and one version everywhere.

use super::markdown;
use crate::cache;
use crate::check;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pages whose commands `selftests/tools/walk.py` runs.
const WALKED: [&str; 3] = [
    "Documentation/quickstart.md",
    "Documentation/operator.md",
    "Documentation/monitoring.md",
];
/// Hosts that a block may be for.
const HOSTS: [&str; 3] = ["server", "client", "both"];

/// Complaints about lines of prose of more than 100 characters: not code, tables, or links.
pub fn wide() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in check::files()? {
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let mut code = false;
        for (number, line) in check::read(&path)?.lines().enumerate() {
            let text = line.trim_start();
            if text.starts_with("```") {
                code = !code;
            }
            let whole = code
                || line.starts_with("    ")
                || text.starts_with('|')
                || line.contains('`')
                || line.contains("](");
            if !whole && line.chars().count() > 100 {
                let place = format!("{}:{}", path.display(), number + 1);
                found.push(format!("{place}: more than 100 characters"));
            }
        }
    }
    Ok(found)
}

/// Complaints about blocks of code in those pages that neither are run nor say why not.
pub fn unmarked() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in WALKED {
        let page = markdown::read(&check::read(Path::new(name))?);
        for line in page.indented {
            found.push(format!(
                "{name}:{line}: code without a fence: it does not say whether a test runs it"
            ));
        }
        let mut run = 0;
        for block in page.blocks {
            match kind(&block.info) {
                Some(true) => run += 1,
                Some(false) => {}
                None => found.push(format!(
                    "{name}:{}: commands must be for server, client or both, or say after `untested:` why no \
                     test runs them",
                    block.line
                )),
            }
        }
        if run == 0 {
            found.push(format!("{name}: no command of it is run"));
        }
    }
    Ok(found)
}

/// Tells of the words behind a fence whether its block is run; `None` if they must not stand there.
fn kind(info: &str) -> Option<bool> {
    let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
    match language {
        "sh" if HOSTS.contains(&rest) => Some(true),
        "sh" => {
            let reason = rest.strip_prefix("untested: ")?;
            (!reason.trim().is_empty()).then_some(false)
        }
        "" | "console" | "bash" => None,
        _ => Some(false),
    }
}

/// Complaints of the host's `mandoc` or `groff` about the manual pages written by hand; none where it has neither.
pub fn manuals() -> Result<Vec<String>> {
    let is_page = |path: &PathBuf| path.starts_with("tools/rsmc/man");
    let mut found = Vec::new();
    for path in check::files()?.into_iter().filter(is_page) {
        let judges: [&[&str]; 2] = [
            &["mandoc", "-T", "lint", "-W", "warning"],
            &["groff", "-man", "-Tutf8", "-ww", "-z"],
        ];
        let spoken = judges.iter().find_map(|words| {
            let mut command = Command::new(words.first()?);
            command.args(words.iter().skip(1)).arg(&path);
            command.current_dir(cache::top()).output().ok()
        });
        let Some(out) = spoken else {
            continue;
        };
        for text in [out.stdout, out.stderr] {
            found.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
        }
    }
    Ok(found)
}

/// Complaints of the host's `promtool` about the alert rules and their tests; none where there is no such program.
pub fn alerts() -> Vec<String> {
    let mut command = Command::new("promtool");
    command.args(["test", "rules", "tools/monitoring/alerts_test.yml"]);
    match command.current_dir(cache::top()).output() {
        Ok(out) if !out.status.success() => {
            let text = [out.stdout, out.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.lines().map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Complaints about versions that differ between crates and change log.
pub fn versions() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut seen: Vec<(&str, String)> = Vec::new();
    for name in [
        "tools/Cargo.toml",
        "tools/rsmc/Cargo.toml",
        "tools/preload/Cargo.toml",
    ] {
        let text = check::read(Path::new(name))?;
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("version = "));
        match version {
            Some(version) => seen.push((name, version.trim_matches('"').to_owned())),
            None => found.push(format!("{name}: no version")),
        }
    }
    let log = check::read(Path::new("CHANGELOG.md"))?;
    match log.lines().find_map(|line| line.strip_prefix("## ")) {
        Some(head) => {
            let version = head.split(' ').next().unwrap_or_default();
            seen.push(("CHANGELOG.md", version.to_owned()));
        }
        None => found.push("CHANGELOG.md: no version".into()),
    }
    if let Some((first, rest)) = seen.split_first() {
        let differ = rest.iter().filter(|one| one.1 != first.1);
        found.extend(
            differ
                .map(|(name, version)| format!("{name} is {version}, {} is {}", first.0, first.1)),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn fences() {
        assert_eq!(kind("sh server"), Some(true));
        assert_eq!(kind("sh untested: needs a card"), Some(false));
        assert_eq!(kind("text"), Some(false));
        for bad in ["sh", "sh untested: ", "sh untested", "sh peer", "", "bash"] {
            assert_eq!(kind(bad), None, "{bad}");
        }
    }
}
