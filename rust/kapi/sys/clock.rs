// SPDX-License-Identifier: GPL-2.0

//! The time, coarsely and cheaply.

use smc_bindings as bindings;

/// Seconds since boot, not counting suspend. Safe in any context.
#[inline]
pub fn seconds() -> u64 {
    // SAFETY: Reads a variable of the timekeeper.
    unsafe { bindings::ktime_get_seconds() as u64 }
}

/// Nanoseconds since boot, not counting suspend. Safe in any context.
#[inline]
pub fn nanos() -> u64 {
    // SAFETY: Reads the timekeeper.
    unsafe { bindings::ktime_get() as u64 }
}

/// Fills `bytes` with random numbers.
pub fn random(bytes: &mut [u8]) {
    // SAFETY: The slice may be written.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
}
