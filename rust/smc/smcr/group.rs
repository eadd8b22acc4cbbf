// SPDX-License-Identifier: GPL-2.0

//! A link group: what this host and one peer share for all their connections.
//!
//! Ours have one link: one queue pair, over which the data of all connections, their CDC messages
//! and the group's own LLC messages go.
//!
//! * here: what it is made of
//! * [`conn`]: a connection
//! * [`conns`]: its connections, and the buffers they have of it
//! * [`conn_table`]: finds a connection
//! * [`drains`]: which closed connection goes when there are too many
//! * [`end`]: deadlines, and the end
//! * [`link`]: its link, a queue pair on a port
//! * [`setup`]: first contact
//! * [`rx`]: what comes on the link
//! * [`tx_scheduler`]: who sends next
//! * [`rings`], [`spares`]: send rings in use, and those that are not
//! * [`reclaim`]: gives unused memory back
//! * [`log`]: lines in the kernel log
//! * [`facts`]: the group as netlink shows it

mod conn;
mod conn_table;
mod conns;
mod drains;
mod end;
mod facts;
mod link;
mod log;
mod reclaim;
mod rings;
mod rx;
mod setup;
mod spares;
mod tx_scheduler;
mod worth;

pub(crate) use conn::{charged_bytes, Apart, Parts, SmcConn, MARKS, RING_MAX};
pub(crate) use drains::Drains;
pub(crate) use facts::{GroupFacts, PeerFacts};

use conn_table::ConnTable;
use link::Link;

use super::{
    lane::Lane,
    port::LocalPort,
    slab::RmbSlab, //
};
use crate::host::{
    namespace::Queues,
    peer_addr::PeerAddr,
    rate_limit::RateLimit,
    waiter::{Waiter, Waiters}, //
};
use kapi::{
    new_spinlock_bh,
    rdma::{device::Device, pd::Pd},
    sys::{
        clock,
        hook::TimerHook,
        lock::SpinLockBh,
        word::Count, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex,
        SetOnce, //
    },
    workqueue::Work, //
};
use reclaim::{Reclaim, MOST_LEAVING};
use smc_proto::{
    group::{
        choice::Candidate,
        tokens::MAX_CONNS,
        Group,
        Terms, //
    },
    llc::{
        link::LinkEnd,
        responder::LlcEvent,
        rtoken::{Entry, Region as PeerRegion, MAX_RTOKENS}, //
    },
    time::Instant,
    wire::{
        clc::{Class, Extensions},
        ids::PeerId, //
    }, //
};
use spares::Spares;

type ProtoGroup = Group<KVec<Entry<1>>, KVec<u32>>;

/// Most buffers in quarantine: peers may still write to them although their connection has ended. A group that has so
/// many ends with its last connection: then its memory comes back. A server's takes no more
/// connections before that, since each of them may still have its place at the peer.
const QUARANTINE_MAX: u32 = 255;
/// The same of a client, which cannot choose: the server names the group.
const QUARANTINE_MAX_CLIENT: u32 = 4 * QUARANTINE_MAX;

/// Everything that messages of the peer may change.
struct GroupState {
    proto: ProtoGroup,
    /// What the handshake that sets the link up has not taken yet: at the server the answer to CONFIRM_LINK; at the
    /// client CONFIRM_LINK until the queue pair may send, and then that the answer was delivered. So the state of the
    /// link decides which it is, and only another of the same kind takes its place.
    event: Option<LlcEvent>,
    /// That handshake.
    waiter: Option<Arc<dyn Waiter>>,
    spares: Spares,
    reclaim: Reclaim,
}

/// Owner of the list of all groups.
pub(crate) trait Owner: Send + Sync {
    /// Forgets a group, which ends.
    fn forget(&self, group: &LinkGroup);

    /// Ends the oldest drain, in a namespace, of the peer that has most; false if none was found. Sleeps.
    fn shed_drain(&self, namespace: u64) -> bool;

    /// Returns when there was a line in the kernel log about a group.
    fn rate_limit(&self) -> &RateLimit;
}

/// The device's resources; given back when the group ends.
struct Resources {
    pd: Arc<Pd>,
    slabs: KVec<Arc<RmbSlab>>,
    /// Slabs that are out of service; their memory goes when the peer has forgotten their keys.
    leaving: KVec<Arc<RmbSlab>>,
    /// A slab is being made, or its key registered: one at a time.
    growing: bool,
    /// Handshakes that wait for that.
    waiters: Waiters,
}

/// A link group.
#[pin_data]
pub(crate) struct LinkGroup {
    owner: Arc<dyn Owner>,
    /// The one link.
    #[pin]
    pub(crate) link: Link,
    /// The number of the group, which no other group of this load of the module has.
    pub(crate) id: u32,
    /// At a client: its lane.
    pub(crate) lane: Option<Lane>,
    /// The class of our packets.
    pub(crate) class: Class,
    /// The peer of the TCP connection of first contact.
    pub(crate) peer_addr: PeerAddr,
    /// The peer id, in the peer's words.
    pub(crate) peer_id: PeerId,
    /// Set when first contact has succeeded.
    peer: SetOnce<PeerFacts>,
    /// When that was.
    confirmed_at: SetOnce<Instant>,
    #[pin]
    conns: ConnTable,
    /// Whether immediates were agreed on.
    takes_immediates: bool,
    /// When a message for a connection came last, as an [`Instant`].
    heard: Count,
    #[pin]
    state: SpinLockBh<GroupState>,
    #[pin]
    resources: Mutex<Option<Resources>>,
    #[pin]
    timer: Mutex<Option<Pin<KBox<TimerHook<LinkGroup>>>>>,
    ended: Atomic<u32>,
    /// 1 when a slab is there for which handshakes wait.
    made: Atomic<u32>,
    /// Bytes of all slabs.
    recv_bytes: Atomic<u64>,
    /// Buffers in quarantine: kept from reuse while the link lives.
    quarantined: Atomic<u32>,
    /// 1 when the group is to end if it still has no connection.
    retired: Atomic<u32>,
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
    /// A group with the number `id`, whose first contact begins: its queue pair can receive nothing yet.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(crate) fn new(
        owner: Arc<dyn Owner>,
        id: u32,
        lane: Option<Lane>,
        local: &LocalPort,
        peer_addr: PeerAddr,
        terms: Terms,
        queues: Queues,
    ) -> Result<Arc<Self>> {
        let mut seed = [0; 4];
        clock::random(&mut seed);
        let proto = Group::new(
            terms,
            u32::from_ne_bytes(seed),
            filled(Entry::<1>::FREE, MAX_RTOKENS)?,
            filled(0u32, MAX_CONNS)?,
        );
        let spares = Spares::new()?;
        let pd = Pd::new(&local.device)?;
        let domain = pd.clone();
        let group = Arc::pin_init(
            try_pin_init!(Self {
                owner,
                link <- Link::new(local.clone()),
                id,
                lane,
                class: terms.key.classes.own,
                peer_addr,
                peer_id: terms.key.peer_id,
                peer: SetOnce::new(),
                confirmed_at: SetOnce::new(),
                conns <- ConnTable::new(),
                takes_immediates: terms.extensions.has(Extensions::IMMEDIATE),
                heard: Count::new(0),
                state <- new_spinlock_bh!(
                    GroupState {
                        proto,
                        event: None,
                        waiter: None,
                        spares,
                        reclaim: Reclaim::new(),
                    },
                    "rsmc::LinkGroup::state"
                ),
                resources <- new_mutex!(
                    Some(Resources {
                        pd: domain,
                        slabs: KVec::new(),
                        leaving: KVec::with_capacity(MOST_LEAVING, GFP_KERNEL)?,
                        growing: false,
                        waiters: Waiters::new(),
                    }),
                    "rsmc::LinkGroup::resources"
                ),
                timer <- new_mutex!(None, "rsmc::LinkGroup::timer"),
                ended: Atomic::new(0),
                made: Atomic::new(0),
                recv_bytes: Atomic::new(0),
                quarantined: Atomic::new(0),
                retired: Atomic::new(0),
                work <- new_work!("rsmc::LinkGroup::work"),
            }? Error),
            GFP_KERNEL,
        )?;
        let timer = TimerHook::new(group.clone())?;
        group
            .link
            .make(&pd, &group, queues, lane.map(|lane| lane.cpu))?;
        *group.timer.lock() = Some(timer);
        Ok(group)
    }

    /// Describes the group for the choice of one to join. Connections of a server that it has given up, and
    /// the peer has not, still have their places at the peer.
    pub(crate) fn candidate(&self) -> Candidate {
        let candidate = self.state.lock().proto.candidate();
        let quarantined = u8::try_from(self.quarantined.load(Relaxed)).unwrap_or(u8::MAX);
        Candidate {
            room: candidate.room.saturating_sub(quarantined),
            ..candidate
        }
    }

    /// Returns the number of connections of a group that carries connections by this port, or will, of either version.
    pub(crate) fn lane_load(&self, port: &LocalPort) -> Option<u8> {
        let serves = self.link.is_on(port) || self.link.at.is_v1_of(port);
        if !serves || self.is_lost() {
            return None;
        }
        let state = self.state.lock();
        (!state.proto.is_held()).then(|| state.proto.conns())
    }

    /// The active link.
    pub(crate) fn link_end(&self) -> Option<LinkEnd> {
        self.state.lock().proto.link_end()
    }

    /// The device, for further memory.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.link.device()
    }

    /// Enters the peer's memory into the group's table.
    pub(crate) fn add_peer_region(&self, region: PeerRegion) -> bool {
        self.state.lock().proto.rtokens.add(0, region).is_some()
    }
}
