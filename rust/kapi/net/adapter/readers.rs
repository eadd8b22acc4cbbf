// SPDX-License-Identifier: GPL-2.0

//! The ways by which other parts of the kernel read TCP's stream: a sockmap's programs (`read_skb`) and KCM
//! (`read_sock`). They may while the stream is TCP's alone.

use super::Adapter;
use crate::net::{overlay::Overlay, socket::BsdSocket, stock::tables};
use kernel::{ffi, prelude::*};
use smc_bindings as bindings;

impl<T: Overlay> Adapter<T> {
    /// Returns whether the stream of a socket is TCP's, so that others in the kernel may read it.
    ///
    /// # Safety
    ///
    /// As for the socket in `set_rcvlowat`; any context.
    unsafe fn is_plain(sk: *mut bindings::sock) -> bool {
        // SAFETY: By the caller's promise.
        let socket = unsafe { BsdSocket::from_raw((*sk).sk_socket) };
        Self::existing(socket).is_none_or(|data| T::is_plain(&data))
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sk` is locked and belongs to a socket with this operations
    /// table; `desc` and `actor` are the caller's.
    pub(super) unsafe extern "C" fn read_sock(
        sk: *mut kernel::bindings::sock,
        desc: *mut kernel::bindings::read_descriptor_t,
        actor: kernel::bindings::sk_read_actor_t,
    ) -> ffi::c_int {
        let full: *mut bindings::sock = sk.cast();
        // SAFETY: The caller has the socket locked and found this function by its `struct socket`.
        let (plain, family) = unsafe { (Self::is_plain(full), (*full).__sk_common.skc_family) };
        match tables::native(family).read_sock {
            // SAFETY: TCP's function with the arguments it would have had.
            Some(read) if plain => unsafe { read(sk, desc, actor) },
            _ => EBUSY.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `sk` is locked and belongs to a socket with this operations
    /// table; `actor` is the caller's.
    pub(super) unsafe extern "C" fn read_skb(
        sk: *mut kernel::bindings::sock,
        actor: kernel::bindings::skb_read_actor_t,
    ) -> ffi::c_int {
        let full: *mut bindings::sock = sk.cast();
        // SAFETY: The caller has the socket locked and found this function by its `struct socket`.
        let (plain, family) = unsafe { (Self::is_plain(full), (*full).__sk_common.skc_family) };
        match tables::native(family).read_skb {
            // SAFETY: TCP's function with the arguments it would have had.
            Some(read) if plain => unsafe { read(sk, actor) },
            _ => EBUSY.to_errno(),
        }
    }
}
