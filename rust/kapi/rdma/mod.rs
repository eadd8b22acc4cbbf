// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs, for a reliable connected transport between kernels.
//!
//! Holds devices, GID tables, protection domains, memory, queue pairs and next-hop resolution,
//! wrapped so that the crate above needs no `unsafe`, and nothing that knows a protocol.
//!
//! Ownership (an arrow is an `Arc` or a count, so what it points at dies later):
//!
//! ```text
//! Qp -> Channel -> { Queues, Pd, message buffers } -> Device
//! Mr -> { Pd, Region }                         -> Device
//! Region -> { pages, DmaMap -> Device }
//! ```
//!
//! Every object that the device knows holds a [`device::DeviceUse`]. When the device goes away the
//! RDMA core calls our `remove`; that calls [`client::ClientOps::remove`], where users close their
//! queue pairs and revoke their memory, and then waits until the last use is gone. A user that
//! forgets one blocks the removal; it never makes the kernel touch freed memory.
//!
//! Handles may be dropped in any context, softirq included: what must sleep to be destroyed is
//! destroyed by a workqueue of the client (`reap`).
//!
//! A connection from beginning to end:
//!
//! ```ignore
//! let gid = device.find_gid(1, |gid| gid.kind() == GidKind::RoceV2 && gid.ipv4().is_some())?;
//! let pd = Pd::new(&device)?;
//! let qp = Qp::new(&pd, handler, Config::default())?.init(1)?; // receives are posted now
//! let slab = Region::new(&device, 1 << 19, Direction::FromDevice)?;
//! let mr = Mr::new(&pd, slab, Access::RemoteWrite)?; // tell the peer mr.addr(), mr.rkey()
//! let hop = route::resolve(net, &gid.gid(), &peer_gid, Via { ifindex, mark: 0 }, 1000)?;
//! let qp = qp.ready_to_receive(&Path { dmac: hop.mac, .. })?;
//! let qp = qp.ready_to_send()?;
//! qp.channel().register(&mr)?; // the key works from here
//! qp.channel().post(token, [Write { from: Source::Region(&ring), .. }], &message)?;
//! qp.close(); // or drop it, in any context
//! mr.revoke(); // the bytes can still be read
//! ```
//!
//! Locks, outer first: `Mr::raw` (mutex), `Channel::resources` (mutex); apart from these
//! `Channel::sq`, `Region::map` (spinlocks, bottom halves off), and `Channel::rq`. Handlers are
//! called by NAPI (`cq`), without any of them. [`client::ClientOps`] are called with locks of the
//! RDMA core held.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/ib_cache.h`](srctree/include/rdma/ib_cache.h)

mod callback;
pub mod channel;
pub mod client;
pub mod completion;
pub mod config;
mod cq;
pub mod device;
pub mod dma;
pub mod gid;
pub mod mr;
pub mod netns;
pub mod pages;
pub mod pd;
pub mod qp;
mod reap;
pub mod region;
pub mod ring;
pub mod route;
mod rq;
mod sq;
pub mod wr;
