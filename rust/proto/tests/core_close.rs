// SPDX-License-Identifier: GPL-2.0

//! The end of a connection: close, shutdown, drain, abort, and the loss of link or TCP.

#![allow(unused_must_use)] // what matters about the actions is asserted where it matters

mod conn_rig;

use conn_rig::*;

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
        assert_eq!(
            (r.state(), r.freed),
            (ConnState::Closed, 1),
            "order {order}"
        );
        assert_eq!(r.conn.positions().completed, 0);
    }
}

#[test]
fn close_drains_in_the_background() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(100);
    let a = r.close();
    assert!(a.has(Actions::TIMER));
    assert_eq!(r.state(), ConnState::Active);
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
    assert_eq!(r.state(), ConnState::PeerCloseWait1);
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
    assert_eq!(r.state(), ConnState::PeerCloseWait1);
    assert!(!r.conn.rmbe_reusable());
    r.peer(A);
    assert_eq!((r.state(), r.freed), (ConnState::Closed, 1));
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
    assert_eq!(r.state(), ConnState::PeerCloseWait1);
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
    assert_eq!(r.state(), ConnState::PeerCloseWait1);
}

#[test]
fn a_peer_that_does_not_close_is_forgotten() {
    let mut r = Rig::active();
    r.write(100);
    r.flush();
    r.close();
    assert_eq!(r.flushed_flags(), C);
    assert_eq!(r.state(), ConnState::PeerCloseWait1);
    let end = T0.after(ANSWER_TIME);
    assert_eq!(r.conn.next_deadline(), Some(end));
    assert!(r
        .conn
        .on_timer(T0.after(Span(ANSWER_TIME.0 - 1)))
        .is_empty());
    let a = r.conn.on_timer(end);
    assert!(r.note(a).has(Actions::FREE));
    assert_eq!((r.state(), r.freed), (ConnState::Closed, 1));
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
fn shutdown_drains_and_then_close_upgrades() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(1);
    r.shut_wr();
    assert_eq!(
        (r.state(), r.conn.next_deadline()),
        (ConnState::Active, None)
    );
    r.close();
    r.peer_reads_all();
    assert_eq!(r.flushed_flags(), C);
    assert_eq!(r.state(), ConnState::PeerCloseWait1);
}

#[test]
fn peer_closing_ends_the_drain() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.write(1);
    r.shut_wr();
    r.peer(C);
    assert_eq!(r.state(), ConnState::AppCloseWait2);
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
    assert_eq!(r.state(), ConnState::Closed);
    let mut r = Rig::active();
    r.peer(C);
    assert!(r.conn.on_tcp_dead().is_empty());
    assert_eq!(r.state(), ConnState::AppCloseWait1);
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

/// Who closes without having read what is not for the program loses nothing, whenever that comes.
#[test]
fn a_preamble_does_not_count_as_unread() {
    for (before, after, aborts) in [(8, 8, false), (16, 0, false), (0, 16, false), (17, 0, true)] {
        let mut r = Rig::active();
        r.conn.begins_with(16);
        if before > 0 {
            r.peer_writes(before);
        }
        let a = r.conn.close(CloseMode::Graceful, T0);
        r.note(a);
        let said = r.flush().expect("its end");
        let mut aborted = said.state_flags.has(A);
        if after > 0 {
            r.peer_writes(after);
            aborted |= r.flush().is_some_and(|said| said.state_flags.has(A));
        }
        assert_eq!(aborted, aborts, "{before} and {after}");
    }
}
