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

/// The addresses of a port's directory (`/sys/class/infiniband/DEVICE/ports/N`), without unset ones. Each is read when it
/// is asked for: a table has hundreds of places, and addresses in the first few.
pub fn of_port(port: &Path) -> impl Iterator<Item = Gid> + '_ {
    let entries = fs::read_dir(port.join("gids")).ok().into_iter().flatten();
    let indexes = entries.flatten().filter_map(|entry| {
        let index: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some(index)
    });
    let mut indexes: Vec<u32> = indexes.collect();
    indexes.sort_unstable();
    indexes.into_iter().filter_map(|index| {
        let read = |file: String| fs::read_to_string(port.join(file));
        let address = read(format!("gids/{index}")).ok()?;
        let address: Ipv6Addr = address.trim().parse().ok()?;
        if address.is_unspecified() {
            return None;
        }
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
        let gids: Vec<Gid> = of_port(&port).collect();
        assert_eq!(gids.len(), 2);
        assert!(!gids[0].is_roce_v2() && gids[1].is_roce_v2());
        assert_eq!(gids[1].interface, "eth0");
        assert_eq!(gids[1].address.to_canonical().to_string(), "10.77.0.1");
        // Not before it is asked for.
        let mut each = of_port(&port);
        assert_eq!(each.next().as_ref(), gids.first());
        fs::remove_file(port.join("gids/1")).unwrap();
        assert_eq!(each.next(), None);
        fs::remove_dir_all(&port).unwrap();
        assert_eq!(of_port(&port).count(), 0);
    }
}
