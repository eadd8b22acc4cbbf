// SPDX-License-Identifier: GPL-2.0

//! A prototype: `rsmc.ko` with the kernel's crates inside, for a kernel without Rust.
//!
//! Takes the crates' objects from a build of the same kernel with Rust. What they need of C
//! is compiled anew, since code of a module reaches static calls in another way than code of
//! the kernel's image. The module then imports no symbol of the kernel's own crates.

use super::{build, compile};
use crate::cache;
use crate::kernel::Kernel;
use crate::progress;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, in the kernel's build directory.
const CRATES: [&str; 9] = [
    "core",
    "compiler_builtins",
    "kernel",
    "bindings",
    "build_error",
    "ffi",
    "pin_init",
    "uapi",
    "zerocopy",
];

/// Builds it and returns its path.
pub fn make(kernel: &Kernel) -> Result<PathBuf> {
    let module = build(kernel)?;
    let built = module.parent().context("the module's directory")?;
    let dir = cache::work().join("private").join(&kernel.flavour);
    let (log, tree) = (dir.join("log"), dir.join("tree"));
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let _lock = cache::lock_file(&dir.join("lock"))?;
    cache::remove(&tree)?;
    fs::create_dir_all(&tree)?;
    fs::write(&log, "")?;
    let parts = fs::read_to_string(built.join("rsmc.mod"))?;
    let mut link = sysroot::get()?.command("ld");
    link.arg("-r").arg("-o").arg(tree.join("crates.o"));
    link.args(parts.lines().map(|part| built.join(part)));
    let rust = kernel.build.join("rust");
    link.args(CRATES.map(|name| rust.join(name).with_extension("o")));
    progress::run("linking the crates", &mut link, &log)?;
    // Kbuild asks what made an object that it did not make itself.
    fs::write(tree.join(".crates.o.cmd"), "crates.o := ld -r\n")?;
    fs::write(tree.join("missing.c"), missing(kernel, &tree)?)?;
    let helpers = kernel.source.join("rust/helpers");
    let mut copy = sysroot::get()?.command("cp");
    copy.arg("-r").arg(helpers).arg(tree.join("helpers"));
    progress::run("copying the helpers", &mut copy, &log)?;
    let objects = "obj-m := rsmc.o\nrsmc-y := crates.o missing.o helpers/helpers.o\n";
    fs::write(tree.join("Kbuild"), objects)?;
    let what = format!("rsmc.ko for {} without Rust", kernel.flavour);
    progress::run(&what, &mut compile(kernel, &tree, &[])?, &log)?;
    let module = tree.join("rsmc.ko");
    let wanted = undefined(&module)?;
    if let Some(name) = wanted.iter().find(|name| is_of_rust(name)) {
        bail!("it still imports {name}");
    }
    Ok(module)
}

/// Tells whether a symbol is of a crate of the kernel's, or of the C code for them.
fn is_of_rust(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("rust_")
}

/// The symbols that an object takes from elsewhere.
fn undefined(object: &Path) -> Result<BTreeSet<String>> {
    let mut command = sysroot::get()?.command("nm");
    let out = command.arg("-u").arg(object).output()?;
    if !out.status.success() {
        bail!("nm {}: {}", object.display(), out.status);
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    Ok(names.map(str::to_owned).collect())
}

/// C code that stands in for what the crates name and the kernel does not export. The module calls
/// none of it: crates compiled with a section for each function would not even name it.
fn missing(kernel: &Kernel, tree: &Path) -> Result<String> {
    let exports = fs::read_to_string(kernel.build.join("Module.symvers"))?;
    let exports: BTreeSet<&str> = exports
        .lines()
        .filter_map(|line| line.split('\t').nth(1))
        .collect();
    let mut text = String::from("#include <linux/bug.h>\n#include <linux/module.h>\n");
    for name in undefined(&tree.join("crates.o"))? {
        let there = exports.contains(name.as_str()) && !is_of_rust(&name);
        if !there && !name.starts_with("rust_helper_") && name != "__this_module" {
            writeln!(
                text,
                "void {name}(void); void {name}(void) {{ WARN_ON(1); }}"
            )?;
        }
    }
    Ok(text)
}
