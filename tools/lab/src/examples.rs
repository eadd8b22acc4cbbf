// SPDX-License-Identifier: GPL-2.0

//! The examples in the documentation of `kapi`, as the source of a test module.
//!
//! `check examples` compiles that source with warnings, and the entry `kapi.examples` of the plan runs it in a
//! kernel, see `selftests/kmod/kapi_examples`.

use crate::check::{read, rust_files};
use anyhow::{bail, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The module of `selftests/kmod` that runs them.
pub const MODULE: &str = "kapi_examples";

/// The file of that module that is made here; `rsync` leaves files with such names alone.
const GENERATED: &str = "examples_generated.rs";

/// Folder of the documented files.
const KAPI: &str = "rust/kapi";

/// Writes the source into a copy of the module, unless it is there already.
pub fn write(tree: &Path) -> Result<()> {
    let text = source()?;
    let file = tree.join(GENERATED);
    if fs::read_to_string(&file).ok().as_ref() != Some(&text) {
        fs::write(&file, text)?;
    }
    Ok(())
}

/// All examples: a function for each, and a table of them, by the name of their file.
fn source() -> Result<String> {
    let mut paths = rust_files(&[KAPI])?;
    paths.sort();
    let mut named = Vec::new();
    for path in paths {
        let short = path.strip_prefix(KAPI)?.display().to_string();
        let found = examples(&read(&path)?).into_iter();
        named.extend(found.map(|code| (short.replace('/', "."), code)));
    }
    if named.is_empty() {
        bail!("no examples in {KAPI}");
    }
    generate(&named)
}

/// The source for examples with the names of their files. A file's second example has a 2 behind the name.
fn generate(named: &[(String, String)]) -> Result<String> {
    let mut text = String::new();
    let mut table = String::new();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for (index, (file, code)) in named.iter().enumerate() {
        let number = seen.entry(file).or_default();
        *number += 1;
        let name = match *number {
            1 => file.clone(),
            number => format!("{file}.{number}"),
        };
        // As rustdoc has it: an example with `?` ends with a result.
        let end = match code.trim_end().ends_with("(())") {
            true => "",
            false => "Ok(())\n",
        };
        // A module of its own, so that it has no names but those it imports.
        writeln!(
            text,
            "/// {name}\nmod example_{index} {{\n\
             pub(crate) fn run() -> kernel::error::Result {{\n{code}{end}}}\n}}"
        )?;
        writeln!(table, "    (\"{name}\", example_{index}::run),")?;
    }
    writeln!(text, "const EXTRACTED: usize = {};", named.len())?;
    writeln!(text, "const EXAMPLES: &[Example] = &[\n{table}];")?;
    Ok(text)
}

/// The blocks of code in doc comments, but those marked (`ignore`, `text`); with their hidden lines.
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
            (Some(block), None) => *block += &format!("{}\n", shown(line)),
        }
    }
    found
}

/// A line of code as the compiler sees it. rustdoc hides a line that begins with `# `, and `##` stands for `#`.
fn shown(line: &str) -> String {
    let code = line.trim_start();
    let indent = line.strip_suffix(code).unwrap_or("");
    match code.strip_prefix('#') {
        Some("") => String::new(),
        Some(rest) if rest.starts_with('#') => format!("{indent}{rest}"),
        Some(rest) => match rest.strip_prefix(' ') {
            Some(hidden) => format!("{indent}{hidden}"),
            None => line.to_string(),
        },
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{examples, generate};

    #[test]
    fn marked_blocks_are_left_out() {
        let text = "/// ```\n/// a();\n///\n/// b();\n/// ```\n/// ```text\n/// no\n/// ```\n\
            fn x() {}\n    /// ```\n    /// c();\n    /// ```\n";
        assert_eq!(examples(text), ["a();\n\nb();\n", "c();\n"]);
    }

    #[test]
    fn hidden_lines_are_code() {
        let text =
            "/// ```\n/// # let a = 1;\n///     # b();\n/// #\n/// #[c]\n/// ##[d]\n/// ```\n";
        assert_eq!(examples(text), ["let a = 1;\n    b();\n\n#[c]\n#[d]\n"]);
    }

    #[test]
    fn each_is_in_the_table() {
        let named = [
            ("a.rs".into(), "a();\n".into()),
            ("a.rs".into(), "b()?;\nOk::<(), Error>(())\n".into()),
        ];
        let text = generate(&named).unwrap_or_default();
        assert!(text.contains("a();\nOk(())\n}"));
        assert!(text.contains("Ok::<(), Error>(())\n}"));
        assert!(text.contains("(\"a.rs\", example_0::run),\n    (\"a.rs.2\", example_1::run),\n]"));
        assert!(text.contains("EXTRACTED: usize = 2;"));
    }
}
