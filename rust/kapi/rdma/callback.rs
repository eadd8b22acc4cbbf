// SPDX-License-Identifier: GPL-2.0

//! Entry points: completions and events of a queue pair.
//!
//! Holds the only functions that C calls with a channel behind them. All of them end before the poller
//! has been stopped and the queue pair destroyed, and the channel lives longer than that.

use super::{
    channel::{Channel, Handler},
    completion::{Arrival, Completion, Status},
    cq::Poller,
    rq::RecvSlot,
    sq::{room, Ended, Held, Job, SendSlot, Silent},
    wr::{Received, HEAD}, //
};
use crate::sys::lock::lock_with_bh_off;
use core::{mem, ptr};
use kernel::{
    ffi::c_void,
    prelude::*,
    sync::{
        atomic::Full,
        Arc, //
    }, //
};
use smc_bindings as bindings;

impl<H: Handler> Channel<H> {
    /// Runs `f` with the handler.
    ///
    /// # Safety
    ///
    /// Only from callbacks of the queue pair, or from `close`.
    #[inline(always)]
    pub(super) unsafe fn with_handler(&self, f: impl FnOnce(&Arc<H>)) {
        // SAFETY: Callbacks come only before the poller is stopped, and it is written after that.
        if let Some(handler) = unsafe { &*self.handler.get() } {
            f(handler);
        }
    }

    /// # Safety
    ///
    /// As for [`Channel::with_handler`].
    pub(super) unsafe fn note_failure(self: &Arc<Self>, status: Status) {
        if self.failed.xchg(1, Full) == 0 {
            self.stop_sending(&mut self.sq.lock());
            // SAFETY: The caller's promise.
            unsafe { self.with_handler(|handler| H::failed(handler, self, status)) };
        }
    }

    /// # Safety
    ///
    /// As for [`Channel::with_handler`].
    #[inline(always)]
    pub(super) unsafe fn finish(self: &Arc<Self>, held: Held<H::Token>, completion: &Completion) {
        // It stays until the handler has returned.
        let Held { job, keep: _keep } = held;
        let token = match job {
            // Most often.
            Job::Post(token) => token,
            other => match Self::finish_other(other, completion) {
                Some(token) => token,
                None => return,
            },
        };
        // SAFETY: The caller's promise.
        unsafe { self.with_handler(|handler| H::sent(handler, self, token, completion)) };
    }

    /// Does [`Channel::finish`] for jobs that are not messages; returns the token for the handler, if there is one.
    #[inline(never)]
    fn finish_other(job: Job<H::Token>, completion: &Completion) -> Option<H::Token> {
        match job {
            Job::Post(token) => Some(token),
            Job::Key(key) => Some(KBox::into_inner(key).into_token()),
            Job::Sync(waiter) => {
                waiter.finish(completion.status);
                None
            }
            Job::Idle | Job::Flush => None,
        }
    }

    /// # Safety
    ///
    /// Only from callbacks of the queue pair.
    #[inline]
    pub(super) unsafe fn on_send(self: &Arc<Self>, index: u16, completion: Completion, last: bool) {
        // SAFETY: The caller's promise.
        while unsafe { self.end_some(index, &completion, last) } {}
    }

    /// Ends the chains of which a completion tells, as many as there is room for. Returns whether there are more.
    ///
    /// # Safety
    ///
    /// Only from callbacks of the queue pair.
    // Not inlined into a loop that is run once.
    #[inline(never)]
    unsafe fn end_some(self: &Arc<Self>, index: u16, completion: &Completion, last: bool) -> bool {
        let mut room = room();
        let mut silent = Silent::new(&mut room);
        let ended = {
            let mut sq = lock_with_bh_off(&self.sq);
            let ended = sq.completed(index, *completion, last, &mut silent);
            if sq.has_refused() {
                let again = sq.retry();
                self.expect_locked(&mut sq);
                self.try_again(&sq, again);
            }
            self.note_counts(&sq);
            ended
        };
        if !completion.status.is_success() {
            // SAFETY: The caller's promise.
            unsafe { self.note_failure(completion.status) };
        }
        let well = Completion::silent();
        silent.drain(|held| {
            // SAFETY: The caller's promise.
            unsafe { self.finish(held, &well) };
        });
        match ended {
            Ended::No => false,
            Ended::Yes(held, completion) => {
                // SAFETY: The caller's promise.
                unsafe { self.finish(held, &completion) };
                false
            }
            Ended::More => true,
        }
    }

    /// # Safety
    ///
    /// Only from callbacks of the queue pair.
    #[inline]
    pub(super) unsafe fn on_receive(self: &Arc<Self>, index: u16, arrival: Arrival) {
        match arrival {
            // Most often.
            // SAFETY: The caller's promise.
            Arrival::Immediate(number) => unsafe {
                self.with_handler(|handler| H::immediate(handler, self, number));
            },
            // SAFETY: The caller's promise.
            Arrival::Message(len) => unsafe { self.on_message(index, len) },
            Arrival::Nothing(status) => {
                self.rq.lock().ended();
                // SAFETY: The caller's promise.
                unsafe { self.note_failure(status) };
                return;
            }
        }
        let posted = lock_with_bh_off(&self.rq).recycle(index);
        if posted.is_err() {
            self.fail();
        }
    }

    /// # Safety
    ///
    /// Only from callbacks of the queue pair.
    // Not inlined, for its room on the stack.
    #[inline(never)]
    unsafe fn on_message(self: &Arc<Self>, index: u16, byte_len: u32) {
        let layout = &self.layout;
        // The length is the driver's word; never believe more than there is.
        let len = usize::try_from(byte_len).unwrap_or(0).min(layout.longest());
        let slot = layout.slot_at(index);
        let head_len = len.min(layout.first).min(HEAD);
        let mut message = Received {
            head: [0; HEAD],
            head_len: 0,
            len,
            slot,
            first: layout.first,
            spill: layout.spill_at,
            region: &self.recv_memory,
        };
        if let Some(out) = message.head.get_mut(..head_len) {
            message.head_len = self.recv_memory.read_slice(slot, out);
        }
        // SAFETY: The caller's promise.
        unsafe { self.with_handler(|handler| H::received(handler, self, &message)) };
    }
}

/// Finds the channel of a slot.
///
/// # Safety
///
/// `owner` must be from a slot of a channel of handlers `H` whose poller is not yet stopped.
unsafe fn channel_of<H: Handler>(owner: *mut c_void) -> mem::ManuallyDrop<Arc<Channel<H>>> {
    // SAFETY: The number was `Arc::as_ptr` of the channel, which is alive as its queue pair is.
    // The count is not ours, hence `ManuallyDrop`.
    mem::ManuallyDrop::new(unsafe { Arc::from_raw(owner.cast::<Channel<H>>()) })
}

/// Has the device tell of the end of chains that nobody has waited for, and that have been under way for a while.
///
/// # Safety
///
/// Called by the timer of `poller`, which is that of a channel of handlers `H` and not yet stopped.
pub(super) unsafe fn overdue<H: Handler>(poller: &Poller) {
    // SAFETY: The caller's promise. The channel is in an `Arc`, and stays until the poller is stopped, which waits for
    // this call. The count is not ours, hence `ManuallyDrop`.
    let channel = unsafe {
        let channel = kernel::container_of!(ptr::from_ref(poller), Channel<H>, poller);
        mem::ManuallyDrop::new(Arc::from_raw(channel))
    };
    let mut sq = channel.sq.lock();
    channel.flush_locked(&mut sq);
    channel.note_counts(&sq);
}

/// # Safety
///
/// Called by the poller for a request whose `ib_cqe` is [`SendSlot::last`].
pub(super) unsafe extern "C" fn send_last<H: Handler>(
    _cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: The completion is valid; its `ib_cqe` is the first field of a slot that lives until
    // the poller is stopped, which waits for this call.
    unsafe {
        let slot = &*(*wc).__bindgen_anon_1.wr_cqe.cast::<SendSlot>();
        let channel = channel_of::<H>(slot.owner.acquire());
        channel.on_send(slot.index, Completion::from_raw(wc), true);
    }
}

/// # Safety
///
/// Called by the poller for a request whose `ib_cqe` is [`SendSlot::member`].
pub(super) unsafe extern "C" fn send_member<H: Handler>(
    _cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: The completion is valid; its `ib_cqe` is the field `member` of a slot that lives until
    // the poller is stopped, which waits for this call.
    unsafe {
        let cqe = (*wc).__bindgen_anon_1.wr_cqe;
        let slot = &*kernel::container_of!(cqe, SendSlot, member);
        let channel = channel_of::<H>(slot.owner.acquire());
        channel.on_send(slot.index, Completion::from_raw(wc), false);
    }
}

/// # Safety
///
/// Called by the poller for a request whose `ib_cqe` is [`RecvSlot::cqe`].
pub(super) unsafe extern "C" fn recv_done<H: Handler>(
    _cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: The completion is valid; its `ib_cqe` is the first field of a receive slot that lives
    // until the poller is stopped, which waits for this call.
    unsafe {
        let slot = &*(*wc).__bindgen_anon_1.wr_cqe.cast::<RecvSlot>();
        let channel = channel_of::<H>(slot.owner.acquire());
        channel.on_receive(slot.index, Arrival::from_raw(wc));
    }
}

/// # Safety
///
/// Called by the driver with the `qp_context` of a live queue pair, in any context: some drivers
/// (eRDMA) do it in their hard interrupt.
pub(super) unsafe extern "C" fn qp_event<H: Handler>(
    event: *mut bindings::ib_event,
    context: *mut c_void,
) {
    // SAFETY: The event is valid. Drivers deliver no event after the queue pair was destroyed, so
    // the channel is alive, and closing has not let go of the device whose queue is used.
    unsafe {
        let kind = (*event).event;
        if matches!(
            kind,
            bindings::ib_event_type_IB_EVENT_QP_FATAL
                | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
                | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR
        ) {
            // No lock may be taken here. The work moves the queue pair to the error state; what is
            // flushed then tells the handler.
            channel_of::<H>(context).enqueue_fail();
        }
    }
}
