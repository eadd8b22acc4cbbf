// SPDX-License-Identifier: GPL-2.0

//! State of a network namespace: settings, counters, SYN hooks, UEIDs and PNET IDs.

use crate::host::{
    convert,
    counters::Counters,
    eid::Eids,
    learned::Learned,
    peer_cache::PeerCache,
    pnet::Pnets,
    rules::Rules,
    stats::Stats,
    syn_hooks::SynHooks,
    sysctl::{Sysctl, Sysctls}, //
};
use kapi::{
    net::{
        netns::{self, Net, PerNet},
        sock::Sock,
        sockaddr::SockAddr, //
    },
    sys::host::{self, memory_pages}, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use smc_proto::{peer_cache::Event, time::Span};

/// Lengths of a link's work queues, as far as the device allows. By default the peer's receive
/// queue holds whatever we may send at a time.
#[derive(Clone, Copy)]
pub(crate) struct Queues {
    /// Most messages, with the data before them, under way at a time.
    pub(crate) send: u16,
    /// Most messages that the peer may have under way.
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
    /// Held while a connection's statistics move to `counters`, and while both are added up.
    #[pin]
    pub(crate) settling: Mutex<()>,
    /// Number of closed connections with data left for the peer.
    draining: Atomic<i32>,
    /// Total number of drains begun, which numbers the next one.
    drains_begun: Atomic<u64>,
    pub(crate) sysctls: Sysctls,
    /// The initial namespace, if this is another one.
    outer: Option<Arc<Namespace>>,
    /// The UEIDs, of which only those of the initial namespace are used.
    #[pin]
    pub(crate) eids: Eids,
    #[pin]
    pub(crate) pnets: Pnets,
    /// Which TCP sockets become SMC's.
    #[pin]
    pub(crate) rules: Rules,
    /// Lessons of rules with `auto`.
    #[pin]
    pub(crate) learned: Learned,
    /// Peers to which no option is sent, or with which no link is begun.
    #[pin]
    pub(crate) peer_cache: PeerCache,
    /// True for the namespace that the system booted with.
    initial: bool,
    /// In another one: the machine's name as the last task knew it that connected or listened.
    #[pin]
    name: SpinLock<host::Name>,
}

impl Namespace {
    /// Returns the state of the namespace that `sock` is in.
    pub(crate) fn of(sock: &Sock) -> Option<Arc<Self>> {
        netns::Registration::<Self>::at(sock.namespace())
    }

    /// Returns the state of `net`.
    pub(crate) fn at(net: &Net) -> Option<Arc<Self>> {
        netns::Registration::<Self>::at(net)
    }

    /// Adds a connection's statistics, when it or its socket goes.
    pub(crate) fn settle(&self, stats: &Stats) {
        let _settling = self.settling.lock();
        self.counters.stats.absorb(stats);
    }

    /// Takes note of what has become of the connection of `sock`, which this host has begun, or of its link, whoever has;
    /// of the address that its program has `named`, too, if that is another one. May sleep.
    ///
    /// Nothing is learned of this machine's own addresses: its kernel bears the option, and any of its users could
    /// make it seem otherwise.
    pub(crate) fn heard(&self, sock: &Sock, named: Option<SockAddr>, event: Event) {
        if event.forgives() && self.peer_cache.is_empty() || sock.is_of_this_machine() {
            return;
        }
        for peer in [Some(sock.peer_addr()), named].into_iter().flatten() {
            self.peer_cache
                .note(&self.sysctls, sock.namespace(), &peer, event);
        }
    }

    /// Returns whether no link is to be begun now for the connection of `sock`, which the peer has begun.
    pub(crate) fn keeps_links_off(&self, sock: &Sock) -> bool {
        let peer = sock.peer_addr();
        self.peer_cache
            .keeps_links_off(&self.sysctls, sock.namespace(), &peer)
    }

    /// Returns the size up to which rings of local paths grow, in bytes: `path_ring`. Who may set that of this namespace
    /// alone can only lower it.
    pub(crate) fn ring_limit(&self) -> usize {
        usize::try_from(self.lowest(Sysctl::PathRing)).unwrap_or(0)
    }

    /// Returns after how many data segments a connection with another host is worth promoting to SMC-R: `path_promote`; 0
    /// for never.
    pub(crate) fn promotes_after(&self) -> u32 {
        u32::try_from(self.sysctls.get(Sysctl::PathPromote)).unwrap_or(0)
    }

    /// Returns how many bytes one user may have of rings on local paths and of those that have grown: `path_user_pages`,
    /// as above.
    pub(crate) fn user_limit(&self) -> u64 {
        let of = |namespace: &Self| match namespace.sysctls.get(Sysctl::PathUserPages) {
            0 => memory_pages() / 16,
            pages => usize::try_from(pages).unwrap_or(0),
        };
        let pages = self
            .outer
            .iter()
            .map(|outer| of(outer))
            .fold(of(self), usize::min);
        pages.saturating_mul(PAGE_SIZE) as u64
    }

    fn lowest(&self, which: Sysctl) -> i32 {
        let own = self.sysctls.get(which);
        let outer = self.outer.as_ref();
        outer.map_or(own, |outer| own.min(outer.sysctls.get(which)))
    }

    /// Returns the state of the namespace that the system booted with.
    pub(crate) fn initial() -> Option<Arc<Self>> {
        netns::Registration::<Self>::initial()
    }
}

impl Namespace {
    /// Returns the idle time before a link is tested, in seconds.
    pub(crate) fn testlink_seconds(&self) -> u64 {
        u64::try_from(self.sysctls.get(Sysctl::TestlinkTime)).unwrap_or(0)
    }

    /// Returns the time that a closed connection waits for a peer that takes no data.
    pub(crate) fn drain_idle(&self) -> Span {
        Span::from_secs(u64::try_from(self.sysctls.get(Sysctl::DrainTime)).unwrap_or(0))
    }

    /// Counts one more closed connection with data left for its peer. Returns its number, and false if
    /// that exceeds the sysctl `max_drains`: then another one has to go.
    pub(crate) fn begin_drain(&self) -> (u64, bool) {
        let before = self.draining.fetch_add(1, Relaxed);
        let number = self.drains_begun.fetch_add(1, Relaxed).wrapping_add(1);
        (number, before < self.sysctls.get(Sysctl::MaxDrains))
    }

    /// Takes back a count of [`Namespace::begin_drain`].
    pub(crate) fn end_drain(&self) {
        self.draining.fetch_sub(1, Relaxed);
    }

    /// Makes sure that the SYN hooks are registered, for `sock`; `first` says that this socket was
    /// not counted as a user of them yet. It is from now on, whatever the result, until
    /// [`Namespace::unhook`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub(crate) fn hook(&self, sock: &Sock, first: bool) -> Result {
        if first && !self.initial {
            let name = host::name_for_task();
            *self.name.lock() = name;
        }
        self.hooks.hook(sock, first)
    }

    /// Returns the machine's name, as peers of the namespace's sockets may know it: a container's own, if it has one.
    pub(crate) fn host_name(&self) -> host::Name {
        if self.initial {
            return host::name();
        }
        *self.name.lock()
    }

    /// Takes back the count of [`Namespace::hook`], at the end of a socket.
    pub(crate) fn unhook(&self) {
        let idle = u32::try_from(self.sysctls.get(Sysctl::HookIdle)).unwrap_or(0);
        self.hooks.unhook(idle);
    }

    /// Returns the lengths of a link's work queues.
    pub(crate) fn queues(&self) -> Queues {
        let get = |which| u16::try_from(self.sysctls.get(which)).unwrap_or(u16::MAX);
        Queues {
            send: get(Sysctl::MaxSendWr),
            recv: get(Sysctl::MaxRecvWr),
        }
    }

    /// Returns the sizes to which receive and send buffers may grow, in bytes; limits as [`Namespace::ring_limit`].
    pub(crate) fn most_buffers(&self) -> (u32, u32) {
        let get = |which| u32::try_from(self.lowest(which)).unwrap_or(0);
        (get(Sysctl::RmemMax), get(Sysctl::WmemMax))
    }

    /// Returns the default sizes of receive and send buffers, and the limit of autocorking, in
    /// bytes.
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
                // The first of all has none yet.
                outer: Self::initial(),
                eids <- Eids::new(),
                pnets <- Pnets::new(),
                rules <- Rules::new(),
                learned <- Learned::new(),
                peer_cache <- PeerCache::new(),
                initial: net.is_initial(),
                name <- new_spinlock!(host::Name::NONE, "rsmc::Namespace::name"),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn exit(this: &Arc<Self>) {
        this.sysctls.remove();
        convert::leave(this.sysctls.get(Sysctl::Tcp2Smc));
        this.hooks.end();
    }
}
