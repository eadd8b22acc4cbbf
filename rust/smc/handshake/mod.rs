// SPDX-License-Identifier: GPL-2.0

//! From two ends of a TCP connection that both speak SMC to a connection over a link group, or to a
//! reason why not: CLC over the stream, first contact, and the memory of both.

mod attempt;
pub(crate) mod crossing;
pub(crate) mod decline;
mod first_contact;
pub(crate) mod gates;
mod talk;

pub(crate) use talk::{Progress, Talk};
