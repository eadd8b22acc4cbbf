// SPDX-License-Identifier: GPL-2.0

//! The receive rings: the one into which the peer writes, and for a while a second one, which the peer is offered in
//! its place or has left with unread bytes ([`smc_proto::conn::moves`]).
//!
//! The ring with number `n` has place `n % 2`: its bytes in [`RecvRings`], for who reads, and its buffer in [`Leases`],
//! for who gives it back.

use super::SmcConn;
use crate::{
    host::{
        namespace::Namespace,
        ring_memory::Counted,
        stats::{Buffer, TrafficDirection},
        waiter::Waiter, //
    },
    smcr::slab::Lease,
};
use kapi::{
    net::{process, sock::Charge},
    rdma::ring::Ring, //
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc}, //
};
use smc_proto::{
    conn::Actions,
    cursor::{Pos, RingSize},
};

/// Two places, for the rings with even and odd numbers.
struct Places<T>([Option<T>; 2]);

impl<T> Places<T> {
    const fn new(first: T) -> Self {
        Self([Some(first), None])
    }

    #[inline]
    fn get(&self, number: u8) -> Option<&T> {
        let [even, odd] = &self.0;
        match number % 2 {
            0 => even.as_ref(),
            _ => odd.as_ref(),
        }
    }

    #[inline]
    fn of(&mut self, number: u8) -> &mut Option<T> {
        let [even, odd] = &mut self.0;
        match number % 2 {
            0 => even,
            _ => odd,
        }
    }

    fn are_full(&self) -> bool {
        self.0.iter().all(|place| place.is_some())
    }
}

/// The bytes of the rings, under the lock [`SmcConn::proto`].
pub(crate) struct RecvRings(Places<Ring>);

impl RecvRings {
    pub(super) const fn new(first: Ring) -> Self {
        Self(Places::new(first))
    }

    /// Returns the ring with this number, which is there.
    #[inline]
    pub(super) fn get(&self, number: u8) -> Option<&Ring> {
        self.0.get(number)
    }
}

/// State of the connection's readers, under the lock [`SmcConn::readers`].
pub(crate) struct Readers {
    /// The ring that was read last.
    ring: Ring,
    number: u8,
}

impl Readers {
    pub(super) const fn new(first: Ring) -> Self {
        Self {
            ring: first,
            number: 0,
        }
    }

    /// Turns to the ring with this number. Returns the one that was read last, if it is another: this may be the last
    /// reference to its memory, which is not dropped under the lock of `rings`.
    #[inline]
    pub(crate) fn follow(&mut self, number: u8, rings: &RecvRings) -> Option<Ring> {
        match number == self.number {
            true => None,
            false => self.turn(number, rings),
        }
    }

    #[cold]
    fn turn(&mut self, number: u8, rings: &RecvRings) -> Option<Ring> {
        let ring = rings.get(number)?.clone();
        self.number = number;
        Some(core::mem::replace(&mut self.ring, ring))
    }

    /// Returns the ring to which a reader has turned.
    #[inline]
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }
}

/// The buffers of the rings, and what the program's control group pays for these and for the send ring; under the lock
/// [`SmcConn::leases`].
pub(crate) struct Leases {
    buffers: Places<(Lease, Option<Counted>)>,
    charge: Option<Charge>,
    /// Bytes received at the last look, if the ring was larger than the first one and empty then.
    silent_at: Option<Pos>,
}

impl Leases {
    pub(super) const fn new(first: Lease, charge: Option<Charge>) -> Self {
        Self {
            buffers: Places::new((first, None)),
            charge,
            silent_at: None,
        }
    }

    /// Returns the buffer of the first ring.
    pub(super) fn first(&self) -> Option<&Lease> {
        self.buffers.get(0).map(|(lease, _)| lease)
    }

    /// Charges `bytes` more, for a send ring.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn pay(&mut self, bytes: usize) -> Result {
        match &mut self.charge {
            Some(charge) => charge.grow(bytes),
            None => Ok(()),
        }
    }

    /// Charges `bytes` more, for a ring that is not needed to go on. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also where little would be left.
    pub(super) fn pay_if_plenty(&mut self, bytes: usize) -> Result {
        match &mut self.charge {
            Some(charge) => charge.extend(bytes),
            None => Ok(()),
        }
    }

    /// Takes back the charge for `bytes`. Sleeps.
    pub(super) fn refund(&mut self, bytes: usize) {
        if let Some(charge) = &mut self.charge {
            charge.shrink(bytes);
        }
    }
}

impl SmcConn {
    /// Has the calling program's user pay for a larger ring, which is wanted.
    #[cold]
    pub(crate) fn note_reader(&self) {
        self.reader.store(process::account(), Relaxed);
    }

    /// Offers the peer a larger receive ring, if one is still wanted. What fails is tried again after as many bytes.
    /// Sleeps.
    pub(super) fn grow_ring(self: &Arc<Self>) {
        let wanted = self.proto.lock().wanted_ring();
        if let Some(size) = wanted {
            let counted = self.count_ring(self.reader.load(Relaxed), size);
            let _ = counted.and_then(|counted| self.offer_ring(size, Some(counted)));
        }
    }

    /// Counts a ring that a connection could do without, of `size` for the user `account`.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the user has too many.
    pub(super) fn count_ring(&self, account: u64, size: RingSize) -> Result<Counted> {
        let namespace = Namespace::of(&self.sock).ok_or(ENOMEM)?;
        Counted::new(account, size.bytes() as usize, namespace.user_limit())
    }

    /// Offers the peer a ring of the first size if nothing has come into a larger one since the last look. Returns
    /// whether to look again. Sleeps.
    pub(crate) fn look_at_recv_ring(self: &Arc<Self>) -> bool {
        let (idle, large) = {
            let proto = self.proto.lock();
            (proto.shrinkable(), proto.has_large_ring())
        };
        let at = idle.map(|(at, _)| at);
        let before = match &mut *self.leases.lock() {
            Some(leases) => core::mem::replace(&mut leases.silent_at, at),
            None => return false,
        };
        if let Some((_, size)) = idle.filter(|_| at == before) {
            let _ = self.offer_ring(size, None);
        }
        large
    }

    /// Offers the peer a ring of `size`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, those of [`LinkGroup::lease`](super::super::LinkGroup::lease).
    fn offer_ring(self: &Arc<Self>, size: RingSize, counted: Option<Counted>) -> Result {
        // Kicked when there is one, it is asked for again.
        let waiter = || -> Arc<dyn Waiter> { self.clone() };
        let Some(lease) = self.group.lease(size, &waiter)? else {
            return Ok(());
        };
        let (ring, place) = (lease.ring()?, lease.place()?);
        let bytes = size.bytes() as usize;
        let kind = match lease.is_used() {
            true => Buffer::Reused,
            false => Buffer::Allocated,
        };
        let mut guard = self.leases.lock();
        let leases: &mut Option<Leases> = &mut guard;
        // Without them the connection is over.
        let leases = leases.as_mut().filter(|leases| !leases.buffers.are_full());
        let leases = leases.ok_or(EAGAIN)?;
        leases.pay_if_plenty(bytes)?;
        let offered = {
            let mut state = self.proto.lock();
            let offered = state.conn.offer_ring(size, place);
            if let Some((number, _)) = offered {
                *state.recv.0.of(number) = Some(ring);
            }
            offered
        };
        let Some((number, actions)) = offered else {
            leases.refund(bytes);
            return Ok(());
        };
        *leases.buffers.of(number) = Some((lease, counted));
        self.stats.usage(TrafficDirection::Rx, bytes as i64);
        self.stats.buffer(TrafficDirection::Rx, kind);
        self.stats.buffer_size(TrafficDirection::Rx, bytes);
        drop(guard);
        self.perform(actions);
        self.group.look_later();
        Ok(())
    }

    /// Gives back the ring that was left, after [`Actions::RING_LEFT`]. Sleeps.
    pub(super) fn give_ring_back(&self) {
        let mut guard = self.leases.lock();
        let leases: &mut Option<Leases> = &mut guard;
        let Some(leases) = leases else { return };
        let left = {
            let mut state = self.proto.lock();
            let Some(number) = state.conn.only_ring() else {
                return;
            };
            let left = number.wrapping_sub(1);
            state.recv.0.of(left).take().map(|ring| (left, ring))
        };
        let Some((number, ring)) = left else { return };
        let lease = leases.buffers.of(number).take();
        leases.refund(ring.size());
        drop(guard);
        self.stats
            .usage(TrafficDirection::Rx, -(ring.size() as i64));
        // No reader is in it: all its bytes have been read.
        ring.clear(ring.size());
        drop(lease);
        // The memory stays until nobody has it. A reader turns to the other ring by himself.
        if let Some(mut readers) = self.readers.try_lock() {
            let read = {
                let state = self.proto.lock();
                let number = state.conn.only_ring();
                number.and_then(|number| readers.follow(number, &state.recv))
            };
            drop(read);
        }
    }

    /// Gives the buffers back when the connection is over; to others unless `kept`, which leaves them to the peer.
    pub(super) fn retire_recv_rings(&self, kept: bool) {
        let (rings, first, received) = {
            let mut state = self.proto.lock();
            let rings = core::mem::take(&mut state.recv.0 .0);
            (rings, state.conn.only_ring() == Some(0), state.received())
        };
        for ring in rings.into_iter().flatten() {
            self.stats
                .usage(TrafficDirection::Rx, -(ring.size() as i64));
            if !kept {
                // Bytes beyond those of the only ring were never announced, and the next connection is with the same
                // peer.
                let used = match first {
                    true => usize::try_from(received).unwrap_or(usize::MAX),
                    false => ring.size(),
                };
                ring.clear(used);
            }
        }
        let leases = self.leases.lock().take();
        let Some(mut leases) = leases else { return };
        for (mut lease, _counted) in leases.buffers.0.into_iter().flatten() {
            if kept {
                let bytes = lease.size().bytes() as usize;
                lease.quarantine(leases.charge.as_mut().map(|charge| charge.split(bytes)));
                self.group.count_quarantined();
            }
        }
    }
}

impl Waiter for SmcConn {
    fn kick(self: Arc<Self>) {
        self.later(Actions::GROW);
    }
}
