// SPDX-License-Identifier: GPL-2.0
//! Shared parts of the selftest programs: system-call wrappers, KTAP output, private network
//! namespaces, children with a time limit, and a small packet-level TCP peer.
//!
//! Nothing here knows how a single test works, and nothing here may call into the module's
//! crates: the programs see the kernel only through its user-space interface.

pub mod addr;
pub mod args;
pub mod bpf;
pub mod card;
pub mod cgroup;
pub mod child;
pub mod clc;
pub mod diag;
pub mod errno;
pub mod family;
pub mod fd;
pub mod guest;
pub mod intrude;
pub mod ktap;
pub mod memory;
pub mod net;
pub mod netlink;
pub mod packet;
pub mod parts;
pub mod path;
pub mod point;
pub mod proof;
pub mod rawpeer;
pub mod rcpeer;
pub mod rng;
pub mod roce;
pub mod slow_page;
pub mod smcinfo;
pub mod sys;
