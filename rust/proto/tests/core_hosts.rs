// SPDX-License-Identifier: GPL-2.0

//! A connection between two hosts, over TCP, a link and side connections that die independently: see `sim::hosts`.

#[path = "../sim/mod.rs"]
mod sim;

use sim::hosts::{Hosts, Op, Why};
use sim::rng::Rng;
use std::collections::BTreeMap;

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A connection of which the server has turned, which the client has not heard.
fn server_has_turned() -> Hosts {
    let mut hosts = Hosts::new(u32::MAX - 9, 7);
    hosts.op(CLIENT, Op::Call(true));
    for _ in 0..3 {
        hosts.op(CLIENT, Op::Talk);
    }
    for at in [SERVER, CLIENT, SERVER] {
        hosts.op(at, Op::Arrive);
        hosts.op(at, Op::Look);
        hosts.op(at, Op::Complete);
    }
    assert!(!hosts.are_both_hot());
    hosts
}

fn promoted() -> Hosts {
    let mut hosts = server_has_turned();
    for at in [CLIENT, SERVER, CLIENT] {
        hosts.op(at, Op::Arrive);
        hosts.op(at, Op::Look);
        hosts.op(at, Op::Complete);
    }
    assert!(hosts.are_both_hot());
    hosts
}

#[test]
fn a_lost_link_costs_nothing() {
    for arrive in 0..3 {
        for failed in [false, true] {
            let mut hosts = promoted();
            for at in [CLIENT, SERVER] {
                assert!(hosts.op(at, Op::Write(30)));
            }
            hosts.op(CLIENT, Op::Lose(arrive, 0, failed));
            hosts.finish();
            assert_eq!((hosts.reset, hosts.returned), (None, 1));
        }
    }
}

#[test]
fn a_side_connection_that_dies_costs_nothing() {
    for talks in 0..3 {
        let mut hosts = Hosts::new(1, 2);
        hosts.op(CLIENT, Op::Call(true));
        for _ in 0..talks {
            hosts.op(CLIENT, Op::Talk);
        }
        assert!(hosts.op(SERVER, Op::Hang));
        for at in [CLIENT, SERVER] {
            assert!(hosts.op(at, Op::Write(30)));
        }
        hosts.finish();
        assert_eq!((hosts.reset, hosts.promoted), (None, 0));
    }
}

/// Its device has acknowledged bytes that no software sees: the writer puts no others in their place.
#[test]
fn bytes_that_a_device_forgets_are_kept() {
    // A ring has 64, of which 60 were written.
    for more in [0, 4, 5, 30] {
        let mut hosts = promoted();
        for _ in 0..2 {
            hosts.op(CLIENT, Op::Write(30));
        }
        hosts.op(CLIENT, Op::Lose(0, 2, false));
        while hosts.op(CLIENT, Op::Complete) {}
        hosts.op(CLIENT, Op::Write(more));
        hosts.finish();
        assert_eq!(hosts.reset, None, "{more} bytes more");
    }
}

/// Found by `at_random`: a server that ended its direction before it had heard the client's cut ended TCP's stream, too,
/// and had nothing to say its record by when the link was lost.
#[test]
fn a_direction_that_ends_early_keeps_tcp() {
    let mut hosts = server_has_turned();
    hosts.op(SERVER, Op::Shut);
    while hosts.op(CLIENT, Op::Arrive) || hosts.op(SERVER, Op::Complete) {}
    assert!(!hosts.has_ended_tcp(SERVER));
    for at in [CLIENT, SERVER, CLIENT, SERVER] {
        hosts.op(at, Op::Look);
        hosts.op(at, Op::Arrive);
        hosts.op(at, Op::Look);
        hosts.op(at, Op::Complete);
    }
    assert!(hosts.are_both_hot());
    hosts.op(CLIENT, Op::Write(30));
    hosts.op(CLIENT, Op::Lose(0, 0, false));
    hosts.finish();
    assert_eq!(hosts.reset, None);
}

/// The link is lost in the midst of the switch, wherever that is: the side connection says where the stream goes on. Only
/// without it is the connection reset.
#[test]
fn a_link_lost_while_turning_costs_nothing() {
    let mut lost = 0;
    for steps in 0..7 {
        for hangs in [false, true] {
            for failed in [false, true] {
                let mut hosts = Hosts::new(u32::MAX - 9, 7);
                hosts.op(CLIENT, Op::Call(true));
                for _ in 0..3 {
                    hosts.op(CLIENT, Op::Talk);
                }
                for step in 0..steps {
                    let at = if step % 2 == 0 { CLIENT } else { SERVER };
                    hosts.op(at, Op::Arrive);
                    hosts.op(at, Op::Look);
                    hosts.op(at, Op::Write(9));
                }
                if hangs {
                    hosts.op(CLIENT, Op::Hang);
                }
                hosts.op(CLIENT, Op::Lose(0, 0, failed));
                for at in [SERVER, CLIENT] {
                    hosts.op(at, Op::Write(9));
                }
                hosts.finish();
                assert!(hangs || hosts.reset.is_none(), "{steps}: {:?}", hosts.reset);
                lost += u32::from(hosts.reset == Some(Why::Turning));
            }
        }
    }
    assert!(lost > 0, "the side connection was of use");
}

/// Found by `at_random`: both directions have ended, and only one end knows that the other one knows. It has ended TCP's
/// stream when the other one asks what it has.
#[test]
fn an_end_that_knows_of_both_has_no_record() {
    let mut hosts = promoted();
    for at in [CLIENT, SERVER] {
        assert!(hosts.op(at, Op::Write(10)));
        hosts.op(at, Op::Shut);
    }
    while hosts.op(CLIENT, Op::Arrive) || hosts.op(SERVER, Op::Arrive) {}
    while hosts.op(SERVER, Op::Complete) {}
    assert!(hosts.has_ended_tcp(SERVER) && !hosts.has_ended_tcp(CLIENT));
    hosts.op(CLIENT, Op::Lose(0, 0, true));
    hosts.op(CLIENT, Op::Learn);
    hosts.finish();
    assert_eq!(hosts.reset, None);
}

/// `HOSTS_RUNS` is the number of runs.
#[test]
fn at_random() {
    let runs = std::env::var("HOSTS_RUNS").map_or(5_000, |runs| runs.parse().expect("a number"));
    let (mut promoted, mut returned, mut lost) = (0, 0, 0);
    let mut resets = BTreeMap::new();
    for seed in 0..runs {
        let mut rng = Rng(seed);
        let mut hosts = Hosts::new(rng.next() as u32, rng.next() as u32);
        let count = 50 << rng.below(6);
        let run = std::panic::AssertUnwindSafe(|| {
            hosts.play(&mut rng, count);
            hosts.finish();
        });
        assert!(std::panic::catch_unwind(run).is_ok(), "seed {seed}");
        promoted += hosts.promoted;
        returned += hosts.returned;
        lost += hosts.losses;
        *resets
            .entry(hosts.reset.map(|why| format!("{why:?}")))
            .or_insert(0) += 1;
    }
    println!("{promoted} promotions, {returned} returns, {lost} losses; resets {resets:?}");
    let often = runs / 20;
    assert!(u64::from(promoted) > often && u64::from(returned) > often && u64::from(lost) > often);
}
