// SPDX-License-Identifier: GPL-2.0

//! `lab bench --profile`: in which functions the instructions are executed.
//!
//! A QEMU plugin of ours (`tools/profile`) counts them exactly, between marks
//! that the measuring program sets; the guest tells the names of its symbols.

use super::columns::{Column, Set};
use super::{boot, exit_status, measure, owners, Arguments};
use crate::guest::cluster::Stream;
use crate::run::boot::Ready;
use crate::run::user;
use crate::{cache, progress};
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Kernel symbols: address, name with its module.
type Symbols = BTreeMap<u64, String>;

/// Instructions of a function, by whom they are executed for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Spent {
    pub own: i64,
    pub wire: i64,
}

impl Spent {
    /// All of them.
    pub fn all(self) -> i64 {
        self.own.saturating_add(self.wire)
    }
}

/// By name and module of the function.
pub type Functions = BTreeMap<String, Spent>;

/// Name for the instructions of no kernel: the programs'.
pub const PROGRAMS: &str = "(programs)";

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

/// Adds the plugin's lines `ADDRESS OWN WIRE` to what functions have spent, or takes them away.
fn add(found: &mut Functions, counted: &str, symbols: &Symbols, sign: i64) {
    for line in counted.lines() {
        let mut words = line.split(' ').map(|word| {
            i64::from_str_radix(word, 16)
                .unwrap_or(0)
                .wrapping_mul(sign)
        });
        let at = line.split(' ').next().unwrap_or_default();
        let at = u64::from_str_radix(at, 16).unwrap_or(0);
        let (_, own, wire) = (words.next(), words.next(), words.next());
        let name = if at >> 47 == 0 {
            PROGRAMS
        } else {
            let below = symbols.range(..=at).next_back();
            below.map_or("(unknown)", |(_, name)| name.as_str())
        };
        let spent = found.entry(name.to_owned()).or_default();
        spent.own = spent.own.saturating_add(own.unwrap_or(0));
        spent.wire = spent.wire.saturating_add(wire.unwrap_or(0));
    }
}

/// Result of a measurement.
pub struct Measured {
    /// What functions have spent.
    pub functions: Functions,
    /// In this number of operations.
    pub ops: u64,
    /// The figure that the program itself has found, by the guest's clock.
    pub shown: Option<f64>,
    /// The delay that it has found, in nanoseconds.
    pub delay: Option<f64>,
}

/// A guest whose instructions are counted.
pub struct Profiler {
    ready: Ready,
    /// Where the plugin writes, but for the number of the part.
    out: PathBuf,
    /// Which functions change the owner.
    roles: PathBuf,
    parts: u32,
    symbols: Symbols,
}

impl Profiler {
    /// Boots one with a column's module.
    pub fn boot(arguments: &Arguments, column: &Column) -> Result<Profiler> {
        let file = |what: &str| cache::work().join(format!("{what}-{}", std::process::id()));
        let (out, roles) = (file("profile"), file("roles"));
        let argument = format!(
            "{},out={},roles={}",
            plugin()?.display(),
            out.display(),
            roles.display()
        );
        let mut with_link = arguments.clone();
        with_link.which.port = column.is_over_port();
        let mut ready = boot(&with_link, column.module, Some(argument.into()))?;
        let role = match arguments.set() {
            Set::Card => owners::role_over_card,
            _ => owners::role,
        };
        let mut symbols = Symbols::new();
        let mut text = String::new();
        let outcomes = ready.collect(
            vec!["cat".into(), "/proc/kallsyms".into()],
            Duration::from_secs(600),
            &mut |stream, line| {
                if let (Stream::Out, Some((at, name))) = (stream, symbol(line)) {
                    if let Some(role) = role(&name) {
                        text.push_str(&format!("{at:x} {role}\n"));
                    }
                    symbols.insert(at, name);
                }
            },
        )?;
        if exit_status(&outcomes) != 0 || symbols.is_empty() {
            bail!("the guest did not tell its symbols");
        }
        fs::write(&roles, text).with_context(|| roles.display().to_string())?;
        Ok(Profiler {
            ready,
            out,
            roles,
            parts: 0,
            symbols,
        })
    }

    /// Measures one metric.
    pub fn measure(
        &mut self,
        arguments: &Arguments,
        column: &Column,
        metric: &str,
    ) -> Result<Measured> {
        let program = column.program_of(metric);
        let mut parts: Vec<(i64, u64)> = Vec::new();
        let (mut shown, mut delay) = (None, None);
        measure(
            &mut self.ready,
            arguments,
            &program,
            &["--only", metric, "--mark"],
            &mut |line| {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                if let ["#", "profile", sign @ ("of" | "less"), n, ..] = words[..] {
                    let sign = if sign == "of" { 1 } else { -1 };
                    parts.push((sign, n.parse().unwrap_or(0)));
                }
                if let ["bench", name, value, ..] = words[..] {
                    match name.strip_prefix(metric) {
                        Some("") => shown = value.parse().ok(),
                        Some("_delay") => delay = value.parse().ok(),
                        _ => (),
                    }
                }
            },
        )?;
        let mut found = Functions::new();
        let mut ops = 0i64;
        for (sign, n) in parts {
            let file = self.out.with_extension(self.parts.to_string());
            self.parts = self.parts.saturating_add(1);
            let counted = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let _ = fs::remove_file(&file);
            add(&mut found, &counted, &self.symbols, sign);
            let n = i64::try_from(n).unwrap_or(0);
            ops = ops.saturating_add(n.saturating_mul(sign));
        }
        if ops <= 0 {
            bail!("no metric {metric} that can be profiled");
        }
        Ok(Measured {
            functions: found,
            ops: ops.unsigned_abs(),
            shown,
            delay,
        })
    }

    /// Ends the guest.
    pub fn finish(self) -> Result<()> {
        let _ = fs::remove_file(&self.roles);
        self.ready.finish()
    }
}

fn render(found: &Functions, ops: u64, lines: usize) -> String {
    let total: i64 = found.values().map(|spent| spent.all()).sum();
    let own: i64 = found.values().map(|spent| spent.own).sum();
    let mut rows: Vec<(&String, &Spent)> = found.iter().collect();
    rows.sort_by_key(|(name, n)| (std::cmp::Reverse(n.all()), *name));
    let per = |n: i64| n as f64 / ops.max(1) as f64;
    let mut text = format!(
        "{:>12} {:>6} {:>12}  function\n",
        "instructions", "share", "own"
    );
    for (name, n) in rows.iter().take(lines) {
        let share = n.all() as f64 * 100.0 / total.max(1) as f64;
        text.push_str(&format!(
            "{:>12.1} {share:>5.2}% {:>12.1}  {name}\n",
            per(n.all()),
            per(n.own)
        ));
    }
    text.push_str(&format!(
        "{:>12.1}        {:>12.1}  all of them, for each operation\n",
        per(total),
        per(own)
    ));
    text
}

/// Runs it.
pub fn main(arguments: &Arguments, metric: &str, columns: &[&Column]) -> Result<ExitCode> {
    let column = columns
        .iter()
        .find(|c| !c.is_verbs())
        .context("no column that can be profiled")?;
    let mut profiler = Profiler::boot(arguments, column)?;
    let found = profiler.measure(arguments, column, metric)?;
    profiler.finish()?;
    print!("{}", render(&found.functions, found.ops, arguments.lines));
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
        let mut found = Functions::new();
        let text = "ffff800000000010 a 0\nffff800000000100 1 2\nffff800000000020 6 0\n400000 2 0\n";
        add(&mut found, text, &symbols, 1);
        assert_eq!(found["a "], Spent { own: 16, wire: 0 });
        assert_eq!(found["b "], Spent { own: 1, wire: 2 });
        assert_eq!(found[PROGRAMS].own, 2);
        let text = render(&found, 2, 1);
        assert!(text.contains("8.0 76.19%          8.0  a"), "{text}");
        assert!(text.contains("10.5                 9.5  all"), "{text}");
        add(&mut found, "ffff800000000100 1 1\n", &symbols, -1);
        assert_eq!(found["b "], Spent { own: 0, wire: 1 });
    }
}
