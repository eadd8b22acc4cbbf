// SPDX-License-Identifier: GPL-2.0

//! Two hosts with three channels between them that die independently: the TCP connection that a program opened, the RDMA
//! link, and the side connection over which the two kernels make an SMC-R connection for it. The two programs write, read,
//! end and close as they like; meanwhile the stream is promoted, the link is lost, another one comes.
//!
//! What is tested is the library's own [`Conn`](smc_proto::conn::Conn), [`Promotion`](smc_proto::promotion::Promotion),
//! [`Route`](smc_proto::path::Route) and [`Record`](smc_proto::wire::promotion::Record), put together as the kernel does
//! (`smc/stream/remote`). Each byte is checked when it is read. A connection is reset only for a reason in [`Why`] that
//! holds; otherwise every byte that was written comes, and so does the end.
//!
//! [`end`]: a host's kernel and its TCP. [`rings`]: its SMC-R connections, and the link.

use super::rng::Rng;
use rings::Rings;
use smc_proto::promotion::{Side, Stage};
use smc_proto::time::{Instant, Span};
use smc_proto::wire::promotion::Mark;
use std::collections::VecDeque;

pub mod end;
pub mod rings;

/// Why TCP's connection was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has died of itself.
    Died,
    /// The link was lost while an end did not know of the other whether it has turned.
    Turning,
    /// The link was lost, and the connection was not to go on: an end had closed, or did not know that it may.
    Killed,
    /// The peer has aborted.
    Peer,
    /// An end has closed without having read all, or while the stream was between two carriers.
    Closed,
    /// The peer has ended TCP's stream in the midst of a return.
    Over,
}

/// Byte of a stream.
fn byte(at: usize, position: u64) -> u8 {
    let mixed = position.wrapping_add(at as u64 * 77 + 1);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// How far a side connection has come.
#[derive(Debug)]
enum Call {
    /// The server has the proposal.
    Proposed,
    /// The client has the accept.
    Accepted(Rings),
    /// The server has the confirm.
    Confirmed(Rings),
}

/// The side connection of which an SMC-R connection has come: marks on their way to each end, and which end has it.
#[derive(Debug, Default)]
struct Kept {
    to: [VecDeque<Mark>; 2],
    has: [bool; 2],
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// The kernel of an end looks at what has come.
    Look,
    /// Its program writes or reads so many bytes, ends its direction, closes.
    Write(u8),
    Read(u8),
    Shut,
    Close,
    /// TCP brings so many bytes.
    Tcp(u8),
    /// A chain arrives at an end; a completion does.
    Arrive,
    Complete,
    /// The client opens a side connection; a message of it arrives; it dies.
    Call(bool),
    Talk,
    Hang,
    /// The client has waited long enough for an answer.
    GiveUp,
    /// An end would have its rings left.
    Leave,
    /// The link is lost: how many chains arrive, how many are acknowledged that no software sees, and whether devices say of
    /// those that have arrived that they have failed.
    Lose(u8, u8, bool),
    /// An end learns that.
    Learn,
    /// TCP's connection dies.
    Die,
}

impl Op {
    /// Any bytes as an operation.
    pub fn from_raw([kind, a, b]: [u8; 3]) -> Self {
        match kind & 0x3f {
            0..=9 => Self::Look,
            10..=15 => Self::Write(a % 40),
            16..=22 => Self::Read(a % 64),
            23..=28 => Self::Tcp(a % 64),
            29..=35 => Self::Arrive,
            36..=41 => Self::Complete,
            42..=44 => Self::Call(a % 16 != 0),
            45..=50 => Self::Talk,
            51 if a % 4 == 0 => Self::Hang,
            52 if a % 8 == 0 => Self::GiveUp,
            53 | 54 => Self::Leave,
            55 if a % 2 == 0 => Self::Lose(a / 2 % 4, if b < 230 { 0 } else { b % 4 }, b & 1 != 0),
            56..=59 => Self::Learn,
            60 if a % 16 == 0 => Self::Shut,
            61 if a % 32 == 0 => Self::Close,
            62 if a == 0 => Self::Die,
            _ => Self::Look,
        }
    }
}

/// The two hosts: the client's, then the server's.
pub struct Hosts {
    now: Instant,
    ends: [end::End; 2],
    /// The link works, and carries the connections from this number on.
    up: bool,
    first_of_link: u32,
    /// Number of the next attempt.
    next: u32,
    call: Option<Call>,
    kept: Kept,
    /// Side connections have died.
    hung: bool,
    /// The last loss: devices say of all requests that they have failed.
    failed: bool,
    /// The connection is over, by a reset.
    over: bool,
    /// What has become of it.
    pub losses: u32,
    pub promoted: u32,
    pub returned: u32,
    pub reset: Option<Why>,
    was_hot: bool,
}

impl core::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (losses, up, call) = (self.losses, self.up, &self.call);
        writeln!(
            f,
            "link up {up}, {losses} losses, side connection {}",
            call.is_some()
        )?;
        self.ends
            .iter()
            .try_for_each(|end| writeln!(f, "  {end:?}"))
    }
}

impl Hosts {
    /// A connection whose streams of TCP begin here.
    pub fn new(client: u32, server: u32) -> Self {
        Self {
            now: Instant(0),
            ends: [
                end::End::new(Side::Client, client, server),
                end::End::new(Side::Server, server, client),
            ],
            up: true,
            first_of_link: 0,
            next: 1,
            call: None,
            kept: Kept::default(),
            hung: false,
            failed: false,
            over: false,
            losses: 0,
            promoted: 0,
            returned: 0,
            reset: None,
            was_hot: false,
        }
    }

    /// Tells whether all that both programs write goes by the rings.
    pub fn are_both_hot(&self) -> bool {
        self.ends.iter().all(end::End::is_hot)
    }

    /// Tells whether an end has said on TCP that its stream has ended.
    pub fn has_ended_tcp(&self, at: usize) -> bool {
        self.ends[1 - at].tcp.ends
    }

    /// Does what any three bytes say.
    pub fn raw(&mut self, raw: [u8; 3]) {
        self.op(usize::from(raw[0] >> 7), Op::from_raw(raw));
    }

    /// TCP's connection is reset.
    fn abort(&mut self, at: usize, why: Why) {
        if self.over {
            return;
        }
        self.over = true;
        self.reset = Some(why);
        let right = match why {
            Why::Died => true,
            Why::Turning => self.losses != 0 && !self.both_know() && self.hung,
            Why::Killed => self.losses != 0 && (self.is_left_alone(0) || self.is_left_alone(1)),
            Why::Closed => self.is_left_alone(at),
            Why::Peer | Why::Over => self.is_left_alone(0) || self.is_left_alone(1),
        };
        assert!(right, "{at} resets, as {why:?}: {self:?}");
    }

    /// Whether the program of an end has closed without having read all, as TCP resets then, too, or its peer's misses
    /// nothing.
    fn is_left_alone(&self, at: usize) -> bool {
        let (end, peer) = (&self.ends[at], &self.ends[1 - at]);
        end.closing && (end.has_unread || peer.saw_end || peer.closing)
    }

    /// Whether both ends have turned, and know that of each other.
    fn both_know(&self) -> bool {
        let knows =
            |end: &end::End| end.machine.peer_cut().is_some() && !end.machine.stage().is_apart();
        self.ends.iter().all(knows)
    }

    /// Lets one thing happen, as far as it can; whether something has.
    pub fn op(&mut self, at: usize, op: Op) -> bool {
        if self.over {
            return false;
        }
        let done = self.try_op(at, op);
        let hot = self.are_both_hot();
        let cold = self.ends.iter().all(end::End::is_cold);
        self.promoted += u32::from(hot && !self.was_hot);
        self.returned += u32::from(cold && self.was_hot);
        self.was_hot = (self.was_hot || hot) && !cold;
        done
    }

    fn try_op(&mut self, at: usize, op: Op) -> bool {
        match op {
            Op::Look => {
                self.look(at);
                false
            }
            Op::Write(len) => self.write(at, len.into()) != 0,
            Op::Read(len) => self.read(at, len.into()) != 0,
            Op::Shut => {
                self.shut(at);
                false
            }
            Op::Close => {
                self.close(at);
                false
            }
            Op::Tcp(len) => self.bring(at, len.into()),
            Op::Arrive => {
                self.up && self.each(1 - at, |hosts, number| hosts.arrive(at, number, true))
            }
            Op::Complete => self.each(at, |hosts, number| hosts.complete(at, number)),
            Op::Call(agrees) => self.begin_call(agrees),
            Op::Talk => self.talk(),
            Op::Hang => self.hang(),
            Op::GiveUp => {
                self.refuse(0);
                false
            }
            Op::Leave => self.ask(at),
            Op::Lose(arrive, forget, failed) => {
                self.lose_link(arrive, forget, failed);
                false
            }
            Op::Learn => self.each(at, |hosts, number| hosts.tell_loss(at, number)),
            Op::Die => {
                self.abort(at, Why::Died);
                false
            }
        }
    }

    fn each(&mut self, at: usize, mut act: impl FnMut(&mut Self, u32) -> bool) -> bool {
        let numbers = self.numbers(at);
        numbers
            .into_iter()
            .fold(false, |some, number| act(self, number) | some)
    }

    fn ask(&mut self, at: usize) -> bool {
        if !self.ends[at].is_hot() {
            return false;
        }
        let Some(rings) = &mut self.ends[at].rings else {
            return false;
        };
        let number = rings.number;
        let asks = rings.conn.ask_to_leave();
        if let Some(actions) = asks {
            self.act(at, number, actions);
        }
        asks.is_some()
    }

    fn begin_call(&mut self, agrees: bool) -> bool {
        if self.call.is_some() || !self.ends[0].is_cold() || self.ends[0].closing {
            return false;
        }
        if !self.up {
            // Another link: nobody uses the old one any more.
            let told = |at: usize| {
                !self.ends[at]
                    .old
                    .iter()
                    .chain(&self.ends[at].rings)
                    .any(|rings: &Rings| !rings.told)
            };
            if !(told(0) && told(1)) {
                return false;
            }
            self.up = true;
            self.first_of_link = self.next;
        }
        for end in &mut self.ends {
            end.decides = agrees;
        }
        // The one of the attempt before is closed.
        self.kept.has = [false; 2];
        self.call = Some(Call::Proposed);
        true
    }

    fn talk(&mut self) -> bool {
        match self.call.take() {
            None => return false,
            Some(Call::Proposed) => {
                let number = self.next;
                self.next += 1;
                if self.ends[1].is_cold() && !self.ends[1].closing {
                    self.call = Some(Call::Accepted(Rings::new(1, number)));
                }
            }
            Some(Call::Accepted(server)) => {
                let number = server.number;
                if self.ends[0].is_cold() && !self.ends[0].closing {
                    self.call = Some(Call::Confirmed(server));
                    self.kept = Kept::default();
                    self.kept.has[0] = true;
                    self.offered(0, Rings::new(0, number));
                }
            }
            Some(Call::Confirmed(server)) if self.ends[1].is_cold() => {
                self.kept.has[1] = true;
                self.offered(1, server);
            }
            // It has none any more: the client's hears nothing.
            Some(Call::Confirmed(_)) => (),
        }
        true
    }

    fn hang(&mut self) -> bool {
        self.hung = true;
        let had = self.kept.has != [false; 2];
        self.kept = Kept::default();
        self.call.take().is_some() || had
    }

    /// Says something over the side connection.
    fn tell(&mut self, at: usize, mark: Mark) {
        if self.kept.has == [true; 2] {
            self.kept.to[1 - at].push_back(mark);
        }
    }

    /// Closes it.
    fn hangs_up(&mut self, at: usize) {
        self.kept.has[at] = false;
    }

    /// Nothing fails any more: everything comes to an end.
    ///
    /// # Panics
    ///
    /// If something is missing then.
    pub fn finish(&mut self) {
        let mut quiet = 0;
        while quiet < 8 && !self.over {
            let mut some = false;
            some |= self.op(0, Op::Talk);
            for at in [0, 1] {
                for op in [
                    Op::Learn,
                    Op::Arrive,
                    Op::Complete,
                    Op::Tcp(64),
                    Op::Look,
                    Op::Read(64),
                    Op::Look,
                ] {
                    some |= self.op(at, op);
                }
            }
            quiet = if some { 0 } else { quiet + 1 };
            if quiet == 6 {
                self.lose_patience();
            }
            if quiet == 4 {
                // Nobody answers.
                self.op(0, Op::GiveUp);
                self.op(1, Op::Hang);
                let refused = self.ends[1].machine.stage() == Stage::Offered;
                if refused {
                    self.refuse(1);
                }
            }
        }
        if self.over {
            return;
        }
        for at in [0, 1] {
            let (end, peer) = (&self.ends[at], &self.ends[1 - at]);
            assert!(!end.closing || end.closed, "{at} does not close: {self:?}");
            if end.closing {
                continue;
            }
            assert_eq!(end.read, peer.written, "read at {at}: {self:?}");
            let ended = peer.shut || peer.closing;
            let stage = end.machine.stage();
            assert!(
                stage == Stage::Tcp || stage == Stage::Turned,
                "{stage:?} at {at}: {self:?}"
            );
            assert_eq!(end.saw_end, ended, "the end at {at}: {self:?}");
        }
        // A reader that finds the end in its ring needs to look no further.
        if !self.ends.iter().any(|end| end.closing || end.shut) {
            let states = [0, 1].map(|at| (self.ends[at].is_cold(), self.ends[at].is_hot()));
            assert!(
                states[0] == states[1] && (states[0].0 || states[0].1),
                "{states:?}: {self:?}"
            );
            assert!(self.up || states[0].0);
        }
    }

    /// Lets things happen at random.
    pub fn play(&mut self, rng: &mut Rng, count: u32) {
        for _ in 0..count {
            let raw = rng.next().to_be_bytes();
            self.raw([raw[0], raw[1], raw[2]]);
            self.now = self.now.after(Span(1000));
        }
    }
}
