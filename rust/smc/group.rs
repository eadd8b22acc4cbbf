// SPDX-License-Identifier: GPL-2.0

//! A link group: what this host and one peer share for all their connections.
//!
//! Ours have one link: one queue pair, over which the data of all connections, their CDC messages
//! and the group's own LLC messages go. Connections take turns for the queue pair's slots; each
//! sends its latest state when its turn comes, so a full queue delays and never breaks anything.

use crate::{
    conn::{now, SmcConn},
    local::LocalPort,
    shared::Core,
    slab::{Lease, RmbSlab},
    talk::Waiter, //
};
use kapi::{
    new_spinlock_bh,
    rdma::{
        channel::{Channel, Handler},
        completion::{Completion, Status},
        config::{Config, Path},
        device::Device,
        pd::Pd,
        qp::{Qp, ReadyToReceive, ReadyToSend, Reset},
        wr::{Received, Remote, Source, Write}, //
    },
    sys::{
        clock,
        hook::{Notify, TimerHook},
        lock::SpinLockBh,
        queue, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
        ArcBorrow,
        Mutex,
        SetOnce, //
    },
    workqueue::{Work, WorkItem}, //
};
use smc_proto::{
    conn::{Actions, Ticket},
    cursor::RingSize,
    group::{
        choice::{Candidate, LinkEnd},
        rtoken::{Entry, Region as PeerRegion, MAX_RTOKENS},
        tokens::MAX_CONNS,
        EndReason,
        Group,
        Terms,
        Todo, //
    },
    llc::{link::LinkEvent, responder::Event as LlcEvent},
    wire::{
        cdc::{self, Cdc},
        ids::{AlertToken, Gid, Mtu},
        llc::Frame, //
    }, //
};

type ProtoGroup = Group<KVec<Entry<1>>, KVec<u32>>;

/// Chains under way at a time; what the peer's receive queue tolerates.
const SEND_SLOTS: u16 = 48;
/// Requests of the longest chain: a ring that wraps on both sides is sent in four pieces, each takes
/// a request for every 64 KiB or part of it (rings have at most 1 MiB), and the message follows.
const CHAIN: u16 = 24;
/// Bytes of a long LLC message beyond the first 44; such messages name all memory keys at once.
const LLC_SPILL: u16 = 4108;
/// LLC messages that wait for a slot.
const LLC_WAITING: usize = 16;

/// What a chain of requests is for.
pub(crate) enum Token {
    /// A connection's data and CDC message.
    Conn(Arc<SmcConn>, Ticket),
    /// An LLC message.
    Llc,
}

/// How far the queue pair is.
enum Stage {
    None,
    Reset(Qp<LinkGroup, Reset>),
    Receiving(Qp<LinkGroup, ReadyToReceive>),
    Sending(Qp<LinkGroup, ReadyToSend>),
}

struct State {
    proto: ProtoGroup,
    conns: KVec<Option<Arc<SmcConn>>>,
    /// An answer for the handshake that sets the link up, and that handshake.
    event: Option<LlcEvent>,
    waiter: Option<Waiter>,
}

struct Turns {
    /// Connections that have something to send, by slot.
    due: [u64; 4],
    /// Where the search for the next one begins.
    next: usize,
    llc: KVec<Frame>,
}

/// What the device holds for the group; given back when the group ends.
struct Resources {
    pd: Arc<Pd>,
    slabs: KVec<Arc<RmbSlab>>,
}

/// A link group.
#[pin_data]
pub(crate) struct LinkGroup {
    core: Arc<Core>,
    device: Arc<Device>,
    port: u32,
    gid_index: u16,
    pub(crate) gid: Gid,
    #[pin]
    state: SpinLockBh<State>,
    #[pin]
    turns: SpinLockBh<Turns>,
    channel: SetOnce<Arc<Channel<LinkGroup>>>,
    #[pin]
    stage: Mutex<Stage>,
    #[pin]
    resources: Mutex<Option<Resources>>,
    #[pin]
    timer: Mutex<Option<Pin<KBox<TimerHook<LinkGroup>>>>>,
    /// 1 when the queue pair has broken.
    broken: Atomic<u32>,
    ended: Atomic<u32>,
    #[pin]
    work: Work<LinkGroup>,
}

impl_has_work! {
    impl HasWork<Self> for LinkGroup { self.work }
}

fn filled<T: Clone>(value: T, count: usize) -> Result<KVec<T>> {
    Ok(KVec::from_elem(value, count, GFP_KERNEL)?)
}

impl LinkGroup {
    /// A group whose first contact begins: its queue pair can receive nothing yet. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(crate) fn new(core: &Arc<Core>, local: &LocalPort, terms: Terms) -> Result<Arc<Self>> {
        let mut seed = [0; 4];
        clock::random(&mut seed);
        let proto = Group::new(
            terms,
            u32::from_ne_bytes(seed),
            filled(Entry::<1>::FREE, MAX_RTOKENS)?,
            filled(0u32, MAX_CONNS)?,
        );
        let mut conns = KVec::with_capacity(MAX_CONNS, GFP_KERNEL)?;
        for _ in 0..MAX_CONNS {
            conns.push(None, GFP_KERNEL)?;
        }
        let llc = KVec::with_capacity(LLC_WAITING, GFP_KERNEL)?;
        let pd = Pd::new(&local.device)?;
        let domain = pd.clone();
        let group = Arc::pin_init(
            pin_init!(Self {
                core: core.clone(),
                device: local.device.clone(),
                port: local.port,
                gid_index: local.gid_index,
                gid: local.gid,
                state <- new_spinlock_bh!(
                    State {
                        proto,
                        conns,
                        event: None,
                        waiter: None,
                    },
                    "rsmc::LinkGroup::state"
                ),
                turns <- new_spinlock_bh!(
                    Turns {
                        due: [0; 4],
                        next: 0,
                        llc,
                    },
                    "rsmc::LinkGroup::turns"
                ),
                channel: SetOnce::new(),
                stage <- new_mutex!(Stage::None, "rsmc::LinkGroup::stage"),
                resources <- new_mutex!(
                    Some(Resources {
                        pd: domain,
                        slabs: KVec::new(),
                    }),
                    "rsmc::LinkGroup::resources"
                ),
                timer <- new_mutex!(None, "rsmc::LinkGroup::timer"),
                broken: Atomic::new(0),
                ended: Atomic::new(0),
                work <- new_work!("rsmc::LinkGroup::work"),
            }),
            GFP_KERNEL,
        )?;
        // A slot must be enough to post: then nothing that was taken has to be put back.
        let most = local.device.limits()?.queue_wrs / u32::from(CHAIN);
        let slots = u16::try_from(most)
            .unwrap_or(SEND_SLOTS)
            .clamp(2, SEND_SLOTS);
        let config = Config {
            send_slots: slots,
            send_wrs: u32::from(slots).saturating_mul(u32::from(CHAIN)),
            chain_wrs: CHAIN,
            recv_first: 44,
            recv_spill: LLC_SPILL,
            // With 7 some devices never give up.
            retries: 6,
            ..Config::default()
        };
        let timer = TimerHook::new(group.clone())?;
        let qp = Qp::new(&pd, group.clone(), config)?;
        group.channel.populate(qp.channel().clone());
        *group.stage.lock() = Stage::Reset(qp);
        *group.timer.lock() = Some(timer);
        Ok(group)
    }

    fn channel(&self) -> Option<&Arc<Channel<LinkGroup>>> {
        self.channel.as_ref()
    }

    /// Number and first sequence number of our queue pair.
    pub(crate) fn queue_pair(&self) -> (u32, u32) {
        self.channel()
            .map_or((0, 0), |channel| (channel.qpn(), channel.psn()))
    }

    /// Whether the group's link leaves by this port.
    pub(crate) fn is_on(&self, port: &LocalPort) -> bool {
        Arc::ptr_eq(&self.device, &port.device) && self.port == port.port && self.gid == port.gid
    }

    /// Whether the group's link is on this device.
    pub(crate) fn uses(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// The number of the device's port.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// How the choice of a group sees this one.
    pub(crate) fn candidate(&self) -> Candidate {
        self.state.lock().proto.candidate()
    }

    /// The active link.
    pub(crate) fn link_end(&self) -> Option<LinkEnd> {
        self.state.lock().proto.link_end()
    }

    /// Takes a slot and a token for a new connection; `None` if the group is full or ending.
    pub(crate) fn reserve(&self) -> Option<(AlertToken, u8)> {
        self.state.lock().proto.add_conn()
    }

    /// Gives a slot back that no connection has come to use.
    pub(crate) fn unreserve(&self, token: AlertToken) {
        self.state.lock().proto.remove_conn(token, now());
        self.rearm();
    }

    /// Makes a connection known to incoming messages.
    pub(crate) fn insert_conn(&self, conn: &Arc<SmcConn>) {
        let mut state = self.state.lock();
        let old = match state.conns.get_mut(usize::from(conn.slot())) {
            Some(place) => place.replace(conn.clone()),
            None => None,
        };
        drop(state);
        drop(old);
    }

    /// Forgets a connection.
    pub(crate) fn remove_conn(&self, conn: &Arc<SmcConn>) {
        let removed = {
            let mut state = self.state.lock();
            if state.proto.remove_conn(conn.token(), now()) {
                state
                    .conns
                    .get_mut(usize::from(conn.slot()))
                    .and_then(Option::take)
            } else {
                None
            }
        };
        drop(removed);
        self.rearm();
    }

    /// Takes a receive buffer of `size`, from a new slab if need be. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(crate) fn lease(&self, size: RingSize) -> Result<Lease> {
        let mut guard = self.resources.lock();
        let resources: &mut Resources = (*guard).as_mut().ok_or(ENODEV)?;
        let mut generation = 0u32;
        for slab in resources.slabs.iter().filter(|slab| slab.size() == size) {
            if let Some(lease) = slab.lease() {
                return Ok(lease);
            }
            generation = generation.saturating_add(1);
        }
        resources.slabs.reserve(1, GFP_KERNEL)?;
        let slab = RmbSlab::new(&resources.pd, size, generation)?;
        if let Stage::Sending(qp) = &*self.stage.lock() {
            qp.channel().register(slab.mr())?;
        }
        let lease = slab.lease().ok_or(ENOMEM)?;
        resources.slabs.push(slab, GFP_KERNEL)?;
        Ok(lease)
    }

    /// The device, for further memory.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Enters the peer's memory into the group's table.
    pub(crate) fn add_peer_region(&self, region: PeerRegion) -> bool {
        self.state.lock().proto.rtokens.add(0, region).is_some()
    }

    /// Connects the queue pair so that it receives. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(crate) fn receive_from(
        &self,
        peer: LinkEnd,
        psn: u32,
        mtu: Mtu,
        hop: [u8; 6],
        hops: u8,
    ) -> Result {
        let mut stage = self.stage.lock();
        let reset = match core::mem::replace(&mut *stage, Stage::None) {
            Stage::Reset(qp) => qp,
            other => {
                *stage = other;
                return Err(EINVAL);
            }
        };
        let init = reset.init(self.port)?;
        self.step(LinkEvent::ToInit);
        let receiving = init.ready_to_receive(&Path {
            mtu: mtu.code(),
            qpn: peer.qpn.get(),
            psn,
            sgid_index: self.gid_index,
            dgid: peer.gid.0,
            dmac: hop,
            hop_limit: hops,
        })?;
        {
            let mut state = self.state.lock();
            state.proto.link.peer = Some(peer);
            state.proto.link.step(LinkEvent::ToRtr, now());
        }
        *stage = Stage::Receiving(receiving);
        Ok(())
    }

    /// Allows the queue pair to send, and makes the memory keys work. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(crate) fn send_to(&self) -> Result {
        let mut stage = self.stage.lock();
        let sending = match core::mem::replace(&mut *stage, Stage::None) {
            Stage::Receiving(qp) => qp.ready_to_send()?,
            other => {
                *stage = other;
                return Err(EINVAL);
            }
        };
        let channel = sending.channel().clone();
        *stage = Stage::Sending(sending);
        drop(stage);
        self.step(LinkEvent::ToRts);
        let slabs = {
            let guard = self.resources.lock();
            let resources = guard.as_ref().ok_or(ENODEV)?;
            let mut slabs = KVec::with_capacity(resources.slabs.len(), GFP_KERNEL)?;
            for slab in &resources.slabs {
                slabs.push(slab.clone(), GFP_KERNEL)?;
            }
            slabs
        };
        for slab in &slabs {
            channel.register(slab.mr())?;
        }
        Ok(())
    }

    fn step(&self, event: LinkEvent) {
        let _ = self.state.lock().proto.link.step(event, now());
    }

    /// The link is confirmed: the group carries connections from now on.
    pub(crate) fn confirmed(&self, number: u8) {
        {
            let mut state = self.state.lock();
            state.proto.link.number = number;
            state.proto.link.step(LinkEvent::Confirmed, now());
            state.waiter = None;
        }
        self.rearm();
    }

    /// Names the handshake that is to hear of LLC events.
    pub(crate) fn await_events(&self, waiter: Waiter, number: u8) {
        let mut state = self.state.lock();
        state.proto.link.number = number;
        let old = state.waiter.replace(waiter);
        drop(state);
        drop(old);
    }

    /// Nobody waits for LLC events any more.
    pub(crate) fn ignore_events(&self) {
        let old = self.state.lock().waiter.take();
        drop(old);
    }

    /// An LLC event that has come for the handshake.
    pub(crate) fn take_event(&self) -> Option<LlcEvent> {
        self.state.lock().event.take()
    }

    /// Whether the link has broken or the group has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.broken.load(Relaxed) != 0 || self.ended.load(Relaxed) != 0
    }

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
            let slot = usize::from(conn.slot());
            if let Some(word) = turns.due.get_mut(slot / 64) {
                *word |= 1u64 << (slot % 64);
            }
        }
        self.send();
    }

    /// Lets those who have something to send take turns, until the queue is full.
    fn send(self: &Arc<Self>) {
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
        if channel.free_slots() == 0 {
            // The next completion goes on.
            return false;
        }
        if let Some(frame) = turns.llc.first().copied() {
            let _ = turns.llc.remove(0);
            return channel.post(Token::Llc, &[], &frame).is_ok();
        }
        let Some(slot) = next_due(turns) else {
            return false;
        };
        let conn = {
            let state = self.state.lock();
            state.conns.get(slot).cloned().flatten()
        };
        let Some(conn) = conn else {
            clear_due(turns, slot);
            return true;
        };
        let Some(remote) = conn.remote() else {
            clear_due(turns, slot);
            return true;
        };
        let mut proto = conn.proto.lock();
        let Some(tx) = proto.take_tx(now()) else {
            drop(proto);
            clear_due(turns, slot);
            return true;
        };
        let frame = tx.cdc.encode();
        let ring = conn.send_ring();
        let mut writes: [Option<Write<'_>>; 4] = [None; 4];
        let mut places = writes.iter_mut();
        for write in tx.plan.iter() {
            let mut at = write.remote;
            for piece in write.local.iter() {
                if let Some(place) = places.next() {
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
            &frame,
        );
        let mut actions = tx.actions;
        if !posted {
            actions |= proto.on_tx_failed();
        }
        if !proto.wants_tx() {
            clear_due(turns, slot);
        }
        drop(proto);
        if !posted {
            // The state that was taken cannot be put back: the link is of no more use.
            channel.fail();
        }
        *after = Some((conn, actions));
        posted
    }

    fn rearm(&self) {
        let deadline = self.state.lock().proto.next_deadline();
        if let (Some(deadline), Some(timer)) = (deadline, &*self.timer.lock()) {
            let wait = deadline.since(now()).as_millis_ceil();
            timer.arm(u32::try_from(wait).unwrap_or(u32::MAX).saturating_add(1));
        }
    }

    /// Ends the group: its connections are aborted, its queue pair and memory given back. Sleeps.
    pub(crate) fn end(self: &Arc<Self>, reason: EndReason) {
        let todo = self.state.lock().proto.end(reason, now());
        self.finish(todo);
    }

    fn finish(self: &Arc<Self>, todo: Todo) {
        if let Todo::End {
            last: Some(frame), ..
        } = todo
        {
            self.send_llc(frame);
            // Best effort: give it a moment to leave.
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(5));
        }
        if self.ended.xchg(1, Full) != 0 {
            return;
        }
        self.core.remove_group(self);
        let mut slot = 0usize;
        loop {
            let conn = {
                let state = self.state.lock();
                match state.conns.get(slot) {
                    Some(conn) => conn.clone(),
                    None => break,
                }
            };
            if let Some(conn) = conn {
                conn.kill();
            }
            slot = slot.saturating_add(1);
        }
        self.wake_waiter();
        let stage = core::mem::replace(&mut *self.stage.lock(), Stage::None);
        match stage {
            Stage::None => (),
            Stage::Reset(qp) => qp.close(),
            Stage::Receiving(qp) => qp.close(),
            Stage::Sending(qp) => qp.close(),
        }
        let resources = self.resources.lock().take();
        if let Some(resources) = resources {
            for slab in &resources.slabs {
                slab.revoke();
            }
        }
        let timer = self.timer.lock().take();
        drop(timer);
    }

    fn wake_waiter(&self) {
        let state = self.state.lock();
        if let Some(waiter) = &state.waiter {
            waiter.kick();
        }
    }

    fn on_cdc(&self, bytes: &[u8]) {
        let Ok(cdc) = Cdc::parse(bytes) else { return };
        let conn = {
            let mut state = self.state.lock();
            state.proto.heard(now());
            state
                .proto
                .slot(cdc.token)
                .and_then(|slot| state.conns.get(usize::from(slot)).cloned().flatten())
        };
        if let Some(conn) = conn {
            conn.on_cdc(&cdc);
        }
    }

    fn on_llc(self: &Arc<Self>, bytes: &[u8]) {
        let (reply, todo) = self.state.lock().proto.on_llc(bytes, now());
        if let Some(frame) = reply {
            self.send_llc(frame);
        }
        match todo {
            Todo::Handshake(event) => {
                let mut state = self.state.lock();
                state.event = Some(event);
                if let Some(waiter) = &state.waiter {
                    waiter.kick();
                }
            }
            Todo::End { .. } => {
                self.broken.store(1, Relaxed);
                self.kick();
            }
            Todo::Send(frame) => self.send_llc(frame),
            Todo::None | Todo::Settled(_) => (),
        }
    }

    fn kick(self: &Arc<Self>) {
        let _ = queue::enqueue::<_, 0>(self.clone());
    }

    fn on_deadline(self: &Arc<Self>) {
        loop {
            let todo = self.state.lock().proto.on_timer(now());
            match todo {
                Todo::None => break,
                Todo::Send(frame) => self.send_llc(frame),
                Todo::End { .. } => {
                    self.finish(todo);
                    return;
                }
                Todo::Settled(_) | Todo::Handshake(_) => (),
            }
        }
        self.rearm();
    }
}

fn next_due(turns: &mut Turns) -> Option<usize> {
    let start = turns.next;
    for step in 0..256usize {
        let slot = start.wrapping_add(step) % 256;
        let word = turns.due.get(slot / 64).copied().unwrap_or(0);
        if word == 0 && slot % 64 == 0 {
            // Nothing in this word; the loop still counts through it, which is cheap enough.
            continue;
        }
        if word >> (slot % 64) & 1 != 0 {
            turns.next = slot.wrapping_add(1) % 256;
            return Some(slot);
        }
    }
    None
}

fn clear_due(turns: &mut Turns, slot: usize) {
    if let Some(word) = turns.due.get_mut(slot / 64) {
        *word &= !(1u64 << (slot % 64));
    }
}

/// Posts the writes that are there, and the message.
fn post(
    channel: &Arc<Channel<LinkGroup>>,
    token: Token,
    writes: &[Option<Write<'_>>; 4],
    frame: &[u8],
) -> bool {
    let [a, b, c, d] = writes;
    let result = match (a, b, c, d) {
        (None, ..) => channel.post(token, &[], frame),
        (Some(a), None, ..) => channel.post(token, &[*a], frame),
        (Some(a), Some(b), None, _) => channel.post(token, &[*a, *b], frame),
        (Some(a), Some(b), Some(c), None) => channel.post(token, &[*a, *b, *c], frame),
        (Some(a), Some(b), Some(c), Some(d)) => channel.post(token, &[*a, *b, *c, *d], frame),
    };
    result.is_ok()
}

impl Handler for LinkGroup {
    type Token = Token;

    fn sent(this: &Arc<Self>, _: &Arc<Channel<Self>>, token: Token, done: &Completion) {
        if let Token::Conn(conn, ticket) = token {
            // After a failure the connections learn of it when the group ends, but a message that
            // is not reported would keep its connection for ever.
            let actions = if done.status.is_success() {
                conn.proto.lock().on_tx_done(ticket, now())
            } else {
                conn.proto.lock().on_tx_failed()
            };
            conn.perform(actions);
        }
        // Somebody may have waited for the slot.
        this.send();
    }

    fn received(this: &Arc<Self>, _: &Arc<Channel<Self>>, message: &Received<'_>) {
        let head = message.head();
        match head.first() {
            Some(&cdc::TYPE) => this.on_cdc(head),
            Some(_) => this.on_llc(head),
            None => (),
        }
    }

    fn failed(this: &Arc<Self>, _: &Arc<Channel<Self>>, _status: Status) {
        this.broken.store(1, Relaxed);
        this.wake_waiter();
        this.kick();
    }
}

impl Notify for LinkGroup {
    fn notify(this: ArcBorrow<'_, Self>) {
        Arc::<Self>::from(this).kick();
    }
}

impl WorkItem for LinkGroup {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.broken.load(Relaxed) != 0 {
            let todo = this.state.lock().proto.end(EndReason::LinkLost, now());
            this.finish(todo);
        } else {
            this.on_deadline();
        }
    }
}
