// SPDX-License-Identifier: GPL-2.0

//! Many connections in one link group, between two complete protocol stacks.

#[path = "../sim/mod.rs"]
mod sim;

use sim::rng::Rng;
use sim::stack::Stack;
use smc_proto::time::Span;

/// Random programs on random connections.
fn churn(s: &mut Stack, seed: u64, turns: u64) {
    let mut rng = Rng(seed ^ 0xabcd);
    let mut open: Vec<usize> = Vec::new();
    for _ in 0..turns {
        match rng.below(20) {
            0 | 1 => open.extend(s.open()),
            2 if !open.is_empty() => {
                let i = rng.below(open.len() as u64) as usize;
                // Half of the time one side alone, which the other answers later.
                let id = open.swap_remove(i);
                s.close(rng.below(2) as usize, id);
                if rng.one_in(2) {
                    s.read(0, id);
                    s.read(1, id);
                }
                s.close(0, id);
                s.close(1, id);
            }
            3..=9 if !open.is_empty() => {
                let id = open[rng.below(open.len() as u64) as usize];
                s.write(rng.below(2) as usize, id, rng.below(400) as u32);
            }
            10..=16 if !open.is_empty() => {
                let id = open[rng.below(open.len() as u64) as usize];
                s.read(rng.below(2) as usize, id);
            }
            _ => s.run(Span(rng.below(100_000))),
        }
    }
}

#[test]
fn connections_come_and_go() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let rmbes = 1 + rng.below(255) as u8;
        let slots = 1 + rng.below(16) as usize;
        let mut s = Stack::new(seed, rmbes, slots);
        churn(&mut s, seed, 3000);
        assert!(s.opened() > 50);
        s.finish();
    }
}

#[test]
fn few_buffers_are_reused_often() {
    for seed in 0..20 {
        let mut s = Stack::new(seed, 2, 4);
        churn(&mut s, seed, 8000);
        assert!(s.opened() > 100);
        s.finish();
    }
}

#[test]
fn all_255_connections_at_once() {
    let mut s = Stack::new(3, 255, 16);
    let ids: Vec<usize> = std::iter::from_fn(|| s.open()).collect();
    assert_eq!(ids.len(), 255);
    for round in 0..40 {
        for id in &ids {
            s.write(round % 2, *id, 100);
            s.read(1 - round % 2, *id);
        }
        s.run(Span::from_millis(50));
    }
    s.finish();
}

#[test]
fn a_lost_link_ends_every_connection() {
    for seed in 0..60 {
        let mut s = Stack::new(seed, 100, 8);
        churn(&mut s, seed, 1500);
        s.lose_link();
        churn(&mut s, seed + 1, 100);
        // One host notices by an error, the other by its heartbeat.
        s.run(Span::from_secs(40));
        assert_eq!(s.is_dead(), [true, true]);
        assert!(s.open().is_none());
        s.finish();
    }
}

#[test]
fn an_idle_link_is_tested_and_kept() {
    let mut s = Stack::new(1, 10, 4);
    let id = s.open().unwrap();
    s.run(Span::from_secs(3600));
    assert!(s.llc > 200, "{} messages", s.llc);
    assert_eq!(s.is_dead(), [false, false]);
    s.write(0, id, 10);
    s.run(Span::from_millis(1));
    assert_eq!(s.read(1, id), 10);
    s.finish();
}
