// SPDX-License-Identifier: GPL-2.0

//! Waiting, timers, deferred work, and memory to spare.
//!
//! Holds wrappers that are about no subsystem in particular: no sockets ([`crate::net`]), no devices
//! ([`crate::rdma`]).

pub mod bytes;
pub mod clock;
pub mod door;
pub mod gate;
pub mod global;
pub mod hook;
pub mod host;
#[macro_use]
pub mod lock;
pub(crate) mod module;
pub mod queue;
pub(crate) mod redirect;
pub mod roster;
pub mod shrinker;
pub mod word;
