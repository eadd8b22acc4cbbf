// SPDX-License-Identifier: GPL-2.0

//! Reliable connected queue pairs.
//!
//! [`Qp`] is the one owner; its type says in which state the queue pair is, and each step consumes
//! it. [`Channel`] is what all others hold: it posts, and refuses to once the owner is gone.
//!
//! Closing (by [`Qp::close`], or in the background when the owner is dropped) has the device flush
//! both queues, as far as it does so in time, destroys the queue pair, stops its poller and then
//! lets go of the handler. So a handler may hold the channel: the circle is broken when the link ends.
//!
//! ```text
//! Reset --init--> Init --ready_to_receive--> ReadyToReceive --ready_to_send--> ReadyToSend
//!   \---------------\------------ error, or any failure ------------/---------> Failed
//! ```

mod create;

use super::{
    channel::{modify, new_attr, Channel, Handler, Resources},
    config::Path,
    mr::Access, //
};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Full, Relaxed, Release},
        Arc, //
    },
    workqueue::Queue, //
};
use smc_bindings as bindings;

/// State: created.
pub struct Reset(());
/// State: bound to a port, receives are posted.
pub struct Init(());
/// State: connected to the peer's queue pair, receiving.
pub struct ReadyToReceive(());
/// State: sending and receiving.
pub struct ReadyToSend(());
/// State: everything is flushed.
pub struct Failed(());

/// Closes the channel in the background unless that was done already.
struct Owner<H: Handler>(Arc<Channel<H>>);

impl<H: Handler> Drop for Owner<H> {
    fn drop(&mut self) {
        if self.0.closing.xchg(1, Full) != 0 {
            return;
        }
        // SAFETY: Only the owner closes, so the resources are there and the queue is valid.
        let queue = unsafe { Queue::from_raw(self.0.queue.as_ptr().cast()) };
        // Queued once in its life, so this cannot fail.
        let _ = queue.enqueue::<_, 0>(self.0.clone());
    }
}

/// The owner of a queue pair in state `S`; dropping it closes the queue pair in the background.
pub struct Qp<H: Handler, S> {
    owner: Owner<H>,
    _state: PhantomData<S>,
}

impl<H: Handler, S> Qp<H, S> {
    /// Returns the part that others may hold.
    pub fn channel(&self) -> &Arc<Channel<H>> {
        &self.owner.0
    }

    /// Returns the number of our queue pair.
    pub fn qpn(&self) -> u32 {
        self.channel().qpn()
    }

    /// Our first packet sequence number.
    pub fn psn(&self) -> u32 {
        self.channel().psn()
    }

    fn become_<N>(self) -> Qp<H, N> {
        Qp {
            owner: self.owner,
            _state: PhantomData,
        }
    }

    fn step<N>(
        self,
        state: bindings::ib_qp_state,
        mask: bindings::ib_qp_attr_mask,
        fill: impl FnOnce(&mut bindings::ib_qp_attr, &Resources) -> Result,
    ) -> Result<Qp<H, N>> {
        {
            let guard = self.channel().resources.lock();
            let resources = guard.as_ref().ok_or(ENODEV)?;
            let mut attr = new_attr();
            fill(&mut attr, resources)?;
            modify(resources.qp, &mut attr, state, mask)?;
        }
        Ok(self.become_())
    }

    /// Flushes everything. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's error; the queue pair is then closed.
    pub fn error(self) -> Result<Qp<H, Failed>> {
        self.channel().sq.lock().sendable = false;
        self.step(bindings::ib_qp_state_IB_QPS_ERR, 0, |_, _| Ok(()))
    }

    /// Flushes everything, waits for that for a limited time, and destroys the queue pair; on return
    /// no callback runs. Sleeps.
    ///
    /// Not from a callback: it would wait for itself.
    pub fn close(self) {
        if self.channel().closing.xchg(1, Full) == 0 {
            Channel::close(self.channel());
        }
    }
}

impl<H: Handler> Qp<H, Reset> {
    /// Binds the queue pair to `port` and posts all receives. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's error; the queue pair is then closed.
    pub fn init(self, port: u32) -> Result<Qp<H, Init>> {
        let mask = bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
            | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS
            | bindings::ib_qp_attr_mask_IB_QP_PORT;
        let next: Qp<H, Init> = self.step(
            bindings::ib_qp_state_IB_QPS_INIT,
            mask,
            |attr, _resources| {
                attr.pkey_index = 0;
                attr.port_num = port;
                attr.qp_access_flags = Access::RemoteWrite.as_raw();
                Ok(())
            },
        )?;
        next.channel().begun.store(1, Release);
        next.channel().rq.lock().flush()?;
        Ok(next)
    }
}

impl<H: Handler> Qp<H, Init> {
    /// Connects to the peer's queue pair, to receive. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a path that cannot be, `ENODEV` when the GID has gone, or the
    /// driver's error; the queue pair is then closed.
    pub fn ready_to_receive(self, path: &Path) -> Result<Qp<H, ReadyToReceive>> {
        let mask = bindings::ib_qp_attr_mask_IB_QP_AV
            | bindings::ib_qp_attr_mask_IB_QP_PATH_MTU
            | bindings::ib_qp_attr_mask_IB_QP_DEST_QPN
            | bindings::ib_qp_attr_mask_IB_QP_RQ_PSN
            | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
            | bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
        if !(1..=5).contains(&path.mtu) || path.qpn > 0x00ff_ffff || path.psn > 0x00ff_ffff {
            return Err(EINVAL);
        }
        let sgid_index = u8::try_from(path.sgid_index)?;
        let rnr_timer = self.channel().config.rnr_timer;
        let next: Qp<H, ReadyToReceive> =
            self.step(bindings::ib_qp_state_IB_QPS_RTR, mask, |attr, resources| {
                // SAFETY: The queue pair is alive; it knows its port since `init`.
                let port = unsafe { (*resources.qp.as_ptr()).port };
                attr.path_mtu = u32::from(path.mtu);
                attr.dest_qp_num = path.qpn;
                attr.rq_psn = path.psn;
                // The peer only writes. Soft-RoCE would allocate for more, and when that fails it
                // never flushes the receive queue, for which closing would wait in vain.
                attr.max_dest_rd_atomic = 0;
                attr.min_rnr_timer = rnr_timer;
                let ah = &mut attr.ah_attr;
                // SAFETY: The device is registered as long as the resources.
                ah.type_ = unsafe { bindings::rdma_ah_find_type(resources.device.raw(), port) };
                ah.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
                ah.port_num = port;
                ah.grh.sgid_index = sgid_index;
                ah.grh.hop_limit = path.hop_limit;
                ah.grh.traffic_class = path.traffic_class;
                ah.sl = path.service_level;
                ah.grh.dgid.raw = path.dgid;
                if ah.type_ == bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE {
                    ah.__bindgen_anon_1.roce.dmac = path.dmac;
                }
                Ok(())
            })?;
        // The index may have come to mean another address since it was looked up.
        let guard = next.channel().resources.lock();
        let resources = guard.as_ref().ok_or(ENODEV)?;
        // SAFETY: The queue pair is alive. It keeps the entry that it was given, which changes only
        // with the path, and the path only here; all but `ndev` of an entry does not change.
        let used = unsafe {
            let attr = (*resources.qp.as_ptr()).av_sgid_attr;
            NonNull::new(attr.cast_mut()).map(|attr| (*attr.as_ptr()).gid.raw)
        };
        drop(guard);
        if used != Some(path.sgid) {
            return Err(ENODEV);
        }
        // IB_MTU_256 is 1, and each further one twice that.
        let bytes = 128u32 << path.mtu;
        next.channel().path_mtu.store(bytes, Relaxed);
        Ok(next)
    }
}

impl<H: Handler> Qp<H, ReadyToReceive> {
    /// Allows sending. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's error; the queue pair is then closed.
    pub fn ready_to_send(self) -> Result<Qp<H, ReadyToSend>> {
        let mask = bindings::ib_qp_attr_mask_IB_QP_TIMEOUT
            | bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT
            | bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY
            | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN
            | bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC;
        let config = self.channel().config;
        let psn = self.psn();
        let next: Qp<H, ReadyToSend> = self.step(
            bindings::ib_qp_state_IB_QPS_RTS,
            mask,
            |attr, _resources| {
                attr.timeout = config.ack_timeout;
                attr.retry_cnt = config.retries;
                attr.rnr_retry = config.rnr_retries;
                attr.sq_psn = psn;
                attr.max_rd_atomic = 1;
                Ok(())
            },
        )?;
        {
            let channel = next.channel();
            let mut sq = channel.sq.lock();
            // It may have broken meanwhile; then nothing is sent.
            sq.sendable = channel.failed.load(Acquire) == 0;
        }
        Ok(next)
    }
}
