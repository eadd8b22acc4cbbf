// SPDX-License-Identifier: GPL-2.0

//! Two hosts with one link group between them and many connections in it.
//!
//! This is the smallest complete caller of the crate, and shows how its parts are meant to be put
//! together: slab RMBs, alert tokens, rtokens, send slots shared by all connections of the link
//! ([`DueSet`]), LLC and CDC on one ordered channel, heartbeat, idle expiry, link loss. The model
//! checks that every byte of every connection arrives in its place, that no write ever lands in
//! an RMBE that belongs to nobody or to another connection, and that nothing is left at the end.
//!
//! [`channel`]: the link that all connections share. [`program`]: what their programs do.

use super::rng::Rng;
use smc_proto::conn::*;
use smc_proto::cursor::RingSize;
use smc_proto::group::choice::Key;
use smc_proto::group::due::DueSet;
use smc_proto::group::slab::{RmbeIdx, Slab};
use smc_proto::group::tokens::Name;
use smc_proto::group::{EndReason, Group, Terms, Todo};
use smc_proto::llc::link::{LinkEvent, Role, TEST_IDLE};
use smc_proto::llc::rtoken::{Entry, Region, RtokenRef};
use smc_proto::ring::WritePlan;
use smc_proto::time::{earliest, Instant, Span};
use smc_proto::wire::clc::Extensions;
use smc_proto::wire::ids::*;
use std::collections::VecDeque;

pub mod channel;
pub mod program;

const RING: u32 = 256;
const SLAB_ADDR: u64 = 0x7000_0000;

/// One end of a connection.
struct End {
    id: usize,
    conn: Conn,
    rmbe: RmbeIdx,
    /// Place of the peer's RMBE.
    remote: Option<(RtokenRef, u8)>,
    snd: Vec<u8>,
    closed: bool,
}

/// A connection as the programs see it.
#[derive(Default)]
struct Stream {
    written: [u64; 2],
    read: [u64; 2],
    aborted: bool,
}

enum Payload {
    Cdc {
        /// Bytes to place: (address, data), taken from the send ring on arrival.
        plan: WritePlan,
        to: u64,
        notice: Notice,
        index: u8,
        token: AlertToken,
        ticket: Ticket,
    },
    Llc([u8; 44]),
}

/// A host.
struct Host {
    group: Group,
    ends: Vec<Option<End>>,
    slab: Slab,
    memory: Vec<u8>,
    /// Owner of each RMBE: connection id.
    owner: Vec<Option<usize>>,
    due: DueSet,
    free_slots: usize,
    air: VecDeque<(Instant, Payload)>,
    completing: VecDeque<(Instant, u8, AlertToken, Ticket)>,
    dead: bool,
}

impl Host {
    /// The connection that an arrival names, as the kernel finds it.
    fn named_by(&mut self, name: Name) -> Option<(usize, &mut End)> {
        let index = usize::from(name.index()?);
        let end = self.ends[index].as_mut()?;
        name.is(end.conn.token()).then_some((index, end))
    }
}

/// Both hosts.
pub struct Stack {
    now: Instant,
    host: [Host; 2],
    streams: Vec<Stream>,
    link_up: bool,
    notice_at: [Option<Instant>; 2],
    immediate: bool,
    rng: Rng,
    /// Connections that came and went.
    pub finished: usize,
    /// LLC messages delivered.
    pub llc: usize,
}

fn pattern(id: usize, side: usize, pos: u64) -> u8 {
    let x = (pos + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (((id as u64) << 40) | side as u64);
    (x.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56) as u8
}

impl Stack {
    /// Two hosts with a fresh, active link and slabs of `rmbes` buffers. If `seed` is odd, WRITEs
    /// may announce themselves.
    pub fn new(seed: u64, rmbes: u8, slots: usize) -> Stack {
        let now = Instant(1);
        let immediate = seed % 2 == 1;
        let extensions = if immediate {
            Extensions::IMMEDIATE
        } else {
            Extensions::NONE
        };
        let host = |me: usize| {
            let terms = Terms {
                key: Key {
                    role: [Role::Client, Role::Server][me],
                    version: 2,
                    peer_id: PeerId([2 - me as u8; 8]),
                    peer_gid: Gid::from_ipv4([10, 0, 0, 2 - me as u8]),
                    peer_mac: Mac::ZERO,
                    vlan: 0,
                    classes: Default::default(),
                },
                release: 1,
                max_conns: 255,
                max_links: 1,
                test_idle: TEST_IDLE,
                extensions,
            };
            let mut group = Group::new(terms, seed as u32, [Entry::FREE; 255], [0; 255]);
            for e in [
                LinkEvent::ToInit,
                LinkEvent::ToRtr,
                LinkEvent::ToRts,
                LinkEvent::Confirmed,
            ] {
                assert!(group.link.step(e, now));
            }
            group.link.number = 1;
            Host {
                group,
                ends: (0..255).map(|_| None).collect(),
                slab: Slab::new(rmbes).unwrap(),
                memory: vec![0; usize::from(rmbes) * RING as usize],
                owner: vec![None; usize::from(rmbes)],
                due: DueSet::new(),
                free_slots: slots,
                air: VecDeque::new(),
                completing: VecDeque::new(),
                dead: false,
            }
        };
        Stack {
            now,
            host: [host(0), host(1)],
            streams: Vec::new(),
            link_up: true,
            notice_at: [None; 2],
            immediate,
            rng: Rng(seed),
            finished: 0,
            llc: 0,
        }
    }

    /// Opens a connection, if there is room on both sides; its id.
    pub fn open(&mut self) -> Option<usize> {
        if self
            .host
            .iter()
            .any(|h| h.slab.available() == 0 || !h.group.is_usable())
        {
            return None;
        }
        let id = self.streams.len();
        let size = RingSize::new(RING).unwrap();
        let mut made = [None, None];
        for (h, place) in self.host.iter_mut().zip(&mut made) {
            let (token, index) = h.group.add_conn()?;
            let rmbe = h.slab.alloc().expect("looked before");
            let old = h.owner[usize::from(rmbe.before())].replace(id);
            assert_eq!(old, None, "an RMBE in use was given out");
            *place = Some((token, index, rmbe));
        }
        for me in 0..2 {
            let (token, index, rmbe) = made[me].unwrap();
            let (peer_token, _, peer_rmbe) = made[1 - me].unwrap();
            let h = &mut self.host[me];
            let region = Region {
                rkey: Rkey(77),
                addr: SLAB_ADDR,
            };
            let at = h.group.rtokens.add(0, region).expect("one region");
            let mut conn = Conn::new(Params {
                token,
                recv: size,
                send: size,
                recv_most: size,
                send_most: size,
                autocork: 128,
                drain_idle: DRAIN_IDLE,
            });
            conn.set_peer(Peer {
                token: peer_token,
                ring: size,
                place: Place::default(),
                immediate: self.immediate,
                moves: false,
            });
            conn.expose();
            let _ = conn.establish(self.now).unwrap();
            h.ends[usize::from(index)] = Some(End {
                id,
                conn,
                rmbe,
                remote: Some((at, peer_rmbe.get())),
                snd: vec![0; RING as usize],
                closed: false,
            });
        }
        assert_eq!(self.host[0].group.rtokens.len(), 1, "all share one region");
        self.streams.push(Stream::default());
        Some(id)
    }

    fn index_of(&self, me: usize, id: usize) -> Option<usize> {
        let same = |e: &Option<End>| e.as_ref().is_some_and(|e| e.id == id);
        self.host[me].ends.iter().position(same)
    }

    /// Does what a connection asks for; the connection may be gone afterwards.
    fn act(&mut self, me: usize, index: usize, a: Actions) {
        let h = &mut self.host[me];
        let end = h.ends[index].as_ref().expect("a connection");
        assert!(end.conn.is_consistent());
        if a.has(Actions::TX_DUE) {
            h.due.insert(index as u8);
        }
        if a.has(Actions::ERR_RESET) || a.has(Actions::ERR_ABORTED) {
            self.streams[end.id].aborted = true;
        }
        if a.has(Actions::FREE) {
            let end = h.ends[index].take().unwrap();
            let reusable = end.conn.rmbe_reusable();
            assert!(h.slab.free(end.rmbe, reusable));
            if reusable {
                h.owner[usize::from(end.rmbe.before())] = None;
            }
            assert!(h.group.remove_conn(end.conn.token(), self.now));
            h.due.remove(index as u8);
            self.finished += 1;
        }
        self.pump(me);
    }

    fn todo(&mut self, me: usize, todo: Todo) {
        match todo {
            Todo::None | Todo::Settled(_) | Todo::CheckPort | Todo::Judge => {}
            Todo::Send(frame) => self.send(me, Payload::Llc(frame)),
            Todo::Handshake(_) => panic!("no handshake here"),
            Todo::End { last, .. } => {
                if let Some(frame) = last {
                    self.send(me, Payload::Llc(frame));
                }
                self.kill_all(me);
            }
        }
    }

    /// The link is gone for this host: every connection ends, every request is flushed.
    fn kill_all(&mut self, me: usize) {
        self.host[me].dead = true;
        for index in 0..255 {
            if let Some(end) = self.host[me].ends[index].as_mut() {
                let a = end.conn.kill();
                self.act(me, index, a);
            }
        }
        let air = std::mem::take(&mut self.host[me].air);
        for (at, payload) in air {
            match payload {
                Payload::Cdc {
                    index,
                    token,
                    ticket,
                    ..
                } => self.host[me]
                    .completing
                    .push_back((self.now, index, token, ticket)),
                // The last DELETE_LINK still goes out before the queue pair is flushed.
                llc => self.host[me].air.push_back((at, llc)),
            }
        }
        while !self.host[me].completing.is_empty() {
            self.complete(me);
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Span) {
        let until = self.now.after(span);
        loop {
            let mut best: Option<(Instant, usize, usize)> = None;
            for (me, h) in self.host.iter().enumerate() {
                let conns = h.ends.iter().flatten();
                let timer = conns.fold(h.group.next_deadline(), |d, e| {
                    earliest(d, e.conn.next_deadline())
                });
                let done = h.completing.front().map(|c| c.0);
                let events = [
                    h.air.front().map(|f| f.0),
                    done.filter(|_| self.link_up || h.dead),
                    self.notice_at[me],
                    timer,
                ];
                for (kind, at) in events.into_iter().enumerate() {
                    if let Some(at) = at {
                        if best.is_none_or(|b| at < b.0) {
                            best = Some((at, kind, me));
                        }
                    }
                }
            }
            let Some((at, kind, me)) = best.filter(|b| b.0 <= until) else {
                break;
            };
            self.now = self.now.max(at);
            match kind {
                0 => self.deliver(me),
                1 => self.complete(me),
                2 => {
                    self.notice_at[me] = None;
                    let todo = self.host[me].group.end(EndReason::LinkLost, self.now);
                    self.todo(me, todo);
                }
                _ => self.timers(me),
            }
        }
        self.now = until;
    }

    fn timers(&mut self, me: usize) {
        let now = self.now;
        loop {
            let todo = self.host[me].group.on_timer(now);
            if todo == Todo::None {
                break;
            }
            self.todo(me, todo);
        }
        for index in 0..255 {
            if let Some(end) = self.host[me].ends[index].as_mut() {
                let a = end.conn.on_timer(now);
                self.act(me, index, a);
            }
        }
    }

    /// The link is lost; each host notices at a time of its own, at the latest by its heartbeat.
    pub fn lose_link(&mut self) {
        self.link_up = false;
        let me = self.rng.below(2) as usize;
        self.notice_at[me] = Some(self.now.after(Span::from_millis(self.rng.below(3000))));
        for s in &mut self.streams {
            s.aborted = true;
        }
    }

    /// Number of connections ever opened.
    pub fn opened(&self) -> usize {
        self.streams.len()
    }

    /// Reports whether both hosts have dropped the group.
    pub fn is_dead(&self) -> [bool; 2] {
        [self.host[0].dead, self.host[1].dead]
    }
}
