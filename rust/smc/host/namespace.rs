// SPDX-License-Identifier: GPL-2.0

//! A network namespace: its settings, its counters, and what the administrator has said of it.

use crate::host::{
    counters::Counters,
    eid::Eids,
    pnet::Pnets,
    stats::Stats,
    syn_hooks::SynHooks,
    sysctl::{Sysctl, Sysctls}, //
};
use kapi::net::{
    netns::{self, Net, PerNet},
    sock::Sock, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex, //
    }, //
};
use smc_proto::time::Span;

/// Lengths of the queues of a link; both end where the device's do. By default the peer's receive
/// queue holds whatever we may send at a time.
#[derive(Clone, Copy)]
pub(crate) struct Queues {
    /// Messages, with the data before them, that may be under way at a time.
    pub(crate) send: u16,
    /// Messages that the peer may have under way.
    pub(crate) recv: u16,
}

/// The state of a network namespace.
#[pin_data]
pub(crate) struct Namespace {
    /// The SYN hooks. A namespace without SMC sockets has none, and its packets pass as if the
    /// module were not there.
    pub(crate) hooks: Arc<SynHooks>,
    #[pin]
    pub(crate) counters: Counters,
    /// Held by the one that gives a connection's statistics to `counters`, and by the one that adds up
    /// both.
    #[pin]
    pub(crate) settling: Mutex<()>,
    /// Connections whose program has gone and whose data has not.
    draining: Atomic<i32>,
    /// The number of all that there have been.
    drains_begun: Atomic<u64>,
    pub(crate) sysctls: Sysctls,
    /// The UEIDs, of which only those of the initial namespace are used.
    #[pin]
    pub(crate) eids: Eids,
    #[pin]
    pub(crate) pnets: Pnets,
}

impl Namespace {
    /// The namespace that `sock` is in.
    pub(crate) fn of(sock: &Sock) -> Option<Arc<Self>> {
        netns::Registration::<Self>::of(sock)
    }

    /// The namespace `net`.
    pub(crate) fn at(net: &Net) -> Option<Arc<Self>> {
        netns::Registration::<Self>::at(net)
    }

    /// Keeps what a connection has counted, when it or its socket goes.
    pub(crate) fn settle(&self, stats: &Stats) {
        let _settling = self.settling.lock();
        self.counters.stats.absorb(stats);
    }

    /// The namespace that the system booted with.
    pub(crate) fn initial() -> Option<Arc<Self>> {
        netns::Registration::<Self>::initial()
    }
}

impl Namespace {
    /// Idle time before a link is tested, in seconds.
    pub(crate) fn testlink_seconds(&self) -> u64 {
        u64::try_from(self.sysctls.get(Sysctl::TestlinkTime)).unwrap_or(0)
    }

    /// How long a closed connection waits for a peer that takes nothing.
    pub(crate) fn drain_idle(&self) -> Span {
        Span::from_secs(u64::try_from(self.sysctls.get(Sysctl::DrainTime)).unwrap_or(0))
    }

    /// Counts one more closed connection that has data for its peer. Returns its number, and false if
    /// that is one too many: then another one has to go.
    pub(crate) fn begin_drain(&self) -> (u64, bool) {
        let before = self.draining.fetch_add(1, Relaxed);
        let number = self.drains_begun.fetch_add(1, Relaxed).wrapping_add(1);
        (number, before < self.sysctls.get(Sysctl::MaxDrains))
    }

    /// Counts one less.
    pub(crate) fn end_drain(&self) {
        self.draining.fetch_sub(1, Relaxed);
    }

    /// Puts the SYN hooks in place for `sock`; `first` says that this socket did not count yet. It
    /// does from now on, whatever the result, until [`Namespace::unhook`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub(crate) fn hook(&self, sock: &Sock, first: bool) -> Result {
        self.hooks.hook(sock, first)
    }

    /// The end of a socket that [`Namespace::hook`] has counted.
    pub(crate) fn unhook(&self) {
        let idle = u32::try_from(self.sysctls.get(Sysctl::HookIdle)).unwrap_or(0);
        self.hooks.unhook(idle);
    }

    /// How long the queues of a link are.
    pub(crate) fn queues(&self) -> Queues {
        let get = |which| u16::try_from(self.sysctls.get(which)).unwrap_or(u16::MAX);
        Queues {
            send: get(Sysctl::MaxSendWr),
            recv: get(Sysctl::MaxRecvWr),
        }
    }

    /// Sizes of receive and send buffers, and the limit of autocorking, in bytes.
    pub(crate) fn buffers(&self) -> (u32, u32, u32) {
        let get = |which| u32::try_from(self.sysctls.get(which)).unwrap_or(0);
        (
            get(Sysctl::Rmem),
            get(Sysctl::Wmem),
            self.sysctls.get(Sysctl::AutocorkingSize) as u32,
        )
    }
}

impl PerNet for Namespace {
    fn slot() -> &'static netns::Slot {
        static SLOT: netns::Slot = netns::Slot::new();
        &SLOT
    }

    fn new(net: &Net) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                hooks: SynHooks::new()?,
                counters <- Counters::new(),
                settling <- new_mutex!((), "rsmc::Namespace::settling"),
                draining: Atomic::new(0),
                drains_begun: Atomic::new(0),
                sysctls: Sysctls::new(net)?,
                eids <- Eids::new(),
                pnets <- Pnets::new(),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn exit(this: &Arc<Self>) {
        this.sysctls.remove();
        this.hooks.end();
    }
}
