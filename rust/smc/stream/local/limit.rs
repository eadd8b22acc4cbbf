// SPDX-License-Identifier: GPL-2.0

//! The memory of rings, counted for each user.
//!
//! For programs whose control group has no limit this is the only one: TCP's (`tcp_mem`) does not count
//! rings, and a ring that holds unread bytes is not given back. A ring counts for the user of the
//! writing program, to whose control group its memory is charged, too; within a user namespace for
//! the user that made it, however many users it has. A program whose user is at the limit gets no
//! ring, and its bytes go by TCP.
//!
//! The counts are in a table of fixed size. A hash of the user's number and of a random one is the
//! index, so a ring needs no search, allocation or lock. Users with the same index share a limit; of
//! a hundred users one in forty shares its own.

use kapi::{
    net::process,
    sys::{bytes::Ring, clock}, //
};
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed}, //
};

/// Places, a power of two.
const PLACES: usize = 4096;

static COUNTS: [Atomic<i64>; PLACES] = [const { Atomic::new(0) }; PLACES];

/// The random number; 0 until it is drawn.
static SALT: Atomic<u64> = Atomic::new(0);

fn salt() -> u64 {
    match SALT.load(Relaxed) {
        0 => {
            let mut bytes = [0; 8];
            clock::random(&mut bytes);
            let drawn = u64::from_ne_bytes(bytes) | 1;
            SALT.cmpxchg(0, drawn, Relaxed)
                .map_or_else(|there| there, |_| drawn)
        }
        salt => salt,
    }
}

/// Returns the count of the calling program's user.
fn count() -> &'static Atomic<i64> {
    // Mixed twice, so that all bits of the number count for the upper bits of the product, the index.
    let mixed = (process::account() ^ salt()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    COUNTS.get(place as usize).unwrap_or(&COUNTS[0])
}

/// A ring that is counted.
pub(super) struct CountedRing {
    ring: Ring,
    count: &'static Atomic<i64>,
}

impl CountedRing {
    /// Allocates a ring like [`Ring::new`], if the calling program's user has at most `limit` bytes of rings then.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINVAL`.
    pub(super) fn new(size: usize, first: u64, limit: u64) -> Result<Self> {
        let count = count();
        let bytes = i64::try_from(size).map_err(|_| EINVAL)?;
        let before = count.fetch_add(bytes, Relaxed);
        let after = u64::try_from(before.saturating_add(bytes)).unwrap_or(0);
        let ring = match after > limit {
            true => Err(ENOMEM),
            false => Ring::new(size, first),
        };
        match ring {
            Ok(ring) => Ok(Self { ring, count }),
            Err(error) => {
                count.fetch_sub(bytes, Relaxed);
                Err(error)
            }
        }
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

impl Drop for CountedRing {
    fn drop(&mut self) {
        self.count.fetch_sub(self.ring.size() as i64, Relaxed);
    }
}
