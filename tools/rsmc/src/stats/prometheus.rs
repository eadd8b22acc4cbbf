// SPDX-License-Identifier: GPL-2.0
//! `rsmc stats --prometheus`: the counters in the text format of Prometheus.

mod promotion;

use super::tree::Node;
use super::{FallbackReason, Statistics};
use crate::error::{Error, Result};
use crate::reason::Told;
use crate::visible;
use smc_proto::reason::Reason;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A metric: name without prefix, type, help text, and its samples (labels and value).
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<(String, u64)>,
}

impl Metric {
    fn new(name: &'static str, kind: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind,
            help,
            samples: Vec::new(),
        }
    }

    fn add(&mut self, labels: &[(&str, &str)], value: u64) {
        self.samples.push((braces(labels), value));
    }

    fn write(&self, out: &mut dyn Write) -> Result<()> {
        if self.samples.is_empty() {
            return Ok(());
        }
        writeln!(out, "# HELP smc_{} {}", self.name, self.help)?;
        writeln!(out, "# TYPE smc_{} {}", self.name, self.kind)?;
        for (labels, value) in &self.samples {
            writeln!(out, "smc_{}{labels} {value}", self.name)?;
        }
        Ok(())
    }
}

fn braces(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", label(value)))
        .collect();
    format!("{{{}}}", labels.join(","))
}

/// A label's value: one line, and what the format itself means by a character before it.
fn label(value: &str) -> String {
    let shown = visible::text(value);
    shown.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Writes all of them. Nothing is left out because it is zero.
///
/// # Errors
/// Errors of writing to `out`.
pub fn write(statistics: &Statistics, out: &mut dyn Write) -> Result<()> {
    for metric in own(statistics) {
        metric.write(out)?;
    }
    for metric in of_technologies(&statistics.counters) {
        metric.write(out)?;
    }
    request_sizes(&statistics.counters, out)?;
    match &statistics.began_as_tcp {
        Some(shown) => promotion::write(shown, out),
        None => Ok(()),
    }
}

/// Writes all of them into a new file and puts it in the place of `file`, for a collector that may
/// read at any time. What it is called meanwhile does not end in `.prom`.
///
/// # Errors
/// Errors of writing; `file` is as it was then.
pub fn replace(statistics: &Statistics, file: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    write(statistics, &mut bytes)?;
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    let placed = fs::write(&new, bytes).and_then(|()| fs::rename(&new, file));
    placed.map_err(|error| {
        // Nothing is left of it; if that fails, too, the first error says more.
        let _ = fs::remove_file(&new);
        Error::at(file, error)
    })
}

fn own(statistics: &Statistics) -> Vec<Metric> {
    let fallback = &statistics.fallback;
    let mut errors = Metric::new(
        "handshake_errors_total",
        "counter",
        "SMC handshakes that failed",
    );
    let mut fallbacks = Metric::new(
        "fallbacks_total",
        "counter",
        "Connections that became TCP connections",
    );
    for (role, count) in [("client", fallback.client), ("server", fallback.server)] {
        let failed = statistics
            .counters
            .count(&format!("{role}_handshake_errors"));
        errors.add(&[("role", role)], failed);
        fallbacks.add(&[("role", role)], count);
    }
    let mut reasons = Metric::new(
        "fallback_reasons_total",
        "counter",
        "Connections that became TCP connections, by reason",
    );
    for entry in &fallback.reasons {
        let labels = [
            ("role", entry.role),
            ("reason", entry.reason.name),
            ("code", &entry.reason.code),
        ];
        reasons.add(&labels, entry.count);
    }
    // Those that have not occurred, too: a counter that is first seen at 1 has not increased to Prometheus.
    for role in ["client", "server"] {
        for reason in Reason::ALL {
            let Told { code, name, .. } = Told::new(reason.code());
            let listed = |entry: &FallbackReason| entry.role == role && entry.reason.code == code;
            if !fallback.reasons.iter().any(listed) {
                reasons.add(&[("role", role), ("reason", name), ("code", &code)], 0);
            }
        }
    }
    let mut refused = Metric::new(
        "strict_refused_total",
        "counter",
        "Connections that failed instead of becoming TCP connections",
    );
    if let Some(count) = fallback.strict_refused {
        refused.add(&[], count);
    }
    let mut bytes = Metric::new(
        "tcp_bytes_total",
        "counter",
        "Bytes that went by TCP, for sockets that did not become SMC",
    );
    for (direction, count) in [
        ("sent", fallback.tcp_sent_bytes),
        ("received", fallback.tcp_received_bytes),
    ] {
        if let Some(count) = count {
            bytes.add(&[("direction", direction)], count);
        }
    }
    vec![errors, fallbacks, reasons, refused, bytes]
}

/// Each technology's counters, with a label that tells which.
fn of_technologies(counters: &Node) -> Vec<Metric> {
    let mut connections = Metric::new(
        "connections_total",
        "counter",
        "Connections that became SMC",
    );
    let mut bytes = Metric::new("bytes_total", "counter", "Bytes of programs over SMC");
    let mut calls = Metric::new(
        "calls_total",
        "counter",
        "Data calls of programs on SMC sockets",
    );
    let mut special = Metric::new(
        "special_calls_total",
        "counter",
        "Calls with or for a special treatment",
    );
    let mut sizes = Metric::new(
        "connection_buffers_total",
        "counter",
        "Connections by the size of their buffer in bytes",
    );
    let mut events = Metric::new("buffer_events_total", "counter", "What happened to buffers");
    let mut memory = Metric::new("buffer_bytes", "gauge", "Memory of buffers there are now");
    for (technology, node) in technologies(counters) {
        let mode = ("mode", technology);
        for role in ["client", "server"] {
            for version in ["1", "2"] {
                let count = node.count(&format!("{role}_v{version}"));
                connections.add(&[mode, ("role", role), ("version", version)], count);
            }
        }
        for call in ["sendpage", "splice", "cork", "nodelay", "urgent"] {
            let count = node.count(&format!("{call}_calls"));
            special.add(&[mode, ("call", call)], count);
        }
        for direction in ["rx", "tx"] {
            let labels = [mode, ("direction", direction)];
            bytes.add(&labels, node.count(&format!("{direction}_bytes")));
            calls.add(&labels, node.count(&format!("{direction}_requests")));
            memory.add(&labels, node.count(&format!("{direction}_buffer_bytes")));
            for (size, count) in counts(node, &format!("{direction}_buffer_sizes")) {
                let labels = [mode, ("direction", direction), ("size", &bound(size))];
                sizes.add(&labels, count);
            }
            for (event, count) in counts(node, &format!("{direction}_buffers")) {
                let labels = [mode, ("direction", direction), ("event", event)];
                events.add(&labels, count);
            }
        }
    }
    vec![connections, bytes, calls, special, sizes, events, memory]
}

/// Calls by size: the one that is a histogram to Prometheus as well, because the sum is known.
fn request_sizes(counters: &Node, out: &mut dyn Write) -> Result<()> {
    let name = "smc_call_size_bytes";
    writeln!(out, "# HELP {name} Bytes of data calls")?;
    writeln!(out, "# TYPE {name} histogram")?;
    for (technology, node) in technologies(counters) {
        for direction in ["rx", "tx"] {
            let labels = [("mode", technology), ("direction", direction)];
            let mut sum = 0u64;
            for (size, count) in counts(node, &format!("{direction}_request_sizes")) {
                sum = sum.saturating_add(count);
                let labels = [labels[0], labels[1], ("le", &bound(size))];
                writeln!(out, "{name}_bucket{} {sum}", braces(&labels))?;
            }
            let labels = braces(&labels);
            let bytes = node.count(&format!("{direction}_bytes"));
            writeln!(
                out,
                "{name}_sum{labels} {bytes}\n{name}_count{labels} {sum}"
            )?;
        }
    }
    Ok(())
}

fn technologies(counters: &Node) -> impl Iterator<Item = (&'static str, &Node)> {
    let names = ["smc_r", "smc_d"].into_iter();
    names.filter_map(|name| Some((name, counters.get(name)?)))
}

fn counts<'a>(node: &'a Node, name: &str) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    let inside = match node.get(name) {
        Some(Node::Group(nodes)) => nodes.as_slice(),
        _ => &[],
    };
    inside.iter().filter_map(|(name, node)| match node {
        Node::Count(count) => Some((*name, *count)),
        Node::Group(_) => None,
    })
}

/// The upper bound of a bucket in bytes.
fn bound(size: &str) -> String {
    let kib = size
        .strip_suffix('k')
        .and_then(|kib| kib.parse::<u64>().ok());
    kib.map_or("+Inf".into(), |kib| (kib * 1024).to_string())
}

#[cfg(test)]
mod shipped;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    #[test]
    fn a_file_is_replaced_at_once() {
        let directory = std::env::temp_dir().join(format!("rsmc-prom-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("rsmc.prom");
        fs::write(&file, "old").unwrap();
        replace(&sample(), &file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# HELP") && text.ends_with('\n'), "{text}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        // A directory cannot be replaced by a file: an error, and nothing is left.
        fs::create_dir(directory.join("taken")).unwrap();
        assert!(replace(&sample(), &directory.join("taken")).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        fs::remove_dir_all(&directory).unwrap();
        assert!(replace(&sample(), &file).is_err());
    }

    #[test]
    fn a_label_cannot_end_its_line() {
        let value = "a\"} 1\nb\\c\x1b[2J";
        let shown = r#"{l="a\"} 1\\u000ab\\c\\u001b[2J"}"#;
        assert_eq!(braces(&[("l", value)]), shown);
    }

    #[test]
    fn the_format() {
        let mut out = Vec::new();
        write(&sample(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "# TYPE smc_connections_total counter",
            "smc_connections_total{mode=\"smc_r\",role=\"client\",version=\"2\"} 2",
            "smc_fallback_reasons_total{role=\"client\",reason=\"PEERNOSMC\",code=\"0x03010000\"} 1",
            "smc_fallback_reasons_total{role=\"server\",reason=\"PEERNOSMC\",code=\"0x03010000\"} 0",
            "smc_strict_refused_total 0",
            "smc_tcp_first_total{role=\"client\"} 9",
            "smc_local_total{role=\"client\"} 2",
            "smc_promotions_begun_total{role=\"client\"} 5",
            "smc_promotions_total{role=\"client\",result=\"done\"} 3",
            "smc_promotions_total{role=\"client\",result=\"failed\"} 2",
            "smc_promotions_total{role=\"client\",result=\"refused\"} 1",
            "smc_promotion_reasons_total{role=\"client\",reason=\"PATHREFUSED\",code=\"0x0306010c\"} 2",
            "smc_promotion_reasons_total{role=\"server\",reason=\"PATHREFUSED\",code=\"0x0306010c\"} 0",
            "smc_given_back_total 1",
            "smc_promotion_seconds_bucket{role=\"client\",le=\"0.000512\"} 0",
            "smc_promotion_seconds_bucket{role=\"client\",le=\"0.001024\"} 2",
            "smc_promotion_seconds_bucket{role=\"client\",le=\"4.194304\"} 2",
            "smc_promotion_seconds_bucket{role=\"client\",le=\"+Inf\"} 3",
            "smc_promotion_seconds_sum{role=\"client\"} 0.009",
            "smc_promotion_seconds_count{role=\"client\"} 3",
            "smc_promotion_longest_seconds{role=\"client\"} 0.007",
            "smc_tcp_bytes_total{direction=\"sent\"} 70000",
            "smc_buffer_events_total{mode=\"smc_r\",direction=\"tx\",event=\"full\"} 6",
            "smc_call_size_bytes_bucket{mode=\"smc_r\",direction=\"tx\",le=\"8192\"} 3",
            "smc_call_size_bytes_bucket{mode=\"smc_r\",direction=\"tx\",le=\"65536\"} 4",
            "smc_call_size_bytes_bucket{mode=\"smc_r\",direction=\"tx\",le=\"+Inf\"} 8",
            "smc_call_size_bytes_sum{mode=\"smc_r\",direction=\"tx\"} 9000",
            "smc_call_size_bytes_count{mode=\"smc_r\",direction=\"tx\"} 8",
            "smc_buffer_bytes{mode=\"smc_r\",direction=\"tx\"} 131072",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let series = text.lines().map(|line| line.rsplit_once(' ').unwrap().0);
        let mut series: Vec<&str> = series.filter(|series| series.starts_with("smc_")).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), all, "a series is there twice");
        // Each metric is described once, and only described ones are there.
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(name);
            let described = text.matches(&format!("# TYPE {family} ")).count();
            assert_eq!(described, 1, "{line}");
        }
    }
}
