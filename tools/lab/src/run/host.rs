// SPDX-License-Identifier: GPL-2.0

//! Tests that need no guest: `cargo test` of the protocol crate and the tools,
//! and the builds.

use super::user;
use crate::kernel::Kernel;
use crate::ktap::Point;
use crate::progress::Watch;
use crate::{cache, kernel, module};
use anyhow::{Context, Result};
use rustix::pipe::{pipe_with, PipeFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

/// Directories with crates whose tests run on the host.
pub const CRATES: &[&str] = &["rust/proto", "tools"];

/// Runs a directory's `cargo test`; `seen` gets each point as it comes. `None`
/// if there is no such crate.
pub fn cargo_test(directory: &str, seen: &mut dyn FnMut(&Point)) -> Result<Option<Point>> {
    let Some(mut command) = user::cargo(directory, "test")? else {
        return Ok(None);
    };
    command.args(["--no-fail-fast", "--workspace"]);
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    command.stdin(std::process::Stdio::null());
    command.stdout(write.try_clone()?).stderr(write);
    let mut child = command.spawn().context("cargo test")?;
    drop(command);

    let log = cache::work().join(format!("test-{}.log", directory.replace('/', "-")));
    let mut log = File::create(&log).with_context(|| log.display().to_string())?;
    let watch = Watch::new(&format!("{directory}: cargo test"));
    let mut reader = Libtest::default();
    let mut points: Vec<Point> = Vec::new();
    let mut tail = VecDeque::new();
    for line in BufReader::new(File::from(read)).split(b'\n') {
        let line = line?;
        let text = String::from_utf8_lossy(&line);
        let _ = writeln!(log, "{text}");
        watch.tick(text.trim());
        if tail.len() == 60 {
            tail.pop_front();
        }
        tail.push_back(text.to_string());
        if let Some(point) = reader.line(&text) {
            seen(&point);
            points.push(point);
        }
    }
    let status = child.wait()?;
    if !status.success() && points.iter().all(|point| point.ok) {
        points.push(Point::fail("cargo_test", tail.iter().cloned()));
        tail.clear();
    }
    let mut test = Point::of(format!("host/{directory}"), points);
    if !test.ok {
        test.notes.extend(tail);
    }
    Ok(Some(test))
}

/// Reads what the test harness of Rust prints.
#[derive(Default)]
struct Libtest {
    suite: String,
}

impl Libtest {
    fn line(&mut self, line: &str) -> Option<Point> {
        let line = line.trim();
        if let Some(what) = line.strip_prefix("Running ") {
            // "unittests src/lib.rs (DIR/NAME-HASH)" or "tests/x.rs (…)"
            let file = what.rsplit('/').next().unwrap_or(what);
            self.suite = file
                .rsplit_once('-')
                .map_or(file, |(name, _)| name)
                .to_owned();
            return None;
        }
        if let Some(what) = line.strip_prefix("Doc-tests ") {
            self.suite = format!("{what}.doc");
            return None;
        }
        let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
        // Doc tests are named by file and line: "a.rs - item (line 3)".
        let name = name
            .replace(" - ", ".")
            .replace(" (line ", ".")
            .replace([' ', ')'], "");
        let name = format!("{}/{name}", self.suite);
        match verdict.split(',').next().unwrap_or_default().trim() {
            "ok" => Some(Point::pass(name)),
            "ignored" => {
                let reason = verdict
                    .split_once(',')
                    .map_or("ignored by default", |(_, why)| why.trim());
                Some(Point::skip(name, reason))
            }
            "FAILED" => Some(Point::fail(name, Vec::new())),
            _ => None,
        }
    }
}

/// Builds a kernel if need be, and the module for it.
pub fn build(flavour: &str) -> (Point, Option<(Kernel, PathBuf)>) {
    let name = format!("build/{flavour}");
    let result = kernel::get(flavour).and_then(|kernel| {
        let built = module::make(
            &kernel,
            &module::Build {
                name: "module",
                variables: &[],
            },
        )?;
        Ok((kernel, built))
    });
    match result {
        Ok((kernel, built)) if built.warnings.is_empty() => {
            (Point::pass(name), Some((kernel, built.module)))
        }
        // A module with warnings is a failure of its own, and still tested.
        Ok((kernel, built)) => (
            Point::fail(name, built.warnings),
            Some((kernel, built.module)),
        ),
        Err(error) => {
            let text = format!("{error:#}");
            (Point::fail(name, text.lines().map(str::to_owned)), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_output_is_understood() {
        let mut reader = Libtest::default();
        assert_eq!(
            reader.line("     Running unittests src/lib.rs (/x/deps/smc_proto-0123ab)"),
            None
        );
        assert_eq!(reader.line("running 3 tests"), None);
        assert_eq!(
            reader.line("test wire::a ... ok"),
            Some(Point::pass("smc_proto/wire::a"))
        );
        assert!(!reader.line("test wire::b ... FAILED").unwrap().ok);
        assert_eq!(
            reader
                .line("test c ... ignored, slow")
                .unwrap()
                .skip
                .as_deref(),
            Some("slow")
        );
        assert_eq!(reader.line("test result: ok. 3 passed"), None);
        reader.line("   Doc-tests smc_proto");
        assert_eq!(
            reader.line("test a.rs - ring::Ring (line 7) ... ok"),
            Some(Point::pass("smc_proto.doc/a.rs.ring::Ring.7"))
        );
    }
}
