// SPDX-License-Identifier: GPL-2.0
//! The clock, the lines that are printed, and the marks for the profiler.

use std::time::Instant;

/// Holds what the command line wants of the measurements.
pub struct Meter {
    /// Only metrics whose names begin with one of these; empty: all.
    pub only: Vec<String>,
    /// Amounts are divided by this.
    pub scale: u64,
    /// The clock counts instructions: sleeping takes no time.
    pub counting: bool,
    /// The measured part lies between marks (`tools/profile`).
    pub mark: bool,
}

/// A measurement that runs.
pub struct Running<'a> {
    meter: &'a Meter,
    since: Instant,
}

/// Tells the profiler, which knows x86 alone, to begin or to end.
pub fn mark() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `xchg bx, bx` changes nothing.
    unsafe {
        std::arch::asm!(
            ".byte 0x66, 0x87, 0xdb",
            options(nomem, nostack, preserves_flags)
        )
    };
}

/// A result.
pub fn show(metric: &str, value: f64, unit: &str) {
    println!("bench {metric} {value:.1} {unit}");
}

impl Meter {
    /// Returns whether a metric is wanted.
    pub fn wants(&self, metric: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| metric.starts_with(o.as_str()))
    }

    /// An amount.
    pub fn amount(&self, full: u64) -> u64 {
        (full / self.scale).max(1)
    }

    /// Begins.
    pub fn start(&self) -> Running<'_> {
        if self.mark {
            mark();
        }
        Running {
            meter: self,
            since: Instant::now(),
        }
    }
}

impl Running<'_> {
    /// Ends: nanoseconds. With marks, it says how many operations the profile is of.
    pub fn stop(self, ops: u64) -> f64 {
        let ns = self.since.elapsed().as_nanos() as f64;
        if self.meter.mark {
            mark();
            println!("# profile of {ops} operations");
        }
        ns
    }
}
