// SPDX-License-Identifier: GPL-2.0
//! `rsmc dev`: RDMA devices, as the SMC module sees them (`SMC_GEN_NETLINK` command 6).

use crate::cli::DevArgs;
use crate::error::Result;
use crate::gid::{self, Gid};
use crate::netlink::genl;
use crate::netlink::wire::{Attribute, NLM_F_DUMP};
use crate::{stats, table};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

const GET_DEV_SMCR: u8 = 6;
/// Top level attribute `SMC_GEN_DEV_SMCR`.
const GEN_DEV_SMCR: u16 = 6;
/// Attributes `SMC_NLA_DEV_PORT` and `SMC_NLA_DEV_PORT2`.
const PORTS: [u16; 2] = [8, 9];
const IB_NAME: u16 = 10;
/// Attribute of our module alone: the number of what a device lacks.
const UNFIT: u16 = 64;

/// A port as `--json` prints it. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// RDMA device.
    pub device: String,
    /// Port of the device, from 1.
    pub port: u64,
    /// Its state is active.
    pub active: bool,
    /// It speaks RoCE, not InfiniBand or iWARP.
    pub roce: bool,
    /// Number of its network interface, 0 for none in this namespace.
    pub ifindex: u64,
    /// Physical network.
    pub pnet_id: Option<String>,
    /// The physical network was set by a user.
    pub pnet_by_user: bool,
    /// Links that use it.
    pub links: u64,
    /// A link group would be lost with the device.
    pub critical: bool,
    /// SMC can use it, as far as can be seen without a connection.
    pub usable: bool,
    /// Why not.
    pub fault: Option<&'static str>,
    /// Number of what the device lacks, 0 for nothing that the module says.
    #[serde(skip)]
    pub lack: u64,
    /// PCI function, channel, vendor, device number and address.
    pub pci: Pci,
}

impl Port {
    /// Its directory in sysfs.
    fn directory(&self) -> PathBuf {
        let device = Path::new("/sys/class/infiniband").join(&self.device);
        device.join("ports").join(self.port.to_string())
    }

    /// Whether no card is beneath (rdma_rxe, siw); false where sysfs does not show the device.
    pub fn is_software(&self) -> bool {
        let device = Path::new("/sys/class/infiniband").join(&self.device);
        device.exists() && !device.join("device").exists()
    }

    /// The addresses of the port; `None` where sysfs does not show the device.
    pub fn gids(&self) -> Option<Vec<Gid>> {
        let port = self.directory();
        port.exists().then(|| gid::of_port(&port).collect())
    }

    /// Why SMC cannot use the port, as far as can be seen without a connection.
    fn fault(&self) -> Option<&'static str> {
        let has_address = || {
            let port = self.directory();
            !port.exists() || gid::of_port(&port).any(|gid| gid.is_roce_v2())
        };
        let port = || fault(self.roce, self.ifindex, self.active, has_address);
        lack(self.lack).or_else(port)
    }
}

/// What the device lacks, by its number.
fn lack(number: u64) -> Option<&'static str> {
    match number {
        0 => None,
        1 => Some("the device has no fast registration of memory"),
        2 => Some("the device registers no pages of this kernel's size"),
        3 => Some("the device's driver cannot register memory at an address of our choice"),
        4 => Some("the device refuses queue pairs to the kernel"),
        _ => Some("the device lacks something that SMC needs"),
    }
}

fn fault(
    roce: bool,
    ifindex: u64,
    active: bool,
    has_address: impl FnOnce() -> bool,
) -> Option<&'static str> {
    if !roce {
        return Some("the port does not speak RoCE");
    }
    if ifindex == 0 {
        return Some("no interface of this network namespace belongs to the port");
    }
    if !active {
        return Some("the port is not active");
    }
    (!has_address()).then_some("the port has no RoCE v2 address")
}

/// Where a device is, as far as the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pci {
    /// Function id of s390.
    pub fid: u64,
    /// Physical channel id of s390.
    pub chid: u64,
    /// PCI vendor.
    pub vendor: u64,
    /// PCI device number.
    pub device: u64,
    /// PCI address.
    pub address: String,
}

/// Shows the ports of all devices.
///
/// # Errors
/// `NotThere` without the netlink family or the command, or the kernel's.
pub fn run(args: &DevArgs, out: &mut dyn Write) -> Result<()> {
    let ports = collect()?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &ports)?;
        writeln!(out)?;
        return Ok(());
    }
    tell(&ports, out)
}

/// The ports of all devices.
///
/// # Errors
/// `NotThere` without the netlink family or the command, or the kernel's.
pub fn collect() -> Result<Vec<Port>> {
    let mut family = stats::family()?;
    let request = family.command(GET_DEV_SMCR, NLM_F_DUMP);
    let mut ports = Vec::new();
    for body in family
        .ask("listing devices", &request)
        .map_err(stats::not_yet)?
    {
        for attribute in body.attributes()? {
            if attribute.kind == GEN_DEV_SMCR {
                take(&genl::all(attribute.nested())?, &mut ports)?;
            }
        }
    }
    Ok(ports)
}

/// Takes the ports of one device.
fn take(attributes: &[Attribute<'_>], ports: &mut Vec<Port>) -> Result<()> {
    let find = |kind: u16| attributes.iter().find(|one| one.kind == kind);
    let text = |kind: u16| find(kind).map(Attribute::text).unwrap_or_default();
    let number = |kind: u16| find(kind).and_then(Attribute::number).unwrap_or(0);
    let name = text(IB_NAME);
    let pci = Pci {
        fid: number(3),
        chid: number(4),
        vendor: number(5),
        device: number(6),
        address: text(7),
    };
    for (index, kind) in (1..).zip(PORTS) {
        let Some(port) = find(kind) else {
            continue;
        };
        let mut found = Port {
            device: name.clone(),
            port: index,
            critical: number(2) != 0,
            lack: number(UNFIT),
            pci: pci.clone(),
            // Who does not say so has no others.
            roce: true,
            ..Port::default()
        };
        for inner in genl::all(port.nested())? {
            let value = inner.number().unwrap_or(0);
            match inner.kind {
                1 => found.pnet_by_user = value != 0,
                2 => {
                    let text = inner.text().trim_end().to_string();
                    found.pnet_id = Some(text).filter(|text| !text.is_empty());
                }
                3 => found.ifindex = value,
                4 => found.active = value != 0,
                5 => found.roce = value != 0,
                6 => found.links = value,
                _ => {}
            }
        }
        found.fault = found.fault();
        found.usable = found.fault.is_none();
        ports.push(found);
    }
    Ok(())
}

fn tell(ports: &[Port], out: &mut dyn Write) -> Result<()> {
    let mut rows = Vec::new();
    for port in ports {
        rows.push(vec![
            format!("{}/{}", port.device, port.port),
            if port.active { "active" } else { "down" }.into(),
            crate::system::interface(port.ifindex),
            port.links.to_string(),
            port.pnet_id.clone().unwrap_or_else(|| "-".into()),
            port.fault
                .map_or("yes".into(), |fault| format!("no: {fault}")),
        ]);
    }
    let head = ["Device", "State", "Interface", "Links", "PNET id", "Usable"];
    table::print(out, &head, &rows)?;
    if ports.is_empty() {
        writeln!(
            out,
            "No RDMA device: every connection falls back to TCP (`rdma link` shows what the kernel has)."
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire;

    #[test]
    fn ports_of_a_device() {
        let port = [
            wire::attribute(2, b"NET1\0"),
            wire::attribute(3, &5u32.to_ne_bytes()),
            wire::attribute(4, &[1]),
            wire::attribute(6, &2u32.to_ne_bytes()),
        ];
        let bytes = [
            wire::attribute(10, b"rxe0\0"),
            wire::attribute(8, &port.concat()),
        ];
        let bytes = bytes.concat();
        let mut ports = Vec::new();
        take(&genl::all(wire::attributes(&bytes)).unwrap(), &mut ports).unwrap();
        assert_eq!(ports.len(), 1);
        assert_eq!((ports[0].port, ports[0].ifindex, ports[0].links), (1, 5, 2));
        assert!(ports[0].active);
        assert_eq!(ports[0].pnet_id.as_deref(), Some("NET1"));
        assert!(ports[0].usable);
    }

    #[test]
    fn faults() {
        let told = |roce, ifindex, active, addressed| {
            fault(roce, ifindex, active, || addressed).unwrap_or("")
        };
        assert_eq!(told(true, 5, false, true), "the port is not active");
        assert_eq!(told(true, 5, true, true), "");
        let none = told(true, 5, true, false);
        assert_eq!(none, "the port has no RoCE v2 address");
        assert_eq!(told(false, 5, true, true), "the port does not speak RoCE");
        assert!(told(true, 0, true, true).starts_with("no interface"));
        assert_eq!(
            (lack(0), lack(1).is_some(), lack(99).is_some()),
            (None, true, true)
        );
    }
}
