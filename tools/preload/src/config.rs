// SPDX-License-Identifier: GPL-2.0
//! Settings from the environment, read once when the library is loaded.
//!
//! They are kept in atomics: one writer value, any number of readers, no lock. A `socket()` call
//! that comes before our constructor (from another library's) reads the environment itself and
//! arrives at the same values.

use crate::decide::Family;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

/// Settings from the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `RSMC_FAMILY`: kind of SMC socket.
    pub family: Family,
    /// `RSMC_STRICT`: an SMC socket or an error, never TCP.
    pub strict: bool,
    /// `RSMC_DEBUG`: say on standard error what was done.
    pub debug: bool,
    /// `RSMC_SNDBUF`: value for `SO_SNDBUF` in bytes, 0 to leave it.
    pub sndbuf: u32,
    /// `RSMC_RCVBUF`: value for `SO_RCVBUF` in bytes, 0 to leave it.
    pub rcvbuf: u32,
}

const KNOWN: u32 = 1 << 0;
const STRICT: u32 = 1 << 1;
const DEBUG: u32 = 1 << 2;
const FAMILY_SMC: u32 = 1 << 3;
const FAMILY_OFF: u32 = 1 << 4;

static FLAGS: AtomicU32 = AtomicU32::new(0);
static SNDBUF: AtomicU32 = AtomicU32::new(0);
static RCVBUF: AtomicU32 = AtomicU32::new(0);

impl Config {
    /// Settings when no variable is set.
    pub const DEFAULT: Config = Config {
        family: Family::Inet,
        strict: false,
        debug: false,
        sndbuf: 0,
        rcvbuf: 0,
    };

    /// The settings of this process.
    pub fn current() -> Config {
        let flags = FLAGS.load(Ordering::Acquire);
        if flags & KNOWN == 0 {
            let config = crate::sys::read_environment();
            config.store();
            return config;
        }
        Config {
            family: if flags & FAMILY_OFF != 0 {
                Family::Off
            } else if flags & FAMILY_SMC != 0 {
                Family::Smc
            } else {
                Family::Inet
            },
            strict: flags & STRICT != 0,
            debug: flags & DEBUG != 0,
            sndbuf: SNDBUF.load(Ordering::Relaxed),
            rcvbuf: RCVBUF.load(Ordering::Relaxed),
        }
    }

    /// Publishes these settings for later calls.
    pub(crate) fn store(&self) {
        SNDBUF.store(self.sndbuf, Ordering::Relaxed);
        RCVBUF.store(self.rcvbuf, Ordering::Relaxed);
        let mut flags = KNOWN;
        flags |= match self.family {
            Family::Inet => 0,
            Family::Smc => FAMILY_SMC,
            Family::Off => FAMILY_OFF,
        };
        if self.strict {
            flags |= STRICT;
        }
        if self.debug {
            flags |= DEBUG;
        }
        FLAGS.store(flags, Ordering::Release);
    }

    /// Takes one `NAME=value` line of an environment; lines that are not ours change nothing.
    /// A value that makes no sense leaves the setting as it was: this is no place to complain.
    pub fn take(&mut self, line: &CStr) {
        let Some(line) = line.to_bytes().strip_prefix(b"RSMC_") else {
            return;
        };
        if let Some(value) = line.strip_prefix(b"FAMILY=") {
            match value {
                b"inet" => self.family = Family::Inet,
                b"smc" => self.family = Family::Smc,
                b"off" => self.family = Family::Off,
                _ => {}
            }
        } else if let Some(value) = line.strip_prefix(b"STRICT=") {
            self.strict = is_on(value);
        } else if let Some(value) = line.strip_prefix(b"DEBUG=") {
            self.debug = is_on(value);
        } else if let Some(value) = line.strip_prefix(b"SNDBUF=") {
            self.sndbuf = size(value).unwrap_or(self.sndbuf);
        } else if let Some(value) = line.strip_prefix(b"RCVBUF=") {
            self.rcvbuf = size(value).unwrap_or(self.rcvbuf);
        }
    }
}

/// Anything but nothing and `0` switches on.
fn is_on(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0")
}

/// Bytes: digits with an optional `k` or `m` (1024s), at most `i32::MAX` because setsockopt takes an int.
fn size(value: &[u8]) -> Option<u32> {
    let (digits, unit) = match value {
        [digits @ .., b'k' | b'K'] => (digits, 1024),
        [digits @ .., b'm' | b'M'] => (digits, 1024 * 1024),
        digits => (digits, 1),
    };
    if digits.is_empty() {
        return None;
    }
    let mut bytes = 0u32;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        bytes = bytes.checked_mul(10)?.checked_add(u32::from(digit))?;
    }
    bytes
        .checked_mul(unit)
        .filter(|bytes| *bytes <= i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &[&CStr]) -> Config {
        let mut config = Config::DEFAULT;
        for line in lines {
            config.take(line);
        }
        config
    }

    #[test]
    fn values_are_taken() {
        let config = taken(&[
            c"PATH=/bin",
            c"RSMC_FAMILY=smc",
            c"RSMC_STRICT=1",
            c"RSMC_DEBUG=yes",
            c"RSMC_SNDBUF=64k",
            c"RSMC_RCVBUF=1048576",
        ]);
        assert_eq!(
            config,
            Config {
                family: Family::Smc,
                strict: true,
                debug: true,
                sndbuf: 65536,
                rcvbuf: 1 << 20,
            }
        );
    }

    #[test]
    fn nonsense_changes_nothing() {
        let config = taken(&[
            c"RSMC_FAMILY=ipx",
            c"RSMC_STRICT=0",
            c"RSMC_DEBUG=",
            c"RSMC_SNDBUF=lots",
            c"RSMC_RCVBUF=k",
            c"RSMC_RCVBUF=4294967296",
            c"RSMC_RCVBUF=2048m",
            c"RSMC_RCVBUF=-1",
            c"RSMC_",
            c"",
            c"XRSMC_STRICT=1",
        ]);
        assert_eq!(config, Config::DEFAULT);
    }

    #[test]
    fn stored_settings_come_back() {
        for family in [Family::Inet, Family::Smc, Family::Off] {
            for on in [false, true] {
                let config = Config {
                    family,
                    strict: on,
                    debug: !on,
                    sndbuf: 7,
                    rcvbuf: 9,
                };
                config.store();
                assert_eq!(Config::current(), config);
            }
        }
    }
}
