// SPDX-License-Identifier: GPL-2.0

//! The connections of a group, by index. Each place has a lock of its own, so that what arrives for one connection
//! waits for no other.

use super::SmcConn;
use core::ptr;
use kapi::{
    new_spinlock_bh,
    sys::lock::{lock_with_bh_off, SpinLockBh}, //
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::group::tokens::{Name, MAX_CONNS};

/// The connections of a group.
#[pin_data]
pub(super) struct ConnTable {
    #[pin]
    places: [SpinLockBh<Option<Arc<SmcConn>>>; MAX_CONNS],
}

impl ConnTable {
    /// No connections.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            places <- pin_init::pin_init_array_from_fn(|_| {
                new_spinlock_bh!(None, "rsmc::ConnTable::places")
            }),
        })
    }

    /// Returns the connection with this index.
    pub(super) fn get(&self, index: u8) -> Option<Arc<SmcConn>> {
        self.places.get(usize::from(index))?.lock().clone()
    }

    /// Returns the connection that an arrival names. To be called with bottom halves off.
    #[inline]
    pub(super) fn named_by(&self, name: Name) -> Option<Arc<SmcConn>> {
        let place = lock_with_bh_off(self.places.get(usize::from(name.index()?))?);
        place.as_ref().filter(|conn| name.is(conn.token())).cloned()
    }

    /// Makes a connection known.
    pub(super) fn insert(&self, conn: &Arc<SmcConn>) {
        let old = match self.places.get(usize::from(conn.index())) {
            Some(place) => place.lock().replace(conn.clone()),
            None => None,
        };
        // Outside of the lock: it may be the last reference.
        drop(old);
    }

    /// Forgets a connection; returns it if it was known.
    pub(super) fn take(&self, conn: &SmcConn) -> Option<Arc<SmcConn>> {
        let mut place = self.places.get(usize::from(conn.index()))?.lock();
        let own = place.as_deref().is_some_and(|own| ptr::eq(own, conn));
        own.then(|| place.take()).flatten()
    }

    /// All connections that are known when their turn comes.
    pub(super) fn iter(&self) -> impl Iterator<Item = Arc<SmcConn>> + '_ {
        self.places.iter().filter_map(|place| place.lock().clone())
    }
}
