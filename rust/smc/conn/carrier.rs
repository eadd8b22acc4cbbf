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

    /// Tells whether the connection is one of a group that goes on, after something was added to the
    /// connection that its end, or the group's, takes away: either this is true, and the end will find
    /// it, or nobody will.
    fn keeps(&self, conn: &SmcConn<Self>) -> bool;

    /// Forgets a connection.
    fn remove_conn(self: &Arc<Self>, conn: &Arc<SmcConn<Self>>);

    /// Counts a receive buffer that cannot be used again.
    fn spoil(self: &Arc<Self>);

    /// Says in the kernel log that a connection was aborted, and why. Any context.
    fn tell_breach(&self, error: ProtoError);
}
