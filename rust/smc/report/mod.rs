// SPDX-License-Identifier: GPL-2.0

//! What administrators ask and set: netlink and `sock_diag`.

pub(crate) mod netlink;
pub(crate) mod sock_diag;
