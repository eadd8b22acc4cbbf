// SPDX-License-Identifier: GPL-2.0

//! Calling the kernel's make inside the sysroot.

use super::Arch;
use crate::cache::{self, Lock};
use crate::cross;
use crate::data::{Data, Flavour};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The variables that select architecture and compiler, the same for the kernel
/// and for every module built against it.
pub fn variables(flavour: &Flavour) -> Result<Vec<String>> {
    let compiler = Data::get()
        .compiler
        .get(&flavour.compiler)
        .context("unknown compiler")?;
    let mut variables = vec![format!("ARCH={}", flavour.arch.name())];
    variables.extend(compiler.make.iter().cloned());
    Ok(variables)
}

/// `make` in a source tree for a build directory, at low priority.
pub fn command(arch: Arch, source: &Path, build: &Path, variables: &[String]) -> Result<Command> {
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let mut command = cross::sysroot(arch)?.command("nice");
    command
        .args(["-n", "5", "make", &format!("-j{jobs}"), "-C"])
        .arg(source)
        .arg(format!("O={}", build.display()))
        .args(variables);
    Ok(command)
}

/// Only one kernel is built at a time. `RSMC_BUILD_LOCK` names a second lock to
/// take, for machines shared with builds from elsewhere.
pub fn exclusive() -> Result<(Option<Lock>, Lock)> {
    let outer = match std::env::var_os("RSMC_BUILD_LOCK") {
        Some(path) => Some(cache::lock_file(Path::new(&path))?),
        None => None,
    };
    Ok((outer, cache::lock("kernel-build")?))
}
