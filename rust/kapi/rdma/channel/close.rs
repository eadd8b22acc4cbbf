// SPDX-License-Identifier: GPL-2.0

//! The end of a queue pair: what breaks it, and what takes it away.

use super::{modify, new_attr, Channel, Handler, Resources};
use crate::rdma::completion::Status;
use core::{mem, ptr};
use kernel::{
    impl_has_work,
    prelude::*,
    sync::{atomic::Acquire, Arc},
    workqueue::WorkItem, //
};
use smc_bindings as bindings;

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
        let guard = this.resources.lock();
        let Some(resources) = &*guard else { return };
        this.sq.lock().sendable = false;
        let mut attr = new_attr();
        if modify(resources.qp, &mut attr, bindings::ib_qp_state_IB_QPS_ERR, 0).is_err() {
            // A device that does not answer flushes nothing, so nobody else tells the handler.
            // SAFETY: `close` takes the resources, under the lock that is held, before it takes
            // the handler.
            unsafe { this.note_failure(Status::Flushed) };
        }
    }
}

impl<H: Handler> Channel<H> {
    /// Drains and destroys the queue pair; then lets go of device and handler. Sleeps.
    pub(in crate::rdma) fn close(this: &Arc<Self>) {
        // Nobody posts after these two.
        {
            let mut sq = this.sq.lock();
            sq.sendable = false;
            sq.qp = None;
        }
        this.rq.lock().qp = None;

        let Some(resources) = this.resources.lock().take() else {
            return;
        };
        let mut attr = new_attr();
        let flushed = this.begun.load(Acquire) != 0
            && modify(resources.qp, &mut attr, bindings::ib_qp_state_IB_QPS_ERR, 0).is_ok();
        if flushed {
            // SAFETY: Taken from `resources`, so alive, and we are its only user now. Both queues
            // have room for the drain's own request. On return the callbacks of all completions
            // before that one have returned.
            unsafe { bindings::ib_drain_qp(resources.qp.as_ptr()) };
        }
        // SAFETY: As above. If it succeeds, the device uses neither queues nor buffers after this.
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
            // Some completion may still be in the queue: it names our slots and the handler, and
            // calls our code.
            mem::forget(this.clone());
            // SAFETY: No preconditions.
            unsafe { bindings::pin_this_module() };
            if destroyed {
                // A device that has broken down can be removed all the same.
                this.send_memory.revoke();
                this.recv_memory.revoke();
                drop(resources);
            } else {
                // The device may still use everything.
                mem::forget(resources);
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
}
