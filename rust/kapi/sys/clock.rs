// SPDX-License-Identifier: GPL-2.0

//! The time, mostly coarsely and cheaply.

use core::ptr;
use smc_bindings as bindings;

/// Seconds since boot, not counting suspend. Safe in any context.
#[inline]
pub fn seconds() -> u64 {
    // SAFETY: Reads a variable of the timekeeper.
    unsafe { bindings::ktime_get_seconds() as u64 }
}

/// Nanoseconds since some time at boot, to the tick. Safe in any context.
///
/// ```
/// # use kapi::sys::clock;
/// # use kernel::time::{delay::fsleep, Delta};
/// let (coarse, exact) = (clock::nanos(), clock::nanos_exactly());
/// fsleep(Delta::from_millis(200));
/// let passed = clock::nanos() - coarse;
/// // No more than has passed, but for a tick.
/// assert!(passed > 0 && passed <= clock::nanos_exactly() - exact + 10_000_000);
/// ```
#[inline]
pub fn nanos() -> u64 {
    // SAFETY: A variable of the kernel that is always there, and one machine word, which others write
    // whole.
    let ticks = unsafe { ptr::read_volatile(&raw const bindings::jiffies_64) };
    ticks.wrapping_mul(u64::from(bindings::NSEC_PER_SEC) / u64::from(bindings::TICKS_PER_SECOND))
}

/// Nanoseconds since some time at boot, exactly, which is dearer than [`nanos`]. Safe in any context.
pub fn nanos_exactly() -> u64 {
    // SAFETY: Reads the timekeeper, which the kernel keeps for any context.
    unsafe { bindings::ktime_get() as u64 }
}

/// Nanoseconds since 1970, as the wall clock has them now. Safe in any context.
pub fn wall_nanos() -> u64 {
    // SAFETY: Reads the timekeeper, which the kernel keeps for any context.
    unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_REAL) as u64 }
}

/// Fills `bytes` with random numbers.
pub fn random(bytes: &mut [u8]) {
    // SAFETY: The slice may be written.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
}
