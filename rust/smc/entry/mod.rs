// SPDX-License-Identifier: GPL-2.0

//! System calls on sockets, and the part of the family that serves each.

pub(crate) mod overlay;
mod replacing;
pub(crate) mod sockopt;
pub(crate) mod tcp_info;
mod zerocopy_receive;
