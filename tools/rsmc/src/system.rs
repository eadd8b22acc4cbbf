// SPDX-License-Identifier: GPL-2.0
//! The SMC module's description of itself (`SMC_GEN_NETLINK` command 1).

use crate::error::Result;
use crate::netlink::genl;
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::stats;
use serde::Serialize;

const GET_SYS_INFO: u8 = 1;
/// Top level attribute `SMC_GEN_SYS_INFO`.
const GEN_SYS_INFO: u16 = 1;

/// The module's capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct System {
    /// Highest version of SMC.
    pub version: u64,
    /// Its release.
    pub release: u64,
    /// SMC-D version 2 works.
    pub smcd_v2: bool,
    /// SMC-R version 2 works.
    pub smcr_v2: bool,
    /// The host's name as peers see it.
    pub host: String,
    /// System EID, empty without one.
    pub seid: String,
}

/// Asks the module.
///
/// # Errors
/// `NotThere` without the netlink family or the command, or the kernel's.
pub fn collect() -> Result<System> {
    let mut family = stats::family()?;
    let request = family.command(GET_SYS_INFO, NLM_F_DUMP);
    let mut system = System::default();
    for body in family
        .ask("asking the module", &request)
        .map_err(stats::not_yet)?
    {
        for attribute in body.attributes()? {
            if attribute.kind == GEN_SYS_INFO {
                system = read(&genl::all(attribute.nested())?);
            }
        }
    }
    Ok(system)
}

fn read(attributes: &[Attribute<'_>]) -> System {
    let mut system = System::default();
    for attribute in attributes {
        let number = attribute.number().unwrap_or(0);
        let text = || attribute.text().trim_end().to_string();
        match attribute.kind {
            1 => system.version = number,
            2 => system.release = number,
            3 => system.smcd_v2 = number != 0,
            4 => system.host = text(),
            5 => system.seid = text(),
            6 => system.smcr_v2 = number != 0,
            _ => {}
        }
    }
    system
}

/// The name of a network interface of this namespace.
pub(crate) fn interface(index: u64) -> String {
    let entries = std::fs::read_dir("/sys/class/net");
    let mut entries = entries.ok().into_iter().flatten().flatten();
    let found = entries.find(|entry| {
        let number = std::fs::read_to_string(entry.path().join("ifindex"));
        number.is_ok_and(|number| number.trim().parse() == Ok(index))
    });
    found.map_or("n/a".into(), |entry| {
        entry.file_name().to_string_lossy().into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire;

    #[test]
    fn names_by_number() {
        let bytes = [
            wire::attribute(1, &[2]),
            wire::attribute(2, &[1]),
            wire::attribute(4, b"db1   \0"),
            wire::attribute(6, &[1]),
        ];
        let bytes = bytes.concat();
        let system = read(&genl::all(wire::attributes(&bytes)).unwrap());
        assert_eq!(
            (system.version, system.release, system.smcr_v2),
            (2, 1, true)
        );
        assert_eq!((system.host.as_str(), system.smcd_v2), ("db1", false));
    }

    #[test]
    fn interfaces_by_number() {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex");
        let Ok(index) = index else {
            eprintln!("skipped: no loopback interface here");
            return;
        };
        assert_eq!(interface(index.trim().parse().unwrap()), "lo");
        assert_eq!(interface(0), "n/a");
    }
}
