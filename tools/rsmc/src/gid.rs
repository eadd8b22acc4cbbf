// SPDX-License-Identifier: GPL-2.0
//! Addresses of RDMA ports, as sysfs lists them.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

/// One address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the port's table.
    pub index: u32,
    /// The address.
    pub address: Ipv6Addr,
    /// `IB/RoCE v1` or `RoCE v2`.
    pub kind: String,
    /// The network interface it belongs to, empty for none.
    pub interface: String,
}

impl Gid {
    /// True if SMC-R version 2 can use it.
    pub fn is_roce_v2(&self) -> bool {
        self.kind == "RoCE v2"
    }
}

/// The addresses of a port's directory (`/sys/class/infiniband/DEVICE/ports/N`), without unset ones.
pub fn of_port(port: &Path) -> Vec<Gid> {
    let entries = fs::read_dir(port.join("gids")).ok().into_iter().flatten();
    let indexes = entries.flatten().filter_map(|entry| {
        let index: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some(index)
    });
    let mut gids: Vec<Gid> = indexes
        .filter_map(|index| {
            let read = |file: String| fs::read_to_string(port.join(file));
            let address = read(format!("gids/{index}")).ok()?;
            let address: Ipv6Addr = address.trim().parse().ok()?;
            let attribute = |name: &str| {
                let text = read(format!("gid_attrs/{name}/{index}"));
                text.unwrap_or_default().trim().to_string()
            };
            Some(Gid {
                index,
                address,
                kind: attribute("types"),
                interface: attribute("ndevs"),
            })
        })
        .filter(|gid| !gid.address.is_unspecified())
        .collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port() {
        let port = std::env::temp_dir().join(format!("rsmc-gid-{}", std::process::id()));
        let put = |file: &str, text: &str| {
            let path = port.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("gids/0", "fe80:0000:0000:0000:5054:00ff:fe00:0001\n");
        put("gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n");
        put("gids/10", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        put("gid_attrs/types/1", "RoCE v2\n");
        put("gid_attrs/ndevs/1", "eth0\n");
        let gids = of_port(&port);
        assert_eq!(gids.len(), 2);
        assert!(!gids[0].is_roce_v2() && gids[1].is_roce_v2());
        assert_eq!(gids[1].interface, "eth0");
        assert_eq!(gids[1].address.to_canonical().to_string(), "10.77.0.1");
        fs::remove_dir_all(&port).unwrap();
        assert!(of_port(&port).is_empty());
    }
}
