// SPDX-License-Identifier: GPL-2.0

//! `lab bench --profile`: in which functions the instructions are executed.
//!
//! A QEMU plugin of ours (`tools/profile`) counts them exactly, between marks
//! that the measuring program sets; the guest tells the names of its symbols.

use super::columns::Column;
use super::{boot, exit_status, measure, Arguments};
use crate::guest::cluster::Stream;
use crate::run::user;
use crate::{cache, progress};
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Kernel symbols: address, name.
type Symbols = BTreeMap<u64, String>;

/// Builds the plugin for the host's QEMU.
fn plugin() -> Result<PathBuf> {
    let version = Command::new("qemu-system-x86_64")
        .arg("--version")
        .output()?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let major = version
        .split_ascii_whitespace()
        .nth(3)
        .and_then(|v| v.split('.').next()?.parse::<u32>().ok())
        .context("qemu-system-x86_64 --version: no version")?;
    // Debian's releases have 7.2, 10.0 and later ones.
    let api = if major >= 10 { "4" } else { "1" };
    let mut command = user::cargo("tools", "build")?.context("no tools in the checkout")?;
    command
        .args(["--release", "--package", "profile"])
        .env("QEMU_PLUGIN_API", api);
    let log = cache::work().join("profile.log");
    fs::write(&log, "")?;
    progress::run("profile: building QEMU's plugin", &mut command, &log)?;
    Ok(user::target("tools").join("release/libprofile.so"))
}

/// Reads a line of `/proc/kallsyms`: `ADDRESS KIND NAME [MODULE]`.
fn symbol(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_ascii_whitespace();
    let at = u64::from_str_radix(words.next()?, 16).ok()?;
    if !words.next()?.eq_ignore_ascii_case("t") {
        return None;
    }
    let name = words.next()?;
    let module = words.next().unwrap_or_default();
    let name = format!("{:#}", rustc_demangle::demangle(name));
    Some((at, format!("{name} {module}")))
}

/// Adds up the plugin's lines `ADDRESS INSTRUCTIONS` by function.
fn by_function(counted: &str, symbols: &Symbols) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in counted.lines() {
        let mut words = line
            .split(' ')
            .map(|word| u64::from_str_radix(word, 16).unwrap_or(0));
        let (at, n) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        let name = if at >> 47 == 0 {
            "(programs)".to_owned()
        } else {
            let below = symbols.range(..=at).next_back();
            below.map_or("(unknown)".to_owned(), |(_, name)| name.clone())
        };
        *found.entry(name).or_default() += n;
    }
    found
}

fn render(found: &BTreeMap<String, u64>, ops: u64, lines: usize) -> String {
    let total: u64 = found.values().sum();
    let mut rows: Vec<(&String, &u64)> = found.iter().collect();
    rows.sort_by_key(|(name, n)| (std::cmp::Reverse(**n), *name));
    let per = |n: u64| n as f64 / ops.max(1) as f64;
    let mut text = format!("{:>12} {:>6}  function\n", "instructions", "share");
    for (name, n) in rows.iter().take(lines) {
        let share = **n as f64 * 100.0 / total.max(1) as f64;
        text.push_str(&format!("{:>12.1} {share:>5.2}%  {name}\n", per(**n)));
    }
    text.push_str(&format!(
        "{:>12.1}         all of them, for each operation\n",
        per(total)
    ));
    text
}

/// Runs it.
pub fn main(arguments: &Arguments, metric: &str, columns: &[&Column]) -> Result<ExitCode> {
    let column = columns
        .iter()
        .filter(|c| !c.is_verbs())
        .find(|c| c.name.eq_ignore_ascii_case(&arguments.column))
        .with_context(|| {
            let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
            format!(
                "no column {}; there are: {}",
                arguments.column,
                names.join(", ")
            )
        })?;
    let out = cache::work().join(format!("profile-{}", std::process::id()));
    let argument = format!("{},out={}", plugin()?.display(), out.display());
    let mut ready = boot(arguments, column.module, Some(argument.into()))?;
    let mut ops = 0;
    measure(
        &mut ready,
        arguments,
        &column.bench(),
        &["--only", metric, "--mark"],
        &mut |line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if let ["#", "profile", "of", n, ..] = words[..] {
                ops = n.parse().unwrap_or(0);
            }
        },
    )?;
    let mut symbols = Symbols::new();
    let outcomes = ready.collect(
        vec!["cat".into(), "/proc/kallsyms".into()],
        Duration::from_secs(120),
        &mut |stream, line| {
            if let (Stream::Out, Some((at, name))) = (stream, symbol(line)) {
                symbols.insert(at, name);
            }
        },
    )?;
    if exit_status(&outcomes) != 0 || symbols.is_empty() {
        bail!("the guest did not tell its symbols");
    }
    ready.finish()?;
    if ops == 0 {
        bail!("no metric {metric} that can be profiled");
    }
    let counted = fs::read_to_string(&out).with_context(|| out.display().to_string())?;
    let _ = fs::remove_file(&out);
    print!(
        "{}",
        render(&by_function(&counted, &symbols), ops, arguments.lines)
    );
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let at = 0xffff_ffff_8100_0000;
        let line = "ffffffff81000000 T _stext";
        assert_eq!(symbol(line), Some((at, "_stext ".into())));
        let line = "ffffffff81000000 t _RNvMs_NtCs4fqI2P2rA04_3smc4connNtB4_7SmcConn4send\t[rsmc]";
        let name = "<smc::conn::SmcConn>::send [rsmc]";
        assert_eq!(symbol(line), Some((at, name.into())));
        assert_eq!(symbol("ffffffff81000000 D jiffies"), None);
    }

    #[test]
    fn functions() {
        let symbols = [
            (0xffff_8000_0000_0000, "a ".to_owned()),
            (0xffff_8000_0000_0100, "b ".to_owned()),
        ];
        let symbols = symbols.into_iter().collect();
        let text = "ffff800000000010 a\nffff800000000100 1\nffff800000000020 6\n400000 2\n";
        let found = by_function(text, &symbols);
        assert_eq!(found["a "], 16);
        assert_eq!(found["b "], 1);
        assert_eq!(found["(programs)"], 2);
        let text = render(&found, 2, 1);
        assert!(text.contains("8.0 84.21%  a"), "{text}");
        assert!(text.contains("9.5"), "{text}");
    }
}
