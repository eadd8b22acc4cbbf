// SPDX-License-Identifier: GPL-2.0

//! The data of a socket, which hangs in its private pointer from its first use until release().
//! The parent module says what an "operation" is in the SAFETY comments.

use super::Adapter;
use crate::{
    errno,
    net::{
        overlay::{HasTied, Overlay},
        socket::BsdSocket,
        stock::{creators, tables}, //
    }, //
};
use core::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr, //
};
use kernel::{
    ffi,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};
use smc_bindings as bindings;

/// Its address stands in a socket's private pointer from the beginning of release() on.
static CLOSING: u8 = 0;

pub(super) fn closing() -> *mut ffi::c_void {
    (&raw const CLOSING).cast_mut().cast()
}

/// The data of a socket for the time of an operation, which needs no count of its own.
///
/// # Invariants
///
/// The count is the private pointer's, and stays there until the operation has ended.
pub(in crate::net) struct Held<D: Send + Sync + 'static>(ManuallyDrop<Arc<D>>);

impl<D: Send + Sync + 'static> Deref for Held<D> {
    type Target = Arc<D>;

    #[inline]
    fn deref(&self) -> &Arc<D> {
        &self.0
    }
}

/// The data of a socket, as its private pointer tells.
pub(super) enum Slot<D> {
    /// None yet.
    Empty,
    /// This.
    Filled(D),
    /// None any more.
    Closing,
}

impl<T: Overlay> Adapter<T> {
    /// Returns the data of a socket, and makes it if this is its first use.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` when the socket is being closed; those of [`Overlay::create`].
    #[inline]
    pub(super) fn data(socket: &BsdSocket) -> Result<Held<T::Data>> {
        match Self::slot(socket) {
            Slot::Filled(data) => Ok(data),
            Slot::Empty => Self::attach(socket, T::create(socket)?),
            Slot::Closing => Err(errno::ENOTCONN.into()),
        }
    }

    /// Returns the data of a socket, if it has any.
    #[inline]
    pub(in crate::net) fn existing(socket: &BsdSocket) -> Option<Held<T::Data>> {
        match Self::slot(socket) {
            Slot::Filled(data) => Some(data),
            Slot::Empty | Slot::Closing => None,
        }
    }

    /// Returns the private pointer of a socket.
    #[inline]
    pub(super) fn raw(socket: &BsdSocket) -> *mut ffi::c_void {
        let place = socket.as_ptr().wrapping_byte_add(bindings::SOCKET_PRIVATE);
        // SAFETY: The socket is part of a `socket_alloc`, and that lives during an operation; so far behind it
        // is the inode's private pointer, a machine word that changes whole.
        unsafe { ptr::read_volatile(place.cast::<*mut ffi::c_void>()) }
    }

    #[inline]
    fn slot(socket: &BsdSocket) -> Slot<Held<T::Data>> {
        // SAFETY: Read just now, in an operation.
        unsafe { Self::interpret(Self::raw(socket)) }
    }

    /// # Safety
    ///
    /// `raw` was in the private pointer of a socket after the operation that calls this had begun.
    #[inline]
    pub(super) unsafe fn interpret(raw: *mut ffi::c_void) -> Slot<Held<T::Data>> {
        if raw.is_null() {
            return Slot::Empty;
        }
        if raw == closing() {
            return Slot::Closing;
        }
        // SAFETY: The pointer comes from `Arc::into_foreign` in `attach`. `release` gives its
        // reference back when TCP's release has returned, thus after this operation; it is not dropped
        // here.
        let data = unsafe { <Arc<T::Data> as ForeignOwnable>::from_foreign(raw) };
        // INVARIANT: The count that `release` gives back outlives this operation, and with it the value.
        Slot::Filled(Held(ManuallyDrop::new(data)))
    }

    /// Hangs `data` onto a socket; returns the data that it has then, which another thread may have
    /// hung there first.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` when the socket is being closed, `EINVAL` for data of another socket.
    pub(super) fn attach(socket: &BsdSocket, data: Arc<T::Data>) -> Result<Held<T::Data>> {
        // SAFETY: The socket is open.
        let row = unsafe { tables::row_of(socket.as_ptr()) }.unwrap_or(tables::ROWS);
        if !data.tied().attach(socket.sock(), row) {
            return Err(EINVAL);
        }
        let raw = data.into_foreign();
        // SAFETY: The socket is open, so its private pointer is there; `raw` was made above, and its
        // count goes with it.
        let old =
            unsafe { bindings::socket_private_cmpxchg(socket.as_ptr(), ptr::null_mut(), raw) };
        if old.is_null() {
            // INVARIANT: The count is the private pointer's now, and stays there until this operation has ended.
            // SAFETY: `raw` was made above. `release` gives the count back after this operation; it is not dropped here.
            let held = Held(ManuallyDrop::new(unsafe {
                <Arc<T::Data> as ForeignOwnable>::from_foreign(raw)
            }));
            creators::disown(socket);
            T::attached(&held, socket);
            return Ok(held);
        }
        // SAFETY: `raw` was made above and nobody else has it.
        let data = unsafe { <Arc<T::Data> as ForeignOwnable>::from_foreign(raw) };
        data.tied().end();
        drop(data);
        // SAFETY: Read just now, in an operation.
        match unsafe { Self::interpret(old) } {
            Slot::Filled(data) => Ok(data),
            Slot::Empty | Slot::Closing => Err(errno::ENOTCONN.into()),
        }
    }
}
