// SPDX-License-Identifier: GPL-2.0

//! Small programs in languages with network code of their own, for the conformance tests. Built in the
//! sysroot, with Debian's compilers.

use crate::{cache, progress, sysroot};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A program: its source below `selftests/conformance/programs`, what it is called in `/rsmc/bin`, and the
/// shell command that makes `$OUT` of `$IN`.
struct Foreign {
    source: &'static str,
    product: &'static str,
    command: &'static str,
}

const PROGRAMS: [Foreign; 2] = [
    Foreign {
        source: "echo.go",
        product: "echo-go",
        command: "GOCACHE=$DIR/go GOPATH=$DIR/path GOTOOLCHAIN=local CGO_ENABLED=0 GO111MODULE=off go build -o $OUT $IN",
    },
    Foreign {
        source: "Echo.java",
        product: "echo.jar",
        command: "rm -rf $DIR/java && javac -d $DIR/java $IN && jar --create --file $OUT --main-class Echo -C $DIR/java .",
    },
];

/// Builds them all, those whose source has not changed excepted.
pub fn build() -> Result<Vec<PathBuf>> {
    let directory = cache::work().join("foreign");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let _lock = cache::lock_file(&directory.join("lock"))?;
    PROGRAMS
        .iter()
        .map(|program| one(program, &directory))
        .collect()
}

fn one(program: &Foreign, directory: &Path) -> Result<PathBuf> {
    let source = cache::top()
        .join("selftests/conformance/programs")
        .join(program.source);
    let text = fs::read(&source).with_context(|| source.display().to_string())?;
    let (product, built) = (
        directory.join(program.product),
        directory.join(program.source),
    );
    if !product.exists() || fs::read(&built).ok().as_ref() != Some(&text) {
        let mut command = sysroot::get()?.command("sh");
        command.args(["-c", program.command]);
        command
            .env("DIR", directory)
            .env("IN", &source)
            .env("OUT", &product);
        let log = product.with_extension("log");
        progress::run(&format!("{}: building", program.source), &mut command, &log)?;
        // What it was made from; written last, so that a half-built one is built again.
        fs::write(&built, text)?;
    }
    Ok(product)
}
