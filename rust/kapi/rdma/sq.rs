// SPDX-License-Identifier: GPL-2.0

//! The send queue: slots, and the chains that are posted in them (`sq/chain.rs` builds these in place).
//!
//! A slot belongs to one chain from posting to the completion of the chain's last request, the
//! only one that is signaled. A request in the middle completes only with an error, and then by
//! another `ib_cqe` of the same slot; requests of a queue pair complete in order, so nothing comes
//! after the last. Slots live in the channel, which is freed only after the poller was stopped.
//!
//! Most chains have no signaled request ([`Signal::Seldom`]): they end when one does that was posted after them, by the
//! same order. At most [`MOST_SILENT`] such are posted in a row, and the last free slot is for one that is signaled. When
//! somebody waits for the end of a chain after which none is signaled, an empty WRITE is posted that is.

mod again;
mod chain;

pub(super) use again::Again;

use super::{
    completion::{Completion, Status},
    dma::DmaMap,
    mr::{Kept, Key},
    wr::{Signal, Write}, //
};
use crate::errno::ENOTCONN;
use core::{
    mem,
    ptr::{self, NonNull}, //
};
use kernel::{
    ffi::c_void,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Release},
        Arc, //
    },
    time::{delay::fsleep, Delta}, //
};
use smc_bindings as bindings;

/// Chains that are posted in a row without a signaled request, at most.
pub(super) const MOST_SILENT: usize = 7;

/// Time that a [`Waiter`] waits at most, in microseconds.
const WAIT_US: i64 = 5_000_000;
/// Time between its looks, in microseconds: at first, and at most.
const LOOK_US: (i64, i64) = (10, 1_000);

/// The two `ib_cqe`s of a slot. `last` is first, so that both can be found from their address.
#[repr(C)]
pub(super) struct SendSlot {
    pub(super) last: bindings::ib_cqe,
    pub(super) member: bindings::ib_cqe,
    /// The channel, as a number without ownership.
    pub(super) owner: Atomic<*mut c_void>,
    pub(super) index: u16,
}

// SAFETY: Written before the queue pair exists and only read afterwards.
unsafe impl Send for SendSlot {}
// SAFETY: Shared references only read what was written before, and `owner` is atomic.
unsafe impl Sync for SendSlot {}

impl SendSlot {
    pub(super) fn new(
        index: u16,
        last: unsafe extern "C" fn(*mut bindings::ib_cq, *mut bindings::ib_wc),
        member: unsafe extern "C" fn(*mut bindings::ib_cq, *mut bindings::ib_wc),
    ) -> Self {
        Self {
            last: bindings::ib_cqe { done: Some(last) },
            member: bindings::ib_cqe { done: Some(member) },
            owner: Atomic::new(ptr::null_mut()),
            index,
        }
    }
}

/// How far the request of a [`Waiter`] is.
mod how {
    pub(super) const UNDER_WAY: u32 = 0;
    pub(super) const DONE: u32 = 1;
    pub(super) const FAILED: u32 = 2;
}

/// A thread that sleeps until a request, which names a memory region, is done.
pub(super) struct Waiter {
    how: Atomic<u32>,
    /// Stays until the request has ended, even if the thread has given up before.
    _kept: Kept,
}

impl Waiter {
    pub(super) fn new(kept: Kept) -> Result<Arc<Self>> {
        let waiter = Self {
            how: Atomic::new(how::UNDER_WAY),
            _kept: kept,
        };
        Ok(Arc::new(waiter, GFP_KERNEL)?)
    }

    pub(super) fn finish(&self, status: Status) {
        let how = match status.is_success() {
            true => how::DONE,
            false => how::FAILED,
        };
        self.how.store(how, Release);
    }

    /// Waits, for 5 seconds at most.
    ///
    /// # Errors
    ///
    /// `EIO` when the request has failed, `ETIMEDOUT` when it has not ended.
    pub(super) fn wait(&self) -> Result {
        // The kernel crate's `Completion` has no timed wait.
        let (mut look, most) = LOOK_US;
        let mut left = WAIT_US;
        loop {
            match self.how.load(Acquire) {
                how::DONE => return Ok(()),
                how::FAILED => return Err(EIO),
                _ if left <= 0 => return Err(ETIMEDOUT),
                _ => fsleep(Delta::from_micros(look)),
            }
            left = left.saturating_sub(look);
            look = look.saturating_mul(2).min(most);
        }
    }
}

/// Listener to the end of a chain.
pub(super) enum Job<T> {
    /// None; the slot is free.
    Idle,
    /// The handler, with this token.
    Post(T),
    /// The handler, with the token of this request for a key.
    Key(KBox<Key<T>>),
    /// A waiting thread.
    Sync(Arc<Waiter>),
    /// None: the end of those before it is what matters.
    Flush,
}

/// What a slot has kept for its chain, which has ended. Dropping it may free memory: not under the lock.
pub(super) struct Done<T> {
    pub(super) job: Job<T>,
    pub(super) keep: Option<Arc<DmaMap>>,
}

/// The chains, oldest first, that one completion ends before its own: those that were not signaled.
pub(super) type Silent<T> = [Option<Done<T>>; MOST_SILENT];

/// What has become of the chain whose request has completed.
pub(super) enum Ended<T> {
    /// It has not ended.
    No,
    /// It has, and those before it.
    Yes(Done<T>, Completion),
    /// There are more before it: to be asked for again.
    More,
}

/// Numbers of chains that are posted and have not ended, without one that was posted in part.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) under_way: u32,
    /// Of those, the ones of whose end the device tells.
    pub(super) told: u32,
    /// Of those, from the oldest on, the ones for whose end somebody waits.
    pub(super) expected: u32,
}

struct Entry<T> {
    job: Job<T>,
    wrs: u32,
    signaled: bool,
    failed: Option<Completion>,
    keep: Option<Arc<DmaMap>>,
    /// Posted in part, or not yet: no completion of the last request will come.
    lost: bool,
}

#[derive(Clone, Copy)]
union AnyWr {
    send: bindings::ib_send_wr,
    rdma: bindings::ib_rdma_wr,
    reg: bindings::ib_reg_wr,
}

/// Last request of a chain, besides writes.
pub(super) enum Last<'a> {
    /// A WRITE of nothing.
    Nothing,
    /// A SEND of these bytes.
    Message(&'a [u8]),
    /// A SEND of these bytes and of others, this many in all, at most a page.
    Padded(&'a [u8], usize),
    /// This number with the last write.
    Immediate(u32),
    /// The registration of this memory region under this key, with this access.
    Register(*mut bindings::ib_mr, u32, i32),
    /// The invalidation of this key.
    Invalidate(u32),
}

/// Refusal of a chain.
pub(super) enum Refused<T> {
    /// Nothing was posted.
    Clean(Job<T>, Error),
    /// Some of it was; the slot stays busy until the queue pair is destroyed, and the job with it.
    Torn,
    /// The device takes nothing for now. The slot is busy, and nothing else is posted before this; who
    /// tries again is as of [`Again`].
    Later(Again),
}

/// What became of a chain.
enum Put {
    Posted,
    /// Nothing was posted.
    Clean(Error),
    /// Some of it was.
    Torn,
}

/// The part of a channel behind its send lock.
///
/// # Invariants
///
/// * While `qp` is set it is a queue pair whose completions find `slots`, and `sge.len()` is
///   `wr.len() * sges_per_wr`.
/// * `order` names the `under_way` slots of chains that are posted and have not ended, from the oldest at `oldest` on.
pub(super) struct Sq<T> {
    /// The queue pair, until closing begins.
    pub(super) qp: Option<NonNull<bindings::ib_qp>>,
    /// True while it is in RTS.
    pub(super) sendable: bool,
    /// The address for the device, and for the CPU, of each slot's message.
    pub(super) message: KVec<(u64, NonNull<u8>)>,
    pub(super) slots: NonNull<SendSlot>,
    pub(super) lkey: u32,
    /// The number of the device.
    device: u32,
    pub(super) inline: usize,
    sges_per_wr: usize,
    free_wrs: u32,
    /// Number of chains that are posted and have not ended, without one that was posted in part.
    under_way: u32,
    /// Number of those, from the oldest on, for whose end somebody waits.
    expected: u32,
    /// Number of those that are signaled.
    signaled: u32,
    /// Number of the newest ones, which are not signaled and have none after them that is.
    silent: u32,
    /// The slots of those, a ring.
    order: KVec<u16>,
    oldest: usize,
    free: KVec<u16>,
    /// The slot of a chain that the device has refused for now, and that is in `wr` still.
    refused: Option<u16>,
    /// Its inline bytes.
    inline_kept: KVec<KVec<u8>>,
    /// Slots that are free but for that.
    parked: KVec<u16>,
    entries: KVec<Entry<T>>,
    wr: KVec<AnyWr>,
    sge: KVec<bindings::ib_sge>,
}

// SAFETY: The pointers are to objects that any thread may use under the lock around this.
unsafe impl<T: Send> Send for Sq<T> {}

impl<T> Sq<T> {
    /// Makes a queue of `depth` requests and `count` chains of at most `chain` requests each, on
    /// the device with this number.
    pub(super) fn new(
        slots: NonNull<SendSlot>,
        count: u16,
        depth: u32,
        chain: usize,
        sges_per_wr: usize,
        device: u32,
    ) -> Result<Self> {
        let n = usize::from(count);
        let mut this = Self {
            qp: None,
            sendable: false,
            message: KVec::with_capacity(n, GFP_KERNEL)?,
            slots,
            lkey: 0,
            device,
            inline: 0,
            sges_per_wr,
            free_wrs: depth,
            under_way: 0,
            expected: 0,
            signaled: 0,
            silent: 0,
            order: KVec::with_capacity(n, GFP_KERNEL)?,
            oldest: 0,
            free: KVec::with_capacity(n, GFP_KERNEL)?,
            refused: None,
            inline_kept: KVec::new(),
            parked: KVec::with_capacity(n, GFP_KERNEL)?,
            entries: KVec::with_capacity(n, GFP_KERNEL)?,
            wr: KVec::with_capacity(chain, GFP_KERNEL)?,
            sge: KVec::new(),
        };
        for index in 0..count {
            this.free.push(index, GFP_KERNEL)?;
            this.order.push(index, GFP_KERNEL)?;
            this.entries.push(
                Entry {
                    job: Job::Idle,
                    wrs: 0,
                    signaled: false,
                    failed: None,
                    keep: None,
                    lost: false,
                },
                GFP_KERNEL,
            )?;
        }
        for _ in 0..chain {
            // SAFETY: Zero is a valid value of plain C structs.
            this.wr.push(unsafe { mem::zeroed() }, GFP_KERNEL)?;
        }
        for _ in 0..chain.checked_mul(sges_per_wr).ok_or(EINVAL)? {
            // SAFETY: Zero is a valid value of plain C structs.
            this.sge.push(unsafe { mem::zeroed() }, GFP_KERNEL)?;
        }
        Ok(this)
    }

    /// Tells whether a message can be filled up, which takes two elements.
    pub(super) fn pads(&self) -> bool {
        self.sges_per_wr > 1
    }

    pub(super) fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Returns how many chains are under way.
    pub(super) fn counts(&self) -> Counts {
        // Of a queue pair that has broken, the device tells of each that it flushes.
        let told = match self.sendable {
            true => self.signaled,
            false => self.under_way,
        };
        Counts {
            under_way: self.under_way,
            told,
            expected: self.expected,
        }
    }

    /// Tells whether a chain was posted whose end would not be told of.
    pub(super) fn is_silent(&self) -> bool {
        self.silent > 0
    }

    /// Takes note that somebody waits for the end of all chains posted until now. Returns whether that is new.
    pub(super) fn expect(&mut self) -> bool {
        let new = self.expected != self.under_way;
        self.expected = self.under_way;
        new
    }

    /// Builds and posts a chain in the next free slot. `write_message` puts the message into the
    /// memory of that slot.
    pub(super) fn post<'a>(
        &mut self,
        job: Job<T>,
        signal: Signal,
        writes: impl IntoIterator<Item = Write<'a>>,
        last: Last<'_>,
        write_message: impl FnOnce(u16, &[u8]) -> Result,
    ) -> Result<(), Refused<T>> {
        let Some(qp) = self.qp.filter(|_| self.sendable) else {
            return Err(Refused::Clean(job, ENOTCONN.error()));
        };
        self.post_to(qp, job, signal, writes, last, write_message)
    }

    /// Posts a signaled WRITE of nothing to `qp`, whatever its state. Its completion ends those before it.
    ///
    /// # Safety
    ///
    /// `qp` is that of this queue, and alive.
    pub(super) unsafe fn post_flush(
        &mut self,
        qp: NonNull<bindings::ib_qp>,
    ) -> Result<(), Refused<T>> {
        let no_message = |_: u16, _: &[u8]| Ok(());
        let last = Last::Nothing;
        self.post_to(qp, Job::Flush, Signal::Always, [], last, no_message)
    }

    /// Does [`Sq::post`].
    #[inline]
    fn post_to<'a>(
        &mut self,
        qp: NonNull<bindings::ib_qp>,
        job: Job<T>,
        signal: Signal,
        writes: impl IntoIterator<Item = Write<'a>>,
        last: Last<'_>,
        write_message: impl FnOnce(u16, &[u8]) -> Result,
    ) -> Result<(), Refused<T>> {
        let Some(slot) = self.free.last().copied() else {
            return Err(Refused::Clean(job, EAGAIN));
        };
        let mut keep = None;
        let signaled =
            signal == Signal::Always || self.silent >= MOST_SILENT as u32 || self.free.len() <= 1;
        let count = match self.build(slot, writes, &last, signaled, &mut keep) {
            Ok(count) if count > self.free_wrs => return Err(Refused::Clean(job, EAGAIN)),
            Ok(count) => count,
            Err(error) => return Err(Refused::Clean(job, error)),
        };
        if let Last::Message(bytes) | Last::Padded(bytes, _) = last {
            if let Err(error) = write_message(slot, bytes) {
                return Err(Refused::Clean(job, error));
            }
        }
        let Some(entry) = self.entries.get_mut(usize::from(slot)) else {
            return Err(Refused::Clean(job, EINVAL));
        };
        // The completion may come before posting returns; it waits for our lock.
        // It is idle.
        entry.job = job;
        entry.wrs = count;
        entry.signaled = signaled;
        entry.failed = None;
        entry.keep = keep;
        entry.lost = false;
        self.free.pop();
        self.free_wrs = self.free_wrs.wrapping_sub(count);
        match self.put(qp, slot, count) {
            Put::Posted => return Ok(()),
            Put::Torn => self.tear(slot),
            Put::Clean(error) if again::is_transient(error) && self.keep_inline(count).is_ok() => {
                self.refused = Some(slot);
                mem::swap(&mut self.free, &mut self.parked);
                if let Some(entry) = self.entries.get_mut(usize::from(slot)) {
                    entry.lost = true;
                }
                return Err(Refused::Later(self.again(slot)));
            }
            Put::Clean(error) => {
                self.free_wrs = self.free_wrs.wrapping_add(count);
                // It was there just now.
                let _ = self.free.push_within_capacity(slot);
                if let Some(entry) = self.entries.get_mut(usize::from(slot)) {
                    entry.keep = None;
                    let job = mem::replace(&mut entry.job, Job::Idle);
                    return Err(Refused::Clean(job, error));
                }
            }
        }
        Err(Refused::Torn)
    }

    /// Posts the chain that was built, of slot `slot`.
    #[inline]
    fn put(&mut self, qp: NonNull<bindings::ib_qp>, slot: u16, count: u32) -> Put {
        let first = self.wr.as_ptr().cast::<bindings::ib_send_wr>();
        let mut bad = ptr::null();
        // SAFETY:
        // - The queue pair is alive: it is `self.qp`, which closing clears under this lock before it destroys it, or
        //   closing itself posts (`post_flush`).
        // - The chain was built by `build`, and nothing else since; drivers do not keep pointers to
        //   requests or elements.
        // - What the elements name stays: message memory and `keep`, mapped for this device, until
        //   the slot is free; inline bytes, the caller's or `inline_kept`, are copied now; a registered region is kept by the job of
        //   its slot. Where the driver may have taken a part of the chain, the slot stays busy.
        // - `free_wrs` sees to it that the queue is not overrun.
        let ret = unsafe { bindings::ib_post_send(qp.as_ptr(), first, &raw mut bad) };
        if ret == 0 {
            self.note_posted(slot);
            return Put::Posted;
        }
        // Of a single request nothing is posted, whatever the driver says is bad. Of several, eRDMA
        // names the first also when it has run out of memory in the middle.
        let none = ptr::eq(bad, first) && ret != ENOMEM.to_errno();
        if count == 1 || none {
            return Put::Clean(Error::from_errno(ret));
        }
        Put::Torn
    }

    /// Notes that the chain of slot `slot` is posted in part.
    fn tear(&mut self, slot: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(slot)) {
            entry.lost = true;
        }
        self.sendable = false;
    }

    /// Tells whether a chain waits to be posted again.
    #[inline]
    pub(super) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Takes note that the chain of slot `slot` is posted.
    #[inline]
    fn note_posted(&mut self, slot: u16) {
        let signaled = self
            .entries
            .get(usize::from(slot))
            .is_some_and(|entry| entry.signaled);
        let at = self.in_order(self.under_way as usize);
        if let Some(place) = self.order.get_mut(at) {
            *place = slot;
        }
        self.under_way = self.under_way.wrapping_add(1);
        if signaled {
            self.signaled = self.signaled.wrapping_add(1);
            self.silent = 0;
        } else {
            self.silent = self.silent.wrapping_add(1);
        }
    }

    /// Returns the place in `order` of the chain that is the `n`th after the oldest.
    #[inline]
    fn in_order(&self, n: usize) -> usize {
        let at = self.oldest.wrapping_add(n);
        at.checked_sub(self.order.len()).unwrap_or(at)
    }

    /// Takes the oldest chain that is under way out of `order`; returns its slot.
    #[inline]
    fn next_ended(&mut self) -> Option<u16> {
        if self.under_way == 0 {
            return None;
        }
        let slot = *self.order.get(self.oldest)?;
        self.oldest = self.in_order(1);
        self.under_way = self.under_way.wrapping_sub(1);
        self.expected = self.expected.saturating_sub(1);
        self.silent = self.silent.min(self.under_way);
        Some(slot)
    }

    /// Frees slot `index`, whose chain has ended. Returns what it has kept.
    #[inline]
    fn release(&mut self, index: u16) -> Option<Done<T>> {
        let entry = self.entries.get_mut(usize::from(index))?;
        let done = Done {
            job: mem::replace(&mut entry.job, Job::Idle),
            keep: entry.keep.take(),
        };
        if entry.signaled && !entry.lost {
            self.signaled = self.signaled.saturating_sub(1);
        }
        self.free_wrs = self.free_wrs.wrapping_add(entry.wrs);
        // There is room for all of them.
        let _ = self.free.push_within_capacity(index);
        Some(done)
    }

    /// Takes note that a request of slot `index` has ended, the last one or one before it. Puts the chains into `silent`,
    /// which is empty, that have ended before it.
    #[inline]
    pub(super) fn completed(
        &mut self,
        index: u16,
        completion: Completion,
        last: bool,
        silent: &mut Silent<T>,
    ) -> Ended<T> {
        let Some(entry) = self.entries.get_mut(usize::from(index)) else {
            return Ended::No;
        };
        if !completion.status.is_success() {
            self.sendable = false;
            if entry.failed.is_none() {
                entry.failed = Some(completion);
            }
        }
        if !last || matches!(entry.job, Job::Idle) {
            return Ended::No;
        }
        if !entry.lost {
            // Those before it have ended, too, and well: a failure is always told of.
            let mut silent = silent.iter_mut();
            loop {
                let Some(slot) = self.next_ended() else { break };
                if slot == index {
                    break;
                }
                let Some(place) = silent.next() else {
                    // A driver has left out the completion of a signaled request.
                    self.put_back();
                    return Ended::More;
                };
                *place = self.release(slot);
            }
        }
        let failed = self
            .entries
            .get_mut(usize::from(index))
            .and_then(|entry| entry.failed.take());
        match self.release(index) {
            Some(done) => Ended::Yes(done, failed.unwrap_or(completion)),
            None => Ended::No,
        }
    }

    /// Undoes [`Sq::next_ended`].
    #[cold]
    fn put_back(&mut self) {
        self.oldest = match self.oldest.checked_sub(1) {
            Some(at) => at,
            None => self.order.len().saturating_sub(1),
        };
        self.under_way = self.under_way.wrapping_add(1);
        self.expected = self.under_way;
    }

    /// Returns whether a chain still waits for a completion that must come; with `torn` also whether one
    /// of a chain that was posted in part may come.
    pub(super) fn is_busy(&self, torn: bool) -> bool {
        self.entries
            .iter()
            .any(|entry| !matches!(entry.job, Job::Idle) && (torn || !entry.lost))
    }

    /// Takes a chain that has not ended. Only after the queue pair was destroyed and the poller stopped.
    pub(super) fn reclaim(&mut self) -> Option<Done<T>> {
        let index = self
            .entries
            .iter()
            .position(|entry| !matches!(entry.job, Job::Idle))?;
        // Nothing is under way any more.
        (self.under_way, self.expected, self.silent) = (0, 0, 0);
        self.release(u16::try_from(index).ok()?)
    }
}
