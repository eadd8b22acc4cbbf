// SPDX-License-Identifier: GPL-2.0
//! Generic netlink: families by name, and commands to them (`<linux/genetlink.h>`).

use super::socket::Netlink;
use super::wire::{self, Attribute, BadLength, Request};
use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::net::netlink;

/// Message type of the controller, which knows the other families' types.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr` in bytes.
const GENL_HEADER: usize = 4;

/// A generic netlink family of the kernel.
#[derive(Debug)]
pub struct Family {
    netlink: Netlink,
    id: u16,
    version: u8,
}

impl Family {
    /// Finds the family `name`; `missing` makes what to tell the user if the kernel has none.
    ///
    /// # Errors
    /// `NotThere(missing())`, or what the kernel says.
    pub fn find(name: &str, version: u8, missing: impl FnOnce() -> String) -> Result<Self> {
        let mut netlink = Netlink::open(netlink::GENERIC)?;
        let request = Request::new(
            GENL_ID_CTRL,
            wire::NLM_F_ACK,
            &[CTRL_CMD_GETFAMILY, 1, 0, 0],
        )
        .text(CTRL_ATTR_FAMILY_NAME, name);
        let replies = match netlink.ask("asking for a netlink family", &request) {
            Err(Error::Refused(_, Errno::NOENT)) => {
                return Err(Error::NotThere(missing()));
            }
            other => other?,
        };
        let id = replies.iter().find_map(|reply| {
            let body = reply.payload.get(GENL_HEADER..)?;
            let mut all = wire::attributes(body).filter_map(std::result::Result::ok);
            all.find(|attribute| attribute.kind == CTRL_ATTR_FAMILY_ID)?
                .number()
        });
        let id = id.and_then(|id| u16::try_from(id).ok());
        Ok(Self {
            netlink,
            id: id.ok_or(Error::Malformed("a family without a number"))?,
            version,
        })
    }

    /// A request for a command; `flags` is `NLM_F_DUMP` or `NLM_F_ACK`.
    pub fn command(&self, command: u8, flags: u16) -> Request {
        Request::new(self.id, flags, &[command, self.version, 0, 0])
    }

    /// Sends a command and returns the bodies of its replies, without the generic header.
    ///
    /// # Errors
    /// The kernel's errors.
    pub fn ask(&mut self, what: &'static str, request: &Request) -> Result<Vec<Body>> {
        let mut bodies = Vec::new();
        for reply in self.netlink.ask(what, request)? {
            if reply.kind != self.id {
                continue;
            }
            let body = reply.payload.get(GENL_HEADER..);
            bodies.push(Body(
                body.ok_or(Error::Malformed("a short message"))?.to_vec(),
            ));
        }
        Ok(bodies)
    }
}

/// The attributes of one reply.
#[derive(Clone, Debug)]
pub struct Body(pub Vec<u8>);

impl Body {
    /// All attributes.
    ///
    /// # Errors
    /// A length that leads outside.
    pub fn attributes(&self) -> Result<Vec<Attribute<'_>>> {
        all(wire::attributes(&self.0))
    }
}

/// All attributes of an iterator.
///
/// # Errors
/// A length that leads outside.
pub fn all<'a>(
    attributes: impl Iterator<Item = std::result::Result<Attribute<'a>, BadLength>>,
) -> Result<Vec<Attribute<'a>>> {
    attributes
        .collect::<std::result::Result<_, BadLength>>()
        .map_err(|BadLength| Error::Malformed("an attribute's length"))
}
