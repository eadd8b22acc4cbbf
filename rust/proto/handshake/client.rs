// SPDX-License-Identifier: GPL-2.0

//! The client's side of the handshake.
//!
//! PROPOSAL, wait for ACCEPT, join or start the group, CONFIRM; on first contact then wait for
//! CONFIRM_LINK, bring the link up and answer; where the answer is a full packet, wait until it has
//! been delivered. A group that exists is ready with the CONFIRM.

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
    WAIT_DECLINE,
    WAIT_DELIVERED, //
};
use crate::error::EmitError;
use crate::group::choice::{
    Classes,
    Key, //
};
use crate::llc::link::{
    LinkEnd,
    Role, //
};
use crate::llc::responder::LlcEvent;
use crate::llc::WAIT_CONFIRM_LINK;
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

/// The server's accept, as far as it is needed later.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    end: RdmaEnd,
    version: u8,
    first_contact: bool,
    agreed: Agreed,
    /// None in version 1.
    eid: Eid,
}

impl Accepted {
    fn sends_full_packets(&self) -> bool {
        self.agreed.extensions.has(Extensions::FULL_PACKET)
    }
}

/// Both ends of the connection.
#[derive(Clone, Copy, Debug)]
struct Ends {
    accepted: Accepted,
    own: Acquired,
}

/// Progress of a client through the handshake, each state with what is known by then.
#[derive(Clone, Copy, Debug)]
enum ClientState {
    Proposing(Port),
    AwaitAccept,
    Acquiring(Accepted),
    Confirming(Ends),
    AwaitConfirmLink {
        ends: Ends,
        until: Instant,
    },
    /// The server asked for the link with this message.
    ToRts(Ends, ConfirmLink),
    Answering(Ends, ConfirmLink),
    /// The answer is a packet of the path MTU: it shows that such packets get through.
    Answered {
        ends: Ends,
        link: ConfirmLink,
        until: Instant,
    },
    /// CONFIRM_LINK did not come, or the link failed: look for a decline, then decline.
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
    /// Of a first contact with the message that named the link.
    Established(Accepted, Option<ConfirmLink>),
    Over,
}

/// A client's handshake.
#[derive(Debug)]
pub struct Client {
    policy: Policy,
    mac: Mac,
    /// The proposal offers version 1.
    offers_v1: bool,
    state: ClientState,
}

impl Client {
    /// Begins a handshake over a TCP connection that was just established.
    pub fn start(policy: &Policy, port: Port, eligibility: &Eligibility) -> (Client, Step) {
        let mut client = Client {
            policy: *policy,
            mac: port.mac,
            offers_v1: port.v1.is_some(),
            state: ClientState::Proposing(port),
        };
        let step = if !eligibility.option {
            client.state = ClientState::Over;
            fallback(Reason::PeerNotSmc, false)
        } else if let Some(reason) = eligibility.refuse {
            client.decline(V1, reason, false)
        } else {
            Step::Send
        };
        (client, step)
    }

    /// The server's end, once known: for the queue pair, the rtoken table and `Conn::set_peer`.
    #[must_use]
    pub fn peer_end(&self) -> Option<&RdmaEnd> {
        match &self.state {
            ClientState::Acquiring(accepted) | ClientState::Established(accepted, _) => {
                Some(&accepted.end)
            }
            ClientState::Confirming(ends)
            | ClientState::AwaitConfirmLink { ends, .. }
            | ClientState::ToRts(ends, _)
            | ClientState::Answering(ends, _)
            | ClientState::Answered { ends, .. } => Some(&ends.accepted.end),
            _ => None,
        }
    }

    /// Tells whether the server may have taken the link for confirmed by our answer, so that its connection, which we do
    /// not have yet, may have come to its end.
    #[must_use]
    pub(super) fn has_answered(&self) -> bool {
        matches!(self.state, ClientState::Answered { .. })
    }

    /// The number that the server gave the new link, and its identifier there; zeros without a new link.
    #[must_use]
    pub fn link(&self) -> (u8, [u8; 4]) {
        match self.state {
            ClientState::Established(_, Some(link)) => (link.link_num, link.link_uid),
            _ => (0, [0; 4]),
        }
    }

    /// Goes on with `input`; what does not fit the last step fails the handshake.
    pub fn step(&mut self, input: Input<'_>, now: Instant) -> Step {
        match (&input, self.state) {
            (_, ClientState::Established(..) | ClientState::Over) => failed(Failure::Aborted),
            (Input::Cancel, _) => self.finish(failed(Failure::Cancelled)),
            (Input::TcpError, _) => self.finish(failed(Failure::Tcp)),
            (Input::Broken(e), _) => self.finish(broken(*e)),
            (Input::Decline(d), _) => self.finish(declined(d)),

            (Input::Sent, ClientState::Proposing(_)) => {
                self.state = ClientState::AwaitAccept;
                await_clc(MsgType::Accept, now.after(WAIT_CLC))
            }
            (Input::Timer, ClientState::AwaitAccept) => self.finish(failed(Failure::TimedOut)),
            (Input::Accept(a), ClientState::AwaitAccept) => self.on_accept(a),

            (Input::Acquired(own), ClientState::Acquiring(accepted)) => {
                self.state = ClientState::Confirming(Ends {
                    accepted,
                    own: **own,
                });
                Step::Send
            }
            (Input::Failed(reason), ClientState::Acquiring(accepted)) => {
                self.decline(accepted.version, *reason, false)
            }

            (Input::Sent, ClientState::Confirming(ends)) => self.on_confirm_sent(ends, now),

            (Input::Llc(event), ClientState::AwaitConfirmLink { ends, until }) => {
                self.on_llc(event, ends, until)
            }
            (Input::Timer, ClientState::AwaitConfirmLink { ends, .. }) => {
                self.grace(&ends, Reason::ConfirmLinkTimeout, now)
            }
            (Input::LinkLost, ClientState::AwaitConfirmLink { ends, .. }) => {
                self.grace(&ends, Reason::ReadyLinkError, now)
            }

            (Input::Done, ClientState::ToRts(ends, link)) => self.answer(ends, link),
            (Input::Failed(reason), ClientState::ToRts(ends, _)) => {
                self.decline(ends.accepted.version, *reason, true)
            }
            (Input::Done, ClientState::Answering(ends, link)) => self.on_answered(ends, link, now),
            (Input::Failed(_), ClientState::Answering(ends, _)) => {
                self.grace(&ends, Reason::ConfirmLinkTimeout, now)
            }
            (Input::Llc(LlcEvent::Delivered), ClientState::Answered { ends, link, .. }) => {
                self.establish(ends.accepted, Some(link))
            }
            (Input::Llc(_), ClientState::Answered { until, .. }) => await_link(until),
            (Input::Timer, ClientState::Answered { ends, .. }) => {
                self.grace(&ends, Reason::ConfirmLinkTimeout, now)
            }
            (Input::LinkLost, ClientState::Answered { ends, .. }) => {
                self.grace(&ends, Reason::ReadyLinkError, now)
            }

            (
                Input::Timer,
                ClientState::Grace {
                    reason, version, ..
                },
            ) => self.decline(version, reason, true),
            (Input::Llc(_) | Input::LinkLost, ClientState::Grace { until, .. }) => {
                await_clc(MsgType::Decline, until)
            }

            (Input::Sent, ClientState::Declining { reason, strip, .. }) => {
                self.finish(fallback(reason, strip))
            }
            _ => self.finish(failed(Failure::Protocol)),
        }
    }

    fn finish(&mut self, step: Step) -> Step {
        self.state = ClientState::Over;
        step
    }

    fn establish(&mut self, accepted: Accepted, link: Option<ConfirmLink>) -> Step {
        self.state = ClientState::Established(accepted, link);
        Step::Finish(Outcome::Established)
    }

    fn decline(&mut self, version: u8, reason: Reason, strip: bool) -> Step {
        self.state = ClientState::Declining {
            reason,
            version,
            strip,
        };
        Step::Send
    }

    fn grace(&mut self, ends: &Ends, reason: Reason, now: Instant) -> Step {
        let until = now.after(WAIT_DECLINE);
        self.state = ClientState::Grace {
            reason,
            version: ends.accepted.version,
            until,
        };
        await_clc(MsgType::Decline, until)
    }

    fn on_accept(&mut self, accept: &Agreement) -> Step {
        let accepted = match self.check_accept(accept) {
            Ok(accepted) => accepted,
            Err(Some(reason)) => {
                return self.decline(V1, reason, false);
            }
            Err(None) => return self.finish(failed(Failure::Protocol)),
        };
        self.state = ClientState::Acquiring(accepted);
        Step::Acquire(Want {
            key: Key {
                role: Role::Client,
                version: accepted.version,
                peer_id: accepted.end.peer_id,
                peer_gid: accepted.end.gid,
                peer_mac: match accepted.version {
                    V1 => accepted.end.mac,
                    _ => Mac::ZERO,
                },
                vlan: 0,
                classes: Classes {
                    own: self.policy.class,
                    peer: None,
                },
            },
            first_contact: Some(accepted.first_contact),
            link: Some(LinkEnd {
                qpn: accepted.end.qpn,
                gid: accepted.end.gid,
                mac: accepted.end.mac,
            }),
            // Version 1 knows no gateway.
            direct: accepted.version == V1 || accept.fce.is_some_and(|f| f.direct),
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
        match accept.version {
            V2 => (),
            V1 if self.offers_v1 => (),
            _ => return Err(Some(Reason::ModeMismatch)),
        }
        if !is_sane(&end, accept.version) {
            return Err(None);
        }
        if accept.version == V2 && !self.policy.has_eid(&accept.eid) {
            return Err(Some(Reason::NoUserEid));
        }
        let agreed = if accept.version == V2 && accept.first_contact {
            self.check_first_contact(accept)?
        } else {
            Agreed::on_nothing()
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
            return Ok(Agreed::on_nothing());
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

    fn on_confirm_sent(&mut self, ends: Ends, now: Instant) -> Step {
        if !ends.accepted.first_contact {
            return self.establish(ends.accepted, None);
        }
        let until = now.after(WAIT_CONFIRM_LINK);
        self.state = ClientState::AwaitConfirmLink { ends, until };
        await_link(until)
    }

    fn on_llc(&mut self, event: &LlcEvent, ends: Ends, until: Instant) -> Step {
        match event {
            LlcEvent::ConfirmLink {
                message,
                no_eyecatcher: true,
            } => {
                self.state = ClientState::ToRts(ends, *message);
                Step::ToRts
            }
            LlcEvent::ConfirmLink { .. } => {
                self.decline(ends.accepted.version, Reason::RmbeEyecatcher, true)
            }
            _ => await_link(until),
        }
    }

    fn on_answered(&mut self, ends: Ends, link: ConfirmLink, now: Instant) -> Step {
        if !ends.accepted.sends_full_packets() {
            return self.establish(ends.accepted, Some(link));
        }
        let until = now.after(WAIT_DELIVERED);
        self.state = ClientState::Answered { ends, link, until };
        await_link(until)
    }

    fn answer(&mut self, ends: Ends, link: ConfirmLink) -> Step {
        self.state = ClientState::Answering(ends, link);
        let Ends { accepted, own } = ends;
        let response = ConfirmLink {
            mac: self.mac,
            gid: own.end.gid,
            qpn: own.end.qpn,
            link_num: link.link_num,
            link_uid: link_uid(&own),
            max_links: accepted.agreed.max_links,
            max_conns: 0,
        };
        let mut frame = [0; LEN];
        match response.emit(Version::of(accepted.version), true, &mut frame) {
            Ok(_) => Step::SendLlc {
                frame,
                full: accepted.sends_full_packets(),
            },
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
        match &self.state {
            ClientState::Proposing(port) => self.emit_proposal(port, buf),
            ClientState::Confirming(ends) => self.emit_confirm(ends, buf),
            &ClientState::Declining {
                reason, version, ..
            } => Decline::new(version, reason, self.policy.peer_id).emit(buf),
            _ => Err(EmitError::Invalid),
        }
    }

    fn emit_proposal(&self, port: &Port, buf: &mut [u8]) -> Result<usize, EmitError> {
        let mut p = Proposal::EMPTY;
        p.path_v2 = Path::of(!self.policy.eids().is_empty(), false);
        p.peer_id = self.policy.peer_id;
        p.gid = port.gid;
        if let Some(v1) = &port.v1 {
            p.path_v1 = Path::R;
            p.gid = v1.gid;
            p.prefix_block = v1.prefixes;
        }
        p.mac = port.mac;
        p.v2_ext.release = RELEASE;
        p.v2_ext.roce_gid = port.gid;
        p.v2_ext.max_conns = self.policy.max_conns;
        p.v2_ext.max_links = self.policy.max_links;
        p.v2_ext.features = self.policy.features();
        p.vendor = vendor::to_proposal(self.policy.extensions, self.policy.class);
        p.v2_ext.eids = *self.policy.eids();
        p.emit(buf)
    }

    fn emit_confirm(&self, ends: &Ends, buf: &mut [u8]) -> Result<usize, EmitError> {
        let Ends { accepted, own } = ends;
        let mut gids = List::new();
        let mut fce = None;
        if accepted.first_contact && accepted.version > V1 {
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
