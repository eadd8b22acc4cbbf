// SPDX-License-Identifier: GPL-2.0
//! A short memory that this kernel has no SMC.
//!
//! A kernel asked for a protocol it does not have starts modprobe, up to twice, and waits: a
//! socket then costs a hundred times what it should (measured: 16.7 ms instead of 0.13 ms on an
//! emulated machine). So after a refusal this process asks again only when [`SECONDS`] have
//! passed. A program that runs when the module is loaded later gets SMC for its next sockets.
//!
//! One word, no lock; a forked child inherits it, a new program starts without.

use core::sync::atomic::{AtomicU32, Ordering};

/// Time for which a refusal is remembered, in seconds.
pub const SECONDS: u32 = 10;

/// When SMC was last found absent.
#[derive(Debug, Default)]
pub struct Absence {
    /// Second of the last refusal, 0 for none.
    refused: AtomicU32,
}

impl Absence {
    /// Nothing remembered.
    pub const fn new() -> Absence {
        Absence {
            refused: AtomicU32::new(0),
        }
    }

    /// Notes that SMC was absent in the second `now`.
    pub fn remember(&self, now: u32) {
        self.refused.store(now.max(1), Ordering::Relaxed);
    }

    /// True if SMC was absent less than [`SECONDS`] before `now`.
    pub fn is_fresh(&self, now: u32) -> bool {
        match self.refused.load(Ordering::Relaxed) {
            0 => false,
            then => now.wrapping_sub(then) < SECONDS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_in_time() {
        let absence = Absence::new();
        assert!(!absence.is_fresh(0) && !absence.is_fresh(5));
        absence.remember(100);
        assert!(absence.is_fresh(100) && absence.is_fresh(109));
        assert!(!absence.is_fresh(110) && !absence.is_fresh(99));
        absence.remember(0);
        assert!(absence.is_fresh(1));
        absence.remember(u32::MAX);
        assert!(absence.is_fresh(3) && !absence.is_fresh(10));
    }
}
