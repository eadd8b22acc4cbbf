// SPDX-License-Identifier: GPL-2.0
//! The objects `linkgroup` and `device` of `smcr` and `smcd`.

use super::smc::{stem, Options, Technology};
use super::{interface, or_na};
use crate::dev::{self, Port};
use crate::error::{Error, Result};
use crate::link::{self, Group, Link};
use crate::netlink::genl;
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::table::Table;
use std::io::Write;

const GET_LGR_SMCD: u8 = 4;
const GET_DEV_SMCD: u8 = 5;
/// Top level attributes `SMC_GEN_LGR_SMCD` and `SMC_GEN_DEV_SMCD`.
const GEN_LGR_SMCD: u16 = 4;
const GEN_DEV_SMCD: u16 = 5;

/// Which groups, links or devices are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    All,
    Id(u64),
    Interface(String),
    Device(String),
}

impl Selection {
    fn parse(technology: Technology, words: &[String]) -> Result<Self> {
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

    fn has_port(&self, port: &Port) -> bool {
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

fn vlan(vlan: u64) -> String {
    format!("{vlan:#x}")
}

fn system(number: Option<u64>) -> &'static str {
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

/// `device`.
pub fn devices(
    technology: Technology,
    options: Options,
    words: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    let rest = match words.split_first() {
        Some((word, rest)) if stem(word, &["show"], "command").is_ok() => rest,
        _ => words,
    };
    let selection = Selection::parse(technology, rest)?;
    if let Selection::Id(_) = selection {
        return Err(Error::Usage(format!("what is {}?", rest.join(" "))));
    }
    if technology == Technology::D {
        let head = ["FID", "Type", "PCI-ID", "PCHID", "InUse", "#LGs", "PNET-ID"];
        let mut table = Table::new(&head);
        smcd_devices()?.into_iter().for_each(|row| table.row(row));
        return Ok(table.print(out)?);
    }
    let mut head = vec!["Net-Dev", "IB-Dev", "IB-P", "IB-State", "Type", "Crit"];
    if options.details {
        head.extend(["FID", "PCI-ID", "PCHID"]);
    }
    head.extend(["#Links", "PNET-ID"]);
    let mut table = Table::new(&head);
    for port in dev::collect()?
        .iter()
        .filter(|port| selection.has_port(port))
    {
        let mut cells = vec![
            interface(port.ifindex),
            port.device.clone(),
            port.port.to_string(),
            if port.active { "ACTIVE" } else { "INACTIVE" }.into(),
            match port.pci.device {
                0 => "n/a".into(),
                number => format!("{number:#06x}"),
            },
            if port.critical { "Yes" } else { "No" }.into(),
        ];
        if options.details {
            cells.extend([
                format!("{:04x}", port.pci.fid),
                or_na(&port.pci.address),
                format!("{:04x}", port.pci.chid),
            ]);
        }
        let star = if port.pnet_by_user { "*" } else { "" };
        cells.push(port.links.to_string());
        cells.push(format!(
            "{star}{}",
            port.pnet_id.clone().unwrap_or_default()
        ));
        table.row(cells);
    }
    Ok(table.print(out)?)
}

/// All top level attributes of one kind that a command lists.
fn listed(
    command: u8,
    kind: u16,
    mut take: impl FnMut(&[Attribute<'_>]) -> Result<()>,
) -> Result<()> {
    let mut family = crate::stats::family()?;
    let request = family.command(command, NLM_F_DUMP);
    for body in family
        .ask("asking about SMC-D", &request)
        .map_err(crate::stats::not_yet)?
    {
        for attribute in body.attributes()? {
            if attribute.kind == kind {
                take(&genl::all(attribute.nested())?)?;
            }
        }
    }
    Ok(())
}

fn number(attributes: &[Attribute<'_>], kind: u16) -> u64 {
    let found = attributes.iter().find(|one| one.kind == kind);
    found.and_then(Attribute::number).unwrap_or(0)
}

fn text(attributes: &[Attribute<'_>], kind: u16) -> String {
    let found = attributes.iter().find(|one| one.kind == kind);
    found.map_or(String::new(), |one| one.text().trim_end().to_string())
}

/// SMC-D devices as rows of the table.
pub fn smcd_devices() -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    listed(GET_DEV_SMCD, GEN_DEV_SMCD, |device| {
        // The nested attributes of its only port: who set the physical network, and its id.
        let port = device.iter().find(|one| one.kind == 8);
        let port = port.map_or(Ok(Vec::new()), |port| genl::all(port.nested()))?;
        let star = if number(&port, 1) == 1 { "*" } else { "" };
        rows.push(vec![
            format!("{:04x}", number(device, 3)),
            match number(device, 6) {
                0 => "n/a".into(),
                kind => format!("{kind:#06x}"),
            },
            or_na(&text(device, 7)),
            format!("{:04x}", number(device, 4)),
            if number(device, 2) != 0 { "Yes" } else { "No" }.into(),
            number(device, 1).to_string(),
            format!("{star}{}", text(&port, 2)),
        ]);
        Ok(())
    })?;
    Ok(rows)
}

fn smcd_groups(options: Options, selection: &Selection, out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new(&["LG-ID", "VLAN", "#Conns", "PNET-ID"]);
    let mut blocks = Vec::new();
    listed(GET_LGR_SMCD, GEN_LGR_SMCD, |group| {
        let id = number(group, 1);
        if matches!(selection, Selection::Id(wanted) if *wanted != id) {
            return Ok(());
        }
        let row = vec![
            format!("{id:08x}"),
            vlan(number(group, 4)),
            number(group, 5).to_string(),
            text(group, 6),
        ];
        let common = group.iter().find(|one| one.kind == 9);
        let common = common.map_or(Ok(Vec::new()), |one| genl::all(one.nested()))?;
        blocks.push(format!(
            "LG-ID     : {}\nVLAN      : {}\nPNET-ID   : {}\nVersion   : {}\nPeer-Rel  : {}\n\
             Peer-Host : {}\nPeer-OS   : {}\nEID       : {}\n#Conns    : {}\nSndbuf    : {}\nDMB       : {}\n",
            row[0],
            row[1],
            row[3],
            number(&common, 0).max(1),
            number(&common, 1),
            text(&common, 4),
            system(Some(number(&common, 2))),
            text(&common, 3),
            row[2],
            number(group, 12),
            number(group, 13),
        ));
        table.row(row);
        Ok(())
    })?;
    match options.details {
        true => write!(out, "{}", blocks.join("\n"))?,
        false => table.print(out)?,
    }
    Ok(())
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
