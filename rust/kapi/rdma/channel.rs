// SPDX-License-Identifier: GPL-2.0

//! The part of a queue pair that many threads share: posting, and the end.

use super::{
    completion::{Completion, Status},
    config::Config,
    cq::Cq,
    device::{Device, DeviceUse},
    lock::SpinLockBh,
    mr::Mr,
    pd::Pd,
    region::Region,
    rq::{Layout, RecvSlot, Rq},
    sq::{Job, Last, Refused, SendSlot, Sq, Waiter},
    wr::{Received, Unsent, Write}, //
};
use core::{
    cell::UnsafeCell,
    mem,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::to_result,
    impl_has_work,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed},
        Arc,
        Mutex, //
    },
    time::{delay::fsleep, Delta},
    workqueue::{Queue, Work, WorkItem}, //
};
use smc_bindings as bindings;

/// How long [`Channel::register`] waits for a free slot, in milliseconds.
const SLOT_WAIT_MS: u32 = 5_000;

/// What becomes of a queue pair's work.
///
/// All methods are called from the context of the completion queue, one at a time for each queue
/// pair except [`Handler::failed`]; with [`PollContext::Softirq`](super::cq::PollContext::Softirq) they must not sleep.
pub trait Handler: Send + Sync + 'static {
    /// What a chain carries to its completion, for example a counted reference of a connection.
    type Token: Send + 'static;

    /// A chain has ended. `done.status` is the first error in it, or success.
    fn sent(this: &Arc<Self>, channel: &Arc<Channel<Self>>, token: Self::Token, done: &Completion)
    where
        Self: Sized;

    /// A message has arrived.
    fn received(this: &Arc<Self>, channel: &Arc<Channel<Self>>, message: &Received<'_>)
    where
        Self: Sized;

    /// The peer has written to our memory and sent `number` with its last write. By default that
    /// breaks the queue pair: only peers that were told may do it.
    fn immediate(_this: &Arc<Self>, channel: &Arc<Channel<Self>>, _number: u32)
    where
        Self: Sized,
    {
        channel.fail();
    }

    /// The queue pair is broken, or closed. Called once; chains under way end by themselves.
    ///
    /// Also called in process context, at the same time as the others.
    fn failed(this: &Arc<Self>, channel: &Arc<Channel<Self>>, status: Status)
    where
        Self: Sized;
}

/// What goes away when a channel is closed, in this order.
///
/// # Invariants
///
/// `qp` is alive. It is in `pd` and uses `cq`.
pub(super) struct Resources {
    pub(super) qp: NonNull<bindings::ib_qp>,
    pub(super) cq: Cq,
    pub(super) pd: Arc<Pd>,
    pub(super) device: DeviceUse,
}

// SAFETY: Verbs objects may be used by any thread.
unsafe impl Send for Resources {}

/// The shared part of a queue pair.
///
/// # Invariants
///
/// * While `resources` is set the queue pair exists; its completions find `send_slots` and
///   `recv_slots`, so the channel is not freed: the owner of the queue pair owns a count.
/// * `handler` is only written when no completion can come any more.
/// * `queue` is valid while `resources` is set.
#[pin_data]
pub struct Channel<H: Handler> {
    #[pin]
    pub(super) sq: SpinLockBh<Sq<H::Token>>,
    #[pin]
    pub(super) rq: SpinLockBh<Rq>,
    pub(super) send_slots: KVec<SendSlot>,
    pub(super) recv_slots: KVec<RecvSlot>,
    pub(super) send_memory: Arc<Region>,
    pub(super) recv_memory: Arc<Region>,
    pub(super) send_stride: usize,
    pub(super) layout: Layout,
    pub(super) handler: UnsafeCell<Option<Arc<H>>>,
    #[pin]
    pub(super) resources: Mutex<Option<Resources>>,
    #[pin]
    pub(super) close_work: Work<Self, 0>,
    #[pin]
    pub(super) fail_work: Work<Self, 1>,
    pub(super) queue: NonNull<bindings::workqueue_struct>,
    pub(super) failed: Atomic<i32>,
    pub(super) closing: Atomic<i32>,
    /// Whether the queue pair has left `Reset`: before, there is nothing to drain.
    pub(super) begun: Atomic<i32>,
    pub(super) qpn: Atomic<u32>,
    pub(super) inline: Atomic<u32>,
    pub(super) psn: u32,
    pub(super) config: Config,
}

// SAFETY: Everything is behind locks or atomic, except `handler`, which is written at one point
// only, when nobody reads it (see the invariant), and which is `Send` and `Sync`.
unsafe impl<H: Handler> Send for Channel<H> {}
// SAFETY: As above.
unsafe impl<H: Handler> Sync for Channel<H> {}

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

pub(super) fn new_attr() -> bindings::ib_qp_attr {
    // SAFETY: Zero is a valid value of a plain C struct.
    unsafe { mem::zeroed() }
}

pub(super) fn modify(
    qp: NonNull<bindings::ib_qp>,
    attr: &mut bindings::ib_qp_attr,
    state: bindings::ib_qp_state,
    mask: bindings::ib_qp_attr_mask,
) -> Result {
    attr.qp_state = state;
    let mask = mask | bindings::ib_qp_attr_mask_IB_QP_STATE;
    // SAFETY: All callers take `qp` from `Resources`, under its lock, so it is alive.
    to_result(unsafe { bindings::ib_modify_qp(qp.as_ptr(), attr, mask as i32) })
}

impl<H: Handler> Channel<H> {
    /// Posts `writes` and then a message, in one call to the driver.
    ///
    /// The token comes back through [`Handler::sent`], exactly once, when all of it is done or has
    /// failed. The bytes to write must not be changed until then, or the peer gets a mixture. All
    /// writes by [`super::wr::Source::Region`] must be from one region. An empty message is not
    /// sent; the writes are then completed by themselves. Any context but hard interrupts.
    ///
    /// # Errors
    ///
    /// See [`Unsent`].
    pub fn post(
        self: &Arc<Self>,
        token: H::Token,
        writes: &[Write<'_>],
        message: &[u8],
    ) -> Result<(), Unsent<H::Token>> {
        if message.len() > usize::from(self.config.message) {
            return Err(Unsent {
                token,
                error: EINVAL,
            });
        }
        self.post_token(token, writes, Last::Message(message))
    }

    /// Posts `writes`, of which the last carries `number` to the peer's [`Handler::immediate`].
    ///
    /// As [`Channel::post`] otherwise. The peer must have a receive posted, as for a message.
    ///
    /// # Errors
    ///
    /// See [`Unsent`].
    pub fn post_immediate(
        self: &Arc<Self>,
        token: H::Token,
        writes: &[Write<'_>],
        number: u32,
    ) -> Result<(), Unsent<H::Token>> {
        self.post_token(token, writes, Last::Immediate(number))
    }

    fn post_token(
        self: &Arc<Self>,
        token: H::Token,
        writes: &[Write<'_>],
        last: Last<'_>,
    ) -> Result<(), Unsent<H::Token>> {
        match self.post_job(Job::Post(token), writes, last) {
            Ok(()) => Ok(()),
            Err((Job::Post(token), error)) => Err(Unsent { token, error }),
            // The job comes back as it was given.
            Err(_) => Ok(()),
        }
    }

    fn post_job(
        self: &Arc<Self>,
        job: Job<H::Token>,
        writes: &[Write<'_>],
        last: Last<'_>,
    ) -> Result<(), (Job<H::Token>, Error)> {
        let mut sq = self.sq.lock();
        let result = sq.post(job, writes, last, |slot, bytes| {
            let at = usize::from(slot).saturating_mul(self.send_stride);
            if self.send_memory.write_slice(at, bytes) == bytes.len() {
                Ok(())
            } else {
                Err(EINVAL)
            }
        });
        match result {
            Ok(()) => Ok(()),
            Err(Refused::Clean(job, error)) => Err((job, error)),
            Err(Refused::Torn) => {
                if sq.qp.is_some() {
                    self.enqueue_fail();
                }
                Ok(())
            }
        }
    }

    /// The number of chains that can be posted before one must end.
    pub fn free_slots(&self) -> usize {
        self.sq.lock().free_slots()
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        !self.sq.lock().is_busy(true)
    }

    /// Whether chains can be posted.
    pub fn is_sendable(&self) -> bool {
        self.sq.lock().sendable
    }

    /// Breaks the queue pair: everything under way is flushed, nothing more is sent or received.
    ///
    /// Any context but hard interrupts; the work is done in the background.
    pub fn fail(self: &Arc<Self>) {
        let mut sq = self.sq.lock();
        sq.sendable = false;
        if sq.qp.is_some() {
            self.enqueue_fail();
        }
    }

    /// Must be called with the send lock held and `qp` set, or from a callback of the queue pair.
    /// Any context, hard interrupts too.
    pub(super) fn enqueue_fail(self: &Arc<Self>) {
        // SAFETY: Closing clears `qp` under the lock that is held, and destroys the queue pair, which
        // waits for its callbacks, before it lets go of the device. The queue is destroyed after
        // that, running what is queued.
        let queue = unsafe { Queue::from_raw(self.queue.as_ptr().cast()) };
        // Already queued is fine.
        let _ = queue.enqueue::<_, 1>(self.clone());
    }

    /// The number of our queue pair.
    pub fn qpn(&self) -> u32 {
        self.qpn.load(Relaxed)
    }

    /// Our first packet sequence number, random.
    pub fn psn(&self) -> u32 {
        self.psn
    }

    /// How many bytes the device takes inline.
    pub fn inline(&self) -> u32 {
        self.inline.load(Relaxed)
    }

    /// The longest message that can be received.
    pub fn longest_message(&self) -> usize {
        self.layout.longest()
    }

    /// The protection domain, to register more memory for this queue pair.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the channel is closed.
    pub fn pd(&self) -> Result<Arc<Pd>> {
        match &*self.resources.lock() {
            Some(resources) => Ok(resources.pd.clone()),
            None => Err(ENODEV),
        }
    }

    /// The device.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the channel is closed.
    pub fn device(&self) -> Result<Arc<Device>> {
        Ok(self.pd()?.device().clone())
    }

    /// Makes the key of `mr` work, and waits for that. Needs [`ReadyToSend`](super::qp::ReadyToSend); sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` when `mr` was revoked, `ENOTCONN` when the queue pair cannot send, `EIO` when it
    /// broke, `EINVAL` when `mr` is of another domain, `ETIMEDOUT` when no slot became free.
    pub fn register(self: &Arc<Self>, mr: &Mr) -> Result {
        let guard = mr.raw().lock();
        let raw = guard.as_ref().ok_or(ENODEV)?;
        if !Arc::ptr_eq(raw.pd(), &self.pd()?) {
            return Err(EINVAL);
        }
        // The guard is held until the request has ended: it names the C object.
        self.wait_for(|| Last::Register(raw.raw(), mr.rkey(), mr.access().as_raw()))
    }

    /// Makes the key of `mr` stop working, and waits for that. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Channel::register`].
    pub fn invalidate(self: &Arc<Self>, mr: &Mr) -> Result {
        let guard = mr.raw().lock();
        let _raw = guard.as_ref().ok_or(ENODEV)?;
        self.wait_for(|| Last::Invalidate(mr.rkey()))
    }

    fn wait_for<'a>(self: &Arc<Self>, last: impl Fn() -> Last<'a>) -> Result {
        let waiter = Waiter::new()?;
        let mut waited = 0u32;
        loop {
            match self.post_job(Job::Sync(waiter.clone()), &[], last()) {
                // Ends with its completion, or when the channel is closed.
                Ok(()) => return waiter.wait(),
                Err((_, error)) if error == EAGAIN && waited < SLOT_WAIT_MS => {
                    fsleep(Delta::from_millis(1));
                    waited = waited.wrapping_add(1);
                }
                Err((_, error)) if error == EAGAIN => return Err(ETIMEDOUT),
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Drains and destroys the queue pair; then lets go of device and handler. Sleeps.
    pub(super) fn close(this: &Arc<Self>) {
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
