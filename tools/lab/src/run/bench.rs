// SPDX-License-Identifier: GPL-2.0

//! `lab bench`: what a socket costs, counted in instructions.
//!
//! The guest runs on one emulated CPU whose clock advances by 1 ns for each
//! instruction, so its times are instruction counts and repeat to under half a
//! percent on any machine, however busy.

use super::boot::{exit_status, Which};
use crate::guest::cluster::{Options, Stream};
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
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
    /// Divide the amounts, for a quick look
    #[arg(long, default_value_t = 1)]
    scale: u32,
    /// Seconds one run of the program may take
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Write medians as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Who plays which end: the name of the column, and the program's arguments.
type Column = (&'static str, &'static [&'static str]);

/// Without RDMA devices every connection falls back. The second and third have
/// one end that is an ordinary TCP socket.
const FALLBACK: &[Column] = &[
    ("TCP", &["tcp"]),
    ("client", &["inet", "tcp"]),
    ("server", &["tcp", "inet"]),
    ("both", &["inet"]),
    ("AF_SMC", &["smc"]),
];
const RDMA: &[Column] = &[("TCP", &["tcp"]), ("SMC-R", &["inet", "--mode", "0"])];

/// Values of one metric, by column.
type Table = BTreeMap<String, BTreeMap<&'static str, Vec<f64>>>;

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
    let columns = match (arguments.which.module.as_str(), arguments.which.rdma) {
        ("none", _) => &FALLBACK[..1],
        (_, true) => RDMA,
        (_, false) => FALLBACK,
    };
    let mut ready = arguments.which.boot(Options { count: true }, None)?;
    let mut table = Table::new();
    for run in 0..arguments.runs {
        for (name, ends) in columns {
            let mut argv = vec!["/rsmc/bin/bench".to_owned()];
            argv.extend(ends.iter().map(|&end| end.to_owned()));
            argv.extend(["--scale".to_owned(), arguments.scale.to_string()]);
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
                    "bench {name}, run {run}, failed\n{}",
                    ready.cluster.last_words(0)
                );
            }
            for (metric, value) in lines {
                let row = table.entry(metric).or_default();
                row.entry(name).or_default().push(value);
            }
        }
    }
    print!("{}", render(columns, &table));
    if let Some(file) = &arguments.json {
        std::fs::write(file, json(columns, &table)).with_context(|| file.display().to_string())?;
    }
    ready.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The table: instructions, and for each column its difference to the first
/// and how far its runs are apart.
fn render(columns: &[Column], table: &Table) -> String {
    let mut text = format!("{:<24}", "instructions");
    for (i, (name, _)) in columns.iter().enumerate() {
        text.push_str(&format!(" {name:>10}"));
        if i > 0 {
            text.push_str(&format!(" {:>8} {:>6}", "differs", "spread"));
        }
    }
    text.push('\n');
    for (metric, row) in table {
        let get = |name: &str| row.get(name).map(Vec::as_slice).unwrap_or_default();
        let base = columns
            .first()
            .map_or(f64::NAN, |(name, _)| median(get(name)));
        text.push_str(&format!("{metric:<24}"));
        for (i, (name, _)) in columns.iter().enumerate() {
            let value = median(get(name));
            text.push_str(&format!(" {value:>10.0}"));
            if i > 0 {
                let low = get(name).iter().copied().fold(f64::INFINITY, f64::min);
                let high = get(name).iter().copied().fold(0.0, f64::max);
                text.push_str(&format!(
                    " {:>+7.2}% {:>5.2}%",
                    (value / base - 1.0) * 100.0,
                    (high / low - 1.0) * 100.0
                ));
            }
        }
        text.push('\n');
    }
    text
}

/// `{"metric": {"column": median, ...}, ...}`; names need no escapes.
fn json(columns: &[Column], table: &Table) -> String {
    let rows: Vec<String> = table
        .iter()
        .map(|(metric, row)| {
            let cells: Vec<String> = columns
                .iter()
                .filter_map(|(name, _)| Some((name, row.get(name)?)))
                .map(|(name, values)| format!("\"{name}\": {:.1}", median(values)))
                .collect();
            format!("  \"{metric}\": {{{}}}", cells.join(", "))
        })
        .collect();
    format!("{{\n{}\n}}\n", rows.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_medians() {
        assert_eq!(parse("bench ping 12345 ns"), Some(("ping".into(), 12345.0)));
        assert_eq!(parse("# bench ping 1.5"), Some(("ping".into(), 1.5)));
        assert_eq!(parse("ok 1 - bench"), None);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn tables() {
        let mut table = Table::new();
        let row = table.entry("ping".into()).or_default();
        row.insert("TCP", vec![100.0]);
        row.insert("SMC-R", vec![150.0]);
        let text = render(RDMA, &table);
        assert!(text.contains("+50.00%"), "{text}");
        assert_eq!(
            json(RDMA, &table),
            "{\n  \"ping\": {\"TCP\": 100.0, \"SMC-R\": 150.0}\n}\n"
        );
    }
}
