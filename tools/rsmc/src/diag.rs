// SPDX-License-Identifier: GPL-2.0
//! Sockets as sock_diag reports them: `struct smc_diag_msg` and its attributes (`<linux/smc_diag.h>`).
