// SPDX-License-Identifier: GPL-2.0

//! A short list that every handshake reads and that seldom changes: the devices, the EIDs, the
//! physical networks.
//!
//! The list has [`COPIES`] copies, and a reader takes the lock of its own CPU's copy alone, so that
//! handshakes on different CPUs do not contend. A change is made to one copy after the other: a
//! reader may see it before another does.

use super::waiter::with_room;
use kernel::{
    cpu::CpuId,
    new_mutex,
    prelude::*,
    sync::{
        lock::{mutex::MutexBackend, Guard},
        Mutex, //
    }, //
};

/// Number of copies.
const COPIES: usize = 16;

/// A list with one copy for each CPU, or for a few.
#[pin_data]
pub(crate) struct ReadMostly<T> {
    /// Serialises changes.
    #[pin]
    changing: Mutex<()>,
    #[pin]
    copies: [Mutex<KVec<T>>; COPIES],
}

impl<T: Clone> ReadMostly<T> {
    /// Creates an empty list.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            changing <- new_mutex!((), "rsmc::ReadMostly::changing"),
            copies <- pin_init::pin_init_array_from_fn(|_| {
                new_mutex!(KVec::new(), "rsmc::ReadMostly::copies")
            }),
        })
    }

    /// Returns this CPU's copy, which does not change while the guard lives.
    pub(crate) fn read(&self) -> Guard<'_, KVec<T>, MutexBackend> {
        // The mask keeps the index in range.
        self.copies[CpuId::current().as_u32() as usize & (COPIES - 1)].lock()
    }

    /// Adds an item at the end, if `check` agrees, which is called with the list.
    ///
    /// # Errors
    ///
    /// Errors of `check`; `ENOMEM`. The list is unchanged then.
    pub(crate) fn add(&self, item: T, check: impl FnOnce(&[T]) -> Result) -> Result {
        let _changing = self.changing.lock();
        check(&self.read())?;
        // No other thread makes a copy longer meanwhile.
        for copy in &self.copies {
            let (left, copy) = with_room(copy)?;
            drop(copy);
            drop(left);
        }
        for copy in &self.copies {
            copy.lock().push_within_capacity(item.clone())?;
        }
        Ok(())
    }

    /// Removes all items for which `keep` returns false. Returns whether there were any.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) -> bool {
        let _changing = self.changing.lock();
        let mut removed = false;
        for copy in &self.copies {
            let mut copy = copy.lock();
            let before = copy.len();
            copy.retain(|item| keep(item));
            removed |= copy.len() != before;
        }
        removed
    }
}
