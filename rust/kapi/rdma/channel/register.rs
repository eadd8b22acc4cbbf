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
        self.register_in_turn(mr, |post| post())
    }

    /// The same where those who post take turns: `turn` calls the function that it is given in a turn of
    /// its own, and returns what that has returned. Must not sleep; called again when there was no free
    /// slot (`EAGAIN`).
    ///
    /// # Errors
    ///
    /// As [`Channel::register`].
    pub fn register_in_turn(
        self: &Arc<Self>,
        mr: &Mr,
        turn: impl FnMut(&mut dyn FnMut() -> Result) -> Result,
    ) -> Result {
        let guard = mr.raw().lock();
        let raw = guard.as_ref().ok_or(ENODEV)?;
        if !Arc::ptr_eq(raw.pd(), &self.pd()?) {
            return Err(EINVAL);
        }
        // The guard is held until the request has ended: it names the C object.
        let last = || Last::Register(raw.raw(), mr.rkey(), mr.access().as_raw());
        self.wait_for(last, turn)
    }

    /// Makes the key of `mr` stop working, and waits for that. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Channel::register`].
    pub fn invalidate(self: &Arc<Self>, mr: &Mr) -> Result {
        let guard = mr.raw().lock();
        let _raw = guard.as_ref().ok_or(ENODEV)?;
        self.wait_for(|| Last::Invalidate(mr.rkey()), |post| post())
    }

    fn wait_for<'a>(
        self: &Arc<Self>,
        last: impl Fn() -> Last<'a>,
        mut turn: impl FnMut(&mut dyn FnMut() -> Result) -> Result,
    ) -> Result {
        let waiter = Waiter::new()?;
        let mut post = || {
            let posted = self.post_job(Job::Sync(waiter.clone()), [], last());
            posted.map_err(|(_, error)| error)
        };
        let mut waited = 0u32;
        loop {
            match turn(&mut post) {
                // Ends with its completion, or when the channel is closed.
                Ok(()) => return waiter.wait(),
                Err(error) if error == EAGAIN && waited < SLOT_WAIT_MS => {
                    fsleep(Delta::from_millis(1));
                    waited = waited.wrapping_add(1);
                }
                Err(error) if error == EAGAIN => return Err(ETIMEDOUT),
                Err(error) => return Err(error),
            }
        }
    }
}
