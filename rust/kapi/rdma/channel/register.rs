// SPDX-License-Identifier: GPL-2.0

//! Memory keys that begin and cease to work: requests of a queue pair whose end is waited for.

use super::{Channel, Handler};
use crate::rdma::{
    mr::Mr,
    sq::{Job, Last, Waiter}, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta}, //
};

/// Time that [`Channel::register`] waits for a free slot, in milliseconds.
const SLOT_WAIT_MS: u32 = 5_000;

impl<H: Handler> Channel<H> {
    /// Makes the key of `mr` work, and waits for that. Needs [`ReadyToSend`](crate::rdma::qp::ReadyToSend); sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` when `mr` was revoked, `ENOTCONN` when the queue pair cannot send, `EIO` when it
    /// broke, `EINVAL` when `mr` is of another domain, `ETIMEDOUT` when no slot became free.
    pub fn register(self: &Arc<Self>, mr: &Mr) -> Result {
        let guard = mr.raw().lock();
        let raw = guard.as_ref().ok_or(ENODEV)?;
        if !Arc::ptr_eq(raw.pd(), &self.pd()?) {
            return Err(EINVAL);
        }
        // The guard is held until the request has ended: it names the C object.
        self.wait_for(|| Last::Register(raw.raw(), mr.rkey(), mr.access().as_raw()))
    }

    /// Makes the key of `mr` stop working, and waits for that. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Channel::register`].
    pub fn invalidate(self: &Arc<Self>, mr: &Mr) -> Result {
        let guard = mr.raw().lock();
        let _raw = guard.as_ref().ok_or(ENODEV)?;
        self.wait_for(|| Last::Invalidate(mr.rkey()))
    }

    fn wait_for<'a>(self: &Arc<Self>, last: impl Fn() -> Last<'a>) -> Result {
        let waiter = Waiter::new()?;
        let mut waited = 0u32;
        loop {
            match self.post_job(Job::Sync(waiter.clone()), [], last()) {
                // Ends with its completion, or when the channel is closed.
                Ok(()) => return waiter.wait(),
                Err((_, error)) if error == EAGAIN && waited < SLOT_WAIT_MS => {
                    fsleep(Delta::from_millis(1));
                    waited = waited.wrapping_add(1);
                }
                Err((_, error)) if error == EAGAIN => return Err(ETIMEDOUT),
                Err((_, error)) => return Err(error),
            }
        }
    }
}
