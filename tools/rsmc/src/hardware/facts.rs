// SPDX-License-Identifier: GPL-2.0
//! What the system says of RDMA ports, without a judgment.

use super::limits::{self, Limits};
use super::nldev::{self, Device};
use super::pfc;
use crate::gid::{self, Gid};
use std::fs;
use std::path::{Path, PathBuf};

/// Counters of a port that tell of losses and congestion, in `hw_counters`; which there are is the driver's matter.
const COUNTERS: [&str; 14] = [
    "packet_seq_err",
    "out_of_sequence",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "out_of_buffer",
    "implied_nak_seq_err",
    "retry_exceeded_err",
    "seq_error",
    "retransmits",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rx_ecn_marked",
];

/// The host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the SMC module that is loaded, and its version or source version.
    pub module: Option<(&'static str, String)>,
    /// `rdma system`: whether namespaces share devices.
    pub shared: Option<bool>,
}

/// A port of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Its device.
    pub device: String,
    /// Its number, from 1.
    pub port: u32,
    /// Driver of the device beneath; none for software.
    pub driver: Option<String>,
    /// Version of the driver where it has one of its own (not part of the kernel).
    pub driver_version: Option<String>,
    /// Address of the device beneath.
    pub bus: Option<String>,
    /// Vendor and device number.
    pub ids: Option<String>,
    /// Firmware.
    pub firmware: Option<String>,
    /// `ACTIVE`, `DOWN`, …
    pub state: Option<String>,
    /// `LinkUp`, …
    pub physical: Option<String>,
    /// Speed in words.
    pub rate: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: Option<String>,
    /// Addresses.
    pub gids: Vec<Gid>,
    /// Network interface.
    pub interface: Option<String>,
    /// Its MTU.
    pub mtu: Option<u32>,
    /// Its state.
    pub operstate: Option<String>,
    /// As RDMA netlink shows the device.
    pub nldev: Option<Device>,
    /// Limits; empty where they are not known.
    pub limits: Limits,
    /// Why they are not.
    pub no_limits: Option<String>,
    /// Priorities with flow control; `None` where the driver does not tell.
    pub pfc: Option<u8>,
    /// Counters of losses and congestion.
    pub counters: Vec<(&'static str, u64)>,
}

/// Looks at the host below `root`.
pub fn host(root: &Path) -> Host {
    let module = ["rsmc", "smc"].into_iter().find_map(|name| {
        let directory = root.join("sys/module").join(name);
        let read = |file| line(&directory.join(file));
        directory.exists().then(|| {
            let version =
                read("version").or_else(|| Some(format!("source {}", read("srcversion")?)));
            (name, version.unwrap_or_else(|| "without a version".into()))
        })
    });
    let shared = line(&root.join("sys/module/ib_core/parameters/netns_mode"));
    Host {
        kernel: line(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default(),
        module,
        shared: shared.map(|mode| mode == "Y"),
    }
}

/// Looks at all ports below `sys`.
pub fn ports(sys: &Path) -> Vec<Port> {
    let known = nldev::devices().unwrap_or_default();
    let mut ports = Vec::new();
    for device in names(&sys.join("class/infiniband")) {
        let directory = sys.join("class/infiniband").join(&device);
        let mut numbers: Vec<u32> = names(&directory.join("ports"))
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            let mut port = of_sysfs(sys, &directory, &device, number);
            port.nldev = known.iter().find(|one| one.name == device).cloned();
            match limits::of(&device) {
                Ok(limits) => port.limits = limits,
                Err(why) => port.no_limits = Some(why),
            }
            let interface = port.interface.as_deref();
            port.pfc = interface.and_then(|name| pfc::of(name).ok().flatten());
            ports.push(port);
        }
    }
    ports
}

/// What sysfs has of a port.
fn of_sysfs(sys: &Path, directory: &Path, device: &str, number: u32) -> Port {
    let at = directory.join("ports").join(number.to_string());
    let beneath = directory.join("device");
    let last = |path: PathBuf| {
        Some(
            fs::canonicalize(path)
                .ok()?
                .file_name()?
                .to_string_lossy()
                .into_owned(),
        )
    };
    let driver = last(beneath.join("driver"));
    let gids: Vec<_> = gid::of_port(&at).collect();
    // GID tables and cards name interfaces of other namespaces, too.
    let interface = gids
        .iter()
        .map(|gid| gid.interface.clone())
        .chain(names(&beneath.join("net")))
        .find(|name| !name.is_empty() && sys.join("class/net").join(name).exists());
    let of_interface =
        |file: &str| line(&sys.join("class/net").join(interface.as_ref()?).join(file));
    // `4: ACTIVE`.
    let word = |file| {
        let text = line(&at.join(file))?;
        Some(
            text.split_once(": ")
                .map_or(text.clone(), |(_, word)| word.to_string()),
        )
    };
    let (vendor, part) = (line(&beneath.join("vendor")), line(&beneath.join("device")));
    let counters = COUNTERS.iter().filter_map(|name| {
        let value = line(&at.join("hw_counters").join(name))?;
        Some((*name, value.parse().ok()?))
    });
    Port {
        device: device.to_string(),
        port: number,
        driver_version: driver
            .as_ref()
            .and_then(|driver| line(&sys.join("module").join(driver).join("version"))),
        bus: beneath.exists().then(|| last(beneath.clone())).flatten(),
        ids: vendor
            .zip(part)
            .map(|(vendor, part)| format!("{vendor} {part}")),
        driver,
        firmware: line(&directory.join("fw_ver")),
        state: word("state"),
        physical: word("phys_state"),
        rate: line(&at.join("rate")),
        link_layer: line(&at.join("link_layer")),
        mtu: of_interface("mtu").and_then(|mtu| mtu.parse().ok()),
        operstate: of_interface("operstate"),
        counters: counters.collect(),
        gids,
        interface,
        ..Port::default()
    }
}

/// The first line of a file, without blanks around it; none if it is empty.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_string())
}

/// Names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).ok().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_card_and_its_host() {
        let root = std::env::temp_dir().join(format!("rsmc-hardware-{}", std::process::id()));
        let put = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/sys/kernel/osrelease", "7.2.12\n");
        put("sys/module/rsmc/srcversion", "ABC\n");
        put("sys/module/ib_core/parameters/netns_mode", "Y\n");
        put("sys/module/mlx5_core/version", "24.10\n");
        let device = "sys/class/infiniband/mlx5_0";
        put(&format!("{device}/fw_ver"), "28.39.1002\n");
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("phys_state", "5: LinkUp\n"),
            ("rate", "100 Gb/sec (4X EDR)\n"),
            ("link_layer", "Ethernet\n"),
            ("gids/0", "0000:0000:0000:0000:0000:ffff:c000:0201\n"),
            ("gid_attrs/types/0", "RoCE v2\n"),
            ("gid_attrs/ndevs/0", "ens1\n"),
            ("hw_counters/out_of_sequence", "3\n"),
            ("hw_counters/lifespan", "10\n"),
        ] {
            put(&format!("{device}/ports/1/{file}"), text);
        }
        put("sys/devices/0000:86:00.0/vendor", "0x15b3\n");
        put("sys/devices/0000:86:00.0/device", "0x1021\n");
        put("sys/drivers/mlx5_core/bind", "");
        symlink(
            "../../drivers/mlx5_core",
            root.join("sys/devices/0000:86:00.0/driver"),
        )
        .unwrap();
        symlink(
            "../../../devices/0000:86:00.0",
            root.join(device).join("device"),
        )
        .unwrap();
        put("sys/class/net/ens1/mtu", "4200\n");
        put("sys/class/net/ens1/operstate", "up\n");

        let seen = host(&root);
        assert_eq!(seen.module, Some(("rsmc", "source ABC".into())));
        assert_eq!((seen.kernel.as_str(), seen.shared), ("7.2.12", Some(true)));
        // Of a directory made for this, so only what sysfs has.
        let sys = root.join("sys");
        let port = of_sysfs(&sys, &root.join(device), "mlx5_0", 1);
        assert_eq!(port.driver.as_deref(), Some("mlx5_core"));
        assert_eq!(port.driver_version.as_deref(), Some("24.10"));
        assert_eq!(port.bus.as_deref(), Some("0000:86:00.0"));
        assert_eq!(port.ids.as_deref(), Some("0x15b3 0x1021"));
        assert_eq!(port.state.as_deref(), Some("ACTIVE"));
        assert_eq!(
            (port.interface.as_deref(), port.mtu),
            (Some("ens1"), Some(4200))
        );
        assert_eq!(port.counters, [("out_of_sequence", 3)]);
        assert_eq!(ports(&sys).len(), 1);
        fs::remove_dir_all(&root).unwrap();
        assert!(ports(&sys).is_empty());
        assert_eq!(host(&root), Host::default());
    }
}
