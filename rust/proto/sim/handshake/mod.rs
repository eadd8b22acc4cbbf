// SPDX-License-Identifier: GPL-2.0

//! Two hosts that shake hands: TCP byte streams, an RDMA link, programs behind both.
//!
//! Each side runs the [`Driver`] that the kernel runs, over an [`endpoint`] in which every operation
//! takes a random time and may fail; messages are cut into random segments; the link may be lost at
//! any moment. Once a side has fallen back its program writes and reads at once. In the end the
//! model checks:
//!
//! * both sides come to an outcome;
//! * a program that fell back has read a prefix of what the other program wrote on TCP, all of it
//!   if both fell back, and never a byte of the protocol;
//! * if one side speaks SMC and the other does not, the link is gone, so it will notice;
//! * two sides that speak SMC agree on who is who.
//!
//! [`side`]: the state of one side. [`program`]: what it does once the handshake has ended, and what
//! must hold then.

use super::rng::Rng;
use endpoint::SimEndpoint;
use side::Side;
use smc_proto::group::{Group, Todo};
use smc_proto::handshake::driver::{Driver, Progress};
use smc_proto::handshake::*;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::clc;
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::Frame;

pub mod endpoint;
pub mod program;
pub mod side;

/// The driver of one side.
type SimDriver = Driver<[u8; clc::MAX_LEN]>;

/// Conditions of a run.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Seed of everything random.
    pub seed: u64,
    /// Longest time of an operation or transfer, milliseconds.
    pub slow_ms: u64,
    /// One operation in this many fails; 0 for never.
    pub fail_one_in: u64,
    /// One look of a server for a group in this many finds another first contact under way; 0 for
    /// never.
    pub queue_one_in: u64,
    /// The link is lost at a random moment, once in this many runs; 0 for never.
    pub lose_link_one_in: u64,
    /// One LLC message in this many is not delivered for this many seconds.
    pub late_llc: Option<(u64, u64)>,
    /// Whether packets of the path MTU from client and server are lost.
    pub narrow: [bool; 2],
}

impl Weather {
    /// Everything works and is fast.
    pub fn fine(seed: u64) -> Weather {
        Weather {
            seed,
            slow_ms: 20,
            fail_one_in: 0,
            queue_one_in: 0,
            lose_link_one_in: 0,
            late_llc: None,
            narrow: [false; 2],
        }
    }
}

/// A host: what outlives a handshake.
pub struct Host {
    /// Policy of the host.
    pub policy: Policy,
    /// Conditions of the next handshake.
    pub eligibility: Eligibility,
    /// What it has for version 1: a client's offer; a server's answer to the client's prefixes.
    pub v1: Option<V1Offer>,
    /// The group with the other host.
    pub group: Option<Group>,
    qpn: u32,
}

/// The result of a handshake.
#[derive(Clone, Debug)]
pub struct Report {
    /// Outcomes of client and server.
    pub outcome: [Outcome; 2],
    /// CLC messages sent by client and server.
    pub sent: [Vec<Vec<u8>>; 2],
    /// Time until both sides came to an outcome and their programs were served.
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
            eligibility: Eligibility {
                option: true,
                refuse: None,
            },
            v1: None,
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

    /// True once in `n` times, never for 0.
    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.rng.one_in(n)
    }

    /// Runs one handshake to its end.
    pub fn run(&mut self, w: &Weather) -> Report {
        self.rng = Rng(w.seed);
        let start = self.now;
        let port = Port {
            gid: gid(0),
            mac: mac(0),
            v1: self.host[0].v1,
        };
        let [client, server] = &self.host;
        let mut drivers = [
            Driver::client(&client.policy, port, &client.eligibility),
            Driver::server(&server.policy, &server.eligibility, start),
        ];
        let mut sides = [Side::default(), Side::default()];
        let lose = self.one_in(w.lose_link_one_in);
        let mut lose_at = lose.then(|| start.after(Span::from_millis(self.rng.below(8000))));
        for turn in 0.. {
            assert!(turn < 20_000, "no end: {drivers:?}");
            if lose_at.is_some_and(|t| self.now.reached(t)) {
                lose_at = None;
                self.link_up = false;
            }
            let mut moved = false;
            for (me, driver) in drivers.iter_mut().enumerate() {
                moved |= self.turn(w, &mut sides, driver, me);
            }
            if moved {
                continue;
            }
            let next = sides.iter().filter_map(|s| s.next_time(self.now)).min();
            match next {
                Some(t) => self.now = self.now.max(t),
                None => break,
            }
        }
        self.check(&drivers, &sides);
        let [a, b] = sides;
        Report {
            outcome: [a.outcome.unwrap(), b.outcome.unwrap()],
            sent: [a.sent, b.sent],
            took: self.now.since(start),
        }
    }

    /// Lets one side do what it can at this moment; true if it did anything.
    fn turn(
        &mut self,
        weather: &Weather,
        sides: &mut [Side; 2],
        driver: &mut SimDriver,
        me: usize,
    ) -> bool {
        let mut moved = sides[me].deliver(self.now);
        moved |= self.llc_arrives(weather, sides, me);
        if sides[me].outcome.is_some() {
            return self.program(sides, me) || moved;
        }
        sides[me].moved = false;
        let progress = driver.advance(&mut SimEndpoint {
            net: self,
            sides,
            weather,
            me,
        });
        sides[me].wake_at = match progress {
            Progress::Awaiting(until) | Progress::Queued(until) => Some(until),
            Progress::Deferred => None,
            Progress::Done(outcome) => {
                self.finish(sides, driver, me, outcome);
                return true;
            }
        };
        moved || sides[me].moved
    }

    /// Puts bytes on the TCP wire in random segments.
    fn transmit(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = 1 + self.rng.below(rest.len() as u64 * 2) as usize;
            let (head, tail) = rest.split_at(n.min(rest.len()));
            let last = sides[1 - me].segments.back().map_or(self.now, |m| m.0);
            let at = last.max(self.now).after(self.delay(w));
            sides[1 - me].segments.push_back((at, head.to_vec()));
            rest = tail;
        }
    }

    /// Puts a message on the link; returns when it arrives.
    fn post_llc(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize, frame: Frame) -> Instant {
        let mut d = self.delay(w);
        if let Some((one_in, secs)) = w.late_llc {
            if self.rng.one_in(one_in) {
                d = Span::from_secs(secs);
            }
        }
        let last = sides[1 - me].frames.back().map_or(self.now, |m| m.0);
        let arrives = last.max(self.now).after(d);
        sides[1 - me].frames.push_back((arrives, frame));
        arrives
    }

    /// Gives LLC messages that have arrived to the group; true if there was one.
    fn llc_arrives(&mut self, w: &Weather, sides: &mut [Side; 2], me: usize) -> bool {
        if sides[me].frames.front().is_none_or(|f| f.0 > self.now) {
            return false;
        }
        let (_, frame) = sides[me].frames.pop_front().unwrap();
        let Some(g) = self.host[me].group.as_mut().filter(|_| self.link_up) else {
            return true;
        };
        let (reply, todo) = g.on_llc(&frame, self.now);
        if let Some(reply) = reply {
            self.post_llc(w, sides, me, reply);
        }
        match todo {
            Todo::Handshake(event) => sides[me].event = Some(event),
            Todo::End { .. } => self.link_up = false,
            _ => {}
        }
        true
    }
}
