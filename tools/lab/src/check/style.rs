// SPDX-License-Identifier: GPL-2.0

//! rustfmt and clippy.

use super::{complaints, kernel, rust_files, source, Complaints};
use crate::cache;
use crate::module;
use crate::sysroot;
use anyhow::Result;
use std::process::Command;

/// All Rust files have the shape the kernel's rustfmt configuration gives.
pub fn rustfmt() -> Result<Complaints> {
    complaints(formatter()?.args(["--check", "--color=never"]), |_| false)
}

/// Gives them that shape (`lab fmt`).
pub fn format() -> Result<Complaints> {
    complaints(&mut formatter()?, |_| false)
}

fn formatter() -> Result<Command> {
    let config = source()?.join(".rustfmt.toml");
    let mut command = sysroot::get()?.command("rustfmt");
    command
        .arg("--config-path")
        .arg(config)
        .args(rust_files(&["rust", "tools", "selftests"])?)
        .current_dir(cache::top());
    Ok(command)
}

/// The module's crates pass clippy with the kernel's lints.
pub fn clippy_module() -> Result<Complaints> {
    Ok(clippy_build()?.warnings)
}

/// Compiles the module through clippy.
pub fn clippy_build() -> Result<module::Built> {
    let build = module::Build {
        name: "clippy",
        variables: &["CLIPPY=1".into()],
    };
    module::make(&kernel()?, &build)
}

/// A cargo workspace passes clippy with warnings as errors.
pub fn clippy(dir: &str) -> Result<Complaints> {
    let mut command = sysroot::get()?.command("cargo");
    command
        .current_dir(cache::top().join(dir))
        .env(
            "CARGO_TARGET_DIR",
            cache::work().join("clippy").join(dir.replace('/', "-")),
        )
        .args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]);
    complaints(&mut command, |_| false)
}
