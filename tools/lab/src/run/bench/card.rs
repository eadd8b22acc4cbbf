// SPDX-License-Identifier: GPL-2.0

//! `lab bench --card`: what sockets cost over a card. A model card (`selftests/kmod/card`) is in
//! place of soft-RoCE; what it executes itself, hardware does, and is taken off.

use super::baseline::Figures;
use super::columns::{Column, OVER_VETH};
use super::owners;
use super::profile::{Functions, Measured, Profiler, PROGRAMS};
use super::table::median;
use super::Arguments;
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;

/// Metrics that are measured.
const METRICS: [&str; 16] = [
    "pingpong_64",
    "pingpong_16384",
    "bulk_per_KiB",
    "request_0001",
    "request_0016",
    "request_0256",
    "connect_close",
    "connect_request_close",
    "redis_set_1",
    "redis_set_20",
    "redis_set_64",
    "redis_set_512",
    "redis_set_20_P16",
    "nginx_keep",
    "nginx_close",
    BUSY,
];

/// A ping-pong whose ends busy-poll, which only our sockets do: half a round trip. The same with a longer wire executes
/// more polls that find nothing, and nothing else.
const BUSY: &str = "busy_poll_64";
const BUSY_FAR: &str = "far_busy_poll_64";
/// A function that a poll executes once if it has found nothing, and else not.
const IN_VAIN: &str = "rsmc_helper_sk_busy_loop_is_over [rsmc]";

/// Beginnings of names of figures: the card's part as well; less what the programs execute; the
/// module's functions alone.
pub const WITH_CARD: &str = "with_card_";
pub const KERNEL: &str = "kernel_";
const MODULE: &str = "module_";
const WITH_POLLS: &str = "with_polls_";
const DELAY: &str = "delay_";

const TCP: &str = "TCP";
const YARDSTICK: &str = "C SMC-R";
const OURS: &str = "SMC-R";

/// Width of a figure.
const WIDTH: usize = 10;

/// Instructions for each operation.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Row {
    /// All, the card's as well.
    all: f64,
    /// What the card does by itself.
    card: f64,
    /// Of the rest, the programs'.
    programs: f64,
    /// In functions of the module.
    module: f64,
    /// In polls that found nothing, the programs' and the card's not counted.
    polls: f64,
    /// From a doorbell until the program has what was sent, less the wire's time.
    delay: f64,
}

impl Row {
    /// What the host executes.
    fn host(&self) -> f64 {
        self.all - self.card
    }

    fn kernel(&self) -> f64 {
        self.host() - self.programs
    }

    /// The kernel's, but for polls that found nothing.
    fn unpolled(&self) -> f64 {
        self.kernel() - self.polls
    }

    /// Takes note of polls in vain: what one of them costs tells `far`, which has more of them and nothing else.
    fn note_polls(&mut self, near: &Measured, far: &Measured, module: &str) {
        let vain = |found: &Measured| {
            let spent = found.functions.get(IN_VAIN).map_or(0, |n| n.own);
            spent as f64 / found.ops.max(1) as f64
        };
        let more = vain(far) - vain(near);
        if more > 0.0 {
            self.polls = vain(near) / more * (row(far, module).kernel() - self.kernel());
        }
    }
}

/// Returns whether the programs that are measured do something themselves, a share that moves with
/// how many events one wake-up finds.
fn is_of_programs(metric: &str) -> bool {
    metric.starts_with("redis") || metric.starts_with("nginx")
}

/// Adds up. The guest's clock tells all instructions as in the other sets, where the program says
/// what it has found by it; else it is what was counted.
fn row(found: &Measured, module: &str) -> Row {
    let per = |n: i64| n as f64 / found.ops.max(1) as f64;
    let module = format!(" [{module}]");
    let sum = |of: &dyn Fn(&str) -> bool| {
        let some = found.functions.iter().filter(|(name, _)| of(name));
        per(some.map(|(_, n)| n.own).sum())
    };
    let card = per(found.functions.values().map(|n| n.wire).sum());
    Row {
        all: found.shown.unwrap_or_else(|| sum(&|_| true) + card),
        card,
        programs: sum(&|name| name == PROGRAMS),
        module: sum(&|name| name.ends_with(&module)),
        polls: 0.0,
        delay: found.delay.unwrap_or(0.0),
    }
}

/// Fails if the card's instructions are not told from the host's: a function of the hardware is
/// always the card's, and one of the driver or of a module never.
fn judge(metric: &str, column: &Column, found: &Functions) -> Result<()> {
    let sum = |of: &dyn Fn(&str) -> bool| {
        let some = found.iter().filter(|(name, _)| of(name));
        some.fold((0i64, 0i64), |(own, card), (_, n)| {
            (own.saturating_add(n.own), card.saturating_add(n.wire))
        })
    };
    let (strayed, card) = sum(&owners::is_card);
    let (own, astray) = sum(&|name| {
        let host = ["[rsmc]", "[smc]", "[card]"]
            .iter()
            .any(|m| name.ends_with(m));
        host && !owners::is_card(name)
    });
    if strayed.saturating_mul(100) > card || astray.saturating_mul(100) > own {
        bail!("{metric}: {astray} of {own} instructions of modules are the card's, {strayed} of {card} of the card the host's");
    }
    let (_, all) = sum(&|_| true);
    let without = column.name == OVER_VETH;
    if without != (all == 0) {
        bail!("{metric}, {}: the card has executed {all}", column.name);
    }
    Ok(())
}

/// The metric that a figure of the baseline is about.
fn metric_of(name: &str) -> &str {
    let prefixes = [WITH_CARD, KERNEL, MODULE, WITH_POLLS, DELAY];
    let without = prefixes.iter().find_map(|p| name.strip_prefix(p));
    without.unwrap_or(name)
}

/// Returns whether a figure, by its name in the baseline, is asked for.
pub fn asked(arguments: &Arguments, name: &str) -> bool {
    asks(arguments.only.as_deref(), metric_of(name))
}

/// Programs take most of the time, so only if they are named.
fn asks(only: Option<&str>, metric: &str) -> bool {
    match only {
        Some(only) => only.split(',').any(|one| metric.starts_with(one)),
        None => !is_of_programs(metric),
    }
}

type Rows = BTreeMap<&'static str, BTreeMap<&'static str, Vec<Row>>>;

/// Measures, prints the table and returns the medians.
pub fn measure(arguments: &Arguments, columns: &[&'static Column]) -> Result<Figures> {
    let metrics: Vec<_> = METRICS
        .into_iter()
        .filter(|metric| asked(arguments, metric))
        .collect();
    if metrics.is_empty() {
        bail!(
            "no such metric over a card; there are: {}",
            METRICS.join(", ")
        );
    }
    let held = arguments.check || arguments.save;
    let runs = arguments.runs.unwrap_or(arguments.set().runs(held));
    let mut rows = Rows::new();
    // Each is a boot.
    let modules = ["rsmc", "smc", "none"].into_iter();
    for (module, over_port) in modules.flat_map(|module| [(module, true), (module, false)]) {
        let mut profiler = None;
        let here = |c: &&&Column| c.module == module && c.is_over_port() == over_port;
        for column in columns.iter().filter(here) {
            let has = |metric: &str| column.has(metric) && (metric != BUSY || column.name == OURS);
            for metric in metrics.iter().filter(|metric| has(metric)) {
                for run in 0..runs {
                    let what = || format!("{metric}, column {}, run {run}", column.name);
                    let profiler = match &mut profiler {
                        Some(profiler) => profiler,
                        none => none.insert(Profiler::boot(arguments, column)?),
                    };
                    let found = profiler
                        .measure(arguments, column, metric)
                        .with_context(what)?;
                    judge(metric, column, &found.functions)?;
                    let mut row = row(&found, column.module);
                    if *metric == BUSY {
                        let far = profiler
                            .measure(arguments, column, BUSY_FAR)
                            .with_context(what)?;
                        row.note_polls(&found, &far, column.module);
                    }
                    let cells = rows.entry(metric).or_default();
                    cells.entry(column.name).or_default().push(row);
                }
            }
        }
        if let Some(profiler) = profiler {
            profiler.finish()?;
        }
    }
    let names: Vec<_> = columns.iter().map(|c| c.name).collect();
    print!("{}", render(&names, &metrics, &rows));
    Ok(figures(&rows))
}

/// The median of a part of all runs.
fn middle(rows: &[Row], of: impl Fn(&Row) -> f64) -> f64 {
    median(&rows.iter().map(of).collect::<Vec<f64>>())
}

/// A part of a row.
struct Part {
    /// What the table calls it.
    name: &'static str,
    /// The beginning of its name in the baseline; none if that does not hold it.
    prefix: Option<&'static str>,
    of: fn(&Row) -> f64,
    /// Whether it says something of a metric and a column.
    shown: fn(&str, &str) -> bool,
}

const PARTS: [Part; 8] = [
    Part {
        name: "host",
        prefix: Some(""),
        of: Row::host,
        shown: |metric, _| metric != BUSY,
    },
    Part {
        name: "not polling",
        prefix: Some(""),
        of: Row::unpolled,
        shown: |metric, _| metric == BUSY,
    },
    Part {
        name: "= with polls",
        prefix: Some(WITH_POLLS),
        of: Row::kernel,
        shown: |metric, _| metric == BUSY,
    },
    Part {
        name: "delay, ns",
        prefix: Some(DELAY),
        of: |row| row.delay,
        shown: |metric, _| metric == BUSY,
    },
    Part {
        name: "+ card",
        prefix: None,
        of: |row| row.card,
        shown: |metric, column| column != OVER_VETH && metric != BUSY,
    },
    Part {
        name: "= all",
        prefix: Some(WITH_CARD),
        of: |row| row.all,
        shown: |metric, column| column != OVER_VETH && metric != BUSY,
    },
    Part {
        name: "less programs",
        prefix: Some(KERNEL),
        of: Row::kernel,
        shown: |metric, _| is_of_programs(metric),
    },
    Part {
        name: "module alone",
        prefix: Some(MODULE),
        of: |row| row.module,
        shown: |metric, column| [YARDSTICK, OURS].contains(&column) && metric != BUSY,
    },
];

/// As text: a line for each part.
fn render(columns: &[&'static str], metrics: &[&'static str], rows: &Rows) -> String {
    let mut text = format!("{:<22} {:<14}", "instructions", "part");
    for name in columns {
        text.push_str(&format!(" {name:>WIDTH$}"));
    }
    text.push_str("  of TCP   of C\n");
    for metric in metrics {
        let Some(cells) = rows.get(metric) else {
            continue;
        };
        for part in PARTS {
            let value = |column: &str| {
                let rows = cells.get(column).filter(|_| (part.shown)(metric, column))?;
                Some(middle(rows, part.of))
            };
            if columns.iter().all(|column| value(column).is_none()) {
                continue;
            }
            text.push_str(&format!("{metric:<22} {:<14}", part.name));
            for column in columns {
                match value(column) {
                    Some(n) => text.push_str(&format!(" {n:>WIDTH$.0}")),
                    None => text.push_str(&format!(" {:>WIDTH$}", "-")),
                }
            }
            for base in [TCP, YARDSTICK] {
                match (value(OURS), value(base)) {
                    (Some(n), Some(base)) if part.prefix.is_some() => {
                        text.push_str(&format!(" {:>7.3}", n / base));
                    }
                    _ => text.push_str("        "),
                }
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
    }
    text
}

/// For the baseline.
fn figures(rows: &Rows) -> Figures {
    let mut figures = Figures::new();
    for (metric, cells) in rows {
        for part in PARTS {
            let Some(prefix) = part.prefix else { continue };
            let shown = |column: &str| (part.shown)(metric, column);
            for (column, rows) in cells.iter().filter(|(column, _)| shown(column)) {
                let row = figures.entry(format!("{prefix}{metric}")).or_default();
                row.insert((*column).to_owned(), middle(rows, part.of));
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::super::columns::{fitting_set, Set};
    use super::super::profile::Spent;
    use super::*;

    fn column(name: &str) -> &'static Column {
        let all = fitting_set(Set::Card);
        all.into_iter().find(|c| c.name == name).unwrap()
    }

    fn measured(cells: &[(&str, i64, i64)], shown: Option<f64>) -> Measured {
        let cell = |(name, own, wire): &(&str, i64, i64)| {
            let (own, wire) = (*own, *wire);
            ((*name).to_owned(), Spent { own, wire })
        };
        Measured {
            functions: cells.iter().map(cell).collect(),
            ops: 2,
            shown,
            delay: None,
        }
    }

    const CELLS: [(&str, i64, i64); 5] = [
        ("smc_sendmsg [smc]", 100, 0),
        ("card_post_send [card]", 20, 0),
        ("hw_execute [card]", 0, 50),
        ("memcpy ", 10, 30),
        (PROGRAMS, 8, 0),
    ];

    #[test]
    fn parts() {
        let counted = row(&measured(&CELLS, None), "smc");
        let all = Row {
            all: 109.0,
            card: 40.0,
            programs: 4.0,
            module: 50.0,
            ..Row::default()
        };
        assert_eq!(counted, all);
        assert_eq!([all.host(), all.kernel()], [69.0, 65.0]);
        let shown = row(&measured(&CELLS, Some(100.0)), "smc");
        assert_eq!([shown.host(), shown.card], [60.0, 40.0]);
    }

    /// Of two polls in vain the near one has one, the far one three, and each costs 10; the rest is 90.
    #[test]
    fn polls_in_vain() {
        let found = |polls: i64| {
            let spent = polls.wrapping_mul(20);
            let mut found = measured(&[("smc_sendmsg [rsmc]", 180, 0), (PROGRAMS, 8, 0)], None);
            found.delay = Some(70.0);
            for (name, own) in [(IN_VAIN, spent / 4), ("napi_busy_loop ", spent / 4 * 3)] {
                found.functions.insert(name.into(), Spent { own, wire: 0 });
            }
            found
        };
        let (near, far) = (found(1), found(3));
        let mut row = row(&near, "rsmc");
        row.note_polls(&near, &far, "rsmc");
        assert_eq!(
            [row.polls, row.unpolled(), row.kernel()],
            [10.0, 90.0, 100.0]
        );
        let rows: Rows = [(BUSY, [(OURS, vec![row])].into_iter().collect())].into();
        let figures = figures(&rows);
        let of = |name: &str| figures[name][OURS];
        let told = [
            "busy_poll_64",
            "with_polls_busy_poll_64",
            "delay_busy_poll_64",
        ]
        .map(of);
        assert_eq!(told, [90.0, 100.0, 70.0]);
        assert_eq!(figures.len(), 3);
        assert!(asks(None, metric_of("delay_busy_poll_64")));
    }

    #[test]
    fn judged() {
        let all = measured(&CELLS, None).functions;
        assert!(judge("m", column("C SMC-R"), &all).is_ok());
        assert!(judge("m", column("TCP"), &all).is_ok());
        assert!(judge("m", column(OVER_VETH), &all).is_err());
        let mut strayed = all.clone();
        strayed.insert("hw_ring [card]".into(), Spent { own: 9, wire: 0 });
        assert!(judge("m", column("C SMC-R"), &strayed).is_err());
        let mut astray = all;
        astray.insert("card_poll_cq [card]".into(), Spent { own: 0, wire: 9 });
        assert!(judge("m", column("C SMC-R"), &astray).is_err());
        let none = measured(&CELLS[..2], None).functions;
        assert!(judge("m", column("C SMC-R"), &none).is_err());
        assert!(judge("m", column("TCP"), &none).is_err());
        assert!(judge("m", column(OVER_VETH), &none).is_ok());
    }

    #[test]
    fn what_is_asked_for() {
        let of = |only, name| asks(only, metric_of(name));
        assert!(of(None, "with_card_pingpong_64") && of(None, "module_connect_close"));
        assert!(!of(None, "kernel_redis_set_1") && !of(None, "nginx_keep"));
        assert!(of(Some("ping,redis"), "kernel_redis_set_1"));
        assert!(!of(Some("ping,redis"), "module_bulk_per_KiB"));
    }

    #[test]
    fn medians() {
        let run = |all, card| Row {
            all,
            card,
            ..Row::default()
        };
        let runs = vec![run(100.0, 10.0), run(120.0, 50.0), run(90.0, 10.0)];
        let rows: Rows = [("bulk_per_KiB", [(OURS, runs)].into_iter().collect())].into();
        let figures = figures(&rows);
        assert_eq!(figures["bulk_per_KiB"][OURS], 80.0);
        assert_eq!(figures["with_card_bulk_per_KiB"][OURS], 100.0);
        // It is no program's, and TCP was not measured.
        assert_eq!(figures.get("kernel_bulk_per_KiB"), None);
        let text = render(&[TCP, OURS], &["bulk_per_KiB", "connect_close"], &rows);
        assert!(
            text.contains("host                    -         80\n"),
            "{text}"
        );
        assert!(!text.contains("connect_close"), "{text}");
    }

    #[test]
    fn table_and_figures() {
        let one = row(&measured(&CELLS, None), "smc");
        let twice = Row { all: 178.0, ..one };
        let cells = [
            ("TCP", vec![one]),
            (OVER_VETH, vec![one]),
            ("C SMC-R", vec![one]),
            ("SMC-R", vec![twice]),
        ];
        let rows: Rows = [("redis_set_1", cells.into_iter().collect())].into();
        let columns = ["TCP", OVER_VETH, "C SMC-R", "SMC-R"];
        let text = render(&columns, &["redis_set_1"], &rows);
        assert!(
            text.contains(
                "host                   69         69         69        138   2.000   2.000\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("+ card                 40          -         40         40\n"),
            "{text}"
        );
        let figures = figures(&rows);
        assert_eq!(figures["redis_set_1"]["SMC-R"], 138.0);
        assert_eq!(figures["with_card_redis_set_1"]["SMC-R"], 178.0);
        assert_eq!(figures["kernel_redis_set_1"]["TCP"], 65.0);
        assert_eq!(figures["with_card_redis_set_1"].get(OVER_VETH), None);
        assert_eq!(metric_of("with_card_redis_set_1"), "redis_set_1");
    }
}
