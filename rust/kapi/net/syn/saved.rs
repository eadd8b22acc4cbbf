// SPDX-License-Identifier: GPL-2.0

//! The server's side: what the SYN said, from the copy that `TCP_SAVE_SYN` keeps.

use super::header::{FIXED, OPTIONS_MAX};
use crate::net::sock::{Sock, SockGuard};
use core::{ptr, slice};
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
    let tp: *mut bindings::tcp_sock = guard.sock().as_ptr().cast();
    // SAFETY: The socket is valid, TCP's and locked, so the copy is taken away once. Who looks at it without
    // the lock does so in an RCU section, after which it is freed.
    unsafe {
        let saved = ptr::replace(&raw mut (*tp).saved_syn, ptr::null_mut());
        bindings::kfree_after_rcu(saved.cast());
    }
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

/// Copies the options of the SYN that a request came from, as long as the request is one; returns how
/// many bytes that is.
///
/// A SYN-ACK may be repeated (for a second SYN) while another CPU makes the request a connection, which
/// takes the copy of the SYN over, and a third closes the listener, which frees it at once. The
/// connection takes the place of the request in the hash first, under the lock of its bucket: so while
/// that is held and the request stands there, the copy is the request's. (A SYN-ACK that is sent later
/// goes without the option. That does no harm: the client has answered one.)
///
/// # Safety
///
/// `req` is a TCP request that lives during the call, and the caller holds no lock of the hash.
pub(super) unsafe fn copy_offered(
    req: *mut bindings::request_sock,
    to: &mut [u8; OPTIONS_MAX],
) -> Option<usize> {
    // SAFETY: The request is alive. What takes one out of the hash does so under this lock.
    let lock = unsafe {
        let lock = bindings::reqsk_hash_lockp(req);
        bindings::spin_lock_bh(lock);
        lock
    };
    // SAFETY: As above. A request that is in the hash owns its copy of the SYN, if it has one, until it
    // leaves the hash, for which the lock is needed that is held.
    let copied = unsafe {
        if bindings::reqsk_is_hashed(req) {
            saved_options((*req).saved_syn).and_then(|options| {
                to.get_mut(..options.len())?.copy_from_slice(options);
                Some(options.len())
            })
        } else {
            None
        }
    };
    // SAFETY: Taken above.
    unsafe { bindings::spin_unlock_bh(lock) };
    copied
}
