// SPDX-License-Identifier: GPL-2.0

//! rustdoc without warnings.

use super::{complaints, style, Complaints};
use crate::cache;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::fs;

/// Documents the module's crates with the very command line Kbuild compiled
/// them with (the kernel has no rustdoc target for external modules).
pub fn module() -> Result<Complaints> {
    let built = style::clippy_build()?;
    let out = cache::work().join("doc");
    let mut found = Vec::new();
    for object in ["proto/smc_proto", "kapi/kapi", "trace/smc_trace", "smc/smc"] {
        let (dir, name) = object.split_once('/').context("object")?;
        let path = built.tree.join(format!("rust/{dir}/.{name}.o.cmd"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut command = sysroot::get()?.command("sh");
        command
            .current_dir(&built.tree)
            .args(["-c", &rustdoc(&text)?])
            // As the kernel's Makefile does: the crates use language features by name.
            .env("RUSTC_BOOTSTRAP", "1")
            // As Kbuild does: where generated bindings are.
            .env("RSMC_OBJ", &built.tree)
            .env("OUT", &out);
        found.extend(complaints(&mut command, |line| line.contains("warning"))?);
    }
    Ok(found)
}

/// Turns the saved command of an object into a rustdoc call.
fn rustdoc(saved: &str) -> Result<String> {
    let words = compiler_call(saved, "rustdoc")?;
    let more = "-Zunstable-options --document-private-items --output \"$OUT\"";
    Ok(format!("{} {more}", words.join(" ")))
}

/// Turns the saved command of an object into a call of `tool`, without the
/// options that say what to make; the words are still quoted for a shell.
pub(super) fn compiler_call(saved: &str, tool: &str) -> Result<Vec<String>> {
    let line = saved.lines().next().unwrap_or("");
    let Some((_, command)) = line.split_once(":= ") else {
        bail!("no saved command");
    };
    let command = command
        .split(" ; ")
        .next()
        .unwrap_or("")
        .split(';')
        .next()
        .unwrap_or("");
    let mut words = Vec::new();
    let mut compiler = false;
    let mut skip = false;
    for word in command.split_whitespace() {
        if std::mem::take(&mut skip) {
            continue;
        }
        let base = word.rsplit('/').next().unwrap_or("");
        if !compiler && ["rustc", "clippy-driver"].contains(&base) {
            compiler = true;
            words.push(tool.to_string());
            continue;
        }
        match word {
            "-o" | "--out-dir" | "--crate-type" => skip = true,
            _ if word.starts_with("--emit=")
                || word.starts_with("--out-dir")
                || word.starts_with("-Wclippy::")
                || word.starts_with("-Aclippy::")
                || word.starts_with("-Dclippy::")
                || word.starts_with("--remap-path") => {}
            _ => words.push(word.to_string()),
        }
    }
    if !compiler {
        bail!("no compiler in the saved command");
    }
    Ok(words)
}

/// Documents the cargo crates.
pub fn host() -> Result<Complaints> {
    let mut found = Vec::new();
    for dir in ["rust/proto", "tools", "selftests"] {
        let mut command = sysroot::get()?.command("cargo");
        command
            .current_dir(cache::top().join(dir))
            .env(
                "CARGO_TARGET_DIR",
                cache::work().join("clippy").join(dir.replace('/', "-")),
            )
            .env("RUSTDOCFLAGS", "-D warnings")
            .args([
                "doc",
                "--quiet",
                "--workspace",
                "--no-deps",
                "--document-private-items",
            ]);
        found.extend(complaints(&mut command, |_| false)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn saved_command_becomes_rustdoc() {
        let saved = "savedcmd_a.o := OBJTREE=/o RUST_MODFILE=m rustc --edition=2021 -Copt-level=2 \
                     --emit=dep-info=a --emit=obj=a.o --crate-type rlib -L d --out-dir x a.rs ; true\n";
        let command = super::rustdoc(saved).unwrap_or_default();
        assert!(command.starts_with(
            "OBJTREE=/o RUST_MODFILE=m rustdoc --edition=2021 -Copt-level=2 -L d a.rs"
        ));
        assert!(super::rustdoc("x").is_err());
    }
}
