// SPDX-License-Identifier: GPL-2.0

//! Choice of the RDMA port for a TCP connection.
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
        route::{self, NextHop, Via}, //
    }, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    handshake::{Port, V1Offer},
    wire::{
        clc::Class,
        ids::{Gid, Mac, Mtu}, //
    }, //
};

/// Longest wait for the next hop's MAC address, in milliseconds.
const NEIGH_WAIT: u32 = 300;

/// A port of an RDMA device, as the local end of a link.
#[derive(Clone)]
pub(crate) struct LocalPort {
    /// The device.
    pub(crate) device: Arc<Device>,
    /// Number of the port, from 1.
    pub(crate) port: u32,
    /// Index of the GID in the port's GID table.
    pub(crate) gid_index: u16,
    /// Kind of the GID: RoCE v2, or v1 for version 1 of SMC-R.
    pub(crate) kind: GidKind,
    /// The GID.
    pub(crate) gid: Gid,
    /// MAC address that belongs to the GID.
    pub(crate) mac: Mac,
    /// The port's active MTU.
    pub(crate) mtu: Mtu,
    /// Interface index of the GID's net device.
    pub(crate) ifindex: u32,
    /// VLAN ID of the net device, if it has one.
    pub(crate) vlan: Option<u16>,
    /// PNET ID by which the port was chosen, if the administrator has configured one.
    pub(crate) pnet: Option<PnetId>,
}

impl LocalPort {
    /// Finds the port for `sock`, which is connected.
    pub(crate) fn find(devices: &Devices, sock: &Sock) -> Option<Self> {
        // A GID that has just come may lie behind those that are known to be in use.
        Self::among(devices, sock, false).or_else(|| Self::among(devices, sock, true))
    }

    /// Finds the port among `all` entries of the GID tables, or those known to be in use.
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

    /// Returns the first active RoCE port of `device` that `wanted` accepts and that has a GID with
    /// a rank; of its GIDs the one with the lowest rank.
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
        let found = (1..=device.ports()?)
            .filter(|port| wanted(*port))
            // What is wrong with one port says nothing of the next.
            .find_map(|port| Self::at(device, port, all, &rank).ok().flatten());
        Ok(found)
    }

    /// Returns this port of `device` if it is an active RoCE port and has a GID with a rank; of its GIDs the
    /// one with the lowest rank.
    fn at(
        device: &Arc<Device>,
        port: u32,
        all: bool,
        rank: &impl Fn(&GidRef) -> Option<u8>,
    ) -> Result<Option<Self>> {
        if !device.is_roce(port)? {
            return Ok(None);
        }
        let info = device.port(port)?;
        if info.state != PortState::Active {
            return Ok(None);
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
        match best {
            Some((_, gid)) => Self::with_gid(device, port, &gid, info.active_mtu).map(Some),
            None => Ok(None),
        }
    }

    fn with_gid(device: &Arc<Device>, port: u32, gid: &GidRef, active_mtu: u8) -> Result<Self> {
        let (mac, vlan) = gid.link_address()?;
        Ok(Self {
            device: device.clone(),
            port,
            gid_index: gid.index(),
            kind: gid.kind(),
            gid: Gid(gid.gid()),
            mac: Mac(mac),
            mtu: Mtu::from_code(active_mtu.min(gid.mtu())),
            ifindex: gid.ifindex().ok_or(ENODEV)?,
            vlan,
            pnet: None,
        })
    }

    /// Returns the same port for a connection of version 1, with the first RoCE v1 GID of the same net device, as C
    /// takes it; `None` if there is none.
    pub(crate) fn v1(&self, sock: &Sock) -> Option<Self> {
        if !self.device.has_roce_v1(self.port) {
            return None;
        }
        let info = self.device.port(self.port).ok()?;
        let gid = (0..info.gid_table_len).find_map(|index| {
            let gid = self.device.gid(self.port, index)?;
            let wanted = gid.kind() == GidKind::RoceV1 && gid.is_netdev(sock, self.ifindex);
            wanted.then_some(gid)
        })?;
        let found = Self::with_gid(&self.device, self.port, &gid, info.active_mtu).ok()?;
        Some(Self {
            pnet: self.pnet,
            ..found
        })
    }

    /// Tells whether this is for connections of version 1.
    pub(crate) fn is_v1(&self) -> bool {
        self.kind == GidKind::RoceV1
    }

    /// Tells whether this is what [`LocalPort::v1`] makes of `other`.
    pub(crate) fn is_v1_of(&self, other: &LocalPort) -> bool {
        self.is_v1()
            && Arc::ptr_eq(&self.device, &other.device)
            && self.port == other.port
            && self.ifindex == other.ifindex
    }

    /// Tells whether both are the same port, GID and net device. The GID's place in the table does not matter: one that
    /// was gone for a moment comes back in another.
    pub(crate) fn is(&self, other: &LocalPort) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
            && self.port == other.port
            && self.kind == other.kind
            && self.gid == other.gid
            && self.ifindex == other.ifindex
    }

    /// Returns what a client's CLC messages say of the port. `v1` is what it offers by version 1.
    pub(crate) fn facts(&self, v1: Option<V1Offer>) -> Port {
        Port {
            gid: self.gid,
            mac: self.mac,
            v1,
        }
    }

    /// Returns the service level of packets of this class.
    pub(crate) fn service_level(&self, class: Class) -> u8 {
        let gid = self.device.gid(self.port, self.gid_index);
        gid.map_or(0, |gid| gid.service_level(u32::from(class.priority)))
    }

    /// Resolves the next hop on the route by this port to `peer`, for packets as those of `sock`. Sleeps until its MAC
    /// address is known. RoCE v1 has no routes: the peer is the station with the address `mac`, which it has named.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH`, `ENETUNREACH`; also when one of the two GIDs is an IPv4 address and the
    /// other is not, and when the route leads by another port.
    pub(crate) fn hop_to(&self, sock: &Sock, peer: &Gid, mac: Mac) -> Result<NextHop> {
        if self.is_v1() {
            return Ok(NextHop {
                mac: mac.0,
                gateway: false,
                mtu: self.mtu.code(),
            });
        }
        let via = Via {
            ifindex: self.ifindex,
            mark: sock.packet_mark(),
        };
        route::resolve(sock, &self.gid.0, &peer.0, via, NEIGH_WAIT)
    }
}

/// Tells whether the GID's net device is in the network namespace of `sock`.
fn is_in(gid: &GidRef, sock: &Sock) -> bool {
    gid.ifindex()
        .is_some_and(|index| gid.is_netdev(sock, index))
}

/// Ranks a GID of a port on the right physical network; lowest is best: the connection's own
/// address, then one in its subnet, then any of the same address family.
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

/// Returns the PNET ID that is configured for the connection's interface, or for the interface
/// below it (of a VLAN or a bond).
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

/// Tells whether a port is configured to be on this physical network.
fn is_on(device: &Device, port: u32, id: &PnetId) -> bool {
    let name = device.name();
    let found = || {
        let member = Member::port(text::name(&name), u8::try_from(port).ok()?).ok()?;
        Namespace::initial()?.pnets.of(&member)
    };
    found().as_ref() == Some(id)
}
