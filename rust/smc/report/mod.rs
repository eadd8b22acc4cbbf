// SPDX-License-Identifier: GPL-2.0

//! Administration: generic netlink and `sock_diag`.

pub(crate) mod netlink;
pub(crate) mod sock_diag;
