// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions of the kernel interfaces that the module needs and the kernel crate lacks.
//!
//! Holds every hand-written `unsafe` block of the project but the tracepoints', wrapped so that the
//! crate above can forbid `unsafe`, and nothing that knows the protocol above. Sockets, netfilter,
//! netns and netlink are in [`net`], RDMA verbs in [`rdma`], waiting, timers and work in [`sys`].

#![warn(missing_docs)]

// First, for its macros.
#[macro_use]
pub mod sys;

pub mod errno;
pub mod net;
pub mod rdma;

/// Prefix of the messages of this crate; the `pr_*!` macros look it up by this name.
const __LOG_PREFIX: &[u8] = b"rsmc\0";
