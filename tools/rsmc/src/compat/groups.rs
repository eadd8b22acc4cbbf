// SPDX-License-Identifier: GPL-2.0
//! The object `linkgroup` of `smcr` and `smcd`.

use super::smc::{stem, Options, Technology};
use super::{interface, smcd::smcd_groups};
use crate::dev::Port;
use crate::error::{Error, Result};
use crate::link::{self, Group, Link};
use crate::table::Table;
use std::io::Write;

/// Which groups, links or devices are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// The group of this number.
    Id(u64),
    /// What uses this network interface.
    Interface(String),
    /// What uses this RDMA device.
    Device(String),
}

impl Selection {
    /// From the words after the command.
    pub fn parse(technology: Technology, words: &[String]) -> Result<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match (technology, &words[..]) {
            (_, [] | ["all"]) => Ok(Selection::All),
            (Technology::R, ["netdev", name]) => Ok(Selection::Interface((*name).into())),
            (Technology::R, ["ibdev", name]) => Ok(Selection::Device((*name).into())),
            (_, [id]) => match u64::from_str_radix(id.trim_start_matches("0x"), 16) {
                Ok(id) => Ok(Selection::Id(id)),
                Err(_) => Err(Error::Usage(format!("{id} is no hexadecimal number"))),
            },
            (_, words) => Err(Error::Usage(format!("what is {}?", words.join(" ")))),
        }
    }

    fn has_link(&self, group: &Group, link: &Link) -> bool {
        match self {
            Selection::All => true,
            Selection::Id(id) => group.id == *id,
            Selection::Interface(name) => interface(link.ifindex) == *name,
            Selection::Device(name) => link.device == *name,
        }
    }

    fn has_group(&self, group: &Group) -> bool {
        match self {
            Selection::All => true,
            Selection::Id(id) => group.id == *id,
            _ => group.links.iter().any(|link| self.has_link(group, link)),
        }
    }

    /// True if a device's port is asked for.
    pub fn has_port(&self, port: &Port) -> bool {
        match self {
            Selection::All => true,
            Selection::Id(_) => false,
            Selection::Interface(name) => interface(port.ifindex) == *name,
            Selection::Device(name) => port.device == *name,
        }
    }
}

/// `linkgroup`.
pub fn groups(
    technology: Technology,
    options: Options,
    words: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    let commands: &[&'static str] = match technology {
        Technology::R => &["show", "link-show"],
        Technology::D => &["show"],
    };
    // Without a command, the words say which groups.
    let named = words
        .first()
        .and_then(|word| stem(word, commands, "command").ok());
    let (command, rest) = match named {
        Some(command) => (command, words.get(1..).unwrap_or(&[])),
        None => ("show", words),
    };
    let selection = Selection::parse(technology, rest)?;
    if technology == Technology::D {
        return smcd_groups(options, &selection, out);
    }
    let mut groups = link::collect()?;
    groups.retain(|group| selection.has_group(group));
    if command == "link-show" {
        return links(options, &selection, &groups, out);
    }
    if options.details {
        for (number, group) in groups.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            details(group, out)?;
        }
        return Ok(());
    }
    let head = ["LG-ID", "LG-Role", "LG-Type", "VLAN", "#Conns", "PNET-ID"];
    let mut table = Table::new(&head);
    for group in &groups {
        table.row(vec![
            format!("{:08x}", group.id),
            role(group).into(),
            kind(group).into(),
            vlan(group.vlan),
            group.connections.to_string(),
            group.pnet_id.clone().unwrap_or_default(),
        ]);
    }
    Ok(table.print(out)?)
}

fn role(group: &Group) -> &'static str {
    match group.role {
        "server" => "SERV",
        _ => "CLNT",
    }
}

fn kind(group: &Group) -> &'static str {
    match group.kind {
        0 => "NONE",
        1 => "SINGLE",
        2 => "SYM",
        3 => "ASYMP",
        4 => "ASYML",
        _ => "Unknown",
    }
}

/// A VLAN as the tools print it.
pub fn vlan(vlan: u64) -> String {
    format!("{vlan:#x}")
}

/// An operating system by its number.
pub fn system(number: Option<u64>) -> &'static str {
    match number {
        Some(1) => "ZOS",
        Some(2) => "LINUX",
        Some(3) => "AIX",
        _ => "Unknown",
    }
}

fn details(group: &Group, out: &mut dyn Write) -> Result<()> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut pairs = vec![
        ("LG-ID", format!("{:08x}", group.id)),
        ("LG-Role", role(group).into()),
        ("LG-Type", kind(group).into()),
        ("VLAN", vlan(group.vlan)),
        ("PNET-ID", text(&group.pnet_id)),
        ("Version", group.version.unwrap_or(1).to_string()),
    ];
    if group.version.is_some_and(|version| version > 1) {
        pairs.extend([
            ("Peer-Rel", group.release.unwrap_or(0).to_string()),
            ("Peer-Host", text(&group.peer_host)),
            ("Peer-OS", system(group.peer_os).into()),
            (
                "Direct",
                if group.direct == Some(true) {
                    "Yes"
                } else {
                    "No"
                }
                .into(),
            ),
            ("EID", text(&group.eid)),
        ]);
    }
    let number = |number: Option<u64>| number.map_or("n/a".into(), |number| number.to_string());
    pairs.extend([
        ("#Conns", group.connections.to_string()),
        ("Sndbuf", number(group.send_bytes)),
        ("RMB", number(group.receive_bytes)),
    ]);
    for (name, value) in pairs {
        writeln!(out, "{}", format!("{name:<10}: {value}").trim_end())?;
    }
    Ok(())
}

fn links(
    options: Options,
    selection: &Selection,
    groups: &[Group],
    out: &mut dyn Write,
) -> Result<()> {
    let mut head = vec![
        "LG-ID",
        "LG-Role",
        "LG-Type",
        "Net-Dev",
        "Link-State",
        "#Conns",
    ];
    if options.details {
        head.extend(["Link-UID", "Peer-UID", "IB-Dev", "IB-P"]);
    }
    if options.more_details {
        head.extend(["Local-GID", "Peer-GID"]);
    }
    let mut table = Table::new(&head);
    for group in groups {
        for link in &group.links {
            if !selection.has_link(group, link) {
                continue;
            }
            let mut cells = vec![
                format!("{:08x}", group.id),
                role(group).into(),
                kind(group).into(),
                interface(link.ifindex),
                format!("LINK_{}", link.state.to_uppercase()),
                link.connections.to_string(),
            ];
            if options.details {
                cells.extend([
                    format!("{:08x}", link.uid),
                    format!("{:08x}", link.peer_uid),
                    link.device.clone(),
                    link.port.to_string(),
                ]);
            }
            if options.more_details {
                cells.extend([link.gid.clone(), link.peer_gid.clone()]);
            }
            table.row(cells);
        }
    }
    Ok(table.print(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group {
            id: 0x1a,
            role: "server",
            kind: 2,
            version: Some(2),
            release: Some(1),
            peer_os: Some(2),
            connections: 3,
            send_bytes: Some(65536),
            links: vec![Link {
                device: "rxe0".into(),
                state: "active",
                uid: 7,
                ..Link::default()
            }],
            ..Group::default()
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn selections() {
        let parsed = |text: &str| Selection::parse(Technology::R, &words(text)).ok();
        assert_eq!(parsed("all"), Some(Selection::All));
        assert_eq!(parsed("1a"), Some(Selection::Id(0x1a)));
        assert_eq!(parsed("ibdev rxe0"), Some(Selection::Device("rxe0".into())));
        assert_eq!(parsed("ibdev"), None);
        assert!(Selection::parse(Technology::D, &words("netdev lo")).is_err());
        assert!(parsed("ibdev rxe0").unwrap().has_group(&group()));
        assert!(!parsed("ibdev rxe1").unwrap().has_group(&group()));
        assert!(!parsed("2b").unwrap().has_group(&group()));
    }

    #[test]
    fn details_and_links() {
        let mut out = Vec::new();
        details(&group(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("LG-ID     : 0000001a\nLG-Role   : SERV\nLG-Type   : SYM\n"),
            "{text}"
        );
        assert!(
            text.contains("Peer-OS   : LINUX\n") && text.contains("RMB       : n/a\n"),
            "{text}"
        );
        let options = Options {
            details: true,
            ..Options::default()
        };
        let mut out = Vec::new();
        links(options, &Selection::All, &[group()], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = [
            "0000001a",
            "SERV",
            "SYM",
            "n/a",
            "LINK_ACTIVE",
            "0",
            "00000007",
            "00000000",
            "rxe0",
            "0",
        ];
        assert_eq!(row, expected);
    }
}
