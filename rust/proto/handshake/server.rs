// SPDX-License-Identifier: GPL-2.0

//! The server's side of the handshake.
//!
//! Wait for PROPOSAL, choose version, EID and limits, join or start a group, ACCEPT, wait for CONFIRM,
//! adopt the client's end; on first contact then bring the link up, ask CONFIRM_LINK and wait for
//! its answer.
//!
//! Version 2 is preferred: with a client that offers it, and an EID in common, nothing of version 1 is looked at.

use super::client::{
    await_clc,
    await_link,
    link_uid, //
};
use super::policy::{
    Agreed,
    Policy,
    MIN_CONNS,
    RELEASE, //
};
use super::{
    broken,
    declined,
    failed,
    fallback,
    is_sane,
    Acquired,
    Eligibility,
    Failure,
    Input,
    Outcome,
    Step,
    Want,
    WAIT_CLC,
    WAIT_DECLINE,
    WAIT_SERVER_LLC, //
};
use crate::error::{
    EmitError,
    ReadError, //
};
use crate::group::choice::Key;
use crate::llc::link::Role;
use crate::llc::responder::LlcEvent;
use crate::reason::Reason;
use crate::time::Instant;
use crate::wire::clc::{
    vendor,
    Agreement,
    Confirm,
    Decline,
    Eid,
    End,
    Extensions,
    MsgType,
    Proposal,
    RdmaEnd,
    V1,
    V2, //
};
use crate::wire::ids::Mac;
use crate::wire::llc::link::{
    AddLink,
    ConfirmLink, //
};
use crate::wire::llc::{
    Version,
    LEN, //
};

/// Number of the first link of a group.
pub const FIRST_LINK: u8 = 1;

/// What was chosen from the client's proposal.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    /// Version of the proposal, and of a decline.
    proposed: u8,
    /// Version of the connection.
    version: u8,
    /// None in version 1.
    eid: Eid,
    agreed: Agreed,
}

/// Both ends of the connection.
#[derive(Clone, Copy, Debug)]
struct Ends {
    chosen: Chosen,
    own: Acquired,
    peer: RdmaEnd,
}

/// Progress of a server through the handshake, each state with what is known by then.
#[derive(Clone, Copy, Debug)]
enum ServerState {
    AwaitProposal,
    Acquiring(Chosen),
    Accepting(Chosen, Acquired),
    AwaitConfirm(Chosen, Acquired),
    Adopting(Ends),
    Asking(Ends),
    AwaitConfirmLink {
        ends: Ends,
        until: Instant,
    },
    /// Telling a client that expects a second link that there will be none.
    Refusing {
        peer: RdmaEnd,
        link_uid: [u8; 4],
    },
    /// CONFIRM_LINK was not answered, or the link failed: look for a decline, then decline.
    Grace {
        reason: Reason,
        version: u8,
        until: Instant,
    },
    /// Our decline is being sent.
    Declining {
        reason: Reason,
        version: u8,
        strip: bool,
    },
    /// The identifier is zero without a new link.
    Established {
        peer: RdmaEnd,
        link_uid: [u8; 4],
    },
    Over,
}

/// A server's handshake.
#[derive(Debug)]
pub struct Server {
    policy: Policy,
    refuse: Option<Reason>,
    state: ServerState,
}

impl Server {
    /// Begins a handshake over a TCP connection that was just accepted.
    pub fn start(policy: &Policy, eligibility: &Eligibility, now: Instant) -> (Server, Step) {
        let mut server = Server {
            policy: *policy,
            refuse: eligibility.refuse,
            state: ServerState::AwaitProposal,
        };
        let step = if eligibility.option {
            await_clc(MsgType::Proposal, now.after(WAIT_CLC))
        } else {
            server.finish(fallback(Reason::PeerNotSmc, false))
        };
        (server, step)
    }

    /// The client's end, once known: for the queue pair, the rtoken table and `Conn::set_peer`.
    #[must_use]
    pub fn peer_end(&self) -> Option<&RdmaEnd> {
        match &self.state {
            ServerState::Adopting(ends)
            | ServerState::Asking(ends)
            | ServerState::AwaitConfirmLink { ends, .. } => Some(&ends.peer),
            ServerState::Refusing { peer, .. } | ServerState::Established { peer, .. } => {
                Some(peer)
            }
            _ => None,
        }
    }

    /// The client's identifier of the new link; zero without one.
    #[must_use]
    pub fn peer_link_uid(&self) -> [u8; 4] {
        match self.state {
            ServerState::Established { link_uid, .. } => link_uid,
            _ => [0; 4],
        }
    }

    /// Goes on with `input`; what does not fit the last step fails the handshake.
    pub fn step(&mut self, input: Input<'_>, now: Instant) -> Step {
        match (&input, self.state) {
            (_, ServerState::Established { .. } | ServerState::Over) => failed(Failure::Aborted),
            (Input::Cancel, _) => self.finish(failed(Failure::Cancelled)),
            (Input::TcpError, _) => self.finish(failed(Failure::Tcp)),
            // The option was merely echoed by something on the way: the bytes are the program's.
            (Input::Broken(ReadError::NotClc), ServerState::AwaitProposal) => {
                self.finish(fallback(Reason::PeerNotSmc, false))
            }
            (Input::Broken(e), _) => self.finish(broken(*e)),
            (Input::Decline(d), _) => self.finish(declined(d)),

            (Input::Timer, ServerState::AwaitProposal | ServerState::AwaitConfirm(..)) => {
                self.finish(failed(Failure::TimedOut))
            }
            (Input::Proposal(p), ServerState::AwaitProposal) => self.on_proposal(p),

            (Input::Acquired(own), ServerState::Acquiring(chosen)) => {
                self.state = ServerState::Accepting(chosen, **own);
                Step::Send
            }
            (Input::Failed(reason), ServerState::Acquiring(chosen)) => {
                self.decline(chosen.proposed, *reason, false)
            }

            (Input::Sent, ServerState::Accepting(chosen, own)) => {
                self.state = ServerState::AwaitConfirm(chosen, own);
                await_clc(MsgType::Confirm, now.after(WAIT_CLC))
            }
            (Input::LinkLost, ServerState::AwaitConfirm(chosen, own)) => match own.first_contact {
                true => self.decline(chosen.proposed, Reason::ReadyLinkError, false),
                false => self.finish(failed(Failure::Aborted)),
            },
            (Input::Confirm(c), ServerState::AwaitConfirm(chosen, own)) => {
                self.on_confirm(c, chosen, own)
            }

            (Input::Done, ServerState::Adopting(ends)) => self.on_adopted(ends),
            (Input::Failed(reason), ServerState::Adopting(ends)) => {
                self.too_late(&ends.chosen, &ends.own, *reason)
            }

            (Input::Done, ServerState::Asking(ends)) => {
                let until = now.after(WAIT_SERVER_LLC);
                self.state = ServerState::AwaitConfirmLink { ends, until };
                await_link(until)
            }
            (Input::Failed(_), ServerState::Asking(ends)) => {
                self.grace(&ends, Reason::ConfirmLinkTimeout, now)
            }
            (Input::Llc(event), ServerState::AwaitConfirmLink { ends, until }) => {
                self.on_llc(event, &ends, until)
            }
            (Input::Timer, ServerState::AwaitConfirmLink { ends, .. }) => {
                self.grace(&ends, Reason::ConfirmLinkTimeout, now)
            }
            (Input::LinkLost, ServerState::AwaitConfirmLink { ends, .. }) => {
                self.grace(&ends, Reason::ReadyLinkError, now)
            }
            // Whether the message could be sent or not: the link is up.
            (Input::Done | Input::Failed(_), ServerState::Refusing { peer, link_uid }) => {
                self.establish(peer, link_uid)
            }

            (
                Input::Timer,
                ServerState::Grace {
                    reason, version, ..
                },
            ) => self.decline(version, reason, true),
            (Input::Llc(_) | Input::LinkLost, ServerState::Grace { until, .. }) => {
                await_clc(MsgType::Decline, until)
            }

            (Input::Sent, ServerState::Declining { reason, strip, .. }) => {
                self.finish(fallback(reason, strip))
            }
            _ => self.finish(failed(Failure::Protocol)),
        }
    }

    fn finish(&mut self, step: Step) -> Step {
        self.state = ServerState::Over;
        step
    }

    fn establish(&mut self, peer: RdmaEnd, link_uid: [u8; 4]) -> Step {
        self.state = ServerState::Established { peer, link_uid };
        Step::Finish(Outcome::Established)
    }

    fn decline(&mut self, version: u8, reason: Reason, strip: bool) -> Step {
        self.state = ServerState::Declining {
            reason,
            version,
            strip,
        };
        Step::Send
    }

    fn grace(&mut self, ends: &Ends, reason: Reason, now: Instant) -> Step {
        let until = now.after(WAIT_DECLINE);
        self.state = ServerState::Grace {
            reason,
            version: ends.chosen.proposed,
            until,
        };
        await_clc(MsgType::Decline, until)
    }

    /// A failure after the client's confirm: on a group that existed the client already speaks
    /// SMC, so there is no way back to TCP.
    fn too_late(&mut self, chosen: &Chosen, own: &Acquired, reason: Reason) -> Step {
        if own.first_contact {
            self.decline(chosen.proposed, reason, true)
        } else {
            self.finish(failed(Failure::Aborted))
        }
    }

    /// Has the next proposal declined for this reason.
    pub(super) fn refuse(&mut self, reason: Reason) {
        self.refuse = Some(reason);
    }

    /// Tells whether the client's connection can be of version 1 alone, which it offers.
    #[must_use]
    pub(super) fn falls_to_v1(&self, p: &Proposal) -> bool {
        self.refuse.is_none() && p.path_v1.has_r() && self.common_eid(p).is_err()
    }

    fn on_proposal(&mut self, p: &Proposal) -> Step {
        if let Some(reason) = self.refuse {
            return self.decline(p.version, reason, false);
        }
        match self.check_proposal(p) {
            Ok((chosen, want)) => {
                self.state = ServerState::Acquiring(chosen);
                Step::Acquire(want)
            }
            Err(reason) => self.decline(p.version, reason, false),
        }
    }

    fn check_proposal(&self, p: &Proposal) -> Result<(Chosen, Want), Reason> {
        match self.common_eid(p) {
            Ok(eid) => self.choose_v2(p, eid),
            Err(_) if p.path_v1.has_r() => self.choose_v1(p),
            Err(reason) => Err(reason),
        }
    }

    /// The EID by which version 2 can be spoken; else the reason why it cannot.
    fn common_eid(&self, p: &Proposal) -> Result<Eid, Reason> {
        let v2 = p.v2().ok_or(Reason::NoV2Extension)?;
        if !p.path_v2.has_r() || v2.roce_gid.is_zero() {
            return Err(Reason::ModeMismatch);
        }
        self.policy
            .match_eid(v2.eids.as_slice())
            .ok_or(Reason::NoUserEid)
    }

    fn choose_v1(&self, p: &Proposal) -> Result<(Chosen, Want), Reason> {
        if p.gid.is_zero() || !p.mac.is_station() {
            return Err(Reason::ModeMismatch);
        }
        let key = Key {
            role: Role::Server,
            version: V1,
            peer_id: p.peer_id,
            peer_gid: p.gid,
            peer_mac: p.mac,
            vlan: 0,
            classes: self.policy.classes(None),
        };
        Ok(choice(p, Eid::NONE, Agreed::on_nothing(), key))
    }

    fn choose_v2(&self, p: &Proposal, eid: Eid) -> Result<(Chosen, Want), Reason> {
        let v2 = &p.v2_ext;
        let mut agreed = Agreed::on_nothing();
        let mut class = None;
        if v2.release > 0 {
            let (extensions, told) = vendor::from_proposal(p.vendor);
            class = told;
            agreed = Agreed {
                release: v2.release.min(RELEASE),
                max_conns: v2.max_conns.min(self.policy.max_conns),
                max_links: v2.max_links.min(self.policy.max_links),
                features: v2.features & self.policy.features(),
                extensions: extensions.common(self.policy.extensions),
            };
            if agreed.max_conns < MIN_CONNS {
                return Err(Reason::MaxConnections);
            }
            if agreed.max_links == 0 {
                return Err(Reason::MaxLinks);
            }
        }
        let key = Key {
            role: Role::Server,
            version: V2,
            peer_id: p.peer_id,
            peer_gid: v2.roce_gid,
            peer_mac: Mac::ZERO,
            vlan: 0,
            classes: self.policy.classes(class),
        };
        Ok(choice(p, eid, agreed, key))
    }

    fn on_confirm(&mut self, confirm: &Confirm, chosen: Chosen, own: Acquired) -> Step {
        let a = &confirm.agreement;
        let end = match a.end {
            End::R(end) if is_sane(&end, chosen.version) => end,
            _ => return self.finish(failed(Failure::Protocol)),
        };
        if a.version != chosen.version || a.first_contact != own.first_contact {
            return self.finish(failed(Failure::Protocol));
        }
        if let Err(reason) = check_echo(&chosen.agreed, a) {
            return self.too_late(&chosen, &own, reason);
        }
        self.state = ServerState::Adopting(Ends {
            chosen,
            own,
            peer: end,
        });
        Step::Adopt {
            first_contact: own.first_contact,
            mtu: own.end.mtu.min(end.mtu),
        }
    }

    fn on_adopted(&mut self, ends: Ends) -> Step {
        let own = &ends.own;
        if !own.first_contact {
            return self.establish(ends.peer, [0; 4]);
        }
        self.state = ServerState::Asking(ends);
        let request = ConfirmLink {
            mac: own.end.mac,
            gid: own.end.gid,
            qpn: own.end.qpn,
            link_num: FIRST_LINK,
            link_uid: link_uid(own),
            max_links: ends.chosen.agreed.max_links,
            max_conns: 0,
        };
        let mut frame = [0; LEN];
        let extensions = ends.chosen.agreed.extensions;
        match request.emit(Version::of(ends.chosen.version), false, &mut frame) {
            Ok(_) => Step::SendLlc {
                frame,
                full: extensions.has(Extensions::FULL_PACKET),
            },
            Err(_) => self.finish(failed(Failure::Protocol)),
        }
    }

    fn on_llc(&mut self, event: &LlcEvent, ends: &Ends, until: Instant) -> Step {
        match event {
            LlcEvent::ConfirmLink {
                message,
                no_eyecatcher: true,
            } => self.refuse_second_link(ends, message.link_uid),
            LlcEvent::ConfirmLink { .. } => {
                self.decline(ends.chosen.proposed, Reason::RmbeEyecatcher, true)
            }
            _ => await_link(until),
        }
    }

    /// A client with which two links were agreed waits 3 s for ADD_LINK. One that cannot be
    /// accepted (MTU 0, but not all zero) ends its wait at once.
    fn refuse_second_link(&mut self, ends: &Ends, link_uid: [u8; 4]) -> Step {
        let peer = ends.peer;
        if ends.chosen.agreed.max_links < 2 {
            return self.establish(peer, link_uid);
        }
        self.state = ServerState::Refusing { peer, link_uid };
        let offer = AddLink {
            gid: ends.own.end.gid,
            mac: ends.own.end.mac,
            link_num: FIRST_LINK.wrapping_add(1),
            ..AddLink::default()
        };
        let mut frame = [0; LEN];
        match offer.emit(Version::of(ends.chosen.version), &[], &mut frame) {
            Ok(_) => Step::SendLlc { frame, full: false },
            Err(_) => self.establish(peer, link_uid),
        }
    }

    /// Writes the message that [`Step::Send`] asks for into `buf` and gives its length. A buffer
    /// of [`MAX_LEN`](crate::wire::clc::MAX_LEN) bytes always suffices.
    ///
    /// # Errors
    ///
    /// [`EmitError`] if the buffer is too small or nothing is to be sent.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        match &self.state {
            ServerState::Accepting(chosen, own) => {
                let fce = (own.first_contact && chosen.version > V1)
                    .then(|| self.policy.first_contact(&chosen.agreed, own.direct));
                let accept = Agreement {
                    version: chosen.version,
                    first_contact: own.first_contact,
                    end: End::R(RdmaEnd {
                        peer_id: self.policy.peer_id,
                        ..own.end
                    }),
                    eid: chosen.eid,
                    fce,
                };
                accept.emit_accept(buf)
            }
            &ServerState::Declining {
                reason, version, ..
            } => Decline::new(version, reason, self.policy.peer_id).emit(buf),
            _ => Err(EmitError::Invalid),
        }
    }
}

/// What was chosen from the proposal, and what is wanted for it.
fn choice(p: &Proposal, eid: Eid, agreed: Agreed, key: Key) -> (Chosen, Want) {
    let want = Want {
        key,
        first_contact: None,
        link: None,
        direct: true,
        max_conns: agreed.max_conns,
        max_links: agreed.max_links,
        release: agreed.release,
        extensions: agreed.extensions,
    };
    let chosen = Chosen {
        proposed: p.version,
        version: key.version,
        eid,
        agreed,
    };
    (chosen, want)
}

/// In version 2 the client must repeat release and limits.
fn check_echo(agreed: &Agreed, a: &Agreement) -> Result<(), Reason> {
    if !a.first_contact || a.version == V1 {
        return Ok(());
    }
    let fce = a.fce.ok_or(Reason::Release)?;
    if fce.release != agreed.release {
        return Err(Reason::Release);
    }
    if fce.release == 0 {
        return Ok(());
    }
    let limits = fce.limits.ok_or(Reason::Release)?;
    if limits.max_conns != agreed.max_conns {
        return Err(Reason::MaxConnections);
    }
    if limits.max_links != agreed.max_links {
        return Err(Reason::MaxLinks);
    }
    Ok(())
}
