// SPDX-License-Identifier: GPL-2.0

//! The picture on the front page: a few of the committed figures.

use super::baseline::{self, Figures};
use super::plot;
use anyhow::{Context, Result};

/// What is shown, by metric, in words.
const METRICS: [(&str, &str); 6] = [
    ("pingpong_64", "64 bytes"),
    ("pingpong_16384", "16 KiB"),
    ("bulk_per_KiB", "bulk"),
    ("redis_set_20", "Redis SET"),
    ("nginx_keep", "nginx, kept alive"),
    ("connect_request_close", "connect and close"),
];
/// Sets of the baseline: prefix in words, name, the column that is ours and the one that it competes with.
const SETS: [(&str, &str, &str, &str); 2] = [
    ("one host", "local on bench", "local", "AF_UNIX"),
    ("two hosts", "SMC-R on bench", "SMC-R", "C SMC-R"),
];
const TCP: &str = "TCP";
const OURS: &str = "rsmc";
const OTHER: &str = "one host: AF_UNIX; two hosts, soft-RoCE: the C module";

/// Draws them, as SVG.
pub fn svg() -> Result<String> {
    let sets = baseline::load()?;
    let mut shown = Figures::new();
    for (words, set, ours, other) in SETS {
        let figures = sets
            .get(set)
            .with_context(|| format!("the baseline has no \"{set}\""))?;
        for (metric, what) in METRICS {
            let Some(row) = figures.get(metric) else {
                continue;
            };
            let cells = [(TCP, TCP), (ours, OURS), (other, OTHER)].into_iter();
            let cells = cells.filter_map(|(from, to)| Some((to.to_owned(), *row.get(from)?)));
            shown.insert(format!("{words}, {what}"), cells.collect());
        }
    }
    plot::svg("Instructions", &[TCP, OURS, OTHER], &[OURS], &shown)
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_that_is_named_is_there() {
        let drawing = super::svg().unwrap();
        for (words, ..) in super::SETS {
            let rows = drawing.matches(&format!("{words}, ")).count();
            // All but, with `one host`, the legend's mention.
            assert!(rows >= super::METRICS.len(), "{rows} of {words}");
        }
    }
}
