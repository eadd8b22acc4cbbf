// SPDX-License-Identifier: GPL-2.0

//! Committed drawings: diagrams made from text by Graphviz, and figures made from the committed measurements.
//!
//! They are committed because readers of the sources want to see them and the sysroot has no `dot`. The first
//! line of a diagram's SVG behind its XML head has a hash of the text that it was made from.

use crate::cache::{self, Key};
use crate::check;
use crate::run::bench;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the diagrams are.
const DIRECTORY: &str = "Documentation/diagrams";
/// The drawing of the figures.
const FIGURES: &str = "Documentation/diagrams/figures.svg";

/// Complaints about drawings that are older than what they show.
pub fn stale() -> Result<Vec<String>> {
    let cure = "`tools/bootstrap docs --draw` makes it";
    let mut found = Vec::new();
    let read = |path: &Path| fs::read_to_string(cache::top().join(path)).unwrap_or_default();
    for text in texts()? {
        let drawing = text.with_extension("svg");
        if !read(&drawing).contains(&mark(&check::read(&text)?)) {
            found.push(format!(
                "{} is not of {}; {cure}",
                drawing.display(),
                text.display()
            ));
        }
    }
    if read(Path::new(FIGURES)) != bench::figures()? {
        found.push(format!(
            "{FIGURES} does not show the committed figures; {cure}"
        ));
    }
    Ok(found)
}

/// Draws all of them; the files written.
pub fn draw() -> Result<Vec<PathBuf>> {
    let mut written = vec![PathBuf::from(FIGURES)];
    write(Path::new(FIGURES), &bench::figures()?)?;
    for text in texts()? {
        let source = check::read(&text)?;
        let drawing = text.with_extension("svg");
        write(&drawing, &diagram(&text, &source)?)?;
        written.push(drawing);
    }
    Ok(written)
}

/// Draws the figures alone, whose committed measurements have changed.
pub fn draw_figures() -> Result<()> {
    write(Path::new(FIGURES), &bench::figures()?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(cache::top().join(path), text).with_context(|| path.display().to_string())
}

/// The diagrams' texts.
fn texts() -> Result<Vec<PathBuf>> {
    let is_text = |path: &PathBuf| {
        path.starts_with(DIRECTORY) && path.extension().is_some_and(|e| e == "dot")
    };
    Ok(check::files()?.into_iter().filter(is_text).collect())
}

/// The comment that ties a drawing to its text.
fn mark(source: &str) -> String {
    format!(
        "<!-- of text {} -->",
        Key::new().add("dot", source.as_bytes()).short()
    )
}

/// Has Graphviz draw a text.
fn diagram(path: &Path, source: &str) -> Result<String> {
    let mut command = Command::new("dot");
    command.arg("-Tsvg").arg(cache::top().join(path));
    let Ok(out) = command.output() else {
        bail!("there is no `dot` here: install Graphviz (on Debian: apt-get install graphviz)");
    };
    if !out.status.success() {
        bail!(
            "{}: {}",
            path.display(),
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    let svg = String::from_utf8(out.stdout).context("dot")?;
    let Some(start) = svg.find("<svg") else {
        bail!("{}: dot made no SVG", path.display());
    };
    Ok(format!(
        "{}\n{}",
        mark(source),
        svg.get(start..).unwrap_or_default()
    ))
}
