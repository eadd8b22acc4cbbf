// SPDX-License-Identifier: GPL-2.0

//! One direction of a local path: the ring, and the route of its reader.

use crate::host::ring_memory::Counted;
use kapi::{
    net::process,
    sys::{
        bytes::Ring,
        clock,
        word::{full_barrier, Count, Word}, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        lock::{mutex::MutexBackend, Guard},
        Arc,
        Mutex, //
    }, //
};
use smc_proto::path::Route;

/// Size in bytes up to which a ring grows although its reader takes nothing: the programs at both ends may
/// write that much before they read.
const PATIENT: usize = 256 << 10;

/// Size with which a ring begins, in bytes.
pub(super) const FIRST: usize = 16 << 10;

/// Values of `waits_for_room`: the writer waits for room, or for the reader's lock, which it needs to make the
/// ring larger.
const ROOM: u32 = 1;
const LOCK: u32 = 2;

/// A ring, counted for the user of the program that writes.
pub(super) struct CountedRing {
    ring: Ring,
    _counted: Counted,
}

impl CountedRing {
    /// Allocates a ring like [`Ring::new`], if the calling program's user has at most `limit` bytes of rings then.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINVAL`.
    pub(super) fn new(size: usize, first: u64, limit: u64) -> Result<Self> {
        let counted = Counted::new(process::account(), size, limit)?;
        Ok(Self {
            ring: Ring::new(size, first)?,
            _counted: counted,
        })
    }

    /// Has the ring, to change it.
    pub(super) fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }
}

impl core::ops::Deref for CountedRing {
    type Target = Ring;

    #[inline(always)]
    fn deref(&self) -> &Ring {
        &self.ring
    }
}

/// The reader's ring, with its lock held.
pub(super) type Reader<'a> = Guard<'a, Option<Arc<CountedRing>>, MutexBackend>;

/// A direction, from its writer to its reader.
#[pin_data]
pub(super) struct LocalDirection {
    /// Number of bytes that were put into rings. Only the writer changes it.
    head: Count,
    /// Number of calls that have put bytes there. Only the writer changes it.
    puts: Count,
    /// Size of the ring. Changes with both locks held.
    size: Count,
    /// Number of bytes that were taken out. Only the reader changes it.
    tail: Count,
    /// Number of calls that have taken bytes out. Only the reader changes it.
    takes: Count,
    /// Where the reader finds the next byte: a [`Route`].
    route: Count,
    /// Position in TCP's stream at which the writer left TCP last. Changes with both locks held.
    cut: Word,
    /// What a writer waits for, [`ROOM`] or [`LOCK`]; or 0.
    waits_for_room: Word,
    /// Value of `tail` when the ring grew last. Only the writer uses it.
    grown_at: Count,
    /// 1 when the writer has found no room although its reader reads. Only the writer uses it.
    wants_larger: Word,
    /// Value of `head` when the worker looked last, and the number of its looks since that changed.
    seen: Count,
    silent: Word,
    /// Messages until the next change of carriers (sysctl `path_flip`, for tests). Only the writer uses it.
    countdown: Word,
    /// Held by the writer, into TCP or the ring. With it held `reader` is only tried.
    #[pin]
    pub(super) writer: Mutex<Option<Arc<CountedRing>>>,
    /// Held by the reader.
    #[pin]
    pub(super) reader: Mutex<Option<Arc<CountedRing>>>,
}

impl LocalDirection {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            head: Count::new(0),
            puts: Count::new(0),
            size: Count::new(0),
            tail: Count::new(0),
            takes: Count::new(0),
            route: Count::new(Route::TCP.word()),
            cut: Word::new(0),
            waits_for_room: Word::new(0),
            grown_at: Count::new(0),
            wants_larger: Word::new(0),
            seen: Count::new(0),
            silent: Word::new(0),
            countdown: Word::new(1),
            writer <- new_mutex!(None, "rsmc::LocalDirection::writer"),
            reader <- new_mutex!(None, "rsmc::LocalDirection::reader"),
        })
    }

    #[inline]
    pub(super) fn route(&self) -> Route {
        Route::from_word(self.route.acquire())
    }

    /// Replaces the route `before` by `route`; whether that was the route still. Neither end waits for the
    /// other here: each may sleep with its lock held, when a page of its program's memory is not there.
    pub(super) fn replace_route(&self, before: Route, route: Route) -> bool {
        self.route.replace(before.word(), route.word())
    }

    /// Turns back to TCP: what is in the ring will be read first. `writer` is what its lock protects.
    #[inline(never)]
    pub(super) fn end(&self, writer: &mut Option<Arc<CountedRing>>) {
        loop {
            let route = self.route();
            if self.replace_route(route, route.ended()) {
                break;
            }
        }
        *writer = None;
    }

    /// Returns the position at which the writer has left TCP last.
    #[inline]
    pub(super) fn cut(&self) -> u32 {
        self.cut.get()
    }

    /// Takes note of the position at which the writer leaves TCP. The caller holds both locks.
    pub(super) fn cuts(&self, position: u32) {
        self.cut.set(position);
    }

    /// Returns how many bytes are in the ring.
    #[inline]
    pub(super) fn there(&self) -> usize {
        // Loaded first, or a reader in between would make it the larger one.
        let tail = self.tail.acquire();
        self.head.acquire().wrapping_sub(tail) as usize
    }

    #[inline]
    fn size(&self) -> usize {
        self.size.get() as usize
    }

    /// Tells whether nothing has left TCP yet.
    #[inline]
    pub(super) fn is_untouched(&self) -> bool {
        self.size() == 0
    }

    /// Returns the numbers of calls and bytes that have gone in, and that have come out.
    pub(super) fn counts(&self) -> [(u64, u64); 2] {
        [
            (self.puts.get(), self.head.get()),
            (self.takes.get(), self.tail.get()),
        ]
    }

    /// Returns how many bytes there is room for.
    #[inline]
    pub(super) fn room(&self) -> usize {
        let there = self.there();
        self.size().saturating_sub(there)
    }

    /// Returns whether a writer should go on: a third of the ring is free, or it will be made larger, up to `most`
    /// bytes. A call that follows takes at least a byte.
    #[inline]
    pub(super) fn has_room(&self, most: impl FnOnce() -> usize) -> bool {
        // The size is loaded once: it is 0 without a ring, and then there is nothing to wait for.
        let size = self.size();
        size.saturating_sub(self.there()) >= size / 3
            || size < PATIENT && self.waits_for_room.get() != LOCK && size < most()
    }

    /// Returns the same for a writer that has found no room and is going to sleep. If it returns false, the reader
    /// will wake the writer.
    pub(super) fn awaits_room(&self, most: impl Fn() -> usize) -> bool {
        loop {
            if self.waits_for_room.get() == 0 {
                self.waits_for_room.set(ROOM);
            }
            // A reader that does not see this has stored its position and released its lock before; see `tells`.
            full_barrier();
            if self.has_room(&most) {
                return true;
            }
            // A reader has seen the mark, and woken sleepers, before the caller sleeps: set it once more.
            if self.waits_for_room.get() != 0 {
                return false;
            }
        }
    }

    /// Takes the reader's lock to change the ring, if it is free. If it is not, and the ring is full, the reader
    /// will wake the writer when it has released it. The writer holds its own lock.
    pub(super) fn try_reader(&self) -> Option<Reader<'_>> {
        self.reader.try_lock().or_else(|| {
            if self.room() != 0 {
                return None;
            }
            self.waits_for_room.set(LOCK);
            // A reader that does not see this has released its lock before.
            full_barrier();
            let reader = self.reader.try_lock()?;
            self.waits_for_room.set(ROOM);
            Some(reader)
        })
    }

    /// Tells whether a writer waits for room.
    pub(super) fn waits_for_room(&self) -> bool {
        self.waits_for_room.get() != 0
    }

    /// Returns the position of the next byte to write.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.head.get()
    }

    /// Returns the position of the next byte to read.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.tail.get()
    }

    /// Lets the reader see `len` more bytes. The writer holds its lock.
    #[inline]
    pub(super) fn wrote(&self, len: usize) {
        self.head.release(self.head().wrapping_add(len as u64));
    }

    /// Counts a call that puts bytes into the ring. The writer holds its lock.
    #[inline]
    pub(super) fn counts_put(&self) {
        self.puts.release(self.puts.get().wrapping_add(1));
    }

    /// Counts a call that has taken bytes out. The reader holds its lock.
    #[inline]
    pub(super) fn counts_take(&self) {
        self.takes.release(self.takes.get().wrapping_add(1));
    }

    /// Gives room for `len` bytes back to the writer. The reader holds its lock, and asks [`LocalDirection::tells`]
    /// when it has released it.
    #[inline(always)]
    pub(super) fn took(&self, len: usize) {
        self.tail.release(self.tail().wrapping_add(len as u64));
    }

    /// Returns whether the reader, which has just released its lock, is to wake the writer: it waits for that
    /// lock, or for room, of which there is enough now.
    #[inline(always)]
    pub(super) fn tells(&self) -> bool {
        // After the stores to the position and to the lock; see `awaits_room` and `try_reader`.
        full_barrier();
        let waits_for_room = self.waits_for_room.get();
        let tell =
            waits_for_room != 0 && (waits_for_room == LOCK || self.room() >= self.size() / 3);
        if tell {
            // A writer that sets it again before this store is woken as well.
            self.waits_for_room.set(0);
        }
        tell
    }

    /// Tells whether the ring grows whatever the reader does.
    #[inline]
    pub(super) fn is_small(&self) -> bool {
        self.size() < PATIENT
    }

    /// Tells whether the writer is to have a larger ring once that is cheap.
    #[inline]
    pub(super) fn wants_larger(&self) -> bool {
        self.wants_larger.get() != 0
    }

    /// Returns the size, at most `most`, of the larger ring for a writer that has `wanted` bytes and finds too
    /// little room for them, or has found none before; `None` if it keeps this ring.
    ///
    /// What a ring holds moves to its successor, so for a reader that takes what there is the change waits
    /// until there is little.
    pub(super) fn larger(&self, wanted: usize, most: usize) -> Option<usize> {
        let size = self.size();
        if size >= most {
            self.wants_larger.set(0);
            return None;
        }
        let double = size.saturating_mul(2);
        let needed = self.there().saturating_add(wanted);
        let larger = needed.next_power_of_two().clamp(double, most.max(double));
        if size < PATIENT && needed > size {
            return Some(larger);
        }
        let taken = self.tail().wrapping_sub(self.grown_at.get());
        if (taken as usize) < size {
            return None;
        }
        self.wants_larger.set(1);
        (self.there() <= size / 4).then_some(larger)
    }

    /// Counts a message; returns whether it is the last of a random number of them, at most `most`.
    #[cold]
    pub(super) fn counts_down(&self, most: u32) -> bool {
        let left = self.countdown.get().saturating_sub(1);
        if left != 0 {
            self.countdown.set(left);
            return false;
        }
        let mut random = [0; 4];
        clock::random(&mut random);
        let next = u32::from_ne_bytes(random).checked_rem(most).unwrap_or(0);
        self.countdown.set(next.saturating_add(1));
        true
    }

    /// Tells whether there is a ring; without the locks it may have been given back just now.
    pub(super) fn has_size(&self) -> bool {
        self.size() != 0
    }

    /// Returns the size of a ring that is empty.
    pub(super) fn idle_bytes(&self) -> usize {
        match self.there() {
            0 => self.size(),
            _ => 0,
        }
    }

    /// Checks for bytes since the last call. Returns true after `looks` calls in a row without any, if there is a
    /// ring.
    pub(super) fn is_silent(&self, looks: u32) -> bool {
        let head = self.head();
        if self.seen.get() != head || self.there() != 0 {
            self.seen.release(head);
            self.silent.set(0);
            return false;
        }
        let silent = self.silent.get().saturating_add(1);
        self.silent.set(silent);
        silent >= looks && self.has_size()
    }

    /// Goes back to TCP and gives the ring back, if it is empty and both locks are free. Returns the ring's size,
    /// or 0. `taken` returns the position up to which the reader has read TCP's stream, `is_at` whether TCP's
    /// write position is still that of the cut. Does not sleep.
    pub(super) fn give_back(
        &self,
        taken: impl FnOnce() -> u32,
        is_at: impl FnOnce(u32) -> bool,
    ) -> usize {
        // The writer's lock first: then no writer finds the reader's lock held by this function.
        let Some(mut writer) = self.writer.try_lock() else {
            return 0;
        };
        let Some(mut reader) = self.reader.try_lock() else {
            return 0;
        };
        let route = self.route();
        if self.there() != 0
            || route.writes_ring() && !is_at(self.cut())
            || route.ended().passed(taken(), true) != Route::TCP
            || !self.replace_route(route, Route::TCP)
        {
            return 0;
        }
        let rings = (writer.take(), reader.take());
        let size = self.size();
        self.size.release(0);
        self.silent.set(0);
        drop((writer, reader));
        drop(rings);
        size
    }

    /// Takes note of another ring. The caller holds both locks.
    pub(super) fn has_ring(&self, size: usize) {
        self.size.release(size as u64);
        self.grown_at.release(self.tail());
        self.wants_larger.set(0);
    }
}
