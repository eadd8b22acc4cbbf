// SPDX-License-Identifier: GPL-2.0
//! `rsmc stats`: counters by generic netlink (`SMC_GEN_NETLINK` commands 7 and 8).

pub mod baseline;
pub mod histogram;
pub mod plot;
pub mod prometheus;
pub mod rates;
pub mod tree;

use crate::absent;
use crate::cli::{StatsAction, StatsArgs};
use crate::diag;
use crate::error::{Error, Result};
use crate::fallback::{self, Counters, Role};
use crate::netlink::genl::{self, Family};
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::promotion::Shown;
use crate::reason::Told;
use crate::table;
use rustix::io::Errno;
use serde::Serialize;
use std::io::Write;
use tree::{Flat, Node};

const GET_STATS: u8 = 7;
const GET_FBACK_STATS: u8 = 8;
/// Top level attribute `SMC_GEN_STATS`.
const GEN_STATS: u16 = 7;
/// Top level attribute `SMC_GEN_FBACK_STATS`.
const GEN_FBACK_STATS: u16 = 8;

/// Shows the statistics, or notes them to count from.
///
/// # Errors
/// `NotThere` without the netlink family or the command, or the kernel's.
pub fn run(args: &StatsArgs, out: &mut dyn Write) -> Result<()> {
    let absolute = Statistics::collect()?;
    if args.action == Some(StatsAction::Reset) {
        return baseline::save(&absolute);
    }
    if args.prometheus {
        return match &args.output {
            Some(file) => prometheus::replace(&absolute, file),
            None => prometheus::write(&absolute, out),
        };
    }
    if let Some(interval) = args.interval {
        return rates::run(absolute, interval, args.count, args.json, out);
    }
    let shown = match args.absolute {
        true => absolute,
        false => baseline::apply(absolute),
    };
    if let Some(file) = &args.plot {
        let drawing = plot::svg(&shown.counters);
        return std::fs::write(file, drawing).map_err(|error| Error::at(file, error));
    }
    if args.histograms {
        return histogram::tell(&shown.counters, out);
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &shown)?;
        writeln!(out)?;
        return Ok(());
    }
    tell(&shown, out)
}

/// The netlink family all of this uses.
pub(crate) fn family() -> Result<Family> {
    let missing = || match diag::has_smc_protocol() {
        true => {
            "the loaded SMC module does not have this yet (netlink family SMC_GEN_NETLINK)".into()
        }
        false => absent::line(),
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

/// Output of `--json`. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// The counters of `SMC_NETLINK_GET_STATS`.
    #[serde(flatten)]
    pub counters: Node,
    /// Connections that became TCP.
    pub fallback: Fallbacks,
    /// Connections that began as TCP, and their promotions; `null` where the module does not know it.
    pub began_as_tcp: Option<Shown>,
    /// When the counters were reset, in seconds since 1970; `null` if never.
    pub since: Option<u64>,
}

/// Connections that became TCP.
#[derive(Clone, Debug, Serialize)]
pub struct Fallbacks {
    /// As client.
    pub client: u64,
    /// As server.
    pub server: u64,
    /// Connections that strict mode refused instead; `null` where the module does not know it.
    pub strict_refused: Option<u64>,
    /// Bytes that TCP has sent for sockets that did not become SMC, by its own count (what both ends
    /// said in the handshake included); `null` where the module does not know it.
    pub tcp_sent_bytes: Option<u64>,
    /// As before, received.
    pub tcp_received_bytes: Option<u64>,
    /// By side and reason.
    pub reasons: Vec<FallbackReason>,
}

const STRICT_REFUSED: &str = "fallback.strict_refused";
const TCP_SENT: &str = "fallback.tcp_sent_bytes";
const TCP_RECEIVED: &str = "fallback.tcp_received_bytes";

/// Fallbacks of a side for a reason.
#[derive(Clone, Debug, Serialize)]
pub struct FallbackReason {
    /// `client` or `server`.
    pub role: &'static str,
    /// The reason.
    #[serde(flatten)]
    pub reason: Told,
    /// Number of connections.
    pub count: u64,
}

impl FallbackReason {
    fn path(&self) -> String {
        format!("fallback.reasons.{}.{}", self.role, self.reason.code)
    }
}

impl Statistics {
    /// Asks the kernel.
    ///
    /// # Errors
    /// `NotThere` without the netlink family or the command, or the kernel's.
    pub fn collect() -> Result<Self> {
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
        let file = fallback::read().unwrap_or_default();
        let reasons = fallback.reasons.iter();
        Ok(Self {
            counters,
            fallback: Fallbacks {
                client: fallback.fallback_client,
                server: fallback.fallback_server,
                strict_refused: file.strict_refused,
                tcp_sent_bytes: file.tcp_sent_bytes,
                tcp_received_bytes: file.tcp_received_bytes,
                reasons: reasons
                    .map(|(role, code, count)| FallbackReason {
                        role: role.name(),
                        reason: Told::new(*code),
                        count: *count,
                    })
                    .collect(),
            },
            began_as_tcp: Shown::new(&file.promotions),
            since: None,
        })
    }

    /// All counters by their names joined by points.
    pub fn flat(&self) -> Flat {
        let mut flat = self.counters.flat();
        flat.insert("fallback.client".into(), self.fallback.client);
        flat.insert("fallback.server".into(), self.fallback.server);
        for (path, count) in [
            (STRICT_REFUSED, self.fallback.strict_refused),
            (TCP_SENT, self.fallback.tcp_sent_bytes),
            (TCP_RECEIVED, self.fallback.tcp_received_bytes),
        ] {
            if let Some(count) = count {
                flat.insert(path.into(), count);
            }
        }
        for reason in &self.fallback.reasons {
            flat.insert(reason.path(), reason.count);
        }
        if let Some(shown) = &self.began_as_tcp {
            shown.add_to(&mut flat);
        }
        flat
    }

    /// Returns the increase of the counters over `before`.
    #[must_use]
    pub fn since(mut self, before: &Flat) -> Self {
        let less =
            |path: &str, count: u64| count.saturating_sub(before.get(path).copied().unwrap_or(0));
        self.counters = self.counters.since(before);
        let fallback = &mut self.fallback;
        fallback.client = less("fallback.client", fallback.client);
        fallback.server = less("fallback.server", fallback.server);
        for (path, place) in [
            (STRICT_REFUSED, &mut fallback.strict_refused),
            (TCP_SENT, &mut fallback.tcp_sent_bytes),
            (TCP_RECEIVED, &mut fallback.tcp_received_bytes),
        ] {
            *place = place.map(|count| less(path, count));
        }
        for reason in &mut fallback.reasons {
            reason.count = less(&reason.path(), reason.count);
        }
        fallback.reasons.retain(|reason| reason.count > 0);
        self.began_as_tcp = self.began_as_tcp.map(|shown| shown.since(before));
        self
    }
}

fn tell(statistics: &Statistics, out: &mut dyn Write) -> Result<()> {
    if let Some(since) = statistics.since {
        let ago = crate::clock::now().saturating_sub(since);
        writeln!(out, "since the reset {ago} s ago:")?;
    }
    statistics.counters.tell(out)?;
    let fallback = &statistics.fallback;
    writeln!(
        out,
        "fallback to TCP: {} as client, {} as server",
        fallback.client, fallback.server
    )?;
    if let (Some(sent), Some(received)) = (fallback.tcp_sent_bytes, fallback.tcp_received_bytes) {
        writeln!(
            out,
            "bytes by TCP: {} sent, {} received",
            table::size(sent),
            table::size(received)
        )?;
    }
    for entry in &fallback.reasons {
        writeln!(
            out,
            "  {} as {}: {} {}",
            entry.count, entry.role, entry.reason.name, entry.reason.text
        )?;
    }
    if let Some(shown) = &statistics.began_as_tcp {
        shown.tell(out)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::netlink::wire;
    use crate::promotion;

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

    /// Counters of a host that has sent a little.
    pub(crate) fn sample() -> Statistics {
        let sizes = Node::Group(vec![
            ("8k", Node::Count(3)),
            ("64k", Node::Count(1)),
            ("larger", Node::Count(4)),
        ]);
        let smc_r = Node::Group(vec![
            (
                "tx_buffer_sizes",
                Node::Group(vec![("64k", Node::Count(2))]),
            ),
            ("tx_request_sizes", sizes),
            ("tx_buffers", Node::Group(vec![("full", Node::Count(6))])),
            ("client_v2", Node::Count(2)),
            ("cork_calls", Node::Count(1)),
            ("tx_bytes", Node::Count(9000)),
            ("tx_requests", Node::Count(8)),
            ("tx_buffer_bytes", Node::Count(131072)),
        ]);
        Statistics {
            counters: Node::Group(vec![
                ("smc_d", Node::Group(vec![("client_v2", Node::Count(0))])),
                ("smc_r", smc_r),
                ("client_handshake_errors", Node::Count(1)),
            ]),
            fallback: Fallbacks {
                client: 1,
                server: 0,
                strict_refused: Some(0),
                tcp_sent_bytes: Some(70_000),
                tcp_received_bytes: Some(12),
                reasons: vec![FallbackReason {
                    role: "client",
                    reason: Told::new(0x0301_0000),
                    count: 1,
                }],
            },
            began_as_tcp: Some(promotion::tests::sample()),
            since: None,
        }
    }

    #[test]
    fn what_came_since() {
        let mut before = sample().flat();
        assert_eq!(before["fallback.reasons.client.0x03010000"], 1);
        let nothing = sample().since(&before);
        assert!(nothing.fallback.reasons.is_empty());
        assert_eq!((nothing.fallback.client, nothing.since), (0, None));
        let smc_r = nothing.counters.get("smc_r").unwrap();
        assert_eq!(smc_r.count("tx_bytes"), 0);
        assert_eq!(smc_r.count("tx_buffer_bytes"), 131072);
        before.insert("smc_r.tx_bytes".into(), 8000);
        let some = sample().since(&before);
        assert_eq!(some.counters.get("smc_r").unwrap().count("tx_bytes"), 1000);
    }

    #[test]
    fn json_names() {
        let statistics = sample();
        let value = serde_json::to_value(&statistics).unwrap();
        assert_eq!(value["client_handshake_errors"], 1);
        assert_eq!(value["fallback"]["reasons"][0]["name"], "PEERNOSMC");
        let mut out = Vec::new();
        tell(&statistics, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("  1 as client: PEERNOSMC The peer"), "{text}");
        assert!(
            text.contains("promotions as client: 5 begun, 3 done"),
            "{text}"
        );
        let client = &value["began_as_tcp"]["client"];
        assert_eq!(
            (&client["done"], &client["times"][0]["below_us"]),
            (&3.into(), &1024.into())
        );
        assert_eq!(value["began_as_tcp"]["reasons"][0]["name"], "PATHREFUSED");
    }
}
