// SPDX-License-Identifier: GPL-2.0

//! The table of `lab bench`: a row for each metric, a column for each way to
//! connect.

use super::baseline::Figures;
use std::collections::BTreeMap;

/// Columns that no socket can beat; the cheapest counts.
const VERBS: [&str; 2] = ["verbs", super::columns::VERBS_IMM];

/// Width of a figure: that of the longest name of a column.
const WIDTH: usize = 13;

/// Medians and spreads of what was measured.
pub struct Table {
    title: &'static str,
    columns: Vec<&'static str>,
    rows: BTreeMap<String, BTreeMap<&'static str, Vec<f64>>>,
    units: BTreeMap<String, String>,
}

/// Reads a line `bench METRIC VALUE UNIT`.
fn parse(line: &str) -> Option<(&str, f64, &str)> {
    let mut words = line.trim_start_matches(['#', ' ']).split_ascii_whitespace();
    if words.next() != Some("bench") {
        return None;
    }
    Some((
        words.next()?,
        words.next()?.parse().ok()?,
        words.next().unwrap_or_default(),
    ))
}

/// The middle one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// By how much the largest value exceeds the smallest, in percent.
fn spread(values: &[f64]) -> f64 {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    (high / low - 1.0) * 100.0
}

impl Table {
    /// With these columns; the first is what the others are compared with.
    pub fn new(title: &'static str, columns: Vec<&'static str>) -> Table {
        Table {
            title,
            columns,
            rows: BTreeMap::new(),
            units: BTreeMap::new(),
        }
    }

    /// Takes a line of the program's output; others than results are ignored.
    pub fn take(&mut self, column: &'static str, line: &str) {
        if let Some((metric, value, unit)) = parse(line) {
            let row = self.rows.entry(metric.to_owned()).or_default();
            row.entry(column).or_default().push(value);
            self.units.insert(metric.to_owned(), unit.to_owned());
        }
    }

    fn get(&self, metric: &str, column: &str) -> &[f64] {
        let row = self.rows.get(metric);
        row.and_then(|row| row.get(column))
            .map_or(&[], Vec::as_slice)
    }

    /// As text: for each column the median, its ratio to the first column and
    /// how far its runs are apart; at last SMC-R against C and the cheaper verbs.
    pub fn render(&self) -> String {
        let versus = ["C SMC-R", "SMC-R"].map(|c| self.columns.contains(&c)) == [true; 2];
        let limits: Vec<&str> = VERBS
            .into_iter()
            .filter(|c| self.columns.contains(c))
            .collect();
        let limited = !limits.is_empty() && self.columns.contains(&"SMC-R");
        let mut text = format!("{:<24}", self.title);
        for (i, name) in self.columns.iter().enumerate() {
            text.push_str(&format!(" {name:>WIDTH$}"));
            if i > 0 {
                text.push_str(&format!(" {:>7} {:>6}", "of TCP", "spread"));
            }
        }
        text.push_str(if versus { "    of C" } else { "" });
        text.push_str(if limited { " of verbs\n" } else { "\n" });
        for metric in self.rows.keys() {
            let value = |column: &str| median(self.get(metric, column));
            let base = self.columns.first().map_or(f64::NAN, |c| value(c));
            let unit = self.units.get(metric).map_or("", String::as_str);
            let label = match unit {
                "ns" => metric.clone(),
                unit => format!("{metric} ({unit})"),
            };
            text.push_str(&format!("{label:<24}"));
            for (i, name) in self.columns.iter().enumerate() {
                let values = self.get(metric, name);
                if values.is_empty() {
                    text.push_str(&format!(" {:>WIDTH$}", "-"));
                } else {
                    let digits = if unit == "ns" { 0 } else { 1 };
                    text.push_str(&format!(" {:>WIDTH$.digits$}", value(name)));
                }
                match (i, values.is_empty()) {
                    (0, _) => (),
                    (_, true) => text.push_str(&" ".repeat(15)),
                    (_, false) => text.push_str(&format!(
                        " {:>7.3} {:>5.2}%",
                        value(name) / base,
                        spread(values)
                    )),
                }
            }
            if versus {
                text.push_str(&format!(" {:>7.3}", value("SMC-R") / value("C SMC-R")));
            }
            if limited {
                let costs = limits.iter().map(|c| value(c));
                let least = costs.fold(f64::INFINITY, f64::min);
                if least.is_finite() {
                    text.push_str(&format!(" {:>8.3}", value("SMC-R") / least));
                }
            }
            text.push('\n');
        }
        text
    }

    /// All medians.
    pub fn medians(&self) -> Figures {
        let cells = |row: &BTreeMap<&'static str, Vec<f64>>| {
            row.iter()
                .map(|(column, values)| ((*column).to_owned(), median(values)))
                .collect()
        };
        self.rows
            .iter()
            .map(|(metric, row)| (metric.clone(), cells(row)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_medians() {
        assert_eq!(parse("bench ping 12345 ns"), Some(("ping", 12345.0, "ns")));
        assert_eq!(parse("# bench ping 1.5"), Some(("ping", 1.5, "")));
        assert_eq!(parse("ok 1 - bench"), None);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn limits() {
        let columns = vec!["TCP", "verbs", "verbs imm", "SMC-R"];
        let mut table = Table::new("instructions", columns);
        table.take("verbs", "bench ping 80 ns");
        table.take("verbs imm", "bench ping 50 ns");
        table.take("SMC-R", "bench ping 75 ns");
        table.take("SMC-R", "bench pong 75 ns");
        let text = table.render();
        assert!(text.contains("1.500\n"), "{text}");
        assert_eq!(text.matches("inf").count(), 0, "{text}");
    }

    #[test]
    fn tables() {
        let mut table = Table::new("instructions", vec!["TCP", "C SMC-R", "SMC-R"]);
        table.take("TCP", "bench ping 100 ns");
        table.take("C SMC-R", "bench ping 200 ns");
        table.take("SMC-R", "bench ping 150 ns");
        table.take("SMC-R", "# not a result");
        let text = table.render();
        assert!(text.contains("1.500"), "{text}");
        assert!(text.contains("0.750"), "{text}");
        let row = &table.medians()["ping"];
        assert_eq!((row.len(), row["SMC-R"]), (3, 150.0));
    }
}
