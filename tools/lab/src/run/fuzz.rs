// SPDX-License-Identifier: GPL-2.0

//! The fuzz targets, built and given their committed corpus: what was found once stays found, and
//! a change of the protocol crate cannot leave them behind.

use super::user;
use crate::ktap::{parse::Parser, Point};
use crate::{cache, progress, sysroot};
use anyhow::Result;
use std::fs;

/// Where the targets are.
pub const DIRECTORY: &str = "rust/proto/fuzz";

/// Replays the corpus of each target.
pub fn replay() -> Result<Point> {
    let name = format!("host/{DIRECTORY}");
    let mut command = sysroot::get()?.command("sh");
    command
        .current_dir(cache::top().join(DIRECTORY))
        .args(["run.sh", "0"])
        .env("CARGO_TARGET_DIR", user::target(DIRECTORY));
    let log = cache::work().join("test-fuzz.log");
    // The log is appended to, and the whole of it is read.
    let _ = fs::remove_file(&log);
    let (status, text) = progress::watch("fuzz targets: replaying", &mut command, &log)?;
    let mut parser = Parser::default();
    for line in text.lines() {
        parser.feed(line);
    }
    let mut points = parser.finish();
    if !status.success() && points.iter().all(|point| point.ok) {
        points.push(Point::fail("run.sh", text.lines().map(str::to_owned)));
    }
    Ok(Point::of(name, points))
}
