// SPDX-License-Identifier: GPL-2.0
//! What `smcd` lists of link groups and devices.

use super::groups::{system, vlan, Selection};
use super::or_na;
use super::smc::Options;
use crate::error::Result;
use crate::netlink::genl;
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::table::Table;
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

/// The link groups, as a table or as blocks.
pub fn smcd_groups(options: Options, selection: &Selection, out: &mut dyn Write) -> Result<()> {
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
