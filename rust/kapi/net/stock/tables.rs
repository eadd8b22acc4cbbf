// SPDX-License-Identifier: GPL-2.0

//! The operations tables: TCP's own, and those that the overlay family adds for each [`row`].
//!
//! * *active*: the overlay's adapter sees every call that its protocol could care about;
//! * *passive*: every call but the end of the socket and a few options is TCP's own function.
//!
//! The tables are copies of TCP's with entries replaced, so operations that a later kernel adds
//! work as they do in TCP.

use crate::sys::word::Count;
use core::{cell::UnsafeCell, mem::MaybeUninit, ptr};
use smc_bindings as bindings;

/// IPv4 or IPv6, as an index.
pub(crate) const FAMILIES: usize = 2;

/// Number of the ways to make a socket: by the overlay's own address family, then as a protocol
/// of `AF_INET[6]`; each for IPv4 and IPv6. See [`row`].
pub(crate) const ROWS: usize = 2 * FAMILIES;

/// Copies of TCP's table for each row. All active ones are alike but for IPv4 and IPv6, and so
/// are all passive ones: the address of a socket's table tells its row.
#[repr(C)]
pub(crate) struct Tables {
    pub(crate) active: [bindings::proto_ops; ROWS],
    pub(crate) passive: [bindings::proto_ops; ROWS],
}

struct Store(UnsafeCell<MaybeUninit<Tables>>);

// SAFETY: The cell is written once, before `FILLED` is set, and only read afterwards.
unsafe impl Sync for Store {}

static STORE: Store = Store(UnsafeCell::new(MaybeUninit::uninit()));
static FILLED: Count = Count::new(0);

/// Returns TCP's own table of an address family.
#[inline]
pub(crate) fn native(family: u16) -> &'static bindings::proto_ops {
    if family == bindings::AF_INET6 as u16 {
        // SAFETY: A constant table of the kernel.
        unsafe { &bindings::inet6_stream_ops }
    } else {
        // SAFETY: A constant table of the kernel.
        unsafe { &bindings::inet_stream_ops }
    }
}

/// Fills the tables with what `active` and `passive` make for an address family.
///
/// # Safety
///
/// Called at most once at a time, while no socket uses the tables.
pub(crate) unsafe fn fill(
    active: impl Fn(u16) -> bindings::proto_ops,
    passive: impl Fn(u16) -> bindings::proto_ops,
) {
    let tables: *mut Tables = STORE.0.get().cast();
    for row in 0..ROWS {
        let family = match row % FAMILIES {
            0 => bindings::AF_INET as u16,
            _ => bindings::AF_INET6 as u16,
        };
        // One at a time: all together are more than a stack takes.
        // SAFETY: A place in the store, and the caller promises that nobody reads.
        unsafe { (&raw mut (*tables).passive[row]).write(passive(family)) };
        // SAFETY: A place in the store, and the caller promises that nobody reads.
        unsafe { (&raw mut (*tables).active[row]).write(active(family)) };
    }
    FILLED.release(1);
}

/// Returns the tables, once they are filled.
#[inline]
pub(crate) fn get() -> Option<&'static Tables> {
    if FILLED.acquire() == 0 {
        return None;
    }
    // SAFETY: Filled, and thus constant.
    Some(unsafe { (*STORE.0.get()).assume_init_ref() })
}

#[inline]
pub(crate) fn index(family: u16) -> usize {
    usize::from(family == bindings::AF_INET6 as u16)
}

/// Returns the row of sockets made by the overlay's address family (`own`) or as a protocol of
/// `AF_INET[6]`.
#[inline]
pub(crate) fn row(own: bool, family: u16) -> usize {
    index(family) + if own { 0 } else { FAMILIES }
}

/// Returns the row of a socket, if it runs on one of the overlay's tables.
///
/// # Safety
///
/// `socket` is open.
#[inline]
pub(crate) unsafe fn row_of(socket: *const bindings::socket) -> Option<usize> {
    // SAFETY: Readable by the caller's promise; only the pointer's value is used.
    row_with(unsafe { ptr::read_volatile(&raw const (*socket).ops) })
}

/// Returns the row of a table, if it is one of the overlay's.
#[inline]
fn row_with(ops: *const bindings::proto_ops) -> Option<usize> {
    // The distance tells without a search; this is on the path of every new connection.
    let offset = (ops as usize).wrapping_sub(ptr::from_ref(get()?) as usize);
    if offset >= size_of::<Tables>() {
        return None;
    }
    Some(offset / size_of::<bindings::proto_ops>() % ROWS)
}

/// Switches a socket to the passive table of its row; one that has TCP's own keeps that.
pub(crate) fn set_native(socket: *mut bindings::socket) {
    if let Some(tables) = get() {
        // SAFETY: `socket` is open (callers are methods of `BsdSocket`); both tables have the same owner
        // and the same `release`, so module accounting does not change.
        let _ = unsafe { replace(socket, |row| &tables.passive[row]) };
    }
}

/// Replaces the table of a socket by what `new` says for its row, if it is one of the overlay's. Returns the row then.
///
/// # Safety
///
/// `socket` is open, and the new table may replace the old one as far as owner and `release` go.
unsafe fn replace(
    socket: *mut bindings::socket,
    new: impl Fn(usize) -> *const bindings::proto_ops,
) -> Option<usize> {
    loop {
        // SAFETY: By the caller's promise.
        let (row, before) = unsafe {
            let before = ptr::read_volatile(&raw const (*socket).ops);
            (row_with(before)?, before)
        };
        // SAFETY: By the caller's promise: the socket is open, and this table may replace the other one.
        if unsafe { bindings::socket_replace_ops(socket, before, new(row)) } {
            return Some(row);
        }
    }
}

/// Gives a socket TCP's own table, if it has one of the overlay's. Returns the row then. The socket's reference to the
/// module is the caller's from then on.
///
/// # Safety
///
/// `socket` is open, and `family` that of its sock.
pub(crate) unsafe fn give_back(socket: *mut bindings::socket, family: u16) -> Option<usize> {
    let native = ptr::from_ref(native(family));
    // SAFETY: By the caller's promise; the caller deals with the socket's end.
    unsafe { replace(socket, |_| native) }
}

/// Tells whether a socket runs on an active table. `socket` may be null.
///
/// # Safety
///
/// If not null, `socket` is memory of a `struct socket` at least until the end of the RCU section
/// that the caller is in, or it is open.
#[inline]
pub(crate) unsafe fn is_active(socket: *const bindings::socket) -> bool {
    if socket.is_null() {
        return false;
    }
    // SAFETY: Readable by the caller's promise; only the pointer's value is used.
    let ops = unsafe { ptr::read_volatile(&raw const (*socket).ops) };
    get().is_some_and(|tables| {
        let offset = (ops as usize).wrapping_sub(ptr::from_ref(&tables.active) as usize);
        offset < size_of_val(&tables.active)
    })
}
