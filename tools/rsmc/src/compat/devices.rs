// SPDX-License-Identifier: GPL-2.0
//! The object `device` of `smcr` and `smcd`.

use super::groups::Selection;
use super::smc::{stem, Options, Technology};
use super::smcd::smcd_devices;
use super::{interface, or_na};
use crate::dev;
use crate::error::{Error, Result};
use crate::table::Table;
use std::io::Write;

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
