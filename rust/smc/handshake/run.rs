// SPDX-License-Identifier: GPL-2.0

//! One end of a handshake: the protocol's driver, and the socket and link that it works on.
//!
//! A [`HandshakeRun`] never waits for the peer. It goes on as far as it can and returns the time
//! when to call it again at the latest; arrivals of data and LLC events kick its owner, see
//! [`Waiter`].

use super::{
    attempt::Attempt,
    crossing::RECEIVE,
    gates::Gates,
    subnets, //
};
use crate::{
    host::{
        clock::now,
        namespace::Namespace,
        peer_addr::PeerAddr,
        sysctl::Sysctl,
        waiter::Waiter, //
    },
    smcr::{LaneWanted, LocalPort, PeerFacts, SmcConn},
};
use kapi::{
    net::sock::{priority_of, Sock},
    sys::host, //
};
use kernel::{
    prelude::*,
    sync::{aref::ARef, Arc}, //
};
use smc_proto::{
    handshake::{
        driver::{self, Driver},
        endpoint::{Endpoint, StreamError},
        Acquired,
        Eligibility,
        Outcome,
        Policy,
        Step,
        Want, //
    },
    llc::responder::LlcEvent,
    reason::Reason,
    time::{Instant, Span},
    wire::{
        clc::{self, proposal::Prefixes, Agreement, Class, Extensions, Proposal, RdmaEnd},
        ids::{Gid, Mtu},
        llc::Frame, //
    }, //
};

/// Interval of looks at the stream where TCP does not announce data, see [`look_again`].
const LOOK_AGAIN: Span = Span::from_millis(10);

/// Buffer for a CLC message.
pub(crate) struct Buffer(KVec<u8>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Result of [`HandshakeRun::advance`].
pub(crate) enum Progress {
    /// The handshake waits for an event, or for this time.
    Pending(Instant),
    /// The next step may sleep, for seconds if the peer delays it, and was not done.
    Heavy,
    /// The handshake has ended.
    Done(Outcome),
}

/// One end of a handshake under way.
pub(crate) struct HandshakeRun {
    driver: KBox<Driver<Buffer>>,
    attempt: Attempt,
    /// Properties of the peer, from its accept or confirm.
    peer: PeerFacts,
}

impl HandshakeRun {
    /// Begins a client's handshake over a connection whose SYN-ACK had the option. The program has called connect() on
    /// `cpu`. Version 1 is offered if there is a port for it, `v1`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn client(
        gates: &Arc<Gates>,
        sock: &Sock,
        port: LocalPort,
        v1: Option<LocalPort>,
        cpu: u32,
    ) -> Result<Self> {
        let mut policy = policy(gates, sock);
        let registry = gates.registry();
        let lane = registry.choose_lane(&LaneWanted {
            port: &port,
            peer_addr: PeerAddr::of(sock),
            class: policy.class,
            cpu,
            most: most_lanes(sock, &port),
        });
        if let Some(lane) = lane {
            let v6 = Gid(sock.peer_addr().mapped()).ipv4().is_none();
            policy.peer_id = lane.peer_id(registry.peer_id, v6);
        }
        let eligibility = Eligibility {
            option: true,
            refuse: lane.is_none().then_some(Reason::NoMemory),
        };
        let offer = v1.as_ref().and_then(|v1| subnets::offer(sock, v1));
        let driver = KBox::new(
            Driver::client(&policy, port.facts(offer), &eligibility),
            GFP_KERNEL,
        )?;
        let mut attempt = Attempt::new(gates.clone(), Some(port), None, lane);
        if let Some(v1) = v1 {
            attempt.offers_v1(v1);
        }
        Ok(Self {
            driver,
            attempt,
            peer: PeerFacts::UNKNOWN,
        })
    }

    /// Begins a server's handshake over a connection whose SYN had the option. Given a reason in
    /// place of a port, it declines every proposal for that. The memory is charged to `payer`, the
    /// listener: before accept() no program owns the connection.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn server(
        gates: &Arc<Gates>,
        sock: &Sock,
        port: Result<LocalPort, Reason>,
        payer: ARef<Sock>,
    ) -> Result<Self> {
        let eligibility = Eligibility {
            option: true,
            refuse: port.as_ref().err().copied(),
        };
        Ok(Self {
            driver: KBox::new(
                Driver::server(&policy(gates, sock), &eligibility, now()),
                GFP_KERNEL,
            )?,
            attempt: Attempt::new(gates.clone(), port.ok(), Some(payer), None),
            peer: PeerFacts::UNKNOWN,
        })
    }

    /// Makes the connection for another socket than that of the stream, which goes on with TCP for the present.
    pub(crate) fn set_apart(&mut self) {
        self.attempt.set_apart();
    }

    /// Tells whether a byte of the stream has been taken.
    pub(crate) fn has_begun(&self) -> bool {
        self.driver.has_begun()
    }

    /// Returns when a client whose turn it is to send a CLC message will have been silent for this span.
    pub(crate) fn silent_for(&self, span: Span) -> Option<Instant> {
        self.driver.silent_for(span)
    }

    /// Goes on as far as possible, with the messages on `stream`, for the connection `sock`, which is the same as a rule.
    /// May sleep if `may_block`, but not for the peer's CLC messages.
    pub(crate) fn advance(
        &mut self,
        stream: &Sock,
        sock: &ARef<Sock>,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
        may_block: bool,
    ) -> Progress {
        let mut endpoint = RunEndpoint {
            attempt: &mut self.attempt,
            peer: &mut self.peer,
            stream,
            sock,
            waiter,
            may_block,
        };
        match self.driver.advance(&mut endpoint) {
            driver::Progress::Awaiting(until) => Progress::Pending(look_again(stream, until)),
            driver::Progress::Queued(until) => Progress::Pending(until),
            driver::Progress::Deferred => Progress::Heavy,
            driver::Progress::Done(outcome) => Progress::Done(outcome),
        }
    }

    /// Ends a successful handshake. Returns its connection.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` when the link was lost meanwhile; `ENOMEM`.
    pub(crate) fn commit(self) -> Result<Arc<SmcConn>> {
        let link = self.driver.link();
        let mut peer = self.peer;
        peer.link_uid = link.peer_uid;
        self.attempt.commit(link.number, peer)
    }

    /// Returns for how long there has been the link that this handshake has begun, if it has.
    pub(crate) fn first_contact_took(&self) -> Option<Span> {
        self.attempt.first_contact_took()
    }

    /// Tells whether the port has failed since this handshake has its group. Sleeps.
    pub(crate) fn has_port_failed(&self) -> bool {
        self.attempt.has_port_failed()
    }

    /// Ends the group, which the peer does not know.
    pub(crate) fn out_of_sync(&self) {
        self.attempt.out_of_sync();
    }
}

/// Socket and link as the protocol's driver uses them, during one [`HandshakeRun::advance`].
struct RunEndpoint<'a> {
    attempt: &'a mut Attempt,
    peer: &'a mut PeerFacts,
    stream: &'a Sock,
    sock: &'a ARef<Sock>,
    waiter: &'a dyn Fn() -> Arc<dyn Waiter>,
    may_block: bool,
}

impl Endpoint for RunEndpoint<'_> {
    type Buffer = Buffer;
    type Proposal = KBox<Proposal>;

    fn now(&self) -> Instant {
        now()
    }

    fn buffer(&self) -> Option<Buffer> {
        let buf = KVec::from_elem(0u8, clc::MAX_LEN, GFP_KERNEL);
        buf.ok().map(Buffer)
    }

    fn proposal(&self) -> Option<KBox<Proposal>> {
        KBox::new(Proposal::default(), GFP_KERNEL).ok()
    }

    fn admits(&mut self, step: &Step) -> bool {
        self.may_block || !(matches!(step, Step::Acquire(_)) || self.attempt.holds_group())
    }

    fn send(&mut self, message: &[u8]) -> bool {
        // After first contact the peer waits for the link, too.
        if !self.attempt.is_first_contact() {
            (self.waiter)().answers();
        }
        // The unused send buffer of a new connection takes a message whole.
        self.stream.send(message) == Ok(message.len())
    }

    fn receive(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        self.stream.receive(buf).map_err(stream_error)
    }

    fn peek(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        self.stream.peek(buf).map_err(stream_error)
    }

    fn is_shut(&self) -> bool {
        self.stream.shutdown_mask() & RECEIVE != 0
    }

    fn take_v1(&mut self, client: &Prefixes) -> Result<(), Reason> {
        self.attempt.take_v1(self.sock, client)
    }

    fn acquire(&mut self, want: &Want, peer: Option<&RdmaEnd>) -> Result<Option<Acquired>, Reason> {
        self.attempt.acquire(want, self.sock, peer, self.waiter)
    }

    fn adopt(&mut self, first_contact: bool, mtu: Mtu, peer: &RdmaEnd) -> Result<(), Reason> {
        self.attempt
            .adopt(first_contact, mtu, self.sock, peer, self.waiter)
            .map_err(not_ready)
    }

    fn to_rts(&mut self) -> Result<(), Reason> {
        self.attempt.to_rts().map_err(not_ready)
    }

    fn send_llc(&mut self, frame: &Frame, full: bool) -> Result<(), Reason> {
        self.attempt.send_llc(*frame, full).map_err(not_ready)
    }

    fn take_llc(&mut self) -> Option<LlcEvent> {
        self.attempt.take_event()
    }

    fn is_link_lost(&self) -> bool {
        self.attempt.is_lost()
    }

    fn expose(&mut self) {
        self.attempt.expose();
    }

    fn agreed(&mut self, agreement: &Agreement) {
        *self.peer = PeerFacts::of(agreement);
    }

    fn declined(&mut self) {
        self.attempt.declined();
    }
}

/// Returns over how many lanes connections as that of `sock` may be spread: one for each CPU that can have completions
/// of its own, at most as many as the administrator says.
fn most_lanes(sock: &Sock, port: &LocalPort) -> u32 {
    let most = Namespace::of(sock).map_or(1, |here| here.sysctls.get(Sysctl::PeerGroups));
    let useful = host::online_cpus().min(port.device.vectors());
    useful.min(u32::try_from(most).unwrap_or(1))
}

/// Returns the terms that this host offers and accepts in a handshake over `sock`.
fn policy(gates: &Gates, sock: &Sock) -> Policy {
    let namespace = Namespace::of(sock);
    let name = namespace
        .as_ref()
        .map_or(host::Name::NONE, |here| here.host_name());
    let mut policy = Policy::new(gates.registry().peer_id, name.text());
    if let Some(initial) = Namespace::initial() {
        let eids = initial.eids.of_user();
        if !eids.is_empty() {
            policy.set_eids(&eids);
        }
    }
    policy.class = Class {
        traffic: sock.traffic_class(),
        priority: u8::try_from(sock.packet_priority()).unwrap_or(0),
    };
    if let Some(namespace) = namespace {
        // The administrator's, unless it is -1.
        if let Ok(traffic) = u8::try_from(namespace.sysctls.get(Sysctl::TrafficClass)) {
            policy.class = Class {
                traffic,
                priority: priority_of(traffic),
            };
            policy.class_is_fixed = true;
        }
        let most = namespace.sysctls.get(Sysctl::MaxConns);
        policy.max_conns = u8::try_from(most).unwrap_or(u8::MAX);
        if namespace.sysctls.get(Sysctl::Immediate) == 0 {
            policy.extensions = policy.extensions.without(Extensions::IMMEDIATE);
        }
    }
    policy
}

fn stream_error(err: Error) -> StreamError {
    if err == EAGAIN {
        StreamError::Empty
    } else {
        StreamError::Failed
    }
}

fn not_ready(_: Error) -> Reason {
    Reason::ReadyLinkError
}

/// Returns the time of the next look at the stream, `until` at the latest: TCP does not announce a
/// message shorter than the program's `SO_RCVLOWAT`, which may be the listener's.
fn look_again(sock: &Sock, until: Instant) -> Instant {
    if sock.has_low_water() {
        until.min(now().after(LOOK_AGAIN))
    } else {
        until
    }
}
