// SPDX-License-Identifier: GPL-2.0
//! The object `stats` of `smcr` and `smcd`.

use super::smc::{Options, Technology};
use crate::error::Result;
use crate::stats::tree::Node;
use crate::stats::{baseline, FallbackReason, Statistics};
use crate::table;
use serde_json::{json, Map, Value};
use std::cmp::Reverse;
use std::io::Write;

/// The kernel's buckets and what they are called in JSON.
const SIZES: [(&str, &str); 9] = [
    ("8k", "8K"),
    ("16k", "16K"),
    ("32k", "32K"),
    ("64k", "64K"),
    ("128k", "128K"),
    ("256k", "256K"),
    ("512k", "512K"),
    ("1024k", "1024K"),
    ("larger", "G_1024K"),
];

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

/// A counter in a group.
fn inner(node: &Node, group: &str, name: &str) -> u64 {
    node.get(group).map_or(0, |group| group.count(name))
}

/// The 65 numbers of the JSON.
fn keys(node: &Node) -> Map<String, Value> {
    let mut keys = Map::new();
    let mut put = |name: String, count: u64| {
        keys.insert(name, count.into());
    };
    for (lower, upper) in [("tx", "TX"), ("rx", "RX")] {
        for (bucket, name) in SIZES {
            let buffers = inner(node, &format!("{lower}_buffer_sizes"), bucket);
            put(format!("SMC_INT_{upper}_BUF_{name}"), buffers);
            let calls = inner(node, &format!("{lower}_request_sizes"), bucket);
            put(format!("SMC_USR_{upper}_BUF_{name}"), calls);
        }
        for (event, name) in [
            ("peer_too_small", "SIZE_SM_PEER"),
            ("too_small", "SIZE_SM"),
            ("peer_full", "FULL_PEER"),
            ("full", "FULL"),
            ("reused", "REUSE"),
            ("allocated", "ALLOC"),
            ("downgraded", "DGRADE"),
        ] {
            let count = inner(node, &format!("{lower}_buffers"), event);
            put(format!("SMC_INT_{upper}_BUF_{name}_CNT"), count);
        }
        put(
            format!("SMC_{upper}_BYTES"),
            node.count(&format!("{lower}_bytes")),
        );
        put(
            format!("SMC_{upper}_CNT"),
            node.count(&format!("{lower}_requests")),
        );
        let memory = node.count(&format!("{lower}_buffer_bytes"));
        put(format!("SMC_{upper}_RMB_USAGE"), memory);
    }
    for (counter, name) in [
        ("client_v1", "CLNT_V1_SUCC"),
        ("client_v2", "CLNT_V2_SUCC"),
        ("server_v1", "SRV_V1_SUCC"),
        ("server_v2", "SRV_V2_SUCC"),
        ("sendpage_calls", "SENDPAGE"),
        ("urgent_calls", "URG_DATA"),
        ("splice_calls", "SPLICE"),
        ("cork_calls", "CORK"),
        ("nodelay_calls", "NDLY"),
    ] {
        put(format!("SMC_{name}_CNT"), node.count(counter));
    }
    keys
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
    let connections = sum(&["client_v1", "client_v2", "server_v1", "server_v2"]);
    let counters = &statistics.counters;
    let errors =
        ["client", "server"].map(|role| counters.count(&format!("{role}_handshake_errors")));
    let fallback = &statistics.fallback;
    let special = sum(&CALLS.map(|(_, counter)| counter));
    let requests = sum(&["rx_requests", "tx_requests"]).saturating_add(special);

    writeln!(out, "{name} Connections Summary")?;
    let all = connections + errors[0] + errors[1] + fallback.client + fallback.server;
    line(out, 1, "Total connections handled", all)?;
    line(out, 1, "SMC connections", connections)?;
    if details {
        for (role, words) in [("client", "client"), ("server", "server")] {
            for version in ["v1", "v2"] {
                let count = node.count(&format!("{role}_{version}"));
                line(out, 2, &format!("{words} {version}"), count)?;
            }
        }
    }
    line(out, 1, "Handshake errors", errors[0] + errors[1])?;
    if details {
        line(out, 2, "client", errors[0])?;
        line(out, 2, "server", errors[1])?;
    }
    let average = requests as f64 / connections.max(1) as f64;
    row(
        out,
        1,
        "Avg requests per SMC conn",
        &format!("{average:.1}"),
    )?;
    line(out, 1, "TCP fallback", fallback.client + fallback.server)?;
    if details {
        for (role, count) in [("client", fallback.client), ("server", fallback.server)] {
            line(out, 2, role, count)?;
            let mut reasons: Vec<&FallbackReason> = fallback.reasons.iter().collect();
            reasons.retain(|reason| reason.role == role);
            reasons.sort_by_key(|reason| Reverse(reason.count));
            for entry in reasons.iter().take(3) {
                line(out, 3, reason_name(entry.reason.name), entry.count)?;
            }
        }
    }
    for (direction, title) in [("rx", "RX Stats"), ("tx", "TX Stats")] {
        writeln!(out, "\n{title}")?;
        direction_stats(direction, details, node, out)?;
    }
    writeln!(out, "\nExtras")?;
    line(out, 1, "Special socket calls", special)?;
    if details {
        for (words, counter) in CALLS {
            line(out, 2, words, node.count(counter))?;
        }
    }
    Ok(())
}

fn direction_stats(direction: &str, details: bool, node: &Node, out: &mut dyn Write) -> Result<()> {
    let event = |name: &str| inner(node, &format!("{direction}_buffers"), name);
    let requests = node.count(&format!("{direction}_requests"));
    let share = |count: u64| match requests {
        0 => format!("{count} (0.00%)"),
        requests => format!("{count} ({:.2}%)", count as f64 * 100.0 / requests as f64),
    };
    let bytes = node.count(&format!("{direction}_bytes"));
    let memory = node.count(&format!("{direction}_buffer_bytes"));
    let size = |bytes: u64| format!("{bytes} ({})", table::size(bytes));
    row(out, 1, "Data transmitted (Bytes)", &size(bytes))?;
    line(out, 1, "Total requests", requests)?;
    row(out, 1, "Buffer usage (Bytes)", &size(memory))?;
    row(out, 1, "Buffer full", &share(event("full")))?;
    if direction == "tx" {
        row(out, 1, "Buffer full (remote)", &share(event("peer_full")))?;
        row(out, 1, "Buffer too small", &share(event("too_small")))?;
        let remote = share(event("peer_too_small"));
        row(out, 1, "Buffer too small (remote)", &remote)?;
    }
    if details {
        line(out, 1, "Buffer downgrades", event("downgraded"))?;
        line(out, 1, "Buffer reuses", event("reused"))?;
    }
    let cells = |names: &[String]| {
        let padded: Vec<String> = names.iter().map(|name| format!("{name:>8}")).collect();
        padded.concat()
    };
    let head: Vec<String> = SIZES[..7]
        .iter()
        .map(|(_, name)| format!("{name}B"))
        .collect();
    writeln!(out, "            {}{:>8}", cells(&head), ">512KB")?;
    for (words, group) in [("Bufs", "buffer_sizes"), ("Reqs", "request_sizes")] {
        let count = |bucket: &str| inner(node, &format!("{direction}_{group}"), bucket);
        let mut counts: Vec<String> = SIZES[..7]
            .iter()
            .map(|(size, _)| count(size).to_string())
            .collect();
        counts.push((count("1024k").saturating_add(count("larger"))).to_string());
        writeln!(out, "  {words:<10}{}", cells(&counts))?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, depth: usize, words: &str, count: u64) -> Result<()> {
    row(out, depth, words, &count.to_string())
}

fn row(out: &mut dyn Write, depth: usize, words: &str, value: &str) -> Result<()> {
    let words = format!("{}{words}", "  ".repeat(depth));
    Ok(writeln!(out, "{words:<34}  {value:>12}")?)
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

    #[test]
    fn json_has_65_numbers() {
        let keys = keys(of(Technology::R, &sample()));
        assert_eq!(keys.len(), 65);
        assert_eq!(keys["SMC_USR_TX_BUF_8K"], 3);
        assert_eq!(keys["SMC_USR_TX_BUF_G_1024K"], 4);
        assert_eq!(keys["SMC_INT_TX_BUF_64K"], 2);
        assert_eq!(keys["SMC_INT_TX_BUF_FULL_CNT"], 6);
        assert_eq!(keys["SMC_CLNT_V2_SUCC_CNT"], 2);
        assert_eq!(keys["SMC_TX_RMB_USAGE"], 131072);
        assert_eq!(keys["SMC_RX_CNT"], 0);
    }

    #[test]
    fn text() {
        let mut out = Vec::new();
        tell(Technology::R, true, &sample(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for expected in [
            "SMC-R Connections Summary",
            "Total connections handled 4",
            "SMC connections 2",
            "Avg requests per SMC conn 4.5",
            "PEER_NO_SMC 1",
            "Buffer full 6 (75.00%)",
            "8KB 16KB 32KB 64KB 128KB 256KB 512KB >512KB",
            "Reqs 3 0 0 1 0 0 0 4",
            "cork 1",
        ] {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected}\n{text}"
            );
        }
    }
}
