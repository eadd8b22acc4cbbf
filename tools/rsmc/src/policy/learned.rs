// SPDX-License-Identifier: GPL-2.0
//! Lessons of rules with `auto` about services.

use super::family;
use super::wire::{attribute, command};
use crate::error::{Error, Result};
use crate::fallback::plain;
use crate::netlink::genl::{self, Body};
use crate::netlink::wire::{NLM_F_ACK, NLM_F_DUMP};
use crate::table;
use serde::Serialize;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

/// Attributes of a service.
mod service {
    pub(super) const PORT: u16 = 1;
    pub(super) const ADDRESS: u16 = 2;
    pub(super) const CREDITS: u16 = 3;
    pub(super) const PAUSE: u16 = 4;
    pub(super) const PAID: u16 = 5;
    pub(super) const UNPAID: u16 = 6;
}

/// A service as `--json` prints it. The names are an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Service {
    /// The peer; `null` for a port that listens here.
    address: Option<IpAddr>,
    port: u16,
    credits: u8,
    /// Seconds until SMC is offered again; `null` while it is.
    pause: Option<u64>,
    paid: u32,
    unpaid: u32,
}

const BAD: Error = Error::Malformed("what was learnt of a service");

fn decode(body: &Body) -> Result<Service> {
    let attributes = body.attributes()?;
    let outer = attributes.iter().find(|a| a.kind == attribute::SERVICE);
    let mut service = Service {
        address: None,
        port: 0,
        credits: 0,
        pause: None,
        paid: 0,
        unpaid: 0,
    };
    for attribute in genl::all(outer.ok_or(BAD)?.nested())? {
        let number = || attribute.number().ok_or(BAD);
        let word = || u32::try_from(number()?).map_err(|_| BAD);
        match attribute.kind {
            service::PORT => {
                let bytes = attribute.payload.try_into().map_err(|_| BAD)?;
                service.port = u16::from_ne_bytes(bytes);
            }
            service::ADDRESS => {
                let bytes: [u8; 16] = attribute.payload.try_into().map_err(|_| BAD)?;
                service.address = Some(plain(Ipv6Addr::from(bytes).into()));
            }
            service::CREDITS => service.credits = u8::try_from(number()?).map_err(|_| BAD)?,
            service::PAUSE => service.pause = Some(number()?.div_ceil(1000)),
            service::PAID => service.paid = word()?,
            service::UNPAID => service.unpaid = word()?,
            _ => {}
        }
    }
    Ok(service)
}

/// Lists the services.
///
/// # Errors
/// `NotThere` without the netlink family, or the kernel's.
pub(super) fn list(json: bool, out: &mut dyn Write) -> Result<()> {
    let mut family = family()?;
    let request = family.command(command::LEARNED, NLM_F_DUMP);
    let bodies = family.ask("listing what was learnt", &request)?;
    let mut services = bodies.iter().map(decode).collect::<Result<Vec<_>>>()?;
    services.sort_by_key(|service| (service.address, service.port));
    if json {
        serde_json::to_writer_pretty(&mut *out, &services)?;
        writeln!(out)?;
        return Ok(());
    }
    let rows: Vec<_> = services.iter().map(row).collect();
    let head = ["Service", "Offered", "Credits", "Paid", "Did not pay"];
    table::print(out, &head, &rows)?;
    Ok(())
}

fn row(service: &Service) -> Vec<String> {
    let name = match service.address {
        None => format!("listener on port {}", service.port),
        Some(IpAddr::V4(address)) => format!("{address}:{}", service.port),
        Some(IpAddr::V6(address)) => format!("[{address}]:{}", service.port),
    };
    let offered = match service.pause {
        None => "yes".into(),
        Some(0) => "with the next connection".into(),
        Some(seconds) => format!("in {seconds} s"),
    };
    vec![
        name,
        offered,
        service.credits.to_string(),
        service.paid.to_string(),
        service.unpaid.to_string(),
    ]
}

/// Forgets all of it.
///
/// # Errors
/// As [`list`].
pub(super) fn forget() -> Result<()> {
    let mut family = family()?;
    let request = family.command(command::FORGET_LEARNED, NLM_F_ACK);
    let what = "forgetting what was learnt";
    family.ask(what, &request).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire::Attributes;

    #[test]
    fn services() {
        let inner = Attributes::default()
            .attribute(service::PORT, &6379u16.to_ne_bytes())
            .attribute(service::CREDITS, &[3])
            .attribute(service::PAID, &7u32.to_ne_bytes())
            .attribute(service::UNPAID, &9u32.to_ne_bytes());
        let body = |inner: &Attributes| {
            let outer = Attributes::default().nest(attribute::SERVICE, inner);
            Body(outer.bytes().to_vec())
        };
        let listener = decode(&body(&inner)).unwrap();
        assert_eq!(
            row(&listener),
            ["listener on port 6379", "yes", "3", "7", "9"]
        );
        let mapped: IpAddr = "::ffff:10.0.0.2".parse().unwrap();
        let IpAddr::V6(mapped) = mapped else { panic!() };
        let inner = inner
            .attribute(service::ADDRESS, &mapped.octets())
            .attribute(service::PAUSE, &59001u32.to_ne_bytes());
        let peer = decode(&body(&inner)).unwrap();
        assert_eq!(row(&peer)[..2], ["10.0.0.2:6379", "in 60 s"]);
        let bad = Attributes::default().attribute(service::PORT, &[1]);
        assert!(decode(&body(&bad)).is_err());
        assert!(decode(&Body(Vec::new())).is_err());
    }
}
