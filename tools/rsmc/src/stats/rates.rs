// SPDX-License-Identifier: GPL-2.0
//! `rsmc stats --interval`: how much of what per second.

use super::tree::{is_amount, Flat};
use super::Statistics;
use crate::error::Result;
use crate::table;
use serde_json::{json, Map, Value};
use std::io::Write;
use std::time::{Duration, Instant};

/// Head of a column of the text, and the endings of the counters' names that it adds up.
type Column = (&'static str, &'static [&'static str]);

const COLUMNS: [Column; 8] = [
    (
        "SMC conn/s",
        &[".client_v1", ".client_v2", ".server_v1", ".server_v2"],
    ),
    ("Fallback/s", &["fallback.client", "fallback.server"]),
    ("Errors/s", &["handshake_errors"]),
    ("Recv B/s", &[".rx_bytes"]),
    ("Sent B/s", &[".tx_bytes"]),
    ("Recv/s", &[".rx_requests"]),
    ("Send/s", &[".tx_requests"]),
    ("Full/s", &["_buffers.full", "_buffers.peer_full"]),
];
/// The head is printed again after this number of lines.
const PAGE: u64 = 20;

/// Prints rates until `count` lines are printed or for ever.
///
/// # Errors
/// The kernel's errors, and those of writing to `out`.
pub fn run(
    first: Statistics,
    interval: Duration,
    count: Option<u64>,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let mut before = (Instant::now(), first.flat());
    for line in 0.. {
        if count.is_some_and(|count| line >= count) {
            break;
        }
        std::thread::sleep(interval);
        let now = (Instant::now(), Statistics::collect()?.flat());
        let rates = Rates::new(&before.1, &now.1, now.0.duration_since(before.0));
        if json {
            serde_json::to_writer(&mut *out, &rates.json())?;
            writeln!(out)?;
        } else {
            if line % PAGE == 0 {
                let head = COLUMNS.map(|(name, _)| format!("{name:>11}"));
                writeln!(out, "{}", head.concat())?;
            }
            writeln!(out, "{}", rates.row())?;
        }
        out.flush()?;
        before = now;
    }
    Ok(())
}

/// Counters per second.
#[derive(Debug)]
pub struct Rates {
    seconds: f64,
    rates: Vec<(String, f64)>,
}

impl Rates {
    /// From two looks at the counters. One that went backwards starts from 0.
    pub fn new(before: &Flat, now: &Flat, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-6);
        let rate = |(path, now): (&String, &u64)| {
            let before = before.get(path).copied().unwrap_or(0);
            let more = now.checked_sub(before).unwrap_or(*now);
            (path.clone(), more as f64 / seconds)
        };
        let counters = now.iter().filter(|(path, _)| !is_amount(path));
        Self {
            seconds,
            rates: counters.map(rate).collect(),
        }
    }

    /// The sum of the counters whose names end so.
    pub fn sum(&self, endings: &[&str]) -> f64 {
        let mine = |path: &str| endings.iter().any(|ending| path.ends_with(ending));
        let rates = self.rates.iter().filter(|(path, _)| mine(path));
        rates.fold(0.0, |sum, (_, rate)| sum + rate)
    }

    fn row(&self) -> String {
        COLUMNS
            .map(|(name, endings)| {
                let rate = self.sum(endings);
                let text = match name.contains("B/s") {
                    true => table::size(rate as u64),
                    false => table::count(rate),
                };
                format!("{text:>11}")
            })
            .concat()
    }

    /// The rate of each counter, by its name.
    pub fn by_counter(&self) -> Map<String, Value> {
        let rates = self.rates.iter();
        rates
            .map(|(path, rate)| (path.clone(), json!(rate)))
            .collect()
    }

    fn json(&self) -> Value {
        json!({"seconds": self.seconds, "per_second": self.by_counter()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn rates() {
        let now = sample().flat();
        let mut before = now.clone();
        before.insert("smc_r.tx_bytes".into(), 5000);
        before.insert("smc_r.client_v2".into(), 1);
        before.insert("fallback.client".into(), 0);
        before.insert("smc_r.tx_buffers.full".into(), 7);
        let rates = Rates::new(&before, &now, Duration::from_secs(2));
        assert_eq!(rates.sum(&[".tx_bytes"]), 2000.0);
        // Went backwards: the module was loaded anew.
        assert_eq!(rates.sum(&["_buffers.full"]), 3.0);
        let cells: Vec<String> = rates.row().split_whitespace().map(Into::into).collect();
        assert_eq!(cells, ["0.5", "0.5", "0", "0", "2.0K", "0", "0", "3"]);
        let json = rates.json();
        assert_eq!(json["per_second"]["smc_r.tx_bytes"], 2000.0);
        assert_eq!(json["per_second"]["smc_r.tx_buffer_bytes"], Value::Null);
    }
}
