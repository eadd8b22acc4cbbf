// SPDX-License-Identifier: GPL-2.0
//! The time of day, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_secs())
}

/// A time in seconds since 1970 as year, month, day, hour, minute, second.
pub fn parts(seconds: u64) -> [u64; 6] {
    let (mut days, rest) = (seconds / 86400, seconds % 86400);
    let mut year = 1970;
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    [
        year,
        month,
        days + 1,
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
    ]
}

/// A time as `2026-11-21 09:43:00`.
pub fn text(seconds: u64) -> String {
    let [year, month, day, hour, minute, second] = parts(seconds);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(text(0), "1970-01-01 00:00:00");
        assert_eq!(text(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(text(1_798_761_599), "2026-12-31 23:59:59");
        assert_eq!(text(4_107_542_400), "2100-03-01 00:00:00");
    }
}
