// SPDX-License-Identifier: GPL-2.0

//! rsmc: the SMC socket family.
//!
//! This crate has the policy: which sockets speak SMC, what they send to a peer, when they fall
//! back, and what they report to user space. It has no `unsafe` (the `kapi` crate has it) and no
//! byte layouts (the `smc_proto` crate has them).
//!
//! An SMC socket is a TCP socket with another operations table (see `kapi::net::overlay`). A client
//! starts in `socket/connect.rs`, a server in `socket/listen.rs`; both end in SMC or in plain TCP.

#![forbid(unsafe_code)]

use kapi::{
    net::{diag, family, genl, netns, sock::GivenBack, uapi::AF_SMC},
    rdma::client::Client,
    sys::{global, queue, shrinker}, //
};
use kernel::{prelude::*, sync::Arc};

// From the highest floor to the lowest; `FLOORS` has the order, and `make check` holds every import to
// it.
mod report;

mod entry;

mod socket;

mod handshake;

mod stream;

mod smcr;

mod host;

use entry::overlay::Smc;
use handshake::gates::{Gates, GATES};
use host::{
    convert::{self, Terms},
    namespace::Namespace,
    syn_option, tcp2smc,
};
use report::{netlink, sock_diag::Diag};
use smcr::{registry::Hotplug, SmcrRegistry, SMCR};
use socket::{
    Candidates,
    Closing,
    Dialer,
    Orphanage,
    Registry,
    CANDIDATES,
    CLOSINGS,
    DIALERS, //
};
use stream::local::{Rendezvous, RENDEZVOUS};

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
        "net-pf-16-proto-16-family-RSMC_POLICY",
    ],
}

/// Protocol number of SMC within `AF_INET` and `AF_INET6`.
const IPPROTO_SMC: u16 = 256;

/// Protocol number by which sockets are made whose programs have asked for TCP; see `host/convert.rs`. It
/// belongs to nobody. Programs see [`libc`'s `IPPROTO_TCP`](kernel::bindings), as with all our sockets.
const IPPROTO_CONVERTED: u16 = 257;

static NAMES: family::Names = family::Names {
    family: AF_SMC,
    family_protocols: [0, 1],
    inet_protocol: IPPROTO_SMC,
    converted_protocol: IPPROTO_CONVERTED,
    rows: [c"SMC", c"SMC6", c"INET_SMC", c"INET6_SMC"],
};

/// State of the loaded module. Fields are dropped in this order: first no more sockets can be made,
/// then the work of those that existed ends, then the namespaces are left.
struct Rsmc {
    _converter: convert::Registration,
    _family: Pin<KBox<family::Registration<Smc>>>,
    _dialers: Orphanage<Dialer>,
    _closings: Orphanage<Closing>,
    _shrinker: shrinker::Registration<SmcrRegistry>,
    _netlink: Pin<KBox<genl::Registration<netlink::General>>>,
    _pnet: Pin<KBox<genl::Registration<netlink::Pnet>>>,
    _policy: Pin<KBox<genl::Registration<netlink::Policy>>>,
    _diag: Pin<KBox<diag::Registration<Diag>>>,
    _devices: Client,
    _gates: global::Guard<Gates>,
    _registry: global::Guard<SmcrRegistry>,
    _rendezvous: global::Guard<Rendezvous>,
    _candidates: global::Guard<Candidates>,
    _rings: stream::local::Registration,
    _queue: queue::Registration,
    _sockets: Pin<KBox<netns::Registration<Registry>>>,
    _namespaces: Pin<KBox<netns::Registration<Namespace>>>,
    _socks: GivenBack,
}

impl Rsmc {
    fn load(module: &'static ThisModule) -> Result<Self> {
        // The first steps: if the in-tree module is there, the kernel says so without a line of its own.
        let netlink = genl::Registration::new(module)?;
        let pnet = genl::Registration::new(module)?;
        let policy = genl::Registration::new(module)?;
        let namespaces = netns::Registration::new()?;
        let sockets = netns::Registration::new()?;
        let queue = queue::Registration::new(c"rsmc", c"rsmc_deadlines")?;
        let registry = SmcrRegistry::new()?;
        let installed = SMCR.install(registry.clone())?;
        let rendezvous = RENDEZVOUS.install(Rendezvous::new()?)?;
        let candidates = CANDIDATES.install(Candidates::new()?)?;
        let dialers = Orphanage::open(&DIALERS)?;
        let closings = Orphanage::open(&CLOSINGS)?;
        let rings = stream::local::Registration::new()?;
        syn_option::draw_secret();
        let gates = GATES.install(Gates::new(registry.clone())?)?;
        let devices = Arc::new(Hotplug(registry.clone()), GFP_KERNEL)?;
        let devices = Client::register(c"rsmc", devices)?;
        let diag = diag::Registration::new(module)?;
        let shrinker = shrinker::Registration::new(c"rsmc", registry)?;
        let mut converter = convert::Registration::new(Terms {
            decide: tcp2smc::decide,
            idle: tcp2smc::idle,
        })?;
        // The last step that can fail: a socket made before a later one fails would hold a reference to
        // the module, which is not waited for.
        let family = family::Registration::new(module, &NAMES)?;
        converter.install()?;
        Ok(Self {
            _converter: converter,
            _family: family,
            _dialers: dialers,
            _closings: closings,
            _shrinker: shrinker,
            _netlink: netlink,
            _pnet: pnet,
            _policy: policy,
            _diag: diag,
            _devices: devices,
            _gates: gates,
            _registry: installed,
            _rendezvous: rendezvous,
            _candidates: candidates,
            _rings: rings,
            _queue: queue,
            _sockets: sockets,
            _namespaces: namespaces,
            _socks: GivenBack::new(),
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
