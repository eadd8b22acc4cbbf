// SPDX-License-Identifier: GPL-2.0

//! Two ends of a connection that may be promoted, with the bytes of their programs: TCP and two rings between them,
//! each as slow as the caller likes. One of the two may be hostile, and say anything by TCP and by its ring.
//!
//! An end does with its [`Promotion`] and its [`Route`] what the kernel does (`smc/stream/remote.rs`), one step at a
//! time.

use smc_proto::{
    path::{Head, Route},
    promotion::{may_cut, Promotion, Side, Stage, Step},
    wire::promotion::Mark,
};
use std::collections::VecDeque;

/// What comes by a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Mark(Mark),
    /// Eight bytes that are no mark.
    Noise,
    Byte(u8),
    /// The peer has ended the SMC-R connection.
    End,
}

/// One end: what its program and its kernel know, and what is on the way to it.
#[derive(Debug)]
struct End {
    machine: Promotion,
    /// On its way by the ring and by TCP.
    ring: VecDeque<Item>,
    tcp: VecDeque<u8>,
    /// TCP has the peer's end behind those.
    fin: bool,
    route: Route,
    /// Positions in TCP's streams: of the next byte to be sent, and to be read.
    sent: u32,
    taken: u32,
    /// Bytes of its program, by both ways.
    written: u64,
    read: u64,
    /// It has an SMC-R connection.
    has_conn: bool,
    decides: bool,
    said_ready: bool,
    heard_go: bool,
    closed: bool,
    reset: bool,
    hostile: bool,
}

impl End {
    fn new(side: Side, sent: u32, taken: u32) -> Self {
        Self {
            machine: Promotion::new(side),
            ring: VecDeque::new(),
            tcp: VecDeque::new(),
            fin: false,
            route: Route::TCP,
            sent,
            taken,
            written: 0,
            read: 0,
            has_conn: false,
            decides: false,
            said_ready: false,
            heard_go: false,
            closed: false,
            reset: false,
            hostile: false,
        }
    }

    fn turned(&self) -> bool {
        self.machine.stage() == Stage::Turned
    }

    /// Position after what has arrived by TCP.
    fn arrived(&self) -> u32 {
        self.taken.wrapping_add(self.tcp.len() as u32)
    }

    fn is_over(&self) -> bool {
        self.closed || self.reset
    }
}

/// Both ends: the client, then the server.
#[derive(Debug)]
pub struct Ends {
    all: [End; 2],
    /// The link between them is lost.
    lost: bool,
}

/// What happens at an end.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Its kernel looks at what has come by the ring, and takes one step.
    Look,
    /// It says whether it would be promoted.
    Decide(bool),
    /// No writer is inside: it turns, if it is to.
    Turn,
    /// Something keeps it on TCP from now on.
    Refuse,
    /// Its program writes or reads so many bytes, closes.
    Write(u8),
    Read(u8),
    Close,
    /// The link is lost, and of what was on its way to each end by the ring so much has come.
    Lose(u8),
    /// After both have left another handshake is through.
    Again,
    /// Only at a hostile end: this by the ring, by TCP.
    Say(Mark),
    Noise,
    Data(u8),
    Abort,
    Tcp(u8),
    Fin,
}

impl Op {
    /// Any bytes as an operation of an end that sends by TCP from `position` on.
    fn from_raw([kind, a, b]: [u8; 3], position: u32) -> Self {
        match kind & 0x1f {
            0..=4 => Self::Look,
            5 | 6 => Self::Decide(a % 8 != 0),
            7 | 8 => Self::Turn,
            9 => Self::Refuse,
            10..=12 => Self::Write(a % 16),
            13..=15 => Self::Read(a),
            16 => Self::Close,
            17 => Self::Lose(a % 8),
            18 => Self::Again,
            19 => Self::Say(Mark::Ready),
            20 | 21 => Self::Say(Mark::Go),
            22..=24 => Self::Say(Mark::Cut(match a % 8 {
                // Around what TCP has said, and far from it.
                0..=5 => position.wrapping_add(u32::from(b)).wrapping_sub(16),
                6 => position.wrapping_add(u32::from(b) << 24),
                _ => u32::from_be_bytes([b, 0, 0, a]),
            })),
            25 => Self::Noise,
            26 => Self::Data(a % 16),
            27 => Self::Abort,
            28..=30 => Self::Tcp(a % 16),
            _ => Self::Fin,
        }
    }
}

impl Ends {
    /// Two ends whose streams of TCP begin here, with an SMC-R connection at both, and `hostile` of which one is that.
    pub fn new(client: u32, server: u32, hostile: Option<Side>) -> Self {
        let mut ends = Self {
            all: [
                End::new(Side::Client, client, server),
                End::new(Side::Server, server, client),
            ],
            lost: false,
        };
        if let Some(side) = hostile {
            ends.all[usize::from(side == Side::Server)].hostile = true;
        }
        ends.offered();
        ends
    }

    /// Does what any three bytes say.
    pub fn raw(&mut self, raw: [u8; 3]) {
        let server = raw[0] & 0x80 != 0;
        let position = self.all[usize::from(server)].sent;
        self.op(server, Op::from_raw(raw, position));
    }

    /// Tells whether what both write goes by the rings.
    pub fn both_have_turned(&self) -> bool {
        self.all.iter().all(End::turned)
    }

    fn offered(&mut self) {
        for at in [1, 0] {
            let end = &mut self.all[at];
            end.ring.clear();
            end.has_conn = true;
            (end.decides, end.said_ready, end.heard_go) = (false, false, false);
        }
        for at in [1, 0] {
            if !self.all[at].hostile {
                let step = self.all[at].machine.offered();
                self.perform(at, step);
            }
        }
    }

    fn both(&mut self, at: usize) -> (&mut End, &mut End) {
        let [client, server] = &mut self.all;
        match at {
            0 => (client, server),
            _ => (server, client),
        }
    }

    /// Puts something into the ring of the peer of `at`.
    fn put(&mut self, at: usize, item: Item) {
        let lost = self.lost;
        let (_, peer) = self.both(at);
        if peer.has_conn && !lost {
            peer.ring.push_back(item);
        }
    }

    fn perform(&mut self, at: usize, step: Step) {
        match step {
            Step::Wait | Step::Turn => (),
            Step::Decide => self.all[at].decides = true,
            Step::Say(mark) => {
                self.all[at].said_ready |= mark == Mark::Ready;
                self.put(at, Item::Mark(mark));
            }
            Step::Leave => {
                self.put(at, Item::End);
                let end = &mut self.all[at];
                assert!(!end.turned() && end.route == Route::TCP);
                (end.decides, end.has_conn) = (false, false);
            }
            // There is no side connection any more.
            Step::Ask | Step::Reset => {
                self.put(at, Item::End);
                self.reset(at);
            }
        }
        self.show(at);
    }

    /// TCP's connection is reset, at both ends.
    fn reset(&mut self, at: usize) {
        let hostile = self.all.iter().any(|end| end.hostile);
        let end = &mut self.all[at];
        // Two correct ends do so only where they cannot know of each other.
        assert!(hostile || self.lost, "{end:?}");
        for end in &mut self.all {
            end.reset = true;
        }
    }

    fn show(&mut self, at: usize) {
        let end = &mut self.all[at];
        if let (Some(cut), true) = (end.machine.peer_cut(), end.route == Route::TCP) {
            end.route = Route::TCP.promoted(cut).expect("the first");
            end.route = end.route.passed(end.taken, false);
        }
    }

    /// The next step of an end, as far as it has not to wait for a writer.
    fn look(&mut self, at: usize) -> bool {
        let lost = self.lost;
        let end = &mut self.all[at];
        if !end.has_conn || end.reset {
            return false;
        }
        if end.machine.awaits_mark() {
            let item = end.ring.front().copied();
            if let Some(Item::Mark(_) | Item::Noise | Item::Byte(_)) = item {
                end.ring.pop_front();
                let arrived = end.arrived();
                let step = match item {
                    Some(Item::Mark(Mark::Cut(cut))) if !may_cut(cut, arrived, end.fin) => None,
                    Some(Item::Mark(mark)) => end.machine.heard(mark).ok(),
                    _ => None,
                };
                end.heard_go |= item == Some(Item::Mark(Mark::Go)) && step.is_some();
                assert!(step.is_some() || self.all[1 - at].hostile, "{item:?}");
                self.perform(at, step.unwrap_or(Step::Reset));
                return true;
            }
        }
        let end = &mut self.all[at];
        if let Some(cut) = end.machine.peer_cut() {
            if !may_cut(cut, end.arrived(), end.fin) {
                assert!(self.all[1 - at].hostile, "{self:?}");
                self.perform(at, Step::Reset);
                return true;
            }
        }
        let ended = end.ring.front() == Some(&Item::End);
        if end.machine.stage().is_apart() && (ended || lost && end.ring.is_empty()) {
            let before = end.machine.stage();
            let step = end.machine.ended(ended);
            self.perform(at, step);
            let over = matches!(step, Step::Ask | Step::Reset);
            return over || before != self.all[at].machine.stage();
        }
        if end.turned() && ended && end.machine.peer_cut().is_none() {
            let step = end.machine.ended(true);
            self.perform(at, step);
            return true;
        }
        if end.turned() && lost {
            // The SMC-R connection was the socket's.
            self.reset(at);
            return true;
        }
        false
    }

    /// Leaves TCP with the next byte.
    fn turn(&mut self, at: usize) {
        let lost = self.lost;
        let end = &mut self.all[at];
        // The peer has agreed: it has turned itself, or said that it will.
        let agreed = end.machine.peer_cut().is_some() || end.said_ready && end.heard_go;
        assert!(agreed || end.closed, "{end:?}");
        if lost && end.machine.peer_cut().is_none() {
            // It cannot be said.
            let step = end.machine.ended(false);
            return self.perform(at, step);
        }
        let cut = end.sent;
        self.put(at, Item::Mark(Mark::Cut(cut)));
        self.all[at].machine.turned(cut);
        self.show(at);
    }

    fn close(&mut self, at: usize) {
        while self.look(at) {}
        if self.all[at].reset {
            return;
        }
        let step = self.all[at].machine.refuse();
        self.perform(at, step);
        let end = &mut self.all[at];
        end.closed = true;
        if matches!(end.machine.stage(), Stage::Bound | Stage::Due) {
            self.turn(at);
        }
        if self.all[at].turned() {
            self.put(at, Item::End);
        }
        self.all[at].has_conn = false;
        self.both(at).1.fin = true;
    }

    fn write(&mut self, at: usize, bytes: u8) {
        for _ in 0..bytes {
            let end = &mut self.all[at];
            let byte = (end.written as u8).wrapping_add(at as u8);
            end.written += 1;
            if end.turned() {
                self.put(at, Item::Byte(byte));
            } else {
                end.sent = end.sent.wrapping_add(1);
                self.both(at).1.tcp.push_back(byte);
            }
        }
    }

    /// Reads a byte, wherever it is.
    fn read_one(&mut self, at: usize) -> bool {
        let hostile = self.all[1 - at].hostile;
        let end = &mut self.all[at];
        end.route = end.route.passed(end.taken, false);
        let byte = match end.route.head() {
            Head::Tcp | Head::Until(_) => {
                assert_ne!(end.route.left(end.taken), 0);
                let byte = end.tcp.pop_front();
                end.taken = end.taken.wrapping_add(u32::from(byte.is_some()));
                byte
            }
            Head::Ring => {
                assert_eq!(end.machine.peer_cut(), Some(end.taken), "bytes left out");
                match end.ring.front() {
                    Some(Item::Byte(byte)) => {
                        let byte = *byte;
                        end.ring.pop_front();
                        Some(byte)
                    }
                    // Once the marks are through all is the program's, as it stands.
                    Some(Item::Mark(_) | Item::Noise) if hostile => {
                        end.ring.pop_front();
                        None
                    }
                    _ => None,
                }
            }
        };
        let Some(byte) = byte else {
            return false;
        };
        if !hostile {
            let due = (end.read as u8).wrapping_add(1 - at as u8);
            assert_eq!(byte, due, "byte {}", end.read);
        }
        end.read += 1;
        true
    }

    /// Does this at an end, as far as it is possible there.
    pub fn op(&mut self, server: bool, op: Op) {
        let at = usize::from(server);
        if self.all[at].hostile {
            return self.hostile(at, op);
        }
        let end = &mut self.all[at];
        if end.is_over() {
            return;
        }
        match op {
            Op::Look => drop(self.look(at)),
            Op::Decide(yes) if end.decides => {
                end.decides = false;
                let step = match yes {
                    true => end.machine.agree(),
                    false => end.machine.refuse(),
                };
                self.perform(at, step);
            }
            Op::Turn if end.has_conn && end.machine.stage() == Stage::Due => self.turn(at),
            Op::Refuse => {
                let step = end.machine.refuse();
                self.perform(at, step);
            }
            Op::Write(bytes) => self.write(at, bytes),
            Op::Read(bytes) => drop((0..bytes).take_while(|_| self.read_one(at)).count()),
            Op::Close => self.close(at),
            Op::Lose(come) if !self.lost => {
                for end in &mut self.all {
                    end.ring.truncate(usize::from(come));
                }
                self.lost = true;
            }
            Op::Again if !self.lost => {
                let on_tcp = |end: &End| end.hostile || !end.has_conn && !end.is_over();
                if self.all.iter().all(on_tcp) {
                    self.offered();
                }
            }
            _ => (),
        }
    }

    fn hostile(&mut self, at: usize, op: Op) {
        if self.all[1 - at].is_over() {
            return;
        }
        match op {
            Op::Say(mark) => self.put(at, Item::Mark(mark)),
            Op::Noise => self.put(at, Item::Noise),
            Op::Data(bytes) => (0..bytes).for_each(|byte| self.put(at, Item::Byte(byte))),
            Op::Abort => self.put(at, Item::End),
            Op::Tcp(bytes) if !self.all[1 - at].fin => {
                let end = &mut self.all[at];
                end.sent = end.sent.wrapping_add(u32::from(bytes));
                self.both(at).1.tcp.extend(0..bytes);
            }
            Op::Fin => self.both(at).1.fin = true,
            _ => (),
        }
    }

    /// Lets everything happen that is still to come, and checks what has become of both.
    pub fn finish(mut self) {
        for _ in 0..16 {
            for server in [true, false] {
                for op in [
                    Op::Look,
                    Op::Decide(true),
                    Op::Look,
                    Op::Turn,
                    Op::Read(255),
                ] {
                    self.op(server, op);
                }
            }
        }
        while [false, true].into_iter().any(|server| {
            let at = usize::from(server);
            let end = &self.all[at];
            !end.hostile && !end.is_over() && self.read_one(at)
        }) {}
        if self.all.iter().any(|end| end.reset || end.hostile) {
            return;
        }
        let [client, server] = &self.all;
        for (end, peer) in [(client, server), (server, client)] {
            // Nobody reads after close().
            if !end.closed {
                assert_eq!(end.read, peer.written, "{self:?}");
            }
        }
        if !client.closed && !server.closed {
            assert_eq!(client.turned(), server.turned(), "{self:?}");
            assert!(!self.lost || !client.turned(), "{self:?}");
        }
    }
}
