// SPDX-License-Identifier: GPL-2.0

//! Slowness of this machine just now. On a virtual machine whose host takes memory back, touching a
//! page may cost ten times what it should, and guests do little else while they boot and fork. Time
//! limits, and nothing else, follow that, so that they mean a hang and not a bad day.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Fresh memory to touch: as much as a guest comes to use.
const BYTES: usize = 512 << 20;
const PAGE: usize = 4096;
/// A page of a machine that is well, with room to spare.
const USUAL: Duration = Duration::from_nanos(2000);
/// Limits grow by no more than this.
const MOST: u32 = 4;

/// By how much time limits are to be longer; measured once, in well under a second on most machines.
pub fn factor() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| {
        // The first time also wakes a machine that was idle.
        touch();
        let factor = judge(touch());
        if factor > 1 {
            eprintln!(
                "this machine is slow to give memory: time limits are {factor} times as long"
            );
        }
        factor
    })
}

/// Returns the time that touching a page took.
fn touch() -> Duration {
    let start = Instant::now();
    let mut memory = vec![0u8; BYTES];
    for page in memory.chunks_mut(PAGE) {
        page[0] = 1;
    }
    std::hint::black_box(&memory);
    start.elapsed() / u32::try_from(BYTES / PAGE).unwrap_or(u32::MAX)
}

fn judge(page: Duration) -> u32 {
    let times = page.as_nanos().div_ceil(USUAL.as_nanos());
    u32::try_from(times).unwrap_or(MOST).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_a_slow_machine_and_not_without_end() {
        assert_eq!(judge(Duration::from_nanos(300)), 1);
        assert_eq!(judge(Duration::from_micros(2)), 1);
        assert_eq!(judge(Duration::from_micros(5)), 3);
        assert_eq!(judge(Duration::from_millis(1)), MOST);
    }
}
