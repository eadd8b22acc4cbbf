// SPDX-License-Identifier: GPL-2.0

//! The endpoint of a simulated handshake: every operation takes its time and may fail.

use super::side::Side;
use super::{gid, mac, Net, Weather};
use smc_proto::group::choice::{self, ClientChoice};
use smc_proto::group::{Group, Terms};
use smc_proto::handshake::endpoint::{Endpoint, StreamError};
use smc_proto::handshake::{region, Acquired, Step, Want};
use smc_proto::llc::link::{LinkEnd, LinkEvent, Role};
use smc_proto::llc::responder::LlcEvent;
use smc_proto::llc::rtoken::Entry;
use smc_proto::reason::Reason;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::bufsize::BufSize;
use smc_proto::wire::clc::proposal::Prefixes;
use smc_proto::wire::clc::{self, Agreement, Proposal, RdmaEnd};
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::Frame;

/// One host's end of a handshake, for as long as a call of its driver takes.
pub(super) struct SimEndpoint<'a> {
    pub(super) net: &'a mut Net,
    pub(super) sides: &'a mut [Side; 2],
    pub(super) weather: &'a Weather,
    pub(super) me: usize,
}

impl SimEndpoint<'_> {
    fn side(&mut self) -> &mut Side {
        &mut self.sides[self.me]
    }

    fn fails(&mut self) -> bool {
        self.net.one_in(self.weather.fail_one_in)
    }

    /// True when the peer's TCP connection has ended and all its bytes are here.
    fn at_fin(&self) -> bool {
        self.sides[1 - self.me].tcp_closed && self.sides[self.me].segments.is_empty()
    }

    /// Copies what has arrived; the number of bytes.
    fn copy(&self, buf: &mut [u8]) -> Result<usize, StreamError> {
        let arrived = &self.sides[self.me].arrived;
        if arrived.is_empty() && !self.at_fin() {
            return Err(StreamError::Empty);
        }
        let n = buf.len().min(arrived.len());
        for (to, from) in buf.iter_mut().zip(arrived) {
            *to = *from;
        }
        Ok(n)
    }

    /// Decides between a new group and the one there is; true to join that.
    fn joins(&self, want: &Want) -> Result<bool, Reason> {
        Ok(match (&self.net.host[self.me].group, want.first_contact) {
            (Some(g), None) => choice::server_joins(&want.key, &g.candidate()),
            (None, None) => false,
            (g, Some(first)) => {
                let found = g.as_ref().filter(|g| g.terms().key == want.key);
                let links = found.map(|g| [g.link_end()]);
                let links = links.as_ref().map(|l| &l[..]);
                match choice::client_choice(first, want.key.version, &want.link.unwrap(), links) {
                    ClientChoice::FirstContact => false,
                    ClientChoice::Join(i) => i == 0,
                    ClientChoice::Decline(reason) => return Err(reason),
                }
            }
        })
    }

    fn start_group(&mut self, want: &Want) {
        let (now, me) = (self.net.now, self.me);
        let mut g = Group::new(
            Terms {
                key: want.key,
                release: want.release,
                max_conns: want.max_conns,
                max_links: want.max_links,
                test_idle: Span::ZERO,
                extensions: want.extensions,
            },
            me as u32,
            [Entry::FREE; 255],
            [0; 255],
        );
        self.net.host[me].qpn += 1;
        self.side().new_group = true;
        if want.key.role == Role::Client {
            assert!(g.link.step(LinkEvent::ToInit, now) && g.link.step(LinkEvent::ToRtr, now));
            g.link.peer = want.link;
        }
        self.net.link_up = true;
        self.net.host[me].group = Some(g);
    }
}

impl Endpoint for SimEndpoint<'_> {
    type Buffer = [u8; clc::MAX_LEN];
    type Proposal = Box<Proposal>;

    fn now(&self) -> Instant {
        self.net.now
    }

    fn buffer(&self) -> Option<Self::Buffer> {
        Some([0; clc::MAX_LEN])
    }

    fn proposal(&self) -> Option<Box<Proposal>> {
        Some(Box::default())
    }

    /// An operation is admitted when its time is over.
    fn admits(&mut self, step: &Step) -> bool {
        if matches!(step, Step::Await { .. } | Step::Finish(_)) {
            return true;
        }
        let now = self.net.now;
        match self.side().busy_until {
            None => {
                let end = now.after(self.net.delay(self.weather));
                let side = self.side();
                side.busy_until = Some(end);
                side.moved = true;
                false
            }
            Some(end) if end > now => false,
            Some(_) => {
                self.side().busy_until = None;
                true
            }
        }
    }

    fn send(&mut self, message: &[u8]) -> bool {
        self.side().moved = true;
        if self.sides[1 - self.me].tcp_closed {
            return false;
        }
        self.side().sent.push(message.to_vec());
        self.net
            .transmit(self.weather, self.sides, self.me, message);
        true
    }

    fn receive(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        let n = self.copy(buf)?;
        let side = self.side();
        side.arrived.drain(..n);
        side.moved = true;
        Ok(n)
    }

    fn peek(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        self.copy(buf)
    }

    fn is_shut(&self) -> bool {
        self.at_fin()
    }

    fn take_v1(&mut self, client: &Prefixes) -> Result<(), Reason> {
        let own = self.net.host[self.me].v1.ok_or(Reason::NoDevice)?;
        match client.has_v4(own.prefixes.ipv4) {
            true => Ok(()),
            false => Err(Reason::PrefixMismatch),
        }
    }

    fn acquire(&mut self, want: &Want, peer: Option<&RdmaEnd>) -> Result<Option<Acquired>, Reason> {
        self.side().moved = true;
        if self.fails() {
            return Err(Reason::NoMemory);
        }
        if want.key.role == Role::Server && self.net.one_in(self.weather.queue_one_in) {
            // It asks again later, and not at once.
            self.side().moved = false;
            return Ok(None);
        }
        let join = self.joins(want)?;
        if !join {
            self.start_group(want);
        }
        let me = self.me;
        let host = &mut self.net.host[me];
        let g = host.group.as_mut().unwrap();
        if let Some(end) = peer {
            g.rtokens.add(0, region(end)).ok_or(Reason::RtokenError)?;
        }
        let (token, index) = g.add_conn().ok_or(Reason::NoActiveLink)?;
        let end = RdmaEnd {
            gid: gid(me),
            mac: mac(me),
            qpn: Qpn::new(host.qpn),
            rkey: Rkey(host.qpn << 4),
            rmbe_idx: index + 1,
            token,
            size: BufSize::from_code(2),
            mtu: Mtu::from_code(5 - me as u8),
            addr: 0x10_0000,
            psn: Psn::new(7),
            ..RdmaEnd::default()
        };
        self.side().own = Some(end);
        Ok(Some(Acquired {
            end,
            first_contact: !join,
            direct: true,
        }))
    }

    fn adopt(&mut self, first_contact: bool, _: Mtu, peer: &RdmaEnd) -> Result<(), Reason> {
        self.side().moved = true;
        if self.fails() {
            return Err(Reason::RegisterBufferError);
        }
        let now = self.net.now;
        let g = self.net.host[self.me].group.as_mut();
        let g = g.filter(|g| !g.has_ended()).ok_or(Reason::NoActiveLink)?;
        g.rtokens.add(0, region(peer)).expect("room");
        if first_contact {
            g.link.peer = Some(LinkEnd {
                qpn: peer.qpn,
                gid: peer.gid,
                mac: peer.mac,
            });
            for event in [LinkEvent::ToInit, LinkEvent::ToRtr, LinkEvent::ToRts] {
                assert!(g.link.step(event, now));
            }
        }
        Ok(())
    }

    fn to_rts(&mut self) -> Result<(), Reason> {
        self.side().moved = true;
        if self.fails() {
            return Err(Reason::RegisterBufferError);
        }
        let now = self.net.now;
        let g = self.net.host[self.me].group.as_mut().expect("a group");
        assert!(g.link.step(LinkEvent::ToRts, now));
        Ok(())
    }

    fn send_llc(&mut self, frame: &Frame, full: bool) -> Result<(), Reason> {
        self.side().moved = true;
        if self.fails() || !self.net.link_up {
            return Err(Reason::ReadyLinkError);
        }
        if full && self.weather.narrow[self.me] {
            return Ok(());
        }
        let arrives = self.net.post_llc(self.weather, self.sides, self.me, *frame);
        // Of the hosts the first is the client.
        if full && self.me == 0 {
            let told = arrives.after(self.net.delay(self.weather));
            self.side().delivered = Some(told);
        }
        Ok(())
    }

    fn take_llc(&mut self) -> Option<LlcEvent> {
        let now = self.net.now;
        let side = self.side();
        let delivered = side.delivered.take_if(|told| now.reached(*told));
        let delivered = delivered.map(|_| LlcEvent::Delivered);
        let event = delivered.or_else(|| side.event.take());
        self.side().moved |= event.is_some();
        event
    }

    fn is_link_lost(&self) -> bool {
        let acquired = self.sides[self.me].own.is_some();
        acquired && self.net.host[self.me].group.is_some() && !self.net.link_up
    }

    fn expose(&mut self) {
        let side = self.side();
        assert!(side.own.is_some(), "an RMBE is named before there is one");
        side.exposed = true;
    }

    fn agreed(&mut self, agreement: &Agreement) {
        let side = self.side();
        assert!(side.agreement.is_none() && !side.declined);
        side.agreement = Some(*agreement);
    }

    fn declined(&mut self) {
        let side = self.side();
        assert!(!side.declined, "two declines");
        side.declined = true;
    }
}
