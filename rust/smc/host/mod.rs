// SPDX-License-Identifier: GPL-2.0

//! The lowest floor: settings, counters and names of this host and of its network namespaces.
//!
//! Nothing here knows of a connection, a link or a socket of the family.

pub(crate) mod clock;
pub(crate) mod convert;
pub(crate) mod counters;
pub(crate) mod eid;
pub(crate) mod fallback;
pub(crate) mod learned;
pub(crate) mod lossy_map;
pub(crate) mod namespace;
pub(crate) mod peer_addr;
pub(crate) mod peer_cache;
pub(crate) mod pnet;
pub(crate) mod promotions;
pub(crate) mod rate_limit;
pub(crate) mod read_mostly;
pub(crate) mod reason_counts;
pub(crate) mod ring_memory;
pub(crate) mod rules;
pub(crate) mod silent;
pub(crate) mod stats;
pub(crate) mod syn_hooks;
pub(crate) mod syn_option;
pub(crate) mod sysctl;
pub(crate) mod tcp2smc;
pub(crate) mod text;
pub(crate) mod waiter;
