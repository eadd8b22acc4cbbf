// SPDX-License-Identifier: GPL-2.0

//! Posting: under the lock of the send queue, which protects nothing else.

use super::{Channel, Handler};
use crate::{
    rdma::{
        sq::{Again, Job, Last, Refused, Sq},
        wr::{Signal, Unsent, Write}, //
    },
    sys::lock::{lock_with_bh_off, SpinLockBhBackend}, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, lock::Guard, Arc}, //
};

/// The slots of a send queue, which is locked as long as this lives. One is free if [`Channel::slot`] has returned this.
pub struct Slot<'a, H: Handler> {
    channel: &'a Arc<Channel<H>>,
    sq: Guard<'a, Sq<H::Token>, SpinLockBhBackend>,
}

impl<H: Handler> Slot<'_, H> {
    /// Posts `writes` and then a message, as [`Channel::post`], of whose end the device tells as `signal` says.
    ///
    /// # Errors
    ///
    /// See [`Unsent`].
    #[inline]
    pub fn post<'w>(
        &mut self,
        token: H::Token,
        signal: Signal,
        writes: impl IntoIterator<Item = Write<'w>>,
        message: &[u8],
    ) -> Result<(), Unsent<H::Token>> {
        if message.len() > usize::from(self.channel.config.message) {
            let error = EINVAL;
            return Err(Unsent { token, error });
        }
        self.post_last(token, signal, writes, Last::Message(message))
    }

    /// Posts `message` in a packet as long as the path MTU, filled up with bytes that mean nothing. So its
    /// arrival shows that such packets get through.
    ///
    /// As [`Slot::post`] otherwise, also where the device has one element for each request, which cannot be filled up.
    /// The peer's receives must have room for it.
    ///
    /// # Errors
    ///
    /// See [`Unsent`]; `EINVAL` also where the path is not known yet.
    pub fn post_full_packet(
        &mut self,
        token: H::Token,
        message: &[u8],
    ) -> Result<(), Unsent<H::Token>> {
        if message.len() > usize::from(self.channel.config.message) {
            let error = EINVAL;
            return Err(Unsent { token, error });
        }
        if !self.sq.pads() {
            return self.post(token, Signal::Always, [], message);
        }
        let len = self.channel.path_mtu.load(Relaxed) as usize;
        self.post_last(token, Signal::Always, [], Last::Padded(message, len))
    }

    /// Posts `writes`, of which the last carries `number`, as [`Channel::post_immediate`]. The device tells of the end
    /// as `signal` says.
    ///
    /// # Errors
    ///
    /// See [`Unsent`].
    #[inline(always)]
    pub fn post_immediate<'w>(
        &mut self,
        token: H::Token,
        signal: Signal,
        writes: impl IntoIterator<Item = Write<'w>>,
        number: u32,
    ) -> Result<(), Unsent<H::Token>> {
        let mut writes = writes.into_iter();
        match (writes.next(), writes.next()) {
            // Most often.
            (Some(write), None) => {
                let posted = self.sq.post_one(Job::Post(token), signal, &write, number);
                let settled = self.channel.settle(&mut self.sq, posted, false);
                given_back(settled)
            }
            (first, second) => {
                let before = [first, second].into_iter().flatten();
                // `Init` of pinned initialisers has a `chain`, too.
                let writes = Iterator::chain(before, writes);
                self.post_last(token, signal, writes, Last::Immediate(number))
            }
        }
    }

    // Not inlined: it would take the registers of those who post one write.
    #[inline(never)]
    fn post_last<'w>(
        &mut self,
        token: H::Token,
        signal: Signal,
        writes: impl IntoIterator<Item = Write<'w>>,
        last: Last<'_>,
    ) -> Result<(), Unsent<H::Token>> {
        let job = Job::Post(token);
        given_back(
            self.channel
                .post_locked(&mut self.sq, job, signal, writes, last),
        )
    }

    /// Has the ends of all chains posted until now handled as soon as they come.
    pub fn expect_ends(&mut self) {
        self.channel.expect_locked(&mut self.sq);
    }
}

/// Takes the token out of a job that was not posted, which comes back as it was given.
#[inline(always)]
fn given_back<T>(posted: Result<(), (Job<T>, Error)>) -> Result<(), Unsent<T>> {
    match posted {
        Err((Job::Post(token), error)) => Err(Unsent { token, error }),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl<H: Handler> Channel<H> {
    /// Takes a slot for a chain, which stays free for it while the send queue is locked; `None` if none is free. Then
    /// `none` was called, with the queue locked: who frees a slot from now on sees what that did, and ends are handled
    /// as soon as they come.
    #[inline]
    pub fn slot<'a>(self: &'a Arc<Self>, none: impl FnOnce()) -> Option<Slot<'a, H>> {
        self.slot_of(self.sq.lock(), none)
    }

    /// Takes a slot as [`Channel::slot`]. To be called with bottom halves off, which stay so as long as the slot lives:
    /// inside of a lock that keeps them out.
    #[inline]
    pub fn slot_with_bh_off<'a>(self: &'a Arc<Self>, none: impl FnOnce()) -> Option<Slot<'a, H>> {
        self.slot_of(lock_with_bh_off(&self.sq), none)
    }

    #[inline]
    fn slot_of<'a>(
        self: &'a Arc<Self>,
        mut sq: Guard<'a, Sq<H::Token>, SpinLockBhBackend>,
        none: impl FnOnce(),
    ) -> Option<Slot<'a, H>> {
        if sq.free_slots() == 0 {
            none();
            self.expect_locked(&mut sq);
            return None;
        }
        Some(Slot { channel: self, sq })
    }

    /// Locks the slots, of which perhaps none is free.
    #[inline]
    pub(super) fn lock_slots(self: &Arc<Self>) -> Slot<'_, H> {
        Slot {
            channel: self,
            sq: self.sq.lock(),
        }
    }

    #[inline]
    pub(super) fn post_job<'a>(
        self: &Arc<Self>,
        job: Job<H::Token>,
        writes: impl IntoIterator<Item = Write<'a>>,
        last: Last<'_>,
    ) -> Result<(), (Job<H::Token>, Error)> {
        self.post_locked(&mut self.sq.lock(), job, Signal::Always, writes, last)
    }

    /// Posts with the send lock held.
    #[inline]
    fn post_locked<'a>(
        self: &Arc<Self>,
        sq: &mut Sq<H::Token>,
        job: Job<H::Token>,
        signal: Signal,
        writes: impl IntoIterator<Item = Write<'a>>,
        last: Last<'_>,
    ) -> Result<(), (Job<H::Token>, Error)> {
        let awaited = !matches!(job, Job::Post(_));
        let posted = sq.post(job, signal, writes, last, |slot, bytes| {
            let at = usize::from(slot).saturating_mul(self.send_stride);
            if self.send_memory.write_slice(at, bytes) == bytes.len() {
                Ok(())
            } else {
                Err(EINVAL)
            }
        });
        self.settle(sq, posted, awaited)
    }

    /// Does what follows a post with the send lock held; `awaited` tells whether somebody waits for the end of the chain.
    #[inline(always)]
    fn settle(
        self: &Arc<Self>,
        sq: &mut Sq<H::Token>,
        posted: Result<(), Refused<H::Token>>,
        awaited: bool,
    ) -> Result<(), (Job<H::Token>, Error)> {
        match posted {
            Ok(()) => {
                let new = awaited && sq.expect();
                self.note_counts(sq);
                if new {
                    self.poller.expect();
                }
                self.poller.poll_later();
                Ok(())
            }
            Err(refused) => self.settle_refused(sq, refused),
        }
    }

    #[cold]
    fn settle_refused(
        self: &Arc<Self>,
        sq: &mut Sq<H::Token>,
        refused: Refused<H::Token>,
    ) -> Result<(), (Job<H::Token>, Error)> {
        // A chain that the device has refused for now is posted again when another one has ended.
        let new = matches!(refused, Refused::Later(_)) && sq.expect();
        self.note_counts(sq);
        if new {
            self.poller.expect();
        }
        match refused {
            Refused::Clean(job, error) => Err((job, error)),
            Refused::Torn => {
                self.try_again(sq, Again::Broken);
                Ok(())
            }
            Refused::Later(again) => {
                self.try_again(sq, again);
                Ok(())
            }
        }
    }
}
