// SPDX-License-Identifier: GPL-2.0

//! Receive rings that move: what each end says and does, and what no correct peer does.

#![allow(unused_must_use)] // what matters about the actions is asserted where it matters

mod conn_rig;

use conn_rig::*;
use smc_proto::wire::bufsize::BufSize;
use smc_proto::wire::cdc::{Offer, RingNews};
use smc_proto::wire::ids::Rkey;

const LARGE: u32 = 4 * RING;
const OLD: Place = Place {
    addr: 0x1000,
    rkey: Rkey(1),
};
const NEW: Place = Place {
    addr: 0x20_0000,
    rkey: Rkey(2),
};

fn size(bytes: u32) -> RingSize {
    RingSize::new(bytes).unwrap()
}

fn rig(moves: bool) -> Rig {
    let mut r = Rig::init();
    r.conn = Conn::new(Params {
        token: AlertToken(7),
        recv: size(RING),
        send: size(LARGE),
        recv_most: size(1 << 20),
        send_most: size(1 << 20),
        autocork: 0,
        drain_idle: DRAIN_IDLE,
    });
    r.conn.set_peer(Peer {
        token: AlertToken(9),
        ring: size(RING),
        place: OLD,
        immediate: true,
        moves,
    });
    r.conn.expose();
    r.conn.establish(T0).unwrap();
    r
}

fn offer(number: u8, bytes: u32) -> Offer {
    Offer {
        number,
        size: BufSize::from_code(size(bytes).code().unwrap()),
        addr: NEW.addr,
        rkey: NEW.rkey,
    }
}

/// The peer says something of rings, and that it has written `bytes` more.
fn say(r: &mut Rig, rings: RingNews, bytes: u64) -> Result<Actions, ProtoError> {
    let mut said = r.said;
    said.seq = said.seq.wrapping_add(1);
    said.rings = rings;
    said.prod = Cursor::at(r.conn.positions().received + bytes, size(RING));
    let done = r.conn.on_cdc(&said, T0)?;
    r.said = said;
    Ok(r.note(done))
}

fn into(number: u8) -> RingNews {
    RingNews {
        into: number,
        offer: None,
    }
}

fn offering(offer: Offer) -> RingNews {
    RingNews {
        into: 0,
        offer: Some(offer),
    }
}

/// Bytes of the view, their offset and the number of their ring.
fn view(r: &Rig) -> (u32, u32, u8, bool) {
    let view = r.conn.recv_view(0);
    (
        view.pieces.len(),
        view.pieces.piece[0].offset,
        view.ring,
        view.goes_on,
    )
}

#[test]
fn a_sender_takes_what_is_offered() {
    let mut r = rig(true);
    r.write(100);
    let tx = r.conn.take_tx(T0).unwrap();
    assert_eq!((tx.place, tx.plan.len()), (OLD, 100));
    let a = say(&mut r, offering(offer(1, LARGE)), 0).unwrap();
    assert!(a.has(Actions::TX_DUE));
    // The message that says so has no bytes, though some wait.
    r.write(200);
    let tx = r.conn.take_tx(T0).unwrap();
    assert!(tx.plan.is_empty());
    let cdc = tx.notice.cdc().copied().unwrap();
    assert_eq!(cdc.rings, into(1));
    assert_eq!(cdc.prod, Cursor::at(100, size(RING)));
    // They are at their position's place in the new ring, whose whole room is there.
    let tx = r.conn.take_tx(T0).unwrap();
    let write = tx.plan.iter().next().unwrap();
    assert_eq!((tx.place, write.remote, write.local.len), (NEW, 100, 200));
    r.write(LARGE - 500);
    let tx = r.conn.take_tx(T0).unwrap();
    assert_eq!(tx.plan.len(), LARGE - 500);
    // Who offers it still has not seen that yet.
    assert!(say(&mut r, offering(offer(1, LARGE)), 0).is_ok());
    assert!(!r.conn.wants_tx());
    assert_eq!(r.conn.peer().unwrap().ring, size(LARGE));
}

#[test]
fn a_smaller_ring_has_to_hold_what_is_unread() {
    let mut r = rig(true);
    say(&mut r, offering(offer(1, LARGE)), 0).unwrap();
    r.flush();
    r.write(RING + 1);
    r.flush();
    let mut news = offering(offer(2, RING));
    let a = say(&mut r, news, 0).unwrap();
    assert!(!a.has(Actions::TX_DUE));
    // What is written meanwhile goes to the old ring.
    r.write(1);
    let tx = r.conn.take_tx(T0).unwrap();
    assert_eq!((tx.plan.len(), tx.place), (1, NEW));
    r.said.cons = Cursor::at(2, size(RING));
    news.offer = Some(offer(2, RING));
    r.write(1);
    let a = say(&mut r, news, 0).unwrap();
    assert!(a.has(Actions::TX_DUE));
    let cdc = r.flush().unwrap();
    assert_eq!(cdc.rings.into, 2);
    assert!(r.conn.is_peer_full());
    // Of the smaller ring, which has no room for the last byte.
    assert!(cdc.prod_flags.has(ProdFlags::WRITE_BLOCKED));
}

/// The peer turns to a smaller ring, all of whose room is taken by bytes that the program has read, but which were too few
/// for the larger one that the peer would have been told. It can send nothing before it hears of them, and nothing else
/// will happen here.
#[test]
fn a_peer_without_room_in_a_smaller_ring_hears_of_what_was_read() {
    for unread in [0, 1, RING / 2] {
        let mut r = rig(true);
        r.conn.offer_ring(size(LARGE), NEW).unwrap();
        say(&mut r, into(1), 0).unwrap();
        r.conn.offer_ring(size(RING), OLD).unwrap();
        r.flush();
        say(&mut r, into(1), u64::from(RING)).unwrap();
        let a = r.conn.read_done(RING - unread).unwrap();
        assert!(!a.has(Actions::TX_DUE), "a quarter of the larger ring");
        let a = say(&mut r, into(2), 0).unwrap();
        assert!(a.has(Actions::TX_DUE), "{unread}");
        let cdc = r.flush().unwrap();
        let read = u64::from(RING - unread);
        assert_eq!(cdc.cons, Cursor::at(read, size(RING)));
    }
}

#[test]
fn an_urgent_byte_comes_first() {
    let mut r = rig(true);
    let hint = SendHint {
        urgent: true,
        ..SendHint::default()
    };
    r.conn.written(3, hint, T0).unwrap();
    r.flush();
    say(&mut r, offering(offer(1, LARGE)), 0).unwrap();
    assert_eq!(r.flush(), None);
    r.peer_reads_all();
    assert_eq!(r.flush().unwrap().rings.into, 1);
}

#[test]
fn a_reader_follows() {
    let mut r = rig(true);
    say(&mut r, into(0), 1000).unwrap();
    let (number, a) = r.conn.offer_ring(size(LARGE), NEW).unwrap();
    assert!(number == 1 && a.has(Actions::TX_DUE));
    assert_eq!(r.conn.only_ring(), None);
    assert_eq!(r.conn.offer_ring(size(LARGE), NEW), None, "one at a time");
    let cdc = r.flush().unwrap();
    assert_eq!(cdc.rings.offer, Some(offer(1, LARGE)));
    // Still into the old one, then the move, then into the new one.
    say(&mut r, into(0), 500).unwrap();
    let a = say(&mut r, into(1), 0).unwrap();
    assert!(!a.has(Actions::RING_LEFT));
    say(&mut r, into(1), u64::from(2 * RING)).unwrap();
    assert_eq!(view(&r), (1500, 0, 0, true));
    assert_eq!(r.conn.recv_state(), RecvState::Data(1500 + 2 * RING));
    // A peek that goes on behind the old one's bytes.
    let peek = r.conn.recv_view(1500);
    assert_eq!(
        (peek.ring, peek.pieces.len(), peek.pieces.piece[0].offset),
        (1, 2 * RING, 1500)
    );
    assert!(!r.conn.read_done(1499).unwrap().has(Actions::RING_LEFT));
    assert_eq!(r.conn.only_ring(), None);
    assert!(r.conn.read_done(1).unwrap().has(Actions::RING_LEFT));
    assert_eq!(view(&r), (2 * RING, 1500, 1, false));
    assert_eq!(r.conn.only_ring(), Some(1));
    // Cursors keep their form.
    r.conn.read_done(2 * RING).unwrap();
    r.write(1);
    let cdc = r.flush().unwrap();
    assert_eq!(cdc.cons, Cursor::at(1500 + u64::from(2 * RING), size(RING)));
}

#[test]
fn an_empty_ring_is_left_at_once() {
    let mut r = rig(true);
    r.conn.offer_ring(size(LARGE), NEW).unwrap();
    let a = say(&mut r, into(1), 0).unwrap();
    assert!(a.has(Actions::RING_LEFT));
    assert_eq!(r.conn.only_ring(), Some(1));
}

#[test]
fn what_no_correct_peer_says() {
    type Case = (bool, RingNews, u64);
    let cases: [Case; 9] = [
        // A ring that nobody has offered, or that comes later.
        (false, into(1), 0),
        (true, into(2), 0),
        (true, into(255), 0),
        // Bytes with the move: in which ring would they be?
        (true, into(1), 1),
        // Rings offered out of turn.
        (true, offering(offer(2, LARGE)), 0),
        (true, offering(offer(255, LARGE)), 0),
        (false, offering(offer(3, RING)), 0),
        (false, into(255), 0),
        // One whose positions cursors would not tell apart.
        (false, offering(offer(1, 1 << 29)), 0),
    ];
    for (offered, news, bytes) in cases {
        let mut r = rig(true);
        if offered {
            r.conn.offer_ring(size(LARGE), NEW).unwrap();
        }
        let before = r.conn.positions();
        assert_eq!(say(&mut r, news, bytes), Err(ProtoError::Ring), "{news:?}");
        assert_eq!(r.conn.positions(), before);
        let mut r = rig(false);
        assert!(say(&mut r, news, bytes).is_ok(), "not agreed on: no words");
        assert!(!r.conn.wants_tx());
        assert_eq!(r.conn.offer_ring(size(LARGE), NEW), None);
    }
    // A smaller one that does not hold what is unread.
    let mut r = rig(true);
    r.conn.offer_ring(size(LARGE), NEW).unwrap();
    say(&mut r, into(1), 0).unwrap();
    r.conn.offer_ring(size(RING), NEW).unwrap();
    say(&mut r, into(1), u64::from(RING) + 1).unwrap();
    assert_eq!(say(&mut r, into(2), 0), Err(ProtoError::Ring));
    r.conn.read_done(RING).unwrap();
    r.write(1);
    r.flush().unwrap();
    assert!(say(&mut r, into(2), 0).is_ok());
    // Back to one that was left.
    let mut r = rig(true);
    r.conn.offer_ring(size(LARGE), NEW).unwrap();
    say(&mut r, into(1), 0).unwrap();
    assert_eq!(say(&mut r, into(0), 0), Err(ProtoError::Ring));
}

/// The peer fills the ring and has more, the program reads all: so often until a larger ring is due.
fn press(r: &mut Rig) -> u32 {
    for round in 1..100 {
        r.said.prod_flags = ProdFlags::WRITE_BLOCKED;
        let rings = r.said.rings;
        let len = r.conn.rings().1.bytes();
        say(r, rings, u64::from(len)).unwrap();
        let a = r.conn.read_done(len).unwrap();
        r.flush();
        if a.has(Actions::GROW) {
            return round;
        }
    }
    panic!("never due");
}

#[test]
fn a_ring_grows_under_a_peer_that_waits() {
    let mut r = rig(true);
    let mut number = 0;
    for bytes in [4 * RING, 16 * RING, 64 * RING] {
        assert_eq!(r.conn.wanted_ring(), None);
        assert_eq!(press(&mut r), 4);
        assert_eq!(r.conn.wanted_ring(), Some(size(bytes)));
        // No memory: asked again after as many bytes.
        assert_eq!(press(&mut r), 4);
        r.conn.offer_ring(size(bytes), NEW).unwrap();
        number += 1;
        say(&mut r, into(number), 0).unwrap();
    }
    // That is the most.
    assert_eq!(r.conn.rings().1, size(1 << 20));
    for _ in 0..100 {
        r.said.prod_flags = ProdFlags::WRITE_BLOCKED;
        say(&mut r, into(number), 1 << 20).unwrap();
        let a = r.conn.read_done(1 << 20).unwrap();
        assert!(!a.has(Actions::GROW));
        r.flush();
    }
    // And back, once nothing comes.
    assert_eq!(
        r.conn.shrinkable().map(|(_, first)| first),
        Some(size(RING))
    );
    r.conn.offer_ring(size(RING), OLD).unwrap();
    assert_eq!(r.conn.shrinkable(), None);
    let a = say(&mut r, into(4), 0).unwrap();
    assert!(a.has(Actions::RING_LEFT) && !r.conn.has_large_ring());
}

#[test]
fn nothing_grows_without_need_or_agreement() {
    for (moves, flags) in [(true, ProdFlags::NONE), (false, ProdFlags::WRITE_BLOCKED)] {
        let mut r = rig(moves);
        for _ in 0..100 {
            r.said.prod_flags = flags;
            say(&mut r, into(0), u64::from(RING)).unwrap();
            let a = r.conn.read_done(RING).unwrap();
            assert!(!a.has(Actions::GROW));
            r.flush();
        }
        assert_eq!(r.conn.wanted_ring(), None);
    }
}

#[test]
fn an_end_stops_it() {
    let mut r = rig(true);
    press(&mut r);
    r.peer(D);
    assert_eq!(r.conn.wanted_ring(), None);
    assert_eq!(r.conn.offer_ring(size(LARGE), NEW), None);
    let mut r = rig(true);
    r.shut_wr();
    r.flush();
    say(&mut r, offering(offer(1, LARGE)), 0).unwrap();
    assert!(!r.conn.wants_tx());
}
