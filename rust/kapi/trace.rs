// SPDX-License-Identifier: GPL-2.0

//! Tracepoints, by the names that tracing tools know: `smc:smc_tx_sendmsg`, `smc:smc_rx_recvmsg`,
//! `smc:smc_switch_to_fallback` and `smc:smcr_link_down`. One that is off costs a look at a key.

use crate::net::sock::Sock;
use core::ffi::CStr;
use kernel::prelude::*;
use smc_bindings as bindings;

/// A device's name as the kernel has it: it ends with a zero.
fn name(device: &[u8; 64]) -> &CStr {
    CStr::from_bytes_until_nul(device).unwrap_or_default()
}

/// The program has sent `len` bytes over SMC-R, by the device that `device` tells.
#[inline]
pub fn sent(sock: &Sock, len: usize, device: impl FnOnce() -> [u8; 64]) {
    // SAFETY: It has no preconditions.
    if unsafe { bindings::trace_tx_enabled() } {
        let device = device();
        // SAFETY: The sock is valid, and the name ends with a zero.
        unsafe { bindings::trace_tx(sock.as_ptr(), len, name(&device).as_char_ptr()) };
    }
}

/// The program has received `len` bytes over SMC-R.
#[inline]
pub fn received(sock: &Sock, len: usize, device: impl FnOnce() -> [u8; 64]) {
    // SAFETY: It has no preconditions.
    if unsafe { bindings::trace_rx_enabled() } {
        let device = device();
        // SAFETY: The sock is valid, and the name ends with a zero.
        unsafe { bindings::trace_rx(sock.as_ptr(), len, name(&device).as_char_ptr()) };
    }
}

/// A connection goes on as TCP, for the reason that `code` is the number of.
pub fn fallback(sock: &Sock, code: u32) {
    // SAFETY: The sock is valid.
    unsafe { bindings::trace_fallback(sock.as_ptr(), code as i32) };
}

/// The link of the group at `group` is given up; `state` as netlink numbers it.
pub fn link_down<T>(group: &T, net_cookie: u64, state: i32, device: &[u8; 64]) {
    let group = core::ptr::from_ref(group).cast();
    let device = name(device).as_char_ptr();
    // SAFETY: The address is not followed, and the name ends with a zero.
    unsafe { bindings::trace_link_down(group, net_cookie, state, device) };
}
