// SPDX-License-Identifier: GPL-2.0

//! State that the family keeps beside each TCP socket.
//!
//! A socket begins as [`Phase::Init`], which a connect() or listen() ends; [`State`] says what it is.

mod registry;

pub(crate) use registry::{Registry, Roster};

use super::{
    candidates,
    rewritten::Rewritten,
    state::{Kind, Phase, State, StateGuard}, //
};
use crate::{
    handshake::{Negotiation, SleepRule},
    host::{
        fallback::{Fallback, Role},
        namespace::Namespace,
        syn_option::{Choice, SILENCE},
        sysctl::Sysctl,
        waiter::Waiter, //
    },
    smcr::SmcConn,
    stream::{
        local::Local,
        remote::{threshold, Closed, Remote},
        Stream, //
    }, //
};
use kapi::{
    errno::{self, Errno},
    net::{
        overlay::Tied,
        sock::{tcp_state, Sock},
        socket::BsdSocket,
        stock::syn,
        wait,
        wait_hook::WaitHook, //
    },
    sys::{
        clock,
        queue,
        roster::Link,
        word::{Count, Word}, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex, //
    },
    workqueue::Work, //
};
use smc_proto::{
    conn::CloseMode,
    learn::{Ended, Service},
    peer_cache::Event,
    time::Span, //
};
use smc_trace as trace;

/// Value of `RSMC_PATH`: the namespace's.
const NAMESPACES: i32 = -1;

/// The family's part of a socket.
#[pin_data]
pub(crate) struct SmcSock {
    /// The TCP connection; kept until the file is closed.
    pub(crate) sock: Tied,
    /// The sockets of its namespace; `None` only while the module is being unloaded.
    sockets: Option<Arc<Registry>>,
    /// Time when the program first used the socket or accepted it, in seconds since boot.
    pub(crate) born: u64,
    /// What the socket is.
    #[pin]
    pub(crate) state: State,
    /// Queues the work at wake-ups of the socket: for a connect() in the background, new
    /// connections of a listener, the end of TCP beneath an SMC connection.
    #[pin]
    pub(crate) watch: Mutex<Option<Pin<KBox<WaitHook<SmcSock>>>>>,
    /// 1 once there may be a watch, work or a handshake under way. While it is 0 nobody has the locks of these.
    stirred: Word,
    /// `TCP_SAVE_SYN` as the user has set it; the family needs it on for itself.
    pub(crate) user_save_syn: Word,
    /// 1 when the peer's FIN on the TCP connection beneath an SMC connection has been handled:
    /// nothing can follow it.
    pub(super) fin_noted: Word,
    /// The client's handshake while it is under way. Locked to begin, go on with or end a
    /// connection attempt.
    #[pin]
    pub(crate) handshake: Mutex<Option<Negotiation<SmcSock>>>,
    /// Who may go on with the handshake.
    pub(crate) sleep_rule: SleepRule,
    /// One of [`attempt`].
    pub(crate) attempt: Atomic<u32>,
    /// When connect() was called, in nanoseconds.
    pub(crate) began: Count,
    /// What connect() has named, if TCP's peer is another one.
    pub(super) rewritten: Rewritten,
    /// 1 if the program has asked for TCP; see `tcp2smc`.
    pub(crate) converted: Word,
    /// 1 if the socket is of `AF_SMC`; see `registry`.
    pub(crate) own_family: Word,
    /// `RSMC_PATH`: a value of the sysctl `path`, or [`NAMESPACES`].
    path: Word,
    /// `RSMC_STRICT`.
    pub(crate) strict: Word,
    /// Code of the reason for which strict mode has ended the last connect(); 0 if it has not.
    pub(crate) refusal: Word,
    /// The CPU on which the program has called connect().
    pub(crate) connects_on: Word,
    /// `SMC_LIMIT_HS`.
    pub(crate) limit_hs: Word,
    /// 1 when the socket counts among those that need the SYN hooks; see [`SmcSock::hook`].
    hooked: Atomic<u32>,
    /// TCP's count of segments at which a connection that began as TCP is worth promoting, the first time.
    pub(super) due_at: Word,
    /// Link in the list of the namespace's sockets; see `registry`.
    pub(crate) link: Link<SmcSock>,
    #[pin]
    work: Work<SmcSock>,
}

/// Values of [`SmcSock::attempt`]: what it means when TCP ends a connection attempt, and whether that wakes those who
/// wait for the socket.
pub(crate) mod attempt {
    /// The attempt is over, and they are woken.
    pub(crate) const PLAIN: u32 = 0;
    /// The SYN has an option. If it is refused, the attempt begins anew, and the refusal's wake-ups are suppressed.
    pub(crate) const OFFERED: u32 = 1;
    /// The refusal has come, and its wake-ups were suppressed.
    pub(crate) const SUPPRESSED: u32 = 2;
    /// The attempt begins anew at this moment, and all wake-ups by TCP are suppressed.
    pub(crate) const ANEW: u32 = 3;
}

impl_has_work! {
    impl HasWork<Self> for SmcSock { self.work }
}

kapi::tied! {
    impl HasTied for SmcSock { self.sock }
}

impl SmcSock {
    /// Creates the family's part of a socket over `sock`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(sock: ARef<Sock>, phase: Phase) -> Result<Arc<Self>> {
        let sockets = Registry::of(&sock);
        Self::with(sock, sockets, phase)
    }

    /// Creates that of a connection that this one, a listener, has accepted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn child(&self, sock: ARef<Sock>, phase: Phase) -> Result<Arc<Self>> {
        // TCP makes a connection in the namespace of its listener.
        Self::with(sock, self.sockets.clone(), phase)
    }

    fn with(sock: ARef<Sock>, sockets: Option<Arc<Registry>>, phase: Phase) -> Result<Arc<Self>> {
        let namespace = sockets.as_ref().map(|sockets| &sockets.namespace);
        if let (Phase::Fallback(fallback), Some(namespace)) = (&phase, namespace) {
            namespace.counters.fell_back(fallback, &sock.peer_addr());
            trace::fallback(&sock, fallback.reason.code());
        }
        let setting = |which| namespace.map_or(0, |n| n.sysctls.get(which));
        let sock = Tied::new(sock);
        let mut due_at = 0;
        if let Some(namespace) = namespace {
            // One that accept() hands out.
            match &phase {
                Phase::Smc(conn) => {
                    let v1 = conn.group().is_v1();
                    namespace.counters.connected(Role::Server, v1);
                }
                Phase::Path(path) => {
                    if path.remote {
                        due_at = threshold(namespace, path.role);
                    }
                    namespace.counters.began_as_tcp(path.role);
                }
                _ => (),
            }
        }
        let strict = setting(Sysctl::Strict);
        let limit_hs = setting(Sysctl::LimitHs);
        Arc::pin_init(
            pin_init!(Self {
                sock,
                sockets,
                born: clock::seconds(),
                state <- State::new(phase),
                watch <- new_mutex!(None, "rsmc::SmcSock::watch"),
                stirred: Word::new(0),
                fin_noted: Word::new(0),
                path: Word::new(NAMESPACES as u32),
                handshake <- new_mutex!(None, "rsmc::SmcSock::handshake"),
                sleep_rule: SleepRule::new(),
                user_save_syn: Word::new(0),
                attempt: Atomic::new(attempt::PLAIN),
                began: Count::new(0),
                rewritten: Rewritten::new(),
                converted: Word::new(0),
                own_family: Word::new(0),
                strict: Word::new(u32::from(strict != 0)),
                refusal: Word::new(0),
                connects_on: Word::new(0),
                limit_hs: Word::new(u32::from(limit_hs != 0)),
                hooked: Atomic::new(0),
                due_at: Word::new(due_at),
                link: Link::new(),
                work <- new_work!("rsmc::SmcSock::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the settings and counters of its namespace; `None` only while the module is being unloaded.
    pub(crate) fn namespace(&self) -> Option<&Arc<Namespace>> {
        self.sockets.as_ref().map(|sockets| &sockets.namespace)
    }

    /// Makes the socket one that falls back. The caller switches the operations table.
    pub(crate) fn set_fallback(&self, state: &mut StateGuard<'_>, fallback: Fallback) {
        if let Some(namespace) = self.namespace() {
            namespace
                .counters
                .fell_back(&fallback, &self.sock.peer_addr());
        }
        trace::fallback(&self.sock, fallback.reason.code());
        state.set(Phase::Fallback(fallback));
    }

    /// Makes the socket an SMC connection.
    pub(crate) fn become_smc(&self, state: &mut StateGuard<'_>, conn: Arc<SmcConn>, role: Role) {
        if let Some(namespace) = self.namespace() {
            namespace.counters.connected(role, conn.group().is_v1());
        }
        state.set(Phase::Smc(conn));
    }

    /// Undoes the changes of an attempt to the TCP socket, so that the next one begins without
    /// them.
    pub(crate) fn forget_attempt(&self) {
        let guard = self.sock.lock();
        let _ = syn::answered(&guard);
        drop(guard);
        self.sock.release_stream();
    }

    /// Ends the TCP connection of an attempt, with `error` for the program.
    pub(crate) fn end_attempt(&self, error: Errno) {
        self.forget_attempt();
        let told = || self.sock.has_error() && !self.sock.has_the_error(errno::EPIPE);
        if !self.sock.abort_with(error) && !told() {
            // The peer's reset came first, and the handshake has taken its error; or it is the
            // error of a reset after a FIN, which connect() does not return.
            self.sock.report_error(error);
        }
    }

    /// Returns the SMC connection, if this is one.
    #[inline]
    pub(crate) fn smc(&self) -> Option<Arc<SmcConn>> {
        match self.state.smc() {
            Some(conn) => Some(conn.clone()),
            None => self.remote()?.enter().promoted().cloned(),
        }
    }

    /// Returns the SMC connection into whose ring the program writes, which may read from TCP still.
    pub(crate) fn written_smc(&self) -> Option<Arc<SmcConn>> {
        match self.state.smc() {
            Some(conn) => Some(conn.clone()),
            None => self.remote()?.enter().turned().cloned(),
        }
    }

    /// Returns the end of a local path, if this is one; it may be on TCP still.
    #[inline]
    pub(crate) fn local(&self) -> Option<&Local> {
        self.state.local()
    }

    /// Returns the stream of a connection with another host that began as TCP, if this is one. It stays when the
    /// connection has moved.
    #[inline]
    pub(crate) fn remote(&self) -> Option<&Arc<Remote>> {
        self.state.remote()
    }

    /// Returns the stream, if this is one that is not left to TCP's functions.
    #[inline]
    pub(crate) fn stream(&self) -> Option<Stream<'_>> {
        match self.state.smc() {
            Some(conn) => Some(Stream::Smcr(conn)),
            None => self.stream_of_path(),
        }
    }

    #[inline]
    fn stream_of_path(&self) -> Option<Stream<'_>> {
        match self.local() {
            Some(local) => Some(Stream::Local(local)),
            None => self.remote().map(|remote| Stream::Remote(remote)),
        }
    }

    /// Tells whether this is a connection that began as TCP, and has not looked for its other end.
    pub(crate) fn is_cold_path(&self) -> bool {
        self.state.is(Kind::Path) && self.local().is_none() && self.remote().is_none()
    }

    /// Returns `RSMC_PATH`.
    pub(crate) fn path(&self) -> i32 {
        self.path.get() as i32
    }

    /// Sets `RSMC_PATH`.
    pub(crate) fn set_path(&self, path: i32) {
        self.path.set(path as u32);
    }

    /// Returns what the socket's SYN, or its answers to SYNs, are to offer.
    pub(crate) fn choice(&self) -> Choice {
        let names = self.own_family.get() != 0;
        match self.namespace() {
            Some(namespace) => Choice::of(self.path(), &namespace.sysctls, self.is_strict(), names),
            None => Choice::CLC,
        }
    }

    /// Makes sure that the SYN hooks of the socket's namespace are registered, until the file is
    /// closed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; what netfilter returns.
    pub(crate) fn hook(&self) -> Result {
        match self.namespace() {
            Some(namespace) => {
                let first = self.hooked.xchg(1, Relaxed) == 0;
                namespace.hook(&self.sock, first)
            }
            None => Err(EINVAL),
        }
    }

    /// Queues the work in `work.rs` from now on whenever the socket wakes its waiters.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn start_watching(self: &Arc<Self>, socket: &BsdSocket) -> Result {
        self.stirs();
        let mut watch = self.watch.lock();
        if watch.is_none() {
            *watch = Some(WaitHook::new(socket, self.clone())?);
        }
        Ok(())
    }

    /// Takes note that there may be a watch, work or a handshake from now on. Whoever closes the socket, or has its
    /// state locked, knows of it.
    pub(crate) fn stirs(&self) {
        self.stirred.set(1);
    }

    /// Ends the watch of [`SmcSock::start_watching`].
    pub(crate) fn stop_watching(&self) {
        if self.stirred.get() == 0 {
            return;
        }
        let watch = self.watch.lock().take();
        drop(watch);
    }

    /// Tells whether the TCP connection beneath an SMC connection, on which nothing should happen
    /// any more, may have been reset or carry data, such as the decline of a peer that could not
    /// finish the handshake. True after a FIN, too.
    #[inline]
    pub(super) fn tcp_has_spoken(&self) -> bool {
        self.sock.state() == tcp_state::CLOSE || self.fin_noted.get() == 0 && self.sock.has_unread()
    }

    /// Watches an SMC connection that connect() has made without sleeping, or that accept() hands out.
    pub(crate) fn watch_smc(self: &Arc<Self>, socket: &BsdSocket) {
        // Without the watch the end of the TCP connection would only be noticed later.
        let _ = self.start_watching(socket);
        if self.tcp_has_spoken() {
            // Before the watch began.
            Self::kick(self);
        }
    }

    /// Queues the work in `work.rs`.
    pub(crate) fn kick(this: &Arc<Self>) {
        this.stirs();
        let _ = queue::enqueue::<_, 0>(this.clone());
    }

    /// Shows the socket no more: TCP has it.
    pub(crate) fn given_back(&self) {
        self.settled();
        self.unhook();
        if let Some(sockets) = &self.sockets {
            sockets.look_soon();
        }
    }

    fn unhook(&self) {
        if let (1, Some(namespace)) = (self.hooked.xchg(0, Relaxed), self.namespace()) {
            namespace.unhook();
        }
    }

    /// Takes note of what has become of the connection that this socket has begun. May sleep.
    pub(super) fn heard(&self, event: Event) {
        if let Some(namespace) = self.namespace() {
            namespace.heard(&self.sock, self.rewritten.named(), event);
        }
    }

    /// Takes note that the program gives up an attempt which nobody has answered. One that it gave up before
    /// a second SYN tells nothing, one with a SYN that had no option nothing about options.
    pub(super) fn abandoned(&self) {
        let waited = (1..SILENCE).contains(&self.sock.sent_again());
        if let (true, tcp_state::SYN_SENT) = (waited, self.sock.state()) {
            self.heard(Event::Abandoned);
        }
    }

    /// Has noted what an SMC connection that ends was good for.
    fn tell_moved(&self, conn: &SmcConn) {
        let Some(namespace) = self.namespace().filter(|n| !n.learned.is_empty()) else {
            return;
        };
        let peer = self.sock.peer_addr();
        let named = self.rewritten.named().unwrap_or(peer);
        // One of them is what was connected to; the other end's port is nobody's service.
        let services = [
            Service::Peer(peer.mapped(), peer.port),
            Service::Port(self.sock.local_addr().port),
            Service::Peer(named.mapped(), named.port),
        ];
        let services = match named == peer {
            true => &services[..2],
            false => &services[..],
        };
        let at = conn.proto.lock().positions();
        let ended = Ended {
            bytes: at.written.saturating_add(at.received),
            lived: Span::from_secs(clock::seconds().saturating_sub(self.born)),
        };
        namespace
            .learned
            .ended(&namespace.sysctls, services, &ended);
    }

    /// Ends what is under way to promote the connection, as its file is being closed. Returns what is to be done with the
    /// SMC-R connection.
    fn close_remote(&self, may_stay: bool, aborts: bool) -> Closed {
        let Some(remote) = self.remote() else {
            return Closed::Nothing;
        };
        let Some(numbers) = remote.numbers() else {
            // Nothing else is under way where there was no attempt.
            return Closed::Nothing;
        };
        candidates::leave(&self.sock, numbers);
        if let Some(dialer) = remote.take_dialer() {
            dialer.orphan();
        }
        remote.close(may_stay, aborts)
    }

    /// Ends the same for connect() that dissolves the connection.
    pub(super) fn dissolve_remote(&self) {
        if let Some(remote) = self.remote() {
            if let Some(numbers) = remote.numbers() {
                candidates::leave(&self.sock, numbers);
            }
            remote.end_dialer();
            remote.dissolve();
        }
    }

    /// Closes the socket: its file is being closed, or has been without us and is not here. Returns what has to go on before
    /// TCP may be closed.
    pub(crate) fn close(&self, socket: Option<&BsdSocket>) -> Option<Arc<Remote>> {
        self.detached();
        self.unhook();
        let old = self.state.lock().set(Phase::Closed);
        if self.stirred.get() != 0 {
            self.stop_watching();
            // A handshake under way gives back what it has taken.
            let negotiation = self.handshake.lock().take();
            drop(negotiation);
        }
        if let Some(local) = self.local() {
            local.close();
        }
        let mut unread = false;
        // A program that waits is to know that the peer has everything, and one that does not wants a reset.
        let aborts = self.sock.lingers_not();
        let waits = aborts || self.sock.linger_timeout() != 0;
        let may_stay = socket.is_some() && !waits;
        let old = match (self.close_remote(may_stay, aborts), old) {
            (Closed::Stays, old) => {
                if let Phase::Smc(conn) = &old {
                    self.tell_moved(conn);
                }
                return self.remote().cloned();
            }
            // It was between TCP and this.
            (Closed::Ends(conn, of_tcp), Phase::Path(_)) => {
                unread = of_tcp;
                Phase::Smc(conn)
            }
            (Closed::Nothing | Closed::Ends(..), old) => old,
        };
        match old {
            Phase::Connecting => self.abandoned(),
            Phase::Listening(listener) => listener.close(),
            Phase::Smc(conn) | Phase::Dissolved(conn) => {
                self.tell_moved(&conn);
                let mode = if unread || aborts {
                    CloseMode::Abort
                } else {
                    CloseMode::Graceful
                };
                conn.close(mode);
                let timeout = self.sock.linger_timeout();
                if let (Some(socket), 1..) = (socket, timeout) {
                    // SO_LINGER: what the time did not suffice for goes on in the background.
                    let _ =
                        wait::until(socket, wait::Kind::Shared, timeout, || !conn.is_draining());
                }
            }
            _ => (),
        }
        None
    }
}

impl Waiter for SmcSock {
    fn kick(self: Arc<Self>) {
        SmcSock::kick(&self);
    }
}
