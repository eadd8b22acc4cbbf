// SPDX-License-Identifier: GPL-2.0

//! Memory keys that begin and cease to work: requests of a queue pair.
//!
//! Such a request ends after those before it, for which the device may need the peer. So a user that
//! has others waiting posts it ([`Channel::post_key`]) and goes on at its completion; who does wait
//! ([`Channel::register`]) does so for a limited time.

use super::{Channel, Handler};
use crate::rdma::{
    mr::{Kept, Key, Mr},
    sq::{Job, Last, Waiter}, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta}, //
};

/// Time that [`Channel::register`] waits for a free slot, in milliseconds.
const SLOT_WAIT_MS: u32 = 5_000;

/// A request for a key that was not posted; nothing of it has reached the device.
pub struct UnpostedKey<T> {
    /// The request.
    pub key: KBox<Key<T>>,
    /// `EINVAL` when it was prepared for another channel, else as of [`Unsent`](crate::rdma::wr::Unsent).
    pub error: Error,
}

impl<H: Handler> Channel<H> {
    /// Prepares the request that makes the key of `mr` work. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` when `mr` was revoked or the channel is closed, `EINVAL` when `mr` is of another
    /// domain, `ENOMEM`.
    pub fn prepare_key(self: &Arc<Self>, mr: &Mr, token: H::Token) -> Result<KBox<Key<H::Token>>> {
        let kept = self.keep(mr)?;
        let key = Key {
            channel: Arc::as_ptr(self).addr(),
            rkey: mr.rkey(),
            access: mr.access().as_raw(),
            kept,
            token,
        };
        Ok(KBox::new(key, GFP_KERNEL)?)
    }

    /// Posts the request. Its token comes back through [`Handler::sent`], as that of
    /// [`Channel::post`]. Any context but hard interrupts.
    ///
    /// # Errors
    ///
    /// See [`UnpostedKey`].
    pub fn post_key(
        self: &Arc<Self>,
        key: KBox<Key<H::Token>>,
    ) -> Result<(), UnpostedKey<H::Token>> {
        if key.channel != Arc::as_ptr(self).addr() {
            return Err(UnpostedKey { key, error: EINVAL });
        }
        let last = Last::Register(key.kept.raw(), key.rkey, key.access);
        match self.post_job(Job::Key(key), [], last) {
            Err((Job::Key(key), error)) => Err(UnpostedKey { key, error }),
            // The job comes back as it was given.
            _ => Ok(()),
        }
    }

    /// Makes the key of `mr` work, and waits for that. Needs [`ReadyToSend`](crate::rdma::qp::ReadyToSend); sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` when `mr` was revoked, `ENOTCONN` when the queue pair cannot send, `EIO` when it
    /// broke, `EINVAL` when `mr` is of another domain, `ETIMEDOUT` when no slot became free, or the
    /// request did not end: then the queue pair is broken.
    pub fn register(self: &Arc<Self>, mr: &Mr) -> Result {
        let kept = self.keep(mr)?;
        let raw = kept.raw();
        let last = || Last::Register(raw, mr.rkey(), mr.access().as_raw());
        self.wait_for(kept, last)
    }

    /// Makes the key of `mr` stop working, and waits for that. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Channel::register`].
    pub fn invalidate(self: &Arc<Self>, mr: &Mr) -> Result {
        let kept = mr.keep()?;
        self.wait_for(kept, || Last::Invalidate(mr.rkey()))
    }

    /// Keeps the C object of `mr`, which a request is about to name.
    fn keep(&self, mr: &Mr) -> Result<Kept> {
        let kept = mr.keep()?;
        if !Arc::ptr_eq(kept.pd(), &self.pd()?) {
            return Err(EINVAL);
        }
        Ok(kept)
    }

    fn wait_for<'a>(self: &Arc<Self>, kept: Kept, last: impl Fn() -> Last<'a>) -> Result {
        let waiter = Waiter::new(kept)?;
        let mut waited = 0u32;
        loop {
            let posted = self.post_job(Job::Sync(waiter.clone()), [], last());
            match posted.map_err(|(_, error)| error) {
                Ok(()) => break,
                Err(error) if error == EAGAIN && waited < SLOT_WAIT_MS => {
                    self.expect_ends();
                    fsleep(Delta::from_millis(1));
                    waited = waited.wrapping_add(1);
                }
                Err(error) if error == EAGAIN => return Err(ETIMEDOUT),
                Err(error) => return Err(error),
            }
        }
        let ended = waiter.wait();
        if ended == Err(ETIMEDOUT) {
            self.fail();
        }
        ended
    }
}
