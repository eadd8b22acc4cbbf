// SPDX-License-Identifier: GPL-2.0

//! What a module needs on a distribution's kernel alone, which has no place for a TCP option, an answer to it, or
//! another protocol on a TCP socket.
//!
//! `Documentation/stock-kernels.md` says of each file what it relies on, what would break it, and which interface of
//! the kernel would replace it.

pub(crate) mod claim;
pub mod convert;
pub(crate) mod creators;
mod give_back;
mod reconnect;
pub mod syn;
pub(crate) mod tables;

pub use give_back::reclaim;
