// SPDX-License-Identifier: GPL-2.0

//! `lab bench`: what a socket costs, counted in instructions.
//!
//! The guest runs on one emulated CPU whose clock advances by 1 ns for each
//! instruction, so its times are instruction counts and repeat to under half a
//! percent on any machine, however busy.

use super::boot::{exit_status, Which};
use crate::guest::cluster::{Options, Stream};
use anyhow::{bail, Result};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `lab bench`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Times each measurement is taken; the median is shown
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Seconds one run of the program may take
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

/// Values of one metric, by family.
type Table = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

/// Reads a line `bench METRIC VALUE [UNIT]`.
fn parse(line: &str) -> Option<(String, f64)> {
    let mut words = line.trim_start_matches(['#', ' ']).split_ascii_whitespace();
    if words.next() != Some("bench") {
        return None;
    }
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs it.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let mut ready = arguments.which.boot(Options { count: true }, None)?;
    let mut table = Table::new();
    for run in 0..arguments.runs {
        for family in ["tcp", "smc"] {
            let argv = ["/rsmc/bin/bench", family].map(str::to_owned).to_vec();
            let mut lines = Vec::new();
            let outcomes = ready.collect(
                argv,
                Duration::from_secs(arguments.timeout),
                &mut |stream, line| match (stream, parse(line)) {
                    (Stream::Out, Some((metric, value))) => lines.push((metric, value)),
                    (Stream::Out, None) => {}
                    (Stream::Err, _) => eprintln!("{line}"),
                },
            )?;
            if exit_status(&outcomes) != 0 {
                bail!(
                    "bench {family}, run {run}, failed\n{}",
                    ready.cluster.last_words(0)
                );
            }
            for (metric, value) in lines {
                table
                    .entry(metric)
                    .or_default()
                    .entry(family.to_owned())
                    .or_default()
                    .push(value);
            }
        }
    }
    print!("{}", render(&table));
    ready.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The table: instructions, and the difference to TCP.
fn render(table: &Table) -> String {
    let mut text = format!(
        "{:<28} {:>14} {:>14} {:>9} {:>8}\n",
        "instructions", "TCP", "SMC", "differs", "spread"
    );
    for (metric, families) in table {
        let get = |family: &str| families.get(family).map(Vec::as_slice).unwrap_or_default();
        let (tcp, smc) = (median(get("tcp")), median(get("smc")));
        let low = get("smc").iter().copied().fold(f64::INFINITY, f64::min);
        let high = get("smc").iter().copied().fold(0.0, f64::max);
        text.push_str(&format!(
            "{metric:<28} {tcp:>14.0} {smc:>14.0} {:>+8.2}% {:>7.2}%\n",
            (smc / tcp - 1.0) * 100.0,
            (high / low - 1.0) * 100.0
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_medians() {
        assert_eq!(parse("bench ping 12345 ns"), Some(("ping".into(), 12345.0)));
        assert_eq!(parse("# bench ping 1.5"), Some(("ping".into(), 1.5)));
        assert_eq!(parse("ok 1 - bench"), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
