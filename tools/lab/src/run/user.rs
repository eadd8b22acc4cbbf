// SPDX-License-Identifier: GPL-2.0

//! User-space programs for the guests: `rsmc`, the preload library, and the
//! selftests. Built in the sysroot, with its cargo, for its C library.

use crate::{cache, progress, sysroot};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cargo command in the sysroot, for a directory of the checkout, with its
/// products in the cache. `None` if the checkout has no such crate.
pub fn cargo(directory: &str, verb: &str) -> Result<Option<Command>> {
    let path = cache::top().join(directory);
    if !path.join("Cargo.toml").exists() {
        return Ok(None);
    }
    let mut command = sysroot::get()?.command("cargo");
    command.current_dir(&path).arg(verb);
    if path.join("Cargo.lock").exists() {
        command.arg("--locked");
    }
    command.env("CARGO_TARGET_DIR", target(directory));
    Ok(Some(command))
}

/// Where the products of a directory's crates are.
pub fn target(directory: &str) -> PathBuf {
    cache::work()
        .join("target")
        .join(directory.replace('/', "-"))
}

/// Builds everything and returns the files that belong into `/rsmc/bin`;
/// `ready`: takes them from a directory instead.
pub fn build(ready: Option<&Path>) -> Result<Vec<PathBuf>> {
    if let Some(directory) = ready {
        return products(directory);
    }
    let _lock = cache::lock(&format!(
        "user-{}",
        cache::work()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
    ))?;
    let mut files = Vec::new();
    for (directory, packages) in [
        (
            "tools",
            ["--workspace", "--exclude=lab", "--exclude=profile"].as_slice(),
        ),
        ("selftests", &[]),
    ] {
        let Some(mut command) = cargo(directory, "build")? else {
            continue;
        };
        command.arg("--release").args(packages);
        let log = cache::work().join(format!("{directory}.log"));
        fs::write(&log, "").with_context(|| log.display().to_string())?;
        progress::run(&format!("{directory}: building"), &mut command, &log)?;
        files.extend(products(&target(directory).join("release"))?);
    }
    Ok(files)
}

/// Programs and shared libraries in a target directory.
fn products(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let meta = entry.metadata()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let program = !name.contains('.') && meta.permissions().mode() & 0o111 != 0;
        if meta.is_file() && (program || name.ends_with(".so")) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
