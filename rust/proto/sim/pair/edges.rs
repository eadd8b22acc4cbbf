// SPDX-License-Identifier: GPL-2.0

//! Programs that go on at an event only, as with an edge-triggered poller, while rings grow and shrink.
//!
//! Side 0 sends a stream, side 1 sends as much back. Each goes on until it finds neither bytes nor room, and then sleeps
//! until it is woken; nobody else moves anything. Between any two steps of theirs anything may happen that is under way, in
//! any order: arrivals, completions, and the looks at silent rings, of which the second in a row has a ring shrink.

use super::super::rng::Rng;
use super::{Op, Pair, Shape};
use smc_proto::conn::Actions;
use smc_proto::cursor::{Pos, RingSize};

/// Bytes of the largest write of programs whose sizes are powers of two.
const SIZE: u32 = 1 << 14;

/// What a program does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Sleeps,
    Reads,
    Writes,
}

/// What the last look at the rings of a side has found.
#[derive(Clone, Copy, Default)]
struct Looks {
    /// Bytes received, if the receive ring was larger than the first one and empty.
    recv: Option<Pos>,
    /// Bytes written, if none of them was needed any more.
    send: Option<Pos>,
}

/// Two programs, and their pair.
pub struct Edges {
    /// The connections.
    pub pair: Pair,
    /// Moves to a smaller receive ring that were offered.
    pub shrunk: u32,
    rng: Rng,
    total: usize,
    doing: [Doing; 2],
    /// Bytes that side 1 has read and not sent back.
    held: usize,
    /// A larger send ring for which there is memory by now.
    larger: [Option<RingSize>; 2],
    looks: [Looks; 2],
    /// The first send rings.
    first: [RingSize; 2],
    /// What stands still for so many turns: all that side 0 or 1 sends, or the program of side 0 or 1.
    still: (u64, u64),
    /// Most bytes of a read.
    part: u32,
    /// How seldom rings are looked at.
    pause: u64,
    /// How seldom a step of another kind comes between two of a kind.
    alone: u64,
}

impl Edges {
    /// Side 0 sends `total` bytes over a pair whose rings grow to the size with exponent `most`.
    pub fn new(shape: &Shape, most: u8, total: usize) -> Edges {
        let pair = Pair::growing(shape, most);
        let mut rng = Rng(shape.seed ^ 0x5eed);
        let first = [0, 1].map(|me: usize| pair.side[me].conn.rings().0);
        let part = [SIZE, 12_500][rng.below(2) as usize];
        let pause = 8 << rng.below(5);
        let alone = 1 << rng.below(6);
        Edges {
            pair,
            shrunk: 0,
            rng,
            total,
            doing: [Doing::Sleeps; 2],
            held: 0,
            larger: [None; 2],
            looks: [Looks::default(); 2],
            first,
            still: (0, 0),
            part,
            pause,
            alone,
        }
    }

    /// Lets things happen until all has come back.
    ///
    /// # Panics
    ///
    /// If nothing happens any more before that.
    pub fn run(&mut self) {
        let mut quiet = 0;
        while self.pair.side[0].conn.positions().consumed < self.total as u64 {
            if self.rng.one_in(100) {
                self.still = (self.rng.below(4), self.rng.below(500));
            }
            self.still.1 = self.still.1.saturating_sub(1);
            let happens = self.happens();
            if self.rng.one_in(self.pause) {
                let me = self.rng.below(2) as usize;
                self.look(me);
            }
            quiet = if happens { 0 } else { quiet + 1 };
            assert!(
                quiet < 10_000,
                "stall of {:?}: {:?}\npeer: {:?}",
                self.doing,
                self.pair.side[0].conn,
                self.pair.side[1].conn
            );
        }
    }

    /// Has a few things of a kind happen, one after the other. Whether there were any.
    fn happens(&mut self) -> bool {
        let kind = self.rng.below(6);
        let me = (kind % 2) as usize;
        // A completion needs the acknowledgement, which is something that the peer sends.
        let part = [0, 1, 1, 0, 2, 3][kind as usize];
        if self.still.1 > 0 && part == self.still.0 {
            return false;
        }
        let mut some = false;
        while match kind {
            0 | 1 => self.pair.arrive(me),
            2 | 3 => self.pair.completes(me),
            _ => self.step(me),
        } {
            some = true;
            if self.rng.one_in(self.alone) {
                break;
            }
        }
        some
    }

    /// Number of receive rings after the first two.
    pub fn moved(&self) -> usize {
        self.pair.side.iter().map(|side| side.rmbs.len() - 1).sum()
    }

    /// A step of the program of `me`; whether there was one.
    fn step(&mut self, me: usize) -> bool {
        if self.doing[me] == Doing::Sleeps {
            let side = &mut self.pair.side[me];
            if !core::mem::take(&mut side.woken) {
                return false;
            }
            // As the poller, who has it tell of room again if there is none.
            let plain = side.conn.plain().expect("open, and nothing urgent");
            if plain.readable > 0 || plain.has_room {
                let writes = me == 1 && self.held > 0;
                self.doing[me] = if writes { Doing::Writes } else { Doing::Reads };
            }
            return true;
        }
        self.doing[me] = match (me, self.doing[me]) {
            (0, Doing::Reads) => match self.pair.read(0, self.part, false) {
                0 => Doing::Writes,
                _ => Doing::Reads,
            },
            (0, _) => {
                let left = self.total - self.pair.side[0].written.len();
                let wanted = left.min(self.piece());
                match wanted == 0 || self.write(0, wanted) == Some(0) {
                    true => Doing::Sleeps,
                    false => Doing::Writes,
                }
            }
            (_, Doing::Reads) => {
                self.held = self.pair.read(1, self.part, false) as usize;
                match self.held {
                    0 => Doing::Sleeps,
                    _ => Doing::Writes,
                }
            }
            _ => {
                let written = self.write(1, self.held);
                self.held -= written.unwrap_or(0);
                match (written, self.held) {
                    (Some(0), _) => Doing::Sleeps,
                    (_, 0) => Doing::Reads,
                    _ => Doing::Writes,
                }
            }
        };
        true
    }

    /// Bytes of the next write of side 0: a size that programs have, or any.
    fn piece(&mut self) -> usize {
        match self.part {
            SIZE => 1 << (12 + self.rng.below(3)),
            _ => 1 + self.rng.below(10_000) as usize,
        }
    }

    /// Writes at most `wanted` bytes. Returns how many, or `None` if that goes on in another step, since making a larger
    /// send ring sleeps.
    fn write(&mut self, me: usize, wanted: usize) -> Option<usize> {
        let side = &mut self.pair.side[me];
        match self.larger[me].take() {
            Some(larger) => side.replace_send_ring(larger),
            None => self.larger[me] = side.conn.wanted_send_ring(),
        }
        if self.larger[me].is_some() {
            return None;
        }
        let before = self.pair.side[me].written.len();
        self.pair.op(me, Op::Write(wanted as u16));
        Some(self.pair.side[me].written.len() - before)
    }

    /// Looks whether the rings of `me` are silent.
    fn look(&mut self, me: usize) {
        let side = &mut self.pair.side[me];
        let idle = side.conn.shrinkable();
        let at = idle.map(|(at, _)| at);
        let before = core::mem::replace(&mut self.looks[me].recv, at);
        if let Some((_, size)) = idle.filter(|_| at == before) {
            side.offer(size);
            self.shrunk += u32::from(side.conn.shrinkable().is_none());
        }
        // A writer needs the ring.
        if self.doing[me] != Doing::Writes {
            let unused = side.conn.send_ring_unused();
            let before = core::mem::replace(&mut self.looks[me].send, unused);
            if unused.is_some() && unused == before {
                side.replace_send_ring(self.first[me]);
            }
        }
        self.pair.act(me, Actions::NONE);
    }
}
