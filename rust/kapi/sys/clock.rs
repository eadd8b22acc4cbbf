// SPDX-License-Identifier: GPL-2.0

//! The time, coarsely and cheaply.

use smc_bindings as bindings;

/// Seconds since boot, not counting suspend. Safe in any context.
#[inline]
pub fn seconds() -> u64 {
    // SAFETY: Reads a variable of the timekeeper.
    unsafe { bindings::ktime_get_seconds() as u64 }
}
