// SPDX-License-Identifier: GPL-2.0

//! LLC behaviour: what a link is doing, what we answer, what we ask.
//!
//! * [`link`]: steps of a link's queue pair, its life, and the TEST_LINK heartbeat.
//! * [`progress`]: whether the peer takes what we send.
//! * [`responder`]: the answer to everything a peer may ask of us. [`rtoken`]: the peer's memory.
//! * [`requests`]: CONFIRM_RKEY and DELETE_RKEY of our own, and whose answers they get.
//!
//! Layouts are in `wire::llc`; what spans links is in `group`. Nothing here sends or waits:
//! answers are frames for the caller to post, waiting is a deadline.

pub mod link;
pub mod progress;
pub mod requests;
pub mod responder;
pub mod rtoken;

use crate::time::Span;

/// Longest wait for an answer.
pub const WAIT_ANSWER: Span = Span::from_secs(2);
/// Longest time for which a device repeats what is not acknowledged, before it gives up and breaks the queue pair: seven
/// times up to four times 268 ms (IBTA 9.7.6.1.3).
pub const DEVICE_PATIENCE: Span = Span::from_secs(8);
/// Longest wait of a client for the server's CONFIRM_LINK.
pub const WAIT_CONFIRM_LINK: Span = Span::from_secs(4);
