// SPDX-License-Identifier: GPL-2.0

//! The picture on the front page: a few of the committed figures.

use super::baseline::{self, Figures};
use super::plot;
use anyhow::{Context, Result};

/// A set of the baseline, and what is shown of it.
struct Shown {
    /// The beginning of its rows.
    words: &'static str,
    set: &'static str,
    /// The column that is TCP's, the one that is ours, and the one that it competes with.
    tcp: &'static str,
    ours: &'static str,
    other: &'static str,
    /// Metrics, each in words.
    metrics: &'static [(&'static str, &'static str)],
}

const SETS: [Shown; 2] = [
    Shown {
        words: "one host",
        set: "local on bench",
        tcp: TCP,
        ours: "local",
        other: "AF_UNIX",
        metrics: &[
            ("pingpong_64", "64 bytes"),
            ("pingpong_16384", "16 KiB"),
            ("bulk_per_KiB", "bulk"),
            ("redis_set_20", "Redis SET"),
            ("nginx_keep", "nginx, kept alive"),
            ("connect_request_close", "connect and close"),
        ],
    },
    // Over model cards, less what a card does by itself; of programs the kernel's part. TCP goes by the cards' Ethernet
    // ports.
    Shown {
        words: "two hosts",
        set: "card on bench",
        tcp: TCP,
        ours: "SMC-R",
        other: "C SMC-R",
        metrics: &[
            ("pingpong_64", "64 bytes"),
            ("pingpong_16384", "16 KiB"),
            ("bulk_per_KiB", "bulk"),
            ("request_0016", "request"),
            ("kernel_redis_set_1", "Redis, 1 client"),
            ("kernel_redis_set_20", "Redis, 20 clients"),
            ("kernel_redis_set_64", "Redis, 64 clients"),
            ("kernel_nginx_keep", "nginx, kept alive"),
            ("connect_request_close", "connect and close"),
        ],
    },
];
const TCP: &str = "TCP";
const OURS: &str = "rsmc";
const OTHER: &str = "one host: AF_UNIX; two hosts, over a model card: the C module";

/// Draws them, as SVG.
pub fn svg() -> Result<String> {
    let sets = baseline::load()?;
    let mut shown = Figures::new();
    for Shown {
        words,
        set,
        tcp,
        ours,
        other,
        metrics,
    } in SETS
    {
        let figures = sets
            .get(set)
            .with_context(|| format!("the baseline has no \"{set}\""))?;
        for (metric, what) in metrics {
            let Some(row) = figures.get(*metric) else {
                continue;
            };
            let cells = [(tcp, TCP), (ours, OURS), (other, OTHER)].into_iter();
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
        for shown in super::SETS {
            for (metric, what) in shown.metrics {
                let row = format!("{}, {what}", shown.words);
                assert!(drawing.contains(&row), "{metric}: no {row}");
            }
        }
    }
}
