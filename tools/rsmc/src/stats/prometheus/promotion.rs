// SPDX-License-Identifier: GPL-2.0
//! Metrics of connections that began as TCP.

use super::{braces, Metric};
use crate::error::Result;
use crate::promotion::{bounds, Ends, Reason, Shown};
use crate::reason::Told;
use smc_proto::reason::Reason as Code;
use std::io::Write;

/// Reasons that are printed with 0 before they occur: a counter that is first seen at 1 has not increased to Prometheus.
const USUAL: [Code; 7] = [
    Code::NoMemory,
    Code::NoDevice,
    Code::PathAttached,
    Code::PathEnds,
    Code::PathRefused,
    Code::PathUnreached,
    Code::PathSoftware,
];

/// Writes all of them.
///
/// # Errors
/// Errors of writing to `out`.
pub fn write(shown: &Shown, out: &mut dyn Write) -> Result<()> {
    let ends = [("client", &shown.client), ("server", &shown.server)];
    for metric in counters(shown, &ends) {
        metric.write(out)?;
    }
    times(&ends, out)
}

fn counters(shown: &Shown, ends: &[(&str, &Ends); 2]) -> Vec<Metric> {
    let counter = |name, help| Metric::new(name, "counter", help);
    let mut first = counter("tcp_first_total", "Connections that began as TCP");
    let mut local = counter(
        "local_total",
        "Ends of connections that have left TCP for memory",
    );
    let mut begun = counter(
        "promotions_begun_total",
        "Attempts to promote a connection to SMC-R",
    );
    let mut ended = counter(
        "promotions_total",
        "Attempts to promote a connection to SMC-R that have ended, and connections without one",
    );
    for (role, ends) in ends {
        let role = ("role", *role);
        first.add(&[role], ends.connections);
        local.add(&[role], ends.local);
        begun.add(&[role], ends.begun);
        for (result, count) in [
            ("done", ends.done),
            ("failed", ends.failed),
            ("refused", ends.refused),
        ] {
            ended.add(&[role, ("result", result)], count);
        }
    }
    let mut returned = counter(
        "promotions_returned_total",
        "Promoted connections that have gone back to TCP",
    );
    for (role, ends) in ends {
        let mut counts = ends.returned;
        for (cause, count) in counts.counts() {
            returned.add(&[("role", role), ("cause", cause)], *count);
        }
    }
    let mut reasons = counter(
        "promotion_reasons_total",
        "Why connections were not promoted to SMC-R",
    );
    for entry in &shown.reasons {
        let labels = [
            ("role", entry.role),
            ("reason", entry.reason.name),
            ("code", &entry.reason.code),
        ];
        reasons.add(&labels, entry.count);
    }
    for (role, _) in ends {
        for reason in USUAL {
            let Told { code, name, .. } = Told::new(reason.code());
            let listed = |entry: &Reason| entry.role == *role && entry.reason.code == code;
            if !shown.reasons.iter().any(listed) {
                reasons.add(&[("role", role), ("reason", name), ("code", &code)], 0);
            }
        }
    }
    let mut given_back = counter(
        "given_back_total",
        "Connections that began as TCP and were left to it for good",
    );
    given_back.add(&[], shown.given_back);
    vec![first, local, begun, ended, returned, reasons, given_back]
}

fn times(all: &[(&str, &Ends); 2], out: &mut dyn Write) -> Result<()> {
    let name = "smc_promotion_seconds";
    writeln!(
        out,
        "# HELP {name} From the beginning of an attempt to the turn of this end"
    )?;
    writeln!(out, "# TYPE {name} histogram")?;
    for (role, ends) in all {
        let role = ("role", *role);
        let mut sum = 0u64;
        for bound in bounds() {
            let here = ends.times.iter().filter(|times| times.below_us == bound);
            sum = here.fold(sum, |sum, times| sum.saturating_add(times.count));
            let le = bound.map_or("+Inf".into(), |us| (us as f64 / 1e6).to_string());
            writeln!(out, "{name}_bucket{} {sum}", braces(&[role, ("le", &le)]))?;
        }
        let (labels, seconds) = (braces(&[role]), ends.ns as f64 / 1e9);
        writeln!(
            out,
            "{name}_sum{labels} {seconds}\n{name}_count{labels} {sum}"
        )?;
    }
    let name = "smc_promotion_longest_seconds";
    writeln!(out, "# HELP {name} The longest of these times")?;
    writeln!(out, "# TYPE {name} gauge")?;
    for (role, ends) in all {
        let seconds = ends.longest_ns as f64 / 1e9;
        writeln!(out, "{name}{} {seconds}", braces(&[("role", role)]))?;
    }
    Ok(())
}
