// SPDX-License-Identifier: GPL-2.0

//! Two hosts that shake hands: TCP byte streams, an RDMA link, programs behind both.
//!
//! Every operation a machine asks for takes a random time and may fail; messages are cut into
//! random segments; the link may be lost at any moment. Once a side has fallen back its program
//! writes and reads at once. In the end the model checks what must hold however it went:
//!
//! * both sides come to an outcome;
//! * a program that fell back has read a prefix of what the other program wrote on TCP, all of it
//!   if both fell back, and never a byte of the protocol;
//! * if one side speaks SMC and the other does not, the link is gone, so it will notice;
//! * two sides that speak SMC agree on who is who.

use super::rng::Rng;
use smc_proto::error::ReadError;
use smc_proto::group::choice::{self, ClientChoice};
use smc_proto::group::{EndReason, Group, Terms, Todo};
use smc_proto::handshake::strip::{judge, Verdict};
use smc_proto::handshake::*;
use smc_proto::llc::link::{LinkEnd, LinkEvent, LinkState, Role};
use smc_proto::llc::rtoken::Entry;
use smc_proto::reason::Reason;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::bufsize::BufSize;
use smc_proto::wire::clc::{self, ClcReader, Extensions, MsgType, Proposal, RdmaEnd};
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::{Frame, LEN};
use std::collections::VecDeque;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Seed of everything random.
    pub seed: u64,
    /// Longest time of an operation or transfer, milliseconds.
    pub slow_ms: u64,
    /// One operation in this many fails; 0 for never.
    pub fail_one_in: u64,
    /// The link is lost at a random moment, once in this many runs; 0 for never.
    pub lose_link_one_in: u64,
    /// One LLC message in this many is not delivered for this many seconds.
    pub late_llc: Option<(u64, u64)>,
}

impl Weather {
    /// Everything works and is fast.
    pub fn fine(seed: u64) -> Weather {
        Weather {
            seed,
            slow_ms: 20,
            fail_one_in: 0,
            lose_link_one_in: 0,
            late_llc: None,
        }
    }
}

enum Machine {
    Client(Client),
    Server(Server),
}

impl Machine {
    fn step(&mut self, input: Input<'_>, now: Instant) -> Step {
        match self {
            Machine::Client(c) => c.step(input, now),
            Machine::Server(s) => s.step(input, now),
        }
    }

    fn emit(&self, buf: &mut [u8]) -> usize {
        match self {
            Machine::Client(c) => c.emit(buf),
            Machine::Server(s) => s.emit(buf),
        }
        .expect("a message to send")
    }

    fn peer_end(&self) -> Option<RdmaEnd> {
        match self {
            Machine::Client(c) => c.peer_end().copied(),
            Machine::Server(s) => s.peer_end().copied(),
        }
    }
}

/// A host: what outlives a handshake.
pub struct Host {
    /// Policy of the host.
    pub policy: Policy,
    /// Facts for the next handshake.
    pub facts: Facts,
    /// The group with the other host.
    pub group: Option<Group>,
    qpn: u32,
}

/// What a side is doing.
struct Side {
    machine: Machine,
    step: Step,
    /// When the present operation is done.
    busy_until: Option<Instant>,
    reader: Option<ClcReader<[u8; clc::MAX_LEN]>>,
    /// Bytes on their way to this side, and arrived ones.
    wire: VecDeque<(Instant, Vec<u8>)>,
    arrived: VecDeque<u8>,
    llc_wire: VecDeque<(Instant, Frame)>,
    own: Option<RdmaEnd>,
    new_group: bool,
    tcp_closed: bool,
    /// What the program wrote and has read on TCP.
    app_wrote: Vec<u8>,
    app_read: Vec<u8>,
    outcome: Option<Outcome>,
    /// CLC messages this side has sent, for tests.
    sent: Vec<Vec<u8>>,
}

/// The result of a handshake.
#[derive(Clone, Debug)]
pub struct Report {
    /// Outcomes of client and server.
    pub outcome: [Outcome; 2],
    /// CLC messages sent by client and server.
    pub sent: [Vec<Vec<u8>>; 2],
    /// When it was over.
    pub took: Span,
}

/// Two hosts, client first.
pub struct Net {
    /// The hosts.
    pub host: [Host; 2],
    /// The present.
    pub now: Instant,
    link_up: bool,
    rng: Rng,
}

fn mac(me: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, me as u8])
}

fn gid(me: usize) -> Gid {
    Gid::from_ipv4([10, 0, 0, 1 + me as u8])
}

impl Net {
    /// Two hosts with default policies.
    pub fn new(seed: u64) -> Net {
        let host = |me: usize| Host {
            policy: Policy::new(PeerId([me as u8 + 1; 8]), b"host"),
            facts: Facts {
                option: true,
                refuse: None,
            },
            group: None,
            qpn: 100 * (me as u32 + 1),
        };
        Net {
            host: [host(0), host(1)],
            now: Instant(1),
            link_up: false,
            rng: Rng(seed),
        }
    }

    fn delay(&mut self, w: &Weather) -> Span {
        Span::from_millis(self.rng.below(w.slow_ms + 1))
    }

    /// Runs one handshake to its end.
    pub fn run(&mut self, w: &Weather) -> Report {
        self.rng = Rng(w.seed);
        let start = self.now;
        let (c, c_step) = Client::start(
            &self.host[0].policy,
            Port {
                gid: gid(0),
                mac: mac(0),
            },
            &self.host[0].facts,
            self.now,
        );
        let (s, s_step) = Server::start(&self.host[1].policy, &self.host[1].facts, self.now);
        let side = |machine, step| Side {
            machine,
            step,
            busy_until: None,
            reader: None,
            wire: VecDeque::new(),
            arrived: VecDeque::new(),
            llc_wire: VecDeque::new(),
            own: None,
            new_group: false,
            tcp_closed: false,
            app_wrote: Vec::new(),
            app_read: Vec::new(),
            outcome: None,
            sent: Vec::new(),
        };
        let mut sides = [
            side(Machine::Client(c), c_step),
            side(Machine::Server(s), s_step),
        ];
        let lose = w.lose_link_one_in > 0 && self.rng.one_in(w.lose_link_one_in);
        let lose_at = lose.then(|| self.now.after(Span::from_millis(self.rng.below(8000))));
        let mut lost = false;
        for turn in 0.. {
            assert!(
                turn < 20_000,
                "no end: {:?} {:?}",
                sides[0].step,
                sides[1].step
            );
            if !lost && lose_at.is_some_and(|t| self.now.reached(t)) {
                lost = true;
                self.link_up = false;
            }
            let mut moved = false;
            for me in 0..2 {
                moved |= self.turn(w, &mut sides, me);
            }
            if moved {
                continue;
            }
            let next = sides.iter().filter_map(|s| self.next_time(s)).min();
            match next {
                Some(t) => self.now = self.now.max(t),
                None => break,
            }
        }
        self.check(&sides);
        let [a, b] = sides;
        Report {
            outcome: [a.outcome.unwrap(), b.outcome.unwrap()],
            sent: [a.sent, b.sent],
            took: self.now.since(start),
        }
    }

    fn next_time(&self, s: &Side) -> Option<Instant> {
        let mut times = vec![s.busy_until];
        times.push(s.wire.front().map(|m| m.0));
        times.push(s.llc_wire.front().map(|m| m.0));
        if let (Step::Await { until, .. }, None, None) = (&s.step, s.busy_until, s.outcome) {
            times.push(Some(*until));
        }
        times.into_iter().flatten().filter(|t| *t > self.now).min()
    }

    /// One side does what it can at this moment; whether it did anything.
    fn turn(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize) -> bool {
        let now = self.now;
        let mut moved = false;
        while sides[me].wire.front().is_some_and(|m| m.0 <= now) {
            let (_, bytes) = sides[me].wire.pop_front().unwrap();
            sides[me].arrived.extend(bytes);
            moved = true;
        }
        moved |= self.llc_arrives(w, sides, me);
        if sides[me].outcome.is_some() {
            return self.program(sides, me) || moved;
        }
        if let Some(t) = sides[me].busy_until {
            if t > now {
                return moved;
            }
            sides[me].busy_until = None;
            self.done(w, sides, me);
            return true;
        }
        match sides[me].step {
            Step::Await { clc, llc, until } => {
                if self.read_clc(sides, me, clc) {
                    return true;
                }
                let ready = self.host[me].group.is_some() && sides[me].own.is_some();
                if llc && ready && !self.link_up {
                    self.feed(sides, me, Input::LinkLost);
                    return true;
                }
                if now.reached(until) {
                    self.feed(sides, me, Input::Timer);
                    return true;
                }
                moved
            }
            Step::Finish(outcome) => {
                self.finish(sides, me, outcome);
                true
            }
            _ => {
                let d = self.delay(w);
                sides[me].busy_until = Some(now.after(d));
                true
            }
        }
    }

    fn feed(&mut self, sides: &mut [Side; 2], me: usize, input: Input<'_>) {
        sides[me].step = sides[me].machine.step(input, self.now);
    }

    fn fails(&mut self, w: &Weather) -> bool {
        w.fail_one_in > 0 && self.rng.one_in(w.fail_one_in)
    }

    /// The operation that was asked for has taken its time: do it and report.
    fn done(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize) {
        let step = sides[me].step;
        let fails = self.fails(w);
        match step {
            Step::Send => {
                let mut buf = [0; clc::MAX_LEN];
                let n = sides[me].machine.emit(&mut buf);
                if sides[1 - me].tcp_closed {
                    return self.feed(sides, me, Input::TcpError);
                }
                sides[me].sent.push(buf[..n].to_vec());
                self.transmit(w, sides, me, &buf[..n]);
                self.feed(sides, me, Input::Sent);
            }
            Step::Acquire(want) if !fails => match self.acquire(sides, me, &want) {
                Ok(own) => self.feed(sides, me, Input::Acquired(&own)),
                Err(reason) => self.feed(sides, me, Input::Failed(reason)),
            },
            Step::Acquire(_) => self.feed(sides, me, Input::Failed(Reason::NoMemory)),
            Step::Adopt { .. } | Step::ToRts if fails => {
                self.feed(sides, me, Input::Failed(Reason::RegisterBufferError));
            }
            Step::Adopt { first_contact, .. } => {
                let end = sides[me].machine.peer_end().expect("a peer");
                let now = self.now;
                let g = self.host[me].group.as_mut();
                let Some(g) = g.filter(|g| !g.has_ended()) else {
                    return self.feed(sides, me, Input::Failed(Reason::NoActiveLink));
                };
                g.rtokens.add(0, region(&end)).expect("room");
                if first_contact {
                    g.link.peer = Some(link_end(&end));
                    for e in [LinkEvent::ToInit, LinkEvent::ToRtr, LinkEvent::ToRts] {
                        assert!(g.link.step(e, now));
                    }
                }
                self.feed(sides, me, Input::Done);
            }
            Step::ToRts => {
                let now = self.now;
                let g = self.host[me].group.as_mut().expect("a group");
                assert!(g.link.step(LinkEvent::ToRts, now));
                self.feed(sides, me, Input::Done);
            }
            Step::SendLlc(frame) => {
                if fails || !self.link_up {
                    self.feed(sides, me, Input::Failed(Reason::ReadyLinkError));
                } else {
                    self.post_llc(w, sides, me, frame);
                    self.feed(sides, me, Input::Done);
                }
            }
            Step::Await { .. } | Step::Finish(_) => unreachable!(),
        }
    }

    /// Puts bytes on the TCP wire in random segments.
    fn transmit(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = 1 + self.rng.below(rest.len() as u64 * 2) as usize;
            let (head, tail) = rest.split_at(n.min(rest.len()));
            let last = sides[1 - me].wire.back().map_or(self.now, |m| m.0);
            let at = last.max(self.now).after(self.delay(w));
            sides[1 - me].wire.push_back((at, head.to_vec()));
            rest = tail;
        }
    }

    fn post_llc(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize, frame: Frame) {
        let mut d = self.delay(w);
        if let Some((one_in, secs)) = w.late_llc {
            if self.rng.one_in(one_in) {
                d = Span::from_secs(secs);
            }
        }
        let last = sides[1 - me].llc_wire.back().map_or(self.now, |m| m.0);
        sides[1 - me]
            .llc_wire
            .push_back((last.max(self.now).after(d), frame));
    }

    /// LLC messages that have arrived go through the group.
    fn llc_arrives(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize) -> bool {
        if sides[me].llc_wire.front().is_none_or(|m| m.0 > self.now) {
            return false;
        }
        let waits = matches!(sides[me].step, Step::Await { llc: true, .. });
        let busy = sides[me].outcome.is_none() && !waits;
        let (_, frame) = *sides[me].llc_wire.front().unwrap();
        // What belongs to the handshake waits in the caller's hands until it is asked for.
        let confirm = frame[0] & 0xf == 1;
        let soon = self.host[me]
            .group
            .as_ref()
            .is_some_and(|g| g.link.state().receives() && g.link.state() != LinkState::Active);
        if confirm && busy && soon && self.link_up {
            return false;
        }
        sides[me].llc_wire.pop_front();
        let now = self.now;
        let Some(g) = self.host[me].group.as_mut() else {
            return true;
        };
        if !self.link_up {
            return true;
        }
        let (reply, todo) = g.on_llc(&frame, now);
        if let Some(reply) = reply {
            self.post_llc(w, sides, me, reply);
        }
        match todo {
            Todo::Handshake(event) if waits => self.feed(sides, me, Input::Llc(event)),
            Todo::End { .. } => self.link_up = false,
            _ => {}
        }
        true
    }

    /// Finds or makes the group, as the module will.
    fn acquire(
        &mut self,
        sides: &mut [Side; 2],
        me: usize,
        want: &Want,
    ) -> Result<Acquired, Reason> {
        let now = self.now;
        let join = match (&self.host[me].group, want.first_contact) {
            (Some(g), None) => choice::server_joins(&want.key, &g.candidate()),
            (None, None) => false,
            (g, Some(first)) => {
                let found = g.as_ref().filter(|g| g.terms().key == want.key);
                let links = found.map(|g| [g.link_end()]);
                let links = links.as_ref().map(|l| &l[..]);
                match choice::client_choice(first, 2, &want.link.unwrap(), links) {
                    ClientChoice::FirstContact => false,
                    ClientChoice::Join(i) => i == 0,
                    ClientChoice::Decline(reason) => return Err(reason),
                }
            }
        };
        if !join {
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
            self.host[me].qpn += 1;
            sides[me].new_group = true;
            if want.key.role == Role::Client {
                assert!(g.link.step(LinkEvent::ToInit, now) && g.link.step(LinkEvent::ToRtr, now));
                g.link.peer = want.link;
                self.link_up = true;
            } else {
                self.link_up = true;
            }
            self.host[me].group = Some(g);
        }
        let qpn = self.host[me].qpn;
        let g = self.host[me].group.as_mut().unwrap();
        if let Some(end) = sides[me].machine.peer_end() {
            g.rtokens.add(0, region(&end)).ok_or(Reason::RtokenError)?;
        }
        let (token, slot) = g.add_conn().ok_or(Reason::NoActiveLink)?;
        let end = RdmaEnd {
            gid: gid(me),
            mac: mac(me),
            qpn: Qpn::new(qpn),
            rkey: Rkey(qpn << 4),
            rmbe_idx: slot + 1,
            token,
            size: BufSize::from_code(2),
            mtu: Mtu::from_code(5 - me as u8),
            addr: 0x10_0000,
            psn: Psn::new(7),
            ..RdmaEnd::default()
        };
        sides[me].own = Some(end);
        Ok(Acquired {
            end,
            first_contact: !join,
            direct: true,
        })
    }

    /// Reads CLC as far as it has come; whether a message or the end was found.
    fn read_clc(&mut self, sides: &mut [Side; 2], me: usize, expected: MsgType) -> bool {
        let s = &mut sides[me];
        let reader = s
            .reader
            .get_or_insert_with(|| ClcReader::new([0; clc::MAX_LEN], expected));
        let bytes: Vec<u8> = s.arrived.iter().copied().collect();
        let used = match reader.feed(&bytes) {
            Ok(n) => n,
            Err(e) => {
                // NotClc gives the bytes back.
                if e != ReadError::NotClc {
                    s.arrived.clear();
                }
                self.feed(sides, me, Input::Broken(e));
                return true;
            }
        };
        s.arrived.drain(..used);
        if !reader.is_complete() {
            if sides[1 - me].tcp_closed && sides[me].wire.is_empty() {
                let e = sides[me].reader.as_ref().unwrap().end_of_stream();
                self.feed(sides, me, Input::Broken(e));
                return true;
            }
            return false;
        }
        let reader = s.reader.take().unwrap();
        let message = clc::Message::decode(reader.message().unwrap());
        match message {
            Ok(clc::Message::Proposal(raw)) => {
                let p = Proposal::parse(raw.bytes()).expect("own proposal");
                self.feed(sides, me, Input::Proposal(&p));
            }
            Ok(clc::Message::Accept(a)) => self.feed(sides, me, Input::Accept(&a)),
            Ok(clc::Message::Confirm(c)) => self.feed(sides, me, Input::Confirm(&c)),
            Ok(clc::Message::Decline(d)) => self.feed(sides, me, Input::Decline(&d)),
            Err(e) => panic!("own message does not parse: {e:?}"),
        }
        true
    }

    /// Settles what the outcome means for group, link and TCP.
    fn finish(&mut self, sides: &mut [Side; 2], me: usize, outcome: Outcome) {
        let now = self.now;
        let peer_end = sides[me].machine.peer_end();
        let s = &mut sides[me];
        s.outcome = Some(outcome);
        let group = &mut self.host[me].group;
        match outcome {
            Outcome::Established => {
                let g = group.as_mut().expect("a group");
                if s.new_group {
                    assert!(g.link.step(LinkEvent::Confirmed, now));
                    if let Machine::Client(c) = &s.machine {
                        g.link.number = c.link().0;
                        assert_eq!(g.link.number, server::FIRST_LINK);
                    } else {
                        g.link.number = server::FIRST_LINK;
                    }
                }
                assert!(peer(&peer_end.unwrap(), Extensions::ALL).is_some());
            }
            Outcome::Fallback { .. } | Outcome::Failed(_) => {
                if s.new_group {
                    // Rolled back: the queue pair is gone, which the other side will notice.
                    *group = None;
                    self.link_up = false;
                } else if let (Some(g), Some(own)) = (group.as_mut(), &s.own) {
                    g.remove_conn(own.token, now);
                }
                if let Outcome::Fallback {
                    out_of_sync: true, ..
                } = outcome
                {
                    if let Some(g) = group.as_mut() {
                        let _ = g.end(EndReason::OutOfSync, now);
                    }
                    *group = None;
                    self.link_up = false;
                }
                if let Outcome::Failed(_) = outcome {
                    s.tcp_closed = true;
                }
            }
        }
    }

    /// The program of a side that fell back writes and reads.
    fn program(&mut self, sides: &mut [Side; 2], me: usize) -> bool {
        let Some(Outcome::Fallback { strip, .. }) = sides[me].outcome else {
            return false;
        };
        let mut moved = false;
        if sides[me].app_wrote.is_empty() {
            let text = format!("the program's own words, side {me}, and some more of them");
            sides[me].app_wrote = text.clone().into_bytes();
            let w = Weather::fine(0);
            self.transmit(&w, sides, me, text.as_bytes());
            moved = true;
        }
        let s = &mut sides[me];
        // What a reader took without completing a message is the program's.
        if let Some(r) = s.reader.take() {
            for b in r.taken().iter().rev() {
                s.arrived.push_front(*b);
            }
        }
        if s.arrived.is_empty() {
            return moved;
        }
        let first: Vec<u8> = s.arrived.iter().take(64).copied().collect();
        if strip && s.app_read.is_empty() {
            match judge(&first) {
                Verdict::Data => {}
                Verdict::NeedMore => return moved,
                Verdict::Decline(n) => {
                    s.arrived.drain(..n);
                    return true;
                }
            }
        }
        s.app_read.extend(s.arrived.drain(..));
        true
    }

    fn check(&mut self, sides: &[Side; 2]) {
        for me in 0..2 {
            let (s, o) = (&sides[me], &sides[1 - me]);
            let outcome = s.outcome.expect("an outcome");
            assert!(
                o.app_wrote.starts_with(&s.app_read),
                "side {me} read what no program wrote: {:?} ({:?} {:?})",
                s.app_read,
                outcome,
                o.outcome
            );
            let both = matches!(outcome, Outcome::Fallback { .. })
                && matches!(o.outcome, Some(Outcome::Fallback { .. }));
            if both {
                assert_eq!(s.app_read, o.app_wrote, "side {me} lost bytes");
            }
            if outcome == Outcome::Established && o.outcome != Some(Outcome::Established) {
                let hopeless = !self.link_up || o.tcp_closed;
                assert!(hopeless, "side {me} speaks SMC to nobody: {:?}", o.outcome);
            }
        }
        if sides
            .iter()
            .all(|s| s.outcome == Some(Outcome::Established))
        {
            let [a, b] = sides;
            for (x, y) in [(a, b), (b, a)] {
                let (heard, own) = (x.machine.peer_end().unwrap(), y.own.unwrap());
                assert_eq!(heard.token, own.token);
                assert_eq!(
                    (heard.qpn, heard.rkey, heard.addr),
                    (own.qpn, own.rkey, own.addr)
                );
                assert_eq!(heard.rmbe_idx, own.rmbe_idx);
            }
        } else if !self.link_up {
            // Whoever is left with a dead link loses its group.
            for h in &mut self.host {
                h.group = None;
            }
        }
    }
}

fn link_end(e: &RdmaEnd) -> LinkEnd {
    LinkEnd {
        qpn: e.qpn,
        gid: e.gid,
        mac: e.mac,
    }
}

const _: () = assert!(LEN == 44);
