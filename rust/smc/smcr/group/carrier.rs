// SPDX-License-Identifier: GPL-2.0

//! A group as its connections see it.

use super::{super::slab, LinkGroup, SmcConn};
use crate::conn::Carrier;
use kapi::rdma::{
    device::Device,
    region::Region, //
};
use kernel::sync::Arc;
use smc_proto::{
    conn::{Actions, ProtoError},
    wire::clc::Extensions, //
};

impl Carrier for LinkGroup {
    type Lease = slab::Lease;

    fn device(&self) -> &Arc<Device> {
        self.device()
    }

    fn extensions(&self) -> Extensions {
        self.extensions()
    }

    #[inline]
    fn send_due(self: &Arc<Self>, conn: &Arc<SmcConn>) -> Actions {
        LinkGroup::send_due(self, conn)
    }

    fn take_spare(&self, size: usize) -> Option<Arc<Region>> {
        self.take_spare(size)
    }

    fn keep_spare(&self, ring: &Arc<Region>) {
        self.keep_spare(ring);
    }

    fn install_ring(&self, conn: &SmcConn, ring: &Arc<Region>) -> bool {
        self.install_ring(conn, ring)
    }

    fn remove_ring(&self, conn: &SmcConn) -> Option<Arc<Region>> {
        self.remove_ring(conn)
    }

    fn feed_later(&self) {
        self.feed_later();
    }

    fn look_later(&self) {
        self.look_later();
    }

    fn remove_conn(self: &Arc<Self>, conn: &Arc<SmcConn>) -> Option<Arc<Region>> {
        LinkGroup::remove_conn(self, conn)
    }

    fn shed_drain(&self) -> bool {
        self.owner.shed_drain(self.peer_addr.namespace)
    }

    fn spoil(self: &Arc<Self>) {
        LinkGroup::spoil(self);
    }

    fn tell_breach(&self, error: ProtoError) {
        self.tell_breach(error);
    }
}
