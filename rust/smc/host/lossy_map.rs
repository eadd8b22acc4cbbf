// SPDX-License-Identifier: GPL-2.0

//! A map of fixed size from a peer or a service to what was learnt about it; one per namespace and subject.
//!
//! When a set of the map is full a new entry replaces an old one. Memory is allocated with the first entry.
//! Looking up a key whose set is empty reads one word.

use kapi::sys::{clock, word::Count};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};
use smc_proto::slots::{set_of, Key, Slot, Slots, WAYS};

/// Sets of a table; a bit of [`LossyMap::sets`] for each.
const SETS: usize = 64;
/// Entries of a table.
const COUNT: usize = SETS * WAYS;

/// A table, in which each `K` has a `V` or none.
#[pin_data]
pub(crate) struct LossyMap<K: Key, V> {
    /// The sets in which something stands.
    sets: Count,
    /// Keeps others from choosing keys that meet in one set.
    secret: u64,
    /// Nothing, or [`COUNT`] places.
    #[pin]
    places: SpinLock<KVec<Slot<K, V>>>,
}

impl<K: Key, V: Copy> LossyMap<K, V> {
    /// Creates an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        let mut secret = [0; 8];
        clock::random(&mut secret);
        pin_init!(Self {
            sets: Count::new(0),
            secret: u64::from_ne_bytes(secret),
            places <- new_spinlock!(KVec::new(), "rsmc::LossyMap::places"),
        })
    }

    /// Returns whether nothing stands in the table. Costs less than to find out a key.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.get() == 0
    }

    /// Returns whether `key` may have a value: false if it has none.
    #[inline]
    pub(crate) fn may_have(&self, key: &K) -> bool {
        let sets = self.sets.get();
        sets != 0 && sets & bit(set_of(key, self.secret, SETS)) != 0
    }

    /// Makes the memory, if there is none. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn prepare(&self) -> Result {
        if !self.places.lock().is_empty() {
            return Ok(());
        }
        let mut new = KVec::with_capacity(COUNT, GFP_KERNEL_ACCOUNT)?;
        new.extend_with(COUNT, Slot::EMPTY, GFP_KERNEL_ACCOUNT)?;
        let mut places = self.places.lock();
        if places.is_empty() {
            core::mem::swap(&mut *places, &mut new);
        }
        drop(places);
        Ok(())
    }

    /// Has `act` look at the table, or change what it has for these keys. Does not sleep.
    pub(crate) fn with<R>(&self, keys: &[K], act: impl FnOnce(Slots<'_, K, V>) -> R) -> R {
        let mut places = self.places.lock();
        let result = act(Slots::new(&mut places, self.secret));
        for key in keys {
            self.look_at(&mut places, set_of(key, self.secret, SETS));
        }
        result
    }

    /// Takes note whether anything stands in a set. The caller holds the lock.
    fn look_at(&self, places: &mut [Slot<K, V>], set: usize) {
        let empty = Slots::new(places, self.secret).is_empty(set);
        // Written under the lock alone.
        let sets = self.sets.get();
        self.sets.release(match empty {
            true => sets & !bit(set),
            false => sets | bit(set),
        });
    }

    /// Has `act` look at the table, or change all of it. Does not sleep.
    pub(crate) fn with_all<R>(&self, act: impl FnOnce(Slots<'_, K, V>) -> R) -> R {
        let mut places = self.places.lock();
        let result = act(Slots::new(&mut places, self.secret));
        for set in 0..SETS {
            self.look_at(&mut places, set);
        }
        result
    }

    /// Forgets all.
    pub(crate) fn forget_all(&self) {
        let mut places = self.places.lock();
        self.sets.release(0);
        let old = core::mem::replace(&mut *places, KVec::new());
        drop(places);
        drop(old);
    }

    /// Returns what stands in place number `at`; the outer `None` is beyond the last.
    pub(crate) fn at(&self, at: usize) -> Option<Option<(K, V)>> {
        let places = self.places.lock();
        let slot = places.get(at)?;
        Some(slot.get().map(|(key, value)| (*key, *value)))
    }
}

fn bit(set: usize) -> u64 {
    1u64.wrapping_shl(set as u32)
}
