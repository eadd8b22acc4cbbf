// SPDX-License-Identifier: GPL-2.0

//! The examples in the documentation of `kapi` compile, without warnings.

use super::{complaints, doc, read, rust_files, style, Complaints};
use crate::cache;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::fs;

/// Beginning of the crate that the examples become.
const HEAD: &str = "//! The examples of kapi.\n#![allow(dead_code)]\n\
    #[allow(missing_docs)]\npub const __LOG_PREFIX: &[u8] = b\"examples\\0\";\n";

/// Compiles all examples as modules of one crate, which gets the options and the
/// crates that `rust/smc` gets. They are not run.
pub fn of_kapi() -> Result<Complaints> {
    let mut text = HEAD.to_string();
    let mut count = 0;
    for path in rust_files(&["rust/kapi"])? {
        for example in examples(&read(&path)?) {
            text += &format!("// {}\nmod m{count} {{\n{example}}}\n", path.display());
            count += 1;
        }
    }
    if count == 0 {
        bail!("no examples in rust/kapi");
    }
    let dir = cache::work().join("examples");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let source = dir.join("examples.rs");
    fs::write(&source, text).with_context(|| source.display().to_string())?;

    let built = style::clippy_build()?;
    let saved = built.tree.join("rust/smc/.smc.o.cmd");
    let saved = fs::read_to_string(&saved).with_context(|| saved.display().to_string())?;
    let mut words = doc::compiler_call(&saved, "rustc")?;
    words.retain(|word| !word.ends_with("smc/smc.rs"));
    words.push(
        "--crate-name examples --crate-type rlib --emit=metadata=\"$OUT\" \"$SOURCE\"".into(),
    );
    let mut command = sysroot::get()?.command("sh");
    command
        .current_dir(&built.tree)
        .args(["-c", &words.join(" ")])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("SOURCE", &source)
        .env("OUT", dir.join("examples.rmeta"));
    complaints(&mut command, |line| line.contains("warning"))
}

/// The blocks of code in doc comments, but those marked (`ignore`, `text`).
fn examples(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    let mut marked = false;
    for line in text.lines() {
        let Some(line) = line.trim_start().strip_prefix("///") else {
            block = None;
            marked = false;
            continue;
        };
        let line = line.strip_prefix(' ').unwrap_or(line);
        match (&mut block, line.strip_prefix("```")) {
            (None, Some("")) if !marked => block = Some(String::new()),
            (None, Some(_)) => marked = !marked,
            (None, None) => {}
            (Some(_), Some(_)) => found.extend(block.take()),
            (Some(block), None) => *block += &format!("{line}\n"),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::examples;

    #[test]
    fn marked_blocks_are_left_out() {
        let text = "/// ```\n/// a();\n///\n/// b();\n/// ```\n/// ```text\n/// no\n/// ```\n\
            fn x() {}\n    /// ```\n    /// c();\n    /// ```\n";
        assert_eq!(examples(text), ["a();\n\nb();\n", "c();\n"]);
    }
}
