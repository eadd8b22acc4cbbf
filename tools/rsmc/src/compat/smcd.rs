// SPDX-License-Identifier: GPL-2.0
//! Lists of link groups and devices that `smcd` prints.

use super::columns::{self, left, right};
use super::devices::device_type;
use super::groups::{block, bytes, system, vlan};
use super::or_na;
use super::selection::Selection;
use super::smc::Options;
use crate::error::Result;
use crate::netlink::genl;
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use std::io::Write;

const GET_LGR_SMCD: u8 = 4;
const GET_DEV_SMCD: u8 = 5;
/// Top level attributes `SMC_GEN_LGR_SMCD` and `SMC_GEN_DEV_SMCD`.
const GEN_LGR_SMCD: u16 = 4;
const GEN_DEV_SMCD: u16 = 5;

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

fn found<'a, 'b>(attributes: &'a [Attribute<'b>], kind: u16) -> Option<&'a Attribute<'b>> {
    attributes.iter().find(|one| one.kind == kind)
}

fn number(attributes: &[Attribute<'_>], kind: u16) -> u64 {
    found(attributes, kind)
        .and_then(Attribute::number)
        .unwrap_or(0)
}

fn text(attributes: &[Attribute<'_>], kind: u16) -> String {
    let found = found(attributes, kind);
    found.map_or(String::new(), |one| one.text().trim_end().to_string())
}

/// SMC-D devices as rows of the table.
pub fn smcd_devices() -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    listed(GET_DEV_SMCD, GEN_DEV_SMCD, |device| {
        // The nested attributes of its only port: who set the physical network, and its id.
        let port = found(device, 8);
        let port = port.map_or(Ok(Vec::new()), |port| genl::all(port.nested()))?;
        let star = if number(&port, 1) == 1 { "*" } else { "" };
        rows.push(vec![
            format!("{:04x}", number(device, 3)),
            device_type(number(device, 6)),
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

/// The link groups, as a table or as blocks.
pub fn smcd_groups(options: Options, selection: &Selection, out: &mut dyn Write) -> Result<()> {
    let columns = [
        left("LG-ID", 8, 1),
        right("VLAN", 4, 2),
        right("#Conns", 6, 2),
        left("PNET-ID", 16, 0),
    ];
    let mut rows = Vec::new();
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    listed(GET_LGR_SMCD, GEN_LGR_SMCD, |group| {
        let id = number(group, 1);
        if matches!(selection, Selection::Id(wanted) if *wanted != id) {
            return Ok(());
        }
        rows.push(vec![
            format!("{id:08x}"),
            vlan(number(group, 4)),
            number(group, 5).to_string(),
            text(group, 6),
        ]);
        let mut out = Vec::new();
        details(group, &mut out)?;
        blocks.push(out);
        Ok(())
    })?;
    match options.details {
        true => out.write_all(&blocks.join(&b'\n'))?,
        false => columns::print(out, &columns, &rows)?,
    }
    Ok(())
}

/// A group as a block of details.
fn details(group: &[Attribute<'_>], out: &mut dyn Write) -> Result<()> {
    let size = |kind| bytes(found(group, kind).and_then(Attribute::number));
    let common = match found(group, 9) {
        Some(common) => genl::all(common.nested())?,
        None => Vec::new(),
    };
    let mut pairs = vec![
        ("LG-ID", format!("{:08x}", number(group, 1))),
        ("VLAN", format!("{:x}", number(group, 4))),
        ("PNET-ID", text(group, 6)),
        ("Version", number(&common, 0).max(1).to_string()),
    ];
    if !common.is_empty() {
        pairs.extend([
            ("Peer-Rel", number(&common, 1).to_string()),
            ("Peer-Host", text(&common, 4)),
            ("Peer-OS", system(number(&common, 2))),
            ("EID", text(&common, 3)),
        ]);
    }
    pairs.extend([
        ("#Conns", number(group, 5).to_string()),
        ("Sndbuf", size(12)),
        ("DMB", size(13)),
    ]);
    block(&pairs, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire;

    fn block_of(bytes: &[Vec<u8>]) -> String {
        let bytes = bytes.concat();
        let group = genl::all(wire::attributes(&bytes)).unwrap();
        let mut out = Vec::new();
        details(&group, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn details_by_version() {
        let mut group = vec![
            wire::attribute(1, &0x1a00u32.to_ne_bytes()),
            wire::attribute(4, &[0x10]),
            wire::attribute(5, &3u32.to_ne_bytes()),
            wire::attribute(12, &65536u32.to_ne_bytes()),
        ];
        assert_eq!(
            block_of(&group),
            "LG-ID    : 00001a00\nVLAN     : 10\nPNET-ID  :\nVersion  : 1\n\
             #Conns   : 3\nSndbuf   : 65536 B\nDMB      : n/a\n"
        );
        let common = [wire::attribute(0, &[2]), wire::attribute(2, &[1])];
        group.push(wire::attribute(9, &common.concat()));
        let text = block_of(&group);
        assert!(
            text.contains("Version  : 2\nPeer-Rel : 0\nPeer-Host:\nPeer-OS  : ZOS\nEID"),
            "{text}"
        );
    }
}
