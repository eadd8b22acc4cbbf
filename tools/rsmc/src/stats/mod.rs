// SPDX-License-Identifier: GPL-2.0
//! `rsmc stats`: counters by generic netlink (`SMC_GEN_NETLINK` commands 7 and 8).

pub mod tree;

use crate::cli::StatsArgs;
use crate::diag;
use crate::error::{Error, Result};
use crate::fallback::{Counters, Role};
use crate::netlink::genl::{self, Family};
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::reason::Told;
use rustix::io::Errno;
use serde::Serialize;
use std::io::Write;
use tree::Node;

/// What to say where no SMC module is loaded.
pub const NOT_LOADED: &str =
    "no SMC in this kernel: neither rsmc nor smc is loaded (modprobe rsmc)";

const GET_STATS: u8 = 7;
const GET_FBACK_STATS: u8 = 8;
/// Top level attribute `SMC_GEN_STATS`.
const GEN_STATS: u16 = 7;
/// Top level attribute `SMC_GEN_FBACK_STATS`.
const GEN_FBACK_STATS: u16 = 8;

/// Shows the statistics.
///
/// # Errors
/// `NotThere` without the netlink family or the command, or the kernel's.
pub fn run(args: &StatsArgs, out: &mut dyn Write) -> Result<()> {
    let statistics = collect()?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &statistics)?;
        writeln!(out)?;
        return Ok(());
    }
    tell(&statistics, out)
}

/// The netlink family all of this uses.
pub(crate) fn family() -> Result<Family> {
    let missing = if diag::has_smc_protocol() {
        "the loaded SMC module does not have this yet (netlink family SMC_GEN_NETLINK)"
    } else {
        NOT_LOADED
    };
    Family::find("SMC_GEN_NETLINK", 1, missing)
}

/// A family without the command: said in words.
pub(crate) fn not_yet(error: Error) -> Error {
    match error {
        Error::Refused(what, Errno::OPNOTSUPP) => Error::NotThere(format!(
            "{what}: the loaded SMC module does not have this yet"
        )),
        error => error,
    }
}

/// The fallback counters of a module that has no list by peer.
pub(crate) fn fallback_counters() -> Result<Counters> {
    let mut family = family()?;
    let request = family.command(GET_FBACK_STATS, NLM_F_DUMP);
    let mut counters = Counters::default();
    for body in family
        .ask("reading fallback reasons", &request)
        .map_err(not_yet)?
    {
        for attribute in body.attributes()? {
            if attribute.kind == GEN_FBACK_STATS {
                take_fallback(&mut counters, &genl::all(attribute.nested())?);
            }
        }
    }
    Ok(counters)
}

/// Takes one entry: type 1 (`u8`, 1 for server), totals of both sides 2 and 3 (in the first entry
/// only), reason 4, count 5.
fn take_fallback(counters: &mut Counters, attributes: &[Attribute<'_>]) {
    let number = |kind: u16| {
        attributes
            .iter()
            .find(|attribute| attribute.kind == kind)
            .and_then(Attribute::number)
    };
    if let Some(total) = number(2) {
        counters.fallback_server = total;
    }
    if let Some(total) = number(3) {
        counters.fallback_client = total;
    }
    let role = if number(1) == Some(1) {
        Role::Server
    } else {
        Role::Client
    };
    let code = number(4).and_then(|code| u32::try_from(code).ok());
    if let (Some(code), Some(count)) = (code, number(5)) {
        counters.reasons.push((role, code, count));
    }
}

/// What `--json` prints. The names are an interface: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Statistics {
    #[serde(flatten)]
    counters: Node,
    fallback: Fallbacks,
}

#[derive(Debug, Serialize)]
struct Fallbacks {
    client: u64,
    server: u64,
    reasons: Vec<FallbackReason>,
}

#[derive(Debug, Serialize)]
struct FallbackReason {
    role: &'static str,
    #[serde(flatten)]
    reason: Told,
    count: u64,
}

fn collect() -> Result<Statistics> {
    let mut family = family()?;
    let request = family.command(GET_STATS, NLM_F_DUMP);
    let mut counters = Node::Group(Vec::new());
    for body in family
        .ask("reading statistics", &request)
        .map_err(not_yet)?
    {
        for attribute in body.attributes()? {
            if attribute.kind == GEN_STATS {
                counters = tree::read(&genl::all(attribute.nested())?, tree::STATS)?;
            }
        }
    }
    let fallback = fallback_counters()?;
    Ok(Statistics {
        counters,
        fallback: Fallbacks {
            client: fallback.fallback_client,
            server: fallback.fallback_server,
            reasons: fallback
                .reasons
                .iter()
                .map(|(role, code, count)| FallbackReason {
                    role: role.name(),
                    reason: Told::new(*code),
                    count: *count,
                })
                .collect(),
        },
    })
}

fn tell(statistics: &Statistics, out: &mut dyn Write) -> Result<()> {
    statistics.counters.tell(out)?;
    let fallback = &statistics.fallback;
    writeln!(
        out,
        "fallback to TCP: {} as client, {} as server",
        fallback.client, fallback.server
    )?;
    for entry in &fallback.reasons {
        writeln!(
            out,
            "  {} as {}: {} {}",
            entry.count, entry.role, entry.reason.name, entry.reason.text
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire;

    #[test]
    fn fallback_entries() {
        let server = [
            wire::attribute(1, &[1]),
            wire::attribute(2, &9u64.to_ne_bytes()),
            wire::attribute(3, &4u64.to_ne_bytes()),
            wire::attribute(4, &0x0301_0000u32.to_ne_bytes()),
            wire::attribute(5, &9u16.to_ne_bytes()),
        ];
        let server = server.concat();
        let mut counters = Counters::default();
        take_fallback(
            &mut counters,
            &genl::all(wire::attributes(&server)).unwrap(),
        );
        assert_eq!((counters.fallback_server, counters.fallback_client), (9, 4));
        assert_eq!(counters.reasons, [(Role::Server, 0x0301_0000, 9)]);
    }

    #[test]
    fn json_names() {
        let statistics = Statistics {
            counters: Node::Group(vec![("client_handshake_errors", Node::Count(1))]),
            fallback: Fallbacks {
                client: 1,
                server: 0,
                reasons: vec![FallbackReason {
                    role: "client",
                    reason: Told::new(0x0301_0000),
                    count: 1,
                }],
            },
        };
        let value = serde_json::to_value(&statistics).unwrap();
        assert_eq!(value["client_handshake_errors"], 1);
        assert_eq!(value["fallback"]["reasons"][0]["name"], "PEERNOSMC");
        let mut out = Vec::new();
        tell(&statistics, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("  1 as client: PEERNOSMC The peer"), "{text}");
    }
}
