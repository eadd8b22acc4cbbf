// SPDX-License-Identifier: GPL-2.0

//! SMC-R connections of the two hosts, and the link that carries them.
//!
//! The link is a reliable queue pair: chains arrive in order, and the sender is told of each that has. It may be lost
//! at any time, of which each host learns later; a device may have acknowledged chains by then that its software never
//! sees. Another link is another one: nothing of the old one arrives there.

use super::{Hosts, Why};
use smc_proto::conn::{
    Actions, CloseMode, Conn, Notice, Params, Peer, Place, RecvState, SendHint, Ticket, Tx,
    DRAIN_IDLE,
};
use smc_proto::cursor::RingSize;
use smc_proto::wire::ids::AlertToken;
use smc_proto::wire::promotion::{Mark, MARK_LEN};
use std::collections::VecDeque;

/// Requests under way at an end at most.
const SLOTS: usize = 4;
/// Bytes of all rings.
pub(super) const RING: u32 = 64;

/// An SMC-R connection of one end.
pub(super) struct Rings {
    pub(super) conn: Conn,
    /// The attempt it came of: the peer's has the same.
    pub(super) number: u32,
    snd: Vec<u8>,
    rmb: Vec<u8>,
    /// Posted, and on their way.
    pub(super) air: VecDeque<Tx>,
    /// Acknowledged, of which the software has not seen the completions.
    pub(super) done: VecDeque<Ticket>,
    due: bool,
    /// Its end is not the socket's.
    pub(super) apart: bool,
    /// The program has nothing to do with it any more.
    pub(super) dissolved: bool,
    /// The stream can go on by TCP.
    pub(super) lifeline: bool,
    /// It was told that its link is lost.
    pub(super) told: bool,
}

/// How an SMC-R connection stands that is apart from its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apart {
    Open,
    Ended,
    Aborted,
    Lost,
}

impl core::fmt::Debug for Rings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            number,
            apart,
            dissolved,
            lifeline,
            told,
            conn,
            ..
        } = self;
        write!(
            f,
            "[{number}: {:?} {:?} {:?}, {} on the way, {} acknowledged; apart {apart} dissolved {dissolved} lifeline \
             {lifeline} told {told} suspended {} killed {}]",
            conn.state(),
            conn.positions(),
            conn.flags(),
            self.air.len(),
            self.done.len(),
            conn.is_suspended(),
            conn.is_killed(),
        )
    }
}

impl Rings {
    pub(super) fn new(at: usize, number: u32) -> Self {
        let size = RingSize::new(RING).expect("a power of two");
        let token = |at: usize| AlertToken(number * 2 + at as u32 + 1);
        let mut conn = Conn::new(Params {
            token: token(at),
            recv: size,
            send: size,
            recv_most: size,
            send_most: size,
            autocork: 16,
            drain_idle: DRAIN_IDLE,
        });
        conn.begins_with(2 * MARK_LEN as u8);
        conn.set_peer(Peer {
            token: token(1 - at),
            ring: size,
            place: Place::default(),
            immediate: number % 2 == 0,
            moves: false,
        });
        conn.expose();
        Self {
            conn,
            number,
            snd: vec![0; RING as usize],
            rmb: vec![0; RING as usize],
            air: VecDeque::new(),
            done: VecDeque::new(),
            due: false,
            apart: true,
            dissolved: false,
            lifeline: false,
            told: false,
        }
    }

    /// Bytes of the send ring from a position on.
    pub(super) fn kept(&self, from: u64, len: u32) -> Vec<u8> {
        let piece = |piece: smc_proto::ring::Piece| {
            let at = piece.offset as usize;
            &self.snd[at..at + piece.len as usize]
        };
        self.conn
            .kept(from, len)
            .iter()
            .flat_map(piece)
            .copied()
            .collect()
    }

    /// Puts bytes into the send ring, as many as there is room for.
    fn put(&mut self, bytes: &[u8], now: smc_proto::time::Instant) -> Option<(usize, Actions)> {
        let room = self.conn.send_room().ok()? as usize;
        let len = room.min(bytes.len());
        let mut from = bytes.iter();
        for piece in self.conn.send_view().iter() {
            let at = piece.offset as usize;
            let to = self.snd[at..at + piece.len as usize].iter_mut();
            to.zip(&mut from).for_each(|(to, byte)| *to = *byte);
        }
        let hint = SendHint {
            push: len < 8,
            ..SendHint::default()
        };
        let actions = self
            .conn
            .written(len as u32, hint, now)
            .expect("there was room");
        Some((len, actions))
    }

    fn take(&mut self, most: usize) -> (Vec<u8>, Actions) {
        let view = self.conn.recv_view(0);
        let piece = |piece: smc_proto::ring::Piece| {
            let at = piece.offset as usize;
            &self.rmb[at..at + piece.len as usize]
        };
        let bytes: Vec<u8> = view
            .pieces
            .iter()
            .flat_map(piece)
            .copied()
            .take(most)
            .collect();
        let actions = match bytes.len() {
            0 => Actions::NONE,
            len => self
                .conn
                .read_from(view.from, len as u32)
                .expect("they were there"),
        };
        (bytes, actions)
    }

    pub(super) fn unread(&self) -> usize {
        self.conn.recv_view(0).pieces.len() as usize
    }

    pub(super) fn apart_state(&self) -> Apart {
        if self.conn.is_killed() {
            Apart::Lost
        } else if self.conn.is_aborted_by_peer() {
            Apart::Aborted
        } else if self.conn.shut_ways() & 1 != 0 {
            Apart::Ended
        } else {
            Apart::Open
        }
    }
}

impl Hosts {
    /// The SMC-R connection of this attempt at an end.
    pub(super) fn rings(&mut self, at: usize, number: u32) -> Option<&mut Rings> {
        let all = self.ends[at].rings.iter_mut().chain(&mut self.ends[at].old);
        all.into_iter().find(|rings| rings.number == number)
    }

    /// Does what a connection asks for.
    pub(super) fn act(&mut self, at: usize, number: u32, actions: Actions) {
        let now = self.now;
        let up = self.carries(number);
        let Some(rings) = self.rings(at, number) else {
            return;
        };
        assert!(rings.conn.is_consistent(), "{:?}", rings.conn);
        rings.due |= actions.has(Actions::TX_DUE);
        let mut more = Actions::NONE;
        while rings.due && up && !rings.told && rings.air.len() + rings.done.len() < SLOTS {
            match rings.conn.take_tx(now) {
                Some(tx) => {
                    more |= tx.actions;
                    rings.air.push_back(tx);
                }
                None => rings.due = false,
            }
        }
        let (has_socket, released) = (!rings.dissolved && !rings.apart, rings.conn.is_released());
        let all = actions | more;
        if has_socket {
            if all.has(Actions::TCP_ABORT) || all.has(Actions::TCP_OVER) && !released {
                let why = match all.has(Actions::ERR_ABORTED) {
                    true => Why::Killed,
                    false => Why::Peer,
                };
                self.abort(at, why);
            }
            if all.has(Actions::TCP_END) {
                self.end_stream(at);
            }
        }
        if all.has(Actions::FREE) {
            self.ends[at].old.retain(|rings| rings.number != number);
        }
    }

    /// Whether the link works over which this connection goes.
    fn carries(&self, number: u32) -> bool {
        self.up && number >= self.first_of_link
    }

    /// The next chain to an end arrives; `seen` if its software sees that.
    pub(super) fn arrive(&mut self, to: usize, number: u32, seen: bool) -> bool {
        let now = self.now;
        let from = 1 - to;
        let Some(source) = self.rings(from, number) else {
            return false;
        };
        let Some(tx) = source.air.pop_front() else {
            return false;
        };
        source.done.push_back(tx.ticket);
        let snd = source.snd.clone();
        let Some(rings) = self.rings(to, number) else {
            // Its memory is the device's until the link ends.
            return true;
        };
        for write in tx.plan.iter() {
            let (from, len) = (write.local.offset as usize, write.local.len as usize);
            let into = write.remote as usize;
            rings.rmb[into..into + len].copy_from_slice(&snd[from..from + len]);
        }
        if !seen || rings.told {
            return true;
        }
        let taken = match tx.notice {
            Notice::Cdc(cdc) => rings.conn.on_cdc(&cdc, now),
            Notice::Immediate(immediate) => rings.conn.on_immediate(immediate, now),
        };
        let actions =
            taken.unwrap_or_else(|error| panic!("own message refused: {error:?} {:?}", tx.notice));
        self.act(to, number, actions);
        true
    }

    /// The next completion of an end.
    pub(super) fn complete(&mut self, at: usize, number: u32) -> bool {
        let now = self.now;
        let Some(rings) = self.rings(at, number) else {
            return false;
        };
        let Some(ticket) = rings.done.pop_front() else {
            return false;
        };
        let actions = rings.conn.on_tx_done(ticket, now);
        self.act(at, number, actions);
        true
    }

    /// The numbers of the connections of an end.
    pub(super) fn numbers(&self, at: usize) -> Vec<u32> {
        let all = self.ends[at].old.iter().chain(&self.ends[at].rings);
        all.map(|rings| rings.number).collect()
    }

    /// The link is lost. Of what is under way so much arrives, and so much more is acknowledged that no software sees.
    pub(super) fn lose_link(&mut self, arrive: u8, forget: u8, failed: bool) {
        if !self.up {
            return;
        }
        self.failed = failed;
        for to in [0, 1] {
            for number in self.numbers(1 - to) {
                for _ in 0..arrive {
                    self.arrive(to, number, true);
                }
                for _ in 0..forget {
                    self.arrive(to, number, false);
                }
            }
        }
        self.up = false;
        self.losses += 1;
    }

    /// An end learns that the link of a connection is lost.
    pub(super) fn tell_loss(&mut self, at: usize, number: u32) -> bool {
        if self.carries(number) {
            return false;
        }
        let failed = self.failed;
        let Some(rings) = self.rings(at, number).filter(|rings| !rings.told) else {
            return false;
        };
        rings.told = true;
        // All completions that there are come first, unless the device has lost them.
        while !failed && self.complete(at, number) {}
        let Some(rings) = self.rings(at, number) else {
            return true;
        };
        let left = rings.lifeline.then(|| rings.conn.suspend()).flatten();
        let actions = match left {
            Some(actions) => actions,
            None if rings.conn.is_suspended() => Actions::NONE,
            None => rings.conn.kill(),
        };
        self.act(at, number, actions);
        while let Some(rings) = self.rings(at, number) {
            if rings.air.pop_front().is_none() && rings.done.pop_front().is_none() {
                break;
            }
            let actions = rings.conn.on_tx_failed();
            self.act(at, number, actions);
        }
        true
    }

    /// Writes into the ring. Returns how many bytes, `None` if that is over.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) -> Option<usize> {
        let now = self.now;
        let rings = self.ends[at].rings.as_mut()?;
        let number = rings.number;
        let (len, actions) = rings.put(bytes, now)?;
        self.act(at, number, actions);
        Some(len)
    }

    /// Says a mark; whether it could be.
    pub(super) fn put_mark(&mut self, at: usize, mark: Mark) -> bool {
        self.put(at, &mark.bytes()) == Some(MARK_LEN)
    }

    pub(super) fn take_mark(&mut self, at: usize) -> Option<Mark> {
        let rings = self.ends[at].rings.as_ref()?;
        (rings.unread() >= MARK_LEN).then(|| {
            let bytes = self.take(at, MARK_LEN);
            let bytes = bytes.try_into().expect("a mark's length");
            Mark::parse(bytes).expect("a mark")
        })
    }

    /// Takes bytes out of the ring.
    pub(super) fn take(&mut self, at: usize, most: usize) -> Vec<u8> {
        let Some(rings) = &mut self.ends[at].rings else {
            return vec![];
        };
        let number = rings.number;
        let (bytes, actions) = rings.take(most);
        self.act(at, number, actions);
        bytes
    }

    /// Why the ring has nothing to read.
    pub(super) fn ring_state(&self, at: usize) -> RecvState {
        let rings = self.ends[at].rings.as_ref();
        rings.map_or(RecvState::Aborted, |rings| rings.conn.recv_state())
    }

    /// Leaves an SMC-R connection of which nothing has come.
    pub(super) fn dissolve(&mut self, at: usize) {
        self.close_rings(at, CloseMode::Abort, true);
    }

    /// The program has closed, or the connection is not the socket's any more.
    pub(super) fn close_rings(&mut self, at: usize, mode: CloseMode, dissolve: bool) {
        let now = self.now;
        let Some(mut rings) = self.ends[at].rings.take() else {
            return;
        };
        rings.dissolved |= dissolve;
        let number = rings.number;
        let actions = rings.conn.close(mode, now);
        self.ends[at].old.push(rings);
        self.act(at, number, actions);
    }
}
