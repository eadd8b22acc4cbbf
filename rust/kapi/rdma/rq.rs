// SPDX-License-Identifier: GPL-2.0

//! The receive queue: buffers that are posted again as soon as they have been read.

use super::region::Region;
use crate::sys::word::Pointer;
use core::{
    mem,
    ptr::{self, NonNull}, //
};
use kernel::{
    ffi::c_void,
    page::PAGE_SIZE,
    prelude::*, //
};
use smc_bindings as bindings;

/// The distance of receive buffers when the tail of long messages is shared.
const STRIDE: usize = super::wr::HEAD;

/// Number of buffers to gather before they are posted again in one call.
const BATCH: usize = 8;

/// The `ib_cqe` of a receive buffer.
#[repr(C)]
pub(super) struct RecvSlot {
    pub(super) cqe: bindings::ib_cqe,
    /// The channel, as a number without ownership.
    pub(super) owner: Pointer<c_void>,
    pub(super) index: u16,
}

// SAFETY: Written before the queue pair exists and only read afterwards.
unsafe impl Send for RecvSlot {}
// SAFETY: Shared references only read what was written before, and `owner` is read and written whole.
unsafe impl Sync for RecvSlot {}

impl RecvSlot {
    pub(super) fn new(
        index: u16,
        done: unsafe extern "C" fn(*mut bindings::ib_cq, *mut bindings::ib_wc),
    ) -> Self {
        Self {
            cqe: bindings::ib_cqe { done: Some(done) },
            owner: Pointer::null(),
            index,
        }
    }
}

/// Memory of a message: `first` bytes in the buffer of its slot, the rest in the shared tail.
///
/// A device with one element per receive gets whole pages instead, and messages are limited to a
/// page.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) stride: usize,
    pub(super) first: usize,
    pub(super) spill_at: usize,
    pub(super) spill: usize,
    pub(super) sges: usize,
}

impl Layout {
    /// Lays out memory for messages of usually `first` and at most `first + spill` bytes.
    pub(super) fn new(slots: u16, first: usize, spill: usize, device_sges: u32) -> Result<Self> {
        let slots = usize::from(slots);
        if first == 0 || first > STRIDE {
            return Err(EINVAL);
        }
        let spare = usize::try_from(device_sges)?.saturating_sub(1);
        if spill > 0 && spare == 0 {
            let first = first.checked_add(spill).ok_or(EINVAL)?.min(PAGE_SIZE);
            return Ok(Self {
                stride: PAGE_SIZE,
                first,
                spill_at: slots.checked_mul(PAGE_SIZE).ok_or(EINVAL)?,
                spill: 0,
                sges: 1,
            });
        }
        let pages = spill.div_ceil(PAGE_SIZE).min(spare);
        let used = slots.checked_mul(STRIDE).ok_or(EINVAL)?;
        Ok(Self {
            stride: STRIDE,
            first,
            spill_at: used
                .div_ceil(PAGE_SIZE)
                .checked_mul(PAGE_SIZE)
                .ok_or(EINVAL)?,
            spill: spill.min(pages.saturating_mul(PAGE_SIZE)),
            sges: pages.checked_add(1).ok_or(EINVAL)?,
        })
    }

    /// Returns the size of the memory.
    pub(super) fn bytes(&self) -> usize {
        self.spill_at.saturating_add(self.spill)
    }

    /// Returns the longest message.
    pub(super) fn longest(&self) -> usize {
        self.first.saturating_add(self.spill)
    }

    /// Returns the beginning of the buffer of a slot, in bytes.
    pub(super) fn slot_at(&self, index: u16) -> usize {
        usize::from(index).saturating_mul(self.stride)
    }
}

/// The part of a channel behind its receive lock.
///
/// # Invariants
///
/// `wrs[i]` is a request for the buffer of slot `i`, its elements are in `sges`, its `ib_cqe` is
/// that of slot `i`. None of the lists grows after [`Rq::arm`].
pub(super) struct Rq {
    /// The queue pair, until closing begins.
    pub(super) qp: Option<NonNull<bindings::ib_qp>>,
    wrs: KVec<bindings::ib_recv_wr>,
    sges: KVec<bindings::ib_sge>,
    pending: KVec<u16>,
    posted: usize,
}

// SAFETY: The pointers are to objects that any thread may use under the lock around this.
unsafe impl Send for Rq {}

impl Rq {
    pub(super) fn new(slots: u16, sges: usize) -> Result<Self> {
        let n = usize::from(slots);
        Ok(Self {
            qp: None,
            wrs: KVec::with_capacity(n, GFP_KERNEL)?,
            sges: KVec::with_capacity(n.checked_mul(sges).ok_or(EINVAL)?, GFP_KERNEL)?,
            pending: KVec::with_capacity(n, GFP_KERNEL)?,
            posted: 0,
        })
    }

    /// Builds one request for each slot and marks all as to be posted. Called once. All lists
    /// have their capacity already, so nothing is allocated.
    pub(super) fn arm(
        &mut self,
        slots: &[RecvSlot],
        layout: &Layout,
        memory: &Region,
        lkey: u32,
    ) -> Result {
        let map = memory.map().ok_or(ENODEV)?;
        for slot in slots {
            let at = layout.slot_at(slot.index);
            let begin = self.sges.len();
            let sges = &mut self.sges;
            let mut add = |addr, length| -> Result {
                sges.push(bindings::ib_sge { addr, length, lkey }, GFP_ATOMIC)?;
                Ok(())
            };
            map.pieces(at..at.saturating_add(layout.first), &mut add)?;
            if layout.spill > 0 {
                map.pieces(layout.spill_at..layout.bytes(), &mut add)?;
            }
            let count = self.sges.len().wrapping_sub(begin);
            if count > layout.sges {
                return Err(EINVAL);
            }
            // SAFETY: Zero is a valid value of a plain C struct.
            let mut wr: bindings::ib_recv_wr = unsafe { mem::zeroed() };
            wr.__bindgen_anon_1.wr_cqe = (&raw const slot.cqe).cast_mut();
            wr.num_sge = i32::try_from(count)?;
            // SAFETY: `begin` is inside the list, which does not move any more.
            wr.sg_list = unsafe { self.sges.as_mut_ptr().add(begin) };
            self.wrs.push(wr, GFP_ATOMIC)?;
            self.pending.push(slot.index, GFP_ATOMIC)?;
        }
        Ok(())
    }

    /// Takes the buffer of slot `index` back, to be posted again: with those that come next, if the device
    /// refuses it for now.
    ///
    /// # Errors
    ///
    /// The driver's, when none is posted: nothing would come next.
    #[inline]
    pub(super) fn recycle(&mut self, index: u16) -> Result {
        self.ended();
        // There is room for all of them.
        self.pending
            .push_within_capacity(index)
            .map_err(|_| EINVAL)?;
        let few = self.wrs.len() / 4;
        match self.pending.len() >= BATCH.min(few.max(1)) {
            true => self.flush_some(),
            false => Ok(()),
        }
    }

    /// Posts all buffers that are to be posted, with those that come next if the device refuses them for now.
    ///
    /// # Errors
    ///
    /// The driver's, when none is posted.
    #[inline(never)]
    fn flush_some(&mut self) -> Result {
        let flushed = self.flush();
        match self.posted {
            0 => flushed,
            _ => Ok(()),
        }
    }

    /// Takes note that a receive has ended and its buffer is not wanted again.
    #[inline]
    pub(super) fn ended(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Posts all buffers that are to be posted, in one call.
    ///
    /// # Errors
    ///
    /// The driver's; those that it has not taken are still to be posted.
    pub(super) fn flush(&mut self) -> Result {
        let Some(qp) = self.qp else {
            return Ok(());
        };
        let mut first: *mut bindings::ib_recv_wr = ptr::null_mut();
        let mut count = 0usize;
        while let Some(index) = self.pending.pop() {
            if let Some(wr) = self.wrs.get_mut(usize::from(index)) {
                wr.next = first;
                first = ptr::from_mut(wr);
                count = count.wrapping_add(1);
            }
        }
        if first.is_null() {
            return Ok(());
        }
        let mut bad = ptr::null();
        // SAFETY: The queue pair is alive: closing clears `qp` under this lock before it destroys
        // it. The requests are built by `arm`; buffers and `ib_cqe`s live until it is destroyed.
        // Each slot is in the queue at most once, so the queue is not overrun.
        let ret = unsafe { bindings::ib_post_recv(qp.as_ptr(), first, &raw mut bad) };
        let mut lost = 0usize;
        if ret != 0 {
            let mut wr = if bad.is_null() {
                first.cast_const()
            } else {
                bad
            };
            let base = self.wrs.as_ptr().addr();
            while !wr.is_null() {
                lost = lost.saturating_add(1);
                // Its number is that of its slot.
                let index = wr.addr().wrapping_sub(base) / size_of::<bindings::ib_recv_wr>();
                if let Ok(index) = u16::try_from(index) {
                    // There is room for all of them.
                    let _ = self.pending.push_within_capacity(index);
                }
                // SAFETY: An element of our own chain.
                wr = unsafe { (*wr).next };
            }
        }
        self.posted = self.posted.wrapping_add(count.saturating_sub(lost));
        kernel::error::to_result(ret)
    }

    /// Returns whether a receive still waits for its completion.
    pub(super) fn is_busy(&self) -> bool {
        self.posted > 0
    }
}
