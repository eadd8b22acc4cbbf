// SPDX-License-Identifier: GPL-2.0
//! The sizes of buffers and calls, as bars of text. [`plot`](super::plot) draws the same.

use super::tree::Node;
use crate::error::Result;
use std::io::Write;

/// A histogram of the statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Name of what is counted.
    pub title: String,
    /// Upper bounds and counts.
    pub bars: Vec<(String, u64)>,
}

impl Histogram {
    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.bars
            .iter()
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The largest count.
    pub fn most(&self) -> u64 {
        self.bars.iter().map(|(_, count)| *count).max().unwrap_or(0)
    }
}

const KINDS: [(&str, &str); 4] = [
    ("tx_request_sizes", "send calls by size"),
    ("rx_request_sizes", "receive calls by size"),
    ("tx_buffer_sizes", "connections by send buffer"),
    ("rx_buffer_sizes", "connections by receive buffer"),
];

/// The histograms of each technology that was used at all.
pub fn all(counters: &Node) -> Vec<Histogram> {
    let mut found = Vec::new();
    for (technology, name) in [("smc_r", "SMC-R"), ("smc_d", "SMC-D")] {
        let Some(technology) = counters.get(technology) else {
            continue;
        };
        for (kind, words) in KINDS {
            let Some(Node::Group(sizes)) = technology.get(kind) else {
                continue;
            };
            let histogram = Histogram {
                title: format!("{name} {words}"),
                bars: sizes
                    .iter()
                    .filter_map(|(size, count)| match count {
                        Node::Count(count) => Some((bound(size), *count)),
                        Node::Group(_) => None,
                    })
                    .collect(),
            };
            if histogram.total() > 0 {
                found.push(histogram);
            }
        }
    }
    found
}

/// The kernel's bucket in words.
fn bound(size: &str) -> String {
    match size.strip_suffix('k') {
        Some("1024") => "1 MiB".into(),
        Some(kib) => format!("{kib} KiB"),
        None => "more".into(),
    }
}

/// Width of the longest bar.
const WIDTH: u64 = 40;

/// Prints them.
///
/// # Errors
/// Errors of writing to `out`.
pub fn tell(counters: &Node, out: &mut dyn Write) -> Result<()> {
    let all = all(counters);
    if all.is_empty() {
        writeln!(out, "No connection has used SMC.")?;
    }
    for (number, histogram) in all.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let total = histogram.total();
        writeln!(out, "{} ({total}):", histogram.title)?;
        for (bound, count) in &histogram.bars {
            let share = *count as f64 * 100.0 / total as f64;
            let length = (*count as f64 * WIDTH as f64 / histogram.most() as f64).ceil();
            let bar = "#".repeat(length as usize);
            let width = WIDTH as usize;
            writeln!(out, "{bound:>9}  {bar:<width$}  {count} ({share:.1} %)")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn bars() {
        let counters = sample().counters;
        let found = all(&counters);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].bars[2], ("more".to_string(), 4));
        let mut out = Vec::new();
        tell(&counters, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("SMC-R send calls by size (8):\n"),
            "{text}"
        );
        let bar = "#".repeat(30);
        assert!(
            text.contains(&format!("    8 KiB  {bar}            3 (37.5 %)")),
            "{text}"
        );
    }

    #[test]
    fn nothing_yet() {
        let mut out = Vec::new();
        tell(&Node::Group(Vec::new()), &mut out).unwrap();
        assert_eq!(out, b"No connection has used SMC.\n");
    }
}
