// SPDX-License-Identifier: GPL-2.0

//! Building `rsmc.ko` for a kernel, without littering the checkout; [`private`] is another way.

pub mod private;

use crate::cache;
use crate::data::Data;
use crate::examples;
use crate::kernel::{make as kbuild, Kernel};
use crate::progress;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Parts of the checkout that Kbuild needs.
const SOURCES: [&str; 2] = ["Kbuild", "rust"];

/// Files Kbuild makes beside the copied sources; they survive the next copy.
const PRODUCTS: [&str; 11] = [
    "*.o",
    "*.ko",
    "*.mod",
    "*.mod.c",
    "*.rmeta",
    "*.cmd",
    "*.d",
    "*.symvers",
    "*.order",
    "*_generated*",
    "kernel_types.txt",
];

/// Objects that are compiled from our sources.
const OBJECTS: [&str; 7] = [
    "rust/smc/smc.o",
    "rust/kapi/kapi.o",
    "rust/proto/smc_proto.o",
    "rust/bindings/smc_bindings.o",
    "rust/bindings/helpers.o",
    "rust/trace/smc_trace.o",
    "rust/trace/trace.o",
];

/// Variants of a build, each with a build directory of its own.
pub struct Build<'a> {
    /// Name of the directory.
    pub name: &'a str,
    /// Further variables for make.
    pub variables: &'a [String],
}

/// Products of a build.
pub struct Built {
    /// `rsmc.ko`.
    pub module: PathBuf,
    /// The directory that was `M=`.
    pub tree: PathBuf,
    /// Lines of the log that warn.
    pub warnings: Vec<String>,
}

/// Builds the module and returns its path; warnings are printed.
pub fn build(kernel: &Kernel) -> Result<PathBuf> {
    let built = make(
        kernel,
        &Build {
            name: "module",
            variables: &[],
        },
    )?;
    for warning in &built.warnings {
        eprintln!("{warning}");
    }
    Ok(built.module)
}

/// Builds a variant. The sources are copied to a directory per checkout, kernel
/// and variant first; unchanged files keep their times, so it is incremental.
pub fn make(kernel: &Kernel, build: &Build<'_>) -> Result<Built> {
    let dir = cache::work().join(build.name).join(&kernel.flavour);
    let log = dir.join("log");
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    let _lock = cache::lock_file(&dir.join("lock"))?;
    fs::write(&log, "")?;
    copy(&tree, &log)?;

    // Objects that are up to date would hide their warnings: keep them only if
    // the last build ended, and without any.
    let clean = dir.join("clean");
    if !clean.exists() {
        for object in OBJECTS {
            cache::remove_file(&tree.join(object))?;
        }
    }
    cache::remove_file(&clean)?;

    let what = format!("rsmc.ko for {} ({})", kernel.flavour, build.name);
    progress::run(&what, &mut compile(kernel, &tree, build.variables)?, &log)?;

    let module = tree.join("rsmc.ko");
    if !module.exists() {
        bail!(
            "Kbuild succeeded without making rsmc.ko (log: {})",
            log.display()
        );
    }
    let warnings = warnings(&fs::read_to_string(&log)?);
    if warnings.is_empty() {
        fs::write(&clean, "")?;
    }
    Ok(Built {
        module,
        tree,
        warnings,
    })
}

/// The make command that builds the module in `tree`.
fn compile(kernel: &Kernel, tree: &Path, more: &[String]) -> Result<Command> {
    let flavour = Data::get().flavour(&kernel.flavour)?;
    let mut variables = kbuild::variables(flavour)?;
    variables.push(format!("KERNELRELEASE={}", kernel.release));
    variables.push(format!("M={}", tree.display()));
    variables.extend_from_slice(more);
    let mut command = kbuild::command(kernel.arch, &kernel.source, &kernel.build, &variables)?;
    command.arg("modules");
    Ok(command)
}

/// Builds a module of `selftests/kmod` in Rust: one with a link `rust` to our sources.
pub fn of_tests(kernel: &Kernel, name: &str) -> Result<PathBuf> {
    let dir = cache::work().join(name).join(&kernel.flavour);
    let log = dir.join("log");
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    let _lock = cache::lock_file(&dir.join("lock"))?;
    fs::write(&log, "")?;
    let all = cache::top().join("selftests/kmod").join(name).join("");
    rsync(&tree, &log, &["--copy-links"], &[all])?;
    if name == examples::MODULE {
        examples::write(&tree)?;
    }
    let what = format!("{name}.ko for {}", kernel.flavour);
    progress::run(&what, &mut compile(kernel, &tree, &[])?, &log)?;
    Ok(tree.join(format!("{name}.ko")))
}

/// Builds with the bindings' opaque types laid open, which bindgen lays out
/// wrongly. Returns an error unless the layout assertions stop that build.
pub fn layout_guard(kernel: &Kernel) -> Result<()> {
    let dir = cache::work().join("layout").join(&kernel.flavour);
    let log = dir.join("log");
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    let _lock = cache::lock_file(&dir.join("lock"))?;
    fs::write(&log, "")?;
    copy(&tree, &log)?;
    let mut command = compile(kernel, &tree, &["RSMC_BREAK_LAYOUT=1".into()])?;
    let (status, text) = progress::watch("a broken layout must not build", &mut command, &log)?;
    if status.success() {
        bail!("bindings with a wrong layout were accepted");
    }
    let stopped = ["Size of", "Alignment of", "Offset of field"];
    if !stopped.iter().any(|sign| text.contains(sign)) {
        bail!(
            "the build failed, but not at a layout assertion (log: {})",
            log.display()
        );
    }
    Ok(())
}

/// Copies what `make modules` needs of the checkout.
pub fn front(tree: &Path, log: &Path) -> Result<()> {
    fs::create_dir_all(tree).with_context(|| tree.display().to_string())?;
    let more = SOURCES.into_iter().chain(["Makefile"]);
    let sources: Vec<PathBuf> = more.map(|name| cache::top().join(name)).collect();
    rsync(tree, log, &[], &sources)
}

fn copy(tree: &Path, log: &Path) -> Result<()> {
    let mut sources = Vec::new();
    for source in SOURCES {
        let path = cache::top().join(source);
        if !path.exists() {
            bail!("the checkout has no {source}");
        }
        sources.push(path);
    }
    rsync(tree, log, &[], &sources)
}

fn rsync(tree: &Path, log: &Path, more: &[&str], sources: &[PathBuf]) -> Result<()> {
    let mut copy = sysroot::get()?.command("rsync");
    copy.args([
        "-rlp",
        "--checksum",
        "--delete",
        "--exclude=target",
        "--exclude=fuzz",
    ]);
    copy.args(more);
    for product in PRODUCTS {
        copy.arg(format!("--exclude={product}"));
    }
    copy.args(sources).arg(tree);
    progress::run("module: copying the sources", &mut copy, log)
}

/// The warnings in a log, each with the lines that explain it.
pub fn warnings(log: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in log.lines() {
        let starts = (line.contains("warning:") && !line.contains("emitted"))
            || line.starts_with("WARNING:");
        inside = starts || (inside && line.starts_with([' ', '=', '|']));
        match found.last_mut() {
            Some(last) if inside && !starts => *last += &format!("\n{line}"),
            _ if starts => found.push(line.to_string()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn warnings_keep_their_explanation() {
        let log = "  RUSTC a\nwarning: unused\n  --> a.rs:1\n  CC b\nb.c:1: warning: x\n";
        let found = super::warnings(log);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("a.rs:1"));
    }
}
