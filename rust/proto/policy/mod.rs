// SPDX-License-Identifier: GPL-2.0

//! Rules that decide which TCP sockets become sockets of the family, and which connections offer SMC.
//!
//! The first rule that matches wins. A socket is judged more than once, as more is known about it: at its
//! creation by the process alone, by listen() with its port, by connect() or by an incoming connection
//! with the peer, too. What is not known yet leaves a rule open, and the outcome may say so.

mod pattern;
mod rule;
mod table;

pub use pattern::{glob, Network, Range};
pub use rule::{Facts, Match, Rule, Verdict};
pub use table::{sort, Entry, Hit, Index, Outcome, Table};
