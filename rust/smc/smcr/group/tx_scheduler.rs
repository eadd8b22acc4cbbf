// SPDX-License-Identifier: GPL-2.0

//! Schedules what is sent on a group's queue pair.
//!
//! A connection whose state has changed sends what is due by that at once, if there is a free slot and nobody waits
//! for one ([`LinkGroup::change_and_send`]). That takes the lock of the connection and that of the send queue, and
//! none of the group's: [`posting`] tells whether somebody waits. Otherwise the connection is marked, and those that are
//! take turns as long as there are free slots ([`LinkGroup::post_next`]). Each sends its latest state when its turn
//! comes, so a full queue delays messages, and makes them fewer, and never breaks anything.
//!
//! Bytes that are held back, or for which the peer's ring has no room, are not due, and mark nothing: what
//! changes that raises [`Actions::TX_DUE`], which leads to [`LinkGroup::send_due`].
//!
//! A slot is one of the send queue's. The place of a connection in its group is its index.

use super::{
    super::slab::RmbSlab,
    conn::Locked,
    LinkGroup,
    SmcConn, //
};
use crate::host::clock::now;
use core::{
    convert::Infallible,
    ops::{Deref, DerefMut}, //
};
use kapi::{
    rdma::{
        channel::{Channel, Slot},
        mr::Key,
        region::Region,
        wr::{Remote, Signal, Source, Write}, //
    },
    sys::{lock::SpinLockBhBackend, word::Word}, //
};
use kernel::{
    prelude::*,
    sync::{lock::Guard, Arc},
    time::{delay::fsleep, Delta}, //
};
use smc_proto::{
    conn::{Actions, Conn, Notice, Ticket, Tx},
    group::due::DueSet,
    time::Instant,
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
    /// One that fills a packet: a client's handshake hears when it has been delivered.
    FullLlc,
    /// The registration of a slab's memory key.
    Key(Arc<RmbSlab>),
}

/// What waits for a slot.
pub(super) struct TxScheduler {
    /// Connections that have something to send.
    due: DueSet,
    llc: KVec<LlcMessage>,
    /// A memory key that is to be registered.
    key: Option<KBox<Key<Token>>>,
    paused: Paused,
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
    /// Whether it fills a packet, see [`Slot::post_full_packet`].
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
        })
    }

    /// Tells whether no message waits.
    fn is_empty(&self) -> bool {
        self.due.is_empty() && self.llc.is_empty()
    }

    /// Returns which connections may post.
    fn posting(&self) -> u32 {
        match self.paused {
            Paused::Nothing if self.is_empty() => posting::ALL,
            Paused::Nothing => posting::IN_TURN,
            Paused::ConnData | Paused::Everything => posting::NONE,
        }
    }
}

/// Which connections may post: written with the scheduler locked, read with the send queue locked. So who has written
/// [`posting::NONE`], and then finds with that lock that nothing is under way, knows that nothing will be.
pub(super) mod posting {
    /// All.
    pub(crate) const ALL: u32 = 0;
    /// Those whose turn it is.
    pub(crate) const IN_TURN: u32 = 1;
    /// None.
    pub(crate) const NONE: u32 = 2;
}

/// The scheduler, locked; which connections may post is settled when it is unlocked.
pub(super) struct Turns<'a> {
    pub(super) posting: &'a Word,
    pub(super) scheduler: Guard<'a, TxScheduler, SpinLockBhBackend>,
}

impl Turns<'_> {
    /// Lets no connection post that has not begun to, until a key is registered.
    fn pause(&mut self) {
        self.scheduler.paused = Paused::ConnData;
        self.posting.set(posting::NONE);
    }
}

impl Deref for Turns<'_> {
    type Target = TxScheduler;

    fn deref(&self) -> &TxScheduler {
        &self.scheduler
    }
}

impl DerefMut for Turns<'_> {
    fn deref_mut(&mut self) -> &mut TxScheduler {
        &mut self.scheduler
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        self.posting.set(self.scheduler.posting());
    }
}

/// What is next.
enum Next {
    /// The connection with this index.
    Conn(u8),
    /// Something was posted; perhaps there is more.
    Again,
    /// Nothing, or nothing may be sent now.
    Nothing,
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
        self.send_after(|turns| {
            // A peer that asks faster than we can answer is not answered.
            let _ = turns.llc.push_within_capacity(message);
        });
    }

    /// Sends the latest state of a connection that has raised [`Actions::TX_DUE`], at once or when it is its turn.
    /// Returns what else is to be done. Any context.
    pub(crate) fn send_due(self: &Arc<Self>, conn: &Arc<SmcConn>) -> Actions {
        let due = |_: &mut Conn, _| Ok::<_, Infallible>(Actions::TX_DUE);
        match self.change_and_send(conn, due) {
            Ok(actions) => actions,
            Err(never) => match never {},
        }
    }

    /// Changes the state of `conn` by `change`, with the connection locked, and sends what is due by that: nothing, if
    /// `change` does not return [`Actions::TX_DUE`]; at once, if there is a free slot and nobody waits; else when it is
    /// the connection's turn. Returns what else is to be done. Any context.
    ///
    /// # Errors
    ///
    /// Errors of `change`.
    pub(crate) fn change_and_send<E>(
        self: &Arc<Self>,
        conn: &Arc<SmcConn>,
        change: impl FnOnce(&mut Conn, Instant) -> core::result::Result<Actions, E>,
    ) -> core::result::Result<Actions, E> {
        let now = now();
        let mut state = conn.proto.lock();
        let actions = change(&mut state, now)?;
        if !actions.has(Actions::TX_DUE) {
            if state.awaits_completion() {
                self.expect_ends();
            }
            return Ok(actions);
        }
        let actions = actions.without(Actions::TX_DUE);
        let sent = match self.link.channel() {
            Some(channel) => self.send_state(channel, conn, &mut state, now, posting::ALL),
            None => None,
        };
        drop(state);
        Ok(match sent {
            Some(sent) => actions | self.after(conn, sent),
            None => {
                self.send_after(|turns| {
                    turns.due.insert(conn.index());
                });
                actions
            }
        })
    }

    /// Does what a post has left, with no lock held, but for the actions that it returns.
    #[inline]
    fn after(self: &Arc<Self>, conn: &SmcConn, sent: Sent) -> Actions {
        if !sent.posted {
            // The state that was taken cannot be put back: the link is of no more use.
            self.lose();
        } else if sent.more {
            self.send_after(|turns| {
                turns.due.insert(conn.index());
            });
        }
        sent.actions
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
        self.send_after(|turns| {
            turns.key = Some(key);
            turns.pause();
        });
    }

    /// The registration of the key of `slab` has ended: what was paused goes on. Any context.
    pub(super) fn key_ended(self: &Arc<Self>, slab: &RmbSlab, works: bool) {
        self.link.turns().paused = Paused::Nothing;
        if works {
            slab.key_works();
        }
        self.slab_made();
        self.send();
    }

    /// Drops a key that was never posted.
    pub(super) fn drop_key(&self) {
        let key = self.link.turns().key.take();
        drop(key);
    }

    /// Tells whether a key may be posted now. On soft-RoCE nothing else may be under way: it runs a
    /// registration again when it repeats a request that was posted before it. If not, the next completion
    /// looks again.
    fn may_register(&self, channel: &Arc<Channel<LinkGroup>>) -> bool {
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
        self.link.turns().pause();
        self.send_llc(frame);
        for _ in 0..LAST_WAIT_MS {
            let waits = !self.link.turns().llc.is_empty();
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
    fn send_after(self: &Arc<Self>, enter: impl FnOnce(&mut Turns<'_>)) {
        let mut turns = self.link.turns();
        enter(&mut turns);
        let Some(channel) = self.link.channel() else {
            return;
        };
        loop {
            match self.next(channel, &mut turns) {
                Next::Again => (),
                Next::Nothing => return,
                Next::Conn(index) => {
                    drop(turns);
                    if !self.post_next(channel, index) {
                        return;
                    }
                    turns = self.link.turns();
                }
            }
        }
    }

    /// Returns the connection whose turn it is; LLC messages and a key, which come before, are posted at once.
    fn next(self: &Arc<Self>, channel: &Arc<Channel<LinkGroup>>, turns: &mut TxScheduler) -> Next {
        if turns.paused == Paused::ConnData && turns.key.is_some() && self.may_register(channel) {
            return match self.post_key(channel, turns) {
                true => Next::Again,
                false => Next::Nothing,
            };
        }
        // The end of the registration, or the next completion, goes on.
        if turns.paused == Paused::Everything || turns.is_empty() {
            return Next::Nothing;
        }
        if !turns.llc.is_empty() {
            return self.post_llc(channel, turns);
        }
        if turns.paused == Paused::ConnData || !self.link.has_slot(channel) {
            return Next::Nothing;
        }
        turns.due.pop().map_or(Next::Nothing, Next::Conn)
    }

    /// Posts the oldest LLC message.
    fn post_llc(
        self: &Arc<Self>,
        channel: &Arc<Channel<LinkGroup>>,
        turns: &mut TxScheduler,
    ) -> Next {
        let Some(mut slot) = self.link.slot(channel) else {
            return Next::Nothing;
        };
        let Ok(LlcMessage { frame, full }) = turns.llc.remove(0) else {
            return Next::Nothing;
        };
        let posted = match full {
            true => slot.post_full_packet(Token::FullLlc, &frame).is_ok(),
            false => slot.post(Token::Llc, Signal::Always, [], &frame).is_ok(),
        };
        // The end of a group waits for that, and the heartbeat's is a sign of life.
        slot.expect_ends();
        drop(slot);
        if !posted {
            // It may be the one for which the peer waits.
            self.lose();
            return Next::Nothing;
        }
        Next::Again
    }

    /// Posts the latest state of the connection whose turn it is, with the scheduler unlocked. Returns whether others
    /// may follow.
    fn post_next(self: &Arc<Self>, channel: &Arc<Channel<LinkGroup>>, index: u8) -> bool {
        let Some(conn) = self.conns.get(index) else {
            return true;
        };
        let now = now();
        let sent = {
            let mut state = conn.proto.lock();
            self.send_state(channel, &conn, &mut state, now, posting::IN_TURN)
        };
        let Some(sent) = sent else {
            // Another one has had the slot, or a registration has begun. Whichever end lets it go on may have come
            // meanwhile.
            self.link.turns().due.insert(index);
            return self.link.has_slot(channel);
        };
        if sent.more && sent.posted {
            self.link.turns().due.insert(index);
        }
        if !sent.posted {
            // As in `after`.
            self.lose();
        }
        conn.perform(sent.actions);
        sent.posted
    }

    /// Posts the latest state of a connection, if there is anything to say. `None` if there is no free slot, or if
    /// more than `as_one_of` is needed to post.
    #[inline(always)]
    fn send_state(
        &self,
        channel: &Arc<Channel<LinkGroup>>,
        conn: &Arc<SmcConn>,
        state: &mut Locked,
        now: Instant,
        as_one_of: u32,
    ) -> Option<Sent> {
        let mut slot = self.link.slot(channel)?;
        if self.link.posting() > as_one_of {
            return None;
        }
        let Some(tx) = state.conn.take_plain(now) else {
            return Some(send_other(slot, conn, state, now));
        };
        let posted = match (&state.ring, tx.notice) {
            (Some(ring), Notice::Immediate(number)) => {
                let token = Token::Conn(conn.clone(), tx.ticket);
                let writes = writes(&tx, ring);
                match slot.post_immediate(token, signal(&tx), writes, number.to_wire()) {
                    Ok(()) => true,
                    Err(unsent) => {
                        drop(unsent);
                        false
                    }
                }
            }
            // What was written and not sent is in a ring.
            _ => false,
        };
        if !posted || tx.signaled {
            return Some(posted_rarely(slot, state, posted));
        }
        // It has brought all there is.
        Some(Sent::NOTHING)
    }
}

/// Ends a turn in which a plain message was not posted, or one for whose end somebody may wait.
#[inline(never)]
fn posted_rarely(mut slot: Slot<'_, LinkGroup>, state: &mut Locked, posted: bool) -> Sent {
    let actions = match posted {
        true => Actions::NONE,
        false => state.on_tx_failed(),
    };
    if state.awaits_completion() {
        slot.expect_ends();
    }
    Sent {
        posted,
        more: false,
        actions,
    }
}

/// Posts the latest state of a connection that is more than bytes, if there is anything to say.
// Not inlined, so that those who send nothing but bytes have the registers.
#[inline(never)]
fn send_other(
    mut slot: Slot<'_, LinkGroup>,
    conn: &Arc<SmcConn>,
    state: &mut Locked,
    now: Instant,
) -> Sent {
    let Locked {
        conn: proto, ring, ..
    } = state;
    let Some(tx) = proto.take_other(now) else {
        return Sent::NOTHING;
    };
    let token = Token::Conn(conn.clone(), tx.ticket);
    let posted = match (ring, tx.notice) {
        (Some(ring), Notice::Cdc(cdc)) => {
            let writes = writes(&tx, ring);
            slot.post(token, signal(&tx), writes, &cdc.encode()).is_ok()
        }
        (Some(ring), Notice::Immediate(number)) => {
            let writes = writes(&tx, ring);
            slot.post_immediate(token, signal(&tx), writes, number.to_wire())
                .is_ok()
        }
        (None, Notice::Cdc(cdc)) if tx.plan.is_empty() => {
            slot.post(token, signal(&tx), [], &cdc.encode()).is_ok()
        }
        // What was written and not sent is in a ring.
        (None, _) => false,
    };
    let mut actions = tx.actions;
    if !posted {
        actions |= proto.on_tx_failed();
    }
    if tx.signaled && proto.awaits_completion() {
        slot.expect_ends();
    }
    Sent {
        posted,
        more: proto.wants_tx(),
        actions,
    }
}

/// Returns the WRITEs of a message, out of the send ring `ring`.
#[inline]
fn writes<'a>(tx: &Tx, ring: &'a Region) -> impl Iterator<Item = Write<'a>> {
    let place = tx.place;
    tx.plan.iter().map(move |write| Write {
        from: Source::Region(ring),
        offset: write.local.offset as usize,
        len: write.local.len as usize,
        to: Remote {
            addr: place.addr.wrapping_add(u64::from(write.remote)),
            rkey: place.rkey.0,
        },
    })
}

/// Returns whether the device is to tell of the end of a message.
#[inline]
fn signal(tx: &Tx) -> Signal {
    match tx.signaled {
        true => Signal::Always,
        false => Signal::Seldom,
    }
}

/// The result of a turn.
struct Sent {
    /// Unless the link is of no more use.
    posted: bool,
    /// Whether the connection has more to say.
    more: bool,
    /// Actions for when the locks are free.
    actions: Actions,
}

impl Sent {
    /// There was nothing to say.
    const NOTHING: Self = Self {
        posted: true,
        more: false,
        actions: Actions::NONE,
    };
}
