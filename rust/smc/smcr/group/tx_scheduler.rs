// SPDX-License-Identifier: GPL-2.0

//! Schedules what is sent on a group's queue pair.
//!
//! A connection whose state has changed sends what is due by that at once, if there is a free slot and
//! nobody waits for one ([`LinkGroup::change_and_send`]). Otherwise it is marked, and those that are take
//! turns as long as there are free slots. Each sends its latest state when its turn comes, so a full queue
//! delays messages, and makes them fewer, and never breaks anything.
//!
//! Bytes that are held back, or for which the peer's ring has no room, are not due, and mark nothing: what
//! changes that raises [`Actions::TX_DUE`], which leads to [`LinkGroup::send_due`].
//!
//! A slot is one of the send queue's. The place of a connection in its group is its index.

use super::{
    super::slab::RmbSlab,
    rings::Rings,
    LinkGroup,
    SmcConn, //
};
use crate::host::clock::now;
use core::convert::Infallible;
use kapi::rdma::{
    channel::Channel,
    mr::Key,
    wr::{Remote, Source, Write}, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta}, //
};
use smc_proto::{
    conn::{Actions, Conn, Notice, Ticket},
    group::due::DueSet,
    wire::llc::Frame, //
};

/// LLC messages that wait for a slot.
const LLC_WAITING: usize = 16;
/// Time for which the end of a group waits until the peer has been told, in milliseconds. A peer that
/// is not told notices when it next sends.
const LAST_WAIT_MS: u32 = 250;

/// The purpose of a chain of requests.
pub(crate) enum Token {
    /// A connection's data and its announcement, a CDC message or an immediate.
    Conn(Arc<SmcConn>, Ticket),
    /// An LLC message.
    Llc,
    /// The registration of a slab's memory key.
    Key(Arc<RmbSlab>),
}

/// Messages that wait for a slot, and the send rings that they are in.
pub(super) struct TxScheduler {
    /// Connections that have something to send.
    due: DueSet,
    llc: KVec<LlcMessage>,
    /// A memory key that is to be registered.
    key: Option<KBox<Key<Token>>>,
    paused: Paused,
    pub(super) rings: Rings,
}

/// What is not sent because memory is to be registered; on most devices only until there is a slot for that.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Paused {
    /// Everything is sent.
    Nothing,
    /// Messages of connections, and their data. LLC messages go on, so that the link is not taken for dead.
    ConnData,
    /// The registration is under way, on a device where nothing else may be.
    Everything,
}

/// An LLC message that is to be sent.
struct LlcMessage {
    frame: Frame,
    /// Whether it fills a packet, see [`Channel::post_full_packet`].
    full: bool,
}

impl TxScheduler {
    /// Nothing waits.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            due: DueSet::new(),
            llc: KVec::with_capacity(LLC_WAITING, GFP_KERNEL)?,
            key: None,
            paused: Paused::Nothing,
            rings: Rings::new()?,
        })
    }

    /// Tells whether no message waits.
    fn is_empty(&self) -> bool {
        self.due.is_empty() && self.llc.is_empty()
    }

    /// Tells whether nothing waits, nor has to.
    fn is_quiet(&self) -> bool {
        self.paused == Paused::Nothing && self.is_empty()
    }
}

impl LinkGroup {
    /// Sends an LLC message as soon as there is a slot. Any context.
    pub(crate) fn send_llc(self: &Arc<Self>, frame: Frame) {
        self.send_llc_message(LlcMessage { frame, full: false });
    }

    /// Sends an LLC message in a packet of the path MTU, as soon as there is a slot. Any context.
    pub(crate) fn send_full_llc(self: &Arc<Self>, frame: Frame) {
        self.send_llc_message(LlcMessage { frame, full: true });
    }

    fn send_llc_message(self: &Arc<Self>, message: LlcMessage) {
        self.send_after(|scheduler| {
            // A peer that asks faster than we can answer is not answered.
            let _ = scheduler.llc.push_within_capacity(message);
        });
    }

    /// Sends the latest state of a connection that has raised [`Actions::TX_DUE`], at once or when it is its turn.
    /// Returns what else is to be done. Any context.
    pub(crate) fn send_due(self: &Arc<Self>, conn: &Arc<SmcConn>) -> Actions {
        let due = |_: &mut Conn| Ok::<_, Infallible>(Actions::TX_DUE);
        match self.change_and_send(conn, due) {
            Ok(actions) => actions,
            Err(never) => match never {},
        }
    }

    /// Changes the state of `conn` by `change`, with the scheduler and the connection locked, and sends what is due
    /// by that: nothing, if `change` does not return [`Actions::TX_DUE`]; at once, if there is a free slot and nobody
    /// waits; else when it is the connection's turn. Returns what else is to be done. Any context.
    ///
    /// # Errors
    ///
    /// Errors of `change`.
    pub(crate) fn change_and_send<E>(
        self: &Arc<Self>,
        conn: &Arc<SmcConn>,
        change: impl FnOnce(&mut Conn) -> core::result::Result<Actions, E>,
    ) -> core::result::Result<Actions, E> {
        let mut scheduler = self.link.scheduler.lock();
        let mut proto = conn.proto.lock();
        let actions = change(&mut proto)?;
        if !actions.has(Actions::TX_DUE) {
            if proto.awaits_completion() {
                self.expect_ends();
            }
            return Ok(actions);
        }
        let mut actions = actions.without(Actions::TX_DUE);
        match self.link.channel() {
            Some(channel) if scheduler.is_quiet() && self.link.has_slot(channel) => {
                let sent = self.send_state(channel, &mut scheduler, conn, &mut proto);
                actions |= sent.actions;
                drop(proto);
                let more = sent.posted && !scheduler.is_quiet();
                drop(scheduler);
                if !sent.posted {
                    self.lose();
                } else if more {
                    self.send();
                }
            }
            _ => {
                drop(proto);
                scheduler.due.insert(conn.index());
                drop(scheduler);
                self.send();
            }
        }
        Ok(actions)
    }

    /// Has the ends of all chains posted until now handled as soon as they come: somebody waits for them. Any context.
    pub(crate) fn expect_ends(&self) {
        if let Some(channel) = self.link.channel() {
            channel.expect_ends();
        }
    }

    /// Posts a request for a memory key in order among the messages, which do not wait for it, as soon as
    /// the link lets it. Its end calls [`LinkGroup::key_ended`]. One at a time. Any context.
    pub(super) fn register_later(self: &Arc<Self>, key: KBox<Key<Token>>) {
        self.send_after(|scheduler| {
            scheduler.key = Some(key);
            scheduler.paused = Paused::ConnData;
        });
    }

    /// The registration of the key of `slab` has ended: what was paused goes on. Any context.
    pub(super) fn key_ended(self: &Arc<Self>, slab: &RmbSlab, works: bool) {
        self.link.scheduler.lock().paused = Paused::Nothing;
        if works {
            slab.key_works();
        }
        self.slab_made();
        self.send();
    }

    /// Drops a key that was never posted.
    pub(super) fn drop_key(&self) {
        let key = self.link.scheduler.lock().key.take();
        drop(key);
    }

    /// Tells whether a key may be posted now. On soft-RoCE nothing else may be under way: it runs a
    /// registration again when it repeats a request that was posted before it. If not, the next completion
    /// looks again.
    fn may_register(&self, channel: &Channel<LinkGroup>) -> bool {
        if self.link.device().repeats_registrations() {
            self.link.is_idle(channel)
        } else {
            self.link.has_slot(channel)
        }
    }

    /// Posts the key that is due. Returns whether more may follow.
    fn post_key(
        self: &Arc<Self>,
        channel: &Arc<Channel<LinkGroup>>,
        scheduler: &mut TxScheduler,
    ) -> bool {
        let Some(key) = scheduler.key.take() else {
            return false;
        };
        let alone = self.link.device().repeats_registrations();
        if let Err(unposted) = channel.post_key(key) {
            // It may be the last reference to memory, which is not dropped under the lock.
            scheduler.key = Some(unposted.key);
            scheduler.paused = Paused::Everything;
            self.lose();
            return false;
        }
        scheduler.paused = if alone {
            Paused::Everything
        } else {
            Paused::Nothing
        };
        !alone && !scheduler.is_empty()
    }

    /// Sends the group's last message and waits until the peer has it, but not for long. Sleeps.
    pub(super) fn send_last(self: &Arc<Self>, frame: Frame) {
        let Some(channel) = self.link.channel() else {
            return;
        };
        // A key that waits would wait for longer.
        self.drop_key();
        self.link.scheduler.lock().paused = Paused::ConnData;
        self.send_llc(frame);
        for _ in 0..LAST_WAIT_MS {
            let waits = !self.link.scheduler.lock().llc.is_empty();
            if (!waits && channel.is_idle()) || self.link.is_broken() {
                return;
            }
            fsleep(Delta::from_millis(1));
        }
    }

    /// A chain has ended: lets those go on who have found no slot. Any context.
    pub(super) fn slot_freed(self: &Arc<Self>) {
        if self.link.take_waiting() {
            self.send();
        }
    }

    /// Lets those who have something to send take turns, until the queue is full.
    pub(super) fn send(self: &Arc<Self>) {
        self.send_after(|_| ());
    }

    /// The same, after `enter` has said that there is something to send.
    fn send_after(self: &Arc<Self>, enter: impl FnOnce(&mut TxScheduler)) {
        let mut scheduler = self.link.scheduler.lock();
        enter(&mut scheduler);
        let Some(channel) = self.link.channel() else {
            return;
        };
        loop {
            let mut after = None;
            let more = self.send_next(channel, &mut scheduler, &mut after);
            if let Some((conn, sent)) = after {
                drop(scheduler);
                if !sent.posted {
                    // The state that was taken cannot be put back: the link is of no more use.
                    self.lose();
                }
                conn.perform(sent.actions);
                // It may have been the last reference, which is not dropped under the lock.
                drop(conn);
                if !more {
                    return;
                }
                scheduler = self.link.scheduler.lock();
            } else if !more {
                return;
            }
        }
    }

    /// Posts one chain. Returns whether more may follow.
    fn send_next(
        self: &Arc<Self>,
        channel: &Arc<Channel<LinkGroup>>,
        scheduler: &mut TxScheduler,
        after: &mut Option<(Arc<SmcConn>, Sent)>,
    ) -> bool {
        if scheduler.paused == Paused::ConnData
            && scheduler.key.is_some()
            && self.may_register(channel)
        {
            return self.post_key(channel, scheduler);
        }
        if scheduler.paused == Paused::Everything
            || scheduler.is_empty()
            || !self.link.has_slot(channel)
        {
            // The end of the registration, or the next completion, goes on.
            return false;
        }
        if let Ok(LlcMessage { frame, full }) = scheduler.llc.remove(0) {
            let posted = match full {
                true => channel.post_full_packet(Token::Llc, &frame).is_ok(),
                false => channel.post(Token::Llc, [], &frame).is_ok(),
            };
            if !posted {
                // It may be the one for which the peer waits.
                self.lose();
            }
            // The end of a group waits for that, and the heartbeat's is a sign of life.
            channel.expect_ends();
            return posted && !scheduler.is_empty();
        }
        if scheduler.paused == Paused::ConnData {
            return false;
        }
        let Some(index) = scheduler.due.pop() else {
            return false;
        };
        let conn = {
            let state = self.state.lock();
            state.conns.get(usize::from(index)).cloned().flatten()
        };
        let Some(conn) = conn else {
            return true;
        };
        let sent = {
            let mut proto = conn.proto.lock();
            self.send_state(channel, scheduler, &conn, &mut proto)
        };
        let more = sent.posted && !scheduler.is_empty();
        *after = Some((conn, sent));
        more
    }

    /// Posts the latest state of a connection, if there is anything to say. The caller has seen a free
    /// slot.
    fn send_state(
        &self,
        channel: &Arc<Channel<LinkGroup>>,
        scheduler: &mut TxScheduler,
        conn: &Arc<SmcConn>,
        proto: &mut Conn,
    ) -> Sent {
        let Some(remote) = conn.remote() else {
            return Sent::NOTHING;
        };
        let Some(tx) = proto.take_tx(now()) else {
            return Sent::NOTHING;
        };
        let token = Token::Conn(conn.clone(), tx.ticket);
        let posted = match scheduler.rings.get(conn.index()) {
            Some(ring) => {
                let writes = tx.plan.iter().map(|write| Write {
                    from: Source::Region(ring),
                    offset: write.local.offset as usize,
                    len: write.local.len as usize,
                    to: Remote {
                        addr: remote.addr.wrapping_add(u64::from(write.remote)),
                        rkey: remote.rkey,
                    },
                });
                post(channel, token, writes, &tx.notice)
            }
            // What was written and not sent is in a ring.
            None => tx.plan.is_empty() && post(channel, token, [], &tx.notice),
        };
        let mut actions = tx.actions;
        if !posted {
            actions |= proto.on_tx_failed();
        }
        if proto.wants_tx() {
            scheduler.due.insert(conn.index());
        }
        if proto.awaits_completion() {
            channel.expect_ends();
        }
        Sent { posted, actions }
    }
}

/// The result of a turn.
struct Sent {
    /// Unless the link is of no more use.
    posted: bool,
    /// Actions for when the locks are free.
    actions: Actions,
}

impl Sent {
    /// There was nothing to say.
    const NOTHING: Self = Self {
        posted: true,
        actions: Actions::NONE,
    };
}

/// Posts `writes`, and what announces them. Whether that worked.
#[inline]
fn post<'a>(
    channel: &Arc<Channel<LinkGroup>>,
    token: Token,
    writes: impl IntoIterator<Item = Write<'a>>,
    notice: &Notice,
) -> bool {
    match notice {
        Notice::Cdc(cdc) => channel.post(token, writes, &cdc.encode()).is_ok(),
        Notice::Immediate(number) => {
            let number = number.to_wire();
            channel.post_immediate(token, writes, number).is_ok()
        }
    }
}
