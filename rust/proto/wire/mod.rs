// SPDX-License-Identifier: GPL-2.0

//! Byte layouts: what is on the wire, and nothing about when or why.
//!
//! * [`tcp_option`]: the option in SYN and SYN-ACK that says "I speak SMC".
//! * [`identity`]: the option by which two kernels with this module know each other.
//! * [`promotion`]: what moves a connection that began as TCP to the link.
//! * [`clc`]: the handshake messages in the TCP stream.
//! * [`llc`], [`cdc`]: the messages on the RDMA link; [`immediate`]: what may stand for a CDC message.
//! * [`ids`], [`bufsize`], [`list`]: the small values that these messages carry.
//! * [`bytes`]: the checked reader and writer all codecs are made of.
//!
//! Every parser checks lengths and returns owned values; every emitter writes
//! into the caller's buffer and returns the length. State machines live
//! elsewhere.

pub mod bufsize;
pub mod bytes;
pub mod cdc;
pub mod clc;
pub mod identity;
pub mod ids;
pub mod immediate;
pub mod list;
pub mod llc;
pub mod promotion;
pub mod tcp_option;
