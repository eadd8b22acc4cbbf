// SPDX-License-Identifier: GPL-2.0

//! Peers that do not bear SMC's option: for how long they are left alone, what forgives them, and that the
//! table stays what it is whatever happens.

use proptest::prelude::*;
use smc_proto::{
    peer_cache::{Cause, Event, Peer, PeerCache, Slot, View, MANY, SLOW},
    reason::Reason,
    slots::{set_of, Slots, WAYS},
    time::{Instant, Span},
};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// A 64th of an hour, in seconds that have begun.
const PART: u64 = 57;
const PORT: u16 = 443;

struct Rig {
    places: Vec<Slot>,
    now: u64,
    routes: u32,
    first: u64,
}

impl Rig {
    fn new() -> Self {
        Self {
            places: vec![Slot::EMPTY; 8 * WAYS],
            now: 1000,
            routes: 1,
            first: HOUR,
        }
    }

    fn view(&self) -> View {
        View {
            now: Instant(self.now * 1_000_000_000),
            first: Span::from_secs(self.first),
            routes: self.routes,
        }
    }

    fn table(&mut self) -> PeerCache<'_> {
        PeerCache::new(Slots::new(&mut self.places, 77))
    }

    fn asks_at(&mut self, who: u8, port: u16) -> Option<Cause> {
        let view = self.view();
        self.table().keeps_off(&peer(who, port), &view)
    }

    fn note_at(&mut self, who: u8, port: u16, event: Event) {
        let view = self.view();
        self.table().note(&peer(who, port), event, &view);
    }

    fn asks(&mut self, who: u8) -> Option<Cause> {
        self.asks_at(who, PORT)
    }

    fn note(&mut self, who: u8, event: Event) {
        self.note_at(who, PORT, event);
    }

    fn keeps_links_off(&mut self, who: u8) -> bool {
        let view = self.view();
        self.table().keeps_links_off(&peer(who, PORT), &view)
    }

    /// Seconds until somebody may try; looks every second.
    fn waits(&mut self, who: u8) -> u64 {
        let begin = self.now;
        while self.asks(who).is_some() {
            self.now += 1;
        }
        self.now - begin
    }
}

fn address(number: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[15] = number;
    address
}

fn peer(number: u8, port: u16) -> Peer {
    Peer {
        address: address(number),
        port,
    }
}

#[test]
fn a_stranger_is_offered() {
    let mut rig = Rig::new();
    assert_eq!(rig.asks(1), None);
    rig.note(1, Event::Echoed);
    assert_eq!(rig.asks(1), Some(Cause::Echo));
    assert_eq!(rig.asks(2), None);
}

#[test]
fn an_hour_and_then_twice_as_long_up_to_a_day() {
    for (event, cause) in [
        (Event::Echoed, Cause::Echo),
        (Event::Silent, Cause::Silence),
        (Event::Reset, Cause::Reset),
    ] {
        let mut rig = Rig::new();
        match event {
            Event::Reset => {
                rig.note(1, event);
                rig.note(1, event);
                assert_eq!(rig.asks(1), None);
            }
            Event::Silent => {
                // A queue may have been full.
                rig.note(1, event);
                assert_eq!(rig.asks(1), Some(cause));
                assert_eq!(rig.waits(1), PART);
            }
            _ => (),
        }
        for hours in [1, 2, 4, 8, 16, 24, 24] {
            rig.note(1, event);
            assert_eq!(rig.asks(1), Some(cause));
            assert_eq!(rig.waits(1), hours * HOUR, "{cause:?}");
        }
    }
}

#[test]
fn a_longer_first_time_is_not_cut() {
    let mut rig = Rig::new();
    rig.first = 3 * DAY;
    for _ in 0..3 {
        rig.note(1, Event::Echoed);
        assert_eq!(rig.waits(1), 3 * DAY);
    }
}

#[test]
fn what_is_doubtful_counts_for_a_minute_at_first() {
    let mut rig = Rig::new();
    rig.note(1, Event::Abandoned);
    assert_eq!(rig.waits(1), PART);
    rig.note(1, Event::Abandoned);
    assert_eq!(rig.waits(1), 113);
    // And then it turns out.
    rig.note(1, Event::Silent);
    assert_eq!(rig.waits(1), HOUR);
}

#[test]
fn one_tries_and_the_others_go_without() {
    let mut rig = Rig::new();
    rig.note(1, Event::Silent);
    rig.now += PART;
    assert_eq!(rig.asks(1), None);
    for _ in 0..10 {
        assert_eq!(rig.asks(1), Some(Cause::Silence));
        rig.now += 1;
    }
    // Nothing was heard of it.
    assert_eq!(rig.asks(1), None);
    rig.note(1, Event::Answered);
    for _ in 0..3 {
        assert_eq!(rig.asks(1), None);
    }
}

#[test]
fn many_that_find_it_at_once_count_once() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        rig.note(1, Event::Silent);
    }
    assert_eq!(rig.waits(1), PART);
}

#[test]
fn declines_in_a_row() {
    let mut rig = Rig::new();
    let declined = Event::Declined(Reason::NoDevice);
    for _ in 1..MANY {
        rig.note(1, declined);
        assert_eq!(rig.asks(1), None);
    }
    // It is no answer to who declines that TCP works.
    rig.note(1, Event::Answered);
    rig.note(1, declined);
    assert_eq!(rig.asks(1), Some(Cause::Declines));
    assert_eq!(rig.waits(1), HOUR);
    rig.note(1, Event::Answered);
    assert_eq!(rig.asks(1), Some(Cause::Declines));
    // Once more is enough.
    rig.note(1, declined);
    assert_eq!(rig.waits(1), 2 * HOUR);
    rig.note(1, Event::Succeeded);
    for _ in 1..MANY {
        rig.note(1, declined);
        assert_eq!(rig.asks(1), None);
    }
    // Success in between: from the beginning.
    rig.note(1, Event::Succeeded);
    rig.note(1, declined);
    assert_eq!(rig.asks(1), None);
}

/// A program that begins to listen between two SYNs is not blamed, and no peer for two of them with a connection
/// in between that bore the option.
#[test]
fn resets_in_a_row() {
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.note(1, Event::Reset);
        rig.note(1, Event::Reset);
        assert_eq!(rig.asks(1), None);
        rig.note(1, Event::Answered);
    }
    for _ in 0..3 {
        assert_eq!(rig.asks(1), None);
        rig.note(1, Event::Reset);
    }
    assert_eq!(rig.asks(1), Some(Cause::Reset));
}

#[test]
fn passing_causes_do_not_count() {
    let mut rig = Rig::new();
    for reason in [
        Reason::Busy,
        Reason::NoMemory,
        Reason::Policy,
        Reason::SyncError,
        Reason::Other(0),
    ] {
        for _ in 0..100 {
            rig.note(1, Event::Declined(reason));
        }
    }
    assert_eq!(rig.asks(1), None);
    assert!(rig.places.iter().all(|slot| slot.get().is_none()));
    rig.note(1, Event::Failed);
    assert_eq!(rig.asks(1), None);
    rig.note(1, Event::Failed);
    assert_eq!(rig.asks(1), Some(Cause::Declines));
}

#[test]
fn new_routes_let_one_try_after_a_part_of_the_time() {
    let mut rig = Rig::new();
    rig.note(1, Event::Echoed);
    rig.routes += 1;
    assert_eq!(rig.waits(1), PART);
    rig.note(1, Event::Echoed);
    // Without a further change the whole time, which has doubled.
    assert_eq!(rig.waits(1), 2 * HOUR);
}

#[test]
fn new_routes_do_not_shorten_the_shortest_time() {
    let mut rig = Rig::new();
    rig.note(1, Event::Abandoned);
    rig.routes += 1;
    assert_eq!(rig.waits(1), PART);
}

#[test]
fn forgotten() {
    let mut rig = Rig::new();
    rig.note(1, Event::Echoed);
    rig.note_at(1, 80, Event::Silent);
    assert!(rig.table().forget(&address(1)));
    assert!(!rig.table().forget(&address(1)));
    assert_eq!(rig.asks(1), None);
    assert_eq!(rig.asks_at(1, 80), None);
}

/// A queue that is full, or a program that gives up, tells of its port; a second port that is silent, of the address.
#[test]
fn a_second_port_makes_it_the_address() {
    for (event, times) in [(Event::Silent, 1), (Event::Reset, 3)] {
        let mut rig = Rig::new();
        let bad = |rig: &mut Rig, port| {
            for _ in 0..times {
                rig.note_at(1, port, event);
            }
        };
        bad(&mut rig, 80);
        assert!(rig.asks_at(1, 80).is_some());
        assert_eq!(rig.asks_at(1, 443), None);
        bad(&mut rig, 80);
        assert_eq!(rig.asks_at(1, 443), None);
        // A port that is answered speaks for the address.
        rig.note_at(1, 443, Event::Answered);
        bad(&mut rig, 8080);
        assert_eq!(rig.asks_at(1, 443), None);
        bad(&mut rig, 443);
        for port in [80, 443, 8080, 9999] {
            assert!(rig.asks_at(1, port).is_some(), "{event:?} {port}");
        }
        assert_eq!(rig.asks_at(2, 80), None);
        // Two ports are no chance: an hour, then twice as long.
        let begin = rig.now;
        while rig.asks_at(1, 9999).is_some() {
            rig.now += 1;
        }
        assert_eq!(rig.now - begin, HOUR);
        bad(&mut rig, 9999);
        assert!(rig.asks_at(1, 10000).is_some());
        rig.now += 2 * HOUR - 1;
        assert!(rig.asks_at(1, 10000).is_some());
        rig.now += 1;
        assert_eq!(rig.asks_at(1, 10000), None);
        rig.note_at(1, 10000, Event::Answered);
        assert_eq!(rig.asks_at(1, 10001), None);
    }
}

/// Two ports long after each other are two chances.
#[test]
fn ports_of_two_days_are_not_together() {
    let mut rig = Rig::new();
    rig.note_at(1, 80, Event::Silent);
    rig.now += HOUR;
    rig.note_at(1, 443, Event::Silent);
    assert_eq!(rig.asks_at(1, 22), None);
    rig.now += HOUR - 1;
    rig.note_at(1, 80, Event::Silent);
    assert!(rig.asks_at(1, 22).is_some());
}

/// Anybody may give up, at any port.
#[test]
fn programs_that_give_up_never_tell_of_more_than_a_port() {
    let mut rig = Rig::new();
    for port in 1..100 {
        rig.note_at(1, port, Event::Abandoned);
    }
    assert_eq!(rig.asks_at(1, 443), None);
}

#[test]
fn the_one_with_the_least_time_left_gives_way() {
    let mut rig = Rig::new();
    rig.places.truncate(WAYS);
    for who in 0..WAYS as u8 {
        rig.note(who, Event::Echoed);
        rig.now += 1;
    }
    rig.note(100, Event::Echoed);
    assert_eq!(rig.asks(0), None);
    assert_eq!(rig.asks(1), Some(Cause::Echo));
    assert_eq!(rig.asks(100), Some(Cause::Echo));
    // One that has only declined once goes before all others.
    rig.table().forget(&address(1));
    rig.note(101, Event::Declined(Reason::NoDevice));
    rig.note(102, Event::Echoed);
    for who in [2, 3, 100, 102] {
        assert!(rig.asks(who).is_some(), "{who}");
    }
}

#[test]
fn no_places_no_memory() {
    let mut rig = Rig::new();
    rig.places.clear();
    rig.note(1, Event::Echoed);
    assert_eq!(rig.asks(1), None);
}

/// Addresses in a row, as a network has them, are spread over the sets; and which go together depends on the secret.
#[test]
fn sets_are_even_and_secret() {
    for secret in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
        let mut counts = [0u32; 64];
        for number in 0..6400u16 {
            let mut whom = peer(0, PORT);
            whom.address[14..].copy_from_slice(&number.to_be_bytes());
            counts[set_of(&whom, secret, 64)] += 1;
        }
        assert!(
            counts.iter().all(|n| (50..=160).contains(n)),
            "{secret:x} {counts:?}"
        );
    }
    let together = |secret| {
        (1..200).filter(move |n| {
            set_of(&peer(*n, PORT), secret, 64) == set_of(&peer(0, PORT), secret, 64)
        })
    };
    assert!(together(5).ne(together(6)));
}

/// The first failure may have been the moment's: a 64th. Then an hour, then twice as long, up to a day. It is the
/// address's matter, and counts for both who begins the connection.
#[test]
fn a_path_without_rdma_is_left_alone() {
    let mut rig = Rig::new();
    rig.note(1, Event::LinkFailed);
    assert_eq!(rig.asks_at(1, 80), Some(Cause::Link));
    assert!(rig.keeps_links_off(1));
    assert!(!rig.keeps_links_off(2));
    assert_eq!(rig.waits(1), PART);
    for hours in [1, 2, 4, 8, 16, 24, 24] {
        rig.note(1, Event::LinkFailed);
        assert_eq!(rig.waits(1), hours * HOUR);
        // That one tries, others still do not, whoever begins them.
        assert!(rig.keeps_links_off(1));
        assert!(rig.asks(1).is_some());
    }
}

/// The server's memory alone: one connection of the peer tries when the time is over.
#[test]
fn one_link_of_the_peer_tries() {
    let mut rig = Rig::new();
    rig.note(1, Event::LinkFailed);
    rig.now += PART;
    assert!(!rig.keeps_links_off(1));
    assert!(rig.keeps_links_off(1));
    rig.note(1, Event::LinkConfirmed);
    assert!(!rig.keeps_links_off(1));
    assert_eq!(rig.asks(1), None);
}

/// What says that the option is borne says nothing of links, and the other way round.
#[test]
fn options_and_links_are_two_matters() {
    for event in [Event::Answered, Event::Succeeded] {
        let mut rig = Rig::new();
        rig.note(1, Event::LinkFailed);
        rig.note(1, event);
        assert_eq!(rig.asks(1), Some(Cause::Link), "{event:?}");
    }
    for event in [Event::Echoed, Event::Silent] {
        let mut rig = Rig::new();
        rig.note(1, event);
        rig.note(1, Event::LinkConfirmed);
        assert!(rig.asks(1).is_some(), "{event:?}");
        // A server declines no link because of it.
        assert!(!rig.keeps_links_off(1));
    }
}

/// A path that drops large packets alone lets each link be confirmed: it breaks soon after.
#[test]
fn links_that_are_confirmed_and_break_count_in_a_row() {
    let mut rig = Rig::new();
    let breaks = |rig: &mut Rig| {
        rig.note(1, Event::LinkConfirmed);
        assert_eq!(rig.asks(1), None);
        rig.now += 2;
        rig.note(1, Event::LinkFailed);
    };
    for seconds in [PART, HOUR, 2 * HOUR, 4 * HOUR] {
        breaks(&mut rig);
        assert_eq!(rig.waits(1), seconds);
    }
    // One that holds for as long as the last time was ends that.
    rig.note(1, Event::LinkConfirmed);
    rig.now += 4 * HOUR;
    rig.note(1, Event::LinkFailed);
    assert_eq!(rig.waits(1), PART);
}

#[test]
fn which_ends_of_a_first_contact_tell_of_the_link() {
    use Reason::*;
    let failed = Some(Event::LinkFailed);
    let soon = Span(SLOW.0 - 1);
    for reason in [ConfirmLinkTimeout, ReadyLinkError] {
        for (own, peer) in [(reason, None), (PeerDeclined, Some(reason))] {
            assert_eq!(Event::of_first_contact(own, peer, SLOW), failed);
            assert_eq!(Event::of_first_contact(own, peer, soon), None);
        }
    }
    // Our own memory; the peer's; its memory of us.
    assert_eq!(
        Event::of_first_contact(RegisterBufferError, None, SLOW),
        None
    );
    for reason in [RegisterBufferError, NoMemory, LinkFailed, Busy, SyncError] {
        assert_eq!(
            Event::of_first_contact(PeerDeclined, Some(reason), SLOW),
            None
        );
        assert!(!Event::Declined(reason).forgives());
    }
    // A server that remembers costs its client little: that begins as ever.
    let mut rig = Rig::new();
    for _ in 0..2 * MANY {
        rig.note(1, Event::Declined(LinkFailed));
    }
    assert_eq!(rig.asks(1), None);
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Echoed),
        Just(Event::Silent),
        Just(Event::Abandoned),
        Just(Event::Reset),
        Just(Event::Declined(Reason::NoDevice)),
        Just(Event::Declined(Reason::Busy)),
        Just(Event::Failed),
        Just(Event::Answered),
        Just(Event::Succeeded),
        Just(Event::LinkFailed),
        Just(Event::LinkConfirmed),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Note(u8, u16, Event),
    Ask(u8, u16),
    Wait(u32),
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any::<u8>(), 1u16..4, event()).prop_map(|(who, port, event)| Step::Note(who, port, event)),
        (any::<u8>(), 1u16..4).prop_map(|(who, port)| Step::Ask(who, port)),
        any::<u32>().prop_map(|s| Step::Wait(s % 100_000)),
        Just(Step::Move),
    ]
}

proptest! {
    /// Whatever happens, an address stands once, in its set; success makes it free at once; nobody is left
    /// alone for longer than a day; and after that somebody may try.
    #[test]
    fn bounded(first in 1u64..10 * DAY, steps in prop::collection::vec(step(), 0..300)) {
        let mut rig = Rig::new();
        rig.first = first;
        for step in steps {
            match step {
                Step::Note(who, port, event) => {
                    rig.note_at(who, port, event);
                    if event == Event::Succeeded {
                        rig.note_at(who, port, Event::LinkConfirmed);
                        prop_assert_eq!(rig.asks_at(who, port), None);
                    }
                }
                Step::Ask(who, port) => {
                    rig.asks_at(who, port);
                }
                Step::Wait(seconds) => rig.now += u64::from(seconds),
                Step::Move => rig.routes = rig.routes.wrapping_add(1),
            }
            let now = rig.view().now;
            let mut seen = vec![];
            for (at, slot) in rig.places.iter().enumerate() {
                let Some((address, entry)) = slot.get() else { continue };
                prop_assert!(!seen.contains(address));
                seen.push(*address);
                prop_assert_eq!(set_of(address, 77, 8), at / WAYS);
                prop_assert!(entry.left(now) <= Span::from_secs(first.max(DAY)));
            }
        }
        rig.now += first.max(DAY);
        // Each attempt is one for its port and its address.
        for who in 0..=255 {
            for port in 1..4 {
                rig.now += DAY;
                prop_assert_eq!(rig.asks_at(who, port), None);
            }
        }
    }
}
