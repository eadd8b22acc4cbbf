// SPDX-License-Identifier: GPL-2.0

//! Sockets whose end nobody tells of: their table is not the overlay's any more.
//!
//! * Two of TCP's options replace a socket's table: `TCP_ULP` (kernel TLS) and `IPV6_ADDRFORM`. Kernel TLS makes its
//!   tables, once for the whole system, as copies of what the first such socket has. So they are only set on
//!   a socket that has been *given back*: it has TCP's table.
//! * Others in the kernel replace the table of a socket that a program hands them (`ovpn`), without a word. Such a
//!   socket has been *taken*; if they let go of it in time, it has the overlay's table again.
//!
//! In both cases the file's end calls another release than the overlay's. What the overlay has of the socket stays
//! until then, for calls that were under way, and the module with it. So somebody has to look, from time to time:
//! [`reclaim`].

use super::Adapter;
use crate::net::{
    creators,
    overlay::{HasTied, Overlay},
    socket::BsdSocket,
    syn,
    tables, //
};
use kernel::sync::Arc;
use smc_bindings as bindings;

impl<T: Overlay> Adapter<T> {
    /// Gives the socket back to TCP for good.
    pub(super) fn give_back(socket: &BsdSocket) {
        syn::forget(&socket.sock().lock());
        let family = socket.sock().family();
        // SAFETY: The socket is open, and this is the family of its sock.
        let Some(row) = (unsafe { tables::give_back(socket.as_ptr(), family) }) else {
            // Another thread has.
            return;
        };
        creators::count_in(socket.sock(), row, -1);
        socket.sock().release_stream();
        // The reference to the module that came with the table stays: TCP's has no owner.
        if let Some(data) = Self::existing(socket) {
            data.tied().give_back();
            T::left(&data);
        }
    }
}

/// Gives back what the overlay still has of a socket whose file has been closed by another release than its own;
/// tells whether this was one. If it was not given back to TCP before, `lost` gives it up as [`Overlay::release`]
/// would have, but without a file. To be called now and then for sockets that live, and in a worker. May sleep.
pub fn reclaim<D: HasTied>(data: &Arc<D>, lost: impl FnOnce()) -> bool {
    let tied = data.tied();
    if tied.is_ended() || tied.has_file() {
        return false;
    }
    // The file is gone. The overlay's release notes the end before TCP's takes the file from the sock, so if it was
    // called that is seen here.
    let Some(row) = tied.end() else {
        return false;
    };
    if let Some(row) = row {
        lost();
        syn::forget(&tied.lock());
        tied.release_stream();
        creators::count_in(tied, row, -1);
    }
    // SAFETY: `attach` has put a count into the private pointer, and `end` has found that it was not taken from
    // there. No operation runs any more that has it from there: they have a file, and TCP is done with the
    // socket.
    drop(unsafe { Arc::from_raw(Arc::as_ptr(data)) });
    // SAFETY: The count came with the overlay's table, of whose end nobody was told. Who calls is the module's own work,
    // which unloading waits for.
    unsafe { bindings::release_this_module() };
    true
}
