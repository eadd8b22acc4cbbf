// SPDX-License-Identifier: GPL-2.0

//! Lessons of `auto`, as `RSMC_POLICY` lists them.

use crate::host::{
    clock::now,
    learned::Learned, //
};
use kapi::net::netlink::{Answer, Message, Position};
use kernel::prelude::*;
use smc_proto::learn::{Record, Service};

/// Attributes of a service.
mod attribute {
    /// Port of a listener, or of the peer; a `u16`.
    pub(super) const PORT: u16 = 1;
    /// Address of the peer, as IPv6; 16 bytes. A listener has none.
    pub(super) const ADDRESS: u16 = 2;
    /// Credits that are left; a `u8`.
    pub(super) const CREDITS: u16 = 3;
    /// Milliseconds until SMC is offered again; a `u32`. Only while it is not.
    pub(super) const PAUSE: u16 = 4;
    /// Connections that have paid; a `u32`.
    pub(super) const PAID: u16 = 5;
    /// Connections that have not; a `u32`.
    pub(super) const UNPAID: u16 = 6;
}

/// Lists the services, each nested in an attribute of kind `outer`, from `position` on.
pub(super) fn list(
    learned: &Learned,
    outer: u16,
    position: &mut Position,
    answer: &mut Answer<'_>,
) -> Result {
    let [at, ..] = position;
    while let Some(place) = learned.at(*at as usize) {
        if let Some((service, record)) = place {
            let mut message = answer.message(&[])?;
            message.nest(outer, |out| write(out, &service, &record))?;
            message.end();
        }
        *at = at.wrapping_add(1);
    }
    Ok(())
}

fn write(out: &mut Message<'_>, service: &Service, record: &Record) -> Result {
    let port = match service {
        Service::Port(port) => port,
        Service::Peer(address, port) => {
            out.put(attribute::ADDRESS, address)?;
            port
        }
    };
    out.put(attribute::PORT, &port.to_ne_bytes())?;
    out.put(attribute::CREDITS, &[record.credits()])?;
    if record.pauses() {
        let left = record.left(now()).as_millis_ceil();
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        out.put(attribute::PAUSE, &left.to_ne_bytes())?;
    }
    let (paid, unpaid) = record.counts();
    out.put(attribute::PAID, &paid.to_ne_bytes())?;
    out.put(attribute::UNPAID, &unpaid.to_ne_bytes())
}
