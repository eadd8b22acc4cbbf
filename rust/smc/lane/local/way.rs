// SPDX-License-Identifier: GPL-2.0

//! One direction of a local path: the ring, and the route of its reader.

use kapi::sys::{bytes::Ring, clock};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        Arc,
        Mutex, //
    }, //
};
use smc_proto::path::Route;

/// Size with which a ring begins, in bytes.
pub(super) const FIRST: usize = 16 << 10;

/// A direction, from its writer to its reader.
#[pin_data]
pub(super) struct Way {
    /// Bytes that were ever put into rings. The writer's.
    head: Atomic<u64>,
    /// Size of the ring. Changes with both locks.
    size: Atomic<usize>,
    /// Bytes that were ever taken out. The reader's.
    tail: Atomic<u64>,
    /// Where the reader finds the next byte: a [`Route`].
    route: Atomic<u64>,
    /// 1 when a writer waits for room.
    starving: Atomic<u32>,
    /// Value of `tail` when the ring grew last.
    grown_at: Atomic<u64>,
    /// Messages until the next change of carriers that a test wants.
    countdown: Atomic<u32>,
    /// Held by the one who writes, into TCP or the ring. Taken before `reader`.
    #[pin]
    pub(super) writer: Mutex<Option<Arc<Ring>>>,
    /// Held by the one who reads.
    #[pin]
    pub(super) reader: Mutex<Option<Arc<Ring>>>,
}

impl Way {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            head: Atomic::new(0),
            size: Atomic::new(0),
            tail: Atomic::new(0),
            route: Atomic::new(Route::TCP.word()),
            starving: Atomic::new(0),
            grown_at: Atomic::new(0),
            countdown: Atomic::new(1),
            writer <- new_mutex!(None, "rsmc::Way::writer"),
            reader <- new_mutex!(None, "rsmc::Way::reader"),
        })
    }

    #[inline]
    pub(super) fn route(&self) -> Route {
        Route::from_word(self.route.load(Acquire))
    }

    /// Sets the route. The caller holds the locks that [`Route`] asks for.
    #[inline]
    pub(super) fn set_route(&self, route: Route) {
        self.route.store(route.word(), Release);
    }

    /// Returns how many bytes are in the ring.
    #[inline]
    pub(super) fn there(&self) -> usize {
        // Loaded first, or a reader in between would make it the larger one.
        let tail = self.tail.load(Acquire);
        self.head.load(Acquire).wrapping_sub(tail) as usize
    }

    /// Returns how many bytes there is room for.
    #[inline]
    pub(super) fn room(&self) -> usize {
        let there = self.there();
        self.size.load(Relaxed).saturating_sub(there)
    }

    /// Returns whether a writer that found no room should go on: a third of the ring is free. If not, the
    /// reader will say so.
    pub(super) fn has_room(&self) -> bool {
        let enough = || self.room() >= self.size.load(Relaxed) / 3;
        if enough() {
            return true;
        }
        // A reader that does not see this has made its room visible before.
        self.starving.xchg(1, Full);
        enough()
    }

    /// Returns the position of the next byte to write.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.head.load(Relaxed)
    }

    /// Returns the position of the next byte to read.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.tail.load(Relaxed)
    }

    /// Lets the reader see `len` more bytes. The writer holds its lock.
    #[inline]
    pub(super) fn wrote(&self, len: usize) {
        self.head
            .store(self.head().wrapping_add(len as u64), Release);
    }

    /// Gives `len` bytes back to the writer. Returns whether one waits for room, and there is enough now.
    /// The reader holds its lock.
    #[inline]
    pub(super) fn took(&self, len: usize) -> bool {
        let tail = self.tail().wrapping_add(len as u64);
        // A full barrier between the two: see `has_room`.
        self.tail.xchg(tail, Full);
        self.starving.load(Relaxed) != 0
            && self.room() >= self.size.load(Relaxed) / 3
            && self.starving.xchg(0, Relaxed) != 0
    }

    /// Returns the size that a ring should have in which a writer of `wanted` bytes starves, at most
    /// `most`; `None` when it is to wait instead: the reader has not kept up with what there is.
    pub(super) fn larger(&self, wanted: usize, most: usize) -> Option<usize> {
        let size = self.size.load(Relaxed);
        let taken = self.tail().wrapping_sub(self.grown_at.load(Relaxed));
        if size >= most || (taken as usize) < size {
            return None;
        }
        let double = size.saturating_mul(2);
        Some(wanted.next_power_of_two().clamp(double, most.max(double)))
    }

    /// Counts a message; returns whether it is the last of a random number of them, at most `most`.
    #[cold]
    pub(super) fn counts_down(&self, most: u32) -> bool {
        let left = self.countdown.load(Relaxed).saturating_sub(1);
        if left != 0 {
            self.countdown.store(left, Relaxed);
            return false;
        }
        let mut random = [0; 4];
        clock::random(&mut random);
        let next = u32::from_ne_bytes(random).checked_rem(most).unwrap_or(0);
        self.countdown.store(next.saturating_add(1), Relaxed);
        true
    }

    /// Takes note of another ring. The caller holds both locks.
    pub(super) fn has_ring(&self, size: usize) {
        self.size.store(size, Relaxed);
        self.grown_at.store(self.tail(), Relaxed);
    }
}
