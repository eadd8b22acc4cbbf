// SPDX-License-Identifier: GPL-2.0

//! SMC-R: link groups over the ports of RDMA devices.

pub(crate) mod devices;
pub(crate) mod group;
pub(crate) mod lane;
pub(crate) mod port;
pub(crate) mod registry;
pub(crate) mod slab;

pub(crate) use self::{
    group::{LinkGroup, PeerFacts, SmcConn},
    lane::{Lane, LaneWanted},
    port::LocalPort,
    registry::{SmcrRegistry, SMCR}, //
};
