// SPDX-License-Identifier: GPL-2.0

//! Sockets, TCP, netfilter and network namespaces.
//!
//! The centre is [`overlay`]: a socket family whose sockets *are* TCP sockets with another
//! operations table, so that one that gives up its own protocol costs nothing more than TCP.
//! Nothing here knows the protocol that is laid over TCP.

mod adapter;
pub mod args;
pub mod diag;
pub mod family;
pub mod genl;
pub mod netlink;
pub mod netns;
pub mod overlay;
pub mod process;
pub mod procfs;
pub mod side;
pub mod sock;
pub mod sockaddr;
pub mod socket;
pub mod stock;
pub mod sysctl;
pub mod uapi;
pub mod wait;
pub mod wait_hook;
pub mod zerocopy;

pub use stock::reclaim;
