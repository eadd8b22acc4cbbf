// SPDX-License-Identifier: GPL-2.0
//! Netlink: requests to the kernel and its answers.
//!
//! [`wire`] is the format alone, on bytes; [`socket`] carries requests and collects replies;
//! [`genl`] finds generic netlink families. Nothing here knows SMC.

pub mod genl;
pub mod socket;
pub mod wire;
