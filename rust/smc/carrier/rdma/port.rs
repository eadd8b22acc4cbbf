// SPDX-License-Identifier: GPL-2.0

//! Which RDMA port serves a TCP connection.
//!
//! Without any configuration it is the port whose GID table has the connection's own address: the
//! port that shares the connection's network device, VLAN included. Where the administrator has
//! put the connection's interface on a physical network (PNET id), it is a port of that network.

use super::devices::Devices;
use crate::host::{
    namespace::Namespace,
    pnet::{Member, PnetId},
    text, //
};
use kapi::{
    net::sock::Sock,
    rdma::{
        device::{Device, PortState},
        gid::{GidKind, GidRef},
        netns::{base_ifindex, interface_name},
        route::{self, NextHop}, //
    }, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    handshake::Port,
    wire::ids::{Gid, Mac, Mtu}, //
};

/// How long the next hop's MAC address may take, in milliseconds.
const NEIGHBOUR_WAIT: u32 = 300;

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
    /// The number of the GID's net device.
    pub(crate) ifindex: u32,
    /// That device's VLAN.
    pub(crate) vlan: Option<u16>,
    /// The physical network for which the administrator has chosen the port.
    pub(crate) pnet: Option<PnetId>,
}

impl LocalPort {
    /// Finds the port for `sock`, which is connected.
    pub(crate) fn find(devices: &Devices, sock: &Sock) -> Option<Self> {
        // A GID that has just come may lie behind those that are known to be in use.
        Self::among(devices, sock, false).or_else(|| Self::among(devices, sock, true))
    }

    /// As [`LocalPort::find`], among `all` entries of the GID tables, or those known to be in use.
    fn among(devices: &Devices, sock: &Sock, all: bool) -> Option<Self> {
        let addr = Gid(sock.local_addr().mapped());
        match physical_network(sock) {
            Some(id) => devices.find(|device| {
                Self::on(
                    device,
                    sock,
                    all,
                    |port| is_on(device, port, &id),
                    |gid| rank(gid, sock, &addr),
                )
                .ok()
                .flatten()
                .map(|found| Self {
                    pnet: Some(id),
                    ..found
                })
            }),
            None => devices.find(|device| {
                let own = |gid: &GidRef| (gid.gid() == addr.0 && is_in(gid, sock)).then_some(0);
                Self::on(device, sock, all, |_| true, own).ok().flatten()
            }),
        }
    }

    /// The port of `device` that `wanted` likes, with the GID that has the lowest rank.
    fn on(
        device: &Arc<Device>,
        sock: &Sock,
        all: bool,
        wanted: impl Fn(u32) -> bool,
        rank: impl Fn(&GidRef) -> Option<u8>,
    ) -> Result<Option<Self>> {
        if !device.accessible_from(sock) {
            return Ok(None);
        }
        for port in 1..=device.ports()? {
            if !device.is_roce(port)? || !wanted(port) {
                continue;
            }
            let info = device.port(port)?;
            if info.state != PortState::Active {
                continue;
            }
            let mut best: Option<(u8, GidRef)> = None;
            let entries = if all {
                info.gid_table_len
            } else {
                info.gids_used
            };
            for index in 0..entries {
                let Some(gid) = device.gid(port, index) else {
                    continue;
                };
                if gid.kind() != GidKind::RoceV2 {
                    continue;
                }
                match rank(&gid) {
                    Some(rank) if best.as_ref().is_none_or(|(least, _)| rank < *least) => {
                        best = Some((rank, gid));
                        if rank == 0 {
                            break;
                        }
                    }
                    _ => (),
                }
            }
            let Some((_, gid)) = best else { continue };
            let (mac, vlan) = gid.link_address()?;
            return Ok(Some(Self {
                device: device.clone(),
                port,
                gid_index: gid.index(),
                gid: Gid(gid.gid()),
                mac: Mac(mac),
                mtu: Mtu::from_code(info.active_mtu.min(gid.mtu())),
                ifindex: gid.ifindex().ok_or(ENODEV)?,
                vlan,
                pnet: None,
            }));
        }
        Ok(None)
    }

    /// Whether both are the same port, GID and net device.
    pub(crate) fn is(&self, other: &LocalPort) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
            && self.port == other.port
            && self.gid == other.gid
            && self.gid_index == other.gid_index
            && self.ifindex == other.ifindex
    }

    /// What the handshake needs to know of it.
    pub(crate) fn facts(&self) -> Port {
        Port {
            gid: self.gid,
            mac: self.mac,
        }
    }

    /// The first station on the way to `peer`. Sleeps until its MAC address is known.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH`, `ENETUNREACH`; also when one of the two GIDs is an IPv4 address and the
    /// other is not.
    pub(crate) fn hop_to(&self, sock: &Sock, peer: &Gid) -> Result<NextHop> {
        route::resolve(sock, &self.gid.0, &peer.0, self.ifindex, NEIGHBOUR_WAIT)
    }
}

/// Whether the GID's net device is in the namespace of `sock`.
fn is_in(gid: &GidRef, sock: &Sock) -> bool {
    gid.ifindex()
        .is_some_and(|index| gid.is_netdev(sock, index))
}

/// How well a GID of a port on the right physical network fits: best the connection's own address,
/// then one in its subnet, then any of the same family.
fn rank(gid: &GidRef, sock: &Sock, addr: &Gid) -> Option<u8> {
    if !is_in(gid, sock) {
        return None;
    }
    let subnet = |v4| gid.serves_subnet(sock, v4);
    match (Gid(gid.gid()).ipv4(), addr.ipv4()) {
        _ if gid.gid() == addr.0 => Some(0),
        (Some(_), Some(v4)) if subnet(v4) => Some(1),
        (Some(_), Some(_)) | (None, None) => Some(2),
        _ => None,
    }
}

/// The physical network that the administrator says the connection's interface is on, or the
/// interface below it (a VLAN's or a bond's).
fn physical_network(sock: &Sock) -> Option<PnetId> {
    let namespace = Namespace::of(sock)?;
    if namespace.pnets.is_empty() {
        return None;
    }
    let top = sock.route_interface()?;
    [Some(top), base_ifindex(sock, top)]
        .into_iter()
        .flatten()
        .find_map(|index| {
            let name = interface_name(sock, index)?;
            let member = Member::interface(text::name(&name)).ok()?;
            namespace.pnets.of(&member)
        })
}

/// Whether the administrator says that a port is on this physical network.
fn is_on(device: &Device, port: u32, id: &PnetId) -> bool {
    let name = device.name();
    let found = || {
        let member = Member::port(text::name(&name), u8::try_from(port).ok()?).ok()?;
        Namespace::initial()?.pnets.of(&member)
    };
    found().as_ref() == Some(id)
}
