// SPDX-License-Identifier: GPL-2.0
//! `rsmc stats`: counters by generic netlink (`SMC_GEN_NETLINK` commands 7 and 8).

use crate::cli::StatsArgs;
use crate::diag;
use crate::error::{Error, Result};
use crate::fallback::{Counters, Role};
use crate::netlink::genl::{self, Family};
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::reason::Told;
use rustix::io::Errno;
use serde_json::{json, Map, Value};
use std::io::Write;

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
    let value = collect()?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &value)?;
        writeln!(out)?;
    } else {
        tell(&value, "", out)?;
    }
    Ok(())
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

/// What an attribute of the statistics is called, and what is inside it.
enum Kind {
    Count(&'static str),
    Group(&'static str, &'static [Kind]),
}
use Kind::{Count, Group};

const SIZES: &[Kind] = &[
    Count("8k"),
    Count("16k"),
    Count("32k"),
    Count("64k"),
    Count("128k"),
    Count("256k"),
    Count("512k"),
    Count("1024k"),
    Count("larger"),
];
const BUFFERS: &[Kind] = &[
    Count("peer_too_small"),
    Count("too_small"),
    Count("peer_full"),
    Count("full"),
    Count("reused"),
    Count("allocated"),
    Count("downgraded"),
];
const TECHNOLOGY: &[Kind] = &[
    Group("tx_buffer_sizes", SIZES),
    Group("rx_buffer_sizes", SIZES),
    Group("tx_request_sizes", SIZES),
    Group("rx_request_sizes", SIZES),
    Group("tx_buffers", BUFFERS),
    Group("rx_buffers", BUFFERS),
    Count("client_v1"),
    Count("client_v2"),
    Count("server_v1"),
    Count("server_v2"),
    Count("sendpage_calls"),
    Count("splice_calls"),
    Count("cork_calls"),
    Count("nodelay_calls"),
    Count("urgent_calls"),
    Count("rx_bytes"),
    Count("tx_bytes"),
    Count("rx_requests"),
    Count("tx_requests"),
    Count("rx_buffer_bytes"),
    Count("tx_buffer_bytes"),
];
/// By attribute number, from 1 (`SMC_NLA_STATS_…`).
const STATS: &[Kind] = &[
    Group("smc_d", TECHNOLOGY),
    Group("smc_r", TECHNOLOGY),
    Count("client_handshake_errors"),
    Count("server_handshake_errors"),
];

fn named(attributes: &[Attribute<'_>], kinds: &[Kind]) -> Result<Value> {
    let mut map = Map::new();
    for attribute in attributes {
        let index = usize::from(attribute.kind).checked_sub(1);
        match index.and_then(|index| kinds.get(index)) {
            Some(Count(name)) => {
                let number = attribute
                    .number()
                    .ok_or(Error::Malformed("a counter's length"))?;
                map.insert((*name).into(), number.into());
            }
            Some(Group(name, inside)) => {
                let inner = genl::all(attribute.nested())?;
                map.insert((*name).into(), named(&inner, inside)?);
            }
            // A counter of a later kernel, or padding.
            None => {}
        }
    }
    Ok(Value::Object(map))
}

fn collect() -> Result<Value> {
    let mut family = family()?;
    let request = family.command(GET_STATS, NLM_F_DUMP);
    let mut value = Value::Object(Map::new());
    for body in family
        .ask("reading statistics", &request)
        .map_err(not_yet)?
    {
        for attribute in body.attributes()? {
            if attribute.kind == GEN_STATS {
                value = named(&genl::all(attribute.nested())?, STATS)?;
            }
        }
    }
    let counters = fallback_counters()?;
    let mut reasons = Vec::new();
    for (role, code, count) in &counters.reasons {
        let told = Told::new(*code);
        reasons.push(json!({
            "role": role.name(),
            "code": told.code,
            "name": told.name,
            "text": told.text,
            "count": count,
        }));
    }
    value["fallback"] = json!({
        "client": counters.fallback_client,
        "server": counters.fallback_server,
        "reasons": reasons,
    });
    Ok(value)
}

fn tell(value: &Value, indent: &str, out: &mut dyn Write) -> Result<()> {
    let Some(map) = value.as_object() else {
        return Ok(());
    };
    for (name, value) in map {
        let words = name.replace('_', " ");
        match value {
            Value::Object(_) => {
                writeln!(out, "{indent}{words}:")?;
                tell(value, &format!("{indent}  "), out)?;
            }
            Value::Array(reasons) => {
                for reason in reasons {
                    let text = |key: &str| reason[key].as_str().unwrap_or_default().to_string();
                    writeln!(
                        out,
                        "{indent}{} {}, as {}: {}",
                        text("code"),
                        text("name"),
                        text("role"),
                        reason["count"]
                    )?;
                }
            }
            number => writeln!(out, "{indent}{words}: {number}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn sample() -> Vec<u8> {
        let sizes = attribute(9, &5u64.to_ne_bytes());
        let tech = [
            attribute(0x8000 | 1, &sizes),
            attribute(8, &3u64.to_ne_bytes()),
            attribute(20, &64u32.to_ne_bytes()),
            attribute(99, &[1, 2, 3]),
        ];
        [
            attribute(2, &tech.concat()),
            attribute(3, &1u64.to_ne_bytes()),
        ]
        .concat()
    }

    #[test]
    fn names_by_number() {
        let bytes = sample();
        let value = named(&genl::all(wire::attributes(&bytes)).unwrap(), STATS).unwrap();
        assert_eq!(value["smc_r"]["tx_buffer_sizes"]["larger"], 5);
        assert_eq!(value["smc_r"]["client_v2"], 3);
        assert_eq!(value["smc_r"]["rx_buffer_bytes"], 64);
        assert_eq!(value["client_handshake_errors"], 1);
        let mut out = Vec::new();
        tell(&value, "", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("  client v2: 3\n"), "{text}");
    }

    #[test]
    fn damage_is_an_error_or_passed_over() {
        let whole = sample();
        for cut in 0..whole.len() {
            if let Ok(all) = genl::all(wire::attributes(&whole[..cut])) {
                let _ = named(&all, STATS);
            }
        }
        let odd = attribute(3, &[1, 2, 3]);
        assert!(named(&genl::all(wire::attributes(&odd)).unwrap(), STATS).is_err());
    }

    #[test]
    fn fallback_entries() {
        let server = [
            attribute(1, &[1]),
            attribute(2, &9u64.to_ne_bytes()),
            attribute(3, &4u64.to_ne_bytes()),
            attribute(4, &0x0301_0000u32.to_ne_bytes()),
            attribute(5, &9u16.to_ne_bytes()),
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
}
