// SPDX-License-Identifier: GPL-2.0

//! A namespace's SMC sockets, which `sock_diag` shows, and `/proc/net/smc_fallback`.
//!
//! A socket joins when it is used for the first time (bind, connect, listen, an option, data, accept):
//! until then it differs from a TCP socket in nothing but its operations table, and the family has
//! no memory for it. It leaves when its file is closed, and is hidden once TCP has it back.
//!
//! Nobody tells the family of the end of a socket that TCP has back, or that somebody else in the kernel has taken
//! (see [`reclaim`]). So a worker looks through the list: a quarter of a second after a socket was given back and
//! then less and less often, as long as there are such sockets, and every `hook_idle_ms` for the others. It rests for much
//! longer than it takes.

use super::SmcSock;
use crate::host::{
    clock::now,
    namespace::Namespace,
    promotions::Cause,
    stats::Total,
    sysctl::Sysctl, //
};
use kapi::{
    net::{
        netns::{self, Net, PerNet},
        procfs::{File, Show},
        reclaim,
        sock::Sock,
        socket::BsdSocket, //
    },
    sys::{
        hook::{Notify, TimerHook},
        queue,
        roster,
        word::{full_barrier, Word}, //
    }, //
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
        ArcBorrow,
        Mutex, //
    },
    workqueue::{Work, WorkItem}, //
};

/// Milliseconds from a socket's return to TCP to the first look whether it has ended, and between two looks at most
/// while there are such sockets.
const SOON: [u32; 2] = [250, 4000];
/// The worker rests this many times as long as its last scan took.
const REST: u64 = 256;

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
    /// Queues the next look, until the namespace ends.
    #[pin]
    timer: Mutex<Option<Pin<KBox<TimerHook<Registry>>>>>,
    /// 1 while the timer runs, or the work that it has queued.
    looking: Word,
    /// Milliseconds to the next look but one.
    pause: Atomic<u32>,
    #[pin]
    work: Work<Registry>,
}

impl_has_work! {
    impl HasWork<Self> for Registry { self.work }
}

impl Notify for Registry {
    fn notify(this: ArcBorrow<'_, Self>) {
        let _ = queue::enqueue::<_, 0>(Arc::<Self>::from(this));
    }
}

impl WorkItem for Registry {
    type Pointer = Arc<Self>;

    /// Looks for sockets whose files are gone without the family.
    fn run(this: Arc<Self>) {
        let begun = now();
        this.looking.set(0);
        full_barrier();
        let (mut all, mut given_back) = (0u32, 0u32);
        this.each(|socket| {
            // Without a socket nothing is left to go on.
            if reclaim(socket, || drop(socket.close(None))) {
                this.list.leave(socket);
                return;
            }
            all = all.saturating_add(1);
            if socket.sock.is_given_back() {
                given_back = given_back.saturating_add(1);
            }
        });
        if all == 0 {
            // The next one begins anew.
            return;
        }
        let pause = this.pause.load(Relaxed);
        this.pause
            .store(pause.saturating_mul(2).min(SOON[1]), Relaxed);
        let usual = match given_back {
            0 => this.rarely(),
            _ => pause.min(this.rarely()),
        };
        let took = now().since(begun).as_millis_ceil();
        let rest = took.saturating_sub(1).saturating_mul(REST);
        this.look_in(usual.max(u32::try_from(rest).unwrap_or(u32::MAX)));
    }
}

impl Registry {
    /// Returns the registry of the namespace that `sock` is in.
    pub(crate) fn of(sock: &Sock) -> Option<Arc<Self>> {
        netns::Registration::<Self>::at(sock.namespace())
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

    /// Has the worker look soon: a socket was given back.
    pub(super) fn look_soon(&self) {
        self.pause.store(SOON[0], Relaxed);
        self.look_in(SOON[0]);
    }

    /// Returns the milliseconds between two looks for sockets that another module has taken.
    fn rarely(&self) -> u32 {
        let ms = self.namespace.sysctls.get(Sysctl::HookIdle);
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    fn look_in(&self, ms: u32) {
        if let Some(timer) = &*self.timer.lock() {
            self.looking.set(1);
            timer.arm(ms);
        }
    }

    /// Calls `f` for every socket on the list that is the family's, outside of its locks.
    fn each_socket(&self, mut f: impl FnMut(&SmcSock)) {
        self.each(|socket| {
            if !socket.sock.is_given_back() {
                f(socket);
            }
        });
    }

    /// Calls `f` for everything on the list, outside of its locks.
    fn each(&self, mut f: impl FnMut(&Arc<SmcSock>)) {
        let mut position = roster::Position::default();
        let mut members: roster::Members<SmcSock> = [const { None }; roster::BATCH];
        while self.list.next(&mut position, &mut members) != 0 {
            for (_, socket) in members.iter_mut().map_while(Option::take) {
                f(&socket);
            }
        }
    }

    /// Returns the bytes that TCP has sent and received for sockets that are not SMC connections, or began as TCP;
    /// those of a socket that is just being closed may be missing.
    pub(crate) fn tcp_bytes(&self) -> [u64; 2] {
        let mut bytes = self.namespace.counters.tcp_bytes();
        self.each_socket(|socket| {
            if socket.smc().is_none() || socket.remote().is_some() {
                let (sent, received) = socket.sock.stream_bytes();
                bytes = [bytes[0].wrapping_add(sent), bytes[1].wrapping_add(received)];
            }
        });
        bytes
    }

    /// Has promoted connections go back to TCP: that with this cookie, those with this peer, or all. Returns whether there
    /// is one that may.
    pub(crate) fn demote(&self, cookie: Option<u64>, peer: Option<&[u8; 16]>) -> bool {
        let mut some = false;
        self.each_socket(|socket| {
            let (Some(_), Some(conn)) = (socket.remote(), socket.smc()) else {
                return;
            };
            let sock = &socket.sock;
            let is_it = cookie.is_none_or(|cookie| sock.cookie() == cookie)
                && peer.is_none_or(|peer| sock.peer_addr().mapped() == *peer);
            some |= is_it && conn.ask_to_leave(Cause::Command);
        });
        some
    }

    /// Takes a socket off the list with `leave`, and adds its connection's statistics to the namespace's: a sum
    /// finds them in one of the two places.
    fn part(&self, socket: &SmcSock, leave: impl FnOnce()) {
        let counters = &self.namespace.counters;
        // The usual case of a fallback.
        let Some(conn) = socket.smc() else {
            leave();
            return counters.add_tcp_bytes(socket.sock.stream_bytes());
        };
        if socket.remote().is_some() {
            // It has gone by both.
            counters.add_tcp_bytes(socket.sock.stream_bytes());
        }
        let _settling = self.namespace.settling.lock();
        leave();
        counters.stats.absorb(conn.stats());
    }
}

impl SmcSock {
    /// Adds the socket, which has become `file`'s, to the list.
    pub(crate) fn attached(self: &Arc<Self>, file: &BsdSocket) {
        self.own_family.set(u32::from(file.is_own_family()));
        if let Some(sockets) = &self.sockets {
            sockets.list.join(self);
            if sockets.looking.get() == 0 {
                sockets.look_in(sockets.rarely());
            }
        }
    }

    /// Takes the socket off the list: its file is being closed.
    pub(super) fn detached(&self) {
        if let Some(sockets) = &self.sockets {
            sockets.part(self, || sockets.list.leave(self));
        }
    }

    /// Takes note that the socket was given back: it stays on the list, hidden.
    pub(super) fn settled(&self) {
        if let Some(sockets) = &self.sockets {
            sockets.part(self, || ());
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
        let this = Arc::pin_init(
            try_pin_init!(Self {
                namespace,
                list: Roster::new()?,
                proc <- new_mutex!(Some(File::new(net, c"smc_fallback")?), "rsmc::Registry::proc"),
                timer <- new_mutex!(None, "rsmc::Registry::timer"),
                looking: Word::new(0),
                pause: Atomic::new(SOON[0]),
                work <- new_work!("rsmc::Registry::work"),
            }? Error),
            GFP_KERNEL,
        )?;
        let timer = TimerHook::new(this.clone())?;
        *this.timer.lock() = Some(timer);
        Ok(this)
    }

    fn exit(this: &Arc<Self>) {
        let timer = this.timer.lock().take();
        drop(timer);
        let proc = this.proc.lock().take();
        drop(proc);
    }
}

impl Show for Registry {
    fn show(&self, out: &SeqFile, admin: bool) {
        self.namespace.counters.show(self.tcp_bytes(), out);
        if !admin {
            // Peers of closed sockets are shown to administrators only.
            return;
        }
        self.namespace.counters.show_peers(out);
        if self.namespace.sysctls.get(Sysctl::NeighbourTime) != 0 {
            self.namespace.peer_cache.show(out);
        }
    }
}
