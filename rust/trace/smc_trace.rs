// SPDX-License-Identifier: GPL-2.0

//! Tracepoints, by the names that tracing tools know: `smc:smc_tx_sendmsg`, `smc:smc_rx_recvmsg`,
//! `smc:smc_switch_to_fallback` and `smc:smcr_link_down`; and our own `smc:smc_promotion`. One that is off costs a
//! look at a key.
//!
//! Holds SMC's events, as functions that are safe for all arguments; all else that needs `unsafe` is
//! in `kapi`.

#![warn(missing_docs)]

use core::ffi::CStr;
use kapi::net::sock::Sock;
use kernel::prelude::*;

/// Prototypes of `trace.c`.
#[allow(dead_code, improper_ctypes, missing_docs, unreachable_pub)]
mod raw {
    use kernel::ffi;
    use smc_bindings::*;

    include!(concat!(env!("RSMC_OBJ"), "/rust/trace/trace_generated.rs"));
}

/// The static keys of two tracepoints. Their counts are read in place, since C's test of a key is patched code, which
/// Rust could only reach by a call for each message.
#[cfg(CONFIG_TRACEPOINTS)]
mod key {
    use core::ptr;

    unsafe extern "C" {
        /// `struct tracepoint` of `smc:smc_tx_sendmsg`, of which only the key is looked at.
        #[link_name = "__tracepoint_smc_tx_sendmsg"]
        pub(super) static TX: u8;
        /// The same of `smc:smc_rx_recvmsg`.
        #[link_name = "__tracepoint_smc_rx_recvmsg"]
        pub(super) static RX: u8;
    }

    /// Tells whether `tracepoint`, [`TX`] or [`RX`], is on.
    ///
    /// # Safety
    ///
    /// It is one of these.
    #[inline(always)]
    pub(super) unsafe fn is_on(tracepoint: *const u8) -> bool {
        let key = tracepoint.wrapping_add(super::raw::TRACEPOINT_KEY);
        // SAFETY: It is a `struct tracepoint`, by the caller's promise, and so far behind its beginning is an
        // aligned `int` that changes whole: the key's count of users.
        unsafe { ptr::read_volatile(key.cast::<i32>()) > 0 }
    }
}

#[cfg(not(CONFIG_TRACEPOINTS))]
mod key {
    pub(super) static TX: u8 = 0;
    pub(super) static RX: u8 = 0;

    /// As with tracepoints; without them none is on.
    ///
    /// # Safety
    ///
    /// None needed.
    pub(super) unsafe fn is_on(_tracepoint: *const u8) -> bool {
        false
    }
}

/// Returns the device's name without the zeros that follow it; empty if none does.
fn name(device: &[u8; 64]) -> &CStr {
    CStr::from_bytes_until_nul(device).unwrap_or_default()
}

/// Records that the program has sent `len` bytes over SMC-R, by the device that `device` tells.
#[inline(always)]
pub fn sent(sock: &Sock, len: usize, device: impl FnOnce() -> [u8; 64]) {
    // SAFETY: It is this tracepoint.
    if unsafe { key::is_on(&raw const key::TX) } {
        let device = device();
        // SAFETY: The sock is valid, and the name ends with a zero.
        unsafe { raw::trace_tx(sock.as_ptr(), len, name(&device).as_char_ptr()) };
    }
}

/// Records that the program has received `len` bytes over SMC-R, by the device that `device` tells.
#[inline(always)]
pub fn received(sock: &Sock, len: usize, device: impl FnOnce() -> [u8; 64]) {
    // SAFETY: It is this tracepoint.
    if unsafe { key::is_on(&raw const key::RX) } {
        let device = device();
        // SAFETY: The sock is valid, and the name ends with a zero.
        unsafe { raw::trace_rx(sock.as_ptr(), len, name(&device).as_char_ptr()) };
    }
}

/// Records that a connection goes on as TCP; `code` is the number of the reason.
pub fn fallback(sock: &Sock, code: u32) {
    // SAFETY: The sock is valid.
    unsafe { raw::trace_fallback(sock.as_ptr(), code as i32) };
}

/// Records that a connection that began as TCP has come to `step` on its way to SMC-R; `code` is the number of the
/// reason for a step back.
pub fn promotion(sock: &Sock, server: bool, step: u8, code: u32) {
    // SAFETY: The sock is valid.
    unsafe { raw::trace_promotion(sock.as_ptr(), server, i32::from(step), code as i32) };
}

/// Records that the link of the group at `group` is given up; `state` as netlink numbers it.
pub fn link_down<T>(group: &T, net_cookie: u64, state: i32, device: &[u8; 64]) {
    let group = core::ptr::from_ref(group).cast();
    let device = name(device).as_char_ptr();
    // SAFETY: The address is not followed, and the name ends with a zero.
    unsafe { raw::trace_link_down(group, net_cookie, state, device) };
}
