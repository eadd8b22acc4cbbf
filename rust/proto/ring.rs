// SPDX-License-Identifier: GPL-2.0

//! Ring arithmetic: pieces of a ring, and the RDMA WRITEs that copy one ring into another.
//!
//! A span of a ring is at most two contiguous pieces. A transfer from the local send ring to the
//! peer's RMB is cut at the end of both rings, so it is at most three WRITEs. Offsets here are relative to the start of the ring concerned; adding the
//! address of the memory region is the caller's part. No memory is touched here.

use crate::cursor::Pos;
use crate::cursor::RingSize;

/// One contiguous piece of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// Byte offset from the start of the ring.
    pub offset: u32,
    /// Length in bytes; zero means unused.
    pub len: u32,
}

impl Piece {
    #[inline]
    fn after(self, len: u32) -> Piece {
        Piece {
            offset: self.offset.wrapping_add(len),
            len: self.len.saturating_sub(len),
        }
    }
}

/// The one or two contiguous pieces of a span of a ring, in stream order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pieces {
    /// Pieces; an unused one has length zero.
    pub piece: [Piece; 2],
}

impl Pieces {
    /// No bytes.
    pub const NONE: Pieces = Pieces {
        piece: [Piece { offset: 0, len: 0 }; 2],
    };

    /// Pieces of the `len` bytes that start at stream position `pos`; `len` is cut to the ring.
    #[inline]
    #[must_use]
    pub fn of(size: RingSize, pos: Pos, len: u32) -> Pieces {
        let len = len.min(size.bytes());
        let offset = size.offset(pos);
        let first = len.min(size.bytes().saturating_sub(offset));
        Pieces {
            piece: [
                Piece { offset, len: first },
                Piece {
                    offset: 0,
                    len: len.saturating_sub(first),
                },
            ],
        }
    }

    /// Total length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        let [a, b] = self.piece;
        a.len.saturating_add(b.len)
    }

    /// Reports whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What follows the first `len` bytes, which are not more than there are.
    #[inline]
    #[must_use]
    pub fn after(&self, len: u32) -> Pieces {
        let [a, b] = self.piece;
        if len < a.len {
            return Pieces {
                piece: [a.after(len), b],
            };
        }
        Pieces {
            piece: [b.after(len.wrapping_sub(a.len)), Piece::default()],
        }
    }

    /// The pieces that hold at least one byte, in stream order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Piece> {
        self.piece.into_iter().filter(|p| p.len != 0)
    }
}

/// One RDMA WRITE: contiguous at both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Write {
    /// Byte offset in the peer's ring.
    pub remote: u32,
    /// Place of the bytes in the local ring.
    pub local: Piece,
}

/// All RDMA WRITEs of one transfer, in order: at most three, as either ring may end in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePlan {
    local: RingSize,
    remote: RingSize,
    /// Offsets of the next byte in both rings.
    from: u32,
    to: u32,
    /// Bytes from there on.
    left: u32,
}

impl WritePlan {
    /// Plans the copy of `len` bytes from position `from` of the local ring to position `to` of
    /// the peer's. `len` is cut to the smaller ring.
    #[inline]
    #[must_use]
    pub fn new(local: RingSize, from: Pos, remote: RingSize, to: Pos, len: u32) -> WritePlan {
        WritePlan {
            local,
            remote,
            from: local.offset(from),
            to: remote.offset(to),
            left: len.min(local.bytes()).min(remote.bytes()),
        }
    }

    /// Bytes moved.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.left
    }

    /// Reports whether nothing is to be written.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The WRITEs, each of at least one byte.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> Writes {
        Writes(*self)
    }
}

/// The WRITEs of a [`WritePlan`].
#[derive(Clone, Debug)]
pub struct Writes(WritePlan);

impl Iterator for Writes {
    type Item = Write;

    #[inline]
    fn next(&mut self) -> Option<Write> {
        let plan = &mut self.0;
        if plan.left == 0 {
            return None;
        }
        let here = plan.local.bytes().wrapping_sub(plan.from);
        let there = plan.remote.bytes().wrapping_sub(plan.to);
        let len = plan.left.min(here).min(there);
        let write = Write {
            remote: plan.to,
            local: Piece {
                offset: plan.from,
                len,
            },
        };
        // Both stay within their rings: an offset at the end is the beginning.
        plan.from = if len == here {
            0
        } else {
            plan.from.wrapping_add(len)
        };
        plan.to = if len == there {
            0
        } else {
            plan.to.wrapping_add(len)
        };
        plan.left = plan.left.wrapping_sub(len);
        Some(write)
    }
}

/// Consumption below this many bytes is never worth a message of its own (C: half of
/// SOCK_MIN_SNDBUF).
pub const MIN_UPDATE: u32 = 2304;

/// Positions that decide whether the peer should learn of our consumer cursor without waiting for
/// other traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Consumption {
    /// Our receive ring.
    pub ring: RingSize,
    /// Consumer position the peer was told.
    pub announced: Pos,
    /// Up to where the ring is free again.
    pub released: Pos,
    /// Up to where the peer has written.
    pub received: Pos,
    /// The peer has more than the ring has room for.
    pub blocked: bool,
    /// The peer has agreed to immediates, which do not carry our cursor; see
    /// [`Immediate`](crate::wire::immediate::Immediate).
    pub peer_takes_immediates: bool,
}

impl Consumption {
    /// Reports whether a message with the consumer cursor is due.
    ///
    /// C's rule: more than a tenth of the ring is unconfirmed, and the peer is blocked or sees no
    /// more than half of the ring free (a quarter, if answers are expected to say it before, see
    /// [`worth_saying`](Self::worth_saying)). Beyond that, a blocked peer always learns that the ring is
    /// empty, so that it cannot wait for ever however small the ring.
    #[inline]
    #[must_use]
    pub fn update_due(&self) -> bool {
        let unconfirmed = self.released.saturating_sub(self.announced);
        if unconfirmed == 0 {
            return false;
        }
        let size = self.ring.bytes();
        if self.blocked {
            if self.released >= self.received {
                return true;
            }
        } else {
            let used = self.received.saturating_sub(self.announced);
            let free = self.ring.len().saturating_sub(used);
            let scarce = if self.peer_takes_immediates {
                size / 4
            } else {
                size / 2
            };
            if free > u64::from(scarce) {
                // Most often.
                return false;
            }
        }
        let limit = (size / 10).max(MIN_UPDATE).min(size / 2);
        unconfirmed > u64::from(limit)
    }

    /// Reports whether data that goes to the peer anyhow should bring the cursor along, where that
    /// has a price: early enough that no message of its own becomes due while data goes both ways.
    #[inline]
    #[must_use]
    pub fn worth_saying(&self) -> bool {
        let unconfirmed = self.released.saturating_sub(self.announced);
        unconfirmed > u64::from(self.ring.bytes() / 4)
    }
}

/// Reports whether prepared bytes are held back until an outstanding message completes, which sends
/// them with what has come by then: `unsent` bytes beside `told` messages whose end will be known at once.
#[inline]
#[must_use]
pub fn autocork(send_ring: RingSize, limit: u32, unsent: u64, told: u16) -> bool {
    let limit = limit.min(send_ring.bytes() / 2);
    told > 0 && unsent <= u64::from(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn copy(plan: &WritePlan, src: &[u8], dst: &mut [u8]) {
        for w in plan.iter() {
            let at = w.remote as usize;
            let from = w.local.offset as usize;
            let n = w.local.len as usize;
            // Each access is contiguous: plain slices panic if the plan is wrong.
            dst[at..at + n].copy_from_slice(&src[from..from + n]);
        }
    }

    /// All sizes up to 16, all offsets, all lengths: the plan moves exactly the stream bytes, with
    /// at most three pieces, and touches nothing else.
    #[test]
    fn write_plan_exhaustively() {
        for (ls, rs) in (0..=4u32).flat_map(|a| (0..=4u32).map(move |b| (a, b))) {
            let local = RingSize::new(1 << ls).unwrap();
            let remote = RingSize::new(1 << rs).unwrap();
            let src: Vec<u8> = (0..local.bytes() as u8).map(|i| i + 1).collect();
            for from in 0..2 * local.len() {
                for to in 0..2 * remote.len() {
                    for len in 0..=local.bytes().min(remote.bytes()) {
                        let plan = WritePlan::new(local, from, remote, to, len);
                        assert_eq!(plan.len(), len);
                        assert!(plan.iter().count() <= 3);
                        let mut dst = vec![0u8; remote.bytes() as usize];
                        copy(&plan, &src, &mut dst);
                        for i in 0..u64::from(len) {
                            let s = local.offset(from + i) as usize;
                            let d = remote.offset(to + i) as usize;
                            assert_eq!(dst[d], src[s]);
                        }
                        let written = dst.iter().filter(|b| **b != 0).count();
                        assert_eq!(written, len as usize);
                    }
                }
            }
        }
    }

    #[test]
    fn what_follows() {
        let ring = RingSize::new(8).unwrap();
        for (pos, len) in (0..16).flat_map(|pos| (0..=8).map(move |len| (pos, len))) {
            let all = Pieces::of(ring, pos, len);
            for taken in 0..=len {
                let rest = Pieces::of(ring, pos + u64::from(taken), len - taken);
                let after = all.after(taken);
                let bytes = |p: Pieces| -> Vec<Piece> { p.iter().collect() };
                assert_eq!(bytes(after), bytes(rest), "{pos} {len} {taken}");
                assert_eq!(after.len(), len - taken);
            }
        }
    }

    #[test]
    fn too_long_is_cut() {
        let s = RingSize::new(4).unwrap();
        let big = RingSize::new(16).unwrap();
        assert_eq!(WritePlan::new(s, 3, big, 1, u32::MAX).len(), 4);
        assert_eq!(Pieces::of(s, u64::MAX, u32::MAX).len(), 4);
    }

    #[test]
    fn empty_plans_have_no_writes() {
        let s = RingSize::MIN_WIRE;
        assert_eq!(WritePlan::new(s, 5, s, 5, 0).iter().count(), 0);
        assert!(WritePlan::new(s, 5, s, 5, 0).is_empty());
    }

    /// All cursor triples of rings up to 16 bytes.
    #[test]
    fn update_rule_exhaustively() {
        for shift in 0..=4u32 {
            let ring = RingSize::new(1 << shift).unwrap();
            let size = ring.len();
            let limit = size / 2;
            for announced in 0..2 * size {
                for released in announced..=announced + size {
                    for received in released..=announced + size {
                        for (blocked, peer_takes_immediates) in
                            [(false, false), (true, false), (false, true), (true, true)]
                        {
                            let c = Consumption {
                                ring,
                                announced,
                                released,
                                received,
                                blocked,
                                peer_takes_immediates,
                            };
                            let news = released - announced;
                            let free = size - (received - announced);
                            let empty = released == received;
                            let scarce = if peer_takes_immediates {
                                size / 4
                            } else {
                                size / 2
                            };
                            let want = news > 0
                                && (blocked && empty
                                    || news > limit && (blocked || free <= scarce));
                            assert_eq!(c.update_due(), want, "{c:?}");
                            // A peer that sees a full ring and waits is told once it is empty.
                            if free == 0 && empty && blocked {
                                assert!(c.update_due());
                            }
                        }
                    }
                }
            }
        }
    }

    /// The thresholds at real sizes.
    #[test]
    fn update_thresholds() {
        for (bytes, limit) in [(16384, 2304), (65536, 6553), (1 << 20, 104_857)] {
            let at = |released: u64| Consumption {
                ring: RingSize::new(bytes).unwrap(),
                announced: 1000,
                released: 1000 + released,
                received: 1000 + u64::from(bytes),
                blocked: false,
                peer_takes_immediates: false,
            };
            assert!(!at(limit).update_due());
            assert!(at(limit + 1).update_due());
        }
    }

    #[test]
    fn autocork_exhaustively() {
        for shift in 0..=4u32 {
            let ring = RingSize::new(1 << shift).unwrap();
            for limit in 0..=20 {
                for unsent in 0..=ring.len() {
                    assert!(!autocork(ring, limit, unsent, 0), "the first is never held");
                    let held = autocork(ring, limit, unsent, 1);
                    let small = unsent <= u64::from(limit) && unsent <= ring.len() / 2;
                    assert_eq!(held, small);
                }
            }
        }
    }
}
