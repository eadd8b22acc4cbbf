// SPDX-License-Identifier: GPL-2.0

//! SMC-R: link groups over the ports of RDMA devices.

pub(crate) mod core;
pub(crate) mod devices;
pub(crate) mod group;
pub(crate) mod port;
pub(crate) mod slab;
