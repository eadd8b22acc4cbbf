// SPDX-License-Identifier: GPL-2.0

//! The end of a queue pair: what breaks it, and what takes it away.

use super::{modify, new_attr, Channel, Handler, Resources};
use crate::{
    rdma::{completion::Status, device::Nag, sq::Again},
    sys::module::ModuleRef, //
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
/// Time between requests to a device that does not let go of a queue pair, in milliseconds.
const ASK_AGAIN_MS: i64 = 100;

/// State of the requests of a queue pair that ends.
enum Drain {
    /// All have completed, and the callbacks have returned.
    Done,
    /// There are none.
    Unused,
    /// The device keeps them; so the module stays, whose code they call.
    Refused(ModuleRef),
}

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
        this.sq.lock().sendable = false;
        let mut attr = new_attr();
        if modify(resources.qp, &mut attr, bindings::ib_qp_state_IB_QPS_ERR, 0).is_err() {
            // A device that does not answer flushes nothing, so the handler hears of it here alone.
            // SAFETY: `close` takes the resources, under the lock that is held, before it takes
            // the handler.
            unsafe { this.note_failure(Status::Flushed) };
        }
    }
}

impl<H: Handler> Channel<H> {
    /// Posts a chain that the device has refused when nothing else was under way: nothing is until then, so
    /// it is there unless that was not what the work was queued for. Returns whether the queue pair goes on.
    /// Sleeps.
    fn post_refused(&self) -> bool {
        for _ in 0..TRIES {
            {
                let mut sq = self.sq.lock();
                if !sq.sendable || !sq.has_refused() {
                    return false;
                }
                let again = sq.retry();
                self.count_free(&sq);
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

    /// Drains and destroys the queue pair; then lets go of device and handler. Sleeps.
    pub(in crate::rdma) fn close(this: &Arc<Self>) {
        // No thread posts after these two.
        {
            let mut sq = this.sq.lock();
            sq.sendable = false;
            sq.qp = None;
        }
        this.rq.lock().qp = None;

        let Some(resources) = this.resources.lock().take() else {
            return;
        };
        let drain = this.drain(&resources);
        let flushed = matches!(drain, Drain::Done);
        // SAFETY: Taken from `resources`, so alive, and we are its only user now. If it succeeds, the
        // device uses neither queues nor buffers after this.
        let ret = unsafe { bindings::ib_destroy_qp_user(resources.qp.as_ptr(), ptr::null_mut()) };
        let destroyed = ret == 0;

        // After a drain every request has completed, except chains that were posted in part, of
        // which nothing is left in the queue. Without one, nothing may have been posted at all.
        let busy = this.sq.lock().is_busy(!flushed) || this.rq.lock().is_busy();
        loop {
            let ended = this.sq.lock().reclaim();
            let Some(ended) = ended else { break };
            // SAFETY: This is `close`.
            unsafe { this.finish(ended) };
        }
        // SAFETY: This is `close`.
        unsafe { this.note_failure(Status::Flushed) };
        if busy || !destroyed {
            // A leak that is seen, instead of a use after free.
            pr_err!("RDMA queue pair {} could not be drained\n", this.qpn());
            // Some completion may still be in the queue, which is the device's and outlives us: it
            // names our slots and the handler, and calls our code.
            mem::forget(this.clone());
            let kept = match drain {
                Drain::Refused(kept) => Some(kept),
                _ => ModuleRef::take(),
            };
            match kept {
                Some(kept) if destroyed => {
                    kept.for_ever();
                    // A device that has broken down can be removed all the same.
                    this.send_memory.revoke();
                    this.recv_memory.revoke();
                    drop(resources);
                }
                // The device may still use everything. Its removal, and the end of the module, wait
                // for the resources for ever.
                _ => mem::forget(resources),
            }
            return;
        }
        this.send_memory.revoke();
        this.recv_memory.revoke();
        // SAFETY: Drained and destroyed: no callback runs or will run. `close` got the resources,
        // so it is the only one here.
        let handler = unsafe { (*this.handler.get()).take() };
        drop(handler);
        let Resources { cq, pd, device, .. } = resources;
        drop(cq);
        drop(pd);
        drop(device);
    }

    /// Flushes both queues and waits until every callback has returned. Sleeps.
    ///
    /// A device that refuses to flush is asked again only while the module is being unloaded. Nothing
    /// else would do then: a count of the module comes too late, and completions that are left behind in
    /// a queue of the device's pool would call code that is gone.
    fn drain(&self, resources: &Resources) -> Drain {
        if self.begun.load(Acquire) == 0 {
            return Drain::Unused;
        }
        let mut nag = Nag::new();
        loop {
            let mut attr = new_attr();
            let state = bindings::ib_qp_state_IB_QPS_ERR;
            let Err(error) = modify(resources.qp, &mut attr, state, 0) else {
                // SAFETY: The queue pair is alive, and nobody posts any more. Both queues have room for
                // the drain's own request. On return the callbacks of all completions before that one
                // have returned.
                unsafe { bindings::ib_drain_qp(resources.qp.as_ptr()) };
                return Drain::Done;
            };
            if let Some(kept) = ModuleRef::take() {
                return Drain::Refused(kept);
            }
            nag.due(resources.device.device(), |device| {
                pr_warn!(
                    "RDMA device {device}: unloading waits for queue pair {}, which the device does not flush ({})\n",
                    self.qpn(),
                    error.to_errno()
                );
            });
            fsleep(Delta::from_millis(ASK_AGAIN_MS));
        }
    }
}
