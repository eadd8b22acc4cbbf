// SPDX-License-Identifier: GPL-2.0

//! Charges ring memory to the memory cgroup of the socket that it serves.
//!
//! A control group counts a socket's own buffers through the socket (`sk_memcg`). What the module
//! allocates for a connection is counted in the same way, so it is in `memory.current`, under `sock` in
//! `memory.stat`, and within `memory.max`, whoever runs when it is allocated, and whoever had the pages
//! before. TCP's own limit (`tcp_mem`) is not concerned.

use super::{Sock, SockGuard};
use core::ptr;
use kernel::{
    ffi,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};
use smc_bindings as bindings;

/// Memory to leave for everything else, in bytes: in a group that is full to the last page the next
/// allocation of a program ends it. So much may also be refused: for less than 36 KiB
/// (`PAGE_ALLOC_COSTLY_ORDER`) the kernel would rather end a process.
const LEFT: ffi::c_int = 8 << 20;
/// Memory to leave for a connection that stands, in bytes: only so much that it can be refused, see
/// [`LEFT`]. It would wait for more for as long as its group lives within a fixed size.
const COSTLY: ffi::c_int = 36 << 10;
/// Asks for memory as for received bytes: what is to be sent may exceed the limit.
const KIND: ffi::c_int = 1;

/// Memory charged to the control group of a socket. Dropping it takes the charge back, and sleeps.
///
/// # Invariants
///
/// The group of `sock` is charged with `bytes` more, whole pages, than the socket itself knows of.
pub struct Charge {
    sock: ARef<Sock>,
    bytes: ffi::c_int,
}

impl Charge {
    /// Charges the group of `sock` with `bytes`, rounded up to pages; `None` if the socket is of no group
    /// but the root. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the limits of the group would then leave less than 8 MiB even after reclaiming,
    /// `EINVAL` for more than 2 GiB.
    pub fn new(sock: &Sock, bytes: usize) -> Result<Option<Self>> {
        // SAFETY: The sock is valid. Its group never changes while it has one.
        if !unsafe { bindings::sk_has_memcg(sock.as_ptr()) } {
            return Ok(None);
        }
        let bytes = whole_pages(bytes)?;
        charge(sock, bytes, LEFT)?;
        // INVARIANT: The group is charged, and the socket has forgotten it.
        Ok(Some(Self {
            sock: ARef::from(sock),
            bytes,
        }))
    }

    /// Charges `bytes` more, rounded up to pages, that a connection needs to go on. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the limits of the group do not allow it even after reclaiming, `EINVAL` for more
    /// than 2 GiB in all.
    pub fn grow(&mut self, bytes: usize) -> Result {
        self.charge_more(bytes, COSTLY)
    }

    /// Charges `bytes` more, rounded up to pages, that a connection can do without. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Charge::new`].
    pub fn extend(&mut self, bytes: usize) -> Result {
        self.charge_more(bytes, LEFT)
    }

    fn charge_more(&mut self, bytes: usize, left: ffi::c_int) -> Result {
        let more = whole_pages(bytes)?;
        let sum = self.bytes.checked_add(more).ok_or(EINVAL)?;
        charge(&self.sock, more, left)?;
        // INVARIANT: Charged with that much more.
        self.bytes = sum;
        Ok(())
    }

    /// Takes `bytes`, rounded up to pages, back; at most all. Sleeps.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = self.part(bytes);
        self.take_back(bytes);
        // INVARIANT: That was taken back.
        self.bytes = self.bytes.wrapping_sub(bytes);
    }

    /// Splits the charge: what this returns is for `bytes`, rounded up to pages, at most all; this for the rest.
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = self.part(bytes);
        // INVARIANT: Both together have what one had.
        self.bytes = self.bytes.wrapping_sub(bytes);
        Self {
            sock: self.sock.clone(),
            bytes,
        }
    }

    /// As many bytes as the pages of `bytes` have, at most all.
    fn part(&self, bytes: usize) -> ffi::c_int {
        whole_pages(bytes).map_or(self.bytes, |bytes| bytes.min(self.bytes))
    }

    /// Uncharges `bytes`, whole pages that were charged.
    fn take_back(&self, bytes: ffi::c_int) {
        let guard = self.sock.lock();
        forward(&guard, bytes);
        // SAFETY: The sock is valid and locked; by the invariant its group is charged with these bytes,
        // which the socket has just been told of.
        alone(&guard, || unsafe {
            bindings::__sk_mem_reclaim(self.sock.as_ptr(), bytes)
        });
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.take_back(self.bytes);
    }
}

/// As many bytes as the pages of `bytes` have.
fn whole_pages(bytes: usize) -> Result<ffi::c_int> {
    let pages = bytes.div_ceil(PAGE_SIZE);
    let bytes = pages.checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
    Ok(ffi::c_int::try_from(bytes)?)
}

/// Charges the group of `sock` with `bytes`, whole pages, of which the socket itself knows nothing
/// then, if `left` more would fit, too. Sleeps.
fn charge(sock: &Sock, bytes: ffi::c_int, left: ffi::c_int) -> Result {
    let asked = bytes.checked_add(left).ok_or(EINVAL)?;
    let guard = sock.lock();
    // SAFETY: The sock is valid and locked.
    let charged = alone(&guard, || unsafe {
        let charged = bindings::__sk_mem_schedule(sock.as_ptr(), asked, KIND) != 0;
        if charged {
            bindings::__sk_mem_reclaim(sock.as_ptr(), left);
        }
        charged
    });
    if !charged {
        return Err(ENOMEM);
    }
    forward(&guard, bytes.wrapping_neg());
    Ok(())
}

/// Runs `f` with what it charges counted for the control group alone, not for TCP as a whole.
fn alone<R>(guard: &SockGuard<'_>, f: impl FnOnce() -> R) -> R {
    let sk = guard.sock().as_ptr();
    // SAFETY: The sock is valid and locked, as all who write this bit and its neighbours have it.
    let before = unsafe {
        let before = bindings::sk_bypasses_prot_mem(sk);
        bindings::sk_set_bypass_prot_mem(sk, true);
        before
    };
    let result = f();
    // SAFETY: The sock is valid, and still locked: `f` has no means to unlock it.
    unsafe { bindings::sk_set_bypass_prot_mem(sk, before) };
    result
}

/// Changes what the socket has charged beforehand, in bytes.
fn forward(guard: &SockGuard<'_>, by: ffi::c_int) {
    let sk = guard.sock().as_ptr();
    // SAFETY: The sock is valid and locked, so nobody else writes the number; some read it without.
    unsafe {
        let place = &raw mut (*sk).sk_forward_alloc;
        ptr::write_volatile(place, ptr::read_volatile(place).wrapping_add(by));
    }
}
