// SPDX-License-Identifier: GPL-2.0

//! The peer's TCP ends and its messages do not say so: the end was lost, or is still on its way.

use smc_proto::conn::*;
use smc_proto::cursor::{Cursor, RingSize};
use smc_proto::time::{Instant, Span};
use smc_proto::wire::cdc::{Cdc, ProdFlags, StateFlags};
use smc_proto::wire::ids::AlertToken;

const T0: Instant = Instant(1_000_000_000);

fn active() -> Conn {
    let ring = RingSize::MIN_WIRE;
    let mut conn = Conn::new(Params {
        token: AlertToken(7),
        recv: ring,
        send: ring,
        recv_most: ring,
        send_most: ring,
        autocork: 65536,
        drain_idle: DRAIN_IDLE,
    });
    conn.set_peer(Peer {
        token: AlertToken(9),
        ring,
        place: Place::default(),
        immediate: false,
        moves: false,
    });
    conn.expose();
    let _ = conn.establish(T0).unwrap();
    conn
}

/// The peer's message number `seq`, with the number of bytes written in all, and flags.
fn says(conn: &mut Conn, seq: u16, bytes: u64, flags: StateFlags, now: Instant) -> Actions {
    let cdc = Cdc {
        seq,
        token: AlertToken(7),
        prod: Cursor::at(bytes, RingSize::MIN_WIRE),
        state_flags: flags,
        ..Cdc::default()
    };
    conn.on_cdc(&cdc, now).unwrap()
}

fn later(seconds: u64) -> Instant {
    T0.after(Span::from_secs(seconds))
}

#[test]
fn silence_after_a_fin_is_a_reset() {
    let mut conn = active();
    assert!(conn.on_tcp_fin(T0).has(Actions::TIMER));
    let deadline = conn.next_deadline().unwrap();
    assert_eq!(deadline, T0.after(FIN_PATIENCE));
    // Said again by each wake-up of the socket; the first one counts.
    assert!(conn.on_tcp_fin(later(5)).is_empty());
    assert!(conn.on_timer(later(9)).is_empty());
    let a = conn.on_timer(deadline);
    assert!(a.has(Actions::ERR_RESET | Actions::TX_DUE | Actions::WAKE_READER));
    let tx = conn.take_tx(deadline).unwrap();
    assert!(tx.notice.cdc().unwrap().state_flags.has(StateFlags::ABORT));
    let _ = conn.on_tx_done(tx.ticket, deadline);
    assert_eq!(
        (conn.state(), conn.next_deadline()),
        (ConnState::Closed, None)
    );
}

/// The peer had more to send than our ring holds, and the program makes room just before the
/// patience is over: what follows has some of its own.
#[test]
fn room_just_before_the_end_of_patience() {
    let mut conn = active();
    let cdc = Cdc {
        seq: 1,
        token: AlertToken(7),
        prod: Cursor::at(RingSize::MIN_WIRE.len(), RingSize::MIN_WIRE),
        prod_flags: ProdFlags::WRITE_BLOCKED,
        ..Cdc::default()
    };
    let _ = conn.on_cdc(&cdc, T0).unwrap();
    let _ = conn.on_tcp_fin(T0);
    while let RecvState::Data(there) = conn.recv_state() {
        let _ = conn.read_done(there).unwrap();
    }
    let first = T0.after(FIN_PATIENCE);
    assert!(!conn.on_timer(first).has(Actions::ERR_RESET));
    let second = first.after(ROOM_PATIENCE);
    assert_eq!(conn.next_deadline(), Some(second));
    assert!(conn.on_timer(second).has(Actions::ERR_RESET));
}

#[test]
fn a_fin_before_the_end_is_no_reset() {
    for end in [
        StateFlags::CLOSED,
        StateFlags::DONE_WRITING,
        StateFlags::ABORT,
    ] {
        for first in [true, false] {
            let mut conn = active();
            if first {
                let _ = conn.on_tcp_fin(T0);
            }
            let _ = says(&mut conn, 1, 0, end, later(1));
            let state = conn.state();
            let _ = conn.on_tcp_fin(later(1));
            assert!(!conn.on_timer(later(100)).has(Actions::ERR_RESET));
            assert_eq!((conn.state(), conn.next_deadline()), (state, None));
        }
    }
}

#[test]
fn after_a_fin_the_end_of_tcp_says_nothing_new() {
    let mut conn = active();
    let _ = conn.on_tcp_fin(T0);
    let _ = says(&mut conn, 1, 100, StateFlags::NONE, later(6));
    assert!(conn.awaits_end());
    // The peer's TCP forgets the connection while its bytes are still being read.
    assert!(conn.on_tcp_dead().is_empty());
    let _ = conn.read_done(100).unwrap();
    let _ = says(&mut conn, 2, 150, StateFlags::CLOSED, later(7));
    assert!(!conn.awaits_end());
    let _ = conn.read_done(50).unwrap();
    assert_eq!(conn.recv_state(), RecvState::Eof);

    // Without one it is a reset, and so is what comes after the peer has been silent.
    assert!(active().on_tcp_dead().has(Actions::ERR_RESET));
    let mut conn = active();
    let _ = conn.on_tcp_fin(T0);
    assert!(conn.on_tcp_dead().is_empty());
    assert!(conn.on_timer(later(10)).has(Actions::ERR_RESET));
}

#[test]
fn a_peer_that_closed_without_room_may_still_write() {
    for (flags, reusable) in [(ProdFlags::NONE, true), (ProdFlags::WRITE_BLOCKED, false)] {
        let mut conn = active();
        let cdc = Cdc {
            seq: 1,
            token: AlertToken(7),
            prod: Cursor::at(64, RingSize::MIN_WIRE),
            prod_flags: flags,
            state_flags: StateFlags::CLOSED,
            ..Cdc::default()
        };
        let _ = conn.on_cdc(&cdc, T0).unwrap();
        assert_eq!(conn.rmbe_reusable(), reusable);
        // Nor does it help to read what has come.
        let _ = conn.read_done(64).unwrap();
        assert_eq!(conn.rmbe_reusable(), reusable);
        // An abort may cross with room that we have told of.
        let abort = Cdc {
            seq: 2,
            state_flags: StateFlags::ABORT,
            ..cdc
        };
        let _ = conn.on_cdc(&abort, T0).unwrap();
        assert_eq!(conn.rmbe_reusable(), reusable);
        let _ = says(&mut conn, 3, 64, StateFlags::ABORT, T0);
        assert!(conn.rmbe_reusable());
    }
}

/// A peer that has filled the ring, has more, and ends.
fn ended_without_room(end: StateFlags) -> Conn {
    let mut conn = active();
    let ring = RingSize::MIN_WIRE;
    for (seq, state_flags) in [(1, StateFlags::NONE), (2, end)] {
        let cdc = Cdc {
            seq,
            token: AlertToken(7),
            prod: Cursor::at(ring.len(), ring),
            prod_flags: ProdFlags::WRITE_BLOCKED,
            state_flags,
            ..Cdc::default()
        };
        let _ = conn.on_cdc(&cdc, T0).unwrap();
    }
    assert_eq!(conn.recv_state(), RecvState::Data(ring.bytes()));
    conn
}

#[test]
fn a_peer_that_ended_without_room_is_heard_out() {
    let ring = RingSize::MIN_WIRE;
    for end in [StateFlags::CLOSED, StateFlags::DONE_WRITING] {
        let mut conn = ended_without_room(end);
        let a = conn.read_done(ring.bytes()).unwrap();
        // It learns of the room, and the program does not take it for the end.
        assert!(a.has(Actions::TX_DUE));
        assert_eq!(conn.next_deadline(), None);
        let tx = conn.take_tx(T0).unwrap();
        assert!(tx.actions.has(Actions::TIMER));
        assert_eq!(tx.notice.cdc().unwrap().cons, Cursor::at(ring.len(), ring));
        let _ = conn.on_tx_done(tx.ticket, T0);
        assert_eq!(conn.recv_state(), RecvState::Empty);
        assert!(conn.directions().can_receive);
        assert!(conn.on_timer(T0).has(Actions::TIMER));
        let a = says(&mut conn, 3, ring.len() + 9, end, T0);
        assert!(a.has(Actions::WAKE_READER));
        assert_eq!(conn.recv_state(), RecvState::Data(9));
        assert!(!conn.directions().can_receive);
        let _ = conn.read_done(9).unwrap();
        assert_eq!(conn.recv_state(), RecvState::Eof);
        assert_eq!(conn.next_deadline(), None);
        assert!(conn.rmbe_reusable() == end.any(StateFlags::ANY_CLOSE));
    }
}

#[test]
fn a_full_ring_and_the_end_say_nothing_of_a_rest() {
    let ring = RingSize::MIN_WIRE;
    let mut conn = active();
    let bytes = conn.send_room().unwrap();
    assert_eq!(u64::from(bytes), ring.len());
    let _ = conn.written(bytes, SendHint::default(), T0).unwrap();
    let _ = conn.shutdown_write(T0);
    let tx = conn.take_tx(T0).unwrap();
    let cdc = tx.notice.cdc().unwrap();
    assert_eq!(u64::from(tx.plan.len()), ring.len());
    assert!(cdc.state_flags.has(StateFlags::DONE_WRITING));
    assert!(!cdc.prod_flags.has(ProdFlags::WRITE_BLOCKED));
}

#[test]
fn a_full_ring_may_be_all_there_is() {
    let ring = RingSize::MIN_WIRE;
    for end in [StateFlags::CLOSED, StateFlags::DONE_WRITING] {
        // An end that has not read has nothing to wait for.
        let mut conn = ended_without_room(end);
        assert_eq!(conn.next_deadline(), None);
        let _ = conn.read_done(ring.bytes()).unwrap();
        let _ = conn.take_tx(T0).unwrap();
        assert!(conn.on_timer(later(5)).has(Actions::TIMER));
        let over = later(5).after(TAIL_PATIENCE);
        assert_eq!(conn.next_deadline(), Some(over));
        assert!(conn.on_timer(later(5)).is_empty());
        assert_eq!(conn.recv_state(), RecvState::Empty);
        assert!(conn
            .on_timer(over)
            .has(Actions::WAKE_READER | Actions::STATE));
        assert_eq!(conn.recv_state(), RecvState::Eof);
        assert!(!conn.directions().can_receive);
        assert_eq!(conn.next_deadline(), None);
        // An abort is one at any time, and a program that has closed does not wait.
        let mut conn = ended_without_room(end);
        let _ = conn.read_done(ring.bytes()).unwrap();
        let a = says(&mut conn, 3, ring.len(), StateFlags::ABORT, T0);
        assert!(a.has(Actions::WAKE_READER | Actions::ERR_RESET));
        assert_eq!(conn.recv_state(), RecvState::Reset);
        let mut conn = ended_without_room(end);
        let _ = conn.read_done(ring.bytes()).unwrap();
        let _ = conn.close(CloseMode::Graceful, T0);
        assert_ne!(conn.next_deadline(), Some(Instant(0)));
    }
}

#[test]
fn what_is_still_coming_puts_it_off() {
    let mut conn = active();
    let _ = conn.on_tcp_fin(T0);
    let _ = says(&mut conn, 1, 100, StateFlags::NONE, later(6));
    // Unread bytes: the peer may be waiting for room.
    assert!(conn.on_timer(later(16)).has(Actions::TIMER));
    assert_eq!(conn.state(), ConnState::Active);
    let _ = conn.read_done(100).unwrap();
    let _ = says(&mut conn, 2, 150, StateFlags::NONE, later(24));
    let _ = conn.read_done(50).unwrap();
    assert!(conn.on_timer(later(33)).is_empty());
    // There has been room only since then.
    assert!(!conn.on_timer(later(34)).has(Actions::ERR_RESET));
    assert!(conn.on_timer(later(35)).is_empty());
    assert!(conn.on_timer(later(36)).has(Actions::ERR_RESET));
}

#[test]
fn whoever_has_closed_is_not_told() {
    let mut conn = active();
    let _ = conn.on_tcp_fin(T0);
    let _ = conn.close(CloseMode::Graceful, T0);
    let tx = conn.take_tx(T0).unwrap();
    let _ = conn.on_tx_done(tx.ticket, T0);
    assert_eq!(conn.state(), ConnState::PeerCloseWait1);
    let mut a = conn.on_timer(later(10));
    while let Some(tx) = conn.take_tx(later(10)) {
        a |= conn.on_tx_done(tx.ticket, later(10));
    }
    assert!(a.has(Actions::FREE) && !a.has(Actions::ERR_RESET));
    assert!(!conn.rmbe_reusable());
}

/// An abort after the peer's end: what it is to the program depends on what the peer has of it.
#[test]
fn an_abort_behind_the_end() {
    // The program could still have spoken.
    let mut conn = active();
    let _ = says(&mut conn, 1, 0, StateFlags::DONE_WRITING, T0);
    let a = says(&mut conn, 2, 0, StateFlags::ABORT, T0);
    assert!(a.has(Actions::ERR_PIPE) && !a.has(Actions::ERR_RESET));
    assert_eq!(conn.recv_state(), RecvState::Eof);

    // It has shut its way, and the peer has everything or not.
    for arrived in [true, false] {
        let mut conn = active();
        let _ = says(&mut conn, 1, 0, StateFlags::DONE_WRITING, T0);
        let _ = conn.written(10, SendHint::default(), T0).unwrap();
        let _ = conn.shutdown_write(T0);
        let tx = conn.take_tx(T0).unwrap();
        if arrived {
            let a = conn.on_tx_done(tx.ticket, T0);
            assert!(a.has(Actions::TCP_END));
        }
        let a = says(&mut conn, 2, 0, StateFlags::ABORT, T0);
        assert_eq!(a.has(Actions::ERR_RESET), !arrived);
        assert!(!a.has(Actions::ERR_PIPE));
        assert_eq!(conn.recv_state(), RecvState::Eof);
    }
}
