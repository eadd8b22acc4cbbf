// SPDX-License-Identifier: GPL-2.0

//! How two ends agree to go on by SMC-R, and what they say.

use proptest::prelude::*;
use smc_proto::{
    promotion::{may_cut, Breach, Promotion, Side, Stage, Step},
    wire::promotion::{Join, Mark},
};
use std::collections::VecDeque;

#[path = "../sim/mod.rs"]
mod sim;

use sim::promotion::{Ends, Op};

#[test]
fn join_has_these_bytes() {
    let join = Join {
        client: 0x0102_0304,
        server: 0xa0b0_c0d0,
    };
    let bytes = join.bytes();
    assert_eq!(&bytes[..12], b"RSMCJOIN\x01\0\0\0");
    assert_eq!(
        &bytes[12..],
        [1, 2, 3, 4, 0xa0, 0xb0, 0xc0, 0xd0, 0, 0, 0, 0]
    );
    assert_eq!(Join::parse(&bytes), Some(join));
    for at in 0..9 {
        let mut other = bytes;
        other[at] ^= 0x80;
        assert_eq!(Join::parse(&other), None, "byte {at}");
    }
}

#[test]
fn marks_have_these_bytes() {
    assert_eq!(Mark::Ready.bytes(), *b"RSP\x01\0\0\0\0");
    assert_eq!(Mark::Go.bytes(), *b"RSP\x02\0\0\0\0");
    assert_eq!(Mark::Cut(0x0102_0304).bytes(), *b"RSP\x03\x01\x02\x03\x04");
    assert_eq!(Mark::Stays.bytes(), *b"RSP\x04\0\0\0\0");
    for mark in [
        Mark::Ready,
        Mark::Go,
        Mark::Cut(0),
        Mark::Cut(u32::MAX),
        Mark::Stays,
    ] {
        assert_eq!(Mark::parse(mark.bytes()), Some(mark));
    }
    assert_eq!(Mark::parse(*b"RSP\x01\0\0\0\x01"), None);
    assert_eq!(Mark::parse(*b"RSP\x05\0\0\0\0"), None);
    assert_eq!(Mark::parse(*b"GET / HT"), None);
}

#[test]
fn the_usual_way() {
    let (mut client, mut server) = ends();
    assert_eq!(server.offered(), Step::Decide);
    assert_eq!(client.offered(), Step::Wait);
    assert_eq!(server.agree(), Step::Say(Mark::Ready));
    assert_eq!(client.heard(Mark::Ready), Ok(Step::Decide));
    assert_eq!(client.agree(), Step::Say(Mark::Go));
    assert_eq!(client.stage(), Stage::Bound);
    assert!(!server.stage().may_be_followed());
    assert_eq!(server.heard(Mark::Go), Ok(Step::Turn));
    server.turned(7);
    assert_eq!(client.heard(Mark::Cut(7)), Ok(Step::Turn));
    assert_eq!(client.peer_cut(), Some(7));
    client.turned(9);
    assert_eq!(server.heard(Mark::Cut(9)), Ok(Step::Wait));
    assert_eq!(server.peer_cut(), Some(9));
    assert!(!client.awaits_mark() && !server.awaits_mark());
}

#[test]
fn marks_out_of_their_order_are_a_breach() {
    let (mut client, mut server) = ends();
    assert_eq!(client.heard(Mark::Ready), Err(Breach));
    let _ = (client.offered(), server.offered());
    for mark in [Mark::Go, Mark::Cut(1)] {
        assert_eq!(client.heard(mark), Err(Breach));
    }
    for mark in [Mark::Ready, Mark::Go, Mark::Cut(1)] {
        assert_eq!(server.heard(mark), Err(Breach));
    }
    assert_eq!(server.agree(), Step::Say(Mark::Ready));
    assert_eq!(server.heard(Mark::Go), Ok(Step::Turn));
    assert_eq!(server.heard(Mark::Go), Err(Breach));
    assert_eq!(server.heard(Mark::Cut(1)), Ok(Step::Wait));
    assert_eq!(server.heard(Mark::Cut(1)), Err(Breach));
}

#[test]
fn a_cut_lies_where_tcp_has_come_or_will() {
    for arrived in [0, 1000, u32::MAX - 3, u32::MAX] {
        let at = |ahead: i32| arrived.wrapping_add_signed(ahead);
        for ended in [false, true] {
            assert!(may_cut(arrived, arrived, ended));
            // Bytes that TCP has are not left out, and what cannot come is not waited for.
            for ahead in [-1, -2000, i32::MIN, i32::MAX, (1 << 30) + 1] {
                assert!(!may_cut(at(ahead), arrived, ended), "{ahead}");
            }
            for ahead in [1, 2000, 1 << 30] {
                assert_eq!(may_cut(at(ahead), arrived, ended), !ended, "{ahead}");
            }
        }
    }
}

/// Found by the fuzz target: a cut that is ahead of what has arrived is not ahead of the reader, who has not read that.
#[test]
fn a_cut_is_ahead_of_the_reader_as_well() {
    let mut ends = Ends::new(1 << 31, 0, Some(Side::Client));
    ends.op(true, Op::Decide(true));
    for _ in 0..4 {
        ends.op(false, Op::Tcp(14));
    }
    ends.op(false, Op::Say(Mark::Go));
    ends.op(false, Op::Say(Mark::Cut(55)));
    ends.op(false, Op::Data(5));
    ends.op(true, Op::Look);
    ends.op(true, Op::Turn);
    ends.op(true, Op::Look);
    ends.op(true, Op::Read(3));
    ends.finish();
}

/// Whoever has turned and does not know the peer's cut cannot know it after the peer's end.
#[test]
fn an_end_without_a_cut_is_no_end() {
    let (_, mut server) = ends();
    let _ = server.offered();
    let _ = server.agree();
    assert_eq!(server.heard(Mark::Go), Ok(Step::Turn));
    server.turned(7);
    assert_eq!(server.ended(true), Step::Reset);
    assert_eq!(server.heard(Mark::Cut(9)), Ok(Step::Wait));
    assert_eq!(server.ended(true), Step::Wait);
}

/// What a correct pair does from beginning to end, in the simulator that the next properties use: otherwise they might
/// show nothing.
#[test]
fn the_simulator_promotes() {
    let mut ends = Ends::new(u32::MAX - 5, 7, None);
    for server in [false, true] {
        ends.op(server, Op::Write(9));
    }
    for _ in 0..4 {
        for server in [true, false] {
            for op in [Op::Look, Op::Decide(true), Op::Turn] {
                ends.op(server, op);
            }
        }
    }
    assert!(ends.both_have_turned());
    for server in [false, true] {
        ends.op(server, Op::Write(9));
    }
    ends.finish();
}

fn ends() -> (Promotion, Promotion) {
    (Promotion::new(Side::Client), Promotion::new(Side::Server))
}

/// What the model has come to know of an end.
#[derive(Default)]
struct End {
    /// Marks on their way to it, and `None` for the peer's abort, after which there is nothing.
    inbox: VecDeque<Option<Mark>>,
    turned: bool,
    left: bool,
    closed: bool,
    reset: bool,
    /// It has to decide, or to turn.
    decides: bool,
    turns: bool,
}

/// Performs a step of an end, with `peer` for what it says.
fn perform(end: &mut End, peer: &mut End, step: Step) {
    match step {
        Step::Wait => (),
        Step::Decide => end.decides = true,
        Step::Say(mark) => peer.inbox.push_back(Some(mark)),
        Step::Turn => end.turns = true,
        Step::Leave => {
            end.left = true;
            (end.decides, end.turns) = (false, false);
            peer.inbox.push_back(None);
        }
        Step::Ask | Step::Reset => end.reset = true,
    }
}

proptest! {
    /// Two ends that decide, refuse, close and lose their link at any moment: unless the link was lost, none turns
    /// whose peer has left, and both end on the same carrier.
    #[test]
    fn ends_agree(choices in proptest::collection::vec((any::<bool>(), 0u8..10), 0..60), link in any::<bool>()) {
        let (client, server) = ends();
        let mut machines = [client, server];
        let mut all = [End::default(), End::default()];
        for at in [1, 0] {
            let step = machines[at].offered();
            let [a, b] = &mut all;
            let (end, peer) = if at == 0 { (a, b) } else { (b, a) };
            perform(end, peer, step);
        }
        let mut lost = false;
        // In the end all that is possible happens.
        let rest = (0..40).map(|round| (round % 2 == 0, (round / 2 % 3) as u8));
        for (first, what) in choices.into_iter().chain(rest) {
            let at = usize::from(!first);
            let machine = &mut machines[at];
            let [a, b] = &mut all;
            let (end, peer) = if at == 0 { (a, b) } else { (b, a) };
            if end.reset || end.closed {
                continue;
            }
            match what {
                0 => {
                    if lost || end.left {
                        continue;
                    }
                    if !machine.awaits_mark() && matches!(end.inbox.front(), Some(Some(_))) {
                        continue;
                    }
                    match end.inbox.pop_front() {
                        Some(Some(mark)) => {
                            let step = machine.heard(mark);
                            prop_assert!(step.is_ok(), "{mark:?} in {:?}", machine.stage());
                            perform(end, peer, step.unwrap());
                        }
                        Some(None) => {
                            let step = machine.ended(true);
                            prop_assert_ne!(step, Step::Reset);
                            if step != Step::Leave || !peer.closed {
                                perform(end, peer, step);
                            } else {
                                prop_assert!(!peer.turned, "its bytes are in the ring");
                                end.left = true;
                            }
                        }
                        None => (),
                    }
                }
                1 if end.decides => {
                    end.decides = false;
                    let step = machine.agree();
                    perform(end, peer, step);
                }
                2 if end.turns => {
                    end.turns = false;
                    end.turned = true;
                    machine.turned(at as u32);
                    peer.inbox.push_back(Some(Mark::Cut(at as u32)));
                }
                // It refuses, or closes: then it turns if it has agreed.
                3 | 4 => {
                    let step = machine.refuse();
                    perform(end, peer, step);
                    if what == 4 && matches!(machine.stage(), Stage::Bound | Stage::Due) {
                        machine.turned(at as u32);
                        end.turned = true;
                        end.turns = false;
                        peer.inbox.push_back(Some(Mark::Cut(at as u32)));
                        end.closed = true;
                        peer.inbox.push_back(None);
                    }
                }
                5 if link && !lost => {
                    lost = true;
                    for at in [0, 1] {
                        let step = machines[at].ended(false);
                        let [a, b] = &mut all;
                        let (end, peer) = if at == 0 { (a, b) } else { (b, a) };
                        perform(end, peer, step);
                    }
                }
                _ => (),
            }
        }
        let [client, server] = &all;
        if !lost {
            prop_assert!(!client.reset && !server.reset);
            // A client that closes turns with nothing but its end, so a server that has left misses nothing.
            prop_assert!(client.turned == server.turned || client.closed);
            for end in [client, server] {
                prop_assert!(!(end.turned && end.left));
            }
        } else if server.left && !server.turned {
            // What the client did not know, it does not go on with.
            prop_assert!(!client.turned || client.closed);
        }
    }

    /// Two ends and their bytes, with everything that can happen to a correct one: none turns before the other has
    /// agreed, each byte comes once and in its order, and no correct end breaks a rule of the other one.
    #[test]
    fn bytes_follow_one_another(
        positions in any::<(u32, u32)>(),
        ops in proptest::collection::vec(any::<[u8; 3]>(), 0..120),
    ) {
        let mut ends = Ends::new(positions.0, positions.1, None);
        ops.into_iter().for_each(|raw| ends.raw(raw));
        ends.finish();
    }

    /// One end is hostile, and says any marks and bytes by both ways: whatever the other one reads from its ring follows
    /// all that TCP had before the cut, and it turns only after what the peer has to say first.
    #[test]
    fn a_hostile_peer_leaves_nothing_out(
        positions in any::<(u32, u32)>(),
        client in any::<bool>(),
        ops in proptest::collection::vec(any::<[u8; 3]>(), 0..60),
    ) {
        let hostile = if client { Side::Client } else { Side::Server };
        let mut ends = Ends::new(positions.0, positions.1, Some(hostile));
        ops.into_iter().for_each(|raw| ends.raw(raw));
        ends.finish();
    }
}
