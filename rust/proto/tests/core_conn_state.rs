// SPDX-License-Identifier: GPL-2.0

//! The states of a connection: one test per transition of the table, and what users see of them.

#![allow(unused_must_use)] // what matters about the actions is asserted where it matters

mod conn_rig;

use conn_rig::*;

/// One test per cell of the table: start state, what happens, end state, flags that go out.
macro_rules! cells {
    ($($name:ident: $from:ident, $act:expr => $to:ident, $flags:expr;)*) => {$(
        #[test]
        fn $name() {
            let mut r = Rig::in_state(ConnState::$from);
            let act: fn(&mut Rig) -> Actions = $act;
            let before = r.conn.flags().0 .1;
            act(&mut r);
            let at = r.state();
            let out = r.flushed_flags().without(before);
            assert_eq!(at, ConnState::$to);
            assert_eq!(out, $flags);
            // Whatever happened, letting go and losing the link always ends it, exactly once.
            r.close();
            r.kill();
            while r.conn.state() != ConnState::Closed {
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

/// The table itself, for the cells that no sequence of real events can reach.
#[test]
fn table_has_no_way_out_of_closed() {
    let progress = |n: u8| CloseProgress {
        released: n & 1 != 0,
        close_sent: n & 2 != 0,
        close_received: n & 4 != 0,
    };
    for n in 0..8 {
        for e in [
            ConnEvent::Established,
            ConnEvent::LocalDone,
            ConnEvent::LocalClose,
            ConnEvent::PeerDone,
            ConnEvent::PeerClosed,
            ConnEvent::PeerAborted,
            ConnEvent::Killed,
            ConnEvent::Flushed,
        ] {
            assert_eq!(ConnState::Closed.next(e, progress(n)), ConnState::Closed);
        }
        let next = ConnState::PeerAbortWait.next(ConnEvent::PeerAborted, progress(n));
        assert_eq!(next, ConnState::Closed);
        let next = ConnState::PeerAbortWait.next(ConnEvent::PeerClosed, progress(n));
        assert_eq!(next, ConnState::PeerAbortWait);
    }
}

#[test]
fn state_numbers_are_those_of_diag() {
    let n = |s: ConnState| s as u8;
    assert_eq!(
        (
            n(ConnState::Active),
            n(ConnState::Init),
            n(ConnState::Closed)
        ),
        (1, 2, 7)
    );
    assert_eq!(
        (n(ConnState::PeerCloseWait1), n(ConnState::PeerCloseWait2)),
        (20, 21)
    );
    assert_eq!(
        (n(ConnState::AppCloseWait1), n(ConnState::AppCloseWait2)),
        (22, 23)
    );
    assert_eq!(
        (
            n(ConnState::AppFinCloseWait),
            n(ConnState::PeerFinCloseWait)
        ),
        (24, 25)
    );
    assert_eq!(
        (n(ConnState::PeerAbortWait), n(ConnState::ProcessAbort)),
        (26, 27)
    );
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
fn tcp_is_aborted_unless_both_have_ended() {
    let mut r = Rig::active();
    assert!(!r.conn.has_aborted_tcp());
    assert!(r.kill().has(Actions::TCP_ABORT));
    // A program that has heard of it may close before it is done.
    r.close();
    assert!(r.conn.has_aborted_tcp());

    let mut r = Rig::active();
    r.peer(C);
    r.close();
    assert!(!r.kill().has(Actions::TCP_ABORT));
    assert!(!r.conn.has_aborted_tcp(), "both have ended before");
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
    assert_eq!(r.state(), ConnState::AppFinCloseWait);
    let _ = r.conn.shutdown_both(T0);
    assert_eq!((r.state(), r.conn.shut_ways()), (ConnState::Closed, 3));
    assert!(!r.state().may_close());

    let mut r = Rig::active();
    r.peer(D);
    assert_eq!(r.conn.shut_ways(), 1);
    let mut r = Rig::active();
    let _ = r.conn.kill();
    assert_eq!(r.conn.shut_ways(), 3);
}
