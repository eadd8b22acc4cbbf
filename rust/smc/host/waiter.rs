// SPDX-License-Identifier: GPL-2.0

//! The upward call of a handshake's floor and those below: something has happened, go on.

use core::ptr;
use kernel::sync::Arc;

/// Goes on with a handshake when something has happened: a client's socket, or a connection that
/// accept() has not handed out.
pub(crate) trait Waiter: Send + Sync {
    /// Queues the work. Any context.
    fn kick(self: Arc<Self>);
}

/// Tells whether two waiters are the same handshake.
pub(crate) fn is_same(one: &Arc<dyn Waiter>, other: &Arc<dyn Waiter>) -> bool {
    // The address alone: one type may have several tables of functions.
    ptr::addr_eq(&**one, &**other)
}
