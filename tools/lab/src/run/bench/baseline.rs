// SPDX-License-Identifier: GPL-2.0

//! The committed figures, and whether measured ones are as good.

use super::card;
use crate::cache;
use crate::docs::drawings;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where they are, in the checkout.
const FILE: &str = "selftests/bench/baseline.json";

/// Metric, column, median. Of all of them less is better.
pub type Figures = BTreeMap<String, BTreeMap<String, f64>>;
/// By the kind of run.
pub type Sets = BTreeMap<String, Figures>;

/// As JSON, a line for each metric, so that differences are read as such. Names need no escapes.
pub fn json(sets: &Sets) -> String {
    let set = |(name, figures): (&String, &Figures)| {
        let row = |(metric, cells): (&String, &BTreeMap<String, f64>)| {
            let cell = |(column, value): (&String, &f64)| format!("\"{column}\": {value:.1}");
            let cells: Vec<String> = cells.iter().map(cell).collect();
            format!("    \"{metric}\": {{{}}}", cells.join(", "))
        };
        let rows: Vec<String> = figures.iter().map(row).collect();
        format!("  \"{name}\": {{\n{}\n  }}", rows.join(",\n"))
    };
    let sets: Vec<String> = sets.iter().map(set).collect();
    format!("{{\n{}\n}}\n", sets.join(",\n"))
}

/// The committed figures; none if there is no file yet.
pub(super) fn load() -> Result<Sets> {
    let path = cache::top().join(FILE);
    if !path.exists() {
        return Ok(Sets::new());
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Takes figures over into the file; what was not measured stays as it is.
pub fn save(name: &str, figures: &Figures) -> Result<()> {
    let path = cache::top().join(FILE);
    let mut sets = load()?;
    let set = sets.entry(name.to_owned()).or_default();
    for (metric, cells) in figures {
        set.entry(metric.clone()).or_default().extend(cells.clone());
    }
    fs::write(&path, json(&sets)).with_context(|| path.display().to_string())?;
    println!("{FILE}: {} metrics of \"{name}\" renewed", figures.len());
    drawings::draw_figures()
}

/// Returns the excess over the baseline that is no regression yet: a share, no less than two runs of the same code may
/// differ by, and an amount for figures that are next to nothing (memory, in KiB).
fn allowed(metric: &str) -> (f64, f64) {
    let (share, amount): (f64, f64) = match metric {
        m if m.starts_with("memory") => (0.02, 1.0),
        // The median of five single events.
        "first_contact" => (0.08, 0.0),
        _ => (0.02, 0.0),
    };
    (share.max(repeats(metric) / 100.0), amount)
}

/// Result of a comparison, in words.
#[derive(Debug, Default)]
struct Verdict {
    worse: Vec<String>,
    better: Vec<String>,
    same: usize,
}

/// Compares the columns that are ours. A figure of the baseline that is `wanted` and was not
/// measured is a regression, too.
fn compare(base: &Figures, now: &Figures, ours: &[&str], wanted: &dyn Fn(&str) -> bool) -> Verdict {
    let mut verdict = Verdict::default();
    let get = |set: &Figures, metric: &str, column: &str| set.get(metric)?.get(column).copied();
    for metric in base.keys().filter(|metric| wanted(metric)) {
        for column in ours {
            let Some(old) = get(base, metric, column) else {
                continue;
            };
            let Some(new) = get(now, metric, column) else {
                let text = format!("{metric} ({column}): not measured");
                verdict.worse.push(text);
                continue;
            };
            let (share, amount) = allowed(metric);
            let slack = (old.abs() * share).max(amount);
            let text = || {
                let change = (new - old) / old.abs().max(0.1) * 100.0;
                let share = share * 100.0;
                format!(
                    "{metric} ({column}): {old:.1} -> {new:.1}, {change:+.1} % (allowed {share} %)"
                )
            };
            if new > old + slack {
                verdict.worse.push(text());
            } else if new < old - slack {
                verdict.better.push(text());
            } else {
                verdict.same += 1;
            }
        }
    }
    for (metric, cells) in now {
        for column in ours {
            if cells.contains_key(*column) && get(base, metric, column).is_none() {
                let text = format!("{metric} ({column}): not in the baseline");
                verdict.worse.push(text);
            }
        }
    }
    verdict
}

/// Compares with the committed figures and says what changed; whether nothing got worse.
pub fn check(
    name: &str,
    now: &Figures,
    ours: &[&str],
    wanted: &dyn Fn(&str) -> bool,
) -> Result<bool> {
    let sets = load()?;
    let none = Figures::new();
    let base = sets.get(name).unwrap_or(&none);
    let any = |set: &Figures| {
        set.values()
            .any(|row| ours.iter().any(|c| row.contains_key(*c)))
    };
    if !any(base) && !any(now) {
        println!("\n\"{name}\": nothing of ours was measured, and {FILE} has nothing of it");
        return Ok(true);
    }
    let verdict = compare(base, now, ours, wanted);
    println!(
        "\n\"{name}\" against {FILE}: {} as they were, {} better, {} worse",
        verdict.same,
        verdict.better.len(),
        verdict.worse.len()
    );
    for text in &verdict.better {
        println!("better: {text}");
    }
    for text in &verdict.worse {
        println!("WORSE:  {text}");
    }
    if !verdict.better.is_empty() || !verdict.worse.is_empty() {
        println!("Where a change is meant, `make bench-save` renews the baseline (ARGS=\"--only METRIC,...\" a part of it).");
    }
    Ok(verdict.worse.is_empty() && verdict.same + verdict.better.len() > 0)
}

/// By how much two runs of the same code may differ, in percent: what moves bytes in bulk depends on how
/// packets meet, and programs are timed to the millisecond.
fn repeats(metric: &str) -> f64 {
    let over_card = [card::WITH_CARD, card::KERNEL];
    let without = over_card
        .iter()
        .find_map(|prefix| metric.strip_prefix(prefix));
    match without.unwrap_or(metric) {
        // About one trip in a hundred has a timer's tick in it: the percentile is one with or one without.
        m if m.ends_with("_p99") => 20.0,
        m if m.starts_with("bulk") => 5.0,
        // How many softirqs ksoftirqd takes over differs between boots, and its switches are own: two modes.
        m if m.starts_with("own_") => 14.0,
        m if ["iperf3", "redis", "nginx"]
            .iter()
            .any(|p| m.starts_with(p)) =>
        {
            5.0
        }
        _ => 1.0,
    }
}

/// KiB of a connection, of which a thousand are measured, that slabs and pages in stock make of it.
const STOCK: f64 = 0.5;

/// Compares with the figures of an earlier run of the same code; whether they are the same.
pub fn against(file: &Path, name: &str, now: &Figures) -> Result<bool> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let sets: Sets = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    let Some(before) = sets.get(name) else {
        anyhow::bail!("{} has no figures of \"{name}\"", file.display());
    };
    let (lines, same) = differences(before, now);
    println!("\n\"{name}\" against {}:", file.display());
    for line in lines {
        println!("{line}");
    }
    Ok(same)
}

/// For each metric the column that moved most, and whether none moved too far.
fn differences(before: &Figures, now: &Figures) -> (Vec<String>, bool) {
    let mut same = true;
    let mut lines = Vec::new();
    for (metric, cells) in now {
        let moved = |(column, value): (&String, &f64)| {
            let old = *before.get(metric)?.get(column)?;
            let by = match value - old {
                by if metric.starts_with("memory") && by.abs() <= STOCK => 0.0,
                by => by,
            };
            Some((column.clone(), by / old.abs().max(0.1) * 100.0))
        };
        let all = cells.iter().filter_map(moved);
        let Some((column, change)) = all.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())) else {
            continue;
        };
        let far = change.abs() > repeats(metric);
        same &= !far;
        let mark = if far { "  TOO FAR" } else { "" };
        lines.push(format!("{metric:<28} {change:+8.2} % ({column}){mark}"));
    }
    (lines, same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(cells: &[(&str, &str, f64)]) -> Figures {
        let mut found = Figures::new();
        for (metric, column, value) in cells {
            let row = found.entry((*metric).into()).or_default();
            row.insert((*column).into(), *value);
        }
        found
    }

    #[test]
    fn tolerance() {
        let base = figures(&[
            ("ping", "TCP", 50.0),
            ("ping", "SMC-R", 100.0),
            ("bulk_per_KiB", "SMC-R", 100.0),
            ("memory_after_close", "SMC-R", 0.1),
        ]);
        let judge = |ping, bulk, memory| {
            let now = figures(&[
                ("ping", "TCP", 99.0),
                ("ping", "SMC-R", ping),
                ("bulk_per_KiB", "SMC-R", bulk),
                ("memory_after_close", "SMC-R", memory),
            ]);
            let verdict = compare(&base, &now, &["SMC-R"], &|_| true);
            (verdict.worse.len(), verdict.better.len(), verdict.same)
        };
        assert_eq!(judge(101.9, 104.9, 1.0), (0, 0, 3));
        assert_eq!(judge(102.1, 104.9, 1.0), (1, 0, 2));
        assert_eq!(judge(97.0, 105.1, 1.2), (2, 1, 0));
    }

    #[test]
    fn tolerance_of_what_is_coarse() {
        let base = figures(&[
            ("ping_p99", "local", 100.0),
            ("first_contact", "local", 100.0),
            ("redis_set_20", "local", 17_600.0),
        ]);
        let worse = |tail, first, redis| {
            let now = figures(&[
                ("ping_p99", "local", tail),
                ("first_contact", "local", first),
                ("redis_set_20", "local", redis),
            ]);
            compare(&base, &now, &["local"], &|_| true).worse.len()
        };
        // A millisecond of redis-benchmark's clock is 200 of these.
        assert_eq!(worse(119.0, 107.0, 18_400.0), 0);
        assert_eq!(worse(121.0, 109.0, 18_600.0), 3);
    }

    #[test]
    fn what_repeats_is_no_regression() {
        for metric in [
            "own_pingpong_64",
            "nginx_keep",
            "redis_get_1",
            "iperf3_per_KiB",
            "ping",
        ] {
            let share = repeats(metric) / 100.0;
            let base = figures(&[(metric, "local", 12_300.0)]);
            let now = figures(&[(metric, "local", 12_300.0 * (1.0 + share * 0.99))]);
            let verdict = compare(&base, &now, &["local"], &|_| true);
            assert_eq!(verdict.worse, Vec::<String>::new(), "{metric}");
        }
    }

    #[test]
    fn two_runs() {
        let run = |ping, bulk, memory| {
            figures(&[
                ("ping", "TCP", 50.0),
                ("ping", "SMC-R", ping),
                ("bulk_per_KiB", "SMC-R", bulk),
                ("memory_after_close", "SMC-R", memory),
            ])
        };
        let first = run(100.0, 100.0, 0.0);
        assert!(differences(&first, &run(99.1, 104.9, 0.4)).1);
        assert!(!differences(&first, &run(101.1, 100.0, 0.0)).1);
        assert!(!differences(&first, &run(100.0, 94.0, 0.0)).1);
        let (lines, same) = differences(&first, &run(100.0, 100.0, 0.6));
        assert!(!same && lines.iter().any(|line| line.contains("TOO FAR")));
    }

    #[test]
    fn gaps() {
        let base = figures(&[("ping", "SMC-R", 100.0), ("pong", "SMC-R", 1.0)]);
        let now = figures(&[("ping", "SMC-R", 100.0), ("new", "SMC-R", 1.0)]);
        let verdict = compare(&base, &now, &["SMC-R"], &|_| true);
        assert_eq!(verdict.worse.len(), 2, "{verdict:?}");
        let verdict = compare(&base, &now, &["SMC-R"], &|m| m == "ping");
        assert_eq!(verdict.worse, ["new (SMC-R): not in the baseline"]);
    }

    #[test]
    fn there_and_back() {
        let mut sets = Sets::new();
        sets.insert("a".into(), figures(&[("m", "x", 1.5), ("m", "y", 2.0)]));
        sets.insert("b".into(), figures(&[("n", "x", -0.5)]));
        let text = json(&sets);
        let back: Sets = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back, sets);
    }
}
