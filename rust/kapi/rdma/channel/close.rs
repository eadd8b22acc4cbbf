// SPDX-License-Identifier: GPL-2.0

//! The end of a queue pair: what breaks it, and what takes it away.

use super::{modify, new_attr, Channel, Handler, Resources};
use crate::{
    rdma::{
        completion::{Completion, Status},
        sq::Again, //
    },
    sys::lock::BhOff, //
};
use core::{mem, ptr};
use kernel::{
    impl_has_work,
    prelude::*,
    sync::{atomic::Acquire, Arc},
    time::{delay::fsleep, Delta},
    workqueue::WorkItem, //
};
use smc_bindings as bindings;

/// Times that a chain is posted again that the device refuses, and the time between two, in milliseconds.
const TRIES: u32 = 50;
const TRY_AGAIN_MS: i64 = 1;
/// Time that the end of a queue pair waits for the device to flush it, in milliseconds.
const FLUSH_MS: u32 = 2_000;

impl_has_work! {
    impl{H: Handler} HasWork<Channel<H>, 0> for Channel<H> { self.close_work }
}
impl_has_work! {
    impl{H: Handler} HasWork<Channel<H>, 1> for Channel<H> { self.fail_work }
}

impl<H: Handler> WorkItem<0> for Channel<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        Channel::close(&this);
    }
}

impl<H: Handler> WorkItem<1> for Channel<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.post_refused() {
            return;
        }
        let guard = this.resources.lock();
        let Some(resources) = &*guard else { return };
        this.stop_sending(&mut this.sq.lock());
        let mut attr = new_attr();
        if modify(resources.qp, &mut attr, bindings::ib_qp_state_IB_QPS_ERR, 0).is_err() {
            // A device that does not answer flushes nothing, so the handler hears of it here alone.
            // SAFETY: `close` takes the resources, under the lock that is held, before it takes
            // the handler.
            unsafe { this.note_failure(Status::Flushed) };
        } else {
            // Some drivers (bnxt_re) flush when they are polled. Under the lock: `close` takes it before it stops the
            // poller.
            this.poller.kick();
        }
    }
}

impl<H: Handler> Channel<H> {
    /// Posts a chain that the device has refused when nothing else was under way: nothing is until then, so
    /// it is there unless that was not what the work was queued for. Returns whether the queue pair goes on.
    /// Sleeps.
    fn post_refused(self: &Arc<Self>) -> bool {
        for _ in 0..TRIES {
            {
                let mut sq = self.sq.lock();
                if !sq.sendable || !sq.has_refused() {
                    return false;
                }
                let again = sq.retry();
                if again == Again::Never {
                    self.expect_locked(&mut sq);
                }
                self.note_counts(&sq);
                match again {
                    Again::Never | Again::Completion => return true,
                    Again::Worker => (),
                    Again::Broken => return false,
                }
            }
            fsleep(Delta::from_millis(TRY_AGAIN_MS));
        }
        false
    }

    /// Flushes and destroys the queue pair; then lets go of device and handler. Sleeps.
    ///
    /// Nothing here depends on a device that flushes: a driver that is recovering its device refuses to, and one whose
    /// device is gone may keep completions for ever. Once the queue pair is destroyed the device uses neither queues
    /// nor buffers, and once polling has stopped no callback runs or will run, whatever is left in the completion
    /// queues.
    pub(in crate::rdma) fn close(this: &Arc<Self>) {
        // No thread posts after these two.
        {
            let mut sq = this.sq.lock();
            this.stop_sending(&mut sq);
            sq.qp = None;
        }
        this.rq.lock().qp = None;

        let Some(resources) = this.resources.lock().take() else {
            return;
        };
        this.flush(&resources);
        let Resources {
            qp,
            queues,
            pd,
            device,
        } = resources;
        // SAFETY: Taken from `resources`, so alive, and we are its only user now. If it succeeds, the
        // device uses neither queues nor buffers after this.
        let destroyed = unsafe { bindings::ib_destroy_qp_user(qp.as_ptr(), ptr::null_mut()) } == 0;
        // SAFETY: Started when the queue pair was made; only one thread gets the resources, and it is no callback.
        unsafe { this.poller.stop() };
        loop {
            // As in a callback.
            let _bh_off = BhOff::new();
            let held = this.sq.lock().reclaim();
            let Some(mut held) = held else { break };
            if !destroyed {
                // The device may still read what is mapped.
                mem::forget(held.keep.take());
            }
            // SAFETY: This is `close`.
            unsafe { this.finish(held, &Completion::flushed()) };
        }
        // SAFETY: This is `close`.
        unsafe { this.note_failure(Status::Flushed) };
        if destroyed && queues.destroy().is_ok() {
            this.send_memory.revoke();
            this.recv_memory.revoke();
            // SAFETY: Polling has stopped and the queue pair is destroyed: no callback runs or will run. `close` got
            // the resources, so it is the only one here.
            let handler = unsafe { (*this.handler.get()).take() };
            drop(handler);
            drop(pd);
            drop(device);
            return;
        }
        // A leak that is seen, instead of a use after free: the device may still use everything, and tell of it. Its
        // removal, and the end of the module, wait for the use of the device for ever.
        pr_err!("RDMA queue pair {} could not be destroyed\n", this.qpn());
        mem::forget(this.clone());
        mem::forget((pd, device));
    }

    /// Moves the queue pair to the error state and waits until all requests have completed, but not for ever. Sleeps.
    ///
    /// What has arrived before is handled then, and those who posted learn how that ended.
    fn flush(&self, resources: &Resources) {
        if self.begun.load(Acquire) == 0 {
            // There are none.
            return;
        }
        let mut attr = new_attr();
        let state = bindings::ib_qp_state_IB_QPS_ERR;
        if modify(resources.qp, &mut attr, state, 0).is_err() {
            return;
        }
        {
            // Of what has ended before, and was not signaled, nothing else would tell. If the device takes no more
            // requests, nothing can.
            let mut sq = self.sq.lock();
            if sq.is_silent() {
                // SAFETY: The queue pair of this channel, which `close` destroys after this.
                let _ = unsafe { sq.post_flush(resources.qp) };
                self.note_counts(&sq);
            }
        }
        for _ in 0..FLUSH_MS {
            self.poller.kick();
            if !self.sq.lock().is_busy(false) && !self.rq.lock().is_busy() {
                return;
            }
            fsleep(Delta::from_millis(1));
        }
    }
}
