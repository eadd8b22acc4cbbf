// SPDX-License-Identifier: GPL-2.0

//! The case `monitoring`: `tools/monitoring` with Debian's Prometheus, on what `rsmc` writes in a guest.

use super::guest;
use crate::cache;
use crate::guest::cluster::Options;
use crate::progress;
use crate::root::{self, Setting};
use anyhow::Result;
use std::fs;
use std::path::Path;

/// Makes the layer with Prometheus and what asks it.
const LAYER: &str = "\
apt-get -q update
apt-get -qy install --no-install-recommends prometheus prometheus-node-exporter curl jq
apt-get clean
";

/// Runs it with the packages; true if it passed, and what it said.
pub fn run(debs: &Path, work: &Path) -> Result<(bool, Vec<String>)> {
    let layer = root::small()?.with("monitoring", LAYER)?;
    let log = work.join("monitoring-guest.log");
    let stage = guest::stage(debs)?;
    let (fine, said) = guest::run(&stage, Options::default(), &["metrics.sh"], &log)?;
    if !fine {
        return Ok((false, said));
    }
    let dir = work.join("monitoring");
    cache::remove(&dir)?;
    let metrics = dir.join("metrics");
    fs::create_dir_all(&metrics)?;
    let printed = fs::read_to_string(&log)?;
    for name in ["first.prom", "second.prom"] {
        let prefix = format!("{name}: ");
        let lines = printed
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix));
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        fs::write(metrics.join(name), text)?;
    }
    let (rules, tests) = (
        cache::top().join("tools/monitoring"),
        cache::top().join("tools/deb/test"),
    );
    let bound: [(&Path, &str); 3] = [
        (&metrics, "/metrics"),
        (&rules, "/monitoring"),
        (&tests, "/test"),
    ];
    // Its ports are nobody else's.
    let setting = Setting {
        offline: true,
        ..Setting::default()
    };
    let mut command = layer.command(&dir, setting, &bound)?;
    command.args(["sh", "/run/test/monitoring.sh"]);
    let log = work.join("monitoring.log");
    fs::write(&log, "")?;
    let done = progress::run("packages.monitoring", &mut command, &log);
    let mut lines = said;
    lines.extend(super::test::said(&log)?);
    if let Err(error) = &done {
        lines.push(format!("{error:#}"));
    }
    cache::remove(&dir)?;
    Ok((done.is_ok(), lines))
}
