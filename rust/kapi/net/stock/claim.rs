// SPDX-License-Identifier: GPL-2.0

//! Ownership of a connection's stream.
//!
//! Parts of the kernel can put themselves between TCP and the program: BPF's sockmap and KCM take what
//! arrives, in callbacks that rely on the socket lock, and sockmap takes what is sent. A stream has one
//! such owner at most, whom `sk_user_data` names; who finds it taken is refused (`EBUSY`, `EALREADY`).

use crate::{net::sock::Sock, sys::word::Count};
use core::ptr;
use kernel::ffi;
use smc_bindings as bindings;

/// Its address is our name. Aligned, since the low bits are flags.
static CLAIM: u64 = 0;
/// A copy of the socket does not inherit it (`SK_USER_DATA_NOCOPY`).
const NOT_COPIED: usize = 1;
/// The owner is a sockmap (`SK_USER_DATA_PSOCK`).
const SOCKMAP: usize = 4;

/// A function that a socket's `sk_data_ready` may name.
type DataReady = unsafe extern "C" fn(*mut bindings::sock);

/// `sk_data_ready` of a socket in which it is unchanged; 0 before the first socket.
static DATA_READY: Count = Count::new(0);

fn name() -> *mut ffi::c_void {
    ptr::from_ref(&CLAIM)
        .cast_mut()
        .cast::<ffi::c_void>()
        .wrapping_byte_add(NOT_COPIED)
}

/// Learns what TCP itself does when data arrives.
///
/// # Safety
///
/// `sk` is a new TCP sock that nobody else knows.
pub(crate) unsafe fn learn(sk: *mut bindings::sock) {
    if DATA_READY.get() == 0 {
        // SAFETY: By the caller's promise.
        let ready = unsafe { (*sk).sk_data_ready };
        // The same number, whichever thread is the first.
        DATA_READY.release(ready.map_or(0, |ready| ready as usize as u64));
    }
}

impl Sock {
    #[inline]
    fn owner(&self) -> *mut ffi::c_void {
        // SAFETY: The sock is valid; only the pointer's value is used.
        unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_user_data) }
    }

    /// Returns whether the stream has an owner, us or another one. A hint.
    #[inline]
    pub(in crate::net) fn is_owned(&self) -> bool {
        !self.owner().is_null()
    }

    /// Returns whether what arrives goes where TCP puts it.
    fn arrives_natively(&self) -> bool {
        self.native_data_ready().is_some()
    }

    /// Returns what TCP itself calls when data arrives, a function of the kernel, unless it was replaced in this socket.
    #[inline]
    pub(in crate::net) fn native_data_ready(&self) -> Option<DataReady> {
        // SAFETY: The sock is valid, and the field a function pointer that is read without a lock.
        let ready = unsafe { ptr::read_volatile(&raw const (*self.as_ptr()).sk_data_ready) };
        ready.filter(|ready| *ready as usize as u64 == DATA_READY.get())
    }

    /// Makes the stream ours, so that no other module can take it over, until [`Sock::release_stream`];
    /// whether it is. It is not when another module has it already.
    pub fn claim_stream(&self) -> bool {
        let sk = self.as_ptr();
        let icsk: *mut bindings::inet_connection_sock = sk.cast();
        let native = {
            let prot = self.prot();
            ptr::eq(prot, &raw const bindings::tcp_prot)
                || ptr::eq(prot, &raw const bindings::tcpv6_prot)
        };
        // SAFETY: The sock is valid and TCP's. Under this lock those who want the stream look whether
        // somebody has it, and write their name.
        unsafe {
            bindings::sk_callback_write_lock(sk);
            let free = (*sk).sk_user_data.is_null() && (*icsk).icsk_ulp_ops.is_null();
            let ours = free && native && self.arrives_natively() || self.owner() == name();
            if ours {
                ptr::write_volatile(&raw mut (*sk).sk_user_data, name());
            }
            bindings::sk_callback_write_unlock(sk);
            ours
        }
    }

    /// Gives the stream back, if it is ours.
    pub fn release_stream(&self) {
        if self.owner() != name() {
            return;
        }
        let sk = self.as_ptr();
        // SAFETY: The sock is valid and TCP's. Under this lock those who want the stream look whether
        // somebody has it, and write their name.
        unsafe {
            bindings::sk_callback_write_lock(sk);
            if self.owner() == name() {
                ptr::write_volatile(&raw mut (*sk).sk_user_data, ptr::null_mut());
            }
            bindings::sk_callback_write_unlock(sk);
        }
    }

    /// Returns whether a sockmap takes what arrives from TCP at once, so that it cannot be read there.
    pub fn is_drained(&self) -> bool {
        self.owner().addr() & SOCKMAP != 0 && !self.arrives_natively()
    }
}
