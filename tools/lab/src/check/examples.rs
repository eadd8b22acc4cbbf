// SPDX-License-Identifier: GPL-2.0

//! The examples in the documentation of `kapi` compile, without warnings.

use super::{complaints, doc, style, Complaints};
use crate::cache;
use crate::examples::{self, MODULE};
use crate::sysroot;
use anyhow::{Context, Result};
use std::fs;

/// Compiles the module that runs all examples, with the options that `rust/smc` gets.
pub fn of_kapi() -> Result<Complaints> {
    let dir = cache::work().join("examples");
    cache::remove(&dir)?;
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let sources = cache::top().join("selftests/kmod").join(MODULE);
    for entry in fs::read_dir(&sources).with_context(|| sources.display().to_string())? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            fs::copy(&path, dir.join(name))?;
        }
    }
    examples::write(&dir)?;

    let built = style::clippy_build()?;
    let saved = built.tree.join("rust/smc/.smc.o.cmd");
    let saved = fs::read_to_string(&saved).with_context(|| saved.display().to_string())?;
    let mut words = doc::compiler_call(&saved, "rustc")?;
    words.retain(|word| !word.ends_with("smc/smc.rs"));
    words.push(format!(
        "--extern smc_bindings=./libsmc_bindings.rmeta --crate-name {MODULE} --crate-type rlib \
         --emit=metadata=\"$OUT\" \"$SOURCE\""
    ));
    let mut command = sysroot::get()?.command("sh");
    command
        .current_dir(&built.tree)
        .args(["-c", &words.join(" ")])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("SOURCE", dir.join("main.rs"))
        .env("OUT", dir.join("examples.rmeta"));
    complaints(&mut command, |line| line.contains("warning"))
}
