// SPDX-License-Identifier: GPL-2.0

//! Lines in the kernel log about what may happen often.

use super::clock::now;
use kernel::sync::atomic::{Atomic, Relaxed};

/// At most one line in this time: a peer that breaks its links by itself must not fill the log.
const PAUSE_MS: u32 = 1000;

/// When there was a line, so that the next one can wait.
pub(crate) struct RateLimit {
    /// Milliseconds; those of some 49 days.
    at: Atomic<u32>,
    /// Events without a line since.
    silent: Atomic<u32>,
}

impl RateLimit {
    /// Nothing was said yet.
    pub(crate) fn new() -> Self {
        Self {
            at: Atomic::new(clock().wrapping_sub(PAUSE_MS)),
            silent: Atomic::new(0),
        }
    }

    /// Returns the number of events without a line if there may be one now.
    pub(crate) fn allow(&self) -> Option<u32> {
        let (last, time) = (self.at.load(Relaxed), clock());
        let early = time.wrapping_sub(last) < PAUSE_MS;
        if early || self.at.cmpxchg(last, time, Relaxed).is_err() {
            self.silent.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.silent.xchg(0, Relaxed))
    }
}

fn clock() -> u32 {
    // It may wrap.
    (now().0 / 1_000_000) as u32
}
