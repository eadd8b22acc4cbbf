// SPDX-License-Identifier: GPL-2.0

//! `lab check`: everything that is judged without booting a guest.
//!
//! Each check is one KTAP line; its complaints follow as comments. Nothing here
//! changes the checkout.

mod attached;
mod build;
mod doc;
mod examples;
mod floors;
mod linters;
mod parity;
mod style;
mod wall;

use crate::cache;
use crate::data::Data;
use crate::docs;
use crate::kernel::{self, Kernel};
use crate::progress;
use anyhow::{bail, Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Complaints of one check; empty means it passed.
type Complaints = Vec<String>;

/// Runs all checks, or those whose name contains `only`.
pub fn main(only: Option<&str>) -> Result<ExitCode> {
    type Check = (&'static str, fn() -> Result<Complaints>);
    let checks: [Check; 20] = [
        ("spdx", wall::spdx),
        ("size", wall::size),
        ("places", wall::places),
        ("unsafe-wall", wall::forbidden),
        ("unsafe-reasons", wall::reasons),
        ("floors", floors::floors),
        ("rustfmt", style::rustfmt),
        ("checkpatch", linters::checkpatch),
        ("spelling", linters::spelling),
        ("clippy-module", style::clippy_module),
        ("clippy-proto", || style::clippy("rust/proto")),
        ("clippy-tools", || style::clippy("tools")),
        ("clippy-selftests", || style::clippy("selftests")),
        ("rustdoc-module", doc::module),
        ("rustdoc-host", doc::host),
        ("examples", examples::of_kapi),
        ("layout-guard", build::layout),
        ("attached", attached::table),
        ("docs", docs),
        ("parity", parity::table),
    ];
    let chosen: Vec<&Check> = checks
        .iter()
        .filter(|(name, _)| only.is_none_or(|only| name.contains(only)))
        .collect();
    if chosen.is_empty() {
        bail!(
            "no check is called that; there are: {}",
            checks.map(|(name, _)| name).join(" ")
        );
    }
    println!("KTAP version 1\n1..{}", chosen.len());
    let mut failed = 0;
    for (index, (name, check)) in chosen.iter().enumerate() {
        let complaints = progress::during(&format!("check.{name}"), check)
            .unwrap_or_else(|error| vec![format!("{error:#}")]);
        let verdict = if complaints.is_empty() {
            "ok"
        } else {
            "not ok"
        };
        println!("{verdict} {} - check.{name}", index + 1);
        for line in complaints
            .iter()
            .flat_map(|complaint| complaint.lines())
            .take(200)
        {
            println!("# {line}");
        }
        failed += usize::from(!complaints.is_empty());
    }
    println!(
        "{} passed, {failed} failed, 0 skipped",
        chosen.len() - failed
    );
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Links between Markdown files, the age of drawings, marks of commands, and versions.
fn docs() -> Result<Complaints> {
    docs::wrong()
}

/// `lab fmt`: formats all Rust files.
pub fn format() -> Result<ExitCode> {
    let complaints = style::format()?;
    complaints
        .iter()
        .for_each(|complaint| eprintln!("{complaint}"));
    Ok(if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Files of the checkout that git knows or would add, relative to its top.
pub fn files() -> Result<Vec<PathBuf>> {
    let out = Command::new("git")
        .current_dir(cache::top())
        // The checkout may belong to someone else than who runs the check.
        .args(["-c", "safe.directory=*"])
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("git")?;
    if !out.status.success() {
        bail!(
            "git ls-files: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    let names = String::from_utf8(out.stdout).context("git ls-files")?;
    let paths = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    Ok(paths
        .filter(|path| cache::top().join(path).is_file())
        .collect())
}

/// Rust files among them below a directory.
pub fn rust_files(below: &[&str]) -> Result<Vec<PathBuf>> {
    let chosen = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "rs")
            && below.iter().any(|dir| path.starts_with(dir))
    };
    Ok(files()?.into_iter().filter(chosen).collect())
}

/// The text of a file of the checkout.
pub fn read(path: &Path) -> Result<String> {
    let full = cache::top().join(path);
    let bytes = std::fs::read(&full).with_context(|| full.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a command to its end; its output if it failed or `noisy` finds a line.
fn complaints(command: &mut Command, noisy: fn(&str) -> bool) -> Result<Complaints> {
    let out = command.stdin(std::process::Stdio::null()).output()?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text += &String::from_utf8_lossy(&out.stderr);
    if out.status.success() && !text.lines().any(noisy) {
        return Ok(Vec::new());
    }
    Ok(vec![text])
}

/// The kernel the module's crates are checked against.
fn kernel() -> Result<Kernel> {
    kernel::get(Data::default_flavour())
}

/// The source tree whose style files apply.
fn source() -> Result<PathBuf> {
    Ok(kernel()?.source)
}
