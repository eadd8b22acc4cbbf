// SPDX-License-Identifier: GPL-2.0

//! The seam below a connection: all that it asks of the one that carries its bytes.

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

/// A receive buffer that a connection has of its carrier.
pub(crate) trait Lease: Send + Unpin {
    /// Returns the buffer's bytes.
    ///
    /// # Errors
    ///
    /// None in practice: a lease is inside its slab.
    fn ring(&self) -> Result<Ring>;

    /// Returns key and address of the slab, and the number of the buffer in it, as the peer is told.
    fn announce(&self) -> (Rkey, u64, u8);

    /// Charges the connection's control group with as much as makes `bytes` for the connection.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn charge_to(&mut self, bytes: usize) -> Result;

    /// Takes back what is charged beyond `bytes`. Sleeps.
    fn reduce_to(&mut self, bytes: usize);

    /// Keeps the buffer from others while the link lives: the peer may still write there.
    fn quarantine(&mut self);
}

/// Carries the bytes and CDC messages of connections to one peer: a link group.
pub(crate) trait Carrier: Sized + Send + Sync + 'static {
    /// Its receive buffers.
    type Lease: Lease;

    /// Returns the device, for further memory.
    fn device(&self) -> &Arc<Device>;

    /// Returns what was agreed beyond the protocol.
    fn extensions(&self) -> Extensions;

    /// Sends the latest state of a connection that has something to say as soon as it is its turn.
    /// Returns what else is to be done. Any context.
    fn send_due(self: &Arc<Self>, conn: &Arc<SmcConn<Self>>) -> Actions;

    /// Takes a used send ring of `size` bytes.
    fn take_spare(&self, size: usize) -> Option<Arc<Region>>;

    /// Keeps a send ring that no request under way names and nobody will write into again, in place of
    /// one of another size if need be.
    fn keep_spare(&self, ring: &Arc<Region>);

    /// Makes a connection's send ring known, unless the connection or the group is over; whether it
    /// has. The end of either will find the ring.
    fn install_ring(&self, conn: &SmcConn<Self>, ring: &Arc<Region>) -> bool;

    /// Takes the send ring of a connection that is one of the group.
    fn remove_ring(&self, conn: &SmcConn<Self>) -> Option<Arc<Region>>;

    /// Lets sends that have found no memory try again, after a while. Sleeps.
    fn feed_later(&self);

    /// Has the group look for what nobody uses. Sleeps.
    fn look_later(&self);

    /// Forgets a connection. Returns its send ring.
    fn remove_conn(self: &Arc<Self>, conn: &Arc<SmcConn<Self>>) -> Option<Arc<Region>>;

    /// Ends the oldest drain, in the namespace, of the peer that has most; false if none was found.
    /// Sleeps.
    fn shed_drain(&self) -> bool;

    /// Counts a receive buffer that cannot be used again.
    fn spoil(self: &Arc<Self>);

    /// Says in the kernel log that a connection was aborted, and why. Any context.
    fn tell_breach(&self, error: ProtoError);
}
