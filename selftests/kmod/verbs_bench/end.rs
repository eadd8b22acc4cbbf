// SPDX-License-Identifier: GPL-2.0

//! One end of the connection, and what its completions set off.

use kapi::rdma::{
    channel::{Channel, Handler},
    completion::{Completion, Status},
    region::Region,
    wr::{Received, Remote, Source, Write}, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
        SetOnce, //
    },
    time::{Instant, Monotonic}, //
};

/// Purpose of the message behind a WRITE: its first byte. It is as long as a CDC message.
const ANSWER: u8 = 0x5a;
const TAKE: u8 = 0x5b;

fn message(answer: bool, bytes: u32) -> [u8; 44] {
    let mut message = [if answer { ANSWER } else { TAKE }; 44];
    let size = bytes.to_be_bytes();
    for (to, from) in message.iter_mut().skip(1).zip(size) {
        *to = from;
    }
    message
}

/// Reads whether to answer, and with how many bytes.
fn parse(head: &[u8]) -> Option<(bool, u32)> {
    let (kind, rest) = head.split_first()?;
    let size = rest.first_chunk()?;
    let answer = *kind == ANSWER;
    (answer || *kind == TAKE).then_some((answer, u32::from_be_bytes(*size)))
}

/// The same for a WRITE with immediate, in its 32 bits; no plan has more bytes than fit.
fn immediate(answer: bool, bytes: u32) -> u32 {
    bytes & !ANSWER_BIT | if answer { ANSWER_BIT } else { 0 }
}
const ANSWER_BIT: u32 = 1 << 31;

/// Which ends are here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Here {
    /// Both, which share what they count.
    Both,
    /// The one that begins; the other one is in another guest.
    First,
    /// The other one: it does as the messages say.
    Second,
}

/// Most chains under way at a time, one way.
const WINDOW: u32 = 8;

/// Number, size and kind of the chains to send.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) bytes: u32,
    pub(crate) chains: u32,
    /// A message is answered by the next one; else each completion makes room for one.
    pub(crate) answer: bool,
    /// One WRITE with immediate is the message; else a SEND follows the WRITE.
    pub(crate) immediate: bool,
}

impl Plan {
    pub(crate) fn ping_pong(bytes: u32, chains: u32) -> Self {
        Self {
            bytes,
            chains,
            answer: true,
            immediate: false,
        }
    }

    pub(crate) fn one_way(bytes: u32, chains: u32) -> Self {
        Self {
            bytes,
            chains,
            answer: false,
            immediate: false,
        }
    }

    /// The same with immediates.
    pub(crate) fn by_immediate(self) -> Self {
        Self {
            immediate: true,
            ..self
        }
    }

    /// Returns the number of chains to begin with.
    pub(crate) fn first(&self) -> u32 {
        if self.answer {
            1
        } else {
            self.chains.min(WINDOW)
        }
    }
}

/// Where this end sends to, known once the peer has memory.
pub(crate) struct Way {
    pub(crate) from: Arc<Region>,
    pub(crate) to: Remote,
}

/// Counters of both ends.
pub(crate) struct Shared {
    here: Here,
    bytes: Atomic<u32>,
    answer: Atomic<u32>,
    immediate: Atomic<u32>,
    /// Chains not posted yet.
    unsent: Atomic<i32>,
    /// Messages that have not arrived yet, or where nobody here would see it, not been acknowledged.
    missing: Atomic<i32>,
    /// When the last one arrived; 0 before.
    end: Atomic<i64>,
    /// Start of all times, in nanoseconds.
    origin: Instant<Monotonic>,
    broken: Atomic<u32>,
}

impl Shared {
    pub(crate) fn new(here: Here) -> Self {
        Self {
            here,
            bytes: Atomic::new(0),
            answer: Atomic::new(0),
            immediate: Atomic::new(0),
            unsent: Atomic::new(0),
            missing: Atomic::new(0),
            end: Atomic::new(0),
            origin: Instant::now(),
            broken: Atomic::new(0),
        }
    }

    pub(crate) fn begin(&self, plan: Plan) {
        self.end.store(0, Relaxed);
        self.bytes.store(plan.bytes, Relaxed);
        self.answer.store(u32::from(plan.answer), Relaxed);
        self.immediate.store(u32::from(plan.immediate), Relaxed);
        let chains = match self.here {
            // The rest is what the peer answers.
            Here::First if plan.answer => plan.chains / 2,
            _ => plan.chains,
        };
        let chains = i32::try_from(chains).unwrap_or(i32::MAX);
        self.unsent.store(chains, Relaxed);
        self.missing.store(chains, Relaxed);
    }

    pub(crate) fn now(&self) -> i64 {
        self.origin.elapsed().as_nanos()
    }

    /// When all had arrived, if they have.
    pub(crate) fn ended(&self) -> Result<Option<i64>> {
        if self.broken.load(Relaxed) != 0 {
            return Err(EIO);
        }
        let end = self.end.load(Relaxed);
        Ok((end != 0).then_some(end))
    }

    /// One message less is missing. Whether that was the last one.
    fn one_more(&self) -> bool {
        let last = self.missing.fetch_sub(1, Full) == 1;
        if last {
            self.end.store(self.now(), Relaxed);
        }
        last
    }

    fn breaks(&self) {
        self.broken.store(1, Relaxed);
    }
}

pub(crate) struct End {
    pub(crate) shared: Arc<Shared>,
    pub(crate) way: SetOnce<Way>,
}

impl End {
    /// Posts the next chain, if one is left.
    pub(crate) fn send(&self, channel: &Arc<Channel<Self>>) {
        if self.shared.unsent.fetch_sub(1, Full) <= 0 {
            return;
        }
        let Some(way) = self.way.as_ref() else {
            return self.shared.breaks();
        };
        let bytes = self.shared.bytes.load(Relaxed);
        let write = Write {
            from: Source::Region(&way.from),
            offset: 0,
            len: bytes as usize,
            to: way.to,
        };
        let answer = self.shared.answer.load(Relaxed) != 0;
        let posted = if self.shared.immediate.load(Relaxed) != 0 {
            channel.post_immediate((), [write], immediate(answer, bytes))
        } else {
            channel.post((), [write], &message(answer, bytes))
        };
        if posted.is_err() {
            self.shared.breaks();
        }
        if !answer {
            // Its end has the next one sent.
            channel.expect_ends();
        }
    }

    /// A message has arrived, which is to be answered with this number of bytes, or not at all.
    fn arrived(&self, channel: &Arc<Channel<Self>>, answer: bool, bytes: u32, immediate: bool) {
        let shared = &self.shared;
        if shared.here == Here::Second {
            if answer {
                shared.answer.store(1, Relaxed);
                shared.immediate.store(u32::from(immediate), Relaxed);
                shared.bytes.store(bytes, Relaxed);
                shared.unsent.store(1, Relaxed);
                self.send(channel);
            }
        } else if !shared.one_more() && answer {
            self.send(channel);
        }
    }
}

impl Handler for End {
    type Token = ();

    fn sent(this: &Arc<Self>, channel: &Arc<Channel<Self>>, _token: (), done: &Completion) {
        let shared = &this.shared;
        if done.status != Status::Success {
            shared.breaks();
        } else if shared.here != Here::Second && shared.answer.load(Relaxed) == 0 {
            let last = shared.here == Here::First && shared.one_more();
            if !last {
                this.send(channel);
            }
        }
    }

    fn received(this: &Arc<Self>, channel: &Arc<Channel<Self>>, message: &Received<'_>) {
        match parse(message.head()) {
            Some((answer, bytes)) => this.arrived(channel, answer, bytes, false),
            None => this.shared.breaks(),
        }
    }

    fn immediate(this: &Arc<Self>, channel: &Arc<Channel<Self>>, number: u32) {
        let (answer, bytes) = (number & ANSWER_BIT != 0, number & !ANSWER_BIT);
        this.arrived(channel, answer, bytes, true);
    }

    fn failed(this: &Arc<Self>, _channel: &Arc<Channel<Self>>, _status: Status) {
        this.shared.breaks();
    }
}
