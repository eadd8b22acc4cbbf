// SPDX-License-Identifier: GPL-2.0

//! A link group: what this host and one peer share for all their connections.
//!
//! Ours have one link: one queue pair, over which the data of all connections, their CDC messages
//! and the group's own LLC messages go.
//!
//! * here: what it is made of
//! * [`carrier`]: what its connections see of it
//! * [`conns`]: its connections, and the buffers they have of it
//! * [`drains`]: which closed connection goes when there are too many
//! * [`end`]: deadlines, and the end
//! * [`link`]: setting the queue pair up, what arrives on it, its loss
//! * [`turns`]: who sends next
//! * [`rings`], [`spares`]: send rings in use, and those that are not
//! * [`tidy`]: what nobody uses goes back
//! * [`facts`]: what there is to tell of it

mod carrier;
mod conns;
mod drains;
mod end;
mod facts;
mod link;
mod loss;
mod rings;
mod spares;
mod tidy;
mod turns;

pub(crate) use drains::Drains;
pub(crate) use facts::{Facts, PeerFacts};
pub(crate) use loss::LastWord;

use super::{
    port::LocalPort,
    slab::RmbSlab, //
};
use crate::{
    conn::RING_MAX,
    host::{
        namespace::Queues,
        origin::Origin,
        pnet::PnetId,
        waiter::Waiter, //
    }, //
};
use kapi::{
    new_spinlock_bh,
    rdma::{
        channel::Channel,
        completion::Status,
        config::Config,
        device::{Device, PortInfo, PortState},
        gid::GidRef,
        pd::Pd,
        qp::{Qp, ReadyToReceive, ReadyToSend, Reset}, //
    },
    sys::{
        clock,
        hook::TimerHook,
        lock::SpinLockBh,
        word::Word, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex,
        SetOnce, //
    },
    workqueue::Work, //
};
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
    wire::ids::{Gid, PeerId}, //
};
use spares::Spares;
use tidy::Tidy;
use turns::Turns;

type ProtoGroup = Group<KVec<Entry<1>>, KVec<u32>>;

/// Pages of a request that a device need not support; more do not fit with every device's overhead.
const PAGES: u32 = 16;
/// Buffers that peers may still write to although their connection has ended. A group that has so
/// many ends with its last connection: then its memory comes back. A server's takes no more
/// connections before that, since each of them may still have its place at the peer.
const SPOILED: u32 = 255;
/// The same of a client, which has to go into the group that the server says.
const SPOILED_CLIENT: u32 = 4 * SPOILED;
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
    waiter: Option<Arc<dyn Waiter>>,
    spares: Spares,
    tidy: Tidy,
}

/// An SMC-R connection over a link group.
pub(crate) type SmcConn = crate::conn::SmcConn<LinkGroup>;

/// The one that has all groups.
pub(crate) trait Owner: Send + Sync {
    /// Forgets a group, which ends.
    fn forget(&self, group: &LinkGroup);

    /// Ends the oldest drain, in a namespace, of the peer that has most; false if none was found. Sleeps.
    fn shed_drain(&self, namespace: u64) -> bool;

    /// Returns when there was a line in the kernel log about a group.
    fn last_word(&self) -> &LastWord;
}

/// What the device holds for the group; given back when the group ends.
struct Resources {
    pd: Arc<Pd>,
    slabs: KVec<Arc<RmbSlab>>,
    /// Slabs that are out of service; their memory goes when the peer has forgotten their keys.
    leaving: KVec<Arc<RmbSlab>>,
}

/// A link group.
#[pin_data]
pub(crate) struct LinkGroup {
    owner: Arc<dyn Owner>,
    device: Arc<Device>,
    port: u32,
    gid_index: u16,
    pub(crate) gid: Gid,
    /// The number of the group, which no other group of this load of the module has.
    pub(crate) id: u32,
    /// The peer of the TCP connection of first contact.
    pub(crate) origin: Origin,
    /// What the peer says that it is.
    pub(crate) peer_id: PeerId,
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
    /// What broke it first.
    failure: SetOnce<Status>,
    ended: Atomic<u32>,
    /// Buffers that cannot be used again.
    spoiled: Atomic<u32>,
    /// 1 when the group is to end if it still has no connection.
    retired: Atomic<u32>,
    /// Chains that have ended.
    done: Word,
    /// 1 when somebody who has something to send has found no free slot.
    starved: Word,
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
    /// A group with the number `id`, whose first contact begins: its queue pair can receive nothing yet.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(crate) fn new(
        owner: Arc<dyn Owner>,
        id: u32,
        local: &LocalPort,
        origin: Origin,
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
                owner,
                device: local.device.clone(),
                port: local.port,
                gid_index: local.gid_index,
                gid: local.gid,
                id,
                origin,
                peer_id: terms.key.peer_id,
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
                        tidy: Tidy::new(),
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
                        leaving: KVec::new(),
                    }),
                    "rsmc::LinkGroup::resources"
                ),
                timer <- new_mutex!(None, "rsmc::LinkGroup::timer"),
                broken: Atomic::new(0),
                failure: SetOnce::new(),
                ended: Atomic::new(0),
                spoiled: Atomic::new(0),
                retired: Atomic::new(0),
                done: Word::new(0),
                starved: Word::new(0),
                work <- new_work!("rsmc::LinkGroup::work"),
            }),
            GFP_KERNEL,
        )?;
        // A slot must be enough to post: then nothing that was taken has to be put back.
        let limits = local.device.limits()?;
        let chain = longest_chain(limits.send_sges.min(PAGES));
        // One request is the drain's.
        let wrs = limits.queue_wrs.saturating_sub(1);
        let most = wrs.checked_div(u32::from(chain)).unwrap_or(0);
        let slots = u16::try_from(most)
            .unwrap_or(u16::MAX)
            .min(queues.send)
            .max(2);
        let recv_slots = u16::try_from(wrs).unwrap_or(u16::MAX).min(queues.recv);
        let mut config = Config {
            send_slots: slots,
            send_wrs: u32::from(slots).saturating_mul(u32::from(chain)),
            chain_wrs: chain,
            send_sges: PAGES,
            recv_slots,
            recv_first: 44,
            recv_spill: LLC_SPILL,
            // 268 ms, and not for ever, as with 7 some devices do: a peer may stand still for most of
            // two seconds.
            ack_timeout: 16,
            retries: 6,
            ..Config::default()
        };
        let timer = TimerHook::new(group.clone())?;
        let qp = loop {
            match Qp::new(&pd, group.clone(), config) {
                // Some devices (mlx5) limit a send queue in bytes, and do not tell.
                Err(error) if error == ENOMEM && config.send_slots > 2 => {
                    config.send_slots = (config.send_slots / 2).max(2);
                    config.send_wrs = u32::from(config.send_slots).saturating_mul(u32::from(chain));
                }
                made => break made?,
            }
        };
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
        self.device.port(self.port).is_ok_and(active) && self.has_gid()
    }

    /// Whether the port was active at the last event of the device.
    pub(crate) fn has_active_port(&self) -> bool {
        let state = self.device.known_state(self.port);
        state.is_ok_and(|state| state == PortState::Active)
    }

    /// Whether the port still has the GID from which the group's link sends.
    pub(crate) fn has_gid(&self) -> bool {
        let same = |gid: GidRef| gid.gid() == self.gid.0 && gid.ifindex() == Some(self.ifindex);
        self.device.gid(self.port, self.gid_index).is_some_and(same)
    }

    /// Whether the group's link is on this device.
    pub(crate) fn uses(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// The number of the device's port.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// How the choice of a group sees this one. A server's connections that it has given up, and the
    /// peer has not, still have their places at the peer.
    pub(crate) fn candidate(&self) -> Candidate {
        let candidate = self.state.lock().proto.candidate();
        let given_up = u8::try_from(self.spoiled.load(Relaxed)).unwrap_or(u8::MAX);
        Candidate {
            room: candidate.room.saturating_sub(given_up),
            ..candidate
        }
    }

    /// The active link.
    pub(crate) fn link_end(&self) -> Option<LinkEnd> {
        self.state.lock().proto.link_end()
    }

    /// The device, for further memory.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Enters the peer's memory into the group's table.
    pub(crate) fn add_peer_region(&self, region: PeerRegion) -> bool {
        self.state.lock().proto.rtokens.add(0, region).is_some()
    }
}
