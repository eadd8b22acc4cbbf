// SPDX-License-Identifier: GPL-2.0

//! `lab docs`: the documentation as a site.
//!
//! The pages are the checkout's Markdown files, where they are. `Documentation/SUMMARY.md` names them in order;
//! [`stage`] lays them out in the work directory as they lie in the checkout, so that their links hold in both
//! places, and mdBook makes HTML of them. [`html`] then follows each link of the result. [`links`] does that in
//! the sources, [`drawings`] keeps the committed drawings as old as what they are made from,
//! [`pages`] has what is asked of single pages.

pub mod drawings;
mod html;
mod links;
mod markdown;
mod pages;
mod stage;

use crate::cache::{self, Key, Restart};
use crate::data::Data;
use crate::progress;
use crate::sysroot;
use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `lab docs`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Copy the site into this directory, which must not exist or be empty
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw anew what is committed (diagrams by the host's `dot`, figures from the baseline) and end
    #[arg(long)]
    draw: bool,
}

/// Runs it.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.draw {
        for path in drawings::draw()? {
            println!("{}", path.display());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut wrong = wrong()?;
    let book = cache::work().join("docs");
    let site = book.join("site");
    stage::lay_out(&book)?;
    build(&book)?;
    let (pages, links) = html::broken(&site, &mut wrong)?;
    for line in &wrong {
        eprintln!("{line}");
    }
    if !wrong.is_empty() {
        bail!("{} things are wrong with the documentation", wrong.len());
    }
    let place = match &arguments.out {
        Some(out) => copy(&site, out)?,
        None => site,
    };
    println!(
        "{pages} pages, {links} links, none broken: {}",
        place.join("index.html").display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Complaints about the sources.
pub fn wrong() -> Result<Vec<String>> {
    let mut found = links::broken()?;
    found.extend(drawings::stale()?);
    found.extend(pages::wide()?);
    found.extend(pages::unmarked()?);
    found.extend(pages::manuals()?);
    found.extend(pages::alerts());
    found.extend(pages::versions()?);
    Ok(found)
}

/// mdBook, built once for each version and compiler.
fn mdbook() -> Result<PathBuf> {
    let version = &Data::get().docs.mdbook;
    let sysroot = sysroot::get()?;
    let mut key = Key::new();
    key.add("mdbook", version.as_bytes());
    key.add("rustc", sysroot.rustc_version()?.as_bytes());
    let dir = cache::entry("tool", "mdbook", &key, Restart::Clean, |dir| {
        let mut command = sysroot.command("cargo");
        command
            .args([
                "install",
                "--locked",
                "--no-default-features",
                "--features",
                "search",
            ])
            .args(["--version", version, "--root"])
            .arg(dir)
            .arg("mdbook")
            .env("CARGO_TARGET_DIR", dir.join("target"));
        progress::run(
            &format!("mdbook {version}: building"),
            &mut command,
            &dir.join("build.log"),
        )?;
        cache::remove(&dir.join("target"))
    })?;
    Ok(dir.join("bin/mdbook"))
}

/// Makes `book/site` of `book/book.toml` and `book/src`.
fn build(book: &Path) -> Result<()> {
    let program = mdbook()?;
    let mut command = sysroot::get()?.command(program);
    command.arg("build").arg(book);
    let out = progress::during("docs: mdbook", || command.output().context("mdbook"))?;
    let text = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() || text.contains("[WARN]") || text.contains("[ERROR]") {
        bail!("mdbook: {}", text.trim());
    }
    Ok(())
}

/// Copies the site to where it is wanted.
fn copy(site: &Path, out: &Path) -> Result<PathBuf> {
    let taken = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if taken {
        bail!("{} is not empty", out.display());
    }
    for file in stage::files_below(site)? {
        let target = out.join(&file);
        stage::copy(&site.join(&file), &target)?;
    }
    Ok(out.to_path_buf())
}
