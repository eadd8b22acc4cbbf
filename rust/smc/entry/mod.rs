// SPDX-License-Identifier: GPL-2.0

//! System calls on sockets, and the part of the family that serves each.

pub(crate) mod overlay;
pub(crate) mod sockopt;
pub(crate) mod tcp_info;

/// Address family of SMC (`include/linux/socket.h`).
pub(crate) const AF_SMC: i32 = 43;
