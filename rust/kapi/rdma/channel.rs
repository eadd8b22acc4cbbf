// SPDX-License-Identifier: GPL-2.0

//! The part of a queue pair that many threads share: posting, and the end.

mod close;
mod register;
mod slot;

pub use register::UnpostedKey;
pub use slot::Slot;

use super::{
    completion::{Completion, Status},
    config::Config,
    cq::{Poller, Queues},
    device::{Device, DeviceUse},
    pd::Pd,
    region::Region,
    rq::{Layout, RecvSlot, Rq},
    sq::{Again, Refused, SendSlot, Sq},
    wr::{Received, Signal, Unsent, Write}, //
};
use crate::sys::{lock::SpinLockBh, word::Word};
use core::{
    cell::UnsafeCell,
    mem,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex, //
    },
    workqueue::{Queue, Work}, //
};
use smc_bindings as bindings;

/// Callbacks for the ends of a queue pair's work.
///
/// All methods are called in softirq context, or with bottom halves off in a thread that busy-polls or closes the queue
/// pair, one at a time for each queue pair except [`Handler::failed`]; they must not sleep. The end of a chain is handled when
/// the next message has arrived, or some milliseconds after it was posted, unless somebody expects it
/// ([`Channel::expect_ends`]).
pub trait Handler: Send + Sync + 'static {
    /// The value that a chain carries to its completion, for example a counted reference of a
    /// connection.
    type Token: Send + 'static;

    /// Handles the end of a chain. `done.status` is the first error in it, or success.
    fn sent(this: &Arc<Self>, channel: &Arc<Channel<Self>>, token: Self::Token, done: &Completion)
    where
        Self: Sized;

    /// Handles a message that has arrived.
    fn received(this: &Arc<Self>, channel: &Arc<Channel<Self>>, message: &Received<'_>)
    where
        Self: Sized;

    /// Handles `number`, sent by the peer with the last write to our memory. By default that
    /// breaks the queue pair: only peers that were told may do it.
    fn immediate(_this: &Arc<Self>, channel: &Arc<Channel<Self>>, _number: u32)
    where
        Self: Sized,
    {
        channel.fail();
    }

    /// Handles the end of the queue pair, broken or closed. Called once; chains under way end by
    /// themselves.
    ///
    /// Also called in process context, at the same time as the others.
    fn failed(this: &Arc<Self>, channel: &Arc<Channel<Self>>, status: Status)
    where
        Self: Sized;
}

/// Verbs objects that go away when a channel is closed, in this order.
///
/// # Invariants
///
/// `qp` is alive. It is in `pd` and uses `queues`, which the channel's poller polls.
pub(super) struct Resources {
    pub(super) qp: NonNull<bindings::ib_qp>,
    pub(super) queues: Queues,
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
///
/// # Examples
///
/// ```
/// use kapi::rdma::{
///     channel::{Channel, Handler},
///     completion::{Completion, Status},
///     region::Region,
///     wr::{Received, Remote, Source, Write}, //
/// };
/// use kernel::{
///     prelude::*,
///     sync::{
///         atomic::{Atomic, Relaxed},
///         Arc, //
///     }, //
/// };
///
/// /// Counts the chains that are under way, and the messages that arrived.
/// struct Counting {
///     under_way: Atomic<i32>,
///     arrived: Atomic<i32>,
/// }
///
/// impl Handler for Counting {
///     type Token = u16;
///
///     fn sent(this: &Arc<Self>, channel: &Arc<Channel<Self>>, token: u16, done: &Completion) {
///         this.under_way.fetch_sub(1, Relaxed);
///         if !done.status.is_success() {
///             pr_info!("chain {}: {}\n", token, done.status.text());
///             channel.fail();
///         }
///     }
///
///     fn received(this: &Arc<Self>, _channel: &Arc<Channel<Self>>, message: &Received<'_>) {
///         assert_eq!(message.head(), b"done");
///         this.arrived.fetch_add(1, Relaxed);
///     }
///
///     fn failed(_this: &Arc<Self>, channel: &Arc<Channel<Self>>, _status: Status) {
///         assert!(!channel.is_sendable());
///     }
/// }
///
/// /// Writes the first `len` bytes of `from` to the peer, and tells it so.
/// fn write(
///     this: &Arc<Counting>,
///     channel: &Arc<Channel<Counting>>,
///     from: &Region,
///     len: usize,
///     to: Remote,
/// ) -> Result {
///     let write = Write { from: Source::Region(from), offset: 0, len, to };
///     // Before the chain is posted: it may end at once, on another CPU.
///     this.under_way.fetch_add(1, Relaxed);
///     channel.post(7, [write], b"done").map_err(|unsent| {
///         // The token is back, and `sent` is not called.
///         this.under_way.fetch_sub(1, Relaxed);
///         unsent.error
///     })
/// }
/// #
/// # let devices = crate::verbs::Devices::new()?;
/// # let counting = || Counting { under_way: Atomic::new(0), arrived: Atomic::new(0) };
/// # let this = Arc::new(counting(), GFP_KERNEL)?;
/// # let peer = Arc::new(counting(), GFP_KERNEL)?;
/// # let pair = crate::verbs::Pair::new(&devices, this.clone(), peer.clone())?;
/// # let from = Region::new(&devices.get(0)?, 5, kapi::rdma::dma::Direction::ToDevice)?;
/// # assert_eq!(from.write_slice(0, b"bytes"), 5);
/// # write(&this, pair.channel(), &from, 5, pair.remote())?;
/// # crate::wait(|| peer.arrived.load(Relaxed) == 1)?;
/// # crate::wait(|| this.under_way.load(Relaxed) == 0)?;
/// # let mut bytes = [0; 5];
/// # assert_eq!(pair.memory().read_slice(0, &mut bytes), 5);
/// # assert_eq!(&bytes, b"bytes");
/// # let channel = pair.channel().clone();
/// # pair.close();
/// # // The chain is refused.
/// # assert!(write(&this, &channel, &from, 5, Remote { addr: 0, rkey: 0 }).is_err());
/// # assert_eq!(this.under_way.load(Relaxed), 0);
/// # Ok::<(), Error>(())
/// ```
#[pin_data]
pub struct Channel<H: Handler> {
    #[pin]
    pub(super) sq: SpinLockBh<Sq<H::Token>>,
    #[pin]
    pub(super) rq: SpinLockBh<Rq>,
    pub(super) send_slots: KVec<SendSlot>,
    pub(super) recv_slots: KVec<RecvSlot>,
    #[pin]
    pub(super) poller: Poller,
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
    /// Number of free slots of `sq`; written under its lock.
    pub(super) free: Word,
    pub(super) failed: Atomic<i32>,
    pub(super) closing: Atomic<i32>,
    /// 1 once the queue pair has left `Reset`: before, there is nothing to flush.
    pub(super) begun: Atomic<i32>,
    pub(super) qpn: Atomic<u32>,
    pub(super) inline: Atomic<u32>,
    /// Bytes of a full packet, once the path is known.
    pub(super) path_mtu: Atomic<u32>,
    pub(super) psn: u32,
    pub(super) config: Config,
}

// SAFETY: Everything is behind locks or atomic, except `handler`, which is written at one point
// only, when nobody reads it (see the invariant), and which is `Send` and `Sync`.
unsafe impl<H: Handler> Send for Channel<H> {}
// SAFETY:
// * Shared references reach the fields by locks and atomics, or read what never changes.
// * `handler` is read by callbacks alone. It is taken out through a shared reference, by the one task that got the
//   resources, when no callback runs or will run (see the invariant). It is `Send` and `Sync`.
unsafe impl<H: Handler> Sync for Channel<H> {}

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
    pub fn post<'a>(
        self: &Arc<Self>,
        token: H::Token,
        writes: impl IntoIterator<Item = Write<'a>>,
        message: &[u8],
    ) -> Result<(), Unsent<H::Token>> {
        self.lock_slots()
            .post(token, Signal::Always, writes, message)
    }

    /// Posts `writes`, of which the last carries `number` to the peer's [`Handler::immediate`].
    ///
    /// As [`Channel::post`] otherwise. The peer must have a receive posted, as for a message.
    ///
    /// # Errors
    ///
    /// See [`Unsent`].
    #[inline]
    pub fn post_immediate<'a>(
        self: &Arc<Self>,
        token: H::Token,
        writes: impl IntoIterator<Item = Write<'a>>,
        number: u32,
    ) -> Result<(), Unsent<H::Token>> {
        self.lock_slots()
            .post_immediate(token, Signal::Always, writes, number)
    }

    /// Returns the number of chains that can be posted before one must end.
    pub fn free_slots(&self) -> usize {
        self.sq.lock().free_slots()
    }

    /// Returns whether a chain can be posted, without the lock: another one may have ended
    /// meanwhile, and if another thread posts, too, that may get the slot.
    #[inline]
    pub fn has_free_slot(&self) -> bool {
        self.free.get() != 0
    }

    /// Takes note of how many slots are free and how many chains under way, which has changed.
    #[inline]
    pub(super) fn note_counts(&self, sq: &Sq<H::Token>) {
        self.free.set(sq.free_slots() as u32);
        self.poller.set_counts(sq.counts());
    }

    /// Has the ends of all chains posted until now handled as soon as they come. Any context but hard interrupts.
    pub fn expect_ends(self: &Arc<Self>) {
        self.expect_locked(&mut self.sq.lock());
    }

    #[inline]
    pub(super) fn expect_locked(self: &Arc<Self>, sq: &mut Sq<H::Token>) {
        if sq.expect() {
            self.expect_newly(sq);
        }
    }

    fn expect_newly(self: &Arc<Self>, sq: &mut Sq<H::Token>) {
        // After that the poller is stopped.
        if sq.qp.is_none() {
            return;
        }
        self.flush_locked(sq);
        sq.expect();
        self.note_counts(sq);
        // Under the lock: closing takes it before it stops the poller.
        self.poller.expect();
    }

    /// Sees to it that the device tells of the end of all chains posted until now.
    pub(super) fn flush_locked(self: &Arc<Self>, sq: &mut Sq<H::Token>) {
        let Some(qp) = sq.qp.filter(|_| sq.sendable && sq.is_silent()) else {
            return;
        };
        // SAFETY: It is `sq.qp`, which closing clears under the lock that is held before it destroys it.
        let posted = unsafe { sq.post_flush(qp) };
        match posted {
            Ok(()) => (),
            // A chain that the device has refused holds the slots, and is tried again.
            Err(Refused::Clean(_, error)) if error == EAGAIN => (),
            Err(Refused::Clean(..) | Refused::Torn) => self.try_again(sq, Again::Broken),
            Err(Refused::Later(again)) => self.try_again(sq, again),
        }
    }

    /// Has nothing more sent.
    pub(super) fn stop_sending(&self, sq: &mut Sq<H::Token>) {
        sq.sendable = false;
        self.note_counts(sq);
    }

    /// Returns whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        !self.sq.lock().is_busy(true)
    }

    /// Returns whether chains can be posted.
    pub fn is_sendable(&self) -> bool {
        self.sq.lock().sendable
    }

    /// Breaks the queue pair: everything under way is flushed, nothing more is sent or received.
    ///
    /// Any context but hard interrupts; the work is done in the background.
    pub fn fail(self: &Arc<Self>) {
        let mut sq = self.sq.lock();
        self.stop_sending(&mut sq);
        if sq.qp.is_some() {
            self.enqueue_fail();
        }
    }

    /// Has the work of [`Channel::fail`] go on with a chain that the device has refused, or break the queue
    /// pair. Called with the send lock held.
    #[cold]
    pub(super) fn try_again(self: &Arc<Self>, sq: &Sq<H::Token>, again: Again) {
        if matches!(again, Again::Worker | Again::Broken) && sq.qp.is_some() {
            self.enqueue_fail();
        }
    }

    /// Queues [`Channel::fail`]. To be called with the send lock held and `qp` set, or from a
    /// callback of the queue pair. Any context, hard interrupts too.
    pub(super) fn enqueue_fail(self: &Arc<Self>) {
        // SAFETY: Closing clears `qp` under the lock that is held, and destroys the queue pair and stops
        // its poller, which wait for their callbacks, before it lets go of the device. The queue is
        // destroyed after that, running what is queued.
        let queue = unsafe { Queue::from_raw(self.queue.as_ptr().cast()) };
        // Already queued is fine.
        let _ = queue.enqueue::<_, 1>(self.clone());
    }

    /// Returns the number of our queue pair.
    pub fn qpn(&self) -> u32 {
        self.qpn.load(Relaxed)
    }

    /// Returns our first packet sequence number, random.
    pub fn psn(&self) -> u32 {
        self.psn
    }

    /// Returns the number of the NAPI context that handles what arrives, for sockets that poll it themselves; 0 if they
    /// cannot. No other context gets the number as long as this one lives.
    pub fn napi_id(&self) -> u32 {
        self.poller.id()
    }

    /// Returns how many bytes the device takes inline.
    pub fn inline(&self) -> u32 {
        self.inline.load(Relaxed)
    }

    /// Returns the longest message that can be received.
    pub fn longest_message(&self) -> usize {
        self.layout.longest()
    }

    /// Returns the protection domain, to register more memory for this queue pair.
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

    /// Returns the device.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the channel is closed.
    pub fn device(&self) -> Result<Arc<Device>> {
        Ok(self.pd()?.device().clone())
    }
}
