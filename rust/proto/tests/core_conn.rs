// SPDX-License-Identifier: GPL-2.0

//! The connection: the rules of sending and receiving one by one. Its states are in
//! `core_conn_state.rs`, its end in `core_close.rs`, the urgent byte in `core_urgent.rs`, two
//! connections talking to each other in `core_pair.rs`.

#![allow(unused_must_use)] // what matters about the actions is asserted where it matters

mod conn_rig;

use conn_rig::*;
use smc_proto::wire::promotion::Record;

#[test]
fn data_before_the_end_is_read_first() {
    let mut r = Rig::active();
    r.peer_writes(10);
    r.peer(C);
    assert_eq!(r.conn.recv_state(), RecvState::Data(10));
    let _ = r.conn.read_done(10).unwrap();
    assert_eq!(r.conn.recv_state(), RecvState::Eof);
}

#[test]
fn peer_may_speak_before_the_handshake_ends() {
    let mut r = Rig::init();
    r.peer_writes(100);
    r.peer(D);
    assert_eq!(r.state(), ConnState::AppCloseWait1);
    r.establish();
    assert_eq!(r.state(), ConnState::AppCloseWait1);
    assert_eq!(r.conn.recv_state(), RecvState::Data(100));
    assert!(r.conn.send_room().is_ok());
}

#[test]
fn establish_needs_a_peer_and_a_link() {
    let mut r = Rig::init();
    assert_eq!(r.conn.establish(T0), Err(Misuse));
    let mut r = Rig::init();
    r.conn.set_peer(Peer {
        token: AlertToken(1),
        ring: RingSize::MIN_WIRE,
        place: Place::default(),
        immediate: false,
        moves: false,
    });
    r.kill();
    assert_eq!(r.conn.establish(T0), Err(Misuse));
}

#[test]
fn hostile_cursors_end_the_connection() {
    type Case = (fn(&mut Cdc), ProtoError);
    let cases: [Case; 8] = [
        (|c| c.token = AlertToken(8), ProtoError::Token),
        (|c| c.prod.count = RING, ProtoError::ProducerCursor),
        (|c| c.prod.count = u32::MAX, ProtoError::ProducerCursor),
        (
            |c| c.prod = Cursor { wrap: 1, count: 1 },
            ProtoError::ProducerCursor,
        ),
        (
            |c| {
                c.prod = Cursor {
                    wrap: 0x7fff,
                    count: 0,
                }
            },
            ProtoError::ProducerCursor,
        ),
        (|c| c.cons.count = RING, ProtoError::ConsumerCursor),
        (|c| c.cons.count = 101, ProtoError::ConsumerCursor),
        (
            |c| c.prod_flags = ProdFlags::FAILOVER,
            ProtoError::FailoverGap,
        ),
    ];
    for (spoil, error) in cases {
        let mut r = Rig::active();
        r.write(100);
        r.flush();
        let before = r.conn.positions();
        let mut bad = Cdc {
            seq: 1,
            token: AlertToken(7),
            ..Cdc::default()
        };
        spoil(&mut bad);
        assert_eq!(r.conn.on_cdc(&bad, T0), Err(error));
        assert_eq!(r.conn.positions(), before);
        let a = r.conn.fail();
        assert!(r.note(a).has(Actions::ERR_ABORTED | Actions::TX_DUE));
        assert_eq!(r.state(), ConnState::PeerAbortWait);
        assert!(!r.conn.rmbe_reusable());
        assert_eq!(r.flushed_flags(), A);
        assert_eq!(r.state(), ConnState::Closed);
        // Deaf from now on.
        assert_eq!(r.conn.on_cdc(&bad, T0), Ok(Actions::NONE));
        assert!(r.close().has(Actions::FREE));
    }
}

#[test]
fn stale_and_repeated_messages() {
    let mut r = Rig::active();
    r.peer_writes(100);
    let repeated = r.said;
    r.peer_writes(100);
    assert!(r.conn.on_cdc(&repeated, T0).unwrap().is_empty(), "older");
    let mut same = r.said;
    same.prod = repeated.prod;
    let _ = r.conn.on_cdc(&same, T0).unwrap();
    assert_eq!(r.conn.positions().received, 200, "a regression is ignored");
    let mut early = Cdc {
        seq: 0x8003,
        ..r.said
    };
    early.prod.count = 300;
    let _ = r.conn.on_cdc(&early, T0).unwrap();
    assert_eq!(r.conn.positions().received, 200, "behind by signed 16 bits");
    let seen = Cdc {
        seq: 2,
        prod_flags: ProdFlags::FAILOVER,
        ..Cdc::default()
    };
    let seen = Cdc {
        token: AlertToken(7),
        ..seen
    };
    assert_eq!(r.conn.on_cdc(&seen, T0), Ok(Actions::NONE));
}

#[test]
fn sequence_starts_at_one_and_cursors_follow() {
    let mut r = Rig::active();
    r.write(100);
    let tx = r.conn.take_tx(T0).unwrap();
    assert_eq!(
        (tx.notice.cdc().unwrap().seq, tx.notice.cdc().unwrap().token),
        (1, AlertToken(9))
    );
    assert_eq!(
        tx.notice.cdc().unwrap().prod,
        Cursor {
            wrap: 0,
            count: 100
        }
    );
    assert_eq!(tx.plan.len(), 100);
    assert_eq!(tx.notice.cdc().unwrap().prod_flags, ProdFlags::NONE);
    assert!(r.conn.take_tx(T0).is_none());
}

#[test]
fn who_has_room_is_not_woken() {
    let mut r = Rig::active();
    r.write(10);
    assert!(r.conn.send_room().is_ok());
    let tx = r.conn.take_tx(T0).unwrap();
    let a = r.conn.on_tx_done(tx.ticket, T0);
    assert!(!r.note(a).has(Actions::WAKE_WRITER));
}

#[test]
fn filling_the_window_says_write_blocked() {
    let mut r = Rig::active();
    r.write(RING);
    assert_eq!(r.conn.send_room(), Err(SendError::Full));
    let tx = r.conn.take_tx(T0).unwrap();
    assert_eq!(tx.notice.cdc().unwrap().prod, Cursor { wrap: 1, count: 0 });
    assert!(tx
        .notice
        .cdc()
        .unwrap()
        .prod_flags
        .has(ProdFlags::WRITE_BLOCKED));
    let a = r.conn.on_tx_done(tx.ticket, T0);
    assert!(r.note(a).has(Actions::WAKE_WRITER));
    // The send ring is free, the peer's is full: data waits.
    r.write(10);
    assert!(!r.conn.wants_tx());
    assert!(r.peer_reads_all().has(Actions::TX_DUE));
    assert_eq!(r.flush().unwrap().prod, Cursor { wrap: 1, count: 10 });
}

/// Where both ends keep TCP bytes are kept until the peer's software says that it has them: it is asked once, as soon as
/// they fill the ring, and its program need not read.
#[test]
fn what_the_peer_may_not_have_seen_is_kept() {
    let mut r = Rig::active();
    r.conn.begins_with(0);
    let mut asked = Vec::new();
    for _ in 0..4 {
        r.write(RING / 4);
        let tx = r.conn.take_tx(T0).unwrap();
        let flags = tx.notice.cdc().unwrap().prod_flags;
        asked.push(flags.has(ProdFlags::UPDATE_REQUESTED));
        let a = r.conn.on_tx_done(tx.ticket, T0);
        r.note(a);
    }
    assert_eq!(asked, [false, false, false, true]);
    assert_eq!(r.conn.positions().completed, u64::from(RING));
    assert_eq!(r.conn.send_room(), Err(SendError::Full));
    let record = |received| Record {
        received,
        written: 0,
        orderly: false,
    };
    let all = u64::from(RING);
    assert_eq!(r.conn.judge_record(&record(0)), Ok(0..all));
    // The next message does not ask again.
    let _ = r.conn.tell_read();
    let tx = r.conn.take_tx(T0).unwrap();
    let flags = tx.notice.cdc().unwrap().prod_flags;
    assert!(!flags.has(ProdFlags::UPDATE_REQUESTED));
    // That the peer has less, and more than it can have.
    r.said.unread = 64;
    assert!(!r.peer(StateFlags::NONE).has(Actions::WAKE_WRITER));
    assert_eq!(r.conn.send_room(), Ok(64));
    assert_eq!(r.conn.judge_record(&record(63)), Err(ProtoError::Record));
    assert_eq!(r.conn.judge_record(&record(64)), Ok(64..all));
    r.said.unread = u32::MAX;
    let a = r.conn.on_tx_done(tx.ticket, T0);
    r.note(a);
    r.write(64);
    assert_eq!(r.conn.send_room(), Err(SendError::Full));
    assert!(r.peer(StateFlags::NONE).has(Actions::WAKE_WRITER));
    assert_eq!(r.conn.send_room(), Ok(RING - 64));
    // It says less than before.
    r.said.unread = 0;
    r.peer(StateFlags::NONE);
    assert_eq!(r.conn.send_room(), Ok(RING - 64));
}

/// Nothing is asked that brings no news: a peer that has all that was sent, and no room, is asked when there is room.
#[test]
fn a_peer_without_room_is_asked_when_it_has_some() {
    let mut r = Rig::init();
    r.conn.set_peer(Peer {
        token: AlertToken(9),
        ring: RingSize::new(2 * RING).unwrap(),
        place: Place::default(),
        immediate: false,
        moves: false,
    });
    r.conn.expose();
    r.conn.establish(T0).unwrap();
    r.conn.begins_with(0);
    let asks = |r: &mut Rig| {
        let tx = r.conn.take_tx(T0).unwrap();
        let a = r.conn.on_tx_done(tx.ticket, T0);
        r.note(a);
        let flags = tx.notice.cdc().unwrap().prod_flags;
        flags.has(ProdFlags::UPDATE_REQUESTED)
    };
    for full in 1..=2 {
        r.write(RING);
        assert!(asks(&mut r));
        assert_eq!(r.conn.send_room(), Err(SendError::Full));
        r.said.unread = full * RING;
        assert!(r.peer(StateFlags::NONE).has(Actions::WAKE_WRITER));
    }
    r.write(RING);
    while r.conn.wants_tx() {
        assert!(!asks(&mut r), "what for?");
        r.peer(StateFlags::NONE);
    }
    assert_eq!(r.conn.send_room(), Err(SendError::Full));
    // The program reads everything at once, and is busy then.
    r.said.unread = 0;
    r.said.cons = Cursor::at(u64::from(2 * RING), RingSize::new(2 * RING).unwrap());
    r.peer(StateFlags::NONE);
    assert!(asks(&mut r));
    assert_eq!(r.conn.send_room(), Err(SendError::Full));
    r.said.unread = RING;
    assert!(r.peer(StateFlags::NONE).has(Actions::WAKE_WRITER));
    assert_eq!(r.conn.send_room(), Ok(RING));
}

/// An end that goes with the last bytes asks whether the peer has it.
#[test]
fn an_end_with_bytes_asks() {
    let mut r = Rig::active();
    r.conn.begins_with(0);
    r.write(100);
    let a = r.conn.shutdown_write(T0);
    r.note(a);
    let tx = r.conn.take_tx(T0).unwrap();
    let cdc = tx.notice.cdc().unwrap();
    assert!(cdc.state_flags.has(StateFlags::DONE_WRITING));
    assert!(cdc.prod_flags.has(ProdFlags::UPDATE_REQUESTED));
}

/// A silent ring is given back when the peer has said that it has everything, for which it is asked.
#[test]
fn a_silent_ring_is_kept_until_the_peer_has_seen_all() {
    let mut r = Rig::active();
    r.conn.begins_with(0);
    assert!(r.conn.ask_for_seen().is_empty());
    r.write(100);
    assert!(r.conn.ask_for_seen().is_empty(), "it has not arrived");
    let tx = r.conn.take_tx(T0).unwrap();
    let a = r.conn.on_tx_done(tx.ticket, T0);
    r.note(a);
    assert_eq!(r.conn.send_ring_unused(), None);
    assert!(r.conn.ask_for_seen().has(Actions::TX_DUE));
    assert!(r.conn.ask_for_seen().is_empty(), "once");
    let tx = r.conn.take_tx(T0).unwrap();
    let flags = tx.notice.cdc().unwrap().prod_flags;
    assert!(flags.has(ProdFlags::UPDATE_REQUESTED));
    let a = r.conn.on_tx_done(tx.ticket, T0);
    r.note(a);
    r.peer_reads_all();
    assert_eq!(r.conn.send_ring_unused(), Some(100));
}

/// A receiver that is asked says what it has, whether its program reads or not.
#[test]
fn who_is_asked_says_what_it_has() {
    let mut r = Rig::active();
    r.conn.begins_with(0);
    r.peer_writes(1000);
    assert!(!r.conn.wants_tx());
    r.said.prod_flags = ProdFlags::UPDATE_REQUESTED;
    assert!(r.peer(StateFlags::NONE).has(Actions::TX_DUE));
    let said = r.flush().unwrap();
    assert_eq!((said.cons, said.unread), (Cursor::default(), 1000));
}

#[test]
fn writing_more_than_there_is_room_is_misuse() {
    let mut r = Rig::active();
    assert_eq!(
        r.conn.written(RING + 1, SendHint::default(), T0),
        Err(Misuse)
    );
    assert_eq!(r.conn.read_done(1), Err(Misuse));
    assert_eq!(r.conn.positions(), Positions::default());
}

#[test]
fn autocork_waits_for_the_outstanding_message() {
    let mut r = Rig::active();
    assert!(r.write(10).has(Actions::TX_DUE));
    let first = r.conn.take_tx(T0).unwrap();
    // Nobody would tell of its end in time.
    assert!(!first.signaled);
    assert!(r.write(10).has(Actions::TX_DUE));
    let second = r.conn.take_tx(T0).unwrap();
    assert!(second.signaled, "a stream");
    assert!(!r.write(10).has(Actions::TX_DUE));
    assert!(!r.write(10).has(Actions::TX_DUE));
    assert!(r.conn.awaits_completion());
    let a = r.conn.on_tx_done(first.ticket, T0);
    assert!(!r.note(a).has(Actions::TX_DUE));
    let a = r.conn.on_tx_done(second.ticket, T0);
    assert!(r.note(a).has(Actions::TX_DUE));
    assert_eq!(r.conn.take_tx(T0).unwrap().plan.len(), 20);
    // Beyond half the ring nothing is held back.
    assert!(r.write(RING / 2 + 1).has(Actions::TX_DUE));
    // Turned off.
    let mut r = Rig::active();
    r.conn.set_autocork(0);
    r.write(10);
    let _ = r.conn.take_tx(T0).unwrap();
    assert!(r.write(10).has(Actions::TX_DUE));
}

/// The end of a message is wanted where the program streams, where the ring gets full, and where something waits for it;
/// not where an answer comes before the next one.
#[test]
fn ends_are_told_of_where_they_are_wanted() {
    let mut r = Rig::active();
    for _ in 0..3 {
        r.write(10);
        let tx = r.conn.take_tx(T0).unwrap();
        assert!(!tx.signaled, "the answer comes first");
        let _ = r.conn.on_tx_done(tx.ticket, T0);
        r.peer_writes(10);
        let _ = r.conn.read_done(10).unwrap();
    }
    r.write(10);
    r.flush();
    r.write(10);
    assert!(r.conn.take_tx(T0).unwrap().signaled, "two in a row");

    let mut r = Rig::active();
    r.write(RING / 2 + 1);
    assert!(r.conn.take_tx(T0).unwrap().signaled, "half of the ring");

    let mut r = Rig::active();
    r.write(10);
    r.close();
    assert!(r.conn.take_tx(T0).unwrap().signaled, "the end waits");
}

#[test]
fn a_message_in_between_takes_held_bytes_along() {
    let mut r = Rig::active();
    r.write(10);
    r.flush();
    assert!(r.write(10).has(Actions::TX_DUE));
    let first = r.conn.take_tx(T0).unwrap();
    assert!(!r.write(10).has(Actions::TX_DUE));
    r.peer_writes(RING);
    let a = r.conn.read_done(RING).unwrap();
    assert!(r.note(a).has(Actions::TX_DUE), "there is room again");
    let second = r.conn.take_tx(T0).unwrap();
    assert_eq!(second.plan.len(), 10);
    // What the program itself holds back stays.
    let more = SendHint {
        more: true,
        ..SendHint::default()
    };
    let _ = r.conn.written(10, more, T0).unwrap();
    r.peer_writes(RING);
    let _ = r.conn.read_done(RING).unwrap();
    let third = r.conn.take_tx(T0).unwrap();
    assert_eq!(third.plan.len(), 0);
    for tx in [first, second, third] {
        let a = r.conn.on_tx_done(tx.ticket, T0);
        r.note(a);
    }
}

#[test]
fn more_is_held_until_time_push_or_full() {
    let more = SendHint {
        more: true,
        ..SendHint::default()
    };
    let mut r = Rig::active();
    let a = r.conn.written(10, more, T0).unwrap();
    assert!(a.has(Actions::TIMER) && !a.has(Actions::TX_DUE));
    assert_eq!(r.conn.next_deadline(), Some(T0.after(CORK_TIME)));
    let _ = r.conn.written(10, more, T0.after(Span(5))).unwrap();
    assert_eq!(r.conn.next_deadline(), Some(T0.after(CORK_TIME)));
    assert!(r.conn.on_timer(T0).is_empty());
    assert!(r.conn.on_timer(T0.after(CORK_TIME)).has(Actions::TX_DUE));
    assert_eq!(r.conn.next_deadline(), None);
    r.flush();
    let _ = r.conn.written(10, more, T0).unwrap();
    assert!(r.conn.push().has(Actions::TX_DUE));
    r.flush();
    let a = r.conn.written(RING, more, T0).unwrap();
    assert!(a.has(Actions::TX_DUE), "full");
    let mut r = Rig::active();
    let _ = r.conn.written(10, more, T0).unwrap();
    r.close();
    assert_eq!(r.flush().unwrap().state_flags, C, "close pushes");
}

#[test]
fn consumer_updates_follow_the_rule() {
    // 64 KiB: limit 6553, and only when the sender sees half the ring or less free.
    let ring = RingSize::new(65536).unwrap();
    let mut conn = Conn::new(Params {
        token: AlertToken(7),
        recv: ring,
        send: ring,
        recv_most: ring,
        send_most: ring,
        autocork: 0,
        drain_idle: DRAIN_IDLE,
    });
    conn.set_peer(Peer {
        token: AlertToken(9),
        ring,
        place: Place::default(),
        immediate: false,
        moves: false,
    });
    let _ = conn.establish(T0).unwrap();
    let mut said = Cdc {
        token: AlertToken(7),
        ..Cdc::default()
    };
    let mut say = |conn: &mut Conn, pos: u64, flags: ProdFlags| {
        said.seq += 1;
        said.prod = Cursor::at(pos, ring);
        said.prod_flags = flags;
        conn.on_cdc(&said, T0).unwrap()
    };
    let _ = say(&mut conn, 32767, ProdFlags::NONE);
    assert!(
        conn.read_done(30000).unwrap().is_empty(),
        "more than half is free"
    );
    let _ = say(&mut conn, 32768, ProdFlags::NONE);
    assert!(conn.wants_tx(), "half is free and 30000 are unconfirmed");
    let tx = conn.take_tx(T0).unwrap();
    assert_eq!(
        tx.notice.cdc().unwrap().cons,
        Cursor {
            wrap: 0,
            count: 30000
        }
    );
    assert!(tx.plan.is_empty());
    let _ = say(&mut conn, 90000, ProdFlags::WRITE_BLOCKED);
    assert!(!conn.read_done(6553).unwrap().has(Actions::TX_DUE));
    assert!(conn.read_done(1).unwrap().has(Actions::TX_DUE));
    let _ = conn.take_tx(T0).unwrap();
    let _ = say(&mut conn, 90000, ProdFlags::UPDATE_REQUESTED);
    assert!(conn.wants_tx(), "asked for");
    let _ = conn.take_tx(T0).unwrap();
    // Reading everything while the peer is blocked always answers.
    let left = 90000 - 36554;
    let _ = say(&mut conn, 90000, ProdFlags::WRITE_BLOCKED);
    let _ = conn.read_done(left - 100).unwrap();
    let _ = conn.take_tx(T0).unwrap();
    assert!(conn.read_done(100).unwrap().has(Actions::TX_DUE));
    assert!(conn.is_consistent());
}

#[test]
fn updates_ride_on_data() {
    let mut r = Rig::active();
    r.peer_writes(50);
    assert!(r.conn.read_done(50).unwrap().is_empty());
    r.write(1);
    let c = r.flush().unwrap();
    assert_eq!(c.cons, Cursor { wrap: 0, count: 50 });
    assert_eq!(r.conn.positions().announced, 50);
}

#[test]
fn conn_stays_small() {
    let (conn, tx) = (core::mem::size_of::<Conn>(), core::mem::size_of::<Tx>());
    assert!(conn <= 384, "a connection has {conn} bytes");
    assert!(tx <= 128, "its sending side has {tx} bytes");
}

/// A window that is larger than a message may be is filled by several, one after the other.
#[test]
fn a_message_has_a_longest_length() {
    const RING: u32 = 1 << 20;
    for immediate in [false, true] {
        let ring = RingSize::new(RING).unwrap();
        let mut conn = Conn::new(Params {
            token: AlertToken(7),
            recv: ring,
            send: ring,
            recv_most: ring,
            send_most: ring,
            autocork: 0,
            drain_idle: Span::from_secs(60),
        });
        conn.set_peer(Peer {
            token: AlertToken(8),
            ring,
            place: Place::default(),
            immediate,
            moves: false,
        });
        conn.expose();
        conn.establish(T0).unwrap();
        let mut sent = 0;
        for len in [RING, RING - 1] {
            conn.written(len, SendHint::default(), T0).unwrap();
            let end = sent + len;
            while conn.wants_tx() {
                let tx = conn.take_tx(T0).unwrap();
                assert!(tx.plan.len() <= LONGEST_TX, "{}", tx.plan.len());
                sent += tx.plan.len();
                conn.on_tx_done(tx.ticket, T0);
            }
            assert_eq!(sent, end);
            let cons = Cursor::at(u64::from(sent), ring);
            let seq = conn.positions().sent as u16;
            let cdc = Cdc {
                seq,
                token: AlertToken(7),
                cons,
                ..Cdc::default()
            };
            conn.on_cdc(&cdc, T0).unwrap();
        }
    }
}
