// SPDX-License-Identifier: GPL-2.0

//! Connections whose link is lost and whose streams go on by TCP, in the pair simulator: what was read, what is left in
//! the ring and what the peer gives to TCP are together every byte, each once.

#[path = "../sim/mod.rs"]
mod sim;

use proptest::prelude::*;
use sim::pair::*;
use smc_proto::conn::{Actions, CloseMode, ProtoError, RecvState, SendError, SendHint};
use smc_proto::time::Span;
use smc_proto::wire::promotion::{Record, RECORD_LEN};

/// Two connections that began as TCP.
fn promoted(shape: &Shape) -> Pair {
    let mut p = Pair::new(shape);
    for side in &mut p.side {
        side.conn.begins_with(0);
    }
    p
}

/// Loses the link, and lets both ends find that out.
fn lose(p: &mut Pair, first: usize) {
    p.suspends = true;
    p.op(first, Op::LinkLoss);
    let until = p.now.after(Span::from_secs(60));
    p.run_until(until);
}

/// Exchanges the records, and checks each byte of both streams.
fn go_on_by_tcp(p: &mut Pair) {
    for me in 0..2 {
        let record = p.side[1 - me].said.expect("a record");
        let own = &mut p.side[me];
        let rest = own.conn.judge_record(&record).expect("a right record");
        own.conn.accept_record(&record);
        assert_eq!(own.conn.carried().0, rest.start);
        assert_eq!(rest.end, own.written.len() as u64);
        let kept = own.kept(rest.start, (rest.end - rest.start) as u32);
        assert_eq!(
            kept,
            own.written[rest.start as usize..],
            "from {}",
            rest.start
        );
        // What has come can be read, up to where the peer goes on.
        let peer = 1 - me;
        while p.read(peer, 5000, false) > 0 {}
        let conn = &p.side[peer].conn;
        assert_eq!(conn.positions().consumed, rest.start);
        assert_eq!(conn.recv_state(), RecvState::Empty);
    }
}

#[test]
fn nothing_was_said() {
    let mut p = promoted(&Shape::PLAIN);
    lose(&mut p, 0);
    for me in 0..2 {
        let conn = &mut p.side[me].conn;
        assert!(conn.is_suspended());
        assert_eq!(conn.send_room(), Err(SendError::Full));
        assert!(conn.directions().can_receive && conn.directions().can_send);
        assert!(!conn.wants_tx());
    }
    go_on_by_tcp(&mut p);
}

#[test]
fn ended_streams_do_not_go_on() {
    for op in [Op::Close, Op::Abort, Op::ShutBoth] {
        let mut p = Pair::new(&Shape::PLAIN);
        p.op(0, op);
        p.op(0, Op::Wait(1000));
        for me in 0..2 {
            assert!(p.side[me].conn.suspend().is_none(), "{op:?} {me}");
        }
    }
}

/// A writer who comes late is not told that the program has shut its direction.
#[test]
fn rings_that_were_given_back_have_no_room() {
    let mut p = promoted(&Shape::PLAIN);
    lose(&mut p, 0);
    let now = p.now;
    let conn = &mut p.side[0].conn;
    let _ = conn.close(CloseMode::Abort, now);
    assert_eq!(conn.send_room(), Err(SendError::Full));
    assert_eq!(conn.recv_state(), RecvState::Empty);
}

#[test]
fn a_shut_direction_stays_shut() {
    let mut p = promoted(&Shape::PLAIN);
    for side in &mut p.side {
        side.conn.keep_tcp(0);
    }
    p.op(0, Op::Write(100));
    p.op(0, Op::ShutWrite);
    p.op(0, Op::Wait(1000));
    lose(&mut p, 1);
    assert_eq!(p.side[0].conn.send_room(), Err(SendError::Shutdown));
    assert_eq!(p.side[1].conn.send_room(), Err(SendError::Full));
    assert_eq!(p.read(1, 1000, false), 100);
    // It may also be shut after that, which changes nothing else.
    let now = p.now;
    let conn = &mut p.side[1].conn;
    let _ = conn.shutdown_write(now);
    assert_eq!(conn.send_room(), Err(SendError::Shutdown));
    assert!(!conn.wants_tx());
}

#[test]
fn records_that_cannot_be() {
    let mut p = promoted(&Shape::PLAIN);
    p.op(0, Op::Write(9000));
    p.op(0, Op::Wait(1000));
    p.op(1, Op::Read(9000));
    // It has told what it has read.
    p.op(1, Op::Write(1));
    p.op(1, Op::Wait(1000));
    p.op(0, Op::Write(9000));
    p.op(0, Op::Wait(1000));
    lose(&mut p, 0);
    let conn = &p.side[0].conn;
    let right = p.side[1].conn.record();
    let at = conn.positions();
    let all = at.sent;
    let with = |received| conn.judge_record(&Record { received, ..right });
    assert_eq!(with(all), Ok(all..all));
    // More than was sent; and what the peer has said that it has.
    assert_eq!(with(all + 1), Err(ProtoError::Record));
    assert!(at.peer_consumed >= 9000);
    assert_eq!(with(at.peer_consumed - 1), Err(ProtoError::Record));
    // The peer's device has it, its software does not.
    assert_eq!(at.completed, all);
    assert_eq!(with(at.peer_consumed), Ok(at.peer_consumed..all));
    let conn = &p.side[1].conn;
    let short = Record {
        written: all - 1,
        received: 0,
        orderly: false,
    };
    assert_eq!(conn.judge_record(&short), Err(ProtoError::Record));
}

/// Two connections of which the first has said by 16 bytes that it has left TCP.
fn with_marks() -> Pair {
    let mut p = promoted(&Shape::PLAIN);
    p.side[0].conn.keep_tcp(16);
    p.side[1].conn.keep_tcp(0);
    p.op(0, Op::Write(16));
    p.op(0, Op::Wait(1000));
    p
}

#[test]
fn who_is_understood_says_what_it_has() {
    let mut p = with_marks();
    p.op(1, Op::Read(16));
    p.op(1, Op::Wait(1000));
    assert!(!p.side[0].conn.is_understood(), "read, and not told");
    assert!(p.side[1].conn.tell_read().has(Actions::TX_DUE));
    p.op(1, Op::Write(1));
    p.op(1, Op::Wait(1000));
    assert!(p.side[0].conn.suspend().is_some());
    assert!(p.side[0].conn.knows_record());
}

/// The link is lost while nobody knows whether the peer has read the marks: this end leaves the rings, and waits for the
/// peer to say that it has.
#[test]
fn who_may_not_be_understood_waits_for_the_peer() {
    let mut p = with_marks();
    p.op(1, Op::Read(16));
    let (client, server) = (&p.side[0].conn, &p.side[1].conn);
    assert!(!client.is_understood() && server.is_understood());
    p.op(0, Op::Write(100));
    lose(&mut p, 0);
    let conn = &mut p.side[0].conn;
    assert!(conn.is_suspended() && !conn.knows_record());
    assert_eq!(conn.send_room(), Err(SendError::Full));
    assert!(p.side[0].said.is_none());
    let record = p.side[1].said.expect("the server's record");
    assert!(record.received >= 16);
    // That is its answer.
    let conn = &mut p.side[0].conn;
    conn.marks_are_read();
    assert!(conn.knows_record());
    p.say(0);
    go_on_by_tcp(&mut p);
}

/// A program that waits for the rings to be left hears of nothing else.
#[test]
fn who_may_not_be_understood_is_not_asked_to_leave() {
    let mut p = with_marks();
    for side in &mut p.side {
        side.conn.may_leave();
    }
    p.op(1, Op::Read(16));
    assert!(p.side[0].conn.ask_to_leave().is_none());
    assert!(p.side[1].conn.ask_to_leave().is_some());
}

#[test]
fn a_record_has_these_bytes() {
    let record = Record {
        received: 0x0102_0304_0506_0708,
        written: 9,
        orderly: false,
    };
    let mut bytes = [0; RECORD_LEN];
    bytes[..8].copy_from_slice(b"RSMCBACK");
    bytes[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    bytes[23] = 9;
    assert_eq!(record.bytes(), bytes);
    assert_eq!(Record::parse(&bytes), Some(record));
    let orderly = Record {
        orderly: true,
        ..record
    };
    bytes[16] = 0x80;
    assert_eq!(orderly.bytes(), bytes);
    assert_eq!(Record::parse(&bytes), Some(orderly));
    assert!((0..=RECORD_LEN).all(|len| Record::may_begin(&bytes[..len])));
    for at in 0..8 {
        let mut other = bytes;
        other[at] ^= 1;
        assert_eq!(Record::parse(&other), None);
        assert!(!Record::may_begin(&other[..=at]));
    }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1u16..9000).prop_map(Op::Write),
        1 => (1u16..4000).prop_map(Op::WriteMore),
        4 => (1u16..20_000).prop_map(Op::Read),
        1 => Just(Op::Push),
        1 => (14u8..16).prop_map(Op::Offer),
        3 => (0u16..300).prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_once(
        seed in 0u64..1000,
        ops in prop::collection::vec((0usize..2, op()), 0..80),
        first in 0usize..2,
        later in prop::collection::vec((0usize..2, op()), 0..6),
    ) {
        let mut p = promoted(&Shape { seed, ..Shape::PLAIN });
        for (me, op) in ops {
            p.op(me, op);
        }
        p.suspends = true;
        p.op(first, Op::LinkLoss);
        for (me, op) in later {
            p.op(me, op);
        }
        let until = p.now.after(Span::from_secs(60));
        p.run_until(until);
        prop_assert!(p.side.iter().all(|side| side.conn.is_suspended()));
        go_on_by_tcp(&mut p);
    }
}

/// Two connections whose ends may leave their rings in good order.
fn may_leave(seed: u64) -> Pair {
    let mut p = promoted(&Shape {
        seed,
        ..Shape::PLAIN
    });
    p.suspends = true;
    for side in &mut p.side {
        side.conn.keep_tcp(0);
        side.conn.may_leave();
    }
    p
}

/// Lets both ends come to an end of what is under way.
fn settle(p: &mut Pair) {
    let until = p.now.after(Span::from_secs(60));
    p.run_until(until);
}

#[test]
fn idle_rings_are_left_in_good_order() {
    let mut p = may_leave(1);
    p.op(0, Op::Write(5000));
    settle(&mut p);
    assert!(p.side[0].conn.is_still() && !p.side[1].conn.is_still());
    p.op(1, Op::Read(5000));
    assert!(p.side[0].conn.is_still() && p.side[1].conn.is_still());
    assert!(p.ask_to_leave(0));
    assert!(!p.ask_to_leave(0), "once");
    settle(&mut p);
    assert!(p.side.iter().all(|side| side.conn.is_suspended()));
    assert!(p.side.iter().all(|side| side.said.unwrap().orderly));
    assert!(p.side.iter().all(|side| !side.conn.rmbe_reusable()));
    go_on_by_tcp(&mut p);
    // Nothing of the peer can come any more: the ring serves another connection.
    assert!(p.side.iter().all(|side| side.conn.rmbe_reusable()));
}

#[test]
fn who_may_not_leave_says_so() {
    for refuses in 0..4 {
        let mut p = may_leave(1);
        match refuses {
            // The reader has not come to the ring.
            0 => p = promoted(&Shape::PLAIN),
            1 => p.op(1, Op::ShutWrite),
            2 => p.op(1, Op::WriteUrgent(1)),
            _ => {}
        }
        if refuses == 0 {
            p.side[0].conn.keep_tcp(0);
            p.side[0].conn.may_leave();
            p.side[1].conn.keep_tcp(0);
        }
        // Before the message of that has come.
        assert!(p.ask_to_leave(0));
        for _ in 0..10 {
            p.op(0, Op::Write(9000));
        }
        settle(&mut p);
        let left = refuses == 3;
        assert!(p.side.iter().all(|side| side.conn.is_suspended() == left));
        if left {
            go_on_by_tcp(&mut p);
            continue;
        }
        assert!(!p.side[0].conn.asks_to_leave(), "{refuses}");
        // The ring serves as before.
        let all = p.side[0].written.len() as u32;
        let mut got = 0;
        while got < all {
            got += p.read(1, 5000, false);
            p.read(0, 5000, false);
            settle(&mut p);
        }
        let mut more = 0;
        for _ in 0..10 {
            p.op(0, Op::Write(9000));
            settle(&mut p);
            more += p.read(1, 20_000, false);
            settle(&mut p);
        }
        assert!(more > 2 * 16_384, "{more}");
    }
}

/// A peer that does not know the question is not asked, and one that is not promoted does not answer.
#[test]
fn others_are_not_asked() {
    let mut p = Pair::new(&Shape::PLAIN);
    assert!(!p.ask_to_leave(0));
    p.side[0].conn.keep_tcp(0);
    p.side[0].conn.may_leave();
    assert!(p.ask_to_leave(0));
    settle(&mut p);
    assert!(p.side[0].conn.asks_to_leave());
    assert!(!p.side[1].conn.is_suspended());
}

/// The mark of an urgent byte would be lost.
#[test]
fn an_urgent_byte_waits_for_the_answer() {
    let mut p = may_leave(1);
    assert!(p.ask_to_leave(0));
    let urgent = SendHint {
        urgent: true,
        ..SendHint::default()
    };
    let now = p.now;
    let conn = &mut p.side[0].conn;
    assert!(conn.written(5, urgent, now).is_err());
    assert_eq!(conn.positions().written, 0);
    settle(&mut p);
    go_on_by_tcp(&mut p);
}

/// A stream that ends while the peer is asked goes on by TCP, whatever the peer will answer.
#[test]
fn who_asks_may_leave_first() {
    let mut p = may_leave(1);
    assert!(p.ask_to_leave(0));
    p.op(0, Op::Write(3000));
    p.leaves(0);
    settle(&mut p);
    assert!(p.side.iter().all(|side| side.conn.is_suspended()));
    go_on_by_tcp(&mut p);
}

/// What has arrived while the answer was on its way is free with that.
#[test]
fn who_is_refused_has_room_again() {
    let mut p = may_leave(1);
    p.side[1] = {
        let mut other = promoted(&Shape::PLAIN);
        other.side[1].conn.keep_tcp(0);
        let [_, side] = other.side;
        side
    };
    assert!(p.ask_to_leave(0));
    p.op(0, Op::Write(9000));
    while p.arrive(0) {}
    while p.completes(0) {}
    assert_eq!(p.side[0].conn.positions().completed, 0);
    assert!(p.arrive(1));
    assert_eq!(p.side[0].conn.positions().completed, 9000);
    assert!(p.side[0].conn.is_still());
}

/// A link that is lost after all ends the wait for its requests.
#[test]
fn good_order_ends_with_the_link() {
    let mut p = may_leave(1);
    assert!(p.ask_to_leave(0));
    p.leaves(0);
    let conn = &mut p.side[0].conn;
    assert!(conn.record().orderly && !conn.knows_record());
    assert!(conn.suspend().is_none());
    assert!(!conn.record().orderly && conn.knows_record());
}

/// Software may see what the adapter has after the record that follows it.
#[test]
fn a_record_may_overtake() {
    let mut p = may_leave(1);
    let record = |written, orderly| Record {
        received: 0,
        written,
        orderly,
    };
    p.op(1, Op::Write(100));
    let conn = &p.side[0].conn;
    assert!(conn.awaits_rest(&record(100, true)));
    assert!(!conn.awaits_rest(&record(100, false)) && !conn.awaits_rest(&record(0, true)));
    settle(&mut p);
    let conn = &p.side[0].conn;
    assert!(!conn.awaits_rest(&record(100, true)) && conn.awaits_rest(&record(101, true)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_once_in_good_order(
        seed in 0u64..1000,
        ops in prop::collection::vec((0usize..2, op()), 0..60),
        first in 0usize..2,
        both in any::<bool>(),
        lost in 0usize..8,
        later in prop::collection::vec((0usize..2, op()), 0..60),
    ) {
        let mut p = may_leave(seed);
        for (me, op) in ops {
            p.op(me, op);
        }
        let asked = p.ask_to_leave(first);
        prop_assert!(asked);
        for (at, (me, op)) in later.into_iter().enumerate() {
            p.op(me, op);
            if both && at == 1 {
                p.ask_to_leave(1 - first);
            }
            if at == lost {
                p.op(me, Op::LinkLoss);
            }
        }
        settle(&mut p);
        prop_assert!(p.side.iter().all(|side| side.conn.is_suspended()));
        go_on_by_tcp(&mut p);
    }
}
