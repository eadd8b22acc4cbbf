// SPDX-License-Identifier: GPL-2.0

//! Checks that other projects' programs make: the kernel's checkpatch.pl, and codespell.

use super::{complaints, files, source, Complaints};
use crate::cache;
use crate::data::Data;
use crate::sysroot;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The C of the module and of the test modules has the kernel's style.
pub fn checkpatch() -> Result<Complaints> {
    // What it takes for faults: a macro that makes a function, and operations of a device that others copy and change.
    const IGNORED: &str = "COMPLEX_MACRO,LEADING_SPACE,CONST_STRUCT";
    let of_kernel = |path: &PathBuf| {
        let c = path
            .extension()
            .is_some_and(|extension| extension == "c" || extension == "h");
        let kernel = ["rust", "selftests/kmod", "tools/lab/kmod"];
        c && kernel.iter().any(|folder| path.starts_with(folder))
    };
    let mut command = sysroot::get()?.command("perl");
    command
        .current_dir(cache::top())
        .arg(source()?.join("scripts/checkpatch.pl"))
        .args(["--no-tree", "--terse", "--show-types", "--color=never"])
        .args(["--ignore", IGNORED, "-f"])
        .args(files()?.into_iter().filter(of_kernel));
    complaints(&mut command, |_| false)
}

/// No file has a word that codespell knows as a mistake.
pub fn spelling() -> Result<Complaints> {
    let written = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        let extension = path.extension().unwrap_or_default();
        let made = ["svg", "ico", "proptest-regressions"];
        name != "Cargo.lock"
            && !made.iter().any(|made| extension == *made)
            && !path.starts_with(Path::new("rust/proto/fuzz/corpus"))
    };
    let linters = sysroot::with("linters", &Data::get().check.packages)?;
    let mut command = linters.command("codespell");
    command
        .current_dir(cache::top())
        .args(files()?.into_iter().filter(written));
    complaints(&mut command, |_| false)
}
