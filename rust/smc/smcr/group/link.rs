// SPDX-License-Identifier: GPL-2.0

//! A link of a group: a queue pair on a port of a device, who sends next on it, and how it broke.
//!
//! A link that has broken is marked ([`Link::mark_broken`]); the group's work finds the mark, ends the
//! group (`end.rs`) and closes the link ([`Link::close`]).

use super::{
    super::port::LocalPort,
    tx_scheduler::{posting, Turns, TxScheduler},
    LinkGroup, //
};
use crate::host::namespace::Queues;
use kapi::{
    new_spinlock_bh,
    rdma::{
        channel::{Channel, Slot},
        completion::Status,
        config::{Config, Path},
        device::{Device, PortInfo, PortState},
        gid::GidRef,
        pd::Pd,
        qp::{Qp, ReadyToReceive, ReadyToSend, Reset},
        route::NextHop, //
    },
    sys::{lock::SpinLockBh, word::Word}, //
};
use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex,
        SetOnce, //
    }, //
};
use smc_proto::{
    conn::LONGEST_TX,
    group::hold::PortCheck,
    llc::link::LinkEnd,
    wire::{
        clc::Class,
        ids::{Gid, Mtu}, //
    }, //
};

/// Hop limit, as TCP has it. C has 1 where no gateway is known of; but a fabric may route within a subnet.
const HOP_LIMIT: u8 = 64;
/// Scatter-gather entries of a request, at most; a device may support fewer.
const PAGES: u32 = 16;
/// Bytes of a long LLC message beyond the first 44; such messages name all memory keys at once.
const LLC_SPILL: u16 = 4108;

/// The states of the queue pair.
enum Stage {
    None,
    Reset(Qp<LinkGroup, Reset>),
    Receiving(Qp<LinkGroup, ReadyToReceive>),
    Sending(Qp<LinkGroup, ReadyToSend>),
}

/// A link.
#[pin_data]
pub(crate) struct Link {
    /// Our end: device, port, GID, net device.
    pub(super) at: LocalPort,
    /// 1 when packets to the peer pass a gateway.
    gateway: Atomic<u32>,
    /// What waits for a slot.
    #[pin]
    scheduler: SpinLockBh<TxScheduler>,
    /// Which connections may post, one of [`posting`].
    posting: Word,
    channel: SetOnce<Arc<Channel<LinkGroup>>>,
    #[pin]
    stage: Mutex<Stage>,
    /// 1 when the queue pair has broken.
    broken: Atomic<u32>,
    /// The failure that broke it.
    failure: SetOnce<Status>,
    /// Chains that have ended.
    done: Word,
    /// 1 when a sender has found no free slot, or the queue not idle.
    waiting: Word,
}

/// Requests of the longest chain where each takes `pages` pages: where the rings wrap the bytes are
/// sent in four pieces, none of whose pages need be adjacent for the device, and the message follows.
fn longest_chain(pages: u32) -> u16 {
    let bytes = LONGEST_TX.div_ceil(PAGE_SIZE as u32);
    let requests = bytes.div_ceil(pages.max(1)).saturating_add(4 + 1);
    u16::try_from(requests).unwrap_or(u16::MAX)
}

impl Link {
    /// A link from `at` without a queue pair.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(at: LocalPort) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            at,
            gateway: Atomic::new(0),
            scheduler <- new_spinlock_bh!(TxScheduler::new()?, "rsmc::Link::scheduler"),
            posting: Word::new(posting::ALL),
            channel: SetOnce::new(),
            stage <- new_mutex!(Stage::None, "rsmc::Link::stage"),
            broken: Atomic::new(0),
            failure: SetOnce::new(),
            done: Word::new(0),
            waiting: Word::new(0),
        }? Error)
    }

    /// Makes the queue pair, whose arrivals are `group`'s, and are handled on `cpu` if the device has a vector there;
    /// without one the device's vectors are taken in turn. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, the driver's.
    pub(super) fn make(
        &self,
        pd: &Arc<Pd>,
        group: &Arc<LinkGroup>,
        queues: Queues,
        cpu: Option<u32>,
    ) -> Result {
        // A free slot must guarantee that a chain can be posted: then nothing that was taken has to be
        // put back.
        let limits = self.at.device.limits()?;
        let chain = longest_chain(limits.send_sges.min(PAGES));
        let wrs = limits.queue_wrs;
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
            // 268 ms, six times: a peer may stand still for most of two seconds. Some devices take 7
            // retries as infinite.
            ack_timeout: 16,
            retries: 6,
            vector: cpu.map(|cpu| u16::try_from(cpu).unwrap_or(0)),
            ..Config::default()
        };
        let qp = loop {
            match Qp::new(pd, group.clone(), config) {
                // Some devices (mlx5) limit a send queue in bytes, and do not tell.
                Err(error) if error == ENOMEM && config.send_slots > 2 => {
                    config.send_slots = (config.send_slots / 2).max(2);
                    config.send_wrs = u32::from(config.send_slots).saturating_mul(u32::from(chain));
                }
                made => break made?,
            }
        };
        self.channel.populate(qp.channel().clone());
        *self.stage.lock() = Stage::Reset(qp);
        Ok(())
    }

    /// Returns the channel, once there is a queue pair.
    #[inline]
    pub(super) fn channel(&self) -> Option<&Arc<Channel<LinkGroup>>> {
        self.channel.as_ref()
    }

    /// Returns the number of the NAPI context by which data of connections arrive.
    pub(super) fn napi_id(&self) -> u32 {
        self.channel().map_or(0, |channel| channel.napi_id())
    }

    /// Returns number and first sequence number of our queue pair.
    pub(crate) fn queue_pair(&self) -> (u32, u32) {
        self.channel()
            .map_or((0, 0), |channel| (channel.qpn(), channel.psn()))
    }

    /// Tells whether the link leaves by this port and net device.
    pub(crate) fn is_on(&self, port: &LocalPort) -> bool {
        self.at.is(port)
    }

    /// Tells whether the port is usable and still has the GID from which the link sends. Sleeps.
    pub(crate) fn has_port(&self) -> bool {
        let active = |info: PortInfo| info.state == PortState::Active;
        self.at.device.port(self.at.port).is_ok_and(active) && self.has_gid()
    }

    /// Tells whether the port was active at the last event of the device.
    pub(crate) fn has_active_port(&self) -> bool {
        let state = self.at.device.known_state(self.at.port);
        state.is_ok_and(|state| state == PortState::Active)
    }

    /// Tells whether the port still has the GID from which the link sends.
    pub(crate) fn has_gid(&self) -> bool {
        let gid = self.at.device.gid(self.at.port, self.at.gid_index);
        gid.is_some_and(|gid| self.is_ours(&gid))
    }

    /// Looks what has become of a port that has failed. Sleeps.
    pub(super) fn check_port(&self) -> PortCheck {
        if self.has_port() {
            return PortCheck::Back;
        }
        // The queue pair keeps the place of its GID, so one that comes back gets another.
        let info = self.at.device.port(self.at.port);
        let len = match info {
            Ok(info) if info.state == PortState::Active => info.gid_table_len,
            _ => return PortCheck::Gone,
        };
        let found = (0..len).any(|index| {
            let gid = self.at.device.gid(self.at.port, index);
            gid.is_some_and(|gid| self.is_ours(&gid))
        });
        match found {
            true => PortCheck::Moved,
            false => PortCheck::Gone,
        }
    }

    fn is_ours(&self, gid: &GidRef) -> bool {
        gid.kind() == self.at.kind
            && gid.gid() == self.at.gid.0
            && gid.ifindex() == Some(self.at.ifindex)
    }

    /// Tells whether the link is on this device.
    pub(crate) fn uses(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.at.device, device)
    }

    /// Returns the number of the device's port.
    pub(crate) fn port(&self) -> u32 {
        self.at.port
    }

    /// Returns the GID from which the link sends.
    pub(crate) fn gid(&self) -> Gid {
        self.at.gid
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.at.device
    }

    /// Tells whether packets to the peer pass a gateway.
    pub(super) fn passes_gateway(&self) -> bool {
        self.gateway.load(Relaxed) != 0
    }

    /// Connects the queue pair so that it receives (RTR). Sleeps. Calls `initialised` on the way.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(super) fn to_rtr(
        &self,
        peer: &LinkEnd,
        psn: u32,
        mtu: Mtu,
        hop: &NextHop,
        class: Class,
        initialised: impl FnOnce(),
    ) -> Result {
        let mut stage = self.stage.lock();
        let reset = match core::mem::replace(&mut *stage, Stage::None) {
            Stage::Reset(qp) => qp,
            other => {
                *stage = other;
                return Err(EINVAL);
            }
        };
        // To an address of this host there is no hop; the peer is the same port.
        let dmac = if hop.mac == [0; 6] {
            peer.mac.0
        } else {
            hop.mac
        };
        self.gateway.store(u32::from(hop.gateway), Relaxed);
        let init = reset.init(self.at.port)?;
        initialised();
        let receiving = init.ready_to_receive(&Path {
            mtu: mtu.code(),
            qpn: peer.qpn.get(),
            psn,
            sgid: self.at.gid.0,
            sgid_index: self.at.gid_index,
            dgid: peer.gid.0,
            dmac,
            hop_limit: HOP_LIMIT,
            traffic_class: class.traffic,
            service_level: self.at.service_level(class),
        })?;
        *stage = Stage::Receiving(receiving);
        Ok(())
    }

    /// Allows the queue pair to send (RTS). Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's; the queue pair is then gone.
    pub(super) fn to_rts(&self) -> Result<Arc<Channel<LinkGroup>>> {
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
        Ok(channel)
    }

    /// Returns the channel if the queue pair may send; a key of memory has to be registered then. Sleeps.
    pub(super) fn sending(&self) -> Option<Arc<Channel<LinkGroup>>> {
        match &*self.stage.lock() {
            Stage::Sending(qp) => Some(qp.channel().clone()),
            _ => None,
        }
    }

    /// Locks the scheduler.
    pub(super) fn turns(&self) -> Turns<'_> {
        Turns {
            posting: &self.posting,
            scheduler: self.scheduler.lock(),
        }
    }

    /// Returns which connections may post.
    #[inline]
    pub(super) fn posting(&self) -> u32 {
        self.posting.get()
    }

    /// Takes a slot for one more chain. If there is none, the next completion goes on ([`Link::take_waiting`]). To be
    /// called inside of a lock that keeps bottom halves out, as the slot then is, too.
    #[inline]
    pub(super) fn slot<'a>(
        &self,
        channel: &'a Arc<Channel<LinkGroup>>,
    ) -> Option<Slot<'a, LinkGroup>> {
        channel.slot_with_bh_off(|| self.waiting.set(1))
    }

    /// Tells whether there is a slot for one more chain. If not, the next completion goes on ([`Link::take_waiting`]).
    #[inline]
    pub(super) fn has_slot(&self, channel: &Arc<Channel<LinkGroup>>) -> bool {
        if channel.has_free_slot() {
            return true;
        }
        self.waiting.set(1);
        channel.expect_ends();
        // Again, under the lock under which slots are freed: who frees one from now on finds the mark.
        channel.free_slots() != 0
    }

    /// Tells whether nothing is under way, which stays so while the scheduler is locked and no connection may post. If
    /// not, the next completion goes on ([`Link::take_waiting`]).
    pub(super) fn is_idle(&self, channel: &Arc<Channel<LinkGroup>>) -> bool {
        if channel.is_idle() {
            return true;
        }
        self.waiting.set(1);
        channel.expect_ends();
        // Again, as in `has_slot`.
        channel.is_idle()
    }

    /// Returns whether a sender has found no slot since the last call.
    #[inline]
    pub(super) fn take_waiting(&self) -> bool {
        let waiting = self.waiting.get() != 0;
        if waiting {
            self.waiting.set(0);
        }
        waiting
    }

    /// Counts a chain that has ended. Completions of a queue pair come one after the other.
    #[inline]
    pub(super) fn count_done(&self) {
        self.done.set(self.done.get().wrapping_add(1));
    }

    /// Returns whether chains are under way, and how many have ended.
    pub(super) fn progress(&self) -> (bool, u32) {
        let under_way = self.channel().is_some_and(|channel| !channel.is_idle());
        (under_way, self.done.get())
    }

    /// Tells whether the queue pair has broken.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed) != 0
    }

    /// Marks the link as of no more use. Any context.
    pub(super) fn mark_broken(&self) {
        self.broken.store(1, Relaxed);
    }

    /// Notes that a request has failed, which breaks a queue pair. Any context.
    pub(super) fn note_failure(&self, status: Status) {
        self.failure.populate(status);
        self.mark_broken();
    }

    /// Returns what broke the queue pair first.
    pub(super) fn failure(&self) -> Option<&Status> {
        self.failure.as_ref()
    }

    /// Has the queue pair break, so that nothing more is sent. Any context.
    pub(super) fn break_off(&self) {
        if let Some(channel) = self.channel() {
            channel.fail();
        }
    }

    /// Ends the queue pair, and waits for the requests under way, for two seconds at most. Sleeps.
    pub(super) fn close(&self) {
        self.break_off();
        let stage = core::mem::replace(&mut *self.stage.lock(), Stage::None);
        match stage {
            Stage::None => (),
            Stage::Reset(qp) => qp.close(),
            Stage::Receiving(qp) => qp.close(),
            Stage::Sending(qp) => qp.close(),
        }
    }
}
