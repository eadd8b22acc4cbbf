// SPDX-License-Identifier: GPL-2.0

//! The server's side: what the SYN said, from the copy that `TCP_SAVE_SYN` keeps.

use super::header::{FIXED, OPTIONS_MAX};
use crate::net::sock::{Sock, SockGuard};
use core::{
    ptr,
    slice, //
};
use smc_bindings as bindings;

/// Keeps the SYNs of future connections of a listener, if they are `wanted`, which is asked with the
/// socket locked. One whose SYN was not kept gets no option in its SYN-ACK, either.
pub fn keep_syns(sock: &Sock, wanted: impl FnOnce() -> bool) {
    let guard = sock.lock();
    let wanted = wanted();
    // SAFETY: The socket is valid and locked.
    unsafe {
        let kept = bindings::tcp_save_syn(guard.sock().as_ptr()) != 0;
        if kept != wanted {
            bindings::tcp_set_save_syn(guard.sock().as_ptr(), u8::from(wanted));
        }
    }
}

/// Looks at the options of the SYN that a connection came from.
///
/// Returns `None` when the SYN was not kept: on a connection made with SYN cookies, for instance.
pub fn with_saved_syn<R>(guard: &SockGuard<'_>, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
    // SAFETY: The socket is valid, and the copy is changed only under its lock.
    let saved = unsafe { bindings::tcp_saved_syn(guard.sock().as_ptr()) };
    // SAFETY: As above; null or a copy that lives while the lock is held.
    unsafe { saved_options(saved) }.map(look)
}

/// Frees the copy of the SYN, for a user who did not ask for it.
pub fn drop_saved_syn(guard: &SockGuard<'_>) {
    // SAFETY: The socket is valid and locked.
    unsafe { bindings::tcp_saved_syn_free(guard.sock().as_ptr()) };
}

/// # Safety
///
/// `saved` is null, or points to a saved SYN that lives during `'a`.
unsafe fn saved_options<'a>(saved: *const bindings::saved_syn) -> Option<&'a [u8]> {
    if saved.is_null() {
        return None;
    }
    // SAFETY: The lengths are those with which TCP filled `data`.
    unsafe {
        let skip = ((*saved).mac_hdrlen as usize).checked_add((*saved).network_hdrlen as usize)?;
        let len = (*saved).tcp_hdrlen as usize;
        if !(FIXED..=FIXED + OPTIONS_MAX).contains(&len) {
            return None;
        }
        let tcp = (*saved).data.as_ptr().add(skip);
        Some(slice::from_raw_parts(tcp.add(FIXED), len - FIXED))
    }
}

/// Copies the options of the SYN that a request came from, as long as the request keeps it; returns
/// how many bytes that is.
///
/// A SYN-ACK may be repeated (for a second SYN) while another CPU makes the request a connection,
/// which takes the copy of the SYN over, and a third closes the listener, which frees it at once.
/// So the pointer is looked at again after each step: what was read while it stood is genuine, and
/// anything else is thrown away. (A repeated SYN-ACK without the option does no harm then: the client
/// has had the first one.) That leaves reads of at most 60 bytes of a kmalloc object that was freed
/// since, at an offset that is within it, by a CPU that was held up in the midst of this function for
/// as long as an accept queue takes to be emptied. TCP's own reader for BPF has the same gap.
///
/// # Safety
///
/// `req` is a TCP request that lives during the call.
pub(super) unsafe fn copy_offered(
    req: *mut bindings::request_sock,
    to: &mut [u8; OPTIONS_MAX],
) -> Option<usize> {
    // SAFETY: The request is alive.
    let load = || unsafe { ptr::read_volatile(&raw const (*req).saved_syn) };
    let saved = load();
    if saved.is_null() {
        return None;
    }
    // SAFETY: Memory of the kernel's heap, whatever is in it by now; only integers are read.
    let [mac, network, tcp] = unsafe {
        [
            ptr::read_volatile(&raw const (*saved).mac_hdrlen),
            ptr::read_volatile(&raw const (*saved).network_hdrlen),
            ptr::read_volatile(&raw const (*saved).tcp_hdrlen),
        ]
    };
    // SAFETY: No preconditions.
    unsafe { bindings::read_memory_barrier() };
    if !ptr::eq(load(), saved) {
        return None;
    }
    let skip = (mac as usize).checked_add(network as usize)?;
    let len = (tcp as usize).checked_sub(FIXED)?;
    let to = to.get_mut(..len)?;
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: The lengths are those with which TCP filled `data`, so this is within the object;
        // the rest as above.
        *byte = unsafe {
            let data = (*saved).data.as_ptr().add(skip + FIXED);
            ptr::read_volatile(data.add(at))
        };
    }
    // SAFETY: No preconditions.
    unsafe { bindings::read_memory_barrier() };
    ptr::eq(load(), saved).then_some(len)
}
