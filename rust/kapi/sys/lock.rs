// SPDX-License-Identifier: GPL-2.0

//! Spinlocks that may be taken in process and in softirq context.

pub use crate::rdma::lock::SpinLockBh;
