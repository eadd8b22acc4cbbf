// SPDX-License-Identifier: GPL-2.0

//! The end of a local path, for one of its programs: the file is closed, the connection is dissolved, or TCP
//! is to have it for good.

use super::{
    direction::{CountedRing, LocalDirection}, //
    pair::Local,
    rendezvous::RENDEZVOUS,
};
use crate::host::stats::{Stat, Total};
use kapi::{net::sock::Sock, sys::word::full_barrier};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta}, //
};
use smc_proto::path::Route;

impl Local {
    /// Takes both directions back to TCP, for good.
    ///
    /// # Errors
    ///
    /// `EBUSY` while there are bytes in the ring that this end has not read, or the other end writes there.
    pub(crate) fn retire(&self) -> Result {
        self.bind_to_tcp();
        if !self.has_met() {
            self.give_up();
        }
        let direction = self.out();
        direction.end(&mut direction.writer.lock());
        let direction = self.inward();
        self.end_of_peer(direction)?;
        let mut reader = direction.reader.lock();
        if direction.there() != 0 {
            drop(reader);
            self.let_reader_go();
            return Err(EBUSY);
        }
        // Nothing has been put after the cut, and nothing will be.
        direction.replace_route(direction.route(), Route::TCP);
        let ring = reader.take();
        drop(reader);
        drop(ring);
        self.let_reader_go();
        if !self.is_retired() {
            self.pair.end(self.active).retired.set(1);
            full_barrier();
            self.part();
        }
        self.settle();
        Ok(())
    }

    /// Wakes a writer at the other end that has waited for room, or for the lock that was let go just now.
    #[inline]
    pub(super) fn let_reader_go(&self) {
        if self.inward().tells() {
            self.with_peer(Sock::wake_for_room);
        }
    }

    /// Runs `f` if TCP has all that this end has not read yet, and while that stays so: the other end's bytes are
    /// TCP's as long. `None` if some are in the ring, or may be.
    pub(crate) fn while_reading_tcp<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let direction = self.inward();
        let reader = direction.reader.lock();
        let result = (direction.route() == Route::TCP).then(f);
        drop(reader);
        self.let_reader_go();
        result
    }

    /// Has the other end turn back to TCP. It may sleep while it writes, for a page of its program's memory:
    /// that is not waited for.
    fn end_of_peer(&self, direction: &LocalDirection) -> Result {
        for _ in 0..10 {
            if let Some(mut writer) = direction.writer.try_lock() {
                direction.end(&mut writer);
                return Ok(());
            }
            fsleep(Delta::from_millis(1));
        }
        Err(EBUSY)
    }

    /// Tells whether [`Local::retire`] has been done.
    pub(crate) fn is_retired(&self) -> bool {
        self.pair.end(self.active).retired.get() != 0
    }

    /// Stops waiting for the other end. Returns whether it has not come.
    pub(crate) fn give_up(&self) -> bool {
        let alone = RENDEZVOUS
            .get()
            .is_some_and(|rendezvous| rendezvous.leave(&self.pair));
        alone && !self.has_met()
    }

    /// Closes this end: its file is being closed, and no call reads or writes here any more.
    pub(crate) fn close(&self) {
        self.let_go();
        self.settle();
        // Checked when no writer puts bytes there any more, except one that checks for this end afterwards.
        // The sock of an end that is dissolved may have another connection by now.
        if self.has_met() && !self.is_dissolved() && self.ring_holds() {
            // As TCP when bytes have not been read.
            self.own().abort();
        }
    }

    /// Dissolves the connection, for connect(): calls under way end.
    pub(crate) fn dissolve(&self) {
        self.pair.end(self.active).dissolved.set(1);
        self.let_go();
        // Nothing goes through the rings any more.
        self.settle();
    }

    /// Tells whether the program has dissolved the connection, which TCP may have made another one by now.
    #[inline]
    pub(super) fn is_dissolved(&self) -> bool {
        self.pair.end(self.active).dissolved.get() != 0
    }

    /// Returns what this end's programs have put into the rings and taken out.
    fn counts(&self) -> [(Stat, u64); 4] {
        let [(puts, sent), _] = self.out().counts();
        let [_, (takes, received)] = self.inward().counts();
        [
            (Stat::TxCalls, puts),
            (Stat::TxBytes, sent),
            (Stat::RxCalls, takes),
            (Stat::RxBytes, received),
        ]
    }

    /// Moves what has gone through the rings to the namespace's statistics, but for what was moved before.
    fn settle(&self) {
        let settled = &self.pair.end(self.active).settled;
        let _settling = self.namespace.settling.lock();
        for ((stat, all), settled) in self.counts().into_iter().zip(settled) {
            let new = all.wrapping_sub(settled.get());
            if new != 0 {
                self.namespace.counters.stats.add(stat, new);
                settled.release(all);
            }
        }
    }

    /// Adds what is not in the namespace's statistics yet, whose lock `settling` the caller holds.
    pub(crate) fn add_to(&self, total: &mut Total) {
        let settled = &self.pair.end(self.active).settled;
        for ((stat, all), settled) in self.counts().into_iter().zip(settled) {
            total.count(stat, all.wrapping_sub(settled.get()));
        }
    }

    /// Gives the rings back, and tells the other end that this one is gone.
    fn let_go(&self) {
        let pair = &self.pair;
        pair.end(self.active).gone.set(1);
        full_barrier();
        if !self.has_met() {
            if let Some(rendezvous) = RENDEZVOUS.get() {
                rendezvous.leave(pair);
            }
        }
        let (inward, out) = (self.inward(), self.out());
        let read: Option<Arc<CountedRing>> = {
            let mut reader = inward.reader.lock();
            let arrived = self.own().arrived_to();
            self.has_got_astray(inward.route(), arrived);
            reader.take()
        };
        let written = {
            let mut writer = out.writer.lock();
            self.has_sent_astray();
            // Nothing is written here any more, but for TCP's FIN.
            let quiet = is_quiet(self.own(), out.cut());
            self.pair.end(self.active).quiet.set(u32::from(quiet));
            writer.take()
        };
        drop((read, written));
        self.part();
        // A writer that waits for room checks after its mark whether this end is gone. A wake-up without a waiter
        // would be an edge that TCP does not have.
        if inward.waits_for_room() {
            self.with_peer(Sock::wake_for_room);
        }
        // The other end may belong to another user and namespace, and stay open for long.
        pair.end(self.active).sock.give_back();
    }

    /// Takes the pair off the list of those that have had rings, if neither end makes one any more. The caller
    /// has just said so for this end, and a barrier followed: of two that come together one sees the other.
    fn part(&self) {
        let other = self.pair.end(!self.active);
        // One that was retired is not closed here: it may have been given back to TCP.
        if other.is_gone() || other.retired.get() != 0 {
            self.forget_rings();
        }
    }
}

/// Tells whether TCP has nothing after `cut` of what `writer` has sent, but for a FIN.
pub(super) fn is_quiet(writer: &Sock, cut: u32) -> bool {
    match writer.sent_to().wrapping_sub(cut) {
        0 => true,
        beyond => beyond == 1 && !writer.may_send(),
    }
}
