// SPDX-License-Identifier: GPL-2.0
//! `rsmc link`: link groups and their links (`SMC_GEN_NETLINK` command 3).

use crate::cli::LinkArgs;
use crate::error::Result;
use crate::netlink::genl;
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::{stats, table};
use serde::Serialize;
use std::io::Write;
use std::net::Ipv6Addr;

const GET_LINK_SMCR: u8 = 3;
/// Top level attribute `SMC_GEN_LGR_SMCR`: begins a group.
const GEN_LGR_SMCR: u16 = 2;
/// Top level attribute `SMC_GEN_LINK_SMCR`: a link of the group before it.
const GEN_LINK_SMCR: u16 = 3;

/// A link group as `--json` prints it. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Number.
    pub id: u64,
    /// `client` or `server`.
    pub role: &'static str,
    /// Redundancy of its links, by number: 0 none, 1 single, 2 symmetric, 3 and 4 asymmetric at the
    /// peer and here.
    pub kind: u64,
    /// VLAN, 0 for none.
    pub vlan: u64,
    /// Version of SMC, `null` where it is 1.
    pub version: Option<u64>,
    /// Release of the version.
    pub release: Option<u64>,
    /// The peer's host name.
    pub peer_host: Option<String>,
    /// The peer's operating system, by number: 1 z/OS, 2 Linux, 3 AIX.
    pub peer_os: Option<u64>,
    /// The enterprise id they have in common.
    pub eid: Option<String>,
    /// Physical network.
    pub pnet_id: Option<String>,
    /// Connections.
    pub connections: u64,
    /// Most connections.
    pub max_connections: Option<u64>,
    /// The peer is in the same subnet.
    pub direct: Option<bool>,
    /// Memory of send buffers.
    pub send_bytes: Option<u64>,
    /// Memory of receive buffers.
    pub receive_bytes: Option<u64>,
    /// Network namespace.
    pub netns_cookie: Option<u64>,
    /// Its links.
    pub links: Vec<Link>,
}

/// A link of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Number in the group.
    pub id: u64,
    /// RDMA device.
    pub device: String,
    /// Port of the device.
    pub port: u64,
    /// Network interface by number.
    pub ifindex: u64,
    /// Own address.
    pub gid: String,
    /// The peer's address.
    pub peer_gid: String,
    /// Connections on it.
    pub connections: u64,
    /// State in words.
    pub state: &'static str,
    /// Number of the link, unique on this host.
    pub uid: u64,
    /// The peer's number of it.
    pub peer_uid: u64,
}

/// Shows the groups.
///
/// # Errors
/// `NotThere` without the netlink family or the command, or the kernel's.
pub fn run(args: &LinkArgs, out: &mut dyn Write) -> Result<()> {
    let groups = collect()?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &groups)?;
        writeln!(out)?;
        return Ok(());
    }
    tell(&groups, out)
}

/// All groups with their links.
///
/// # Errors
/// `NotThere` without the netlink family or the command, or the kernel's.
pub fn collect() -> Result<Vec<Group>> {
    let mut family = stats::family()?;
    let request = family.command(GET_LINK_SMCR, NLM_F_DUMP);
    let mut groups: Vec<Group> = Vec::new();
    for body in family
        .ask("listing links", &request)
        .map_err(stats::not_yet)?
    {
        for attribute in body.attributes()? {
            match attribute.kind {
                GEN_LGR_SMCR => groups.push(group(&genl::all(attribute.nested())?)?),
                GEN_LINK_SMCR => {
                    let link = link(&genl::all(attribute.nested())?);
                    if let Some(group) = groups.last_mut() {
                        group.links.push(link);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(groups)
}

/// Text that says something.
fn words(attribute: &Attribute<'_>) -> Option<String> {
    Some(attribute.text().trim_end().to_string()).filter(|text| !text.is_empty())
}

fn group(attributes: &[Attribute<'_>]) -> Result<Group> {
    let mut group = Group {
        role: "client",
        ..Group::default()
    };
    for attribute in attributes {
        let number = attribute.number();
        match attribute.kind {
            1 => group.id = number.unwrap_or(0),
            2 if number == Some(1) => group.role = "server",
            3 => group.kind = number.unwrap_or(0),
            4 => group.pnet_id = words(attribute),
            5 => group.vlan = number.unwrap_or(0),
            6 => group.connections = number.unwrap_or(0),
            7 => {
                // What both versions of SMC-R and SMC-D have, numbered from 0.
                for inner in genl::all(attribute.nested())? {
                    match inner.kind {
                        0 => group.version = inner.number(),
                        1 => group.release = inner.number(),
                        2 => group.peer_os = inner.number(),
                        3 => group.eid = words(&inner),
                        4 => group.peer_host = words(&inner),
                        _ => {}
                    }
                }
            }
            8 => {
                for inner in genl::all(attribute.nested())? {
                    match inner.kind {
                        1 => group.direct = inner.number().map(|direct| direct != 0),
                        2 => group.max_connections = inner.number(),
                        _ => {}
                    }
                }
            }
            9 => group.netns_cookie = number,
            12 => group.send_bytes = number,
            13 => group.receive_bytes = number,
            _ => {}
        }
    }
    Ok(group)
}

/// A link's own number: the kernel passes on the bytes of RFC 7609's messages, the highest first.
fn uid(number: u64) -> u64 {
    u32::try_from(number).map_or(number, |number| u32::from_be(number).into())
}

fn link(attributes: &[Attribute<'_>]) -> Link {
    let mut link = Link {
        state: "unknown",
        ..Link::default()
    };
    for attribute in attributes {
        let number = attribute.number().unwrap_or(0);
        match attribute.kind {
            1 => link.id = number,
            2 => link.device = attribute.text(),
            3 => link.port = number,
            4 => link.gid = attribute.text(),
            5 => link.peer_gid = attribute.text(),
            6 => link.connections = number,
            7 => link.ifindex = number,
            8 => link.uid = uid(number),
            9 => link.peer_uid = uid(number),
            10 => {
                link.state = match number {
                    0 => "unused",
                    1 => "inactive",
                    2 => "activating",
                    3 => "active",
                    _ => "unknown",
                }
            }
            _ => {}
        }
    }
    link
}

/// A GID as the address that it is for RoCE version 2.
pub(crate) fn address(gid: &str) -> String {
    match gid.parse::<Ipv6Addr>() {
        Ok(gid) => gid.to_canonical().to_string(),
        Err(_) => gid.to_string(),
    }
}

fn tell(groups: &[Group], out: &mut dyn Write) -> Result<()> {
    let mut rows = Vec::new();
    let kib = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| (bytes / 1024).to_string());
    for group in groups {
        for link in &group.links {
            rows.push(vec![
                format!("{:08x}", group.id),
                group.role.into(),
                group
                    .version
                    .map_or("1".into(), |version| match group.release {
                        Some(release) => format!("{version}.{release}"),
                        None => version.to_string(),
                    }),
                format!("{}/{}", link.device, link.port),
                address(&link.gid),
                address(&link.peer_gid),
                link.state.into(),
                group.connections.to_string(),
                kib(group.send_bytes),
                kib(group.receive_bytes),
                group.peer_host.clone().unwrap_or_default(),
            ]);
        }
    }
    let head = [
        "Group",
        "Role",
        "SMC",
        "Device",
        "Local",
        "Peer",
        "State",
        "Conns",
        "Send KiB",
        "Recv KiB",
        "Peer host",
    ];
    table::print(out, &head, &rows)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire;

    #[test]
    fn groups_and_links() {
        let common = [
            wire::attribute(0, &[2]),
            wire::attribute(1, &[1]),
            wire::attribute(3, b"NET.A\0"),
            wire::attribute(4, b"db1     \0"),
        ];
        let bytes = [
            wire::attribute(1, &7u32.to_ne_bytes()),
            wire::attribute(2, &[1]),
            wire::attribute(4, b"\0"),
            wire::attribute(6, &3u32.to_ne_bytes()),
            wire::attribute(7, &common.concat()),
            wire::attribute(13, &65536u32.to_ne_bytes()),
        ];
        let bytes = bytes.concat();
        let mut group = group(&genl::all(wire::attributes(&bytes)).unwrap()).unwrap();
        assert_eq!((group.id, group.role, group.connections), (7, "server", 3));
        assert_eq!((group.version, group.release), (Some(2), Some(1)));
        assert_eq!(group.peer_host.as_deref(), Some("db1"));
        assert_eq!(group.pnet_id, None);

        let bytes = [
            wire::attribute(1, &[1]),
            wire::attribute(2, b"rxe0\0"),
            wire::attribute(3, &[1]),
            wire::attribute(4, b"0000:0000:0000:0000:0000:ffff:0a4d:0001\0"),
            wire::attribute(5, b"fd77:0000:0000:0000:0000:0000:0000:0002\0"),
            wire::attribute(8, &[0, 0, 1, 2]),
            wire::attribute(9, &[0xa0, 0, 0, 3]),
            wire::attribute(10, &3u32.to_ne_bytes()),
        ];
        let bytes = bytes.concat();
        let link = link(&genl::all(wire::attributes(&bytes)).unwrap());
        assert_eq!(link.state, "active");
        assert_eq!((link.uid, link.peer_uid), (0x102, 0xa000_0003));
        group.links.push(link);
        let mut out = Vec::new();
        tell(&[group], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("rxe0/1  10.77.0.1  fd77::2  active"),
            "{text}"
        );
    }
}
