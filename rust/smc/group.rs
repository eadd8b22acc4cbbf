// SPDX-License-Identifier: GPL-2.0

//! A link group: what this host and one peer share for all their connections.
//!
//! Ours have one link: one queue pair, over which the data of all connections, their CDC messages
//! and the group's own LLC messages go.
//!
//! * here: members, buffers, deadline, end
//! * [`link`]: setting the queue pair up, what arrives on it, its loss
//! * [`turns`]: who sends next
//! * [`facts`]: what there is to tell of it

mod facts;
mod link;
mod spares;
mod turns;

pub(crate) use facts::{Facts, PeerFacts};

use crate::{
    attempt::RING_MAX,
    conn::{now, SmcConn},
    local::LocalPort,
    pnet::PnetId,
    shared::Core,
    slab::{Lease, RmbSlab},
    talk::Waiter, //
};
use kapi::{
    errno,
    new_spinlock_bh,
    rdma::{
        channel::Channel,
        config::Config,
        device::{Device, PortInfo, PortState},
        gid::GidRef,
        pd::Pd,
        qp::{Qp, ReadyToReceive, ReadyToSend, Reset}, //
    },
    sys::{
        clock,
        hook::{Notify, TimerHook},
        lock::SpinLockBh,
        queue, //
    },
    trace, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed},
        Arc,
        ArcBorrow,
        Mutex,
        SetOnce, //
    },
    workqueue::{Work, WorkItem}, //
};
use smc_proto::{
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
    llc::responder::Event as LlcEvent,
    wire::ids::{AlertToken, Gid}, //
};
use spares::Spares;
use turns::Turns;

type ProtoGroup = Group<KVec<Entry<1>>, KVec<u32>>;

/// Chains under way at a time; what the peer's receive queue tolerates.
const SEND_SLOTS: u16 = 48;
/// Pages of a request that a device need not support; more do not fit with every device's overhead.
const PAGES: u32 = 16;
/// Buffers that peers may still write to although their connection has ended. A group that has so
/// many takes no more connections, and ends with its last one: then its memory comes back.
const SPOILED: u32 = 255;
/// Bytes of a long LLC message beyond the first 44; such messages name all memory keys at once.
const LLC_SPILL: u16 = 4108;

/// What the link of a group is until it ends, by the numbers that users of tracepoints know.
const LINK_ACTIVE: i32 = 3;

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
    spares: Spares,
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
    /// The number of the group, which no other group of this load of the module has.
    pub(crate) id: u32,
    /// Of its network namespace.
    cookie: u64,
    ifindex: u32,
    vlan: Option<u16>,
    pnet: Option<PnetId>,
    /// Set when first contact has succeeded.
    peer: SetOnce<PeerFacts>,
    /// 1 when packets to the peer pass a gateway.
    gateway: Atomic<u32>,
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
    /// Buffers that cannot be used again.
    spoiled: Atomic<u32>,
    #[pin]
    work: Work<LinkGroup>,
}

impl_has_work! {
    impl HasWork<Self> for LinkGroup { self.work }
}

fn filled<T: Clone>(value: T, count: usize) -> Result<KVec<T>> {
    Ok(KVec::from_elem(value, count, GFP_KERNEL)?)
}

/// Requests of the longest chain where each takes `pages` pages: a ring that wraps on both sides is
/// sent in four pieces, none of whose pages need be adjacent for the device, and the message follows.
fn longest_chain(pages: u32) -> u16 {
    let ring = RING_MAX.div_ceil(PAGE_SIZE as u32);
    let requests = ring.div_ceil(pages.max(1)).saturating_add(4 + 1);
    u16::try_from(requests).unwrap_or(u16::MAX)
}

impl LinkGroup {
    /// A group whose first contact begins: its queue pair can receive nothing yet. It belongs to the
    /// network namespace with this cookie. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(crate) fn new(
        core: &Arc<Core>,
        local: &LocalPort,
        cookie: u64,
        terms: Terms,
    ) -> Result<Arc<Self>> {
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
        let waiting = Turns::new()?;
        let spares = Spares::new()?;
        let pd = Pd::new(&local.device)?;
        let domain = pd.clone();
        let group = Arc::pin_init(
            pin_init!(Self {
                core: core.clone(),
                device: local.device.clone(),
                port: local.port,
                gid_index: local.gid_index,
                gid: local.gid,
                id: core.next_group_id(),
                cookie,
                ifindex: local.ifindex,
                vlan: local.vlan,
                pnet: local.pnet,
                peer: SetOnce::new(),
                gateway: Atomic::new(0),
                state <- new_spinlock_bh!(
                    State {
                        proto,
                        conns,
                        event: None,
                        waiter: None,
                        spares,
                    },
                    "rsmc::LinkGroup::state"
                ),
                turns <- new_spinlock_bh!(waiting, "rsmc::LinkGroup::turns"),
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
                spoiled: Atomic::new(0),
                work <- new_work!("rsmc::LinkGroup::work"),
            }),
            GFP_KERNEL,
        )?;
        // A slot must be enough to post: then nothing that was taken has to be put back.
        let limits = local.device.limits()?;
        let chain = longest_chain(limits.send_sges.min(PAGES));
        let most = limits.queue_wrs.checked_div(u32::from(chain)).unwrap_or(0);
        let slots = u16::try_from(most)
            .unwrap_or(SEND_SLOTS)
            .clamp(2, SEND_SLOTS);
        let config = Config {
            send_slots: slots,
            send_wrs: u32::from(slots).saturating_mul(u32::from(chain)),
            chain_wrs: chain,
            send_sges: PAGES,
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

    /// Whether the group's link leaves by this port and net device.
    pub(crate) fn is_on(&self, port: &LocalPort) -> bool {
        Arc::ptr_eq(&self.device, &port.device)
            && self.port == port.port
            && self.gid == port.gid
            && self.gid_index == port.gid_index
            && self.ifindex == port.ifindex
    }

    /// Whether the port is usable and still has the GID from which the group's link sends. Sleeps.
    pub(crate) fn has_port(&self) -> bool {
        let active = |info: PortInfo| info.state == PortState::Active;
        let same = |gid: GidRef| gid.gid() == self.gid.0 && gid.ifindex() == Some(self.ifindex);
        self.device.port(self.port).is_ok_and(active)
            && self.device.gid(self.port, self.gid_index).is_some_and(same)
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
        let mut candidate = self.state.lock().proto.candidate();
        candidate.usable &= !self.is_spoiled();
        candidate
    }

    fn is_spoiled(&self) -> bool {
        self.spoiled.load(Relaxed) >= SPOILED
    }

    /// A buffer cannot be used again.
    pub(crate) fn spoil(self: &Arc<Self>) {
        self.spoiled.fetch_add(1, Relaxed);
        if self.is_spoiled() {
            self.kick();
        }
    }

    /// The active link.
    pub(crate) fn link_end(&self) -> Option<LinkEnd> {
        self.state.lock().proto.link_end()
    }

    /// Takes a slot and a token for a new connection; `None` if the group is full or ending.
    pub(crate) fn reserve(&self) -> Option<(AlertToken, u8)> {
        if self.is_spoiled() {
            return None;
        }
        self.state.lock().proto.add_conn()
    }

    /// Gives a slot back that no connection has come to use.
    pub(crate) fn unreserve(&self, token: AlertToken) {
        self.state.lock().proto.remove_conn(token, now());
        self.rearm();
    }

    /// Makes a connection known to incoming messages, and to the end of the group.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` when the group has ended meanwhile; nobody will tell the connection.
    pub(crate) fn insert_conn(&self, conn: &Arc<SmcConn>) -> Result {
        let mut state = self.state.lock();
        let old = match state.conns.get_mut(usize::from(conn.slot())) {
            Some(place) => place.replace(conn.clone()),
            None => None,
        };
        drop(state);
        drop(old);
        // `finish` sets the mark before it looks for connections.
        if self.ended.load(Acquire) != 0 {
            return Err(errno::ECONNABORTED.into());
        }
        Ok(())
    }

    /// Forgets a connection.
    pub(crate) fn remove_conn(self: &Arc<Self>, conn: &Arc<SmcConn>) {
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
        if self.is_spoiled() {
            self.kick();
        }
        self.rearm();
    }

    /// Takes a receive buffer of `size`, from a new slab if need be. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(crate) fn lease(self: &Arc<Self>, size: RingSize) -> Result<Lease> {
        let mut guard = self.resources.lock();
        let resources: &mut Resources = (*guard).as_mut().ok_or(ENODEV)?;
        let mut generation = 0u32;
        let mut there = 0u32;
        for slab in resources.slabs.iter().filter(|slab| slab.size() == size) {
            if let Some(lease) = slab.lease() {
                return Ok(lease);
            }
            generation = generation.saturating_add(1);
            there = there.saturating_add(slab.buffers());
        }
        resources.slabs.reserve(1, GFP_KERNEL)?;
        let most = u32::from(self.state.lock().proto.terms().max_conns);
        let wanted = most.saturating_sub(there);
        let slab = RmbSlab::new(&resources.pd, size, generation, wanted)?;
        // Who ends the group breaks the queue pair, which ends the registration; for that he needs
        // `stage`.
        let channel = match &*self.stage.lock() {
            Stage::Sending(qp) => Some(qp.channel().clone()),
            _ => None,
        };
        if let Some(channel) = channel {
            if let Some(mr) = slab.key_to_register() {
                self.register(&channel, mr)?;
            }
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

    /// Whether the link has broken or the group has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.broken.load(Relaxed) != 0 || self.ended.load(Relaxed) != 0
    }

    /// Whether the connection is one of a group that goes on, for who has added something to it that
    /// its end, or the group's, takes away: either this is true, and the end will find it, or nobody
    /// will.
    pub(crate) fn keeps(&self, conn: &SmcConn) -> bool {
        // The group's end sets its mark before it takes this lock to look for connections, and a
        // connection is out of the list before its own end looks at it.
        let state = self.state.lock();
        let place = state.conns.get(usize::from(conn.slot()));
        let there = place
            .and_then(|place| place.as_deref())
            .is_some_and(|other| core::ptr::eq(other, conn));
        there && self.ended.load(Relaxed) == 0
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
            self.send_last(frame);
        }
        if self.ended.xchg(1, Full) != 0 {
            return;
        }
        if !matches!(
            todo,
            Todo::End {
                reason: EndReason::Idle,
                ..
            }
        ) {
            trace::link_down(&**self, self.cookie, LINK_ACTIVE, &self.device.name());
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
                // Its program may keep the socket for ever; the device must not wait for that.
                if let Some(ring) = conn.send_ring() {
                    ring.region().revoke();
                }
            }
            slot = slot.saturating_add(1);
        }
        self.drop_spares();
        self.wake_waiter();
        if let Some(channel) = self.channel() {
            channel.fail();
        }
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
        } else if this.is_spoiled() && this.state.lock().proto.conns() == 0 {
            this.end(EndReason::Idle);
        } else {
            this.on_deadline();
        }
    }
}
