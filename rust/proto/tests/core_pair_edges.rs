// SPDX-License-Identifier: GPL-2.0

//! Programs that go on at an event only, while rings grow and shrink, in the pair simulator.

#[path = "../sim/mod.rs"]
mod sim;

use sim::pair::edges::Edges;
use sim::pair::Shape;
use sim::rng::Rng;

/// Nothing but the events of the connection moves the programs, and all bytes come back. `CORE_EDGES_RUNS` sets how many
/// runs.
#[test]
fn programs_that_wait_for_events_get_to_the_end() {
    let runs = std::env::var("CORE_EDGES_RUNS").map_or(400, |v| v.parse().unwrap());
    let (mut moved, mut shrunk) = (0, 0);
    for run in 0..runs {
        let mut rng = Rng(run);
        let shape = Shape {
            // Rings may move; by the lowest bit WRITEs may announce themselves.
            seed: 4 * run + 2 + rng.below(2),
            rings: [14; 4],
            slots: 1 + rng.below(16) as usize,
            autocork: [0, 65536][rng.below(2) as usize],
        };
        let mut edges = Edges::new(&shape, 14 + 2 * (run % 3) as u8, 300_000);
        edges.run();
        moved += edges.moved();
        shrunk += edges.shrunk;
    }
    println!("{runs} runs, {moved} moves, {shrunk} offers of a smaller ring");
    assert!(moved > 2 * runs as usize && u64::from(shrunk) > runs);
}
