// SPDX-License-Identifier: GPL-2.0
//! What model cards (`kmod/card`), both ends' devices and ports together, and the scheduler have counted.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

/// Counters of cards that say how work was gathered.
const OF_CARDS: [&str; 3] = ["interrupts", "doorbells", "completions"];
/// Of ports: what arrives is a completion, too.
const ARRIVED: &str = "arrived";

/// By name.
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// As they are now; without cards only the scheduler's.
    pub fn now() -> Counts {
        let mut found = BTreeMap::new();
        let text = fs::read_to_string("/sys/module/card/parameters/stats").unwrap_or_default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').skip(1).collect();
            for pair in words.chunks(2) {
                let value = pair.get(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
                let name = OF_CARDS.into_iter().find(|name| *name == pair[0]);
                let name = name.or((pair[0] == ARRIVED).then_some("completions"));
                if let Some(name) = name {
                    *found.entry(name).or_default() += value;
                }
            }
        }
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let switches = text.lines().find_map(|line| line.strip_prefix("ctxt "));
        found.insert(
            "switches",
            switches.and_then(|n| n.parse().ok()).unwrap_or(0),
        );
        Counts(found)
    }

    /// What was counted since.
    pub fn since(&self, before: &Counts) -> Counts {
        let less = |(name, n): (&&'static str, &u64)| {
            let before = before.0.get(name).copied().unwrap_or(0);
            (*name, n.saturating_sub(before))
        };
        Counts(self.0.iter().map(less).collect())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, n)| write!(f, " {name} {n}"))
    }
}
