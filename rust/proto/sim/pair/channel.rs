// SPDX-License-Identifier: GPL-2.0

//! The channel between the two connections: posting, arrival, completion, loss.

use super::{End, Flight, Pair, MOST_SILENT};
use smc_proto::conn::{Actions, Notice};
use smc_proto::time::Span;
use smc_proto::wire::cdc::Cdc;
use smc_proto::wire::immediate::Immediate;

impl Pair {
    /// Gives the connection free slots.
    pub(super) fn post(&mut self, me: usize) {
        loop {
            let busy = self.side[me].in_air.len() + self.side[me].completing.len();
            let s = &mut self.side[me];
            if !s.due || busy >= self.slots || s.broken && !s.killed || s.gone {
                return;
            }
            let Some(tx) = s.conn.take_tx(self.now) else {
                s.due = false;
                return;
            };
            let last = s.in_air.back().map_or(self.now, |f| f.at.max(self.now));
            let at = last.after(Span(self.rng.below(50_000)));
            let s = &mut self.side[me];
            let signaled = tx.signaled || s.silent() >= MOST_SILENT || busy + 1 >= self.slots;
            s.in_air.push_back(Flight {
                at,
                notice: tx.notice,
                plan: tx.plan,
                place: tx.place,
                ticket: tx.ticket,
                signaled,
            });
            let actions = tx.actions;
            // The same round trip through bytes as in real life.
            match tx.notice {
                Notice::Cdc(cdc) => assert_eq!(Cdc::parse(&cdc.encode()), Ok(cdc)),
                Notice::Immediate(imm) => {
                    assert_eq!(Immediate::from_wire(imm.to_wire()), imm);
                    assert_eq!(imm.bytes(), tx.plan.len());
                    self.immediates += 1;
                }
            }
            if !actions.is_empty() {
                self.act(me, actions);
            }
        }
    }

    /// The oldest chain of `from` arrives.
    pub(super) fn deliver(&mut self, from: usize) {
        let to = 1 - from;
        let f = self.side[from].in_air.pop_front().expect("in the air");
        let [a, b] = &mut self.side;
        let (src, dst) = if from == 0 { (a, b) } else { (b, a) };
        if !self.link_up {
            // Lost; its completion is a flush after the kill.
            let (at, ticket, signaled) = (self.now, f.ticket, f.signaled);
            src.completing.push_back(End {
                at,
                ticket,
                signaled,
            });
            return;
        }
        assert!(
            f.plan.is_empty() || !dst.ring_reused,
            "write into a ring that was given back"
        );
        for w in f.plan.iter() {
            let at = w.remote as usize;
            let (o, n) = (w.local.offset as usize, w.local.len as usize);
            // Of a ring that was left there is nothing.
            dst.rmbs[f.place.addr as usize][at..at + n].copy_from_slice(&src.snd[o..o + n]);
        }
        self.delivered += 1;
        let last = src
            .completing
            .back()
            .map_or(self.now, |c| c.at.max(self.now));
        src.completing.push_back(End {
            at: last.after(Span(self.rng.below(30_000))),
            ticket: f.ticket,
            signaled: f.signaled,
        });
        if dst.freed || dst.killed || dst.gone {
            return;
        }
        let result = match f.notice {
            Notice::Cdc(cdc) => dst.conn.on_cdc(&cdc, self.now),
            Notice::Immediate(imm) => dst.conn.on_immediate(imm, self.now),
        };
        match result {
            Ok(actions) => self.act(to, actions),
            Err(e) => panic!("own message refused: {e:?} {:?} {:?}", f.notice, dst.conn),
        }
    }

    /// The queue pair breaks: completions say so from now on, and the connection lives for a while.
    pub(super) fn break_down(&mut self, me: usize) {
        let s = &mut self.side[me];
        s.break_at = None;
        s.broken = true;
        let mut at = self.now;
        for pending in &mut s.completing {
            pending.at = at;
        }
        while let Some(f) = s.in_air.pop_front() {
            at = at.after(Span(self.rng.below(20_000)));
            s.completing.push_back(End {
                at,
                ticket: f.ticket,
                signaled: true,
            });
        }
    }

    /// The next completion comes, which ends all chains up to its own.
    pub(super) fn complete(&mut self, me: usize) {
        let (_, count) = self.side[me].next_end().expect("completing");
        for _ in 0..count {
            self.end(me);
        }
    }

    /// The oldest chain has ended.
    fn end(&mut self, me: usize) {
        let ticket = self.side[me].completing.pop_front().expect("one").ticket;
        if self.side[me].gone {
            return;
        }
        let conn = &mut self.side[me].conn;
        let a = if self.side[me].killed || self.side[me].broken {
            conn.on_tx_failed()
        } else {
            conn.on_tx_done(ticket, self.now)
        };
        self.act(me, a);
    }

    pub(super) fn kill(&mut self, me: usize) {
        let s = &mut self.side[me];
        s.kill_at = None;
        s.break_at = None;
        if s.killed {
            return;
        }
        s.killed = true;
        if !s.gone {
            let suspended = self.suspends.then(|| s.conn.suspend()).flatten();
            let a = match suspended {
                Some(actions) => actions,
                // It has left in good order before.
                None if s.conn.is_suspended() => Actions::NONE,
                None => s.conn.kill(),
            };
            self.act(me, a);
        }
        // Flush.
        while let Some(f) = self.side[me].in_air.pop_front() {
            self.side[me].completing.push_back(End {
                at: self.now,
                ticket: f.ticket,
                signaled: true,
            });
        }
        while !self.side[me].completing.is_empty() {
            self.complete(me);
        }
    }

    /// Asks the peer of `me` to leave the rings. Returns whether it does so.
    pub fn ask_to_leave(&mut self, me: usize) -> bool {
        let asks = self.side[me].conn.ask_to_leave();
        if let Some(actions) = asks {
            self.act(me, actions);
        }
        asks.is_some()
    }

    /// `me` leaves the rings without having heard of the peer.
    pub fn leaves(&mut self, me: usize) {
        let left = self.side[me].conn.leave().expect("an open stream");
        self.act(me, left);
    }

    /// The peer has said that it understands `me`, which says what it has of the rings.
    pub fn say(&mut self, me: usize) {
        self.say_record(me);
        assert!(self.side[me].said.is_some());
    }

    /// Says on TCP what `me` has of the rings, once.
    pub(super) fn say_record(&mut self, me: usize) {
        let s = &mut self.side[me];
        if s.said.is_none() && s.conn.knows_record() {
            let record = s.conn.record();
            assert!(
                !record.orderly || s.in_air.is_empty(),
                "in good order, and more is on its way: {:?}",
                s.conn
            );
            s.said = Some(record);
            let delay = Span(self.rng.below(200_000));
            self.side[1 - me].record_at = Some(self.now.after(delay));
        }
    }

    /// The peer's record has come on TCP: this end leaves, too, when it has all that the peer has sent.
    pub(super) fn hear_record(&mut self, me: usize) {
        let record = self.side[1 - me].said.expect("a record");
        let s = &mut self.side[me];
        if s.conn.awaits_rest(&record) && !s.killed {
            s.record_at = Some(self.now.after(Span::from_millis(1)));
            return;
        }
        s.record_at = None;
        let left = match record.orderly {
            true => s.conn.leave(),
            false => s.conn.suspend(),
        };
        assert!(left.is_some() || s.conn.is_suspended());
        if let Some(actions) = left {
            self.act(me, actions);
        }
    }

    /// The oldest chain of `from` arrives now, whatever its delay; whether there was one.
    pub fn arrive(&mut self, from: usize) -> bool {
        let Some(at) = self.side[from].in_air.front().map(|f| f.at) else {
            return false;
        };
        self.now = self.now.max(at);
        self.deliver(from);
        true
    }

    /// The oldest completion of `me` comes now; whether there was one.
    pub fn completes(&mut self, me: usize) -> bool {
        let Some((at, _)) = self.side[me].next_end() else {
            return false;
        };
        if !self.link_up && !self.side[me].killed {
            return false;
        }
        self.now = self.now.max(at);
        self.complete(me);
        true
    }
}
