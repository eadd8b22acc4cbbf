// SPDX-License-Identifier: GPL-2.0

//! Two hosts with one link group between them and many connections in it.
//!
//! This is the smallest complete caller of the crate, and shows how its parts are meant to be put
//! together: slab RMBs, alert tokens, rtokens, send slots shared by all connections of the link
//! ([`DueSet`]), LLC and CDC on one ordered channel, heartbeat, idle expiry, link loss. The model
//! checks that every byte of every connection arrives in its place, that no write ever lands in
//! an RMBE that belongs to nobody or to another connection, and that nothing is left at the end.

use super::rng::Rng;
use smc_proto::conn::*;
use smc_proto::cursor::RingSize;
use smc_proto::group::choice::{Key, Role};
use smc_proto::group::due::DueSet;
use smc_proto::group::rtoken::{rmbe_offset, Entry, Region, RtokenRef};
use smc_proto::group::slab::{RmbeIdx, Slab};
use smc_proto::group::{EndReason, Group, Terms, Todo};
use smc_proto::llc::link::{LinkEvent, TEST_IDLE};
use smc_proto::ring::WritePlan;
use smc_proto::time::{earliest, Instant, Span};
use smc_proto::wire::cdc::{Cdc, TYPE};
use smc_proto::wire::clc::Extensions;
use smc_proto::wire::ids::*;
use smc_proto::wire::immediate::Immediate;
use std::collections::VecDeque;

const RING: u32 = 256;
const SLAB_ADDR: u64 = 0x7000_0000;

/// One end of a connection.
struct End {
    id: usize,
    conn: Conn,
    rmbe: RmbeIdx,
    /// Where the peer's RMBE is.
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
        slot: u8,
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
            let (token, slot) = h.group.add_conn()?;
            let rmbe = h.slab.alloc().expect("looked before");
            let old = h.owner[usize::from(rmbe.before())].replace(id);
            assert_eq!(old, None, "an RMBE in use was given out");
            *place = Some((token, slot, rmbe));
        }
        for me in 0..2 {
            let (token, slot, rmbe) = made[me].unwrap();
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
                autocork: 128,
                drain_idle: DRAIN_IDLE,
            });
            conn.set_peer(Peer {
                token: peer_token,
                ring: size,
                immediate: self.immediate,
            });
            conn.expose();
            let _ = conn.establish(self.now).unwrap();
            h.ends[usize::from(slot)] = Some(End {
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

    fn slot_of(&self, me: usize, id: usize) -> Option<usize> {
        let same = |e: &Option<End>| e.as_ref().is_some_and(|e| e.id == id);
        self.host[me].ends.iter().position(same)
    }

    /// Does what a connection asks for; the connection may be gone afterwards.
    fn act(&mut self, me: usize, slot: usize, a: Actions) {
        let h = &mut self.host[me];
        let end = h.ends[slot].as_ref().expect("a connection");
        assert!(end.conn.is_consistent());
        if a.has(Actions::TX_DUE) {
            h.due.insert(slot as u8);
        }
        if a.has(Actions::ERR_RESET) || a.has(Actions::ERR_ABORTED) {
            self.streams[end.id].aborted = true;
        }
        if a.has(Actions::FREE) {
            let end = h.ends[slot].take().unwrap();
            let reusable = end.conn.rmbe_reusable();
            assert!(h.slab.free(end.rmbe, reusable));
            if reusable {
                h.owner[usize::from(end.rmbe.before())] = None;
            }
            assert!(h.group.remove_conn(end.conn.token(), self.now));
            h.due.remove(slot as u8);
            self.finished += 1;
        }
        self.pump(me);
    }

    /// Gives free send slots to the connections that wait for them, in turn.
    fn pump(&mut self, me: usize) {
        while self.host[me].free_slots > 0 && !self.host[me].dead {
            let h = &mut self.host[me];
            let Some(slot) = h.due.pop() else {
                return;
            };
            let Some(end) = h.ends[usize::from(slot)].as_mut() else {
                continue;
            };
            let Some(tx) = end.conn.take_tx(self.now) else {
                continue;
            };
            if end.conn.wants_tx() {
                h.due.insert(slot);
            }
            let (at, idx) = end.remote.unwrap();
            let region = h.group.rtokens.get(at, 0).expect("not deleted");
            let to = region.addr + rmbe_offset(idx, RING).unwrap();
            let token = end.conn.token();
            h.free_slots -= 1;
            let payload = Payload::Cdc {
                plan: tx.plan,
                to,
                notice: tx.notice,
                slot,
                token,
                ticket: tx.ticket,
            };
            self.send(me, payload);
            if !tx.actions.is_empty() {
                self.act(me, usize::from(slot), tx.actions);
            }
        }
    }

    fn send(&mut self, me: usize, payload: Payload) {
        let last = self.host[me]
            .air
            .back()
            .map_or(self.now, |f| f.0.max(self.now));
        let at = last.after(Span(self.rng.below(20_000)));
        self.host[me].air.push_back((at, payload));
    }

    fn deliver(&mut self, from: usize) {
        let to_host = 1 - from;
        let (_, payload) = self.host[from].air.pop_front().unwrap();
        match payload {
            Payload::Cdc {
                plan,
                to,
                notice,
                slot,
                token,
                ticket,
            } => {
                let done = self.now.after(Span(self.rng.below(20_000)));
                let h = &mut self.host[from];
                let done = h.completing.back().map_or(done, |c| c.0.max(done));
                h.completing.push_back((done, slot, token, ticket));
                if self.link_up {
                    self.place(from, slot, token, &plan, to);
                    match notice {
                        Notice::Cdc(cdc) => self.on_message(to_host, &cdc.encode()),
                        Notice::Immediate(imm) => self.on_immediate(to_host, imm),
                    }
                }
            }
            Payload::Llc(frame) => {
                self.llc += 1;
                if self.link_up {
                    self.on_message(to_host, &frame);
                }
            }
        }
    }

    /// The NIC of the receiver writes.
    fn place(&mut self, from: usize, slot: u8, token: AlertToken, plan: &WritePlan, to: u64) {
        let [a, b] = &mut self.host;
        let (src, dst) = if from == 0 { (a, b) } else { (b, a) };
        if plan.is_empty() {
            return;
        }
        let end = src.ends[usize::from(slot)]
            .as_ref()
            .expect("until completion");
        assert_eq!(end.conn.token(), token);
        let base = (to - SLAB_ADDR) as usize;
        let owner = dst.owner[base / RING as usize];
        assert_eq!(owner, Some(end.id), "a write into somebody else's RMBE");
        for w in plan.iter() {
            let at = base + w.remote as usize;
            let (o, n) = (w.local.offset as usize, w.local.len as usize);
            dst.memory[at..at + n].copy_from_slice(&end.snd[o..o + n]);
        }
    }

    /// A receive completion: CDC or LLC by the first byte.
    fn on_message(&mut self, me: usize, bytes: &[u8; 44]) {
        let now = self.now;
        let h = &mut self.host[me];
        if h.dead {
            return;
        }
        if bytes[0] == TYPE {
            h.group.heard(now);
            let cdc = Cdc::parse(bytes).unwrap();
            // A connection that is gone: its peer's last word came late.
            let Some(slot) = h.group.slot(cdc.token).map(usize::from) else {
                return;
            };
            let end = h.ends[slot].as_mut().expect("a live token");
            let a = end.conn.on_cdc(&cdc, now).expect("a correct peer");
            self.act(me, slot, a);
            return;
        }
        let (reply, todo) = h.group.on_llc(bytes, now);
        if let Some(frame) = reply {
            self.send(me, Payload::Llc(frame));
        }
        self.todo(me, todo);
    }

    fn on_immediate(&mut self, me: usize, imm: Immediate) {
        let now = self.now;
        let h = &mut self.host[me];
        if h.dead {
            return;
        }
        h.group.heard(now);
        let slot = h.group.slot_of(imm).expect("agreed");
        let Some(slot) = slot.map(usize::from) else {
            return;
        };
        let end = h.ends[slot].as_mut().expect("a live token");
        let a = end.conn.on_immediate(imm, now).expect("a correct peer");
        self.act(me, slot, a);
    }

    fn todo(&mut self, me: usize, todo: Todo) {
        match todo {
            Todo::None | Todo::Settled(_) => {}
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
        for slot in 0..255 {
            if let Some(end) = self.host[me].ends[slot].as_mut() {
                let a = end.conn.kill();
                self.act(me, slot, a);
            }
        }
        let air = std::mem::take(&mut self.host[me].air);
        for (at, payload) in air {
            match payload {
                Payload::Cdc {
                    slot,
                    token,
                    ticket,
                    ..
                } => self.host[me]
                    .completing
                    .push_back((self.now, slot, token, ticket)),
                // The last DELETE_LINK still goes out before the queue pair is flushed.
                llc => self.host[me].air.push_back((at, llc)),
            }
        }
        while !self.host[me].completing.is_empty() {
            self.complete(me);
        }
    }

    fn complete(&mut self, me: usize) {
        let h = &mut self.host[me];
        let (_, slot, token, ticket) = h.completing.pop_front().unwrap();
        h.free_slots += 1;
        // The slot keeps its connection until the completion.
        let end = h.ends[usize::from(slot)].as_mut().expect("still there");
        assert_eq!(end.conn.token(), token);
        let a = if h.dead {
            end.conn.on_tx_failed()
        } else {
            end.conn.on_tx_done(ticket, self.now)
        };
        self.act(me, usize::from(slot), a);
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
        for slot in 0..255 {
            if let Some(end) = self.host[me].ends[slot].as_mut() {
                let a = end.conn.on_timer(now);
                self.act(me, slot, a);
            }
        }
    }

    /// A program writes up to `n` bytes.
    pub fn write(&mut self, me: usize, id: usize, n: u32) {
        let Some(slot) = self.slot_of(me, id) else {
            return;
        };
        let end = self.host[me].ends[slot].as_mut().unwrap();
        let n = end.conn.send_room().unwrap_or(0).min(n);
        if end.closed || n == 0 {
            return;
        }
        let mut pos = self.streams[id].written[me];
        let mut left = n;
        for p in end.conn.send_view().iter() {
            for o in 0..p.len.min(left) {
                end.snd[(p.offset + o) as usize] = pattern(id, me, pos);
                pos += 1;
            }
            left -= p.len.min(left);
        }
        self.streams[id].written[me] = pos;
        let a = end.conn.written(n, SendHint::default(), self.now).unwrap();
        self.act(me, slot, a);
    }

    /// A program reads all there is; how much that was.
    pub fn read(&mut self, me: usize, id: usize) -> u32 {
        let Some(slot) = self.slot_of(me, id) else {
            return 0;
        };
        let h = &mut self.host[me];
        let end = h.ends[slot].as_mut().unwrap();
        if end.closed {
            return 0;
        }
        let base = usize::from(end.rmbe.before()) * RING as usize;
        let view = end.conn.recv_view(0);
        let mut pos = self.streams[id].read[me];
        for p in view.pieces.iter() {
            for o in 0..p.len {
                let byte = h.memory[base + (p.offset + o) as usize];
                assert_eq!(byte, pattern(id, 1 - me, pos), "connection {id} byte {pos}");
                pos += 1;
            }
        }
        self.streams[id].read[me] = pos;
        let n = view.pieces.len();
        if n > 0 {
            let a = end.conn.read_done(n).unwrap();
            self.act(me, slot, a);
        } else if end.conn.recv_state() == RecvState::Eof && !self.streams[id].aborted {
            assert_eq!(pos, self.streams[id].written[1 - me], "early end of file");
        }
        n
    }

    /// A program closes.
    pub fn close(&mut self, me: usize, id: usize) {
        let Some(slot) = self.slot_of(me, id) else {
            return;
        };
        let end = self.host[me].ends[slot].as_mut().unwrap();
        if !end.closed {
            end.closed = true;
            // Unread data makes it an abort, after which the peer's bytes may be lost.
            if matches!(end.conn.recv_state(), RecvState::Data(_)) || end.conn.out_queue() > 0 {
                self.streams[id].aborted = true;
            }
            let a = end.conn.close(CloseMode::Graceful, self.now);
            self.act(me, slot, a);
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

    /// Whether both hosts have dropped the group.
    pub fn is_dead(&self) -> [bool; 2] {
        [self.host[0].dead, self.host[1].dead]
    }

    /// Everything is closed, and nothing may be left.
    pub fn finish(&mut self) {
        for _ in 0..50 {
            for id in 0..self.streams.len() {
                for me in 0..2 {
                    self.read(me, id);
                }
            }
            self.run(Span::from_millis(1));
        }
        for id in 0..self.streams.len() {
            for me in 0..2 {
                self.close(me, id);
            }
        }
        self.run(Span::from_secs(200));
        for h in &self.host {
            assert!(h.ends.iter().all(Option::is_none), "connections are left");
            assert!(h.due.is_empty() && h.slab.in_use() == 0);
            assert_eq!(h.group.conns(), 0);
            assert!(h.dead || h.slab.quarantined() == 0);
            assert!(h.dead || h.owner.iter().all(Option::is_none));
        }
        assert_eq!(self.finished, 2 * self.streams.len());
        // The idle group ends by itself: the server says so, the client follows.
        self.run(Span::from_secs(700));
        assert_eq!(self.is_dead(), [true, true]);
        for h in &self.host {
            assert!(h.air.is_empty() && h.completing.is_empty());
            assert_eq!(h.group.next_deadline(), None);
        }
    }
}
