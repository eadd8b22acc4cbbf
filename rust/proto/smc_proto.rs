// SPDX-License-Identifier: GPL-2.0

//! The SMC protocol as pure computation.
//!
//! Here lives what two SMC peers say to each other and what follows from it:
//! byte layouts, lengths, reason codes, state machines. Nothing in this crate
//! reads a socket, a clock or an allocator, nothing blocks, and nothing can
//! panic: input arrives as slices or values, output leaves as values or in the
//! caller's buffer. That makes it equally usable inside the kernel and in an
//! ordinary test program, and the host tests test the very code the module runs.
//!
//! Not here: kernel types, `unsafe`, policy that depends on a
//! device, anything that allocates.
//!
//! Sources of all layouts are RFC 7609 (SMC-R version 1), IBM's "Shared Memory
//! Communications Version 2" (third edition) and what the C implementation of
//! Linux does where these two leave room.

#![forbid(unsafe_code)]
#![cfg_attr(not(CONFIG_RUST), no_std)]
#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

#[cfg(test)]
extern crate std;

pub mod conn;
pub mod cursor;
pub mod error;
pub mod group;
pub mod handshake;
pub mod learn;
pub mod llc;
pub mod path;
pub mod peer_cache;
pub mod policy;
pub mod promotion;
pub mod rate;
pub mod reason;
pub mod ring;
pub mod slots;
pub mod time;
pub mod wire;
