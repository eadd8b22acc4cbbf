// SPDX-License-Identifier: GPL-2.0

//! A namespace's SMC sockets, which `sock_diag` shows, and `/proc/net/smc_fallback`.
//!
//! A socket joins when it is used for the first time (bind, connect, listen, an option, data, accept):
//! until then it differs from a TCP socket in nothing but its operations table, and the family has
//! no memory for it. It leaves when its file is closed.

use super::SmcSock;
use crate::host::{namespace::Namespace, stats::Total, sysctl::Sysctl};
use kapi::{
    net::{
        netns::{self, Net, PerNet},
        procfs::{File, Show},
        sock::Sock,
        socket::BsdSocket, //
    },
    sys::roster, //
};
use kernel::{
    new_mutex,
    prelude::*,
    seq_file::SeqFile,
    sync::{
        atomic::Relaxed,
        Arc,
        Mutex, //
    }, //
};

/// The list of a namespace's sockets.
pub(crate) type Roster = roster::Roster<SmcSock>;

kapi::member! {
    impl Member for SmcSock { self.link }
}

/// The sockets of a namespace.
#[pin_data]
pub(crate) struct Registry {
    /// Settings and counters.
    pub(crate) namespace: Arc<Namespace>,
    /// The sockets that `sock_diag` shows.
    pub(crate) list: Roster,
    /// `/proc/net/smc_fallback`, until the namespace ends.
    #[pin]
    proc: Mutex<Option<File<Registry>>>,
}

impl Registry {
    /// Returns the registry of the namespace that `sock` is in.
    pub(crate) fn of(sock: &Sock) -> Option<Arc<Self>> {
        netns::Registration::<Self>::of(sock)
    }

    /// Returns the registry of `net`.
    pub(crate) fn at(net: &Net) -> Option<Arc<Self>> {
        netns::Registration::<Self>::at(net)
    }

    /// Returns the sum of the statistics of the namespace and of its live connections.
    pub(crate) fn total(&self) -> Total {
        let _settling = self.namespace.settling.lock();
        let mut total = Total::new();
        total.add(&self.namespace.counters.stats);
        self.each_socket(|socket| {
            if let Some(conn) = socket.smc() {
                total.add(conn.stats());
            }
            if let Some(local) = socket.local() {
                local.add_to(&mut total);
            }
        });
        total
    }

    /// Calls `f` for every socket on the list, outside of its locks.
    fn each_socket(&self, mut f: impl FnMut(&SmcSock)) {
        let mut position = roster::Position::default();
        let mut members: roster::Members<SmcSock> = [const { None }; roster::BATCH];
        while self.list.next(&mut position, &mut members) != 0 {
            for (_, socket) in members.iter_mut().map_while(Option::take) {
                f(&socket);
            }
        }
    }

    /// Returns the bytes that TCP has sent and received for sockets that are not SMC connections;
    /// those of a socket that is just being closed may be missing.
    pub(crate) fn tcp_bytes(&self) -> [u64; 2] {
        let mut bytes = self.namespace.counters.tcp_bytes();
        self.each_socket(|socket| {
            if socket.smc().is_none() {
                let (sent, received) = socket.sock.stream_bytes();
                bytes = [bytes[0].wrapping_add(sent), bytes[1].wrapping_add(received)];
            }
        });
        bytes
    }

    /// Takes a socket off the list, and adds its connection's statistics to the namespace's: a sum
    /// finds them in one of the two places.
    fn part(&self, socket: &SmcSock) {
        let counters = &self.namespace.counters;
        // The usual case of a fallback.
        let Some(conn) = socket.smc() else {
            self.list.leave(socket);
            return counters.add_tcp_bytes(socket.sock.stream_bytes());
        };
        let _settling = self.namespace.settling.lock();
        self.list.leave(socket);
        counters.stats.absorb(conn.stats());
    }
}

impl SmcSock {
    /// Adds the socket, which has become `file`'s, to the list.
    pub(crate) fn attached(self: &Arc<Self>, file: &BsdSocket) {
        self.own_family
            .store(u32::from(file.is_own_family()), Relaxed);
        if let Some(sockets) = &self.sockets {
            sockets.list.join(self);
        }
    }

    /// Takes the socket off the list: its file is being closed.
    pub(crate) fn detached(&self) {
        if let Some(sockets) = &self.sockets {
            sockets.part(self);
        }
    }
}

impl PerNet for Registry {
    fn slot() -> &'static netns::Slot {
        static SLOT: netns::Slot = netns::Slot::new();
        &SLOT
    }

    fn new(net: &Net) -> Result<Arc<Self>> {
        // It was registered before.
        let namespace = Namespace::at(net).ok_or(ENODEV)?;
        Arc::pin_init(
            try_pin_init!(Self {
                namespace,
                list: Roster::new()?,
                proc <- new_mutex!(Some(File::new(net, c"smc_fallback")?), "rsmc::Registry::proc"),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn exit(this: &Arc<Self>) {
        let proc = this.proc.lock().take();
        drop(proc);
    }
}

impl Show for Registry {
    fn show(&self, out: &SeqFile, admin: bool) {
        self.namespace.counters.show(self.tcp_bytes(), out);
        if !admin {
            // Who has talked to whom is nobody else's business once the sockets are gone.
            return;
        }
        self.namespace.counters.show_peers(out);
        if self.namespace.sysctls.get(Sysctl::NeighbourTime) != 0 {
            self.namespace.neighbours.show(out);
        }
    }
}
