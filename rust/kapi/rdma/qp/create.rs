// SPDX-License-Identifier: GPL-2.0

//! Creation of a queue pair: its queues, slots and memory, sized within the device's limits.

use super::{Owner, Qp, Reset};
use crate::{
    rdma::{
        callback::{overdue, qp_event, recv_done, send_last, send_member},
        channel::{Channel, Handler, Resources},
        config::Config,
        cq::{Poller, Queues},
        dma::Direction,
        pd::Pd,
        region::Region,
        rq::{Layout, RecvSlot, Rq},
        sq::{SendSlot, Sq}, //
    },
    sys::word::Word, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem,
    ptr::NonNull, //
};
use kernel::{
    error::from_err_ptr,
    ffi::c_void,
    new_mutex,
    new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    }, //
};
use smc_bindings as bindings;

/// Fills a vector of slots.
fn slots<T>(count: u16, make: impl Fn(u16) -> T) -> Result<KVec<T>> {
    let mut out = KVec::with_capacity(usize::from(count), GFP_KERNEL)?;
    for index in 0..count {
        out.push(make(index), GFP_KERNEL)?;
    }
    Ok(out)
}

impl<H: Handler> Qp<H, Reset> {
    /// Creates a queue pair in `pd` whose completions go to `handler`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a configuration that makes no sense or that the device cannot meet, `ENODEV`,
    /// `ENOMEM`, or the driver's error.
    pub fn new(pd: &Arc<Pd>, handler: Arc<H>, config: Config) -> Result<Self> {
        let device = pd.device();
        let limits = device.limits()?;
        let mut config = config;
        config.send_wrs = config.send_wrs.min(limits.queue_wrs);
        config.send_sges = config.send_sges.min(limits.send_sges);
        if config.send_slots == 0
            || config.recv_slots == 0
            || config.chain_wrs == 0
            || config.send_sges == 0
            || config.message == 0
            || config.send_wrs < u32::from(config.chain_wrs)
            || usize::from(config.message) > PAGE_SIZE
            || u32::from(config.recv_slots) > limits.queue_wrs
        {
            return Err(EINVAL);
        }
        let layout = Layout::new(
            config.recv_slots,
            usize::from(config.recv_first),
            usize::from(config.recv_spill),
            limits.recv_sges,
        )?;
        // A power of two does not straddle pages.
        let send_stride = usize::from(config.message).next_power_of_two().max(64);
        let send_bytes = send_stride
            .checked_mul(usize::from(config.send_slots))
            .ok_or(EINVAL)?;
        let send_memory = Region::new(device, send_bytes, Direction::ToDevice)?;
        let recv_memory = Region::new(device, layout.bytes(), Direction::FromDevice)?;
        let device_use = device.hold()?;

        let send_slots = slots(config.send_slots, |index| {
            SendSlot::new(index, send_last::<H>, send_member::<H>)
        })?;
        let recv_slots = slots(config.recv_slots, |index| {
            RecvSlot::new(index, recv_done::<H>)
        })?;
        let mut sq = Sq::new(
            // The elements of a vector stay where they are when the vector is moved.
            NonNull::from(send_slots.as_slice()).cast(),
            config.send_slots,
            config.send_wrs,
            usize::from(config.chain_wrs),
            usize::try_from(config.send_sges)?,
            device.serial(),
        )?;
        sq.lkey = pd.dma_lkey();
        let map = send_memory.map().ok_or(ENODEV)?;
        for index in 0..usize::from(config.send_slots) {
            let at = index.saturating_mul(send_stride);
            let addr = map.addr(at).ok_or(EINVAL)?;
            let (ptr, _) = send_memory.pages().at(at).ok_or(EINVAL)?;
            sq.message.push((addr, ptr), GFP_KERNEL)?;
        }
        drop(map);
        let rq = Rq::new(config.recv_slots, layout.sges)?;
        // SAFETY: No preconditions.
        let psn = unsafe { bindings::get_random_u32() } & 0x00ff_ffff;
        let queue = device.queue();

        let channel: Arc<Channel<H>> = Arc::pin_init(
            pin_init!(Channel {
                sq <- new_spinlock_bh!(sq, "kapi::rdma::sq"),
                rq <- new_spinlock_bh!(rq, "kapi::rdma::rq"),
                send_slots,
                recv_slots,
                poller <- Poller::new(overdue::<H>),
                send_memory,
                recv_memory,
                send_stride,
                layout,
                handler: UnsafeCell::new(Some(handler)),
                resources <- new_mutex!(None, "kapi::rdma::channel"),
                close_work <- new_work!("kapi::rdma::close"),
                fail_work <- new_work!("kapi::rdma::fail"),
                queue,
                free: Word::new(u32::from(config.send_slots)),
                failed: Atomic::new(0),
                closing: Atomic::new(0),
                begun: Atomic::new(0),
                qpn: Atomic::new(0),
                inline: Atomic::new(0),
                path_mtu: Atomic::new(0),
                psn,
                config,
            }),
            GFP_KERNEL,
        )?;
        let me = Arc::as_ptr(&channel).cast_mut().cast::<c_void>();
        for slot in &channel.send_slots {
            slot.owner.release(me);
        }
        for slot in &channel.recv_slots {
            slot.owner.release(me);
        }
        {
            let mut rq = channel.rq.lock();
            rq.arm(
                &channel.recv_slots,
                &channel.layout,
                &channel.recv_memory,
                pd.dma_lkey(),
            )?;
        }

        // Every request has a completion if the queue pair breaks.
        let receives = u32::from(config.recv_slots);
        // SAFETY: The channel stays where it is. It owns itself until the queues are destroyed, below or by `close`.
        let queues = unsafe {
            Queues::new(
                device,
                config.send_wrs,
                receives,
                config.vector,
                &channel.poller,
            )
        }?;
        // SAFETY: `stop` is called below or by `close`, before the queues are destroyed. All requests have an `ib_cqe`
        // of the slots, which stay until the channel goes.
        unsafe { channel.poller.start(device, &queues) };
        // Not every driver likes to be asked for inline data.
        let created = match Self::create(&channel, pd, &queues, me, config.inline) {
            Err(_) if config.inline > 0 => Self::create(&channel, pd, &queues, me, 0),
            created => created,
        };
        let (qp, inline) = match created {
            Ok(created) => created,
            Err(error) => {
                // SAFETY: Started above; this is no callback.
                unsafe { channel.poller.stop() };
                if queues.destroy().is_err() {
                    // The device may tell of them.
                    mem::forget(channel.clone());
                }
                return Err(error);
            }
        };
        // SAFETY: Just created.
        channel.qpn.store(unsafe { (*qp.as_ptr()).qp_num }, Relaxed);
        channel.inline.store(inline, Relaxed);
        // INVARIANT: From here the owner below keeps the channel until it is closed.
        *channel.resources.lock() = Some(Resources {
            qp,
            queues,
            pd: pd.clone(),
            device: device_use,
        });
        {
            let mut sq = channel.sq.lock();
            sq.qp = Some(qp);
            sq.inline = usize::try_from(inline).unwrap_or(0);
        }
        channel.rq.lock().qp = Some(qp);
        Ok(Self {
            owner: Owner(channel),
            _state: PhantomData,
        })
    }

    fn create(
        channel: &Channel<H>,
        pd: &Pd,
        queues: &Queues,
        context: *mut c_void,
        inline: u32,
    ) -> Result<(NonNull<bindings::ib_qp>, u32)> {
        let config = &channel.config;
        // SAFETY: Zero is a valid value of a plain C struct.
        let mut init: bindings::ib_qp_init_attr = unsafe { mem::zeroed() };
        init.event_handler = Some(qp_event::<H>);
        init.qp_context = context;
        init.send_cq = queues.send();
        init.recv_cq = queues.recv();
        init.cap.max_send_wr = config.send_wrs;
        init.cap.max_recv_wr = u32::from(config.recv_slots);
        init.cap.max_send_sge = config.send_sges;
        init.cap.max_recv_sge = u32::try_from(channel.layout.sges)?;
        init.cap.max_inline_data = inline;
        init.sq_sig_type = bindings::ib_sig_type_IB_SIGNAL_REQ_WR;
        init.qp_type = bindings::ib_qp_type_IB_QPT_RC;
        // SAFETY: Domain and completion queues are alive. The context is a channel that outlives
        // the queue pair: its owner closes it first.
        let qp = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.raw(), &mut init, bindings::module_name())
        })?;
        Ok((NonNull::new(qp).ok_or(ENOMEM)?, init.cap.max_inline_data))
    }
}
