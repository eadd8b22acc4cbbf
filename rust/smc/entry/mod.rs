// SPDX-License-Identifier: GPL-2.0

//! The system calls of a program: which part of the family each concerns.

pub(crate) mod overlay;
pub(crate) mod sockopt;

/// Address family of SMC (`include/linux/socket.h`).
pub(crate) const AF_SMC: i32 = 43;
