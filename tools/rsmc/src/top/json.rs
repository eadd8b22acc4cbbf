// SPDX-License-Identifier: GPL-2.0
//! Output of `rsmc top --json`.

use super::view::{memory, Sample, View};
use crate::error::Result;
use crate::ss::entry::Entry;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::Write;

/// A picture. The names are an interface: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Picture<'a> {
    /// Time since the look before.
    seconds: f64,
    /// The connections, as they are sorted.
    connections: Vec<Connection<'a>>,
    listeners: usize,
    /// `null` where the module does not tell.
    link_groups: Option<usize>,
    /// Memory of the groups' buffers, likewise.
    buffer_bytes: Option<u64>,
    /// The namespace's counters per second, `null` where the module has none.
    per_second: Option<Map<String, Value>>,
}

/// A connection as `rsmc ss --json` has it, and what became of it.
#[derive(Debug, Serialize)]
struct Connection<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    /// Bytes; `null` where the kernel does not tell, as the next two.
    received_per_second: Option<f64>,
    sent_per_second: Option<f64>,
    /// Bytes to be read or sent.
    waiting: Option<u64>,
    /// Seconds since this program saw it first.
    seen: f64,
}

/// Writes a line with what happened since the last look.
///
/// # Errors
/// Errors of writing to `out`.
pub fn write(view: &mut View, now: Sample, out: &mut dyn Write) -> Result<()> {
    let lines = view.lines(&now);
    let connections = lines.iter().map(|line| {
        let told = |rate: f64| line.entry.bytes.map(|_| rate);
        Connection {
            entry: line.entry,
            received_per_second: told(line.received),
            sent_per_second: told(line.sent),
            waiting: line.entry.bytes.map(|_| line.waiting),
            seen: line.seen.as_secs_f64(),
        }
    });
    let listeners = now.sockets.iter().filter(|entry| entry.state == "LISTEN");
    let picture = Picture {
        seconds: view.elapsed(&now).as_secs_f64(),
        connections: connections.collect(),
        listeners: listeners.count(),
        link_groups: now.groups.as_ref().map(Vec::len),
        buffer_bytes: now.groups.as_deref().map(memory),
        per_second: view.rates(&now).map(|rates| rates.by_counter()),
    };
    serde_json::to_writer(&mut *out, &picture)?;
    writeln!(out)?;
    view.remember(now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::sample;
    use super::*;
    use crate::cli::TopSort;
    use std::time::{Duration, Instant};

    #[test]
    fn a_line_for_each_picture() {
        let start = Instant::now();
        let mut view = View::new(sample(start, 0), TopSort::Bytes, false);
        let mut out = Vec::new();
        for second in [2, 4] {
            let now = sample(start + Duration::from_secs(second), 4096);
            write(&mut view, now, &mut out).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
        let expected = [
            "buffer_bytes",
            "connections",
            "link_groups",
            "listeners",
            "per_second",
            "seconds",
        ];
        assert_eq!(keys, expected);
        assert_eq!(
            (&lines[0]["seconds"], &lines[0]["listeners"]),
            (&2.0.into(), &1.into())
        );
        let busiest = &lines[0]["connections"][0];
        assert_eq!(busiest["mode"], "TCP");
        assert_eq!(busiest["sent_per_second"], 2048.0);
        assert_eq!(busiest["seen"], 2.0);
        assert_eq!(lines[1]["connections"][0]["sent_per_second"], 0.0);
        assert_eq!(lines[0]["per_second"]["smc_r.tx_bytes"], 0.0);
        assert_eq!(lines[0]["buffer_bytes"], 0);
    }
}
