// SPDX-License-Identifier: GPL-2.0
//! The objects `info` and `seid` of `smcr` and `smcd`.

use super::{or_na, smcd::smcd_devices};
use crate::error::Result;
use crate::netlink::wire::{NLM_F_ACK, NLM_F_DUMP};
use crate::system::{self, System};
use crate::{dev, gid, visible};
use std::fs;
use std::io::Write;

/// `info`: what the kernel and its devices can do.
///
/// # Errors
/// The kernel's errors, and those of writing to `out`.
pub fn info(out: &mut dyn Write) -> Result<()> {
    let system = system::collect()?;
    let roce = match dev::collect()?.is_empty() {
        true => "n/a",
        false => versions(has_roce_v2()),
    };
    let ism = match smcd_devices()?.is_empty() {
        true => "n/a",
        false => versions(system.smcd_v2),
    };
    tell(&system, ism, roce, out)
}

/// The versions of SMC, the second one among them or not.
fn versions(second: bool) -> &'static str {
    match second {
        true => "v1 v2",
        false => "v1",
    }
}

fn tell(system: &System, ism: &str, roce: &str, out: &mut dyn Write) -> Result<()> {
    let line = |out: &mut dyn Write, name: &str, value: &str| {
        writeln!(out, "{:<18}{}", format!("{name}:"), visible::text(value))
    };
    writeln!(out, "Kernel Capabilities")?;
    line(
        out,
        "SMC Version",
        &format!("{}.{}", system.version, system.release),
    )?;
    line(out, "SMC Hostname", &or_na(&system.host))?;
    // What the kernel can do; the devices are below.
    line(out, "SMC-D Features", versions(system.version >= 2))?;
    line(out, "SMC-R Features", versions(system.smcr_v2))?;
    writeln!(out, "\nHardware Capabilities")?;
    line(out, "SEID", &or_na(&system.seid))?;
    line(out, "ISM", ism)?;
    line(out, "RoCE", roce)?;
    Ok(())
}

/// True if a port of an RDMA device has an address for version 2.
fn has_roce_v2() -> bool {
    let inside = |path: &str| fs::read_dir(path).ok().into_iter().flatten().flatten();
    inside("/sys/class/infiniband").any(|device| {
        let ports = device.path().join("ports");
        inside(&ports.to_string_lossy())
            .any(|port| gid::of_port(&port.path()).any(|gid| gid.is_roce_v2()))
    })
}

const DUMP_SEID: u8 = 13;
const ENABLE_SEID: u8 = 14;
const DISABLE_SEID: u8 = 15;
/// Attributes `SMC_NLA_SEID_ENTRY` and `SMC_NLA_SEID_ENABLED`.
const SEID_ENTRY: u16 = 1;
const SEID_ENABLED: u16 = 2;

/// `seid`: shows or switches the system EID.
///
/// # Errors
/// The kernel's errors, and those of writing to `out`.
pub fn seid(command: &str, out: &mut dyn Write) -> Result<()> {
    let mut family = crate::stats::family()?;
    let number = match command {
        "enable" => ENABLE_SEID,
        "disable" => DISABLE_SEID,
        _ => DUMP_SEID,
    };
    if number != DUMP_SEID {
        let request = family.command(number, NLM_F_ACK);
        let done = family.ask("changing the system EID", &request);
        return done.map(|_| ()).map_err(crate::stats::not_yet);
    }
    let request = family.command(number, NLM_F_DUMP);
    let (mut eid, mut enabled) = (String::new(), false);
    for body in family.ask("asking for the system EID", &request)? {
        for attribute in body.attributes()? {
            match attribute.kind {
                SEID_ENTRY => eid = attribute.text().trim_end().to_string(),
                SEID_ENABLED => enabled = attribute.number() == Some(1),
                _ => {}
            }
        }
    }
    match (eid.as_str(), enabled) {
        ("", _) => writeln!(out, "n/a")?,
        (eid, true) => writeln!(out, "{eid} [enabled]")?,
        (eid, false) => writeln!(out, "{eid} [disabled]")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities() {
        let system = System {
            version: 2,
            release: 1,
            smcr_v2: true,
            ..System::default()
        };
        let mut out = Vec::new();
        tell(&system, "n/a", "v1 v2", &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Kernel Capabilities\n\
             SMC Version:      2.1\n\
             SMC Hostname:     n/a\n\
             SMC-D Features:   v1 v2\n\
             SMC-R Features:   v1 v2\n\n\
             Hardware Capabilities\n\
             SEID:             n/a\n\
             ISM:              n/a\n\
             RoCE:             v1 v2\n"
        );
    }
}
