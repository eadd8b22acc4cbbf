// SPDX-License-Identifier: GPL-2.0

//! Lessons of `auto` about services: credits, pauses, and that others are not affected.

use proptest::prelude::*;
use smc_proto::{
    learn::{Ended, Learned, Service, Slot, CREDITS, LITTLE, LONG, MUCH},
    slots::{Slots, WAYS},
    time::{Instant, Span},
};

const PAUSE: Span = Span::from_secs(60);
const A: Service = Service::Port(80);
const B: Service = Service::Port(6379);

const SHORT: Ended = Ended {
    bytes: 500,
    lived: Span::from_millis(3),
};
const GOOD: Ended = Ended {
    bytes: MUCH,
    lived: Span::from_millis(3),
};

struct Rig {
    places: Vec<Slot>,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        Self {
            places: vec![Slot::EMPTY; 16 * WAYS],
            now: Instant(1_000_000_000),
        }
    }

    fn table(&mut self) -> Learned<'_> {
        Learned::new(Slots::new(&mut self.places, 4711))
    }

    fn offers(&mut self, service: Service) -> bool {
        let now = self.now;
        self.table().offers(&service, now)
    }

    fn ended(&mut self, service: Service, ended: Ended) {
        let now = self.now;
        self.table().ended(&service, &ended, now, PAUSE);
    }

    /// Short connections until SMC is not offered any more: how many.
    fn until_paused(&mut self, service: Service) -> u32 {
        let mut made = 0;
        while self.offers(service) {
            self.ended(service, SHORT);
            made += 1;
        }
        made
    }

    /// Seconds until it is offered again.
    fn pause(&mut self, service: Service) -> u64 {
        let begin = self.now;
        while !self.offers(service) {
            self.now = self.now.after(Span::from_secs(1));
        }
        self.now.since(begin).0 / 1_000_000_000
    }
}

#[test]
fn what_pays() {
    let pays = |bytes, lived| Ended { bytes, lived }.pays();
    assert!(pays(MUCH, Span::ZERO));
    assert!(!pays(MUCH - 1, Span::ZERO));
    assert!(pays(LITTLE, LONG));
    assert!(!pays(LITTLE - 1, Span(u64::MAX)));
    assert!(!pays(LITTLE, Span(LONG.0 - 1)));
}

#[test]
fn credits_are_halved_and_pauses_doubled() {
    let mut rig = Rig::new();
    let mut credits = u32::from(CREDITS);
    let mut pause = 60;
    for _ in 0..10 {
        assert_eq!(rig.until_paused(A), credits);
        assert_eq!(rig.pause(A), pause);
        credits = (credits / 2).max(1);
        pause = (pause * 2).min(60 << 6);
    }
}

#[test]
fn other_services_are_not_affected() {
    let mut rig = Rig::new();
    assert!(rig.offers(B));
    rig.until_paused(A);
    let peer = Service::Peer([0; 16], 80);
    for service in [B, peer, Service::Peer([0; 16], 81)] {
        assert!(rig.offers(service), "{service:?}");
    }
    assert!(!rig.offers(A));
}

#[test]
fn one_that_pays_makes_up_for_two() {
    let mut rig = Rig::new();
    for _ in 0..1000 {
        assert!(rig.offers(A));
        for ended in [SHORT, SHORT, GOOD] {
            rig.ended(A, ended);
        }
    }
    // A third one more in each round is too many.
    for _ in 0..20 {
        for ended in [SHORT, SHORT, SHORT, GOOD] {
            rig.ended(A, ended);
        }
    }
    assert!(!rig.offers(A));
}

#[test]
fn as_new_once_it_pays() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.until_paused(A);
        rig.pause(A);
    }
    for _ in 0..CREDITS {
        rig.ended(A, GOOD);
    }
    assert_eq!(rig.until_paused(A), u32::from(CREDITS));
    assert_eq!(rig.pause(A), 60);
}

#[test]
fn what_ends_in_a_pause() {
    let mut rig = Rig::new();
    rig.until_paused(A);
    // Short ones that have begun before it do not count.
    for _ in 0..100 {
        rig.ended(A, SHORT);
    }
    assert_eq!(rig.pause(A), 60);
    assert_eq!(rig.until_paused(A), u32::from(CREDITS) / 2);
    // One that has paid takes back what the pause cost.
    rig.ended(A, GOOD);
    assert_eq!(rig.pause(A), 120);
    assert_eq!(rig.until_paused(A), u32::from(CREDITS) / 2);
    assert_eq!(rig.pause(A), 120);
}

#[test]
fn who_is_not_watched_is_left_out() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        rig.ended(A, SHORT);
    }
    assert!(rig.places.iter().all(|slot| slot.get().is_none()));
    rig.until_paused(A);
    assert!(rig.table().forget(&A));
    assert!(!rig.table().forget(&A));
    assert!(rig.offers(A));
}

#[test]
fn a_pause_keeps_its_place() {
    let mut rig = Rig::new();
    rig.places.truncate(WAYS);
    rig.until_paused(A);
    for port in 1000..2000 {
        assert!(rig.offers(Service::Port(port)));
    }
    assert!(!rig.offers(A));
    // Without any places SMC is offered.
    rig.places.clear();
    assert!(rig.offers(A));
}

proptest! {
    /// Whatever ends: credits stay within their bounds, a pause within its own, and it ends.
    #[test]
    fn bounded(ends in prop::collection::vec((0u16..40, 0u64..2 * MUCH, 0u64..20, 0u64..100), 0..500)) {
        let mut rig = Rig::new();
        for (port, bytes, seconds, wait) in ends {
            let service = Service::Port(port);
            rig.offers(service);
            let lived = Span::from_secs(seconds);
            rig.ended(service, Ended { bytes, lived });
            rig.now = rig.now.after(Span::from_secs(wait));
            for slot in &rig.places {
                let Some((_, record)) = slot.get() else { continue };
                prop_assert!(record.credits() <= CREDITS);
                prop_assert!(record.left(rig.now) <= Span(PAUSE.0 << 6));
                prop_assert!(record.pauses() || record.credits() > 0);
            }
        }
        rig.now = rig.now.after(Span(PAUSE.0 << 6));
        for port in 0..40 {
            prop_assert!(rig.offers(Service::Port(port)));
        }
    }
}
