// SPDX-License-Identifier: GPL-2.0

//! A limit of lines in the kernel log about what may happen often.

use super::clock::now;
use kernel::sync::atomic::{Atomic, Relaxed};

/// At most one line in this time: a peer that breaks its links by itself must not fill the log.
const PAUSE_MS: u32 = 1000;

/// Allows one line in [`PAUSE_MS`].
pub(crate) struct RateLimit {
    /// Time of the last line, in milliseconds that wrap after 49 days.
    at: Atomic<u32>,
    /// Events without a line since then.
    silent: Atomic<u32>,
}

impl RateLimit {
    /// Creates a limit that allows a line at once.
    pub(crate) fn new() -> Self {
        Self {
            at: Atomic::new(clock().wrapping_sub(PAUSE_MS)),
            silent: Atomic::new(0),
        }
    }

    /// Returns the number of events since the last line if a line may be written now, and counts this event if not.
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
