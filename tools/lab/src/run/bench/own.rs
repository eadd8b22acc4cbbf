// SPDX-License-Identifier: GPL-2.0

//! `lab bench --own`: what a socket costs without the wire that carries it, C's and ours: the
//! instructions of the module, and all that are not soft-RoCE's, IP's, UDP's or veth's.

use super::baseline::Figures;
use super::columns::Column;
use super::profile::{Functions, Profiler, PROGRAMS};
use super::Arguments;
use anyhow::{bail, Result};
use std::collections::BTreeMap;

/// Metrics that are measured.
const METRICS: [&str; 6] = [
    "pingpong_64",
    "pingpong_16384",
    "bulk_per_KiB",
    "redis_set_20",
    "connect_close",
    "connect_request_close",
];
/// By what amounts are divided: exact counts need few operations, and the plugin is slow.
const LESS: u32 = 4;
/// Columns that are compared: C's and ours.
const YARDSTICK: &str = "C SMC-R";
const OURS: &str = "SMC-R";

/// Instructions for each operation.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    /// In functions of the module.
    module: f64,
    /// All that the wire does not cause, the module's among them.
    own: f64,
    /// Of these, the program's.
    program: f64,
    /// The wire's as well.
    all: f64,
}

/// Adds up.
fn row(found: &Functions, ops: u64, module: &str) -> Row {
    let per = |n: i64| n as f64 / ops.max(1) as f64;
    let sum = |of: &dyn Fn(&str) -> bool, own: bool| {
        let some = found.iter().filter(|(name, _)| of(name));
        per(some.map(|(_, n)| if own { n.own } else { n.all() }).sum())
    };
    let module = format!(" [{module}]");
    Row {
        module: sum(&|name| name.ends_with(&module), false),
        own: sum(&|_| true, true),
        program: sum(&|name| name == PROGRAMS, true),
        all: sum(&|_| true, false),
    }
}

/// Fails if the plugin has lost track of who calls whom: a module's functions are never the wire's,
/// and soft-RoCE's never the socket's.
fn judge(metric: &str, found: &Functions) -> Result<()> {
    let sum = |modules: &[&str]| {
        let ends = |name: &str| modules.iter().any(|module| name.ends_with(module));
        let some = found.iter().filter(|(name, _)| ends(name));
        some.fold((0, 0), |(own, wire), (_, n)| (own + n.own, wire + n.wire))
    };
    let (own, astray) = sum(&[" [rsmc]", " [smc]"]);
    let (strayed, wire) = sum(&[" [rdma_rxe]"]);
    if astray.saturating_mul(100) > own || strayed.saturating_mul(100) > wire {
        bail!("{metric}: {astray} of {own} instructions of the module are the wire's, {strayed} of {wire} of rxe the socket's");
    }
    Ok(())
}

/// Returns whether the own cost of a metric is held to. That of a request of Redis is not: it is the
/// difference of two runs of programs, which have timers of their own.
fn is_held(metric: &str) -> bool {
    !metric.starts_with("redis")
}

/// Returns whether a name in the baseline is a figure of ours.
fn is_own(name: &str) -> bool {
    name.starts_with("module_") || name.starts_with("own_")
}

/// Returns whether anything but own cost is asked for.
pub fn only(arguments: &Arguments) -> bool {
    let all = |only: &String| only.split(',').all(is_own);
    arguments.own || arguments.only.as_ref().is_some_and(all)
}

/// Returns whether a figure, by its name in the baseline, is asked for.
pub fn asked(arguments: &Arguments, name: &str) -> bool {
    let only = arguments.only.as_deref().unwrap_or_default();
    let metric = name
        .trim_start_matches("module_")
        .trim_start_matches("own_");
    let begins = |prefix| name.starts_with(prefix) || (arguments.own && metric.starts_with(prefix));
    (is_own(name) || !arguments.own) && only.split(',').any(begins)
}

fn wanted(arguments: &Arguments) -> Vec<&'static str> {
    let some = |metric: &&str| {
        ["module", "own"].map(|of| asked(arguments, &format!("{of}_{metric}"))) != [false; 2]
    };
    METRICS.into_iter().filter(some).collect()
}

/// Measures; nothing where there is no C module, no emulator or nothing asked for.
pub fn measure(arguments: &Arguments, columns: &[&Column]) -> Result<Figures> {
    let metrics = wanted(arguments);
    let sides = [YARDSTICK, OURS].map(|name| columns.iter().find(|c| c.name == name));
    let [Some(c), Some(ours)] = sides else {
        return Ok(Figures::new());
    };
    if metrics.is_empty() || arguments.which.kernel.starts_with("uml") {
        return Ok(Figures::new());
    }
    let less = arguments.with_scale(arguments.scale.saturating_mul(LESS));
    // A difference of two runs needs long ones.
    let amounts = |metric: &str| {
        if metric.starts_with("redis") {
            arguments
        } else {
            &less
        }
    };
    let mut rows: BTreeMap<&str, [Row; 2]> = BTreeMap::new();
    for (side, column) in [c, ours].into_iter().enumerate() {
        let mut profiler = Profiler::boot(&less, column)?;
        for metric in &metrics {
            let found = profiler.measure(amounts(metric), column, metric)?;
            judge(metric, &found.functions)?;
            if let Some(cell) = rows.entry(metric).or_default().get_mut(side) {
                *cell = row(&found.functions, found.ops, column.module);
            }
        }
        profiler.finish()?;
    }
    print!("{}", render(&metrics, &rows));
    let mut figures = Figures::new();
    for (metric, [c, ours]) in rows {
        let cells = |a: f64, b: f64| {
            let cells = [(YARDSTICK, a), (OURS, b)];
            cells.map(|(name, n)| (name.to_owned(), n)).into()
        };
        figures.insert(format!("module_{metric}"), cells(c.module, ours.module));
        if is_held(metric) {
            figures.insert(format!("own_{metric}"), cells(c.own, ours.own));
        }
    }
    Ok(figures)
}

/// As text: C, ours and their ratio, of each part.
fn render(metrics: &[&str], rows: &BTreeMap<&str, [Row; 2]>) -> String {
    type Part = (&'static str, fn(&Row) -> f64);
    let parts: [Part; 5] = [
        ("module", |r| r.module),
        ("rest of own", |r| r.own - r.module),
        ("(program)", |r| r.program),
        ("own", |r| r.own),
        ("all", |r| r.all),
    ];
    let mut text = format!(
        "\n{:<22} {:<12} {:>10} {:>10} {:>6}\n",
        "own cost", "part", "C", "rsmc", "of C"
    );
    for metric in metrics {
        let Some([c, ours]) = rows.get(metric) else {
            continue;
        };
        let sides = (*c, *ours);
        for (name, of) in parts {
            let (c, ours) = (of(&sides.0), of(&sides.1));
            let ratio = ours / c;
            // Less than the module alone, or than nothing: two parts that do not fit each other.
            let lost = |n: f64, row: &Row| (name == "own" && n < row.module) || n < 0.0;
            let doubt = lost(c, &sides.0) || lost(ours, &sides.1);
            let doubt = if doubt {
                "  NOT SURE: its parts do not fit"
            } else {
                ""
            };
            text.push_str(&format!(
                "{metric:<22} {name:<12} {c:>10.0} {ours:>10.0} {ratio:>6.2}{doubt}\n"
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::profile::Spent;
    use super::*;

    #[test]
    fn parts() {
        let cell = |name: &str, own, wire| (name.to_owned(), Spent { own, wire });
        let found = [
            cell("smc_sendmsg [smc]", 10, 0),
            cell("smc_diag_dump [smc_diag]", 1, 0),
            cell("memcpy ", 4, 20),
            cell("rxe_post_send [rdma_rxe]", 0, 100),
            cell(PROGRAMS, 6, 0),
        ];
        let mut found: Functions = found.into_iter().collect();
        assert!(judge("m", &found).is_ok());
        let row = row(&found, 2, "smc");
        let all = [row.module, row.own, row.program, row.all];
        assert_eq!(all.map(|n| n as i64 * 2), [10, 20, 6, 140]);
        found.extend([cell("smc_recvmsg [smc]", 0, 10)]);
        assert!(judge("m", &found).is_err());
        let text = render(&["m"], &[("m", [row, row])].into_iter().collect());
        assert!(
            text.contains("own                  10         10   1.00"),
            "{text}"
        );
    }
}
