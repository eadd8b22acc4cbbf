// SPDX-License-Identifier: GPL-2.0

//! Who sends next on a group's queue pair.
//!
//! Connections with something to send are marked, and take turns as long as the queue pair has free
//! slots. Each sends its latest state when its turn comes, so a full queue delays messages, and
//! makes them fewer, and never breaks anything.

use super::LinkGroup;
use crate::conn::{now, SmcConn};
use kapi::{
    errno,
    rdma::{
        channel::Channel,
        mr::Mr,
        wr::{Remote, Source, Write}, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::{delay::fsleep, Delta}, //
};
use smc_proto::{
    conn::{Actions, Notice, Ticket},
    group::due::DueSet,
    wire::llc::Frame, //
};

/// LLC messages that wait for a slot.
const LLC_WAITING: usize = 16;
/// How long a registration waits for the queue to become empty, in milliseconds. A peer that is not
/// ready to receive can hold up a chain for ever.
const IDLE_WAIT_MS: u32 = 5_000;
/// How long the end of a group waits until the peer has been told, in milliseconds. One that is not
/// told notices when it next sends.
const LAST_WAIT_MS: u32 = 250;

/// What a chain of requests is for.
pub(crate) enum Token {
    /// A connection's data and CDC message.
    Conn(Arc<SmcConn>, Ticket),
    /// An LLC message.
    Llc,
}

/// What waits for a slot.
pub(super) struct Turns {
    /// Connections that have something to send.
    due: DueSet,
    llc: KVec<Frame>,
    held: Held,
}

/// Who may not send, because memory is about to be registered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Everybody may.
    Nobody,
    /// Connections; LLC messages go on, so that the link is not taken for dead.
    Conns,
    /// The registration is under way.
    All,
}

impl Turns {
    /// Nothing waits.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            due: DueSet::new(),
            llc: KVec::with_capacity(LLC_WAITING, GFP_KERNEL)?,
            held: Held::Nobody,
        })
    }
}

impl LinkGroup {
    /// Sends an LLC message as soon as there is a slot. Any context.
    pub(crate) fn send_llc(self: &Arc<Self>, frame: Frame) {
        {
            let mut turns = self.turns.lock();
            // A peer that asks faster than we can answer is not answered.
            let _ = turns.llc.push_within_capacity(frame);
        }
        self.send();
    }

    /// A connection has something to send. Any context.
    pub(crate) fn send_due(self: &Arc<Self>, conn: &SmcConn) {
        {
            let mut turns = self.turns.lock();
            turns.due.insert(conn.slot());
        }
        self.send();
    }

    /// Makes the key of `mr` work while the link is in use. Sleeps.
    ///
    /// One at a time (lock `resources`). Nothing else is under way meanwhile: soft-RoCE runs a registration again when it repeats a
    /// request that was posted before it, and breaks the queue pair because the key works already.
    ///
    /// # Errors
    ///
    /// As [`Channel::register`]; `ETIMEDOUT` when the requests before do not end, which is for others
    /// to judge: a peer that has no receives posted may be given longer.
    pub(super) fn register(self: &Arc<Self>, channel: &Arc<Channel<LinkGroup>>, mr: &Mr) -> Result {
        self.turns.lock().held = Held::Conns;
        let mut waited = 0u32;
        let result = loop {
            if self.hold_if_idle(channel) {
                break channel.register(mr);
            }
            if self.is_lost() {
                break Err(errno::ENOTCONN.into());
            }
            if waited == IDLE_WAIT_MS {
                break Err(errno::ETIMEDOUT.into());
            }
            fsleep(Delta::from_millis(1));
            waited = waited.wrapping_add(1);
        };
        self.turns.lock().held = Held::Nobody;
        self.send();
        result
    }

    /// Sends the group's last message and waits until the peer has it, but not for long. Sleeps.
    pub(super) fn send_last(self: &Arc<Self>, frame: Frame) {
        let Some(channel) = self.channel() else {
            return;
        };
        self.turns.lock().held = Held::Conns;
        self.send_llc(frame);
        for _ in 0..LAST_WAIT_MS {
            let waits = !self.turns.lock().llc.is_empty();
            if (!waits && channel.is_idle()) || self.broken.load(Relaxed) != 0 {
                return;
            }
            fsleep(Delta::from_millis(1));
        }
    }

    fn hold_if_idle(&self, channel: &Channel<LinkGroup>) -> bool {
        let mut turns = self.turns.lock();
        let idle = channel.is_idle();
        if idle {
            turns.held = Held::All;
        }
        idle
    }

    /// The link is of no more use: nothing more is sent, and the group will end. Any context.
    pub(crate) fn lose(self: &Arc<Self>) {
        self.broken.store(1, Relaxed);
        if let Some(channel) = self.channel() {
            channel.fail();
        }
        self.kick();
    }

    /// Lets those who have something to send take turns, until the queue is full.
    pub(super) fn send(self: &Arc<Self>) {
        let Some(channel) = self.channel() else {
            return;
        };
        loop {
            let mut after = None;
            let more = {
                let mut turns = self.turns.lock();
                self.one_turn(channel, &mut turns, &mut after)
            };
            if let Some((conn, actions)) = after {
                conn.perform(actions);
            }
            if !more {
                return;
            }
        }
    }

    /// One chain. Whether there may be more.
    fn one_turn(
        self: &Arc<Self>,
        channel: &Arc<Channel<LinkGroup>>,
        turns: &mut Turns,
        after: &mut Option<(Arc<SmcConn>, Actions)>,
    ) -> bool {
        if turns.held == Held::All || channel.free_slots() == 0 {
            // The end of the registration, or the next completion, goes on.
            return false;
        }
        if let Some(frame) = turns.llc.first().copied() {
            let _ = turns.llc.remove(0);
            let posted = channel.post(Token::Llc, &[], &frame).is_ok();
            if !posted {
                // It may be the one for which the peer waits.
                self.lose();
            }
            return posted;
        }
        if turns.held == Held::Conns {
            return false;
        }
        let Some(slot) = turns.due.pop() else {
            return false;
        };
        let conn = {
            let state = self.state.lock();
            state.conns.get(usize::from(slot)).cloned().flatten()
        };
        let Some(conn) = conn else {
            return true;
        };
        // It may be the last reference, which is not dropped under the lock.
        let Some(remote) = conn.remote() else {
            *after = Some((conn, Actions::NONE));
            return true;
        };
        let mut proto = conn.proto.lock();
        let Some(tx) = proto.take_tx(now()) else {
            drop(proto);
            *after = Some((conn, Actions::NONE));
            return true;
        };
        let ring = conn.send_ring();
        let mut writes: [Option<Write<'_>>; 4] = [None; 4];
        let mut places = writes.iter_mut();
        for write in tx.plan.iter() {
            let mut at = write.remote;
            for piece in write.local.iter() {
                // What was written is in a ring.
                if let (Some(place), Some(ring)) = (places.next(), ring) {
                    *place = Some(Write {
                        from: Source::Region(ring.region()),
                        offset: ring.base().saturating_add(piece.offset as usize),
                        len: piece.len as usize,
                        to: Remote {
                            addr: remote.addr.wrapping_add(u64::from(at)),
                            rkey: remote.rkey,
                        },
                    });
                }
                at = at.saturating_add(piece.len);
            }
        }
        let posted = post(
            channel,
            Token::Conn(conn.clone(), tx.ticket),
            &writes,
            &tx.notice,
        );
        let mut actions = tx.actions;
        if !posted {
            actions |= proto.on_tx_failed();
        }
        if proto.wants_tx() {
            turns.due.insert(slot);
        }
        drop(proto);
        if !posted {
            // The state that was taken cannot be put back: the link is of no more use.
            self.lose();
        }
        *after = Some((conn, actions));
        posted
    }
}

/// Posts the writes that are there, and what announces them.
fn post(
    channel: &Arc<Channel<LinkGroup>>,
    token: Token,
    writes: &[Option<Write<'_>>; 4],
    notice: &Notice,
) -> bool {
    let post = |writes: &[Write<'_>]| match notice {
        Notice::Cdc(cdc) => channel.post(token, writes, &cdc.encode()).is_ok(),
        Notice::Immediate(number) => {
            let number = number.to_wire();
            channel.post_immediate(token, writes, number).is_ok()
        }
    };
    let [a, b, c, d] = writes;
    match (a, b, c, d) {
        (None, ..) => post(&[]),
        (Some(a), None, ..) => post(&[*a]),
        (Some(a), Some(b), None, _) => post(&[*a, *b]),
        (Some(a), Some(b), Some(c), None) => post(&[*a, *b, *c]),
        (Some(a), Some(b), Some(c), Some(d)) => post(&[*a, *b, *c, *d]),
    }
}
