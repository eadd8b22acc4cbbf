// SPDX-License-Identifier: GPL-2.0

//! Times that tests took when they last passed: from them follow the boots the
//! tests of a kernel are spread over, and which boot starts first. Kept in the
//! cache, for all checkouts, and only ever a guess.

use super::plan::{Kind, Test};
use crate::cache;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Seconds by the full name of a test, as in the stream.
#[derive(Default)]
pub struct Times(BTreeMap<String, f64>);

fn path() -> PathBuf {
    cache::root().join("times")
}

impl Times {
    /// Reads the times; there are none without the file.
    pub fn read() -> Times {
        Times::parse(&fs::read_to_string(path()).unwrap_or_default())
    }

    pub(super) fn parse(text: &str) -> Times {
        let line = |line: &str| {
            let (seconds, name) = line.split_once(' ')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        };
        Times(text.lines().filter_map(line).collect())
    }

    /// Seconds a test will take, more or less.
    pub fn of(&self, kind: Kind, test: &Test) -> f64 {
        let guess = || test.limit(kind.slowness()).as_secs_f64() / 8.0;
        self.0
            .get(&test.full_name(kind))
            .copied()
            .unwrap_or_else(guess)
    }

    /// Adds what a run has measured.
    pub fn save(new: &[(String, Duration)]) -> Result<()> {
        let _lock = cache::lock("times")?;
        let mut all = Times::read();
        for (name, time) in new {
            all.0.insert(name.clone(), time.as_secs_f64());
        }
        let line = |(name, seconds): (&String, &f64)| format!("{seconds:.1} {name}\n");
        let text: String = all.0.iter().map(line).collect();
        let fresh = path().with_extension(std::process::id().to_string());
        fs::write(&fresh, text).with_context(|| fresh.display().to_string())?;
        fs::rename(&fresh, path()).with_context(|| fresh.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_nonsense_is_not() {
        let times = Times::parse("4.5 uml.netns/a b\nx y\n\n7\n");
        assert_eq!(times.0.get("uml.netns/a b"), Some(&4.5));
        assert_eq!(times.0.len(), 1);
    }
}
