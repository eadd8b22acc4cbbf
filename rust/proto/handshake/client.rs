// SPDX-License-Identifier: GPL-2.0

//! The client's side of the handshake.
//!
//! PROPOSAL, wait for ACCEPT, join or start the group, CONFIRM; on first contact then wait for
//! CONFIRM_LINK, bring the link up and answer. A group that exists is ready with the CONFIRM.

use super::policy::{
    Agreed,
    Policy,
    MAX_LINKS,
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
    Port,
    Step,
    Want,
    WAIT_CLC,
    WAIT_DECLINE, //
};
use crate::error::EmitError;
use crate::group::choice::Key;
use crate::llc::link::{
    LinkEnd,
    Role, //
};
use crate::llc::responder::LlcEvent;
use crate::llc::WAIT_CONFIRM_LINK;
use crate::reason::Reason;
use crate::time::Instant;
use crate::wire::clc::{
    Agreement,
    Confirm,
    Decline,
    End,
    Extensions,
    MsgType,
    Path,
    Proposal,
    RdmaEnd,
    V1,
    V2, //
};
use crate::wire::ids::Mac;
use crate::wire::list::List;
use crate::wire::llc::link::ConfirmLink;
use crate::wire::llc::{
    Version,
    LEN, //
};

/// Progress of a client through the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientState {
    Proposing,
    AwaitAccept,
    Acquiring,
    Confirming,
    AwaitConfirmLink,
    /// CONFIRM_LINK did not come, or the link failed: look for a decline, then decline.
    Grace(Reason),
    ToRts,
    Answering,
    /// Our decline is being sent.
    Declining {
        reason: Reason,
        strip: bool,
    },
    Over,
}

/// The server's accept, as far as it is needed later.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    end: RdmaEnd,
    version: u8,
    first_contact: bool,
    agreed: Agreed,
    eid: crate::wire::clc::Eid,
}

/// A client's handshake.
#[derive(Debug)]
pub struct Client {
    policy: Policy,
    port: Port,
    state: ClientState,
    accepted: Option<Accepted>,
    own: Option<Acquired>,
    link: ConfirmLink,
    until: Instant,
}

impl Client {
    /// Begins a handshake over a TCP connection that was just established.
    pub fn start(
        policy: &Policy,
        port: Port,
        eligibility: &Eligibility,
        now: Instant,
    ) -> (Client, Step) {
        let mut client = Client {
            policy: *policy,
            port,
            state: ClientState::Proposing,
            accepted: None,
            own: None,
            link: ConfirmLink::default(),
            until: now,
        };
        let step = if !eligibility.option {
            client.state = ClientState::Over;
            fallback(Reason::PeerNotSmc, false)
        } else if let Some(reason) = eligibility.refuse {
            client.decline(reason, false)
        } else {
            Step::Send
        };
        (client, step)
    }

    /// The server's end, once known: for the queue pair, the rtoken table and `Conn::set_peer`.
    #[must_use]
    pub fn peer_end(&self) -> Option<&RdmaEnd> {
        self.accepted.as_ref().map(|a| &a.end)
    }

    /// The number that the server gave the new link, and its identifier there.
    #[must_use]
    pub fn link(&self) -> (u8, [u8; 4]) {
        (self.link.link_num, self.link.link_uid)
    }

    /// Goes on with `input`; what does not fit the last step fails the handshake.
    pub fn step(&mut self, input: Input<'_>, now: Instant) -> Step {
        match (&input, self.state) {
            (_, ClientState::Over) => failed(Failure::Aborted),
            (Input::Cancel, _) => self.finish(failed(Failure::Cancelled)),
            (Input::TcpError, _) => self.finish(failed(Failure::Tcp)),
            (Input::Broken(e), _) => self.finish(broken(*e)),
            (Input::Decline(d), _) => self.finish(declined(d)),

            (Input::Sent, ClientState::Proposing) => {
                self.state = ClientState::AwaitAccept;
                await_clc(MsgType::Accept, now.after(WAIT_CLC))
            }
            (Input::Timer, ClientState::AwaitAccept) => self.finish(failed(Failure::TimedOut)),
            (Input::Accept(a), ClientState::AwaitAccept) => self.on_accept(a),

            (Input::Acquired(own), ClientState::Acquiring) => {
                self.own = Some(**own);
                self.state = ClientState::Confirming;
                Step::Send
            }
            (Input::Failed(reason), ClientState::Acquiring) => self.decline(*reason, false),

            (Input::Sent, ClientState::Confirming) => self.on_confirm_sent(now),

            (Input::Llc(event), ClientState::AwaitConfirmLink) => self.on_llc(event),
            (Input::Timer, ClientState::AwaitConfirmLink) => {
                self.grace(Reason::ConfirmLinkTimeout, now)
            }
            (Input::LinkLost, ClientState::AwaitConfirmLink) => {
                self.grace(Reason::ReadyLinkError, now)
            }

            (Input::Done, ClientState::ToRts) => self.answer(),
            (Input::Failed(reason), ClientState::ToRts) => self.decline(*reason, true),
            (Input::Done, ClientState::Answering) => {
                self.finish(Step::Finish(Outcome::Established))
            }
            (Input::Failed(_), ClientState::Answering) => {
                self.grace(Reason::ConfirmLinkTimeout, now)
            }

            (Input::Timer, ClientState::Grace(reason)) => self.decline(reason, true),
            (Input::Llc(_) | Input::LinkLost, ClientState::Grace(_)) => {
                await_clc(MsgType::Decline, self.until)
            }

            (Input::Sent, ClientState::Declining { reason, strip }) => {
                self.finish(fallback(reason, strip))
            }
            _ => self.finish(failed(Failure::Protocol)),
        }
    }

    fn finish(&mut self, step: Step) -> Step {
        self.state = ClientState::Over;
        step
    }

    fn decline(&mut self, reason: Reason, strip: bool) -> Step {
        self.state = ClientState::Declining { reason, strip };
        Step::Send
    }

    fn grace(&mut self, reason: Reason, now: Instant) -> Step {
        self.state = ClientState::Grace(reason);
        self.until = now.after(WAIT_DECLINE);
        await_clc(MsgType::Decline, self.until)
    }

    fn on_accept(&mut self, accept: &Agreement) -> Step {
        let accepted = match self.check_accept(accept) {
            Ok(accepted) => accepted,
            Err(Some(reason)) => {
                return self.decline(reason, false);
            }
            Err(None) => return self.finish(failed(Failure::Protocol)),
        };
        self.accepted = Some(accepted);
        self.state = ClientState::Acquiring;
        Step::Acquire(Want {
            key: Key {
                role: Role::Client,
                version: accepted.version,
                peer_id: accepted.end.peer_id,
                peer_gid: accepted.end.gid,
                peer_mac: Mac::ZERO,
                vlan: 0,
            },
            first_contact: Some(accepted.first_contact),
            link: Some(LinkEnd {
                qpn: accepted.end.qpn,
                gid: accepted.end.gid,
                mac: accepted.end.mac,
            }),
            direct: accept.fce.is_some_and(|f| f.direct),
            max_conns: accepted.agreed.max_conns,
            max_links: accepted.agreed.max_links,
            release: accepted.agreed.release,
            extensions: accepted.agreed.extensions,
        })
    }

    /// Returns what the accept agrees on; else the reason to decline, or `None` for a breach of the
    /// protocol.
    fn check_accept(&self, accept: &Agreement) -> Result<Accepted, Option<Reason>> {
        let End::R(end) = accept.end else {
            return Err(Some(Reason::ModeMismatch));
        };
        if accept.version != V2 {
            return Err(Some(Reason::ModeMismatch));
        }
        if !is_sane(&end) {
            return Err(None);
        }
        if !self.policy.has_eid(&accept.eid) {
            return Err(Some(Reason::NoUserEid));
        }
        let agreed = if accept.first_contact {
            self.check_first_contact(accept)?
        } else {
            Agreed::release_0()
        };
        Ok(Accepted {
            end,
            version: accept.version,
            first_contact: accept.first_contact,
            agreed,
            eid: accept.eid,
        })
    }

    fn check_first_contact(&self, accept: &Agreement) -> Result<Agreed, Option<Reason>> {
        let fce = accept.fce.ok_or(None)?;
        if fce.release == 0 {
            return Ok(Agreed::release_0());
        }
        if fce.release > RELEASE {
            return Err(Some(Reason::Release));
        }
        let limits = fce.limits.ok_or(None)?;
        if limits.max_conns < MIN_CONNS {
            return Err(Some(Reason::MaxConnections));
        }
        if limits.max_links == 0 || limits.max_links > MAX_LINKS {
            return Err(Some(Reason::MaxLinks));
        }
        Ok(Agreed {
            release: fce.release,
            max_conns: limits.max_conns,
            max_links: limits.max_links,
            features: limits.features & self.policy.features(),
            extensions: Extensions::from_wire(limits.vendor.to_be_bytes())
                .common(self.policy.extensions),
        })
    }

    fn on_confirm_sent(&mut self, now: Instant) -> Step {
        if !self.accepted.is_some_and(|a| a.first_contact) {
            return self.finish(Step::Finish(Outcome::Established));
        }
        self.state = ClientState::AwaitConfirmLink;
        self.until = now.after(WAIT_CONFIRM_LINK);
        await_link(self.until)
    }

    fn on_llc(&mut self, event: &LlcEvent) -> Step {
        match event {
            LlcEvent::ConfirmLink {
                message,
                no_eyecatcher: true,
            } => {
                self.link = *message;
                self.state = ClientState::ToRts;
                Step::ToRts
            }
            LlcEvent::ConfirmLink { .. } => self.decline(Reason::RmbeEyecatcher, true),
            _ => await_link(self.until),
        }
    }

    fn answer(&mut self) -> Step {
        self.state = ClientState::Answering;
        let (Some(own), Some(accepted)) = (self.own, self.accepted) else {
            return self.finish(failed(Failure::Protocol));
        };
        let response = ConfirmLink {
            mac: self.port.mac,
            gid: own.end.gid,
            qpn: own.end.qpn,
            link_num: self.link.link_num,
            link_uid: link_uid(&own),
            max_links: accepted.agreed.max_links,
            max_conns: 0,
        };
        let mut frame = [0; LEN];
        match response.emit(Version::V2, true, &mut frame) {
            Ok(_) => Step::SendLlc(frame),
            Err(_) => self.finish(failed(Failure::Protocol)),
        }
    }

    /// Writes the message that [`Step::Send`] asks for into `buf` and gives its length. A buffer
    /// of [`MAX_LEN`](crate::wire::clc::MAX_LEN) bytes always suffices.
    ///
    /// # Errors
    ///
    /// [`EmitError`] if the buffer is too small or nothing is to be sent.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        match self.state {
            ClientState::Proposing => self.emit_proposal(buf),
            ClientState::Confirming => self.emit_confirm(buf),
            ClientState::Declining { reason, .. } => {
                let version = self.accepted.map_or(V1, |a| a.version);
                Decline::new(version, reason, self.policy.peer_id).emit(buf)
            }
            _ => Err(EmitError::Invalid),
        }
    }

    fn emit_proposal(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let mut p = Proposal::EMPTY;
        p.path_v2 = Path::R;
        p.peer_id = self.policy.peer_id;
        p.gid = self.port.gid;
        p.mac = self.port.mac;
        p.v2_ext.release = RELEASE;
        p.v2_ext.roce_gid = self.port.gid;
        p.v2_ext.max_conns = self.policy.max_conns;
        p.v2_ext.max_links = self.policy.max_links;
        p.v2_ext.features = self.policy.features();
        let [a, b, c, d] = self.policy.extensions.to_wire();
        p.vendor = [a, b, c, d, 0, 0, 0, 0];
        p.v2_ext.eids = *self.policy.eids();
        p.emit(buf)
    }

    fn emit_confirm(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let (Some(own), Some(accepted)) = (&self.own, &self.accepted) else {
            return Err(EmitError::Invalid);
        };
        let mut gids = List::new();
        let mut fce = None;
        if accepted.first_contact {
            let _ = gids.push(own.end.gid);
            fce = Some(self.policy.first_contact(&accepted.agreed, own.direct));
        }
        let end = RdmaEnd {
            peer_id: self.policy.peer_id,
            mtu: own.end.mtu.min(accepted.end.mtu),
            ..own.end
        };
        let confirm = Confirm {
            agreement: Agreement {
                version: accepted.version,
                first_contact: accepted.first_contact,
                end: End::R(end),
                eid: accepted.eid,
                fce,
            },
            gids,
        };
        confirm.emit(buf)
    }
}

/// An identifier for our end of a link: its queue pair number.
pub(super) fn link_uid(own: &Acquired) -> [u8; 4] {
    own.end.qpn.get().to_be_bytes()
}

/// Waits for a CLC message alone.
pub(super) fn await_clc(clc: MsgType, until: Instant) -> Step {
    Step::Await {
        clc,
        llc: false,
        until,
    }
}

/// Waits for the link, and for a decline that says that it will not come.
pub(super) fn await_link(until: Instant) -> Step {
    Step::Await {
        clc: MsgType::Decline,
        llc: true,
        until,
    }
}
