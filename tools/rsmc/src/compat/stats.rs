// SPDX-License-Identifier: GPL-2.0
//! The object `stats` of `smcr` and `smcd`.

use super::columns::short;
use super::keys::{inner, keys, SIZES};
use super::smc::{Options, Technology};
use crate::error::Result;
use crate::stats::tree::Node;
use crate::stats::{baseline, FallbackReason, Statistics};
use serde_json::json;
use std::cmp::Reverse;
use std::io::Write;

/// `stats COMMAND`.
pub fn run(
    technology: Technology,
    options: Options,
    command: &str,
    out: &mut dyn Write,
) -> Result<()> {
    let absolute = Statistics::collect()?;
    let shown = match options.absolute {
        true => absolute.clone(),
        false => baseline::apply(absolute.clone()),
    };
    if command == "json" {
        let name = match technology {
            Technology::R => "SMCR",
            Technology::D => "SMCD",
        };
        return Ok(writeln!(
            out,
            "{}",
            json!({name: keys(of(technology, &shown))})
        )?);
    }
    tell(technology, options.details, &shown, out)?;
    match command {
        "reset" => baseline::save(&absolute),
        _ => Ok(()),
    }
}

fn of(technology: Technology, statistics: &Statistics) -> &Node {
    static NOTHING: Node = Node::Group(Vec::new());
    let name = match technology {
        Technology::R => "smc_r",
        Technology::D => "smc_d",
    };
    statistics.counters.get(name).unwrap_or(&NOTHING)
}

const CALLS: [(&str, &str); 5] = [
    ("cork", "cork_calls"),
    ("nodelay", "nodelay_calls"),
    ("sendpage", "sendpage_calls"),
    ("splice", "splice_calls"),
    ("urgent data", "urgent_calls"),
];

fn tell(
    technology: Technology,
    details: bool,
    statistics: &Statistics,
    out: &mut dyn Write,
) -> Result<()> {
    let node = of(technology, statistics);
    let name = match technology {
        Technology::R => "SMC-R",
        Technology::D => "SMC-D",
    };
    let sum = |names: &[&str]| {
        let counts = names.iter().map(|name| node.count(name));
        counts.fold(0u64, u64::saturating_add)
    };
    let clients = sum(&["client_v1", "client_v2"]);
    let servers = sum(&["server_v1", "server_v2"]);
    let counters = &statistics.counters;
    let errors =
        ["client", "server"].map(|role| counters.count(&format!("{role}_handshake_errors")));
    let fallback = &statistics.fallback;
    let connections = clients.saturating_add(servers);
    let all = [errors[0], errors[1], fallback.client, fallback.server];
    let all = all
        .iter()
        .fold(connections, |sum, one| sum.saturating_add(*one));
    // Special calls are not requests.
    let requests = sum(&["rx_requests", "tx_requests"]);
    let average = match connections {
        0 => 0.0,
        connections => requests as f64 / connections as f64,
    };

    writeln!(out, "{name} Connections Summary")?;
    line(out, 1, "Total connections handled", all)?;
    sides(out, details, "SMC connections", [clients, servers])?;
    if details {
        line(out, 2, "v1", sum(&["client_v1", "server_v1"]))?;
        line(out, 2, "v2", sum(&["client_v2", "server_v2"]))?;
    }
    sides(out, details, "Handshake errors", errors)?;
    writeln!(out, "{:<29}{average:>14.1}", "  Avg requests per SMC conn")?;
    let fallbacks = [fallback.client, fallback.server];
    sides(out, details, "TCP fallback", fallbacks)?;
    if details {
        reasons(out, "Server", "server", &fallback.reasons)?;
        reasons(out, "Client", "client", &fallback.reasons)?;
    }
    for (direction, title) in [("rx", "RX Stats"), ("tx", "TX Stats")] {
        writeln!(out, "\n{title}")?;
        direction_stats(direction, details, node, out)?;
    }
    writeln!(out, "\nExtras")?;
    let special = sum(&CALLS.map(|(_, counter)| counter));
    line(out, 1, "Special socket calls", special)?;
    if details {
        for (words, counter) in CALLS {
            line(out, 2, words, node.count(counter))?;
        }
    }
    Ok(())
}

/// The sum of what happened as client and as server; with details, both.
fn sides(out: &mut dyn Write, details: bool, words: &str, counts: [u64; 2]) -> Result<()> {
    let [client, server] = counts;
    let more = match details {
        true => format!(" (client {client}, server {server})"),
        false => String::new(),
    };
    row(out, 1, words, client.saturating_add(server), &more)
}

/// A side's three most frequent reasons, if it has any.
fn reasons(out: &mut dyn Write, title: &str, role: &str, reasons: &[FallbackReason]) -> Result<()> {
    let mut reasons: Vec<&FallbackReason> = reasons.iter().collect();
    reasons.retain(|reason| reason.role == role);
    reasons.sort_by_key(|reason| Reverse(reason.count));
    if !reasons.is_empty() {
        writeln!(out, "    {title}")?;
    }
    for entry in reasons.iter().take(3) {
        let name = format!("     {}", reason_name(entry.reason.name));
        writeln!(out, "{name:<29}{:>12}", entry.count)?;
    }
    Ok(())
}

fn direction_stats(direction: &str, details: bool, node: &Node, out: &mut dyn Write) -> Result<()> {
    let buffers = |name: &str| inner(node, &format!("{direction}_buffers"), name);
    let requests = node.count(&format!("{direction}_requests"));
    let event = |out: &mut dyn Write, words: &str, name: &str| {
        let count = buffers(name);
        let share = match requests {
            0 => 0.0,
            requests => count as f64 * 100.0 / requests as f64,
        };
        row(out, 1, words, count, &format!(" ({share:.2}%)"))
    };
    let bytes = node.count(&format!("{direction}_bytes"));
    let memory = node.count(&format!("{direction}_buffer_bytes"));
    let size = |bytes: u64| format!(" ({})", short(bytes));
    row(out, 1, "Data transmitted (Bytes)", bytes, &size(bytes))?;
    line(out, 1, "Total requests", requests)?;
    row(out, 1, "Buffer usage (Bytes)", memory, &size(memory))?;
    event(out, "Buffer full", "full")?;
    if direction == "tx" {
        event(out, "Buffer full (remote)", "peer_full")?;
        event(out, "Buffer too small", "too_small")?;
        event(out, "Buffer too small (remote)", "peer_too_small")?;
    }
    if details {
        line(out, 1, "Buffer downgrades", buffers("downgraded"))?;
        line(out, 1, "Buffer reuses", buffers("reused"))?;
    }
    let cells = |first: &str, cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>8}")).collect();
        format!("{first:7}{}", cells.concat())
    };
    let each = SIZES.iter().take(7);
    let mut head: Vec<String> = each.clone().map(|(_, name)| format!("{name}B")).collect();
    head.push(">512KB".into());
    writeln!(out, "{}", cells("", &head))?;
    for (words, group) in [("  Bufs", "buffer_sizes"), ("  Reqs", "request_sizes")] {
        let count = |bucket: &str| inner(node, &format!("{direction}_{group}"), bucket);
        let mut counts: Vec<String> = each.clone().map(|(size, _)| short(count(size))).collect();
        counts.push(short(count("1024k").saturating_add(count("larger"))));
        writeln!(out, "{}", cells(words, &counts))?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, depth: usize, words: &str, count: u64) -> Result<()> {
    row(out, depth, words, count, "")
}

/// A number behind its words, in the tool's places, and what follows it.
fn row(out: &mut dyn Write, depth: usize, words: &str, count: u64, more: &str) -> Result<()> {
    let words = format!("{}{words}", "  ".repeat(depth));
    // The number's place is the same behind words that are longer than others.
    let width = words.len().max(27);
    let rest = 41usize.saturating_sub(width);
    Ok(writeln!(out, "{words:<width$}{count:>rest$}{more}")?)
}

/// A reason as that tool calls it.
fn reason_name(name: &'static str) -> &'static str {
    match name {
        "PEERNOSMC" => "PEER_NO_SMC",
        "MEM" => "MEMORY",
        "CNFERR" => "CNF_ERR",
        "OTHER" | "NONE" => "[unknown]",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::sample;

    fn told(technology: Technology, details: bool) -> String {
        let mut out = Vec::new();
        tell(technology, details, &sample(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text() {
        let text = told(Technology::R, true);
        for expected in [
            "SMC-R Connections Summary",
            "  Total connections handled             4",
            "  SMC connections                       2 (client 2, server 0)",
            "    v1                                  0",
            "    v2                                  2",
            "  Handshake errors                      1 (client 1, server 0)",
            // Eight requests; the special call is none.
            "  Avg requests per SMC conn             4.0",
            "  TCP fallback                          1 (client 1, server 0)",
            "    Client",
            "     PEER_NO_SMC                        1",
            "  Data transmitted (Bytes)           9000 (9.000K)",
            "  Buffer usage (Bytes)             131072 (131.1K)",
            "  Buffer full                           6 (75.00%)",
            "  Buffer too small (remote)             0 (0.00%)",
            "            8KB    16KB    32KB    64KB   128KB   256KB   512KB  >512KB",
            "  Reqs        3       0       0       1       0       0       0       4",
            "  Special socket calls                  1",
            "    cork                                1",
        ] {
            assert!(
                text.lines().any(|line| line == expected),
                "{expected}\n{text}"
            );
        }
        assert!(!text.contains("    Server\n"), "{text}");
    }

    #[test]
    fn without_details() {
        let text = told(Technology::D, false);
        assert!(
            text.contains("  TCP fallback                          1\n"),
            "{text}"
        );
        // No connection, no average.
        assert!(
            text.contains("  Avg requests per SMC conn             0.0\n"),
            "{text}"
        );
        assert!(!text.contains("client") && !text.contains("cork"), "{text}");
    }
}
