// SPDX-License-Identifier: GPL-2.0

//! All interleavings of a direction's writer, its reader, TCP's delivery and whoever takes a ring back, for a few
//! bytes: every byte once and in order, every cut passed, no end before the last byte, nobody asleep for good.
//!
//! The steps are those of `rust/smc/stream/local`: `put.rs`, `take.rs`, `direction.rs`, `idle.rs` and `retire()`, with
//! their locks, and the waits of `kapi/net/wait.rs`. What each step does to a route is [`Route`]'s own code. Plain
//! stores go through a store buffer for each thread, as on x86; locks, compare-and-exchange and barriers empty it.
//!
//! Sizes are small: a ring has one byte, and two after it has grown, so "a third of it is free" is one byte. A
//! [`Slip`] changes one step, and each of them is noticed.

mod path_rig;

use path_rig::{explore, Config, Slip};

/// A writer that leaves TCP and returns as it likes, and someone who takes silent rings back.
const SILENT: Config = Config {
    bytes: 4,
    message: 2,
    give_backs: 2,
    retires: false,
    answered: false,
    slip: None,
};

/// As above, but the writer's program waits for an answer to all before it ends: no FIN wakes the reader.
const ANSWERED: Config = Config {
    bytes: 2,
    answered: true,
    ..SILENT
};

/// The reader's program has the connection retired meanwhile.
const RETIRED: Config = Config {
    bytes: 3,
    message: 2,
    give_backs: 1,
    retires: true,
    answered: true,
    slip: None,
};

#[test]
fn every_interleaving_is_in_order_and_ends() {
    for config in [SILENT, ANSWERED, RETIRED] {
        let report = explore(&config).unwrap_or_else(|flaw| panic!("{flaw}"));
        println!(
            "{} states, {} steps; {} ends",
            report.states, report.steps, report.ends
        );
        // The interesting ones are among them.
        assert!(report.states > 20_000, "{report:?}");
        assert!(
            report.promotions > 0 && report.given_back > 0 && report.grown > 0,
            "{report:?}"
        );
        assert_eq!(config.retires, report.retired > 0, "{report:?}");
    }
}

#[test]
fn each_slip_is_noticed() {
    for (slip, sign) in [
        (Slip::PassesBlindly, "beyond the cut"),
        (Slip::LooksForTheEndLast, "is over before"),
        (Slip::LooksBeforeTheRoute, "out of order"),
        (Slip::PromotesBetweenReads, "out of order"),
        (Slip::TakesBackUnread, "more in the ring"),
        (Slip::GrowsFromTheHead, "out of order"),
        (Slip::TellsWithoutBarrier, "sleeps for good"),
        (Slip::TakesWithoutBarrier, "sleeps for good"),
        (Slip::StarvesWithoutBarrier, "sleeps for good"),
    ] {
        let found = [ANSWERED, SILENT, RETIRED].into_iter().find_map(|config| {
            explore(&Config {
                slip: Some(slip),
                ..config
            })
            .err()
        });
        let flaw = found.unwrap_or_else(|| panic!("{slip:?} is not noticed"));
        println!("{slip:?}: {flaw}");
        assert!(flaw.contains(sign), "{slip:?}: {flaw}");
    }
}
