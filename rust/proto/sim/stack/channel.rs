// SPDX-License-Identifier: GPL-2.0

//! The link between the two hosts: send slots, CDC and LLC in order, completions, the RNIC's writes.

use super::{Payload, Stack, RING, SLAB_ADDR};
use smc_proto::conn::Notice;
use smc_proto::group::tokens::Name;
use smc_proto::llc::rtoken::rmbe_offset;
use smc_proto::ring::WritePlan;
use smc_proto::time::Span;
use smc_proto::wire::cdc::{Cdc, TYPE};
use smc_proto::wire::clc::Extensions;
use smc_proto::wire::ids::AlertToken;
use smc_proto::wire::immediate::Immediate;

impl Stack {
    /// Gives free send slots to the connections that wait for them, in turn.
    pub(super) fn pump(&mut self, me: usize) {
        while self.host[me].free_slots > 0 && !self.host[me].dead {
            let h = &mut self.host[me];
            let Some(index) = h.due.pop() else {
                return;
            };
            let Some(end) = h.ends[usize::from(index)].as_mut() else {
                continue;
            };
            let Some(tx) = end.conn.take_tx(self.now) else {
                continue;
            };
            if end.conn.wants_tx() {
                h.due.insert(index);
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
                index,
                token,
                ticket: tx.ticket,
            };
            self.send(me, payload);
            if !tx.actions.is_empty() {
                self.act(me, usize::from(index), tx.actions);
            }
        }
    }

    pub(super) fn send(&mut self, me: usize, payload: Payload) {
        let last = self.host[me]
            .air
            .back()
            .map_or(self.now, |f| f.0.max(self.now));
        let at = last.after(Span(self.rng.below(20_000)));
        self.host[me].air.push_back((at, payload));
    }

    pub(super) fn deliver(&mut self, from: usize) {
        let to_host = 1 - from;
        let (_, payload) = self.host[from].air.pop_front().unwrap();
        match payload {
            Payload::Cdc {
                plan,
                to,
                notice,
                index,
                token,
                ticket,
            } => {
                let done = self.now.after(Span(self.rng.below(20_000)));
                let h = &mut self.host[from];
                let done = h.completing.back().map_or(done, |c| c.0.max(done));
                h.completing.push_back((done, index, token, ticket));
                if self.link_up {
                    self.place(from, index, token, &plan, to);
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
    pub(super) fn place(
        &mut self,
        from: usize,
        index: u8,
        token: AlertToken,
        plan: &WritePlan,
        to: u64,
    ) {
        let [a, b] = &mut self.host;
        let (src, dst) = if from == 0 { (a, b) } else { (b, a) };
        if plan.is_empty() {
            return;
        }
        let end = src.ends[usize::from(index)]
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
    pub(super) fn on_message(&mut self, me: usize, bytes: &[u8; 44]) {
        let now = self.now;
        let h = &mut self.host[me];
        if h.dead {
            return;
        }
        if bytes[0] == TYPE {
            h.group.heard(now);
            let cdc = Cdc::parse(bytes).unwrap();
            // A connection that is gone: its peer's last word came late.
            let Some((index, end)) = h.named_by(Name::of(cdc.token)) else {
                return;
            };
            let a = end.conn.on_cdc(&cdc, now).expect("a correct peer");
            self.act(me, index, a);
            return;
        }
        let (reply, todo) = h.group.on_llc(bytes, now);
        if let Some(frame) = reply {
            self.send(me, Payload::Llc(frame));
        }
        self.todo(me, todo);
    }

    pub(super) fn on_immediate(&mut self, me: usize, imm: Immediate) {
        let now = self.now;
        let h = &mut self.host[me];
        if h.dead {
            return;
        }
        h.group.heard(now);
        assert!(h.group.terms().extensions.has(Extensions::IMMEDIATE));
        let Some((index, end)) = h.named_by(Name::of_immediate(imm)) else {
            return;
        };
        let a = end.conn.on_immediate(imm, now).expect("a correct peer");
        self.act(me, index, a);
    }

    pub(super) fn complete(&mut self, me: usize) {
        let h = &mut self.host[me];
        let (_, index, token, ticket) = h.completing.pop_front().unwrap();
        h.free_slots += 1;
        // The connection keeps its index until the completion.
        let end = h.ends[usize::from(index)].as_mut().expect("still there");
        assert_eq!(end.conn.token(), token);
        let a = if h.dead {
            end.conn.on_tx_failed()
        } else {
            end.conn.on_tx_done(ticket, self.now)
        };
        self.act(me, usize::from(index), a);
    }
}
