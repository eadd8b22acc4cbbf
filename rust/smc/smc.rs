// SPDX-License-Identifier: GPL-2.0

//! rsmc: the SMC socket family.
//!
//! What lives here: policy. Which sockets speak SMC, what they say to a peer, when they give up,
//! and what user space is told. What may not: `unsafe` (the `kapi` crate has it) and byte layouts
//! (the `smc_proto` crate has them).
//!
//! An SMC socket is a TCP socket with another operations table (see `kapi::net::overlay`). A client
//! starts in `connect`, a server in `listen`; both end in SMC or in `fallback`.

#![forbid(unsafe_code)]

use kapi::{
    net::{diag, family, genl, netns},
    rdma::client::Client,
    sys::{global, queue, shrinker}, //
};
use kernel::{prelude::*, sync::Arc};

mod attempt;
mod child;
mod clc;
mod conn;
mod connect;

mod counters;
mod crossing;
mod data;
mod eid;
mod fallback;
mod fifo;
mod first_contact;
mod group;
mod hooks;
mod listen;
mod local;
mod namespace;
mod netlink;
mod option;
mod overlay;
mod pnet;
mod read_mostly;
mod registry;
mod shared;
mod slab;
mod sock_diag;
mod socket;
mod sockopt;
mod stats;
mod strict;
mod sysctl;
mod talk;
mod text;

module! {
    type: Rsmc,
    name: "rsmc",
    authors: ["The rsmc project"],
    description: "SMC: sockets over RDMA, wire-compatible with net/smc",
    license: "GPL",
    alias: [
        "net-pf-43",
        "net-pf-2-proto-256-type-1",
        "net-pf-10-proto-256-type-1",
        "net-pf-16-proto-4-type-43",
        "net-pf-16-proto-16-family-SMC_GEN_NETLINK",
        "net-pf-16-proto-16-family-SMC_PNETID",
    ],
}

/// Protocol number of SMC within `AF_INET` and `AF_INET6`.
const IPPROTO_SMC: u16 = 256;

static NAMES: family::Names = family::Names {
    family: family::AF_SMC,
    family_protocols: [0, 1],
    inet_protocol: IPPROTO_SMC,
    rows: [c"SMC", c"SMC6", c"INET_SMC", c"INET6_SMC"],
};

/// What the loaded module holds. Fields are dropped in this order: first nobody can make sockets
/// any more, then the work of those that existed ends, then the namespaces are left.
struct Rsmc {
    _family: Pin<KBox<family::Registration<overlay::Smc>>>,
    _shrinker: shrinker::Registration<shared::Core>,
    _netlink: Pin<KBox<genl::Registration<netlink::General>>>,
    _pnet: Pin<KBox<genl::Registration<netlink::Pnet>>>,
    _diag: Pin<KBox<diag::Registration<sock_diag::Diag>>>,
    _devices: Client,
    _core: global::Guard<shared::Core>,
    _queue: queue::Registration,
    _namespaces: Pin<KBox<netns::Registration<namespace::Namespace>>>,
}

impl Rsmc {
    fn load(module: &'static ThisModule) -> Result<Self> {
        // The first steps: if the in-tree module is there, the kernel says so without a line of its own.
        let netlink = genl::Registration::new(module)?;
        let pnet = genl::Registration::new(module)?;
        let namespaces = netns::Registration::new()?;
        let queue = queue::Registration::new(c"rsmc")?;
        let hub = shared::Core::new()?;
        let core = shared::CORE.install(hub.clone())?;
        let devices = Arc::new(shared::Devices(hub.clone()), GFP_KERNEL)?;
        let devices = Client::register(c"rsmc", devices)?;
        let diag = diag::Registration::new(module)?;
        let shrinker = shrinker::Registration::new(c"rsmc", hub)?;
        // The last step: a socket made before a later one fails would hold a reference to the
        // module, for which nobody waits.
        let family = family::Registration::new(module, &NAMES)?;
        Ok(Self {
            _family: family,
            _shrinker: shrinker,
            _netlink: netlink,
            _pnet: pnet,
            _diag: diag,
            _devices: devices,
            _core: core,
            _queue: queue,
            _namespaces: namespaces,
        })
    }
}

impl kernel::Module for Rsmc {
    fn init(module: &'static ThisModule) -> Result<Self> {
        Self::load(module).inspect_err(|&err| {
            if err == EEXIST {
                pr_err!("AF_SMC is taken by the in-tree module smc: modprobe -r smc_diag smc\n");
            }
        })
    }
}
