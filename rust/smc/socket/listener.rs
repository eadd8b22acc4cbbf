// SPDX-License-Identifier: GPL-2.0

//! The connections of a listener that have not been accepted.
//!
//! TCP's accept queue gets each connection when its three-way handshake ends. Those that were not
//! offered SMC go straight to accept(). The others are taken out of the queue, do their CLC
//! handshake as [`Incoming`], and wait in the ready queue when that has ended; a worker takes them
//! out if the program calls neither accept() nor poll() meanwhile, so that no client waits for it.
//!
//! Connections taken out of TCP's queue are not counted there any more. So no more than the backlog
//! of listen() allows become ready here, and the others wait in TCP's queue, which has the same limit;
//! `overflow.rs` limits the time that they wait.
//!
//! accept() gives connections in the order in which TCP made them, as far as clients can tell: one that is ready waits
//! while an older one is about to end, for [`HOLD`] at most.
//!
//! Handshakes do not keep other clients waiting, whatever their own clients do: as long as there is room for one that is ready,
//! connections are taken out of TCP's queue. If too many are under way, SMC is not offered any more; those that it
//! was offered to are then in TCP's queues, which hold no more than twice the backlog. The clients of a network that
//! lets many handshakes lie are not offered SMC either ([`crate::host::silent`]).

mod incoming;
mod overflow;

pub(super) use incoming::{Ready, Verdict};

use self::{incoming::Incoming, overflow::Overflow};
use super::fifo::Fifo;
use crate::host::{
    clock::now,
    fallback::{Fallback, Path, Role},
    syn_option::{self as option, Answer, Choice}, //
    tcp2smc::PerClient,
};
use kapi::{
    net::{
        sock::{tcp_state, OwnedSock, Sock},
        stock::syn, //
    },
    sys::{hook::TimerHook, word::Word}, //
};
use kernel::{
    new_mutex,
    new_work,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex, //
    },
    workqueue::Work, //
};
use smc_proto::{
    reason::Reason,
    time::{Instant, Span}, //
};

/// Longest time for which a connection that is ready waits for an older one, so that accept() gives connections in their
/// order. A client that connects twice has sent its last message of the first handshake before the second connection
/// begins, so the first one's end is up to this host alone. A device may be at fault; then the order is.
const HOLD: Span = Span::from_millis(500);
/// Number of older connections that are looked at. More under way are of clients that say nothing.
const OLDER: usize = 64;

struct Queues {
    /// Sorted by number.
    ready: Fifo<Ready>,
    /// Number of the last connection of which poll() said that it is there.
    shown: u64,
    /// True if a thread has found a connection kept back, and has not been woken for it.
    awaited: bool,
    /// True if a thread has found a connection kept back, and `ready` has not been empty since.
    turned_away: bool,
    /// Handshakes under way.
    pending: RBTree<u64, Arc<Incoming>>,
    pending_count: usize,
    next_id: u64,
    closed: bool,
    /// True while too many handshakes are under way for SMC to be offered.
    crowded: bool,
    overflow: Overflow,
}

impl Queues {
    /// Reserves room for one more connection and for the results of all handshakes under way.
    fn reserve(&mut self) -> Result {
        let more = self.pending_count.saturating_add(1);
        self.ready.reserve(more, GFP_KERNEL)
    }

    /// Tells whether a handshake older than this connection is about to end.
    fn is_preceded(&self, id: u64) -> bool {
        let older = self.pending.iter().take(OLDER);
        older
            .take_while(|(older, _)| **older < id)
            .any(|(_, incoming)| incoming.is_about_to_end())
    }

    /// Returns until when the first connection that is ready is kept back, if it is: an older one is about to be ready.
    fn held(&self) -> Option<Instant> {
        let first = self.ready.first()?;
        if first.id <= self.shown || !self.is_preceded(first.id) {
            return None;
        }
        // Of all, so that one that comes to the first place later does not begin the time anew.
        let since = self.ready.iter().take(OLDER).map(|ready| ready.since);
        let until = since.min()?.after(HOLD);
        (!now().reached(until)).then_some(until)
    }

    /// As [`Queues::held`], for a thread that goes without the connection then.
    fn turn_away(&mut self) -> Option<Instant> {
        let held = self.held();
        if held.is_some() {
            self.awaited = true;
            self.turned_away = true;
        }
        held
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    /// Determines whether handshakes pile up, where up to `most` may be under way. Returns whether
    /// that has changed.
    fn judge(&mut self, most: usize) -> bool {
        let most = if self.crowded { most / 2 } else { most };
        let crowded = self.pending_count > most;
        core::mem::replace(&mut self.crowded, crowded) != crowded
    }
}

/// Number of handshakes that a listener may have under way whatever its backlog is: a client who speaks is
/// through soon, and a short queue says nothing about how many come at a time.
const UNDER_WAY: usize = 64;

/// The SMC side of a listening socket.
#[pin_data]
pub(crate) struct Listener {
    pub(super) sock: ARef<Sock>,
    /// Held while connections move from TCP's queue to ours: a look into both would miss them
    /// otherwise, and no wake-up would follow.
    #[pin]
    moving: Mutex<()>,
    #[pin]
    queues: Mutex<Queues>,
    /// 1 while `queues` has a connection, ready or with a handshake under way: who finds 0 need not look there.
    busy: Word,
    /// Fires when TCP's queue is to be looked at again.
    #[pin]
    timer: Mutex<Option<Pin<KBox<TimerHook<Listener>>>>>,
    #[pin]
    work: Work<Listener>,
    /// What SYNs are answered with. The hooks find it in the `struct socket`, where [`Listener::offer`] keeps it.
    choice: Choice,
    /// Asks the rules about clients that speak SMC; `None` only while the module is being unloaded.
    asking: Option<PerClient>,
    /// True if fewer handshakes may be under way (`SMC_LIMIT_HS`).
    limited: bool,
    /// 1 while no client is offered SMC because SMC brought earlier clients no gain; see [`PerClient::pauses`].
    paused: Atomic<u32>,
    /// 1 once a sockmap has taken a new connection's stream: SMC is not offered any more.
    attached: Atomic<u32>,
    /// `TCP_SAVE_SYN` as the user has set it.
    pub(crate) keep_saved_syn: Word,
}

impl Listener {
    pub(super) fn new(
        sock: ARef<Sock>,
        choice: Choice,
        asking: Option<PerClient>,
        limited: bool,
        keep_saved_syn: bool,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                sock,
                moving <- new_mutex!((), "rsmc::Listener::moving"),
                queues <- new_mutex!(
                    Queues {
                        ready: Fifo::new(),
                        shown: 0,
                        awaited: false,
                        turned_away: false,
                        pending: RBTree::new(),
                        pending_count: 0,
                        next_id: 1,
                        closed: false,
                        crowded: false,
                        overflow: Overflow::None,
                    },
                    "rsmc::Listener::queues"
                ),
                busy: Word::new(0),
                timer <- new_mutex!(None, "rsmc::Listener::timer"),
                work <- new_work!("rsmc::Listener::work"),
                choice,
                asking,
                limited,
                paused: Atomic::new(0),
                attached: Atomic::new(0),
                keep_saved_syn: Word::new(u32::from(keep_saved_syn)),
            }),
            GFP_KERNEL,
        )
    }

    /// Has those know who look without the lock of `queues`.
    fn show(&self, queues: &Queues) {
        let busy = queues.ready.len() != 0 || queues.pending_count != 0;
        self.busy.set(u32::from(busy));
    }

    /// Tells whether the user keeps the SYNs of connections that accept() hands out.
    pub(super) fn keeps_syns(&self) -> bool {
        self.keep_saved_syn.get() != 0
    }

    /// Tells whether there is a connection, ready or with a handshake under way. One that comes at this moment may be
    /// missed.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.busy.get() != 0
    }

    /// Tells whether accept() finds a connection, without a look into TCP's queue. If one is kept back, those who wait
    /// are woken when it no longer is.
    pub(super) fn has_ready(self: &Arc<Self>) -> bool {
        let _moving = self.moving.lock();
        let held = {
            let mut queues = self.queues.lock();
            let Some(first) = queues.ready.first().map(|ready| ready.id) else {
                return false;
            };
            match queues.turn_away() {
                Some(until) => until,
                None => {
                    queues.shown = queues.shown.max(first);
                    return true;
                }
            }
        };
        self.look_again(held);
        false
    }

    /// Tells whether a connection that comes now waits after others: one is ready, kept back or not, or about to be.
    pub(super) fn has_queue(&self) -> bool {
        if !self.is_busy() {
            return false;
        }
        let queues = self.queues.lock();
        queues.ready.len() != 0 || queues.is_preceded(u64::MAX)
    }

    /// Tells whether TCP's queue alone determines what accept() finds.
    pub(super) fn is_plain(&self) -> bool {
        if option::offers_outstanding() {
            return false;
        }
        let _moving = self.moving.lock();
        let queues = self.queues.lock();
        queues.ready.len() == 0 && queues.pending_count == 0
    }

    /// Tells whether one more connection may be taken out of TCP's queue. If not, accept() finds one that is ready.
    pub(super) fn has_room(&self) -> bool {
        !self.is_busy() || self.queues.lock().ready.len() <= self.sock.backlog()
    }

    /// Returns the number of handshakes under way beyond which SMC is not offered.
    fn most(&self) -> usize {
        let backlog = self.sock.backlog();
        if self.limited {
            backlog / 2
        } else {
            backlog.max(UNDER_WAY)
        }
    }

    /// Takes a connection out of TCP's queue.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when there is none, or no room for it; `EINVAL` when the socket does not listen.
    pub(super) fn take(&self) -> Result<OwnedSock> {
        if self.sock.state() == tcp_state::LISTEN && !self.has_room() {
            return Err(EAGAIN);
        }
        self.sock.accept()
    }

    /// Moves connections from TCP's queue to where they belong, as long as there is room.
    pub(crate) fn pump(self: &Arc<Self>) {
        let _moving = self.moving.lock();
        if self.queues.lock().closed {
            // The socket may listen again, and its connections are another listener's.
            return;
        }
        while let Ok(sock) = self.take() {
            if let Some(ready) = self.admit(sock, None) {
                self.push_ready(ready);
            }
        }
        self.hasten();
        self.look_at_overflow();
    }

    /// Has the oldest handshakes looked at while too many are under way: those whose clients have been silent for
    /// long give their places to others.
    fn hasten(&self) {
        if self.is_crowded() {
            for incoming in self.oldest::<16>(|_| true).iter().flatten() {
                Incoming::kick(incoming);
            }
        }
    }

    /// Begins the handshake of a new connection that speaks SMC; it only declines if there is a
    /// reason to `refuse` SMC. Returns a connection that does not speak SMC.
    pub(super) fn admit(
        self: &Arc<Self>,
        mut sock: OwnedSock,
        refuse: Option<Reason>,
    ) -> Option<Ready> {
        // By what the client was told, not by what it would be told now.
        let answer = Answer::from_number(syn::answer_to_saved_syn(&mut sock));
        option::arrived(answer);
        let paused = self.is_paused();
        let denied = match answer {
            // Of a side connection the one that it is about has been asked for.
            Answer::Tcp | Answer::Join => None,
            _ => self.denies(&sock),
        };
        let refuse = refuse.or(denied);
        let verdict = match (answer, Path::new(Role::Server, answer)) {
            (_, Some(path)) => Some(Verdict::Path(Path {
                tcp_only: path.tcp_only.or(denied),
                ..path
            })),
            (Answer::Smc | Answer::Join, _) => None,
            _ => {
                let reason = match paused {
                    true => Reason::Unpaid,
                    false => Reason::PeerNotSmc,
                };
                Some(Verdict::Tcp(Fallback::own(Role::Server, reason)))
            }
        };
        if let Some(verdict) = verdict {
            return Some(Ready::new(0, sock, verdict));
        }
        // On failure the connection is closed: TCP's answer to a lack of memory, too.
        let _ = self.begin(sock, refuse, answer == Answer::Join);
        None
    }

    /// Returns the reason for which a rule keeps a client that speaks SMC on TCP, if one does.
    fn denies(&self, sock: &Sock) -> Option<Reason> {
        self.asking.as_ref()?.accepts(sock).err()
    }

    /// Looks whether clients are not to be offered SMC because it brought earlier ones no gain, and has SYNs answered
    /// so from now on. Returns whether they were when the latest ones came.
    fn is_paused(&self) -> bool {
        let Some(asking) = &self.asking else {
            return false;
        };
        let pauses = u32::from(asking.pauses());
        let paused = self.paused.load(Relaxed);
        if paused != pauses && self.paused.xchg(pauses, Relaxed) != pauses {
            self.offer();
        }
        paused != 0
    }

    fn begin(self: &Arc<Self>, sock: OwnedSock, refuse: Option<Reason>, joins: bool) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let incoming = {
            let mut queues = self.queues.lock();
            if queues.closed {
                return Ok(());
            }
            let id = queues.take_id();
            drop(queues);
            match joins {
                true => Incoming::joining(self.clone(), id, sock)?,
                false => Incoming::new(self.clone(), id, sock, refuse)?,
            }
        };
        let changed = {
            let mut queues = self.queues.lock();
            if queues.closed {
                drop(queues);
                incoming.abort();
                return Ok(());
            }
            // Room for the result, so that a handshake that has ended cannot fail for memory.
            if let Err(err) = queues.reserve() {
                drop(queues);
                incoming.abort();
                return Err(err);
            }
            queues
                .pending
                .insert(node.into_node(incoming.id(), incoming.clone()));
            queues.pending_count = queues.pending_count.saturating_add(1);
            self.show(&queues);
            queues.judge(self.most())
        };
        if changed {
            self.offer();
        }
        Incoming::begin(&incoming);
        Ok(())
    }

    /// Has SYNs answered with the option, or without it while SMC is not to be offered: such connections are TCP's,
    /// and need no room here.
    fn offer(&self) {
        // Decided with the socket locked, by the queues as they are then.
        let guard = self.sock.lock();
        let refused = {
            let queues = self.queues.lock();
            queues.overflow.refuses() || queues.crowded
        } || self.attached.load(Relaxed) != 0
            || self.paused.load(Relaxed) != 0;
        let choice = if refused { Choice::BARE } else { self.choice };
        if let Some(socket) = guard.socket() {
            socket.set_choice(choice.number());
        }
    }

    /// Goes on with handshakes whose client may have sent its message already, so that accept() and
    /// poll() find results that the worker has not come to yet. A few at a time: the worker does
    /// the others.
    pub(super) fn advance_pending(&self) {
        self.hurry_first::<16>(|_| true);
    }

    /// Goes on with handshakes older than the connection that accept() would hand out: the program
    /// gets its connections in their order, unless that means to wait for a client.
    pub(super) fn hurry_older(&self) {
        self.hurry_first::<4>(|queues| {
            let oldest = queues.pending.iter().next().map(|(id, _)| *id);
            let next = queues.ready.first().map(|ready| ready.id);
            matches!((oldest, next), (Some(oldest), Some(next)) if oldest < next)
        });
    }

    fn hurry_first<const AT_ONCE: usize>(&self, wanted: impl Fn(&Queues) -> bool) {
        for incoming in self.oldest::<AT_ONCE>(wanted).iter().flatten() {
            Incoming::advance_pending(incoming);
        }
    }

    /// Returns the oldest handshakes under way, if they are `wanted`.
    fn oldest<const MOST: usize>(
        &self,
        wanted: impl Fn(&Queues) -> bool,
    ) -> [Option<Arc<Incoming>>; MOST] {
        let mut handshakes: [Option<Arc<Incoming>>; MOST] = [const { None }; MOST];
        let queues = self.queues.lock();
        if wanted(&queues) {
            for (place, (_, incoming)) in handshakes.iter_mut().zip(queues.pending.iter()) {
                *place = Some(incoming.clone());
            }
        }
        handshakes
    }

    /// Appends a connection that needs no handshake.
    pub(super) fn push_ready(&self, mut ready: Ready) {
        let mut queues = self.queues.lock();
        let rejected = if queues.closed || queues.reserve().is_err() {
            Some(ready)
        } else {
            ready.id = queues.take_id();
            let rejected = queues.ready.push(ready).err();
            self.show(&queues);
            rejected
        };
        drop(queues);
        // Outside of the lock.
        if let Some(rejected) = rejected {
            rejected.discard();
        }
    }

    /// Takes the connection to hand out next, unless it is kept back. Also returns whether connections may have been
    /// left in TCP's queue because there was no room.
    pub(super) fn pop_ready(&self) -> Option<(Ready, bool)> {
        let mut queues = self.queues.lock();
        if queues.turn_away().is_some() {
            return None;
        }
        let full = queues.ready.len() > self.sock.backlog();
        let ready = queues.ready.pop()?;
        self.show(&queues);
        let left = queues.ready.len() != 0;
        queues.turned_away &= left;
        let wakes = queues.turned_away;
        drop(queues);
        if wakes {
            // Another thread was woken for one of them, and sleeps again.
            self.sock.wake_readers();
        }
        Some((ready, full))
    }

    /// Closes everything that accept() has not handed out.
    pub(crate) fn close(&self) {
        let (mut ready, mut pending) = {
            let _moving = self.moving.lock();
            let mut queues = self.queues.lock();
            queues.closed = true;
            queues.pending_count = 0;
            (
                core::mem::replace(&mut queues.ready, Fifo::new()),
                core::mem::replace(&mut queues.pending, RBTree::new()),
            )
        };
        let timer = self.timer.lock().take();
        drop(timer);
        while let Some(ready) = ready.pop() {
            ready.discard();
        }
        while let Some(cursor) = pending.cursor_front_mut() {
            let (_, node) = cursor.remove_current();
            let (_, incoming) = node.to_key_value();
            incoming.abort();
        }
    }
}

/// For the handshakes.
impl Listener {
    /// Wakes a thread that was turned away, if the connection is not kept back any more: a handshake goes on no more for
    /// the present.
    fn settled(&self) {
        let wakes = {
            let mut queues = self.queues.lock();
            let wakes = queues.awaited && queues.ready.len() != 0 && queues.held().is_none();
            queues.awaited &= !wakes;
            wakes
        };
        if wakes {
            self.sock.wake_readers();
        }
    }

    /// Tells whether too many handshakes are under way.
    fn is_crowded(&self) -> bool {
        self.queues.lock().crowded
    }

    /// Ends the offer of SMC: a sockmap has the streams of new connections from their beginning.
    fn attached(&self) {
        if self.attached.xchg(1, Relaxed) == 0 {
            self.offer();
        }
    }

    /// Takes back a handshake that has ended, with its connection if that lives on.
    fn finish(&self, id: u64, ready: Option<Ready>) {
        let mut queues = self.queues.lock();
        // Not there: close() has taken it.
        let incoming = queues.pending.remove(&id);
        let mut rejected = ready;
        let mut changed = false;
        if incoming.is_some() {
            queues.pending_count = queues.pending_count.saturating_sub(1);
            changed = queues.judge(self.most());
            rejected = match rejected {
                Some(ready) => queues.ready.push_by_key(ready, |ready| ready.id).err(),
                None => None,
            };
            self.show(&queues);
        }
        drop(queues);
        drop(incoming);
        if changed {
            self.offer();
        }
        match rejected {
            Some(rejected) => rejected.discard(),
            None => self.sock.wake_readers(),
        }
    }
}
