// SPDX-License-Identifier: GPL-2.0

//! The memory of rings that programs could do without, counted for each user: rings of local paths, and those of SMC-R
//! connections that have grown.
//!
//! For programs whose control group has no limit this is the only one: TCP's (`tcp_mem`) does not count
//! rings, and a ring that holds unread bytes is not given back. A ring counts for the user of the program that writes
//! into it, or reads from a receive ring, to whose control group its memory is charged, too; within a user namespace for
//! the user that made it, however many users it has. A program whose user is at the limit gets no
//! ring: its bytes go by TCP, or its ring stays as small as it is.
//!
//! The counts are in a table of fixed size. A hash of the user's number and of a random one is the
//! index, so a ring needs no search, allocation or lock. Users with the same index share a limit; of
//! a hundred users one in forty shares its own.

use kapi::sys::clock;
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

/// Returns the count of a user, see [`process::account`](kapi::net::process::account).
fn count(account: u64) -> &'static Atomic<i64> {
    // Mixed twice, so that all bits of the number count for the upper bits of the product, the index.
    let mixed = (account ^ salt()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    COUNTS.get(place as usize).unwrap_or(&COUNTS[0])
}

/// Memory that is counted, until this is dropped.
pub(crate) struct Counted {
    count: &'static Atomic<i64>,
    bytes: i64,
}

impl Counted {
    /// Counts `bytes` for the user `account`, if that has at most `limit` then.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINVAL`.
    pub(crate) fn new(account: u64, bytes: usize, limit: u64) -> Result<Self> {
        let count = count(account);
        let bytes = i64::try_from(bytes).map_err(|_| EINVAL)?;
        let before = count.fetch_add(bytes, Relaxed);
        // Dropped, it takes that back.
        let counted = Self { count, bytes };
        let after = u64::try_from(before.saturating_add(bytes)).unwrap_or(0);
        match after > limit {
            true => Err(ENOMEM),
            false => Ok(counted),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count.fetch_sub(self.bytes, Relaxed);
    }
}
