// SPDX-License-Identifier: GPL-2.0

//! The decision which of a namespace's TCP sockets become sockets of the family, and which of these offer
//! SMC.
//!
//! A socket is converted, or not, at its creation. Rules about ports and peers can only be judged later:
//! a socket that may become SMC's by one of them is converted, and listen(), connect() and each incoming
//! connection ask again. `auto` rules also consult the history of the service, which is the port of a listener, or
//! the address and port of a peer.

use crate::host::{
    namespace::Namespace,
    rules::{facts, RuleSet},
    sysctl::Sysctl, //
};
use kapi::net::{
    netns::Net,
    process::{Process, Wanted}, //
    sock::Sock,
    sockaddr::SockAddr,
    stock::convert::Asked,
};
use kernel::{prelude::*, sync::Arc};
use smc_proto::{
    learn::Service,
    policy::{Facts, Outcome, Verdict},
    reason::Reason,
    time::Span, //
};

/// The values of the sysctl.
mod mode {
    /// All sockets.
    pub(super) const ALL: i32 = 1;
    /// Those that a rule allows.
    pub(super) const ALLOWED: i32 = 2;
}

/// Decides about the socket that the current task makes.
pub(crate) fn decide(net: &Net, asked: Asked) -> bool {
    let Some(namespace) = Namespace::at(net) else {
        return false;
    };
    let mode = namespace.sysctls.get(Sysctl::Tcp2Smc);
    let tcp = asked == Asked::Tcp;
    if let Some(all) = without_rules(mode, tcp) {
        return all;
    }
    match namespace.rules.get() {
        None => otherwise(mode, tcp),
        Some(rules) => {
            let process = rules.current(net);
            let outcome = rules.decide(&Facts {
                mptcp: Some(!tcp),
                ..facts(&process)
            });
            converts(&outcome, otherwise(mode, tcp))
        }
    }
}

/// Returns the time that the redirection stays after its last user: the initial namespace's, which the
/// users of others cannot change.
pub(crate) fn idle() -> Span {
    let initial = Namespace::initial();
    let ms = initial.map_or(0, |initial| initial.sysctls.get(Sysctl::HookIdle));
    Span::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Returns whether sockets are converted where no rule is asked.
fn without_rules(mode: i32, tcp: bool) -> Option<bool> {
    match mode {
        0 => Some(false),
        mode::ALL if tcp => Some(true),
        _ => None,
    }
}

/// Returns whether sockets are converted that no rule is about. MPTCP stays unless a rule names it.
fn otherwise(mode: i32, tcp: bool) -> bool {
    mode != mode::ALLOWED && tcp
}

/// Returns whether a socket with this outcome is converted, or may have to be.
fn converts(outcome: &Outcome, otherwise: bool) -> bool {
    outcome.may_allow || outcome.hit.map_or(otherwise, |hit| hit.verdict.allows())
}

/// Answer to the question what would happen to a socket.
pub(crate) struct Tested {
    /// The sysctl.
    pub(crate) mode: i32,
    /// Whether it would become SMC's.
    pub(crate) allowed: bool,
    /// Whether that may change when more is known.
    pub(crate) open: bool,
    /// Number of the rule that decides.
    pub(crate) rule: Option<u32>,
}

/// Says what would happen to a socket with these facts.
pub(crate) fn test(namespace: &Namespace, facts: &Facts<'_>) -> Tested {
    let mode = namespace.sysctls.get(Sysctl::Tcp2Smc);
    let tcp = facts.mptcp != Some(true);
    let mut tested = Tested {
        mode,
        allowed: without_rules(mode, tcp).unwrap_or(otherwise(mode, tcp)),
        open: false,
        rule: None,
    };
    if let (None, Some(rules)) = (without_rules(mode, tcp), namespace.rules.get()) {
        let outcome = rules.decide(facts);
        tested.allowed = converts(&outcome, tested.allowed);
        tested.open = outcome.open;
        tested.rule = outcome
            .hit
            .and_then(|hit| rules.at(hit.rule as usize))
            .map(|(_, label)| label.id);
    }
    tested
}

/// What concerns a socket that exists: the rules, and what holds without them.
struct Concern {
    rules: Option<Arc<RuleSet>>,
    otherwise: bool,
}

impl Concern {
    /// Returns `None` where all sockets may be SMC's.
    fn of(namespace: &Namespace, converted: bool) -> Option<Self> {
        match namespace.sysctls.get(Sysctl::Tcp2Smc) {
            0 | mode::ALL => None,
            mode => Some(Self {
                rules: namespace.rules.get(),
                // A program that has asked for SMC gets it, unless a rule denies it.
                otherwise: mode != mode::ALLOWED || !converted,
            }),
        }
    }

    /// Returns whether a connection with `peer` to the service may be SMC's, or why not.
    fn allows(
        &self,
        namespace: &Namespace,
        process: &Process,
        port: u16,
        peer: &SockAddr,
        service: &Service,
    ) -> Result<(), Reason> {
        let Some(rules) = &self.rules else {
            return unless_denied(self.otherwise);
        };
        let outcome = rules.decide(&Facts {
            port: Some(port),
            peer: Some((peer.mapped(), peer.port)),
            ..facts(process)
        });
        unless_denied(rules.verdict(&outcome, self.otherwise).0)?;
        match is_auto(&outcome) && !namespace.learned.offers(service) {
            true => Err(Reason::Unpaid),
            false => Ok(()),
        }
    }
}

fn unless_denied(allowed: bool) -> Result<(), Reason> {
    match allowed {
        true => Ok(()),
        false => Err(Reason::Policy),
    }
}

/// Returns whether what is learnt decides.
fn is_auto(outcome: &Outcome) -> bool {
    outcome.hit.is_some_and(|hit| hit.verdict == Verdict::Auto)
}

/// Decides whether the connection to `peer` that the current task begins offers SMC, or why not. `converted` says
/// that the program asked for TCP. May sleep.
pub(crate) fn connects(
    namespace: &Namespace,
    sock: &Sock,
    converted: bool,
    peer: impl FnOnce() -> SockAddr,
) -> Result<(), Reason> {
    let Some(concern) = Concern::of(namespace, converted) else {
        return Ok(());
    };
    let Some(rules) = &concern.rules else {
        return unless_denied(concern.otherwise);
    };
    let peer = peer();
    let process = rules.current(sock.namespace());
    let service = Service::Peer(peer.mapped(), peer.port);
    let port = sock.local_addr().port;
    concern.allows(namespace, &process, port, &peer, &service)
}

/// The facts about a listener, for the rules that hold when a client comes: its clients that speak SMC are judged by
/// these, not by those that held when it began to listen.
pub(crate) struct PerClient {
    namespace: Arc<Namespace>,
    process: KBox<Process>,
    port: u16,
    converted: bool,
    /// When listen() found that all clients are welcome: the sysctl and the number of the rules' changes for which
    /// that holds.
    all: Option<(i32, u64)>,
}

/// Decides about a socket that the current task is going to listen on. Returns `None` if it takes no client that speaks
/// SMC: then it is TCP's, for good.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn listens(
    namespace: &Arc<Namespace>,
    sock: &Sock,
    converted: bool,
) -> Result<Option<PerClient>> {
    // Before the rules are read.
    let state = (
        namespace.sysctls.get(Sysctl::Tcp2Smc),
        namespace.rules.changes(),
    );
    let all = Wanted {
        exe: true,
        cgroup: true,
    };
    let mut asking = PerClient {
        namespace: namespace.clone(),
        process: KBox::new(Process::current(sock.namespace(), all), GFP_KERNEL_ACCOUNT)?,
        port: sock.local_addr().port,
        converted,
        all: Some(state),
    };
    let Some(concern) = Concern::of(namespace, converted) else {
        return Ok(Some(asking));
    };
    let Some(rules) = &concern.rules else {
        return Ok(concern.otherwise.then_some(asking));
    };
    let outcome = rules.decide(&asking.facts());
    let each = outcome
        .hit
        .is_some_and(|hit| matches!(hit.verdict, Verdict::Share(1..100) | Verdict::Auto));
    if outcome.open || each {
        asking.all = None;
        return Ok(Some(asking));
    }
    let welcome = rules.verdict(&outcome, concern.otherwise).0;
    Ok(welcome.then_some(asking))
}

impl PerClient {
    fn service(&self) -> Service {
        Service::Port(self.port)
    }

    /// Returns what is known before a client comes.
    fn facts(&self) -> Facts<'_> {
        Facts {
            port: Some(self.port),
            ..facts(&self.process)
        }
    }

    /// Decides about a connection that has come in: whether it may be SMC's, or why not. May sleep.
    pub(crate) fn accepts(&self, sock: &Sock) -> Result<(), Reason> {
        let namespace = &*self.namespace;
        let mode = namespace.sysctls.get(Sysctl::Tcp2Smc);
        if self.all == Some((mode, namespace.rules.changes())) {
            return Ok(());
        }
        match Concern::of(namespace, self.converted) {
            Some(concern) => {
                let peer = sock.peer_addr();
                concern.allows(namespace, &self.process, self.port, &peer, &self.service())
            }
            None => Ok(()),
        }
    }

    /// Returns whether no client is to be offered SMC, whoever it is, because they do not pay. May sleep.
    pub(crate) fn pauses(&self) -> bool {
        let namespace = &*self.namespace;
        if namespace.learned.is_empty() {
            return false;
        }
        let concern = Concern::of(namespace, self.converted);
        let rules = concern.and_then(|concern| concern.rules);
        let Some(rules) = rules.filter(|rules| rules.learns) else {
            return false;
        };
        let outcome = rules.decide(&self.facts());
        !outcome.open && is_auto(&outcome) && !namespace.learned.offers(&self.service())
    }
}
