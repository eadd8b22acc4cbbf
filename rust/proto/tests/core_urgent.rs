// SPDX-License-Identifier: GPL-2.0

//! The urgent byte of a connection, both ways.

#![allow(unused_must_use)] // what matters about the actions is asserted where it matters

mod conn_rig;

use conn_rig::*;

const OOB: SendHint = SendHint {
    more: false,
    urgent: true,
    push: false,
};

fn peer_writes_urgent(r: &mut Rig, n: u32, byte: u8) {
    r.said.prod_flags = ProdFlags::URGENT_PENDING.with(ProdFlags::URGENT_PRESENT);
    assert!(r.peer_writes(n).has(Actions::URGENT | Actions::WAKE_READER));
    r.said.prod_flags = ProdFlags::NONE;
    assert!(r.conn.urgent_offset().is_some());
    let a = r.conn.store_urgent(byte);
    r.note(a);
    assert!(r.conn.has_urgent());
}

#[test]
fn sender_flags_and_waits() {
    let mut r = Rig::active();
    r.conn.written(5, OOB, T0).unwrap();
    assert_eq!(r.conn.send_room(), Err(SendError::Full));
    let both = ProdFlags::URGENT_PENDING.with(ProdFlags::URGENT_PRESENT);
    assert_eq!(r.flush().unwrap().prod_flags, both);
    assert_eq!(r.conn.send_room(), Err(SendError::Full), "not consumed");
    assert!(r.conn.written(1, SendHint::default(), T0).is_err());
    assert!(r.peer_reads_all().has(Actions::WAKE_WRITER));
    assert_eq!(r.conn.send_room(), Ok(RING));
    r.write(1);
    assert_eq!(r.flush().unwrap().prod_flags, ProdFlags::NONE);
}

#[test]
fn an_urgent_byte_that_was_not_passed_counts_as_unread_at_close() {
    for taken in [false, true] {
        let mut r = Rig::active();
        peer_writes_urgent(&mut r, 2, b'!');
        let a = r.conn.read_done(1).unwrap();
        r.note(a);
        if taken {
            assert_eq!(r.conn.take_urgent(false), Ok(b'!'));
        }
        r.close();
        assert_eq!(r.flushed_flags(), A);
    }
    let mut r = Rig::active();
    peer_writes_urgent(&mut r, 2, b'!');
    assert!(r.conn.knows_urgent());
    let a = r.conn.read_done(2).unwrap();
    r.note(a);
    assert!(!r.conn.knows_urgent());
    r.close();
    assert_eq!(r.flushed_flags(), C);
}

#[test]
fn a_peer_that_forgets_to_confirm_is_asked() {
    let mut r = Rig::active();
    r.conn.written(5, OOB, T0).unwrap();
    r.flush();
    let first = r.conn.next_deadline().unwrap();
    assert!(!r.conn.on_timer(T0).has(Actions::TX_DUE), "too early");
    assert!(r.conn.on_timer(first).has(Actions::TX_DUE));
    let asked = r.flush().unwrap();
    assert!(asked.prod_flags.has(ProdFlags::UPDATE_REQUESTED));
    assert!(r.conn.next_deadline().unwrap() > first, "and again, later");
    assert!(r.peer_reads_all().has(Actions::WAKE_WRITER));
    assert_eq!(r.conn.next_deadline(), None);
}

#[test]
fn announced_even_when_the_window_is_closed() {
    let mut r = Rig::active();
    r.write(RING);
    r.flush();
    r.conn.written(5, OOB, T0).unwrap();
    let c = r.flush().unwrap();
    assert!(c.prod_flags.has(ProdFlags::URGENT_PENDING));
    assert!(!c.prod_flags.has(ProdFlags::URGENT_PRESENT));
    r.peer_reads_all();
    let c = r.flush().unwrap();
    assert!(c.prod_flags.has(ProdFlags::URGENT_PRESENT));
}

#[test]
fn read_out_of_line() {
    let mut r = Rig::active();
    peer_writes_urgent(&mut r, 5, b'u');
    assert_eq!(r.conn.recv_state(), RecvState::Data(4));
    assert_eq!(r.conn.in_queue(), 4);
    assert_eq!(r.conn.take_urgent(true), Ok(b'u'));
    assert_eq!(r.conn.take_urgent(false), Ok(b'u'));
    assert_eq!(r.conn.take_urgent(false), Err(UrgentError::None));
    let v = r.conn.recv_view(0);
    assert_eq!((v.pieces.len(), v.skip, v.at_mark), (4, 0, false));
    assert!(
        r.conn.read_done(4).unwrap().has(Actions::TX_DUE),
        "mark reached"
    );
    assert!(r.conn.at_mark());
    assert_eq!(r.flush().unwrap().cons, Cursor { wrap: 0, count: 5 });
    assert_eq!(r.conn.recv_state(), RecvState::Empty);
    r.peer_writes(3);
    let v = r.conn.recv_view(0);
    assert_eq!((v.pieces.len(), v.skip, v.at_mark), (3, 1, true));
    r.conn.read_done(4).unwrap();
    assert!(!r.conn.at_mark());
    assert_eq!(r.conn.recv_state(), RecvState::Empty);
    assert!(r.conn.is_consistent());
}

#[test]
fn read_in_line() {
    let mut r = Rig::active();
    r.conn.set_oob_inline(true);
    peer_writes_urgent(&mut r, 5, b'u');
    assert_eq!(r.conn.recv_state(), RecvState::Data(5));
    assert_eq!(r.conn.take_urgent(false), Err(UrgentError::None));
    assert_eq!(r.conn.recv_view(0).pieces.len(), 4);
    assert!(!r.conn.read_done(4).unwrap().has(Actions::TX_DUE));
    let v = r.conn.recv_view(0);
    assert_eq!((v.pieces.len(), v.skip, v.at_mark), (1, 0, true));
    assert!(r.conn.read_done(1).unwrap().has(Actions::TX_DUE));
    assert!(!r.conn.at_mark());
}

#[test]
fn a_lone_urgent_byte_frees_its_sender() {
    let mut r = Rig::active();
    peer_writes_urgent(&mut r, 1, b'x');
    assert!(r.conn.wants_tx());
    assert_eq!(r.flush().unwrap().cons.count, 1);
    assert_eq!(r.conn.recv_state(), RecvState::Empty);
    // A second one while the first was never read: the first gives way.
    peer_writes_urgent(&mut r, 1, b'y');
    assert_eq!(r.conn.take_urgent(false), Ok(b'y'));
    assert_eq!(r.flush().unwrap().cons.count, 2);
    r.peer_writes(2);
    let v = r.conn.recv_view(0);
    assert_eq!((v.pieces.len(), v.skip), (2, 1));
    assert!(r.conn.is_consistent());
}

#[test]
fn a_second_one_while_a_reader_copies() {
    let mut r = Rig::active();
    peer_writes_urgent(&mut r, 1, b'x');
    r.flush();
    r.peer_writes(3);
    // A reader steps over the first one and copies without a lock.
    let v = r.conn.recv_view(0);
    assert_eq!((v.skip, v.pieces.len()), (1, 3));
    // Meanwhile a second one takes the mark, and the consumer position moves to after the first.
    peer_writes_urgent(&mut r, 2, b'y');
    r.conn.read_from(v.from, v.skip + v.pieces.len()).unwrap();
    // The byte before the second one is still to be read.
    let v = r.conn.recv_view(0);
    assert_eq!((v.skip, v.pieces.len(), v.at_mark), (0, 1, false));
    assert!(r.conn.is_consistent());
}

#[test]
fn a_lone_urgent_byte_makes_close_abort() {
    let mut r = Rig::active();
    peer_writes_urgent(&mut r, 1, b'x');
    r.close();
    assert_eq!(r.flushed_flags(), A);
}

#[test]
fn announced_but_not_here() {
    let mut r = Rig::active();
    r.said.prod_flags = ProdFlags::URGENT_PENDING;
    assert!(r.peer_writes(3).has(Actions::URGENT_NEWS));
    assert!(!r.peer_writes(1).has(Actions::URGENT_NEWS), "once");
    assert_eq!(r.conn.take_urgent(false), Err(UrgentError::NotYet));
    assert!(!r.conn.has_urgent());
    r.said.prod_flags = ProdFlags::URGENT_PENDING.with(ProdFlags::URGENT_PRESENT);
    let arrived = r.peer_writes(1);
    assert!(arrived.has(Actions::URGENT) && !arrived.has(Actions::URGENT_NEWS));
}

#[test]
fn an_arrival_without_announcement_is_news() {
    let mut r = Rig::active();
    r.said.prod_flags = ProdFlags::URGENT_PENDING.with(ProdFlags::URGENT_PRESENT);
    assert!(r.peer_writes(1).has(Actions::URGENT | Actions::URGENT_NEWS));
}

#[test]
fn mark_at_the_ring_wrap() {
    let mut r = Rig::active();
    r.peer_writes(RING - 1);
    r.conn.read_done(RING - 1).unwrap();
    r.flush();
    peer_writes_urgent(&mut r, 1, b'z');
    assert_eq!(r.flush().unwrap().cons, Cursor { wrap: 1, count: 0 });
    r.peer_writes(4);
    let v = r.conn.recv_view(0);
    assert_eq!(
        (v.skip, v.pieces.piece[0].offset, v.pieces.len()),
        (1, 0, 4)
    );
}
