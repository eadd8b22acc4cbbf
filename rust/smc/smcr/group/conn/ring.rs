// SPDX-License-Identifier: GPL-2.0

//! The send ring: made when the program sends, given back when the connection has been silent.
//!
//! Writers have it under the lock `writers`; who posts finds it in [`super::Locked`]
//! ([`install_ring`](super::super::LinkGroup::install_ring)).

use super::SmcConn;
use crate::host::{
    ring_memory::Counted,
    stats::{Buffer, TrafficDirection}, //
};
use kapi::{
    errno,
    net::process,
    rdma::{
        dma::Direction,
        region::Region,
        ring::Ring, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use smc_proto::{
    cursor::{Pos, RingSize},
    ring::Pieces, //
};

/// State of the connection's writers, under the lock [`SmcConn::writers`].
pub(crate) struct Writers {
    ring: Option<Ring>,
    /// Counts it, if it has grown.
    grown: Option<Counted>,
    /// What is known to be free of it, where the next bytes go. There may be more.
    pub(crate) free: Pieces,
    /// Bytes written at the last look, if none of them was needed any more then.
    silent_at: Option<Pos>,
    /// True while the connection's memory charge includes the ring. At first it does: the first
    /// send cannot be refused.
    charged: bool,
    /// True once the ring's size was counted, which happens once for a connection.
    counted: bool,
}

impl Writers {
    /// Creates the state before the first write.
    pub(super) const fn new() -> Self {
        Self {
            ring: None,
            grown: None,
            free: Pieces::NONE,
            silent_at: None,
            charged: true,
            counted: false,
        }
    }
}

/// Returns the memory charge for both rings of a new connection, and a page for the rest, in bytes.
pub(crate) fn charged_bytes(recv: usize, send: usize) -> usize {
    recv.saturating_add(send).saturating_add(PAGE_SIZE)
}

impl SmcConn {
    /// Returns the send ring, and makes it if need be, which sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: writers are woken when it is time to try again. `ENODEV`, `ECONNABORTED`: the
    /// connection is over.
    #[inline]
    pub(crate) fn send_ring<'a>(self: &Arc<Self>, writers: &'a mut Writers) -> Result<&'a Ring> {
        if writers.ring.is_none() {
            self.make_send_ring(writers)?;
        }
        writers.ring.as_ref().ok_or(ENOMEM)
    }

    #[inline(never)]
    fn make_send_ring(self: &Arc<Self>, writers: &mut Writers) -> Result {
        let made = self.try_send_ring(writers);
        let short = matches!(&made, Err(error) if *error == ENOMEM);
        if short {
            // Before the group is told: it looks for the mark.
            self.ring_enomem.set(1);
            self.sock.expect_room();
            self.group.feed_later();
        } else {
            self.ring_enomem.set(0);
        }
        made
    }

    fn try_send_ring(self: &Arc<Self>, writers: &mut Writers) -> Result {
        let size = self.send_size();
        if !writers.charged {
            let mut guard = self.leases.lock();
            let leases: &mut Option<super::Leases> = &mut guard;
            // Without them the connection is over.
            let leases = leases.as_mut().ok_or(errno::ECONNABORTED.error())?;
            leases.pay(size)?;
            writers.charged = true;
        }
        let (region, kind) = self.send_region(size)?;
        let ring = Ring::new(region.clone(), 0, size)?;
        if !self.group.install_ring(self, &region) {
            region.revoke();
            return Err(errno::ECONNABORTED.error());
        }
        writers.ring = Some(ring);
        writers.silent_at = None;
        self.stats.buffer(TrafficDirection::Tx, kind);
        if !writers.counted {
            writers.counted = true;
            self.stats.buffer_size(TrafficDirection::Tx, size);
        }
        Ok(())
    }

    /// Replaces the send ring, which is empty, by one of `size`, if there is memory for that. Sleeps.
    #[cold]
    pub(crate) fn grow_send_ring(&self, writers: &mut Writers, size: RingSize) {
        if self.try_larger(writers, size).is_err() {
            self.proto.lock().keep_send_ring();
        }
    }

    fn try_larger(&self, writers: &mut Writers, size: RingSize) -> Result {
        let bytes = size.bytes() as usize;
        let now = writers.ring.as_ref().map_or(0, Ring::size);
        let more = bytes.saturating_sub(now);
        let counted = self.count_ring(process::account(), size)?;
        let (region, kind) = self.send_region(bytes)?;
        let ring = Ring::new(region.clone(), 0, bytes)?;
        let mut guard = self.leases.lock();
        let leases: &mut Option<super::Leases> = &mut guard;
        let leases = leases.as_mut().ok_or(errno::ECONNABORTED.error())?;
        leases.pay_if_plenty(more)?;
        match self.group.replace_ring(self, &region, size) {
            Some(old) => {
                drop(guard);
                writers.ring = Some(ring);
                writers.grown = Some(counted);
                self.stats.buffer(TrafficDirection::Tx, kind);
                self.stats.buffer_size(TrafficDirection::Tx, bytes);
                self.group.keep_spare(&old);
            }
            None => {
                leases.refund(more);
                drop(guard);
                self.group.keep_spare(&region);
            }
        }
        Ok(())
    }

    /// Returns memory for a send ring of `size` bytes. Sleeps.
    fn send_region(&self, size: usize) -> Result<(Arc<Region>, Buffer)> {
        if let Some(region) = self.group.take_spare(size) {
            return Ok((region, Buffer::Reused));
        }
        let region = Region::new(self.group.device(), size, Direction::ToDevice)?;
        Ok((region, Buffer::Allocated))
    }

    /// Tells whether the last send has found no memory for its ring and is not to try again yet.
    #[inline]
    pub(crate) fn is_ring_enomem(&self) -> bool {
        self.ring_enomem.get() != 0
    }

    /// Lets a send that has found no memory try again.
    pub(crate) fn retry_ring(&self) {
        if self.is_ring_enomem() {
            self.ring_enomem.set(0);
            self.sock.wake_for_room();
        }
    }

    /// Gives the send ring back if nothing was sent since the last look. Sleeps.
    pub(crate) fn look_at_ring(self: &Arc<Self>) {
        // A writer needs the ring.
        let Some(mut writers) = self.writers.try_lock() else {
            return;
        };
        // As long as `writers` is held there is nothing more to send.
        let (unused, due) = {
            let mut proto = self.proto.lock();
            (proto.send_ring_unused(), proto.ask_for_seen())
        };
        if unused.is_none() || unused != writers.silent_at {
            writers.silent_at = unused;
            drop(writers);
            self.perform(due);
            return;
        }
        // Without it the connection has ended, and its end gives the ring back; or its reader has just told the peer of
        // room, and the next look finds the ring as silent.
        let Some(region) = self.group.remove_ring(self) else {
            return;
        };
        writers.ring = None;
        // The next one is as large as the first.
        (writers.free, writers.grown) = (Pieces::NONE, None);
        if let Some(leases) = &mut *self.leases.lock() {
            leases.refund(region.len());
            writers.charged = false;
        }
        self.group.keep_spare(&region);
    }

    /// Gives back the send ring of a connection that is over; `region` is the group's reference to
    /// it.
    pub(super) fn retire_ring(&self, region: Option<Arc<Region>>) {
        let Some(region) = region else { return };
        match self.writers.try_lock() {
            // No request is under way, and later writers find that the connection is over.
            Some(mut writers) if !region.is_revoked() => {
                (writers.ring, writers.grown) = (None, None);
                self.group.keep_spare(&region);
            }
            _ => region.revoke(),
        }
    }
}
