// SPDX-License-Identifier: GPL-2.0

//! The programs on both ends, and what fate does to them.

use super::super::rng::Rng;
use super::{Op, Pair};
use smc_proto::conn::*;
use smc_proto::cursor::RingSize;
use smc_proto::time::Span;
use smc_proto::wire::cdc::{Cdc, StateFlags};
use smc_proto::wire::ids::AlertToken;

impl Pair {
    pub(super) fn write(&mut self, me: usize, n: u16, hint: SendHint) {
        let s = &mut self.side[me];
        if let Some(larger) = s.conn.wanted_send_ring() {
            s.replace_send_ring(larger);
        }
        let room = match s.conn.send_room() {
            Ok(room) => room,
            Err(error) => {
                s.waits_for_room |= error == SendError::Full;
                return;
            }
        };
        let n = u32::from(n).min(room);
        if n == 0 || s.closed {
            return;
        }
        // A pattern in which every position has its own byte.
        let base = s.written.len() as u64;
        let salt = me as u64 * 77;
        let mut i = 0u64;
        for p in s.conn.send_view().iter() {
            for o in 0..p.len {
                if i == u64::from(n) {
                    break;
                }
                let x = (base + i + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let byte = (x >> 56) as u8;
                s.snd[(p.offset + o) as usize] = byte;
                s.written.push(byte);
                i += 1;
            }
        }
        assert_eq!(i, u64::from(n), "the view has the room");
        if hint.urgent {
            s.urgent.push(s.written.len() as u64 - 1);
        }
        let a = s.conn.written(n, hint, self.now).expect("there was room");
        self.act(me, a);
    }

    /// Reads as recv does: up to `n` bytes, not across an urgent mark.
    pub fn read(&mut self, me: usize, n: u32, peek: bool) -> u32 {
        let [a, b] = &mut self.side;
        let (s, peer) = if me == 0 { (a, b) } else { (b, a) };
        if s.closed || s.gone {
            return 0;
        }
        let view = s.conn.recv_view(0);
        let mut pos = s.conn.positions().consumed;
        if view.skip == 1 {
            assert!(peer.urgent.contains(&pos), "only urgent bytes are skipped");
        }
        pos += u64::from(view.skip);
        let mut got = 0;
        for p in view.pieces.iter() {
            for o in 0..p.len {
                if got == n {
                    break;
                }
                let byte = s.rmbs[usize::from(view.ring)][(p.offset + o) as usize];
                assert_eq!(byte, peer.written[pos as usize], "byte {pos} of {}", 1 - me);
                pos += 1;
                got += 1;
            }
        }
        if got == 0 {
            if s.conn.recv_state() == RecvState::Eof {
                self.check_eof(me);
            }
            return 0;
        }
        if !peek {
            let a = s.conn.read_done(view.skip + got).expect("it was there");
            self.act(me, a);
        }
        got
    }

    /// An orderly end of file means that everything was read.
    pub(super) fn check_eof(&mut self, me: usize) {
        let peer_said = self.side[me].conn.flags().1 .1;
        if peer_said.has(StateFlags::ABORT) || !peer_said.any(StateFlags::ANY_END) {
            return;
        }
        self.side[me].saw_eof = true;
        // Unless we had closed first, which makes the peer give up what it still had.
        if self.side[me].conn.flags().0 .1.any(StateFlags::ANY_CLOSE) {
            return;
        }
        let pos = self.side[me].conn.positions().received;
        assert_eq!(
            pos,
            self.side[1 - me].written.len() as u64,
            "early end of file"
        );
    }

    /// Carries out one operation of side `me`.
    pub fn op(&mut self, me: usize, op: Op) {
        if (self.side[me].freed || self.side[me].gone) && !matches!(op, Op::Wait(_)) {
            return;
        }
        let hint = SendHint::default();
        let now = self.now;
        let s = &mut self.side[me];
        let open = !s.closed;
        match op {
            Op::Write(n) => self.write(me, n, hint),
            Op::WriteMore(n) => self.write(me, n, SendHint { more: true, ..hint }),
            Op::WriteUrgent(n) => {
                // As the kernel glue does: only the last bytes of the call are marked.
                if s.conn.send_room().is_ok_and(|r| r >= u32::from(n)) {
                    self.write(
                        me,
                        n,
                        SendHint {
                            urgent: true,
                            ..hint
                        },
                    );
                }
            }
            Op::Read(n) => {
                self.read(me, u32::from(n), false);
            }
            Op::Peek => {
                self.read(me, u32::MAX, true);
            }
            Op::ReadUrgent if open => {
                let last = self.side[1 - me].urgent.last().copied();
                if let Ok(byte) = self.side[me].conn.take_urgent(false) {
                    let known = &self.side[1 - me];
                    let hit = known
                        .urgent
                        .iter()
                        .any(|p| known.written[*p as usize] == byte);
                    assert!(hit && last.is_some(), "an urgent byte nobody wrote");
                }
            }
            Op::Offer(shift) if open => {
                s.offer(RingSize::new(1 << shift).unwrap());
                self.act(me, Actions::NONE);
            }
            Op::Push if open => {
                let a = s.conn.push();
                self.act(me, a);
            }
            Op::Inline(on) if open => {
                let a = s.conn.set_oob_inline(on);
                self.act(me, a);
            }
            Op::ShutWrite if open => {
                let a = s.conn.shutdown_write(now);
                self.act(me, a);
            }
            Op::ShutBoth if open => {
                let a = s.conn.shutdown_both(now);
                self.act(me, a);
            }
            Op::Close | Op::Abort if open => {
                s.closed = true;
                let mode = if op == Op::Abort {
                    CloseMode::Abort
                } else {
                    CloseMode::Graceful
                };
                let a = s.conn.close(mode, now);
                self.send_fin(me);
                self.act(me, a);
            }
            Op::TcpDead => {
                let a = s.conn.on_tcp_dead();
                self.act(me, a);
            }
            Op::Vanish => {
                s.gone = true;
                s.due = false;
                self.send_fin(me);
            }
            Op::LinkLoss => {
                if self.link_up {
                    self.link_up = false;
                    let mine = now.after(Span(self.rng.below(100_000)));
                    let other = now.after(Span::from_millis(self.rng.below(40_000)));
                    for (side, kill) in [(me, mine), (1 - me, other)] {
                        self.side[side].kill_at = Some(kill);
                        let before = Span(self.rng.below(kill.since(now).0.max(1)));
                        self.side[side].break_at =
                            (self.rng.below(2) == 0).then(|| now.after(before));
                    }
                }
            }
            Op::Hostile(x) => self.hostile(me, x),
            Op::Wait(us) => {
                let until = now.after(Span(u64::from(us) * 1000));
                self.run_until(until);
            }
            Op::ReadUrgent | Op::Push | Op::Inline(_) | Op::Offer(_) => {}
            Op::ShutWrite | Op::ShutBoth | Op::Close | Op::Abort => {}
        }
    }

    /// TCP's FIN of `me` is on its way.
    pub(super) fn send_fin(&mut self, me: usize) {
        let delay = Span(self.rng.below(200_000));
        self.side[1 - me].fin_at = Some(self.now.after(delay));
    }

    /// A message with wild content: refused, harmless or ignored, never worse.
    pub(super) fn hostile(&mut self, me: usize, x: u32) {
        let mut r = Rng(u64::from(x));
        let mut bytes = Cdc {
            seq: r.next() as u16,
            token: AlertToken(100 + me as u32),
            ..Cdc::default()
        }
        .encode();
        for b in bytes.iter_mut().skip(8).take(18) {
            *b = if r.one_in(2) { 0 } else { r.next() as u8 };
        }
        // Not a flag that would be a legitimate end.
        bytes[25] = 0;
        bytes[24] |= 8;
        let cdc = Cdc::parse(&bytes).unwrap();
        let before = self.side[me].conn.positions();
        if self.side[me].conn.on_cdc(&cdc, self.now).is_err() {
            assert_eq!(self.side[me].conn.positions(), before);
            let a = self.side[me].conn.fail();
            self.act(me, a);
        }
    }
}
