// SPDX-License-Identifier: GPL-2.0

//! An incoming connection, whose CLC handshake runs before accept() hands it out.
//!
//! No thread waits for the peer: each arrival of data, each LLC event of the link, and the timer
//! queue the same work, which goes on as far as it can. accept() and poll() go on with it, too, but
//! only up to a step that may sleep, whose length the peer determines.

use super::{
    super::candidates::{self, Candidate, Named},
    Listener, //
};
use crate::{
    handshake::{
        gates::GATES,
        Conclusion,
        Negotiation,
        Progress, //
        SleepRule,
    },
    host::{
        clock::{arm, now},
        fallback::{Fallback, Path, Role},
        namespace::Namespace,
        peer_addr::PeerAddr,
        silent,
        waiter::Waiter, //
    }, //
    smcr::{LocalPort, SmcConn},
};
use kapi::{
    net::{
        sock::{tcp_state, OwnedSock, Sock},
        socket::OwnedBsdSocket,
        wait_hook::WaitHook, //
    },
    sys::{
        hook::{Notify, TimerHook},
        queue, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Acquire, Atomic, AtomicFlag, Relaxed, Release},
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{Work, WorkItem}, //
};
use smc_proto::{
    conn::CloseMode,
    handshake::{Failure, Outcome},
    reason::Reason,
    time::{Instant, Span},
    wire::promotion::{Join, JOIN_LEN}, //
};

/// A connection that accept() may hand out, with the result of its handshake.
pub(crate) struct Ready {
    /// Number of the connection in the order of arrival.
    pub(crate) id: u64,
    /// When it became ready.
    pub(super) since: Instant,
    /// The connection.
    pub(crate) sock: OwnedSock,
    /// Result of the handshake.
    pub(crate) verdict: Verdict,
}

/// Protocol of a connection that accept() hands out.
pub(crate) enum Verdict {
    /// TCP, after this fallback.
    Tcp(Fallback),
    /// TCP first.
    Path(Path),
    /// SMC.
    Smc(Arc<SmcConn>),
}

impl Ready {
    /// Creates one that is ready from now on.
    pub(in crate::socket) fn new(id: u64, sock: OwnedSock, verdict: Verdict) -> Self {
        let since = now();
        Self {
            id,
            since,
            sock,
            verdict,
        }
    }

    /// Ends a connection that was not accepted.
    pub(in crate::socket) fn discard(self) {
        if let Verdict::Smc(conn) = &self.verdict {
            conn.close(CloseMode::Abort);
        }
    }
}

struct IncomingState {
    /// The connection; taken out when the handshake ends.
    socket: Option<OwnedBsdSocket>,
    negotiation: Option<Negotiation<Incoming>>,
    watch: Option<Pin<KBox<WaitHook<Incoming>>>>,
    /// True once the listener has the handshake in its list. A result before that would be lost.
    listed: bool,
    /// True once the client has been found silent.
    counted: bool,
    /// Of a side connection: what is to come first, and then the connection that it is about.
    joining: Option<Joining>,
    target: Option<Named>,
}

/// A side connection whose [`Join`] has not come.
struct Joining {
    bytes: [u8; JOIN_LEN],
    have: usize,
    until: Instant,
    timer: Pin<KBox<TimerHook<Incoming>>>,
}

/// Time after which a client that is waited for counts as silent: long enough for TCP to have sent the proposal
/// again, more than once on most ways.
const PATIENCE: Span = Span::from_millis(2000);

/// Number of arrivals at a handshake for which later connections wait. A usual client's are about four.
const ARRIVALS: u32 = 32;

/// An incoming connection and its handshake.
#[pin_data]
pub(crate) struct Incoming {
    listener: Arc<Listener>,
    id: u64,
    /// Held while the handshake goes on, until its result is in the listener's queue: the next to
    /// hold it finds the result there.
    #[pin]
    progress_lock: Mutex<()>,
    /// Who may go on.
    sleep_rule: SleepRule,
    /// True from the moment that something is to be looked at until that begins.
    kicked: AtomicFlag,
    /// True while a thread goes on with the handshake.
    in_step: AtomicFlag,
    /// True once the client may take the connection for made.
    answered: AtomicFlag,
    /// It is a side connection of the client's kernel, which no program gets.
    joins: bool,
    /// How often TCP has told of something.
    arrivals: Atomic<u32>,
    #[pin]
    state: Mutex<IncomingState>,
    #[pin]
    work: Work<Incoming>,
}

impl_has_work! {
    impl HasWork<Self> for Incoming { self.work }
}

impl Incoming {
    /// Prepares a handshake on `sock`, whose SYN had the SMC option; [`Incoming::begin`] starts it.
    /// With a reason to `refuse` SMC it ends in a fallback.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENFILE`; the connection is then closed.
    pub(crate) fn new(
        listener: Arc<Listener>,
        id: u64,
        sock: OwnedSock,
        refuse: Option<Reason>,
    ) -> Result<Arc<Self>> {
        let socket = OwnedBsdSocket::new(sock)?;
        let refuse = match refuse {
            None if !socket.sock().claim_stream() => Some(Reason::Attached),
            refuse => refuse,
        };
        if socket.sock().is_drained() {
            // The client's messages go to the sockmap, and cannot be read here.
            failed(&socket);
            listener.attached();
            return Err(EBUSY);
        }
        let gates = GATES.get().ok_or(ENODEV)?;
        let port = if let Some(reason) = refuse {
            Err(reason)
        } else if socket.sock().uses_ipsec() {
            Err(Reason::Ipsec)
        } else if socket.sock().wants_packets() {
            Err(Reason::UnsupportedOption)
        } else {
            let registry = gates.registry();
            // A client does not remember a failure that may be over in a moment.
            LocalPort::find(&registry.devices, socket.sock()).ok_or_else(|| {
                match registry.holds_group_of(PeerAddr::of(socket.sock())) {
                    true => Reason::NoActiveLink,
                    false => Reason::NoDevice,
                }
            })
        };
        let incoming = Self::made(listener, id, false)?;
        let payer = incoming.listener.sock.clone();
        let negotiation = Negotiation::server(&incoming, &gates, socket.sock(), port, payer)?;
        let watch = WaitHook::new(&socket, incoming.clone())?;
        {
            let mut state = incoming.state.lock();
            state.socket = Some(socket);
            state.watch = Some(watch);
            state.negotiation = Some(negotiation);
        }
        Ok(incoming)
    }

    /// Prepares a side connection `sock`, by which the client's kernel promotes a connection of a program; see
    /// [`crate::socket::promotion`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENFILE`; it is then closed.
    pub(super) fn joining(listener: Arc<Listener>, id: u64, sock: OwnedSock) -> Result<Arc<Self>> {
        let socket = OwnedBsdSocket::new(sock)?;
        let incoming = Self::made(listener, id, true)?;
        let watch = WaitHook::new(&socket, incoming.clone())?;
        let joining = Joining {
            bytes: [0; JOIN_LEN],
            have: 0,
            until: now().after(PATIENCE),
            timer: TimerHook::new(incoming.clone())?,
        };
        {
            let mut state = incoming.state.lock();
            state.socket = Some(socket);
            state.watch = Some(watch);
            state.joining = Some(joining);
        }
        Ok(incoming)
    }

    fn made(listener: Arc<Listener>, id: u64, joins: bool) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                listener,
                id,
                joins,
                progress_lock <- new_mutex!((), "rsmc::Incoming::progress_lock"),
                sleep_rule: SleepRule::new(),
                kicked: AtomicFlag::new(false),
                in_step: AtomicFlag::new(false),
                answered: AtomicFlag::new(false),
                arrivals: Atomic::new(0),
                state <- new_mutex!(
                    IncomingState {
                        socket: None,
                        negotiation: None,
                        watch: None,
                        listed: false,
                        counted: false,
                        joining: None,
                        target: None,
                    },
                    "rsmc::Incoming::state"
                ),
                work <- new_work!("rsmc::Incoming::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the number under which the listener knows this handshake.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Starts the handshake, which the listener has in its list now.
    pub(crate) fn begin(this: &Arc<Self>) {
        this.state.lock().listed = true;
        Self::kick(this);
    }

    /// Queues the work.
    pub(crate) fn kick(this: &Arc<Self>) {
        this.kicked.store(true, Release);
        let _ = queue::enqueue::<_, 0>(this.clone());
    }

    /// Ends the handshake and closes the connection.
    pub(crate) fn abort(&self) {
        let (_, _, target) = self.end();
        if let Some(target) = target {
            target.failed(Reason::PathRefused);
        }
    }

    /// Takes the connection, its handshake and what that is about, and ends the watch.
    fn end(
        &self,
    ) -> (
        Option<OwnedBsdSocket>,
        Option<Negotiation<Self>>,
        Option<Named>,
    ) {
        let (socket, negotiation, watch, joining, target) = {
            let mut state = self.state.lock();
            (
                state.socket.take(),
                state.negotiation.take(),
                state.watch.take(),
                state.joining.take(),
                state.target.take(),
            )
        };
        // The hooks hold a reference to `self`; the caller has one, too.
        drop((watch, joining));
        (socket, negotiation, target)
    }

    /// Goes on with the handshake for a program that must not wait for the peer.
    pub(crate) fn advance_pending(this: &Arc<Self>) {
        if this.sleep_rule.next_step_sleeps() {
            return;
        }
        let _progress = this.progress_lock.lock();
        // The worker may have come so far meanwhile; it has released the lock then.
        if !this.sleep_rule.next_step_sleeps() {
            Self::step(this, false);
        }
    }

    /// Tells whether the client may take the connection for made, and a thread goes on with the handshake or is about
    /// to, so that it does not wait for the client. Not if the client sends its message in many pieces: others would
    /// wait for it.
    pub(super) fn is_about_to_end(&self) -> bool {
        // `kicked` and `in_step` in the order opposite to that of `step`.
        !self.joins
            && self.answered.load(Acquire)
            && (self.kicked.load(Acquire) || self.in_step.load(Acquire))
            && self.arrivals.load(Relaxed) < ARRIVALS
    }

    /// Goes on with the handshake, and hands the connection over when it has ended. The caller has
    /// `progress_lock`.
    fn step(this: &Arc<Self>, may_block: bool) {
        this.in_step.store(true, Relaxed);
        this.kicked.store(false, Release);
        Self::go_on(this, may_block);
        this.in_step.store(false, Release);
        this.listener.settled();
    }

    fn go_on(this: &Arc<Self>, may_block: bool) {
        let target;
        let outcome = {
            let mut guard = this.state.lock();
            let state: &mut IncomingState = &mut guard;
            if !state.listed {
                return;
            }
            if state.joining.is_some() {
                match Self::hear_join(this, state) {
                    Ok(true) => (),
                    Ok(false) => return,
                    Err(_) => state.negotiation = None,
                }
            }
            let Some(socket) = &state.socket else {
                return;
            };
            let sock: ARef<Sock> = socket.sock().into();
            target = state
                .target
                .as_ref()
                .and_then(|named| named.candidate().cloned());
            let Some(negotiation) = &mut state.negotiation else {
                // It named no connection that is to be promoted.
                drop(guard);
                this.abort();
                this.listener.finish(this.id, None);
                return;
            };
            let counted = &mut state.counted;
            let subject = match &target {
                Some(target) => target.sock(),
                None => &sock,
            };
            match negotiation.advance_for(this, &this.sleep_rule, &sock, subject, may_block) {
                Progress::Pending(until) => {
                    let due = negotiation.silent_for(PATIENCE);
                    let silent = due.is_some_and(|due| now().reached(due));
                    if silent && !*counted {
                        *counted = true;
                        silent::count(&PeerAddr::of(&sock));
                    }
                    // Something waits after it, so it does not wait until the time is over. If the client speaks
                    // later after all, the program reads that; as it would then.
                    if !silent || negotiation.has_begun() || !this.listener.is_crowded() {
                        let look = match due {
                            Some(due) if !silent => until.min(due),
                            _ => until,
                        };
                        negotiation.wait_until(look);
                        return;
                    }
                    Outcome::Failed(Failure::TimedOut)
                }
                Progress::Heavy => return,
                Progress::Done(outcome) => outcome,
            }
        };
        // After first contact no message of CLC was the last one.
        this.answered.store(true, Release);
        let (Some(socket), Some(negotiation), named) = this.end() else {
            return;
        };
        let (conclusion, link) = negotiation.conclude(Role::Server, socket.sock(), outcome);
        // Where one of the programs has closed meanwhile, what has become of it says nothing of links.
        let open = |target: &Arc<dyn Candidate>| target.is_open();
        let link = link.filter(|_| {
            let both =
                socket.sock().state() != tcp_state::CLOSE && target.as_ref().is_some_and(open);
            !this.joins || both
        });
        if let (Some(event), Some(namespace)) = (link, Namespace::of(socket.sock())) {
            namespace.heard(socket.sock(), None, event);
        }
        if this.joins {
            match (named, conclusion) {
                (Some(named), Conclusion::Smc(conn)) => named.offer(conn, socket),
                (Some(named), other) => named.failed(why_not(&other)),
                (None, _) => (),
            }
            this.listener.finish(this.id, None);
            return;
        }
        let verdict = verdict(&socket, conclusion);
        let ready = verdict.map(|verdict| Ready::new(this.id, socket.into_sock(), verdict));
        this.listener.finish(this.id, ready);
    }
}

impl Incoming {
    /// Takes the [`Join`] of a side connection, finds the connection that it names, and begins the handshake for that.
    /// Returns false if it has not come yet.
    ///
    /// # Errors
    ///
    /// The side connection is over.
    fn hear_join(this: &Arc<Self>, state: &mut IncomingState) -> Result<bool> {
        let (Some(joining), Some(socket)) = (&mut state.joining, &state.socket) else {
            return Ok(true);
        };
        while joining.have < joining.bytes.len() {
            let Some(rest) = joining.bytes.get_mut(joining.have..) else {
                return Err(EINVAL);
            };
            match socket.sock().receive(rest) {
                Ok(0) => return Err(EINVAL),
                Ok(bytes) => joining.have = joining.have.saturating_add(bytes),
                Err(err) if err == EAGAIN && !now().reached(joining.until) => {
                    arm(&joining.timer, joining.until);
                    return Ok(false);
                }
                Err(err) if err == EAGAIN => {
                    silent::count(&PeerAddr::of(socket.sock()));
                    return Err(err);
                }
                Err(err) => return Err(err),
            }
        }
        let join = Join::parse(&joining.bytes);
        state.joining = None;
        let named = join.and_then(|join| candidates::take(join, socket.sock()));
        let mut named = named.ok_or(ENOENT)?;
        let candidate = named.candidate().ok_or(ENOENT)?.clone();
        named.begins();
        state.target = Some(named);
        let gates = GATES.get().ok_or(ENODEV)?;
        let payer = candidate.sock().clone();
        let port = candidate.port();
        let negotiation = Negotiation::server(this, &gates, candidate.sock(), port, payer)?;
        state.negotiation = Some(negotiation.apart());
        Ok(true)
    }
}

/// Returns why the handshake over a side connection has not brought an SMC-R connection.
fn why_not(conclusion: &Conclusion) -> Reason {
    match conclusion {
        Conclusion::Tcp { fallback, declined } => declined
            .as_ref()
            .map_or(fallback.reason, |_| Reason::PathRefused),
        Conclusion::Lost => Reason::NoActiveLink,
        Conclusion::Smc(_) | Conclusion::Failed { .. } => Reason::PathRefused,
    }
}

/// Returns the protocol of the connection after its handshake; `None` when its stream cannot be
/// handed to a program any more.
fn verdict(socket: &OwnedBsdSocket, conclusion: Conclusion) -> Option<Verdict> {
    match conclusion {
        Conclusion::Smc(conn) => Some(Verdict::Smc(conn)),
        Conclusion::Tcp { fallback, .. } => Some(Verdict::Tcp(fallback)),
        // Nothing was taken from the stream. Perhaps a middlebox has kept our option from the
        // client, who now waits for the program to speak, or the client has gone again.
        Conclusion::Failed {
            why: Failure::TimedOut | Failure::Tcp,
            begun: false,
        } => Some(Verdict::Tcp(Fallback::own(
            Role::Server,
            Reason::PeerNotSmc,
        ))),
        Conclusion::Lost | Conclusion::Failed { .. } => {
            failed(socket);
            None
        }
    }
}

fn failed(socket: &OwnedBsdSocket) {
    if let Some(namespace) = Namespace::of(socket.sock()) {
        namespace.counters.failed(Role::Server);
    }
}

impl Waiter for Incoming {
    fn kick(self: Arc<Self>) {
        Incoming::kick(&self);
    }

    fn answers(&self) {
        self.answered.store(true, Release);
    }
}

impl Notify for Incoming {
    fn notify(this: ArcBorrow<'_, Self>) {
        this.arrivals.fetch_add(1, Relaxed);
        Self::kick(&Arc::from(this));
    }
}

impl WorkItem for Incoming {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _progress = this.progress_lock.lock();
        Incoming::step(&this, this.sleep_rule.next_step_sleeps());
    }
}
