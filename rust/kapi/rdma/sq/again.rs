// SPDX-License-Identifier: GPL-2.0

//! Chains that a device has refused for now, for want of memory or room: they are posted again when
//! another one has ended, or after a while, and nothing else before them.

use super::{Entry, Put, Sq};
use kernel::prelude::*;
use smc_bindings as bindings;

/// The next to try to post a chain that the device has refused for now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::rdma) enum Again {
    /// None: it is posted.
    Never,
    /// The completion of another chain.
    Completion,
    /// A worker, as no other chain is under way.
    Worker,
    /// None: the queue pair cannot be used any more.
    Broken,
}

/// Tells whether a device may take later what it has refused with this error.
pub(super) fn is_transient(error: Error) -> bool {
    error == ENOMEM || error == EAGAIN || error == EBUSY
}

impl<T> Sq<T> {
    /// Copies what the chain that was built has inline: its owner keeps that until `post` returns.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cold]
    pub(super) fn keep_inline(&mut self, count: u32) -> Result {
        let inline = bindings::ib_send_flags_IB_SEND_INLINE;
        self.inline_kept = KVec::new();
        for at in 0..usize::try_from(count)? {
            let wr = self.wr.get(at).ok_or(EINVAL)?;
            // SAFETY: `send` is the common beginning of all members, and was filled in by `build`.
            if unsafe { wr.send.send_flags } & inline == 0 {
                continue;
            }
            // Such a request has one element.
            let sge = *self.sge(at, 0).ok_or(EINVAL)?;
            let len = usize::try_from(sge.length)?;
            let mut bytes = KVec::with_capacity(len, GFP_ATOMIC)?;
            for i in 0..len {
                // SAFETY: `build` has put the address of `length` bytes there, which stay until `post` returns.
                let byte = unsafe { (sge.addr as *const u8).add(i).read_volatile() };
                bytes.push(byte, GFP_ATOMIC)?;
            }
            // What a vector holds stays where it is when the vector is moved.
            self.sge(at, 0).ok_or(EINVAL)?.addr = bytes.as_ptr() as u64;
            self.inline_kept.push(bytes, GFP_ATOMIC)?;
        }
        Ok(())
    }

    /// Returns the next to try to post the chain of slot `slot`.
    pub(super) fn again(&self, slot: u16) -> Again {
        // One that ends without a completion does not help.
        let other = |entry: &Entry<T>| !entry.is_idle() && !entry.lost && entry.signaled;
        let slot = usize::from(slot);
        let mut entries = self.entries.iter().enumerate();
        if entries.any(|(at, entry)| at != slot && other(entry)) {
            Again::Completion
        } else {
            Again::Worker
        }
    }

    /// Tries again to post a chain that the device has refused, if there is one.
    #[cold]
    pub(in crate::rdma) fn retry(&mut self) -> Again {
        let Some(slot) = self.refused else {
            return Again::Never;
        };
        let Some(qp) = self.qp.filter(|_| self.sendable) else {
            return Again::Broken;
        };
        let entry = self.entries.get(usize::from(slot));
        let (count, signaled) = entry.map_or((1, false), |entry| (entry.wrs, entry.signaled));
        let put = self.put(qp, count);
        if matches!(put, Put::Clean(error) if is_transient(error)) {
            // What has become free meanwhile.
            while let Some(free) = self.free.pop() {
                let _ = self.parked.push_within_capacity(free);
            }
            return self.again(slot);
        }
        self.refused = None;
        while let Some(parked) = self.parked.pop() {
            let _ = self.free.push_within_capacity(parked);
        }
        if !matches!(put, Put::Posted) {
            self.tear(slot);
            return Again::Broken;
        }
        self.note_posted(slot, signaled);
        if let Some(entry) = self.entries.get_mut(usize::from(slot)) {
            entry.lost = false;
        }
        Again::Never
    }
}
