// SPDX-License-Identifier: GPL-2.0
//! The object `device` of `smcr` and `smcd`.

use super::columns::{self, left, right};
use super::or_na;
use super::selection::Selection;
use super::smc::{stem, Options, Technology};
use super::smcd::smcd_devices;
use crate::dev::{self, Port};
use crate::error::{Error, Result};
use crate::system::interface;
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
        let columns = [
            left("FID", 4, 1),
            left("Type", 4, 2),
            left("PCI-ID", 12, 2),
            left("PCHID", 4, 3),
            left("InUse", 4, 2),
            right("#LGs", 5, 2),
            left("PNET-ID", 16, 0),
        ];
        return Ok(columns::print(out, &columns, &smcd_devices()?)?);
    }
    let mut ports = dev::collect()?;
    ports.retain(|port| selection.has_port(port));
    table(options, &ports, out)
}

fn table(options: Options, ports: &[Port], out: &mut dyn Write) -> Result<()> {
    let mut columns = vec![
        left("Net-Dev", 15, 1),
        left("IB-Dev", 8, 1),
        right("IB-P", 4, 2),
        right("IB-State", 8, 2),
        left("Type", 13, 2),
        right("Crit", 3, 3),
    ];
    if options.details {
        columns.extend([
            left("FID", 4, 2),
            left("PCI-ID", 12, 2),
            left("PCHID", 4, 4),
        ]);
    }
    columns.extend([right("#Links", 5, 2), left("PNET-ID", 16, 0)]);
    let mut rows = Vec::new();
    for port in ports {
        let mut cells = vec![
            interface(port.ifindex),
            port.device.clone(),
            port.port.to_string(),
            if port.active { "ACTIVE" } else { "INACTIVE" }.into(),
            device_type(port.pci.device),
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
        let id = port.pnet_id.clone().unwrap_or_default();
        cells.push(port.links.to_string());
        cells.push(format!("{star}{id}"));
        rows.push(cells);
    }
    Ok(columns::print(out, &columns, &rows)?)
}

/// A device by its PCI number. The tools have names for those that IBM sells.
pub fn device_type(number: u64) -> String {
    match number {
        0 => "n/a".into(),
        0x1004 => "RoCE_Express".into(),
        0x1016 => "RoCE_Express2".into(),
        0x101e => "RoCE_Express3".into(),
        0x04ed => "ISM".into(),
        other => format!("{other:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_columns() {
        let port = Port {
            device: "mlx5_0".into(),
            port: 1,
            active: true,
            links: 2,
            pnet_id: Some("NET1".into()),
            pnet_by_user: true,
            ..Port::default()
        };
        let mut out = Vec::new();
        table(Options::default(), &[port], &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Net-Dev         IB-Dev   IB-P  IB-State  Type           Crit  #Links PNET-ID\n\
             n/a             mlx5_0      1    ACTIVE  n/a             No       2  *NET1\n"
        );
        assert_eq!(device_type(0x1017), "0x1017");
        assert_eq!(device_type(0x1016), "RoCE_Express2");
    }
}
