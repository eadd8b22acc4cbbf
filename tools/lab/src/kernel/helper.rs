// SPDX-License-Identifier: GPL-2.0

//! Building small kernel modules in C: those that debug kernels need
//! ([`super::leakroots`]) and those that tests need (`selftests/kmod`).

use super::{make, Kernel};
use crate::cache;
use crate::data::Data;
use crate::module;
use crate::progress;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Builds `name.ko` for a kernel from sources given as file names and texts.
/// Unchanged files keep their times, so make has little to do the next time.
pub fn build(kernel: &Kernel, name: &str, sources: &[(String, String)]) -> Result<PathBuf> {
    let dir = cache::work().join(name).join(&kernel.flavour);
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    let _lock = cache::lock_file(&dir.join("lock"))?;
    for (name, text) in sources {
        let file = tree.join(name);
        if fs::read_to_string(&file).ok().as_ref() != Some(text) {
            fs::write(&file, text)?;
        }
    }
    let mut variables = make::variables(Data::get().flavour(&kernel.flavour)?)?;
    variables.push(format!("KERNELRELEASE={}", kernel.release));
    variables.push(format!("M={}", tree.display()));
    let mut command = make::command(kernel.arch, &kernel.source, &kernel.build, &variables)?;
    let what = format!("{name}.ko for {}", kernel.flavour);
    progress::run(&what, command.arg("modules"), &dir.join("log"))?;
    Ok(tree.join(format!("{name}.ko")))
}

/// Builds a module of the checkout's `selftests/kmod`, in C or in Rust.
pub fn of_tests(kernel: &Kernel, name: &str) -> Result<PathBuf> {
    let directory = cache::top().join("selftests/kmod").join(name);
    if directory.join("rust").exists() {
        return module::of_tests(kernel, name);
    }
    let mut sources = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        sources.push((file.into_owned(), fs::read_to_string(&path)?));
    }
    build(kernel, name, &sources)
}
