// SPDX-License-Identifier: GPL-2.0

//! The server's side of the handshake.
//!
//! Wait for PROPOSAL, choose EID and limits, join or start a group, ACCEPT, wait for CONFIRM,
//! adopt the client's end; on first contact then bring the link up, ask CONFIRM_LINK and wait for
//! its answer.

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

/// Progress of a server through the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServerState {
    AwaitProposal,
    Acquiring,
    Accepting,
    AwaitConfirm,
    Adopting,
    Asking,
    AwaitConfirmLink,
    /// Telling a release 0 client that there will be no second link.
    Refusing,
    /// CONFIRM_LINK was not answered, or the link failed: look for a decline, then decline.
    Grace(Reason),
    /// Our decline is being sent.
    Declining {
        reason: Reason,
        strip: bool,
    },
    Over,
}

/// A server's handshake.
#[derive(Debug)]
pub struct Server {
    policy: Policy,
    refuse: Option<Reason>,
    state: ServerState,
    /// Version of the client's proposal.
    version: u8,
    eid: Eid,
    agreed: Agreed,
    own: Option<Acquired>,
    peer: Option<RdmaEnd>,
    link_uid: [u8; 4],
    until: Instant,
}

impl Server {
    /// Begins a handshake over a TCP connection that was just accepted.
    pub fn start(policy: &Policy, eligibility: &Eligibility, now: Instant) -> (Server, Step) {
        let mut server = Server {
            policy: *policy,
            refuse: eligibility.refuse,
            state: ServerState::AwaitProposal,
            version: V1,
            eid: Eid::NONE,
            agreed: Agreed::release_0(),
            own: None,
            peer: None,
            link_uid: [0; 4],
            until: now,
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
        self.peer.as_ref()
    }

    /// The client's identifier of the new link.
    #[must_use]
    pub fn peer_link_uid(&self) -> [u8; 4] {
        self.link_uid
    }

    fn first_contact(&self) -> bool {
        self.own.is_some_and(|o| o.first_contact)
    }

    /// Goes on with `input`; what does not fit the last step fails the handshake.
    pub fn step(&mut self, input: Input<'_>, now: Instant) -> Step {
        match (&input, self.state) {
            (_, ServerState::Over) => failed(Failure::Aborted),
            (Input::Cancel, _) => self.finish(failed(Failure::Cancelled)),
            (Input::TcpError, _) => self.finish(failed(Failure::Tcp)),
            // The option was merely echoed by something on the way: the bytes are the program's.
            (Input::Broken(ReadError::NotClc), ServerState::AwaitProposal) => {
                self.finish(fallback(Reason::PeerNotSmc, false))
            }
            (Input::Broken(e), _) => self.finish(broken(*e)),
            (Input::Decline(d), _) => self.finish(declined(d)),

            (Input::Timer, ServerState::AwaitProposal | ServerState::AwaitConfirm) => {
                self.finish(failed(Failure::TimedOut))
            }
            (Input::Proposal(p), ServerState::AwaitProposal) => self.on_proposal(p),

            (Input::Acquired(own), ServerState::Acquiring) => {
                self.own = Some(**own);
                self.state = ServerState::Accepting;
                Step::Send
            }
            (Input::Failed(reason), ServerState::Acquiring) => self.decline(*reason, false),

            (Input::Sent, ServerState::Accepting) => {
                self.state = ServerState::AwaitConfirm;
                await_clc(MsgType::Confirm, now.after(WAIT_CLC))
            }
            (Input::LinkLost, ServerState::AwaitConfirm) if self.first_contact() => {
                self.decline(Reason::ReadyLinkError, false)
            }
            (Input::LinkLost, ServerState::AwaitConfirm) => self.finish(failed(Failure::Aborted)),
            (Input::Confirm(c), ServerState::AwaitConfirm) => self.on_confirm(c),

            (Input::Done, ServerState::Adopting) => self.on_adopted(),
            (Input::Failed(reason), ServerState::Adopting) => self.too_late(*reason),

            (Input::Done, ServerState::Asking) => {
                self.state = ServerState::AwaitConfirmLink;
                self.until = now.after(WAIT_SERVER_LLC);
                await_link(self.until)
            }
            (Input::Failed(_), ServerState::Asking) => self.grace(Reason::ConfirmLinkTimeout, now),
            (Input::Llc(event), ServerState::AwaitConfirmLink) => self.on_llc(event),
            (Input::Timer, ServerState::AwaitConfirmLink) => {
                self.grace(Reason::ConfirmLinkTimeout, now)
            }
            (Input::LinkLost, ServerState::AwaitConfirmLink) => {
                self.grace(Reason::ReadyLinkError, now)
            }
            // Whether the message could be sent or not: the link is up.
            (Input::Done | Input::Failed(_), ServerState::Refusing) => {
                self.finish(Step::Finish(Outcome::Established))
            }

            (Input::Timer, ServerState::Grace(reason)) => self.decline(reason, true),
            (Input::Llc(_) | Input::LinkLost, ServerState::Grace(_)) => {
                await_clc(MsgType::Decline, self.until)
            }

            (Input::Sent, ServerState::Declining { reason, strip }) => {
                self.finish(fallback(reason, strip))
            }
            _ => self.finish(failed(Failure::Protocol)),
        }
    }

    fn finish(&mut self, step: Step) -> Step {
        self.state = ServerState::Over;
        step
    }

    fn decline(&mut self, reason: Reason, strip: bool) -> Step {
        self.state = ServerState::Declining { reason, strip };
        Step::Send
    }

    fn grace(&mut self, reason: Reason, now: Instant) -> Step {
        self.state = ServerState::Grace(reason);
        self.until = now.after(WAIT_DECLINE);
        await_clc(MsgType::Decline, self.until)
    }

    /// A failure after the client's confirm: on a group that existed the client already speaks
    /// SMC, so there is no way back to TCP.
    fn too_late(&mut self, reason: Reason) -> Step {
        if self.first_contact() {
            self.decline(reason, true)
        } else {
            self.finish(failed(Failure::Aborted))
        }
    }

    fn on_proposal(&mut self, p: &Proposal) -> Step {
        self.version = p.version;
        if let Some(reason) = self.refuse {
            return self.decline(reason, false);
        }
        match self.check_proposal(p) {
            Ok(want) => {
                self.state = ServerState::Acquiring;
                Step::Acquire(want)
            }
            Err(reason) => self.decline(reason, false),
        }
    }

    fn check_proposal(&mut self, p: &Proposal) -> Result<Want, Reason> {
        let v2 = p.v2().ok_or(Reason::NoV2Extension)?;
        if !p.path_v2.has_r() || v2.roce_gid.is_zero() {
            return Err(Reason::ModeMismatch);
        }
        self.eid = self
            .policy
            .match_eid(v2.eids.as_slice())
            .ok_or(Reason::NoUserEid)?;
        if v2.release > 0 {
            let [a, b, c, d, ..] = p.vendor;
            self.agreed = Agreed {
                release: v2.release.min(RELEASE),
                max_conns: v2.max_conns.min(self.policy.max_conns),
                max_links: v2.max_links.min(self.policy.max_links),
                features: v2.features & self.policy.features(),
                extensions: Extensions::from_wire([a, b, c, d]).common(self.policy.extensions),
            };
            if self.agreed.max_conns < MIN_CONNS {
                return Err(Reason::MaxConnections);
            }
            if self.agreed.max_links == 0 {
                return Err(Reason::MaxLinks);
            }
        }
        Ok(Want {
            key: Key {
                role: Role::Server,
                version: V2,
                peer_id: p.peer_id,
                peer_gid: v2.roce_gid,
                peer_mac: Mac::ZERO,
                vlan: 0,
            },
            first_contact: None,
            link: None,
            direct: true,
            max_conns: self.agreed.max_conns,
            max_links: self.agreed.max_links,
            release: self.agreed.release,
            extensions: self.agreed.extensions,
        })
    }

    fn on_confirm(&mut self, confirm: &Confirm) -> Step {
        let Some(own) = self.own else {
            return self.finish(failed(Failure::Protocol));
        };
        let a = &confirm.agreement;
        let end = match a.end {
            End::R(end) if is_sane(&end) => end,
            _ => return self.finish(failed(Failure::Protocol)),
        };
        if a.version != V2 || a.first_contact != own.first_contact {
            return self.finish(failed(Failure::Protocol));
        }
        self.peer = Some(end);
        if let Err(reason) = self.check_echo(a) {
            return self.too_late(reason);
        }
        self.state = ServerState::Adopting;
        Step::Adopt {
            first_contact: own.first_contact,
            mtu: own.end.mtu.min(end.mtu),
        }
    }

    /// The client must repeat release and limits.
    fn check_echo(&self, a: &Agreement) -> Result<(), Reason> {
        if !a.first_contact {
            return Ok(());
        }
        let fce = a.fce.ok_or(Reason::Release)?;
        if fce.release != self.agreed.release {
            return Err(Reason::Release);
        }
        if fce.release == 0 {
            return Ok(());
        }
        let limits = fce.limits.ok_or(Reason::Release)?;
        if limits.max_conns != self.agreed.max_conns {
            return Err(Reason::MaxConnections);
        }
        if limits.max_links != self.agreed.max_links {
            return Err(Reason::MaxLinks);
        }
        Ok(())
    }

    fn on_adopted(&mut self) -> Step {
        let Some(own) = self.own else {
            return self.finish(failed(Failure::Protocol));
        };
        if !own.first_contact {
            return self.finish(Step::Finish(Outcome::Established));
        }
        self.state = ServerState::Asking;
        let request = ConfirmLink {
            mac: own.end.mac,
            gid: own.end.gid,
            qpn: own.end.qpn,
            link_num: FIRST_LINK,
            link_uid: link_uid(&own),
            max_links: self.agreed.max_links,
            max_conns: 0,
        };
        let mut frame = [0; LEN];
        match request.emit(Version::V2, false, &mut frame) {
            Ok(_) => Step::SendLlc(frame),
            Err(_) => self.finish(failed(Failure::Protocol)),
        }
    }

    fn on_llc(&mut self, event: &LlcEvent) -> Step {
        match event {
            LlcEvent::ConfirmLink {
                message,
                no_eyecatcher: true,
            } => {
                self.link_uid = message.link_uid;
                self.refuse_second_link()
            }
            LlcEvent::ConfirmLink { .. } => self.decline(Reason::RmbeEyecatcher, true),
            _ => await_link(self.until),
        }
    }

    /// A client with which two links were agreed waits 3 s for ADD_LINK. One that cannot be
    /// accepted (MTU 0, but not all zero) ends its wait at once.
    fn refuse_second_link(&mut self) -> Step {
        if self.agreed.max_links < 2 {
            return self.finish(Step::Finish(Outcome::Established));
        }
        self.state = ServerState::Refusing;
        let offer = AddLink {
            gid: self.own.map(|o| o.end.gid).unwrap_or_default(),
            mac: self.own.map(|o| o.end.mac).unwrap_or_default(),
            link_num: FIRST_LINK.wrapping_add(1),
            ..AddLink::default()
        };
        let mut frame = [0; LEN];
        match offer.emit(Version::V2, &[], &mut frame) {
            Ok(_) => Step::SendLlc(frame),
            Err(_) => self.finish(Step::Finish(Outcome::Established)),
        }
    }

    /// Writes the message that [`Step::Send`] asks for into `buf` and gives its length. A buffer
    /// of [`MAX_LEN`](crate::wire::clc::MAX_LEN) bytes always suffices.
    ///
    /// # Errors
    ///
    /// [`EmitError`] if the buffer is too small or nothing is to be sent.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        match (self.state, &self.own) {
            (ServerState::Accepting, Some(own)) => {
                let fce = own
                    .first_contact
                    .then(|| self.policy.first_contact(&self.agreed, own.direct));
                let accept = Agreement {
                    version: V2,
                    first_contact: own.first_contact,
                    end: End::R(RdmaEnd {
                        peer_id: self.policy.peer_id,
                        ..own.end
                    }),
                    eid: self.eid,
                    fce,
                };
                accept.emit_accept(buf)
            }
            (ServerState::Declining { reason, .. }, _) => {
                Decline::new(self.version, reason, self.policy.peer_id).emit(buf)
            }
            _ => Err(EmitError::Invalid),
        }
    }
}
