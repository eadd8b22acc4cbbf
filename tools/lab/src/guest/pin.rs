// SPDX-License-Identifier: GPL-2.0

//! On which processor a user-mode guest runs.
//!
//! A user-mode kernel and the programs in it are processes that take turns: on
//! one processor a switch is cheap, and on two each wakes the other from its
//! sleep, which on a virtual machine doubles what everything costs. The two
//! guests of a pair take turns as well.

use rustix::thread::{sched_getaffinity, CpuSet};
use std::sync::{Mutex, PoisonError};

/// Sum of the weights of the clusters on each processor.
static USERS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A processor; dropping it gives it back.
#[derive(Debug)]
pub struct Pin {
    number: usize,
    weight: usize,
}

impl Pin {
    /// The processor with the least on it so far, if there are several.
    pub fn new(weight: usize) -> Option<Pin> {
        let ours = sched_getaffinity(None).ok()?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|at| ours.is_set(*at)).collect();
        if all.len() < 2 {
            return None;
        }
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        users.resize(CpuSet::MAX_CPU, 0);
        // Another run of ours begins elsewhere, perhaps.
        let first = std::process::id() as usize % all.len();
        let order = all[first..].iter().chain(&all[..first]);
        let least = *order.min_by_key(|at| users[**at])?;
        users[least] += weight;
        Some(Pin {
            number: least,
            weight,
        })
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        USERS.lock().unwrap_or_else(PoisonError::into_inner)[self.number] -= self.weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_used_in_turn() {
        let (Some(a), Some(b)) = (Pin::new(1), Pin::new(1)) else {
            return;
        };
        assert_ne!(a.number(), b.number());
        let number = a.number();
        drop(a);
        assert_eq!(Pin::new(1).map(|pin| pin.number()), Some(number));
    }
}
