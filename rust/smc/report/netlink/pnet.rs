// SPDX-License-Identifier: GPL-2.0

//! The family `SMC_PNETID`: the physical networks of interfaces and RDMA ports.

use super::{command, namespace};
use crate::host::{
    namespace::Namespace,
    pnet::{self, Member, PnetId},
};
use kapi::net::{
    genl::{Command, Family, Kind},
    netlink::{Answer, Attributes, Position},
    netns::Net, //
};
use kernel::prelude::*;

/// The family `SMC_PNETID`.
pub(crate) struct Pnet;

/// Commands of [`Pnet`].
mod commands {
    pub(super) const GET: u8 = 1;
    pub(super) const ADD: u8 = 2;
    pub(super) const DEL: u8 = 3;
    pub(super) const FLUSH: u8 = 4;
}

/// Attributes of [`Pnet`].
mod attribute {
    pub(super) const NAME: u16 = 1;
    pub(super) const INTERFACE: u16 = 2;
    pub(super) const DEVICE: u16 = 3;
    pub(super) const PORT: u16 = 4;
}

/// Value of an attribute that an entry does not have.
const ABSENT: &[u8] = b"n/a";
const NO_PORT: u8 = 0xff;

impl Family for Pnet {
    const NAME: &'static CStr = c"SMC_PNETID";
    const VERSION: u8 = 1;
    const COMMANDS: &'static [Command] = &[
        command(commands::GET, Kind::Get),
        command(commands::ADD, Kind::Act),
        command(commands::DEL, Kind::Act),
        command(commands::FLUSH, Kind::Act),
    ];

    fn act(net: &Net, command: u8, attributes: &Attributes<'_>) -> Result {
        let namespace = namespace(net)?;
        match command {
            commands::ADD => add(net, &namespace, attributes),
            commands::DEL => namespace.pnets.remove(&pnet_id(attributes)?),
            _ => {
                namespace.pnets.flush();
                Ok(())
            }
        }
    }

    fn list(
        net: &Net,
        _command: u8,
        attributes: Option<&Attributes<'_>>,
        position: &mut Position,
        answer: &mut Answer<'_>,
    ) -> Result {
        let namespace = namespace(net)?;
        let wanted = attributes.map(pnet_id).transpose()?;
        let [at, ..] = position;
        while let Some(entry) = namespace.pnets.at(*at as usize) {
            if wanted.is_none_or(|id| id == entry.id) {
                let (interface, device, port) = match &entry.member {
                    Member::Interface(_) => (entry.member.name(), ABSENT, NO_PORT),
                    Member::Port(_, port) => (ABSENT, entry.member.name(), *port),
                };
                let mut message = answer.message(&[])?;
                message.put_string(attribute::NAME, entry.id.text())?;
                message.put_string(attribute::INTERFACE, interface)?;
                message.put_string(attribute::DEVICE, device)?;
                message.put(attribute::PORT, &[port])?;
                message.end();
            }
            *at = at.wrapping_add(1);
        }
        Ok(())
    }
}

fn pnet_id(attributes: &Attributes<'_>) -> Result<PnetId> {
    let text = attributes.string(attribute::NAME, pnet::ID)?;
    PnetId::from_text(text.ok_or(EINVAL)?).ok_or(EINVAL)
}

/// Adds an interface, a port, or both: as in C it is an error only if neither could be added.
fn add(net: &Net, namespace: &Namespace, attributes: &Attributes<'_>) -> Result {
    let id = pnet_id(attributes)?;
    let interface = attributes
        .string(attribute::INTERFACE, pnet::INTERFACE)?
        .map(Member::interface)
        .transpose()?;
    let port = match attributes.get(attribute::PORT)? {
        None => 1,
        Some([port]) => *port,
        Some(_) => return Err(EINVAL),
    };
    let port = attributes
        .string(attribute::DEVICE, pnet::DEVICE)?
        .map(|name| Member::port(name, port))
        .transpose()?
        // Ports are entered in the initial namespace only.
        .filter(|_| net.is_initial());
    let mut result = Err(EEXIST);
    for member in [interface, port].into_iter().flatten() {
        match namespace.pnets.add(id, member) {
            Ok(()) => result = Ok(()),
            Err(err) if err == EEXIST => (),
            Err(err) => return Err(err),
        }
    }
    result
}
