// SPDX-License-Identifier: GPL-2.0

//! Counts what one end of a connection sees of its queue pair.

use kapi::rdma::{
    channel::{Channel, Handler},
    completion::{Completion, Opcode, Status},
    region::Region,
    wr::{Received, Remote, Source, Write}, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, //
    }, //
};

/// Tokens that are somewhere under way.
static TOKENS: Atomic<i32> = Atomic::new(0);

/// Returns whether every token came back.
pub(crate) fn no_tokens() -> bool {
    TOKENS.load(Relaxed) == 0
}

/// Threads that post.
static POSTERS: Atomic<i32> = Atomic::new(0);
/// Chains they posted.
static POSTED: Atomic<i32> = Atomic::new(0);

/// Returns whether no thread posts.
pub(crate) fn no_posters() -> bool {
    POSTERS.load(Relaxed) == 0
}

/// Returns the number of chains that threads have posted so far.
pub(crate) fn posted() -> i32 {
    POSTED.load(Relaxed)
}

/// Counts a thread.
pub(crate) struct Running(());

impl Running {
    pub(crate) fn new() -> Self {
        POSTERS.add(1, Relaxed);
        Self(())
    }

    pub(crate) fn posted(&self) {
        POSTED.add(1, Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = POSTERS.fetch_sub(1, Full);
    }
}

/// Counts itself; carries the memory of a chain that is to be repeated.
pub(crate) struct Token {
    pub(crate) again: Option<(Arc<Region>, Remote)>,
}

impl Token {
    pub(crate) fn new(again: Option<(Arc<Region>, Remote)>) -> Self {
        TOKENS.add(1, Relaxed);
        Self { again }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let _ = TOKENS.fetch_sub(1, Full);
    }
}

/// Counters of one end.
pub(crate) struct Side {
    pub(crate) sent: Atomic<i32>,
    /// Chains of whose end the device has not told.
    pub(crate) untold: Atomic<i32>,
    pub(crate) errors: Atomic<i32>,
    pub(crate) received: Atomic<i32>,
    pub(crate) broken: Atomic<i32>,
    /// The first four bytes of the last message, and its length.
    pub(crate) last: Atomic<u32>,
    pub(crate) last_len: Atomic<u32>,
    /// The sum of all bytes of the last message.
    pub(crate) last_sum: Atomic<u32>,
    status: Atomic<u32>,
}

impl Side {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                sent: Atomic::new(0),
                untold: Atomic::new(0),
                errors: Atomic::new(0),
                received: Atomic::new(0),
                broken: Atomic::new(0),
                last: Atomic::new(0),
                last_len: Atomic::new(0),
                last_sum: Atomic::new(0),
                status: Atomic::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// The status of the last chain that failed.
    pub(crate) fn status(&self) -> Status {
        match self.status.load(Relaxed) {
            0 => Status::Success,
            1 => Status::Flushed,
            2 => Status::RemoteAccess,
            3 => Status::Timeout,
            n => Status::Other(n),
        }
    }
}

impl Handler for Side {
    type Token = Token;

    fn sent(this: &Arc<Self>, channel: &Arc<Channel<Self>>, token: Token, done: &Completion) {
        let code = match done.status {
            Status::Success => 0,
            Status::Flushed => 1,
            Status::RemoteAccess => 2,
            Status::Timeout => 3,
            _ => 99,
        };
        if code == 0 {
            if done.opcode == Opcode::Unknown {
                this.untold.add(1, Relaxed);
            }
            let _ = this.sent.fetch_add(1, Full);
        } else {
            this.status.store(code, Relaxed);
            this.errors.add(1, Relaxed);
            return;
        }
        if let Some((region, to)) = &token.again {
            let again = Token::new(Some((region.clone(), *to)));
            let write = Write {
                from: Source::Region(region),
                offset: 100,
                len: 60_000,
                to: *to,
            };
            // When it is refused the token is dropped, and the pump stops.
            let _ = channel.post(again, [write], &[0x55; 44]);
        }
    }

    fn received(this: &Arc<Self>, _channel: &Arc<Channel<Self>>, message: &Received<'_>) {
        let mut sum = 0u32;
        let mut at = 0;
        let mut buf = [0u8; 256];
        loop {
            let n = message.read(at, &mut buf);
            if n == 0 {
                break;
            }
            for byte in buf.iter().take(n) {
                sum = sum.wrapping_add(u32::from(*byte));
            }
            at = at.wrapping_add(n);
        }
        this.last_sum.store(sum, Relaxed);
        let first = message.head().first_chunk::<4>().copied().unwrap_or([0; 4]);
        this.last.store(u32::from_le_bytes(first), Relaxed);
        this.last_len
            .store(u32::try_from(message.len()).unwrap_or(0), Relaxed);
        let _ = this.received.fetch_add(1, Full);
    }

    fn failed(this: &Arc<Self>, channel: &Arc<Channel<Self>>, status: Status) {
        pr_info!("queue pair {} broke: {:?}\n", channel.qpn(), status);
        let _ = this.broken.fetch_add(1, Full);
    }
}
