// SPDX-License-Identifier: GPL-2.0

//! Building `rsmc.ko` for a kernel, without littering the checkout.

use crate::cache;
use crate::data::Data;
use crate::kernel::{make, Kernel};
use crate::progress;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::PathBuf;

/// What Kbuild needs of the checkout.
const SOURCES: [&str; 2] = ["Kbuild", "rust"];

/// Builds the module and returns its path. The sources are copied to a directory
/// per checkout and kernel first (unchanged files keep their times, so builds
/// are incremental).
pub fn build(kernel: &Kernel) -> Result<PathBuf> {
    let _lock = cache::lock(&format!(
        "module-{}-{}",
        kernel.flavour,
        cache::work().file_name().unwrap_or_default().to_string_lossy()
    ))?;
    let dir = cache::work().join("module").join(&kernel.flavour);
    let log = dir.join("log");
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    fs::write(&log, "")?;

    let mut copy = sysroot::get()?.command("rsync");
    copy.args(["-rlp", "--checksum", "--delete", "--exclude=target"]);
    // Kbuild's products live beside the copies and must survive.
    for product in ["*.o", "*.ko", "*.mod", "*.mod.c", "*.rmeta", "*.cmd", "*.symvers", "*.order"] {
        copy.arg(format!("--exclude={product}"));
    }
    copy.args(["--exclude=*_generated*"]);
    for source in SOURCES {
        let path = cache::top().join(source);
        if !path.exists() {
            bail!("the checkout has no {source}");
        }
        copy.arg(path);
    }
    progress::run("rsmc.ko: copying the sources", copy.arg(&tree), &log)?;

    let flavour = Data::get().flavour(&kernel.flavour)?;
    let mut variables = make::variables(flavour)?;
    variables.push(format!("KERNELRELEASE={}", kernel.release));
    variables.push(format!("M={}", tree.display()));
    let mut compile = make::command(&kernel.source, &kernel.build, &variables)?;
    compile.arg("modules");
    progress::run(&format!("rsmc.ko for {}", kernel.flavour), &mut compile, &log)?;

    // Warnings are errors in what we own; show them rather than hide them.
    let text = fs::read_to_string(&log)?;
    for line in text.lines().filter(|line| line.contains("warning")) {
        eprintln!("    {line}");
    }
    let module = tree.join("rsmc.ko");
    if !module.exists() {
        bail!("Kbuild succeeded without making rsmc.ko (log: {})", log.display());
    }
    Ok(module)
}
