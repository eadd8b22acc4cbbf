// SPDX-License-Identifier: GPL-2.0

//! The programs of all connections, and the end of a run.

use super::{pattern, Stack, RING};
use smc_proto::conn::*;
use smc_proto::time::Span;

impl Stack {
    /// A program writes up to `n` bytes.
    pub fn write(&mut self, me: usize, id: usize, n: u32) {
        let Some(index) = self.index_of(me, id) else {
            return;
        };
        let end = self.host[me].ends[index].as_mut().unwrap();
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
        self.act(me, index, a);
    }

    /// A program reads all there is; how much that was.
    pub fn read(&mut self, me: usize, id: usize) -> u32 {
        let Some(index) = self.index_of(me, id) else {
            return 0;
        };
        let h = &mut self.host[me];
        let end = h.ends[index].as_mut().unwrap();
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
            self.act(me, index, a);
        } else if end.conn.recv_state() == RecvState::Eof && !self.streams[id].aborted {
            assert_eq!(pos, self.streams[id].written[1 - me], "early end of file");
        }
        n
    }

    /// A program closes.
    pub fn close(&mut self, me: usize, id: usize) {
        let Some(index) = self.index_of(me, id) else {
            return;
        };
        let end = self.host[me].ends[index].as_mut().unwrap();
        if !end.closed {
            end.closed = true;
            // Unread data makes it an abort, after which the peer's bytes may be lost.
            if matches!(end.conn.recv_state(), RecvState::Data(_)) || end.conn.out_queue() > 0 {
                self.streams[id].aborted = true;
            }
            let a = end.conn.close(CloseMode::Graceful, self.now);
            self.act(me, index, a);
        }
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
