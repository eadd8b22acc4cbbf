// SPDX-License-Identifier: GPL-2.0

//! Two connections, their rings, and an RDMA channel between them.
//!
//! The channel is reliable and ordered, as an RC queue pair is: a posted chain arrives after a
//! random delay, its WRITEs read the send ring at that moment (not when posted, so that a send
//! ring reused too early is seen), and its completion comes some time later. The link can be
//! lost: what is under way vanishes, each side notices at a time of its own, and outstanding
//! requests are flushed, then or some time before, as where a worker has to do the rest. Beside it
//! is the idle TCP connection, whose FIN follows a close and may come before the message that says
//! so. Programs are sequences of [`Op`]s. After every step the model checks:
//!
//! * every byte read is the byte written at that stream position;
//! * nothing is written into a ring that was given back, or left for another;
//! * the bookkeeping is consistent and FREE comes at most once;
//! * when nothing is under way, no data waits that could be sent (no stall);
//! * an end of file without abort comes after the last byte;
//! * a FIN alone ends a connection only if the peer has vanished, and then it does.
//!
//! [`channel`]: what carries the messages. [`program`]: what carries out an [`Op`]. [`edges`]: programs that go on at an
//! event only.

use super::rng::Rng;
use smc_proto::conn::*;
use smc_proto::cursor::RingSize;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::cdc::StateFlags;
use smc_proto::wire::ids::AlertToken;
use smc_proto::wire::promotion::Record;
use std::collections::VecDeque;

pub mod channel;
pub mod edges;
pub mod program;

/// Operations of a program, or of fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Write at most this number of bytes.
    Write(u16),
    /// Write with MSG_MORE.
    WriteMore(u16),
    /// Write with MSG_OOB.
    WriteUrgent(u16),
    /// Read at most this number of bytes.
    Read(u16),
    /// recv(MSG_OOB).
    ReadUrgent,
    /// Look at the data without taking it.
    Peek,
    /// TCP_CORK off.
    Push,
    /// shutdown(SHUT_WR).
    ShutWrite,
    /// shutdown(SHUT_RDWR).
    ShutBoth,
    /// close.
    Close,
    /// close with SO_LINGER zero.
    Abort,
    /// SO_OOBINLINE.
    Inline(bool),
    /// A receive ring with this exponent is offered to the peer, where rings may move.
    Offer(u8),
    /// The idle TCP connection dies.
    TcpDead,
    /// The program is killed, and its host never says so but by TCP's FIN: a Linux peer whose send
    /// queue is full.
    Vanish,
    /// The link fails; this side notices first.
    LinkLoss,
    /// The peer misbehaves: a message with wild cursors arrives.
    Hostile(u32),
    /// Time passes (microseconds), and what is due happens.
    Wait(u16),
}

impl Op {
    /// An operation from arbitrary numbers, for fuzzing.
    pub fn from_raw(kind: u8, arg: u16) -> Op {
        match kind % 32 {
            0..=6 => Op::Write(arg % 9000),
            7 => Op::WriteMore(arg % 4000),
            8 => Op::WriteUrgent(1 + arg % 50),
            9..=15 => Op::Read(arg % 20000),
            16 => Op::ReadUrgent,
            17 => Op::Peek,
            18 => Op::Push,
            19 => Op::Inline(arg & 1 != 0),
            20 if arg % 4 == 0 => Op::ShutWrite,
            21 if arg % 8 == 0 => Op::ShutBoth,
            22 if arg % 4 == 0 => Op::Close,
            23 if arg % 16 == 0 => Op::Abort,
            24 if arg % 64 == 0 => Op::TcpDead,
            25 if arg % 64 == 0 => Op::LinkLoss,
            26 if arg % 64 == 0 => Op::Hostile(u32::from(arg)),
            27 if arg % 64 == 0 => Op::Vanish,
            28 => Op::Offer(14 + (arg % 2) as u8),
            _ => Op::Wait(arg % 2000),
        }
    }
}

/// A posted chain on its way, or its completion.
#[derive(Clone, Debug)]
struct Flight {
    at: Instant,
    notice: Notice,
    plan: smc_proto::ring::WritePlan,
    place: Place,
    ticket: Ticket,
    signaled: bool,
}

/// The end of a chain.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Instant,
    ticket: Ticket,
    /// The device tells of it.
    signaled: bool,
}

/// Chains that are posted in a row without a completion, at most.
const MOST_SILENT: usize = 3;
/// Time after which the device is asked for the end of a chain that nobody waits for.
const LATEST: Span = Span::from_millis(10);

/// One host.
pub struct Side {
    /// The connection under test.
    pub conn: Conn,
    snd: Vec<u8>,
    /// The receive rings by their numbers; those that were left have no bytes.
    rmbs: Vec<Vec<u8>>,
    /// Everything the program has written.
    pub written: Vec<u8>,
    /// Stream positions of urgent bytes.
    pub urgent: Vec<u64>,
    /// The program was told the end of file.
    pub saw_eof: bool,
    closed: bool,
    /// The program has found no room and has not been woken since.
    pub waits_for_room: bool,
    /// The program has been woken since it looked last.
    woken: bool,
    freed: bool,
    ring_reused: bool,
    killed: bool,
    due: bool,
    in_air: VecDeque<Flight>,
    completing: VecDeque<End>,
    /// Time at which the queue pair breaks, if before the connection learns of it; and whether it
    /// has.
    break_at: Option<Instant>,
    broken: bool,
    kill_at: Option<Instant>,
    /// Its host says no more of it.
    gone: bool,
    /// Arrival of the peer's FIN on TCP.
    fin_at: Option<Instant>,
    /// What it has said of its rings, which it has left.
    pub said: Option<Record>,
    /// Arrival of the peer's on TCP.
    record_at: Option<Instant>,
}

/// Two hosts and the channel.
pub struct Pair {
    /// The present.
    pub now: Instant,
    /// The hosts.
    pub side: [Side; 2],
    link_up: bool,
    slots: usize,
    rng: Rng,
    /// Messages delivered, for tests that want to see economy.
    pub delivered: u64,
    /// Messages that were an immediate.
    pub immediates: u64,
    /// The streams go on by TCP when the link is lost.
    pub suspends: bool,
}

/// Shape of a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Seed of delays; by its lowest bit WRITEs may announce themselves, by the next one receive rings may move.
    pub seed: u64,
    /// Exponents of ring sizes: send and receive ring of side 0, then of side 1.
    pub rings: [u8; 4],
    /// Send slots per side.
    pub slots: usize,
    /// Autocork limit.
    pub autocork: u32,
}

impl Shape {
    /// Rings of 16 KiB, plenty of slots, WRITEs that announce themselves.
    pub const PLAIN: Shape = Shape {
        seed: 1,
        rings: [14; 4],
        slots: 16,
        autocork: 65536,
    };
}

/// The place of the receive ring with this number.
fn place(number: usize) -> Place {
    Place {
        addr: number as u64,
        ..Place::default()
    }
}

impl Side {
    /// When the next completion comes, and how many chains have ended by that.
    fn next_end(&self) -> Option<(Instant, usize)> {
        let (front, back) = (self.completing.front()?, self.completing.back()?);
        if self.broken || self.killed {
            // Each is flushed, and told of.
            return Some((front.at, 1));
        }
        let ends = self.completing.iter();
        if let Some((n, end)) = ends.enumerate().find(|(_, end)| end.signaled) {
            return Some((end.at, n + 1));
        }
        let all = self.completing.len();
        match self.conn.awaits_completion() {
            true => Some((back.at, all)),
            false => Some((back.at.after(LATEST), all)),
        }
    }

    /// The bytes of the send ring from a position of the stream on.
    pub fn kept(&self, from: u64, len: u32) -> Vec<u8> {
        let pieces = self.conn.kept(from, len);
        let part = |piece: smc_proto::ring::Piece| {
            let at = piece.offset as usize;
            self.snd[at..at + piece.len as usize].to_vec()
        };
        pieces.iter().flat_map(part).collect()
    }

    /// Offers a receive ring of `size`, if one can be.
    fn offer(&mut self, size: RingSize) {
        let number = self.rmbs.len();
        if let Some((given, actions)) = self.conn.offer_ring(size, place(number)) {
            assert_eq!(usize::from(given), number);
            self.rmbs.push(vec![0; size.bytes() as usize]);
            self.due |= actions.has(Actions::TX_DUE);
        }
    }

    /// Another send ring, of `size`, takes the place of this one if that is empty.
    fn replace_send_ring(&mut self, size: RingSize) {
        if self.conn.replace_send_ring(size) {
            self.snd = vec![0; size.bytes() as usize];
        }
    }

    /// Number of the newest chains of whose end the device does not tell.
    fn silent(&self) -> usize {
        let ends = self.completing.iter().map(|end| end.signaled);
        let all = ends.chain(self.in_air.iter().map(|flight| flight.signaled));
        all.rev().take_while(|signaled| !signaled).count()
    }
}

impl Pair {
    /// Two established connections, whose rings grow to 32 KiB.
    pub fn new(shape: &Shape) -> Pair {
        Pair::growing(shape, 15)
    }

    /// The same with rings that grow to the size with exponent `most`.
    pub fn growing(shape: &Shape, most: u8) -> Pair {
        let most = RingSize::new(1 << most).unwrap();
        let size = |i: usize| RingSize::new(1 << (shape.rings[i] % 16)).unwrap();
        let make = |me: usize| {
            let (snd_size, rmb_size) = (size(2 * me), size(2 * me + 1));
            let mut conn = Conn::new(Params {
                token: AlertToken(100 + me as u32),
                recv: rmb_size,
                send: snd_size,
                recv_most: most,
                send_most: most,
                autocork: shape.autocork,
                drain_idle: DRAIN_IDLE,
            });
            conn.set_peer(Peer {
                token: AlertToken(101 - me as u32),
                ring: size(3 - 2 * me),
                place: place(0),
                immediate: shape.seed % 2 == 1,
                moves: shape.seed % 4 >= 2,
            });
            conn.expose();
            let _ = conn.establish(Instant(0)).unwrap();
            Side {
                conn,
                snd: vec![0; snd_size.bytes() as usize],
                rmbs: vec![vec![0; rmb_size.bytes() as usize]],
                written: Vec::new(),
                urgent: Vec::new(),
                saw_eof: false,
                closed: false,
                waits_for_room: false,
                woken: true,
                freed: false,
                ring_reused: false,
                killed: false,
                due: false,
                in_air: VecDeque::new(),
                completing: VecDeque::new(),
                break_at: None,
                broken: false,
                kill_at: None,
                gone: false,
                fin_at: None,
                said: None,
                record_at: None,
            }
        };
        Pair {
            now: Instant(0),
            side: [make(0), make(1)],
            link_up: true,
            slots: shape.slots.max(1),
            rng: Rng(shape.seed),
            delivered: 0,
            immediates: 0,
            suspends: false,
        }
    }

    /// Carries actions out.
    fn act(&mut self, me: usize, a: Actions) {
        let s = &mut self.side[me];
        if a.has(Actions::URGENT) {
            let (ring, off) = s.conn.urgent_offset().expect("an urgent byte to copy");
            let byte = s.rmbs[usize::from(ring)][off as usize];
            let more = s.conn.store_urgent(byte);
            s.due |= more.has(Actions::TX_DUE);
        }
        s.due |= a.has(Actions::TX_DUE);
        if a.has(Actions::RING_LEFT) {
            // The oldest that is there.
            let left = s.rmbs.iter_mut().find(|ring| !ring.is_empty());
            *left.expect("a ring") = Vec::new();
        }
        if a.has(Actions::GROW) {
            let size = s.conn.wanted_ring().expect("a size");
            s.offer(size);
        }
        s.waits_for_room &= !a.has(Actions::WAKE_WRITER);
        s.woken |= a.has_any(Actions::WAKE_READER | Actions::WAKE_WRITER);
        if a.has(Actions::FREE) {
            assert!(!s.freed, "FREE twice");
            assert!(s.closed, "FREE before close");
            s.freed = true;
            s.ring_reused = s.conn.rmbe_reusable();
        }
        assert_eq!(s.freed, s.conn.is_finished());
        assert!(s.conn.is_consistent(), "{:?}", s.conn);
        assert!(
            !s.conn.wants_tx() || s.due,
            "due but not announced: {:?}",
            s.conn
        );
        if self.side[me].conn.is_suspended() {
            self.say_record(me);
        }
        self.post(me);
    }

    /// The time of the next thing to happen, and what: (kind, side).
    fn next_event(&self) -> Option<(Instant, u8, usize)> {
        let mut best: Option<(Instant, u8, usize)> = None;
        let mut offer = |at: Option<Instant>, kind: u8, me: usize| {
            if let Some(at) = at {
                if best.is_none_or(|b| (at, kind) < (b.0, b.1)) {
                    best = Some((at, kind, me));
                }
            }
        };
        for (me, s) in self.side.iter().enumerate() {
            offer(s.in_air.front().map(|f| f.at), 0, me);
            // Completions stop when the link is lost, until somebody flushes them.
            let done = s.next_end().map(|(at, _)| at);
            offer(done.filter(|_| self.link_up || s.broken || s.killed), 1, me);
            offer(s.kill_at, 2, me);
            offer(s.break_at, 4, me);
            if !s.freed && !s.gone {
                offer(s.conn.next_deadline(), 3, me);
                offer(s.fin_at, 5, me);
                offer(s.record_at, 6, me);
            }
        }
        best
    }

    /// Lets everything happen that happens until `until`.
    pub fn run_until(&mut self, until: Instant) {
        let mut turns = 0u32;
        while let Some((at, kind, me)) = self.next_event() {
            if at > until {
                break;
            }
            turns += 1;
            assert!(turns < 2_000_000, "no end of events");
            self.now = self.now.max(at);
            match kind {
                0 => self.deliver(me),
                1 => self.complete(me),
                2 => self.kill(me),
                4 => self.break_down(me),
                5 => {
                    self.side[me].fin_at = None;
                    let a = self.side[me].conn.on_tcp_fin(self.now);
                    self.act(me, a);
                }
                6 => self.hear_record(me),
                _ => {
                    let before = self.side[me].conn.next_deadline();
                    let waited = self.side[me].conn.awaits_end();
                    let a = self.side[me].conn.on_timer(self.now);
                    assert!(
                        !(waited && a.has(Actions::ERR_RESET))
                            || self.side[1 - me].gone
                            || !self.link_up,
                        "the peer has ended and would have said so: {:?}\npeer: {:?}",
                        self.side[me].conn,
                        self.side[1 - me].conn
                    );
                    self.act(me, a);
                    let after = self.side[me].conn.next_deadline();
                    assert_ne!(before, after, "a deadline that does not move");
                }
            }
        }
        self.now = self.now.max(until);
        self.check_stall();
    }

    /// Fails if nothing is under way and something waits that could move.
    fn check_stall(&mut self) {
        if !self.link_up || self.next_event().is_some() {
            return;
        }
        let ended = |s: &Side| s.killed || s.freed || s.gone;
        for me in 0..2 {
            let s = &mut self.side[me];
            if s.waits_for_room && !ended(s) && s.conn.send_room().is_ok() {
                panic!("not woken although there is room: {:?}", s.conn);
            }
            let (s, peer) = (&self.side[me], &self.side[1 - me]);
            let alive = !ended(s) && !ended(peer);
            if !alive || !s.conn.state().may_send() {
                continue;
            }
            let ended = s.conn.flags().1 .1.any(StateFlags::ANY_CLOSE);
            let starved = matches!(peer.conn.recv_state(), RecvState::Empty | RecvState::Eof);
            if s.conn.out_queue_unsent() > 0 && starved && !ended {
                panic!("stall: {:?}\npeer: {:?}", s.conn, peer.conn);
            }
        }
    }

    /// Reports whether a side has finished.
    pub fn is_freed(&self, me: usize) -> bool {
        self.side[me].freed
    }

    /// Reports whether the link still works.
    pub fn link_up(&self) -> bool {
        self.link_up
    }

    /// Both programs read to the end and close; everything must come to an end.
    pub fn finish(&mut self) {
        for _ in 0..10_000 {
            let mut moved = 0;
            for me in 0..2 {
                while self.read(me, 100_000, false) > 0 {
                    moved += 1;
                }
            }
            let t = self.now.after(Span::from_millis(1));
            self.run_until(t);
            let waiting = (0..2).any(|me| !self.side[me].in_air.is_empty());
            if moved == 0 && !waiting && self.side.iter().all(|s| s.completing.is_empty()) {
                break;
            }
        }
        self.run_until(self.now.after(Span::from_secs(1)));
        for me in 0..2 {
            self.read(me, 100_000, false);
        }
        for me in [1, 0] {
            self.op(me, Op::Close);
        }
        // Long enough for drains, the answer to what ends them, and for the later side to notice a lost link.
        self.run_until(self.now.after(Span::from_secs(200)));
        for me in 0..2 {
            let s = &self.side[me];
            if s.gone {
                continue;
            }
            let quiet = !s.killed && s.conn.flags().1 .1.any(StateFlags::ANY_CLOSE);
            assert!(
                s.freed
                    || !self.side[1 - me].gone
                        && !quiet
                        && self.side[1 - me].conn.flags().0 .1 == StateFlags::NONE,
                "side {me} never ends: {:?}\npeer: {:?}",
                s.conn,
                self.side[1 - me].conn
            );
        }
    }
}
