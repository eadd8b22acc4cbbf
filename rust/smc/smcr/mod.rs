// SPDX-License-Identifier: GPL-2.0

//! SMC-R: link groups over the ports of RDMA devices.

pub(crate) mod devices;
pub(crate) mod group;
pub(crate) mod port;
pub(crate) mod registry;
pub(crate) mod slab;

pub(crate) use self::{
    group::{LinkGroup, PeerFacts, SmcConn},
    port::LocalPort,
    registry::{SmcrRegistry, SMCR}, //
};
