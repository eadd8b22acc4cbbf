// SPDX-License-Identifier: GPL-2.0

//! User-space programs for the guests: `rsmc`, the preload library, the
//! selftests, and some of the kernel's own. Built in the sysroot, with its
//! compilers, for its C library.

use crate::kernel::{Arch, Kernel};
use crate::{cache, cross, progress};
use anyhow::{bail, Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cargo command in the sysroot, for a directory of the checkout, with its
/// products in the cache. `None` if the checkout has no such crate.
pub fn cargo(directory: &str, verb: &str) -> Result<Option<Command>> {
    cargo_for(Arch::X86, directory, verb)
}

/// The same for an architecture.
fn cargo_for(arch: Arch, directory: &str, verb: &str) -> Result<Option<Command>> {
    let path = cache::top().join(directory);
    if !path.join("Cargo.toml").exists() {
        return Ok(None);
    }
    let mut command = cross::cargo(arch, &target_for(arch, directory))?;
    command.current_dir(&path).arg(verb);
    if path.join("Cargo.lock").exists() {
        command.arg("--locked");
    }
    Ok(Some(command))
}

/// Where the products of a directory's crates are.
pub fn target(directory: &str) -> PathBuf {
    cache::work()
        .join("target")
        .join(directory.replace('/', "-"))
}

/// The same for an architecture.
fn target_for(arch: Arch, directory: &str) -> PathBuf {
    match arch.foreign() {
        Some(name) => target(&format!("{directory}-{name}")),
        None => target(directory),
    }
}

/// Builds everything for an architecture and returns the files that belong into `/rsmc/bin`;
/// `ready`: takes them from a directory instead.
pub fn build(arch: Arch, ready: Option<&Path>) -> Result<Vec<PathBuf>> {
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
        let Some(mut command) = cargo_for(arch, directory, "build")? else {
            continue;
        };
        command.arg("--release").args(packages);
        let log = cache::work().join(format!("{directory}.log"));
        fs::write(&log, "").with_context(|| log.display().to_string())?;
        progress::run(&format!("{directory}: building"), &mut command, &log)?;
        let target = target_for(arch, directory);
        files.extend(products(&cross::products(arch, &target, "release")?)?);
    }
    Ok(files)
}

/// Builds what a demonstration runs, `rsmc` and its library, and returns the files. Quick to build: as
/// this tool is built, and beside it, so that what both depend on is there already.
pub fn tools(arch: Arch, ready: Option<&Path>) -> Result<Vec<PathBuf>> {
    if ready.is_some() || arch.foreign().is_some() {
        return build(arch, ready);
    }
    let own = std::env::current_exe().context("own path")?;
    let [Some(products), Some(triple), Some(beside)] =
        [1, 2, 3].map(|levels| own.ancestors().nth(levels))
    else {
        bail!("{} is not where cargo puts it", own.display());
    };
    let log = cache::work().join("tools-lab.log");
    let mut rsmc = cross::cargo(arch, beside)?;
    rsmc.arg("build").arg("--target");
    rsmc.arg(triple.file_name().unwrap_or_default());
    rsmc.args(["--package", "rsmc"]);
    rsmc.env("RUSTFLAGS", "-C target-feature=+crt-static");
    // It is loaded into programs with a C library of their own.
    let dynamic = target("tools");
    let mut library = cross::cargo(arch, &dynamic)?;
    library.args(["build", "--package", "rsmc-preload"]);
    for command in [&mut rsmc, &mut library] {
        command.current_dir(cache::top().join("tools"));
        command.args(["--locked", "--profile", "lab"]);
        progress::run("tools: building rsmc", command, &log)?;
    }
    Ok(vec![
        products.join("rsmc"),
        dynamic.join("lab/librsmc_preload.so"),
    ])
}

/// The C files of a kernel's own selftests that are built for the guests, below
/// `tools/testing/selftests`. Nothing of them is in the checkout.
const OF_THE_KERNEL: [&str; 1] = ["net/mptcp/mptcp_connect.c"];

/// Builds programs of the kernel's own selftests, from the source that its
/// package has brought. One that is not in there is left out.
pub fn of_kernel(kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let directory = cache::work().join("kernel-selftests").join(&kernel.flavour);
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let _lock = cache::lock_file(&directory.join("lock"))?;
    let mut programs = Vec::new();
    for file in OF_THE_KERNEL {
        let source = kernel.source.join("tools/testing/selftests").join(file);
        let (Ok(text), Some(name)) = (fs::read(&source), source.file_stem()) else {
            continue;
        };
        let program = directory.join(name);
        let (built, log) = (program.with_extension("c"), program.with_extension("log"));
        if !program.exists() || fs::read(&built).ok().as_ref() != Some(&text) {
            let mut command = cross::tool(kernel.arch, "gcc")?;
            command.args(["-O2", "-I"]);
            command.arg(kernel.source.join("tools/include"));
            command.arg("-o").arg(&program).arg(&source);
            progress::run(&format!("{file}: building"), &mut command, &log)?;
            // What it was made from; written last, so that a half-built one is built again.
            fs::write(&built, text)?;
        }
        programs.push(program);
    }
    Ok(programs)
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
