// SPDX-License-Identifier: GPL-2.0

//! What each network namespace has: the SYN hooks, its sockets, counters, settings.

use crate::{
    conn::SmcConn,
    counters::Counters,
    eid::{self, Eids},
    group::Queues,
    hooks::SynHooks,
    pnet::Pnets,
    registry::Registry,
    shared::Core,
    socket::Socket,
    stats::Total,
    sysctl::{Sysctl, Sysctls}, //
};
use kapi::{
    net::{
        netns::{self, Net, PerNet},
        procfs::{File, Show},
        sock::Sock, //
    },
    sys::{host, roster}, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    seq_file::SeqFile,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex, //
    },
    workqueue::Work, //
};
use smc_proto::{
    handshake::Policy,
    time::Span,
    wire::clc::{Eid, Extensions}, //
};

/// The state of a network namespace.
#[pin_data]
pub(crate) struct Namespace {
    /// The SYN hooks. A namespace without SMC sockets has none, and its packets pass as if the
    /// module were not there.
    #[pin]
    pub(crate) hooks: SynHooks,
    /// For `hooks`.
    #[pin]
    work: Work<Namespace>,
    #[pin]
    pub(crate) counters: Counters,
    /// Held by who gives a connection's statistics to `counters`, and by who adds up both.
    #[pin]
    settling: Mutex<()>,
    /// Connections whose program has gone and whose data has not.
    draining: Atomic<i32>,
    /// How many there have been.
    drains_begun: Atomic<u64>,
    /// The sockets that `sock_diag` shows.
    pub(crate) sockets: Registry,
    pub(crate) sysctls: Sysctls,
    /// The UEIDs, of which only those of the initial namespace are used.
    #[pin]
    pub(crate) eids: Eids,
    #[pin]
    pub(crate) pnets: Pnets,
    /// `/proc/net/smc_fallback`, until the namespace ends.
    #[pin]
    proc: Mutex<Option<File<Namespace>>>,
}

impl_has_work! {
    impl HasWork<Self> for Namespace { self.work }
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

    /// What has been counted here and in the connections that live.
    pub(crate) fn total(&self) -> Total {
        let _settling = self.settling.lock();
        let mut total = Total::new();
        total.add(&self.counters.stats);
        self.each_socket(|socket| {
            if let Some(conn) = socket.smc() {
                total.add(conn.stats());
            }
        });
        total
    }

    /// Calls `f` for every socket on the list, outside of its locks.
    fn each_socket(&self, mut f: impl FnMut(&Socket)) {
        let mut position = roster::Position::default();
        let mut members: roster::Members<Socket> = [const { None }; roster::BATCH];
        while self.sockets.next(&mut position, &mut members) != 0 {
            for (_, socket) in members.iter_mut().map_while(Option::take) {
                f(&socket);
            }
        }
    }

    /// Keeps what a connection has counted, when it or its socket goes.
    pub(crate) fn settle(&self, conn: &SmcConn) {
        let _settling = self.settling.lock();
        self.counters.stats.absorb(conn.stats());
    }

    /// Bytes that TCP has sent and received for sockets that are not SMC connections; those of a socket
    /// that is just being closed may be missing.
    pub(crate) fn tcp_bytes(&self) -> [u64; 2] {
        let mut bytes = self.counters.tcp_bytes();
        self.each_socket(|socket| {
            if socket.smc().is_none() {
                let (sent, received) = socket.sock.stream_bytes();
                bytes = [bytes[0].wrapping_add(sent), bytes[1].wrapping_add(received)];
            }
        });
        bytes
    }

    /// Takes a socket off the list, and keeps what its connection has counted: whoever adds up finds it
    /// in one of the two places.
    pub(crate) fn part(&self, socket: &Socket) {
        // The usual case of a fallback.
        let Some(conn) = socket.smc() else {
            self.sockets.leave(socket);
            return self.counters.add_tcp_bytes(socket.sock.stream_bytes());
        };
        let _settling = self.settling.lock();
        self.sockets.leave(socket);
        self.counters.stats.absorb(conn.stats());
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

    /// Counts one more closed connection that has data for its peer. Returns its number, and false if that
    /// is one too many: then another one has to go.
    pub(crate) fn begin_drain(&self) -> (u64, bool) {
        let before = self.draining.fetch_add(1, Relaxed);
        let number = self.drains_begun.fetch_add(1, Relaxed).wrapping_add(1);
        (number, before < self.sysctls.get(Sysctl::MaxDrains))
    }

    /// Counts one less.
    pub(crate) fn end_drain(&self) {
        self.draining.fetch_sub(1, Relaxed);
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

/// Most EIDs that a proposal names.
const EIDS: usize = 8;

/// What this host offers and accepts in a handshake over `sock`.
pub(crate) fn policy(core: &Core, sock: &Sock) -> Policy {
    let mut policy = Policy::new(core.peer_id, host::name().text());
    let mut eids = [Eid::NONE; EIDS];
    let mut count = 0usize;
    for (place, eid) in eids.iter_mut().zip(eid::offered()) {
        *place = eid;
        count = count.saturating_add(1);
    }
    policy.set_eids(eids.get(..count).unwrap_or(&[]));
    if let Some(namespace) = Namespace::of(sock) {
        let most = namespace.sysctls.get(Sysctl::MaxConns);
        policy.max_conns = u8::try_from(most).unwrap_or(u8::MAX);
        if namespace.sysctls.get(Sysctl::Immediate) == 0 {
            policy.extensions = Extensions::NONE;
        }
    }
    policy
}

impl PerNet for Namespace {
    fn new(net: &Net) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                hooks <- SynHooks::new(),
                work <- new_work!("rsmc::Namespace::work"),
                counters <- Counters::new(),
                settling <- new_mutex!((), "rsmc::Namespace::settling"),
                draining: Atomic::new(0),
                drains_begun: Atomic::new(0),
                sockets: Registry::new()?,
                sysctls: Sysctls::new(net)?,
                eids <- Eids::new(),
                pnets <- Pnets::new(),
                proc <- new_mutex!(Some(File::new(net, c"smc_fallback")?), "rsmc::namespace::proc"),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn exit(this: &Arc<Self>) {
        let proc = this.proc.lock().take();
        drop(proc);
        this.sysctls.remove();
        this.hooks.end();
    }
}

impl Show for Namespace {
    fn show(&self, out: &SeqFile) {
        self.counters.show(self.tcp_bytes(), out);
    }
}
