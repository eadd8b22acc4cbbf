// SPDX-License-Identifier: GPL-2.0

//! Barriers between the programs of two guests.

use super::Guest;
use std::collections::BTreeMap;

/// The barrier at which a guest asks for the other one's end.
pub const KILL: &str = "kill-peer";

/// Which guests wait at which barrier.
#[derive(Default)]
pub struct Barriers(BTreeMap<String, Vec<usize>>);

impl Barriers {
    /// Notes that a program has come to a barrier.
    pub fn arrive(&mut self, index: usize, name: String) {
        self.0.entry(name).or_default().push(index);
    }

    /// Releases barriers at which all running guests wait, and, as failed,
    /// those whose missing guest has ended.
    pub fn settle(&mut self, running: &[bool], guests: &mut [Guest]) {
        let all = guests.len();
        let ended = running.iter().filter(|running| !**running).count();
        self.0.retain(|name, waiting| {
            waiting.sort_unstable();
            waiting.dedup();
            let met = waiting.len() == all;
            if !met && waiting.len() + ended < all {
                return true;
            }
            for index in waiting.iter() {
                if let Some(guest) = guests.get_mut(*index) {
                    guest.send(&["release", name, if met { "1" } else { "0" }]);
                }
            }
            false
        });
    }
}
