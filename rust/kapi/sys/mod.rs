// SPDX-License-Identifier: GPL-2.0

//! Waiting, timers and deferred work.
//!
//! What lives here: wrappers that are about no subsystem in particular. What may not: sockets
//! ([`crate::net`]) and devices ([`crate::rdma`]).

pub mod clock;
pub mod global;
pub mod hook;
pub mod host;
pub mod lock;
pub(crate) mod module;
pub mod queue;
pub mod roster;
pub mod wait;
pub mod word;
