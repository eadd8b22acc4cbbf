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
mod silent;

pub(super) use again::Again;
pub(super) use silent::{room, Silent};

use super::{
    completion::{Completion, Status},
    dma::DmaMap,
    mr::{Kept, Key},
    wr::{Signal, Write}, //
};
use crate::{errno::ENOTCONN, sys::word::Pointer};
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
    pub(super) owner: Pointer<c_void>,
    pub(super) index: u16,
}

// SAFETY: Written before the queue pair exists and only read afterwards.
unsafe impl Send for SendSlot {}
// SAFETY: Shared references only read what was written before, and `owner` is read and written whole.
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
            owner: Pointer::null(),
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

/// What a slot holds for its chain until that has ended. Dropping it may free memory: not under the lock.
pub(super) struct Held<T> {
    pub(super) job: Job<T>,
    pub(super) keep: Option<Arc<DmaMap>>,
}

impl<T> Held<T> {
    /// Nothing.
    const NONE: Self = Self {
        job: Job::Idle,
        keep: None,
    };
}

/// What has become of the chain whose request has completed.
pub(super) enum Ended<T> {
    /// It has not ended.
    No,
    /// It has, and those before it.
    Yes(Held<T>, Completion),
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
    held: Held<T>,
    wrs: u32,
    signaled: bool,
    failed: Option<Completion>,
    /// Posted in part, or not yet: no completion of the last request will come.
    lost: bool,
}

impl<T> Entry<T> {
    /// Tells whether the slot is free.
    #[inline]
    fn is_idle(&self) -> bool {
        matches!(self.held.job, Job::Idle)
    }
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
                    held: Held::NONE,
                    wrs: 0,
                    signaled: false,
                    failed: None,
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

    /// Posts one write, which carries `number`: what most messages are. As [`Sq::post`].
    #[inline(always)]
    pub(super) fn post_one(
        &mut self,
        job: Job<T>,
        signal: Signal,
        write: &Write<'_>,
        number: u32,
    ) -> Result<(), Refused<T>> {
        if let (true, Some(qp), Some(&slot), 1..) =
            (self.sendable, self.qp, self.free.last(), self.free_wrs)
        {
            let signaled = self.tells(signal);
            if let Some(keep) = self.build_one(slot, write, number, signaled) {
                return self.commit(qp, slot, 1, job, signaled, keep);
            }
        }
        // That finds the reason, too. Part by part, so that it is in memory here only.
        let &Write {
            from,
            offset,
            len,
            to,
        } = write;
        let write = Write {
            from,
            offset,
            len,
            to,
        };
        self.post_any(job, signal, write, number)
    }

    #[inline(never)]
    fn post_any(
        &mut self,
        job: Job<T>,
        signal: Signal,
        write: Write<'_>,
        number: u32,
    ) -> Result<(), Refused<T>> {
        let no_message = |_: u16, _: &[u8]| Ok(());
        self.post(job, signal, [write], Last::Immediate(number), no_message)
    }

    /// Tells whether the device is to tell of the end of the next chain.
    #[inline]
    fn tells(&self, signal: Signal) -> bool {
        signal == Signal::Always || self.silent >= MOST_SILENT as u32 || self.free.len() <= 1
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
        let signaled = self.tells(signal);
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
        self.commit(qp, slot, count, job, signaled, keep)
    }

    /// Posts the chain of `count` requests that was built in slot `slot`.
    #[inline(always)]
    fn commit(
        &mut self,
        qp: NonNull<bindings::ib_qp>,
        slot: u16,
        count: u32,
        job: Job<T>,
        signaled: bool,
        keep: Option<Arc<DmaMap>>,
    ) -> Result<(), Refused<T>> {
        let Some(entry) = self.entries.get_mut(usize::from(slot)) else {
            return Err(Refused::Clean(job, EINVAL));
        };
        // The completion may come before posting returns; it waits for our lock.
        entry.wrs = count;
        entry.signaled = signaled;
        entry.failed = None;
        entry.lost = false;
        // It was idle: there is nothing to drop, and nobody is called for that.
        mem::forget(mem::replace(&mut entry.held, Held { job, keep }));
        self.free.pop();
        self.free_wrs = self.free_wrs.wrapping_sub(count);
        match self.put(qp, count) {
            Put::Posted => {
                self.note_posted(slot, signaled);
                Ok(())
            }
            refused => Err(self.refuse(refused, slot, count)),
        }
    }

    /// Takes note that the device has not taken a chain.
    #[cold]
    fn refuse(&mut self, put: Put, slot: u16, count: u32) -> Refused<T> {
        match put {
            Put::Posted | Put::Torn => self.tear(slot),
            Put::Clean(error) if again::is_transient(error) && self.keep_inline(count).is_ok() => {
                self.refused = Some(slot);
                mem::swap(&mut self.free, &mut self.parked);
                if let Some(entry) = self.entries.get_mut(usize::from(slot)) {
                    entry.lost = true;
                }
                return Refused::Later(self.again(slot));
            }
            Put::Clean(error) => {
                self.free_wrs = self.free_wrs.wrapping_add(count);
                // It was there just now.
                let _ = self.free.push_within_capacity(slot);
                if let Some(entry) = self.entries.get_mut(usize::from(slot)) {
                    let held = mem::replace(&mut entry.held, Held::NONE);
                    return Refused::Clean(held.job, error);
                }
            }
        }
        Refused::Torn
    }

    /// Posts the chain that was built.
    #[inline]
    fn put(&mut self, qp: NonNull<bindings::ib_qp>, count: u32) -> Put {
        let first = self.wr.as_ptr().cast::<bindings::ib_send_wr>();
        let mut bad = ptr::null();
        // SAFETY:
        // - The queue pair is alive: it is `self.qp`, which closing clears under this lock before it destroys it, or
        //   closing itself posts (`post_flush`).
        // - The chain was built by `build` or `build_one`, and nothing else since; drivers do not keep pointers to
        //   requests or elements.
        // - What the elements name stays: message memory and `keep`, mapped for this device, until
        //   the slot is free; inline bytes, the caller's or `inline_kept`, are copied now; a registered region is kept by the job of
        //   its slot. Where the driver may have taken a part of the chain, the slot stays busy.
        // - `free_wrs` sees to it that the queue is not overrun.
        let ret = unsafe { bindings::ib_post_send(qp.as_ptr(), first, &raw mut bad) };
        if ret == 0 {
            return Put::Posted;
        }
        self.not_put(first, bad, ret, count)
    }

    /// Tells what the error `ret` of a post means, for which `bad` is to blame.
    #[cold]
    fn not_put(
        &self,
        first: *const bindings::ib_send_wr,
        bad: *const bindings::ib_send_wr,
        ret: i32,
        count: u32,
    ) -> Put {
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
    #[inline(always)]
    fn note_posted(&mut self, slot: u16, signaled: bool) {
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

    /// Takes the chains out of `order` that have ended before that of slot `index`, and that itself: well, as a failure is
    /// always told of. Puts those before it into `ended`; returns false if there are more.
    #[inline]
    fn take_ended(&mut self, index: u16, ended: &mut Silent<'_, T>) -> bool {
        let mut all = true;
        let mut under_way = self.under_way;
        while under_way > 0 {
            let Some(slot) = self.order.get(self.oldest).copied() else {
                break;
            };
            if slot != index && ended.is_full() {
                // A driver has left out the completion of a signaled request.
                all = false;
                break;
            }
            self.oldest = self.in_order(1);
            under_way = under_way.wrapping_sub(1);
            if slot == index {
                break;
            }
            let Some(entry) = self.entries.get_mut(usize::from(slot)) else {
                break;
            };
            // There is room for all of them.
            let _ = self.free.push_within_capacity(slot);
            self.free_wrs = self.free_wrs.wrapping_add(entry.wrs);
            self.signaled = self.signaled.wrapping_sub(u32::from(entry.signaled));
            ended.take(&mut entry.held);
        }
        let number = self.under_way.wrapping_sub(under_way);
        self.under_way = under_way;
        self.silent = self.silent.min(under_way);
        self.expected = match all {
            true => self.expected.saturating_sub(number),
            false => under_way,
        };
        all
    }

    /// Frees slot `index`, whose chain has ended. Returns what it has held.
    #[inline(always)]
    fn release(&mut self, index: u16) -> Option<Held<T>> {
        let entry = self.entries.get_mut(usize::from(index))?;
        if entry.signaled && !entry.lost {
            self.signaled = self.signaled.saturating_sub(1);
        }
        self.free_wrs = self.free_wrs.wrapping_add(entry.wrs);
        // There is room for all of them.
        let _ = self.free.push_within_capacity(index);
        Some(mem::replace(&mut entry.held, Held::NONE))
    }

    /// Takes note that a request of slot `index` has ended, the last one or one before it. Puts the chains into `silent`,
    /// which is empty, that have ended before it.
    #[inline]
    pub(super) fn completed(
        &mut self,
        index: u16,
        completion: Completion,
        last: bool,
        silent: &mut Silent<'_, T>,
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
        if !last || entry.is_idle() {
            return Ended::No;
        }
        if !entry.lost && !self.take_ended(index, silent) {
            return Ended::More;
        }
        let failed = self
            .entries
            .get_mut(usize::from(index))
            .and_then(|entry| entry.failed.take());
        match self.release(index) {
            Some(held) => Ended::Yes(held, failed.unwrap_or(completion)),
            None => Ended::No,
        }
    }

    /// Returns whether a chain still waits for a completion that must come; with `torn` also whether one
    /// of a chain that was posted in part may come.
    pub(super) fn is_busy(&self, torn: bool) -> bool {
        self.entries
            .iter()
            .any(|entry| !entry.is_idle() && (torn || !entry.lost))
    }

    /// Takes a chain that has not ended. Only after the queue pair was destroyed and the poller stopped.
    pub(super) fn reclaim(&mut self) -> Option<Held<T>> {
        let index = self.entries.iter().position(|entry| !entry.is_idle())?;
        // Nothing is under way any more.
        (self.under_way, self.expected, self.silent) = (0, 0, 0);
        self.release(u16::try_from(index).ok()?)
    }
}
