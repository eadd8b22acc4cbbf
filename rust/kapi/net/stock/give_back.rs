// SPDX-License-Identifier: GPL-2.0

//! Sockets that leave the overlay's operations table before they are closed, so that the overlay is
//! not told of their end.
//!
//! * Two of TCP's options replace a socket's table: `TCP_ULP` (kernel TLS) and `IPV6_ADDRFORM`. Kernel
//!   TLS copies the table of the first such socket, for all later ones. So these options are only
//!   set on a socket that has been *given back*: it has TCP's table.
//! * Other modules (`ovpn`) replace the table of a socket that a program hands to them. Such a socket
//!   has been *taken*; it gets the overlay's table again when they let go of it.
//!
//! In both cases close() calls another `release` than the overlay's. Until then the overlay keeps its
//! data of the socket, for calls that are under way, and the module stays loaded. A worker calls
//! [`reclaim`] from time to time to find the sockets that have been closed.

use super::{creators, syn, tables};
use crate::net::{
    adapter::Adapter,
    overlay::{HasTied, Overlay},
    socket::BsdSocket, //
};
use kernel::sync::Arc;
use smc_bindings as bindings;

impl<T: Overlay> Adapter<T> {
    /// Gives the socket back to TCP for good.
    pub(in crate::net) fn give_back(socket: &BsdSocket) {
        syn::forget(&socket.sock().lock());
        let family = socket.sock().family();
        // SAFETY: The socket is open, and this is the family of its sock.
        let Some(row) = (unsafe { tables::give_back(socket.as_ptr(), family) }) else {
            // Another thread has given it back.
            return;
        };
        creators::count_in(socket.sock(), row, -1);
        socket.sock().release_stream();
        // The reference to the module that came with the table stays until `reclaim`: at close() the core
        // drops that of the table's owner, and TCP's table has none.
        if let Some(data) = Self::existing(socket) {
            data.tied().give_back();
            T::left(&data);
        }
    }
}

/// Drops the overlay's data of a socket that was closed by another `release` than the overlay's.
/// Returns whether it was such a socket. `lost` is called if the socket was taken, to do what
/// [`Overlay::release`] does, without a file. To be called from a worker, from time to time. Sleeps.
pub fn reclaim<D: HasTied>(data: &Arc<D>, lost: impl FnOnce()) -> bool {
    let tied = data.tied();
    if tied.is_ended() || tied.has_file() {
        return false;
    }
    // The file is gone. The overlay's release notes the end before TCP's takes the file from the sock, so
    // that call is seen here.
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
    // SAFETY: The count came with the overlay's table, and the core has not dropped it. The caller is a
    // work item of the module, for which unloading waits.
    unsafe { bindings::release_this_module() };
    true
}
