// SPDX-License-Identifier: GPL-2.0

//! What the threads share, and their store buffers.

use super::{reader, taker, writer, Config, Report};
use smc_proto::path::{Head, Route};

/// Most bytes of a direction.
pub const MOST: usize = 6;
/// Position of the first byte in TCP's stream: it wraps.
const FIRST: u32 = u32::MAX - 1;

/// A variable that is stored into without a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Var {
    Head,
    Tail,
    Starving,
    /// Position of the first byte of the memory of the writer's ring.
    First,
    /// The unlocking of either lock.
    Writer,
    Reader,
}

/// A thread that has a store buffer; the others store only while they have both locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thread {
    Writer,
    Reader,
}

/// Place of a thread in the socket's wait queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wait {
    #[default]
    No,
    Queued,
    Woken,
}

impl Wait {
    pub fn wake(&mut self) {
        if *self == Wait::Queued {
            *self = Wait::Woken;
        }
    }
}

/// Memory of a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ring {
    pub first: u8,
    pub bytes: Vec<Option<u8>>,
}

impl Ring {
    pub fn new(first: u8, size: u8) -> Self {
        Self {
            first,
            bytes: vec![None; size.into()],
        }
    }

    pub fn place(&mut self, first: u8, position: u8) -> &mut Option<u8> {
        let mask = self.bytes.len() - 1;
        &mut self.bytes[usize::from(position.wrapping_sub(first)) & mask]
    }
}

/// TCP's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tcp {
    pub bytes: Vec<u8>,
    pub arrived: usize,
    pub taken: usize,
    pub fin: bool,
    pub fin_arrived: bool,
}

impl Tcp {
    pub fn position(&self) -> u32 {
        FIRST.wrapping_add(self.taken as u32)
    }

    pub fn end(&self) -> u32 {
        FIRST.wrapping_add(self.bytes.len() as u32)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub route: u64,
    pub cut: u32,
    pub size: u8,
    pub head: u8,
    pub tail: u8,
    pub starving: u8,
    /// The rings that exist, and which of them is the writer's and the reader's.
    pub rings: Vec<Ring>,
    pub writer_ring: Option<u8>,
    pub reader_ring: Option<u8>,
    pub writer_locked: bool,
    pub reader_locked: bool,
    pub tcp: Tcp,
    /// Both directions are bound to TCP.
    pub bound: bool,
    pub writer_waits: Wait,
    pub reader_waits: Wait,
    /// The next byte to send, and the next one to be read.
    pub sent: u8,
    pub read: u8,
    pub buffers: [Vec<(Var, u8)>; 2],
    pub writer: writer::Writer,
    pub reader: reader::Reader,
    pub taker: taker::Taker,
    pub retirer: taker::Retirer,
}

/// What follows a state; or a flaw.
pub type Steps<'a> = &'a mut Vec<State>;

impl State {
    pub fn new(config: &Config) -> Self {
        assert!(usize::from(config.bytes) <= MOST);
        Self {
            route: Route::TCP.word(),
            cut: 0,
            size: 0,
            head: 0,
            tail: 0,
            starving: 0,
            rings: Vec::new(),
            writer_ring: None,
            reader_ring: None,
            writer_locked: false,
            reader_locked: false,
            tcp: Tcp::default(),
            bound: false,
            writer_waits: Wait::No,
            reader_waits: Wait::No,
            sent: 0,
            read: 0,
            buffers: [Vec::new(), Vec::new()],
            writer: writer::Writer::Begin,
            reader: reader::Reader::Lock,
            taker: taker::Taker::Idle(config.give_backs),
            retirer: match config.retires {
                true => taker::Retirer::Begin,
                false => taker::Retirer::Done,
            },
        }
    }

    pub fn route(&self) -> Route {
        Route::from_word(self.route)
    }

    /// Compare-and-exchange of the route.
    pub fn replace_route(&mut self, before: Route, route: Route) -> bool {
        let same = self.route == before.word();
        if same {
            self.route = route.word();
        }
        same
    }

    fn place(&mut self, var: Var) -> &mut u8 {
        match var {
            Var::Head => &mut self.head,
            Var::Tail => &mut self.tail,
            Var::Starving => &mut self.starving,
            _ => unreachable!("not a number"),
        }
    }

    /// What `thread` reads: its own last store, if that is on its way still.
    pub fn load(&self, thread: Thread, var: Var) -> u8 {
        let own = self.buffers[thread as usize].iter().rev();
        own.copied()
            .find_map(|(to, value)| (to == var).then_some(value))
            .unwrap_or(match var {
                Var::Head => self.head,
                Var::Tail => self.tail,
                Var::Starving => self.starving,
                Var::First => self.rings[usize::from(self.writer_ring.unwrap_or(0))].first,
                Var::Writer | Var::Reader => unreachable!("only stored"),
            })
    }

    pub fn store(&mut self, thread: Thread, var: Var, value: u8) {
        self.buffers[thread as usize].push((var, value));
    }

    /// Lets the oldest store of a thread become visible.
    fn drain_one(&mut self, thread: Thread) {
        let (var, value) = self.buffers[thread as usize].remove(0);
        match var {
            Var::Writer => self.writer_locked = false,
            Var::Reader => self.reader_locked = false,
            Var::First => {
                if let Some(ring) = self.writer_ring {
                    self.rings[usize::from(ring)].first = value;
                }
            }
            _ => *self.place(var) = value,
        }
    }

    /// A full barrier, which every locked operation is, too.
    pub fn barrier(&mut self, thread: Thread) {
        while !self.buffers[thread as usize].is_empty() {
            self.drain_one(thread);
        }
    }

    /// Makes a ring.
    pub fn make(&mut self, ring: Ring) -> u8 {
        self.rings.push(ring);
        (self.rings.len() - 1) as u8
    }

    /// Forgets rings that nobody has.
    pub fn tidy(&mut self) {
        let mut at = 0u8;
        while usize::from(at) < self.rings.len() {
            if self.writer_ring == Some(at) || self.reader_ring == Some(at) {
                at += 1;
                continue;
            }
            self.rings.remove(at.into());
            for ring in [&mut self.writer_ring, &mut self.reader_ring] {
                *ring = ring.map(|number| if number > at { number - 1 } else { number });
            }
        }
    }

    /// Checks that a byte is the next one.
    pub fn reads(&mut self, byte: Option<u8>) -> Result<(), String> {
        if byte != Some(self.read) {
            return Err(format!("out of order: {byte:?} is read in {self:?}"));
        }
        self.read += 1;
        Ok(())
    }

    pub fn is_end(&self) -> bool {
        self.writer == writer::Writer::Done && self.reader == reader::Reader::Done
    }

    pub fn check_end(&self, config: &Config) -> Result<(), String> {
        if self.read != config.bytes || matches!(self.route().head(), Head::Until(_)) {
            return Err(format!("a cut was not passed: {self:?}"));
        }
        Ok(())
    }

    /// Finds all steps.
    pub fn steps(
        &self,
        config: &Config,
        report: &mut Report,
        next: Steps<'_>,
    ) -> Result<(), String> {
        // While the writer writes into the ring, TCP ends at the cut.
        if self.route().writes_ring() && self.tcp.end() != self.cut {
            return Err(format!("beyond the cut: {self:?}"));
        }
        for thread in [Thread::Writer, Thread::Reader] {
            if !self.buffers[thread as usize].is_empty() {
                let mut state = self.clone();
                state.drain_one(thread);
                next.push(state);
            }
        }
        // TCP delivers, and wakes.
        if self.tcp.arrived < self.tcp.bytes.len() || self.tcp.fin && !self.tcp.fin_arrived {
            let mut state = self.clone();
            match self.tcp.arrived < self.tcp.bytes.len() {
                true => state.tcp.arrived += 1,
                false => state.tcp.fin_arrived = true,
            }
            state.reader_waits.wake();
            next.push(state);
        }
        writer::steps(self, config, report, next)?;
        reader::steps(self, config, next)?;
        taker::steps(self, config, report, next)
    }
}
