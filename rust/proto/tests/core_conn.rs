// SPDX-License-Identifier: GPL-2.0

//! The connection: one test per transition of the state table, and the rules of sending and
//! receiving one by one. The urgent byte is in `core_urgent.rs`, two connections talking to each
//! other in `core_pair.rs`.

#![allow(unused_must_use)] // what matters about the actions is asserted where it matters

mod conn_rig;

use conn_rig::*;

/// One test per cell of the table: start state, what happens, end state, flags that go out.
macro_rules! cells {
    ($($name:ident: $from:ident, $act:expr => $to:ident, $flags:expr;)*) => {$(
        #[test]
        fn $name() {
            let mut r = Rig::in_state(State::$from);
            let act: fn(&mut Rig) -> Actions = $act;
            let before = r.conn.flags().0 .1;
            act(&mut r);
            let at = r.state();
            let out = r.flushed_flags().without(before);
            assert_eq!(at, State::$to);
            assert_eq!(out, $flags);
            // Whatever happened, letting go and losing the link always ends it, exactly once.
            r.close();
            r.kill();
            while r.conn.state() != State::Closed {
                let a = r.conn.on_tx_done(Ticket::default(), T0);
                r.note(a);
            }
            let a = r.conn.on_tx_done(Ticket::default(), T0);
            r.note(a);
            assert_eq!(r.freed, 1);
        }
    )*};
}

const NO: StateFlags = StateFlags::NONE;

cells! {
    init_shutdown_write: Init, |r| r.shut_wr() => Init, NO;
    init_close: Init, |r| r.close() => Closed, NO;
    init_done: Init, |r| r.peer(D) => AppCloseWait1, NO;
    init_closed: Init, |r| r.peer(C) => AppCloseWait1, NO;
    init_abort: Init, |r| r.peer(A) => ProcessAbort, NO;
    init_killed: Init, |r| r.kill() => Init, NO;

    active_shutdown_write: Active, |r| r.shut_wr() => PeerCloseWait1, D;
    active_close: Active, |r| r.close() => PeerCloseWait1, C;
    active_shutdown_both: Active, |r| r.shut_both() => PeerCloseWait1, C;
    active_close_unread: Active, |r| { r.peer_writes(1); r.close() } => PeerCloseWait1, A;
    active_done: Active, |r| r.peer(D) => AppCloseWait1, NO;
    active_closed: Active, |r| r.peer(C) => AppCloseWait1, NO;
    active_abort: Active, |r| r.peer(A) => ProcessAbort, NO;
    active_killed: Active, |r| r.kill() => Closed, NO;
    active_killed_busy: Active, |r| {
        r.write(1);
        let _ = r.conn.take_tx(T0).unwrap();
        r.kill()
    } => PeerAbortWait, NO;

    pcw1_shutdown_write: PeerCloseWait1, |r| r.shut_wr() => PeerCloseWait1, NO;
    pcw1_close_after_done: PeerCloseWait1, |r| r.close() => PeerCloseWait1, C;
    pcw1_close_unread: PeerCloseWait1, |r| { r.peer_writes(5); r.close() } => PeerCloseWait1, A;
    pcw1_close_unread_when_shut_both: PeerCloseWait1, |r| {
        r.peer_writes(5);
        r.shut_both();
        assert_eq!(r.flushed_flags(), D.with(C));
        r.close()
    } => PeerCloseWait1, C.with(A);
    pcw1_abort_by_linger_when_shut_both: PeerCloseWait1, |r| {
        r.shut_both();
        assert_eq!(r.flushed_flags(), D.with(C));
        let a = r.conn.close(CloseMode::Abort, T0);
        r.note(a)
    } => PeerCloseWait1, C.with(A);
    pcw2_close_unread_when_shut_both: PeerCloseWait2, |r| {
        r.peer_writes(5);
        r.shut_both();
        r.close()
    } => PeerCloseWait2, C;
    pcw1_done: PeerCloseWait1, |r| r.peer(D) => PeerCloseWait2, NO;
    pcw1_closed: PeerCloseWait1, |r| r.peer(C) => AppFinCloseWait, NO;
    pcw1_closed_when_released: PeerCloseWait1, |r| { r.close(); r.flush(); r.peer(C) } => Closed, NO;
    pcw1_closed_when_shut_both: PeerCloseWait1, |r| { r.shut_both(); r.flush(); r.peer(C) }
        => AppFinCloseWait, NO;
    pcw1_done_and_closed_at_once: PeerCloseWait1, |r| r.peer(D.with(C)) => AppFinCloseWait, NO;
    pcw1_abort: PeerCloseWait1, |r| r.peer(A) => Closed, A;
    pcw1_abort_when_closed: PeerCloseWait1, |r| { r.close(); r.flush(); r.peer(A) } => Closed, NO;
    pcw1_killed: PeerCloseWait1, |r| r.kill() => Closed, NO;

    pcw2_close: PeerCloseWait2, |r| r.close() => PeerCloseWait2, C;
    pcw2_done: PeerCloseWait2, |r| r.peer(D) => PeerCloseWait2, NO;
    pcw2_closed: PeerCloseWait2, |r| r.peer(C) => AppFinCloseWait, NO;
    pcw2_closed_when_released: PeerCloseWait2, |r| { r.close(); r.flush(); r.peer(C) } => Closed, NO;
    pcw2_abort: PeerCloseWait2, |r| r.peer(A) => Closed, A;
    pcw2_abort_when_closed: PeerCloseWait2, |r| { r.close(); r.flush(); r.peer(A) } => Closed, NO;
    pcw2_killed: PeerCloseWait2, |r| r.kill() => Closed, NO;

    acw1_shutdown_write: AppCloseWait1, |r| r.shut_wr() => AppCloseWait2, D;
    acw1_close: AppCloseWait1, |r| r.close() => PeerFinCloseWait, C;
    acw1_close_after_peer_closed: AppCloseWait1, |r| { r.peer(C); r.close() } => Closed, C;
    acw1_done: AppCloseWait1, |r| r.peer(D) => AppCloseWait1, NO;
    acw1_closed: AppCloseWait1, |r| r.peer(C) => AppCloseWait1, NO;
    acw1_abort: AppCloseWait1, |r| r.peer(A) => ProcessAbort, NO;
    acw1_killed: AppCloseWait1, |r| r.kill() => Closed, NO;

    acw2_close: AppCloseWait2, |r| r.close() => PeerFinCloseWait, C;
    acw2_close_after_peer_closed: AppCloseWait2, |r| { r.peer(C); r.close() } => Closed, C;
    acw2_done: AppCloseWait2, |r| r.peer(D) => AppCloseWait2, NO;
    acw2_closed: AppCloseWait2, |r| r.peer(C) => AppCloseWait2, NO;
    // Unlike C, the peer is told, so that it does not wait for ever.
    acw2_abort: AppCloseWait2, |r| r.peer(A) => Closed, A;
    acw2_killed: AppCloseWait2, |r| r.kill() => Closed, NO;

    afcw_close_after_done: AppFinCloseWait, |r| r.close() => Closed, C;
    afcw_done: AppFinCloseWait, |r| r.peer(D) => AppFinCloseWait, NO;
    afcw_abort: AppFinCloseWait, |r| r.peer(A) => ProcessAbort, NO;
    afcw_killed: AppFinCloseWait, |r| r.kill() => Closed, NO;

    pfcw_close: PeerFinCloseWait, |r| r.close() => PeerFinCloseWait, NO;
    pfcw_done: PeerFinCloseWait, |r| r.peer(D) => PeerFinCloseWait, NO;
    pfcw_closed: PeerFinCloseWait, |r| r.peer(C) => Closed, NO;
    pfcw_abort: PeerFinCloseWait, |r| r.peer(A) => Closed, NO;
    pfcw_killed: PeerFinCloseWait, |r| r.kill() => Closed, NO;

    process_abort_close: ProcessAbort, |r| r.close() => Closed, A;
    process_abort_done: ProcessAbort, |r| r.peer(D) => ProcessAbort, NO;
    process_abort_killed: ProcessAbort, |r| r.kill() => Closed, NO;

    peer_abort_wait_close: PeerAbortWait, |r| r.close() => Closed, NO;
    peer_abort_wait_abort: PeerAbortWait, |r| r.peer(A) => PeerAbortWait, NO;
    peer_abort_wait_flushed: PeerAbortWait, |r| {
        let a = r.conn.on_tx_done(Ticket::default(), T0);
        r.note(a)
    } => Closed, NO;

    closed_close: Closed, |r| r.close() => Closed, NO;
    closed_killed: Closed, |r| r.kill() => Closed, NO;
}

#[test]
fn an_aborting_close_drops_what_was_held_back() {
    let more = SendHint {
        more: true,
        ..SendHint::default()
    };
    let mut r = Rig::active();
    r.write(3);
    r.flush();
    let a = r.conn.written(5, more, T0).unwrap();
    r.note(a);
    r.peer_writes(1);
    r.close();
    assert_eq!(r.flushed_flags(), A);
    assert_eq!(r.conn.positions().sent, 3);
}

/// The table itself, for the cells that no sequence of real events can reach.
#[test]
fn table_has_no_way_out_of_closed() {
    let facts = |n: u8| Facts {
        released: n & 1 != 0,
        close_sent: n & 2 != 0,
        close_received: n & 4 != 0,
    };
    for n in 0..8 {
        for e in [
            Event::Established,
            Event::LocalDone,
            Event::LocalClose,
            Event::PeerDone,
            Event::PeerClosed,
            Event::PeerAborted,
            Event::Killed,
            Event::Flushed,
        ] {
            assert_eq!(State::Closed.next(e, facts(n)), State::Closed);
        }
        let next = State::PeerAbortWait.next(Event::PeerAborted, facts(n));
        assert_eq!(next, State::Closed);
        let next = State::PeerAbortWait.next(Event::PeerClosed, facts(n));
        assert_eq!(next, State::PeerAbortWait);
    }
}

#[test]
fn state_numbers_are_those_of_diag() {
    let n = |s: State| s as u8;
    assert_eq!(
        (n(State::Active), n(State::Init), n(State::Closed)),
        (1, 2, 7)
    );
    assert_eq!(
        (n(State::PeerCloseWait1), n(State::PeerCloseWait2)),
        (20, 21)
    );
    assert_eq!((n(State::AppCloseWait1), n(State::AppCloseWait2)), (22, 23));
    assert_eq!(
        (n(State::AppFinCloseWait), n(State::PeerFinCloseWait)),
        (24, 25)
    );
    assert_eq!((n(State::PeerAbortWait), n(State::ProcessAbort)), (26, 27));
}

#[test]
fn errors_that_users_see() {
    let mut r = Rig::active();
    assert!(r.peer(A).has(Actions::ERR_RESET | Actions::WAKE_READER));
    assert_eq!(r.conn.recv_state(), RecvState::Reset);
    assert_eq!(r.conn.send_room(), Err(SendError::Reset));

    let mut r = Rig::active();
    assert!(r.kill().has(Actions::ERR_ABORTED | Actions::TCP_ABORT));
    assert_eq!(r.conn.recv_state(), RecvState::Aborted);
    assert_eq!(r.conn.send_room(), Err(SendError::Aborted));
    assert!(!r.kill().has(Actions::ERR_ABORTED), "reported once");

    let mut r = Rig::active();
    r.peer(C);
    assert_eq!(r.conn.recv_state(), RecvState::Eof);
    assert_eq!(r.conn.send_room(), Err(SendError::Reset));

    let mut r = Rig::active();
    r.shut_wr();
    assert_eq!(r.conn.send_room(), Err(SendError::Shutdown));
    assert_eq!(r.conn.recv_state(), RecvState::Empty);

    let mut r = Rig::init();
    assert_eq!(r.conn.send_room(), Err(SendError::NotConnected));
    assert_eq!(r.conn.recv_state(), RecvState::NotConnected);
}

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
    assert_eq!(r.state(), State::AppCloseWait1);
    r.establish();
    assert_eq!(r.state(), State::AppCloseWait1);
    assert_eq!(r.conn.recv_state(), RecvState::Data(100));
    assert!(r.conn.send_room().is_ok());
}

#[test]
fn failed_messages_let_a_killed_connection_end() {
    // In whichever order failure, kill and close come.
    for order in 0..6 {
        let mut r = Rig::active();
        r.write(100);
        let _ = r.conn.take_tx(T0).unwrap();
        r.write(100);
        let steps: [fn(&mut Rig); 3] = [
            |r| {
                let a = r.conn.on_tx_failed();
                r.note(a);
            },
            |r| {
                r.kill();
            },
            |r| {
                r.close();
            },
        ];
        let (first, second) = (order / 2, (order / 2 + 1 + order % 2) % 3);
        for i in [first, second, 3 - first - second] {
            assert_eq!(r.freed, 0);
            steps[i](&mut r);
            assert!(!r.conn.wants_tx() || i == 2);
        }
        assert_eq!((r.state(), r.freed), (State::Closed, 1), "order {order}");
        assert_eq!(r.conn.positions().completed, 0);
    }
}

#[test]
fn establish_needs_a_peer_and_a_link() {
    let mut r = Rig::init();
    assert_eq!(r.conn.establish(T0), Err(Misuse));
    let mut r = Rig::init();
    r.conn.set_peer(Peer {
        token: AlertToken(1),
        ring: RingSize::MIN_WIRE,
        immediate: false,
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
        assert_eq!(r.state(), State::PeerAbortWait);
        assert!(!r.conn.rmbe_reusable());
        assert_eq!(r.flushed_flags(), A);
        assert_eq!(r.state(), State::Closed);
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
    assert!(!r.write(10).has(Actions::TX_DUE));
    assert!(!r.write(10).has(Actions::TX_DUE));
    let a = r.conn.on_tx_done(first.ticket, T0);
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

#[test]
fn a_message_in_between_takes_held_bytes_along() {
    let mut r = Rig::active();
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
        autocork: 0,
        drain_idle: DRAIN_IDLE,
    });
    conn.set_peer(Peer {
        token: AlertToken(9),
        ring,
        immediate: false,
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
fn close_drains_in_the_background() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(100);
    let a = r.close();
    assert!(a.has(Actions::TIMER));
    assert_eq!(r.state(), State::Active);
    assert!(r.conn.is_draining());
    assert_eq!(
        r.conn.next_deadline(),
        Some(T0.after(Span(DRAIN_IDLE.0 / 2)))
    );
    assert!(r.peer_reads_all().has(Actions::TX_DUE));
    let tx = r.conn.take_tx(T0).unwrap();
    // The last bytes and the end are one message.
    assert_eq!(tx.plan.len(), 100);
    assert_eq!(tx.notice.cdc().unwrap().state_flags, C);
    assert!(tx.actions.has(Actions::STATE));
    assert_eq!(r.state(), State::PeerCloseWait1);
    assert!(r.peer(C).is_empty() || r.freed == 0);
    let a = r.conn.on_tx_done(tx.ticket, T0);
    assert!(r.note(a).has(Actions::FREE));
    assert!(r.conn.rmbe_reusable());
}

#[test]
fn drain_without_progress_aborts() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(100);
    r.close();
    let half = T0.after(Span(DRAIN_IDLE.0 / 2));
    let a = r.conn.on_timer(half);
    assert!(a.has(Actions::TX_DUE));
    let probe = r.flush().unwrap();
    assert!(probe.prod_flags.has(ProdFlags::UPDATE_REQUESTED));
    assert_eq!(probe.state_flags, StateFlags::NONE);
    assert!(r.conn.on_timer(half).is_empty());
    let a = r.conn.on_timer(T0.after(DRAIN_IDLE));
    assert!(a.has(Actions::TX_DUE));
    assert_eq!(r.flushed_flags(), A);
    assert_eq!(r.state(), State::PeerCloseWait1);
    assert!(!r.conn.rmbe_reusable());
    r.peer(A);
    assert_eq!((r.state(), r.freed), (State::Closed, 1));
    assert!(r.conn.rmbe_reusable());
}

/// A peer that takes a byte before each deadline keeps a closed connection for a while, not for ever.
#[test]
fn drain_by_the_byte_aborts() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(100);
    r.close();
    let left = u64::from(RING) + 100;
    let limit = T0
        .after(DRAIN_IDLE)
        .after(Span::from_secs(left.div_ceil(DRAIN_RATE)));
    let mut now = T0;
    let mut lost = false;
    for step in 1..200u64 {
        now = T0.after(Span::from_secs(29 * step));
        r.peer_reads(1, now);
        let a = r.conn.on_timer(now);
        lost |= a.has(Actions::DRAIN_LOST);
        r.flush_at(now);
        if lost {
            break;
        }
    }
    assert!(
        lost && now >= limit && now < limit.after(Span::from_secs(29)),
        "{now:?}"
    );
    assert_eq!(r.state(), State::PeerCloseWait1);
    // Nor does it keep it by further cursors after that.
    let mut freed = false;
    for step in 1..200u64 {
        let later = now.after(Span::from_secs(29 * step));
        r.peer_reads(1, later);
        let a = r.conn.on_timer(later);
        if r.note(a).has(Actions::FREE) {
            freed = true;
            assert!(later < limit.after(ANSWER_TIME).after(Span::from_secs(29)));
            break;
        }
        r.flush_at(later);
    }
    assert!(freed);
}

#[test]
fn data_for_a_program_that_has_gone_aborts() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(100);
    r.close();
    assert!(r.peer_writes(1).has(Actions::TX_DUE));
    assert_eq!(r.flushed_flags(), A);
}

#[test]
fn linger_zero_aborts_at_once() {
    let mut r = Rig::active();
    r.write(100);
    let a = r.conn.close(CloseMode::Abort, T0);
    r.note(a);
    let tx = r.conn.take_tx(T0).unwrap();
    assert_eq!(
        (tx.notice.cdc().unwrap().state_flags, tx.plan.len()),
        (A, 0)
    );
    assert_eq!(r.state(), State::PeerCloseWait1);
}

#[test]
fn a_peer_that_does_not_close_is_forgotten() {
    let mut r = Rig::active();
    r.write(100);
    r.flush();
    r.close();
    assert_eq!(r.flushed_flags(), C);
    assert_eq!(r.state(), State::PeerCloseWait1);
    let end = T0.after(ANSWER_TIME);
    assert_eq!(r.conn.next_deadline(), Some(end));
    assert!(r
        .conn
        .on_timer(T0.after(Span(ANSWER_TIME.0 - 1)))
        .is_empty());
    let a = r.conn.on_timer(end);
    assert!(r.note(a).has(Actions::FREE));
    assert_eq!((r.state(), r.freed), (State::Closed, 1));
    // The peer may still write there.
    assert!(!r.conn.rmbe_reusable());
    assert_eq!(r.conn.next_deadline(), None);
    assert!(r.flush().is_none());
}

#[test]
fn a_program_that_only_shuts_down_waits_for_the_peer() {
    let mut r = Rig::active();
    let _ = r.conn.shutdown_both(T0);
    assert_eq!(r.flushed_flags(), C);
    assert_eq!(r.conn.next_deadline(), None);
}

#[test]
fn ways_that_are_shut() {
    let mut r = Rig::active();
    assert_eq!(r.conn.shut_ways(), 0);
    r.shut_wr();
    assert_eq!(r.conn.shut_ways(), 2);
    r.peer(D);
    assert_eq!(r.conn.shut_ways(), 3);
    assert!(r.state().may_close());
    let _ = r.conn.shutdown_both(T0);
    r.peer(C);
    // The program still has its socket.
    assert_eq!(r.state(), State::AppFinCloseWait);
    let _ = r.conn.shutdown_both(T0);
    assert_eq!((r.state(), r.conn.shut_ways()), (State::Closed, 3));
    assert!(!r.state().may_close());

    let mut r = Rig::active();
    r.peer(D);
    assert_eq!(r.conn.shut_ways(), 1);
    let mut r = Rig::active();
    let _ = r.conn.kill();
    assert_eq!(r.conn.shut_ways(), 3);
}

#[test]
fn shutdown_drains_and_then_close_upgrades() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(1);
    r.shut_wr();
    assert_eq!((r.state(), r.conn.next_deadline()), (State::Active, None));
    r.close();
    r.peer_reads_all();
    assert_eq!(r.flushed_flags(), C);
    assert_eq!(r.state(), State::PeerCloseWait1);
}

#[test]
fn peer_closing_ends_the_drain() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(1);
    r.shut_wr();
    r.peer(C);
    assert_eq!(r.state(), State::AppCloseWait2);
    let tx = r.conn.take_tx(T0).unwrap();
    assert_eq!(
        (tx.notice.cdc().unwrap().state_flags, tx.plan.len()),
        (D, 0)
    );
    assert!(!r.conn.wants_tx(), "nothing is written to a closed peer");
}

#[test]
fn nothing_is_written_after_the_peer_closed() {
    let more = SendHint {
        more: true,
        ..SendHint::default()
    };
    let mut r = Rig::active();
    let _ = r.conn.written(100, more, T0).unwrap();
    r.peer(C);
    // The window is open, but the ring behind it may soon be somebody else's.
    assert!(!r.conn.push().has(Actions::TX_DUE));
    assert!(r.conn.take_tx(T0).is_none());
    assert_eq!(r.conn.out_queue_unsent(), 100);
}

#[test]
fn dead_tcp_is_noticed_unless_ending() {
    let mut r = Rig::active();
    let a = r.conn.on_tcp_dead();
    assert!(r.note(a).has(Actions::ERR_RESET | Actions::TX_DUE));
    assert_eq!(r.flushed_flags(), A);
    assert_eq!(r.state(), State::Closed);
    let mut r = Rig::active();
    r.peer(C);
    assert!(r.conn.on_tcp_dead().is_empty());
    assert_eq!(r.state(), State::AppCloseWait1);
}

#[test]
fn unexposed_ring_is_reusable() {
    let mut r = Rig::init();
    assert!(r.conn.rmbe_reusable());
    r.conn.expose();
    assert!(!r.conn.rmbe_reusable());
    r.conn.peer_declined();
    assert!(r.conn.rmbe_reusable());
}

#[test]
fn conn_stays_small() {
    assert!(core::mem::size_of::<Conn>() <= 272);
    assert!(core::mem::size_of::<Tx>() <= 128);
}
