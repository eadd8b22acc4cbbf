// SPDX-License-Identifier: GPL-2.0

//! Which RDMA port serves a TCP connection.
//!
//! Without any configuration it is the port whose GID table has the connection's own IPv4 address:
//! the port that shares the connection's network device.

use crate::shared::Core;
use kapi::{
    net::sock::Sock,
    rdma::{
        device::{Device, PortState},
        gid::GidKind, //
    }, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    handshake::Port,
    wire::ids::{Gid, Mac, Mtu}, //
};

/// A port of an RDMA device, as the local end of a link.
#[derive(Clone)]
pub(crate) struct LocalPort {
    /// The device.
    pub(crate) device: Arc<Device>,
    /// The number of the port, from 1.
    pub(crate) port: u32,
    /// The entry of its GID table.
    pub(crate) gid_index: u16,
    /// That GID.
    pub(crate) gid: Gid,
    /// The MAC address that belongs to it.
    pub(crate) mac: Mac,
    /// The port's active MTU.
    pub(crate) mtu: Mtu,
    /// The IPv4 address in the GID.
    pub(crate) ipv4: [u8; 4],
}

impl LocalPort {
    /// Finds the port for `sock`, which is connected.
    pub(crate) fn find(core: &Core, sock: &Sock) -> Option<Self> {
        let ipv4 = sock.local_addr().v4()?;
        core.find_device(|device| Self::on(device, sock, ipv4).ok().flatten())
    }

    fn on(device: &Arc<Device>, sock: &Sock, ipv4: [u8; 4]) -> Result<Option<Self>> {
        if !device.accessible_from(sock) {
            return Ok(None);
        }
        for port in 1..=device.ports()? {
            if !device.is_roce(port)? {
                continue;
            }
            let info = device.port(port)?;
            if info.state != PortState::Active {
                continue;
            }
            let found = device.find_gid(port, |gid| {
                gid.kind() == GidKind::RoceV2
                    && gid.ipv4() == Some(ipv4)
                    && gid.serves_subnet(sock, ipv4)
            });
            let Ok(gid) = found else { continue };
            let (mac, _vlan) = gid.link_address()?;
            return Ok(Some(Self {
                device: device.clone(),
                port,
                gid_index: gid.index(),
                gid: Gid(gid.gid()),
                mac: Mac(mac),
                mtu: Mtu::from_code(info.active_mtu),
                ipv4,
            }));
        }
        Ok(None)
    }

    /// What the handshake needs to know of it.
    pub(crate) fn facts(&self) -> Port {
        Port {
            gid: self.gid,
            mac: self.mac,
        }
    }
}
