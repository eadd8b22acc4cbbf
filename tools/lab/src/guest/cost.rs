// SPDX-License-Identifier: GPL-2.0

//! CPU time that guests cost their host. It tells a test that computes from
//! one that waits, however busy the machine is.

use std::fs;
use std::time::Duration;

/// CPU time of a process group so far, that of its dead children included.
pub fn of_group(group: u32) -> Duration {
    let ticks: u64 = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|text| ticks(&text, group))
        .sum();
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(ticks * 1000 / per_second)
}

/// The times in a process's `stat`, if it belongs to the group.
fn ticks(stat: &str, group: u32) -> Option<u64> {
    // After the name, which may hold anything: state, parent, group, ...
    let (_, rest) = stat.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    (words.get(2)?.parse() == Ok(group)).then_some(())?;
    words.get(11..15).map(|times| {
        times
            .iter()
            .filter_map(|time| time.parse::<u64>().ok())
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_group_are_added() {
        let stat = "12 (a) b) S 1 77 77 0 -1 0 0 0 0 0 10 20 30 40 20 0 1";
        assert_eq!(ticks(stat, 77), Some(100));
        assert_eq!(ticks(stat, 1), None);
    }

    #[test]
    fn our_own_group_has_a_cost() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let before = of_group(group.unsigned_abs());
        // A tick of the processor, whenever a loaded machine gives us one.
        let costs = || (0..1_000_000).for_each(|_| std::hint::spin_loop());
        let grown = (0..100_000).any(|_| {
            costs();
            of_group(group.unsigned_abs()) > before
        });
        assert!(grown);
    }
}
