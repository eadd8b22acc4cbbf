// SPDX-License-Identifier: GPL-2.0

//! The time of the protocol, and timers that fire at one of its instants.

use kapi::sys::{
    clock,
    hook::{Notify, TimerHook}, //
};
use smc_proto::time::Instant;

/// Returns the present time, as the protocol counts it.
pub(crate) fn now() -> Instant {
    Instant(clock::nanos())
}

/// Returns the same to the nanosecond, by a clock of its own: to measure what is rare.
pub(crate) fn now_exactly() -> Instant {
    Instant(clock::nanos_exactly())
}

/// Has a timer fire once `deadline` has passed.
pub(crate) fn arm<T: Notify>(timer: &TimerHook<T>, deadline: Instant) {
    timer.arm(millis_until(deadline));
}

/// Has a timer fire once `deadline` has passed, or when it was to fire before, if that is earlier.
pub(crate) fn arm_by<T: Notify>(timer: &TimerHook<T>, deadline: Instant) {
    timer.arm_by(millis_until(deadline));
}

fn millis_until(deadline: Instant) -> u32 {
    let wait = deadline.since(now()).as_millis_ceil();
    u32::try_from(wait).unwrap_or(u32::MAX).saturating_add(1)
}
