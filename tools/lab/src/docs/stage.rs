// SPDX-License-Identifier: GPL-2.0

//! Laying out what mdBook reads.

use super::{links, markdown};
use crate::cache;
use crate::check;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes `book` anew: `book.toml`, and in `src` the pages, what they link to, and the summary.
pub fn lay_out(book: &Path) -> Result<()> {
    cache::remove(book)?;
    let (top, src) = (cache::top(), book.join("src"));
    copy(
        &top.join("Documentation/book.toml"),
        &book.join("book.toml"),
    )?;
    let pages = links::pages()?;
    let chosen = links::chosen(&pages);
    let mut files: BTreeSet<PathBuf> = chosen.iter().cloned().collect();
    for path in &chosen {
        for link in pages.get(path).map_or(&[][..], |page| &page.links) {
            let target = links::local(path, &link.target).map(|(file, _)| file);
            files.extend(target.filter(|file| top.join(file).is_file()));
        }
    }
    for file in files {
        copy(&top.join(&file), &src.join(&file))?;
    }
    let summary = summary(&check::read(Path::new(links::SUMMARY))?);
    let path = src.join("SUMMARY.md");
    fs::write(&path, summary).with_context(|| path.display().to_string())
}

/// The summary with links from the top of the checkout.
fn summary(text: &str) -> String {
    let mut out = text.to_owned();
    for link in markdown::read(text).links {
        if let Some((file, _)) = links::local(Path::new(links::SUMMARY), &link.target) {
            out = out.replace(
                &format!("]({})", link.target),
                &format!("](@{})", file.display()),
            );
        }
    }
    // A target that was replaced is not found again by a later one.
    out.replace("](@", "](")
}

/// Copies a file, making the directories above it.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let what = || format!("{} to {}", from.display(), to.display());
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).with_context(what)?;
    }
    fs::copy(from, to).map(drop).with_context(what)
}

/// The files below a directory, relative to it.
pub fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        let path = directory.join(&inner);
        for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
            let entry = entry?;
            let name = inner.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(name);
            } else {
                found.push(name);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_summary() {
        let text = "# S\n\n[Front](../README.md)\n\n- [A](a.md)\n- [B](../tools/README.md)\n";
        assert_eq!(
            super::summary(text),
            "# S\n\n[Front](README.md)\n\n- [A](Documentation/a.md)\n- [B](tools/README.md)\n"
        );
    }
}
