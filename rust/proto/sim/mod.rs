// SPDX-License-Identifier: GPL-2.0

//! Test support, host only: two protocol stacks in one program, with virtual time.
//!
//! * [`rng`]: small deterministic random numbers. [`pair`]: two established connections over an
//!   in-memory reliable channel with delays, lost and failed completions and link loss.
//! * [`handshake`]: two hosts that shake hands over byte streams and an RDMA link that may fail.
//! * [`promotion`]: two ends that change from TCP to their rings, one of them hostile perhaps.
//! * [`hosts`]: a connection that goes to and fro between TCP and a link, either of which may die.
//! * [`stack`]: a whole link group between two hosts, with many connections sharing its link.
//!
//! Included by tests and fuzz targets with `#[path]`; never part of the library. What goes wrong
//! panics, so that every user of the simulators is a test.

#![allow(dead_code)]

pub mod handshake;
pub mod hosts;
pub mod pair;
pub mod promotion;
pub mod rng;
pub mod stack;
