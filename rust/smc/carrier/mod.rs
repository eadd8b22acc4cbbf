// SPDX-License-Identifier: GPL-2.0

//! Carriers of connections' bytes to the peer: RDMA (SMC-R) so far.

pub(crate) mod rdma;

pub(crate) use rdma::{
    core::{Core, CORE},
    group::{LinkGroup, PeerFacts, SmcConn},
    port::LocalPort, //
};
