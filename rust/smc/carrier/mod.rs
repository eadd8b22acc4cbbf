// SPDX-License-Identifier: GPL-2.0

//! The ways by which a connection's bytes reach its peer: RDMA so far.

pub(crate) mod rdma;

pub(crate) use rdma::{
    core::{Core, CORE},
    group::{LinkGroup, PeerFacts, SmcConn},
    port::LocalPort, //
};
