// SPDX-License-Identifier: GPL-2.0

//! Interface of a connection to its carrier, the link group.

use super::SmcConn;
use kapi::rdma::{
    device::Device,
    region::Region,
    ring::Ring, //
};
use kernel::{error::Result, sync::Arc};
use smc_proto::{
    conn::{Actions, ProtoError},
    wire::{clc::Extensions, ids::Rkey}, //
};

/// A receive buffer (RMBE) that a connection has from its carrier.
pub(crate) trait Lease: Send + Unpin {
    /// Returns the buffer's bytes.
    ///
    /// # Errors
    ///
    /// None in practice: a lease is inside its slab.
    fn ring(&self) -> Result<Ring>;

    /// Returns memory key and address of the slab and the number of the buffer in it, as CLC
    /// messages announce them.
    fn announce(&self) -> (Rkey, u64, u8);

    /// Raises the charge to the connection's control group to `bytes` in all.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn charge_to(&mut self, bytes: usize) -> Result;

    /// Lowers the charge to `bytes`. Sleeps.
    fn reduce_to(&mut self, bytes: usize);

    /// Keeps the buffer from reuse while the link lives: the peer may still write into it.
    fn quarantine(&mut self);
}

/// Carries the bytes and CDC messages of connections to one peer: a link group.
pub(crate) trait Carrier: Sized + Send + Sync + 'static {
    /// Type of its receive buffers.
    type Lease: Lease;

    /// Returns the RDMA device, to allocate and map memory for.
    fn device(&self) -> &Arc<Device>;

    /// Returns the protocol extensions agreed with the peer at first contact.
    fn extensions(&self) -> Extensions;

    /// Sends a connection's new data and state, as soon as it is its turn. Returns the actions that
    /// are left to do. Any context.
    fn send_due(self: &Arc<Self>, conn: &Arc<SmcConn<Self>>) -> Actions;

    /// Takes a spare send ring of `size` bytes, if there is one.
    fn take_spare(&self, size: usize) -> Option<Arc<Region>>;

    /// Keeps a send ring as a spare, in place of one of another size if need be. No request under
    /// way may name the ring, and nobody may write into it any more.
    fn keep_spare(&self, ring: &Arc<Region>);

    /// Installs a connection's send ring, where the end of the connection or the group finds it.
    /// Returns false if either is over already.
    fn install_ring(&self, conn: &SmcConn<Self>, ring: &Arc<Region>) -> bool;

    /// Removes and returns the send ring of a connection that is still in the group.
    fn remove_ring(&self, conn: &SmcConn<Self>) -> Option<Arc<Region>>;

    /// Schedules another try for sends that have found no memory. Sleeps.
    fn feed_later(&self);

    /// Schedules the group's look for unused memory. Sleeps.
    fn look_later(&self);

    /// Removes a connection from the group. Returns its send ring.
    fn remove_conn(self: &Arc<Self>, conn: &Arc<SmcConn<Self>>) -> Option<Arc<Region>>;

    /// Ends the oldest drain, in the namespace, of the peer that has most; false if none was found.
    /// Sleeps.
    fn shed_drain(&self) -> bool;

    /// Counts a receive buffer that cannot be used again.
    fn spoil(self: &Arc<Self>);

    /// Logs that a connection was aborted for a breach of the protocol, and which one. Any context.
    fn tell_breach(&self, error: ProtoError);
}
