// SPDX-License-Identifier: GPL-2.0
//! The object `linkgroup` of `smcr` and `smcd`.

use super::columns::{self, left, right};
use super::selection::Selection;
use super::smc::{stem, Options, Technology};
use super::smcd::smcd_groups;
use crate::error::Result;
use crate::link::{self, Group};
use crate::system::interface;
use crate::visible;
use std::io::Write;

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
    table(&groups, out)
}

fn table(groups: &[Group], out: &mut dyn Write) -> Result<()> {
    let columns = [
        left("LG-ID", 8, 1),
        left("LG-Role", 8, 1),
        left("LG-Type", 8, 1),
        right("VLAN", 4, 2),
        right("#Conns", 6, 2),
        left("PNET-ID", 16, 0),
    ];
    let row = |group: &Group| {
        vec![
            format!("{:08x}", group.id),
            role(group).into(),
            kind(group),
            vlan(group.vlan),
            group.connections.to_string(),
            group.pnet_id.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
    Ok(columns::print(out, &columns, &rows)?)
}

fn role(group: &Group) -> &'static str {
    match group.role {
        "server" => "SERV",
        _ => "CLNT",
    }
}

fn kind(group: &Group) -> String {
    match group.kind {
        0 => "NONE".into(),
        1 => "SINGLE".into(),
        2 => "SYM".into(),
        3 => "ASYMP".into(),
        4 => "ASYML".into(),
        other => format!("{other:#x}?"),
    }
}

/// A VLAN as the tools print it in tables: that of none has no prefix.
pub fn vlan(vlan: u64) -> String {
    match vlan {
        0 => "0".into(),
        vlan => format!("{vlan:#x}"),
    }
}

/// An operating system by its number.
pub fn system(number: u64) -> String {
    match number {
        0 => "Unknown (0)".into(),
        1 => "ZOS".into(),
        2 => "LINUX".into(),
        3 => "AIX".into(),
        other => format!("Unknown ({other:#x})"),
    }
}

/// A buffer size in a block of details.
pub fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or("n/a".into(), |bytes| format!("{bytes} B"))
}

/// A block of details: a line for each pair.
///
/// # Errors
/// Errors of writing to `out`.
pub fn block(pairs: &[(&str, String)], out: &mut dyn Write) -> Result<()> {
    for (name, value) in pairs {
        let line = format!("{name:<9}: {}", visible::text(value));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn details(group: &Group, out: &mut dyn Write) -> Result<()> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut pairs = vec![
        ("LG-ID", format!("{:08x}", group.id)),
        ("LG-Role", role(group).into()),
        ("LG-Type", kind(group)),
        ("VLAN", format!("{:x}", group.vlan)),
        ("PNET-ID", text(&group.pnet_id)),
        ("Version", group.version.unwrap_or(1).to_string()),
    ];
    if group.version.is_some_and(|version| version > 1) {
        pairs.extend([
            ("Peer-Rel", group.release.unwrap_or(0).to_string()),
            ("Peer-Host", text(&group.peer_host)),
            ("Peer-OS", system(group.peer_os.unwrap_or(0))),
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
    pairs.extend([
        ("#Conns", group.connections.to_string()),
        ("Sndbuf", bytes(group.send_bytes)),
        ("RMB", bytes(group.receive_bytes)),
    ]);
    block(&pairs, out)
}

fn links(
    options: Options,
    selection: &Selection,
    groups: &[Group],
    out: &mut dyn Write,
) -> Result<()> {
    let mut columns = vec![
        left("LG-ID", 8, 1),
        left("LG-Role", 8, 1),
        left("LG-Type", 8, 1),
        left("Net-Dev", 15, 1),
        left("Link-State", 15, 1),
        right("#Conns", 6, 2),
    ];
    if options.details {
        columns.extend([
            left("Link-UID", 8, 2),
            left("Peer-UID", 8, 2),
            left("IB-Dev", 8, 2),
            right("IB-P", 4, 2),
        ]);
    }
    if options.more_details {
        columns.extend([left("Local-GID", 40, 2), left("Peer-GID", 0, 0)]);
    }
    let mut rows = Vec::new();
    for group in groups {
        for link in &group.links {
            if !selection.has_link(group, link) {
                continue;
            }
            let mut cells = vec![
                format!("{:08x}", group.id),
                role(group).into(),
                kind(group),
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
            rows.push(cells);
        }
    }
    Ok(columns::print(out, &columns, &rows)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn group() -> Group {
        Group {
            id: 0x1a,
            role: "server",
            kind: 2,
            version: Some(2),
            release: Some(1),
            peer_os: Some(2),
            vlan: 5,
            connections: 3,
            send_bytes: Some(65536),
            links: vec![link::Link {
                device: "rxe0".into(),
                state: "active",
                uid: 7,
                ..link::Link::default()
            }],
            ..Group::default()
        }
    }

    #[test]
    fn details_and_links() {
        let mut out = Vec::new();
        details(&group(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with(
                "LG-ID    : 0000001a\nLG-Role  : SERV\nLG-Type  : SYM\nVLAN     : 5\nPNET-ID  :\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("Peer-Host:\nPeer-OS  : LINUX\n")
                && text.contains("Sndbuf   : 65536 B\nRMB      : n/a\n"),
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

    #[test]
    fn places_of_columns() {
        let printed = |groups: &[Group]| {
            let mut out = Vec::new();
            table(groups, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let without_vlan = Group {
            vlan: 0,
            pnet_id: Some("NET1".into()),
            ..group()
        };
        assert_eq!(
            printed(&[group(), without_vlan]),
            "LG-ID    LG-Role  LG-Type  VLAN  #Conns  PNET-ID\n\
             0000001a SERV     SYM       0x5       3\n\
             0000001a SERV     SYM         0       3  NET1\n"
        );
        let options = Options {
            details: true,
            more_details: true,
            ..Options::default()
        };
        let mut out = Vec::new();
        links(options, &Selection::All, &[], &mut out).unwrap();
        let head = String::from_utf8(out).unwrap();
        for (word, place) in [("Link-UID", 67), ("IB-P", 97), ("Peer-GID", 145)] {
            assert_eq!(head.find(word), Some(place), "{head}");
        }
    }

    #[test]
    fn what_has_no_name() {
        assert_eq!(system(0), "Unknown (0)");
        assert_eq!(system(9), "Unknown (0x9)");
        let other = Group { kind: 7, ..group() };
        assert_eq!(kind(&other), "0x7?");
    }
}
