// SPDX-License-Identifier: GPL-2.0

//! Checks of the text alone: licence lines, file sizes, stray machine names,
//! and the wall around unsafe code.

use super::{files, read, rust_files, Complaints};
use crate::cache;
use anyhow::Result;
use std::path::Path;

/// Every source file says its licence in its first three lines.
pub fn spdx() -> Result<Complaints> {
    const SOURCES: [&str; 11] = [
        "rs", "c", "h", "sh", "py", "awk", "mk", "toml", "config", "lua", "pl",
    ];
    let mut found = Vec::new();
    for path in files()? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = match path.extension() {
            Some(extension) => SOURCES.iter().any(|known| extension == *known),
            None => ["Makefile", "Kbuild"].contains(&name.as_str()) || is_script(&path)?,
        };
        if text
            && !read(&path)?
                .lines()
                .take(3)
                .any(|line| line.contains("SPDX-License-Identifier: "))
        {
            found.push(format!("{}: no SPDX line", path.display()));
        }
    }
    Ok(found)
}

fn is_script(path: &Path) -> Result<bool> {
    Ok(std::fs::read(cache::top().join(path))?.starts_with(b"#!"))
}

/// No source file has more than 1000 lines.
pub fn size() -> Result<Complaints> {
    let mut found = Vec::new();
    for path in rust_files(&["rust", "tools", "selftests"])? {
        let lines = read(&path)?.lines().count();
        if lines > 1000 {
            found.push(format!("{}: {lines} lines", path.display()));
        }
    }
    Ok(found)
}

/// No file names one machine's directories or a package registry.
pub fn places() -> Result<Complaints> {
    let mut words: Vec<String> = ["deb.", "security.", "ftp."]
        .iter()
        .map(|host| format!("{host}debian.org"))
        .collect();
    words.extend(
        ["static.", "index."]
            .iter()
            .map(|host| format!("{host}crates.io")),
    );
    words.push(format!("{}/", cache::top().display()));
    words.push(format!("{}/", cache::root().display()));
    let mut found = Vec::new();
    for path in files()? {
        if path.file_name().is_some_and(|name| name == "Cargo.lock") {
            continue;
        }
        let text = read(&path)?;
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    Ok(found)
}

/// No unsafe code outside `rust/bindings`, `rust/kapi` and `rust/trace` in the
/// module, and the compiler is told so.
pub fn forbidden() -> Result<Complaints> {
    let mut found = Vec::new();
    for root in ["rust/smc/smc.rs", "rust/proto/smc_proto.rs"] {
        if !read(Path::new(root))?
            .lines()
            .any(|line| line == "#![forbid(unsafe_code)]")
        {
            found.push(format!("{root}: lacks #![forbid(unsafe_code)]"));
        }
    }
    for path in rust_files(&["rust/smc", "rust/proto"])? {
        let text = read(&path)?;
        for (number, line) in text.lines().enumerate() {
            if has_word(&code(line), "unsafe") {
                found.push(format!("{}:{}: unsafe", path.display(), number + 1));
            }
        }
    }
    Ok(found)
}

/// Every unsafe block and impl has its SAFETY comment, everywhere. (clippy says
/// so too for the module; this covers preload and whatever clippy cannot see.)
pub fn reasons() -> Result<Complaints> {
    let mut found = Vec::new();
    for path in rust_files(&["rust", "tools", "selftests"])? {
        let text = read(&path)?;
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let line = code(line);
            let opens = line.contains("unsafe {") || line.contains("unsafe impl");
            if opens && !has_reason(&lines, number) {
                found.push(format!(
                    "{}:{}: no SAFETY comment",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    Ok(found)
}

/// Looks upwards for the comment: over comment lines, attributes, and the
/// earlier lines of the same statement.
fn has_reason(lines: &[&str], number: usize) -> bool {
    if lines
        .get(number)
        .is_some_and(|line| line.contains("SAFETY:"))
    {
        return true;
    }
    for line in lines.iter().take(number).rev().take(40) {
        let line = line.trim();
        if line.contains("SAFETY:") {
            return true;
        }
        let ends = [";", "}", "},"]
            .iter()
            .any(|end| code(line).trim_end().ends_with(end));
        if line.is_empty() || (ends && !line.starts_with("//") && !line.starts_with('#')) {
            return false;
        }
    }
    false
}

/// The line without string literals and without its `//` comment.
fn code(line: &str) -> String {
    let mut code = String::new();
    let mut inside = false;
    let mut escaped = false;
    let mut last = ' ';
    for c in line.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' if last != '\'' => inside = !inside,
            '/' if !inside && last == '/' => return code,
            _ if !inside => code.push(c),
            _ => {}
        }
        last = c;
    }
    code
}

fn has_word(line: &str, word: &str) -> bool {
    let parts = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.into_iter().any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::{code, has_reason, has_word};

    #[test]
    fn words_and_comments() {
        assert!(has_word("let x = unsafe { 1 };", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(!has_word(&code("a // unsafe"), "unsafe"));
        assert!(!has_word(&code(r#"a("\" unsafe")"#), "unsafe"));
        assert!(has_word(&code(r#"a("\"", '"', unsafe)"#), "unsafe"));
    }

    #[test]
    fn reasons_belong_to_their_statement() {
        let good = ["// SAFETY: x", "let a =", "unsafe { b() };"];
        assert!(has_reason(&good, 2));
        let bad = ["// SAFETY: x", "unsafe { a() };", "unsafe { b() };"];
        assert!(has_reason(&bad, 1));
        assert!(!has_reason(&bad, 2));
    }
}
