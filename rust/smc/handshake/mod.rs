// SPDX-License-Identifier: GPL-2.0

//! The SMC handshake over an established TCP connection: CLC over the stream, first contact, and
//! the resources of the connection. It ends with a connection over a link group, or with the reason
//! of a fallback.

mod attempt;
pub(crate) mod crossing;
pub(crate) mod decline;
pub(crate) mod gates;
mod group_limits;
mod negotiation;
mod run;
mod subnets;

pub(crate) use negotiation::{Conclusion, Negotiation, SleepRule};
pub(crate) use run::Progress;
