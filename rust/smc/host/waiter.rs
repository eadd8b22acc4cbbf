// SPDX-License-Identifier: GPL-2.0

//! Upward call to the owner of a handshake after an event.

use core::ptr;
use kernel::sync::Arc;

/// Owner of a handshake, which goes on with it after an event: a client's socket, or a connection
/// that accept() has not handed out.
pub(crate) trait Waiter: Send + Sync {
    /// Queues the work that goes on with the handshake. Any context.
    fn kick(self: Arc<Self>);
}

/// Tells whether two waiters are the same handshake.
pub(crate) fn is_same(one: &Arc<dyn Waiter>, other: &Arc<dyn Waiter>) -> bool {
    // The address alone: one type may have several tables of functions.
    ptr::addr_eq(&**one, &**other)
}
