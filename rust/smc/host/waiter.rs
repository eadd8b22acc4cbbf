// SPDX-License-Identifier: GPL-2.0

//! Upward call to the owner of a handshake after an event.

use core::ptr;
use kernel::{prelude::*, sync::Arc};

/// Owner of a handshake, which goes on with it after an event: a client's socket, or a connection
/// that accept() has not handed out.
pub(crate) trait Waiter: Send + Sync {
    /// Queues the work that goes on with the handshake. Any context.
    fn kick(self: Arc<Self>);
}

/// Adds a waiter to a list, unless it is there.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn add(waiters: &mut KVec<Arc<dyn Waiter>>, waiter: Arc<dyn Waiter>) -> Result {
    if !waiters.iter().any(|other| is_same(other, &waiter)) {
        waiters.push(waiter, GFP_KERNEL)?;
    }
    Ok(())
}

/// Tells whether two waiters are the same handshake.
fn is_same(one: &Arc<dyn Waiter>, other: &Arc<dyn Waiter>) -> bool {
    // The address alone: one type may have several tables of functions.
    ptr::addr_eq(&**one, &**other)
}
