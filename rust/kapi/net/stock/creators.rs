// SPDX-License-Identifier: GPL-2.0

//! The creators of an overlay's socks: copies of TCP's `struct proto` that a sock has until its socket is used. And the
//! rows of `/proc/net/protocols` in which the sockets count.

use super::tables;
use crate::{
    net::{
        sock::Sock,
        socket::BsdSocket, //
    },
    sys::word::{Count, Pointer}, //
};
use core::ptr;
use smc_bindings as bindings;

/// Number of creators: one for each family, for sockets that programs have asked for, then for those
/// that have been converted.
pub(in crate::net) const CREATORS_LEN: usize = 2 * tables::FAMILIES;

/// The creators of the registration, an array of [`CREATORS_LEN`].
pub(in crate::net) static CREATORS: Pointer<bindings::proto> = Pointer::null();

/// Returns TCP's `struct proto` of an address family's index.
pub(in crate::net) fn tcp_prot(v6: bool) -> *mut bindings::proto {
    if v6 {
        &raw mut bindings::tcpv6_prot
    } else {
        &raw mut bindings::tcp_prot
    }
}

/// Makes TCP the creator of a socket's sock, if the overlay's own still is, and its destructor the
/// sock's; see `init` in [`family`](crate::net::family).
///
/// Called when a socket is used for the first time, or closed, whatever comes first, and only once.
/// Before that it is neither connected nor listening, so nothing has copied the pointer.
pub(crate) fn disown(socket: &BsdSocket) {
    let sk = socket.sock().as_ptr();
    if let Some((current, index)) = creator(socket) {
        let family = index % tables::FAMILIES;
        if let Some(native) = destructor(family) {
            // SAFETY: The sock is valid. So far nothing but `watch_end` has changed the field.
            unsafe { (*sk).sk_destruct = Some(native) };
        }
        // SAFETY: The sock is valid, and its creator changes only here. The reference is the one that
        // `sk_prot_alloc` took for the creator; the socket holds another, by its operations table, until
        // after its release.
        unsafe {
            let owner = (*current).owner;
            ptr::write_volatile(&raw mut (*sk).sk_prot_creator, tcp_prot(family != 0));
            bindings::module_put(owner);
        }
    }
}

/// Returns the creator that a socket has until [`disown`], and its index.
fn creator(socket: &BsdSocket) -> Option<(*mut bindings::proto, usize)> {
    let creators = CREATORS.acquire();
    if creators.is_null() {
        return None;
    }
    // SAFETY: The sock is valid. The field changes only in `disown`.
    let current =
        unsafe { ptr::read_volatile(&raw const (*socket.sock().as_ptr()).sk_prot_creator) };
    let index = (0..CREATORS_LEN).find(|index| ptr::eq(creators.wrapping_add(*index), current))?;
    Some((current, index))
}

impl BsdSocket {
    /// Tells whether the program of a socket that has not been used yet asked for TCP; see
    /// [`super::convert`].
    pub fn is_converted(&self) -> bool {
        creator(self).is_some_and(|(_, index)| index >= tables::FAMILIES)
    }
}

/// Destructors that TCP gave the socks of a creator, for IPv4 and IPv6; 0 before the first.
static DESTRUCTORS: [Count; tables::FAMILIES] = [const { Count::new(0) }; tables::FAMILIES];

type Destructor = unsafe extern "C" fn(*mut bindings::sock);

fn destructor(index: usize) -> Option<Destructor> {
    match DESTRUCTORS.get(index).map_or(0, |place| place.acquire()) {
        0 => None,
        // SAFETY: Only `watch_end` stores there, a function of this type.
        native => Some(unsafe { core::mem::transmute::<usize, Destructor>(native as usize) }),
    }
}

/// Has [`uncount`] called should the sock end before its socket is used or closed: when a BPF program
/// of the cgroup refuses it after `init`, of which nobody is told otherwise. [`disown`] undoes this.
///
/// # Safety
///
/// `sk` is a new sock of TCP's that nobody else knows.
pub(in crate::net) unsafe fn watch_end<const V6: bool>(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    let place = unsafe { &mut (*sk).sk_destruct };
    if let (Some(native), Some(known)) = (*place, DESTRUCTORS.get(usize::from(V6))) {
        known.release(native as usize as u64);
        *place = Some(uncount::<V6>);
    }
}

/// Ends a sock that no socket has got.
///
/// # Safety
///
/// Called by the kernel alone. The core calls it once, when the last reference to `sk` has gone;
/// the sock and its namespace are valid until it returns.
unsafe extern "C" fn uncount<const V6: bool>(sk: *mut bindings::sock) {
    // SAFETY: The sock is valid here, and keeps its namespace until afterwards; its creator keeps
    // the module.
    unsafe {
        add_to_row(
            bindings::sock_net(sk),
            tables::FAMILIES + usize::from(V6),
            -1,
        );
        if let Some(native) = destructor(usize::from(V6)) {
            native(sk);
        }
    }
}

/// The rows of `/proc/net/protocols` while they are registered: `tables::ROWS` of them.
pub(in crate::net) static ROWS: Pointer<bindings::proto> = Pointer::null();

/// Counts a socket in its row of `/proc/net/protocols`: from its creation, or from accept(), until it
/// is closed.
pub(crate) fn count(socket: &BsdSocket, by: i32) {
    // SAFETY: The socket is open.
    if let Some(row) = unsafe { tables::row_of(socket.as_ptr()) } {
        count_in(socket.sock(), row, by);
    }
}

/// Does [`count`] for a sock whose socket was in `row`.
pub(crate) fn count_in(sock: &Sock, row: usize, by: i32) {
    // SAFETY: The sock keeps its namespace.
    unsafe { add_to_row(sock.net(), row, by) };
}

/// # Safety
///
/// `net` is alive, and there is a sock of the overlay's, which keeps the module.
pub(in crate::net) unsafe fn add_to_row(net: *mut bindings::net, row: usize, by: i32) {
    let rows = ROWS.acquire();
    if !rows.is_null() && row < tables::ROWS {
        // SAFETY: `row` is within the registered rows, which stay while the module does.
        unsafe { bindings::sock_prot_inuse_add(net, rows.add(row), by) };
    }
}
