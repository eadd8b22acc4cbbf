// SPDX-License-Identifier: GPL-2.0

//! A direction that changes carriers: every byte once and in order, whatever happens when.

use proptest::prelude::*;
use smc_proto::path::{Head, Route};
use std::collections::VecDeque;

/// One direction with its two carriers. TCP delivers late.
struct Model {
    route: Route,
    /// Sequence number of the first byte.
    first: u32,
    /// Bytes that TCP carries: given to it, arrived, taken.
    tcp: Vec<u8>,
    arrived: usize,
    taken: usize,
    ring: VecDeque<u8>,
    sent: u8,
    read: u8,
}

impl Model {
    fn position(&self, bytes: usize) -> u32 {
        self.first.wrapping_add(bytes as u32)
    }

    fn write(&mut self, len: usize) {
        for _ in 0..len {
            match self.route.writes_ring() {
                true => self.ring.push_back(self.sent),
                false => self.tcp.push(self.sent),
            }
            self.sent = self.sent.wrapping_add(1);
        }
    }

    fn promote(&mut self) {
        if let Some(route) = self.route.promoted(self.position(self.tcp.len())) {
            assert!(
                self.ring.is_empty(),
                "a ring that is not empty is begun again"
            );
            self.route = route;
        }
    }

    /// What is readable, counted by the route.
    fn readable(&self) -> usize {
        let unread = self.arrived - self.taken;
        let there = self.ring.len();
        self.route
            .readable(self.position(self.taken), unread, there)
            .iter()
            .sum()
    }

    /// Takes at most `len` bytes, as a stream does.
    fn read(&mut self, len: usize) -> usize {
        let mut got = 0;
        while got < len {
            let byte = match self.route.head() {
                Head::Ring if !self.ring.is_empty() => self.ring.pop_front(),
                Head::Until(_) if self.route.left(self.position(self.taken)) == 0 => None,
                Head::Tcp | Head::Until(_) => {
                    if self.taken == self.arrived {
                        return got;
                    }
                    self.taken += 1;
                    Some(self.tcp[self.taken - 1])
                }
                Head::Ring => None,
            };
            if let Some(byte) = byte {
                assert_eq!(byte, self.read, "out of order");
                self.read = self.read.wrapping_add(1);
                got += 1;
                continue;
            }
            let passed = self
                .route
                .passed(self.position(self.taken), self.ring.is_empty());
            if passed == self.route {
                return got;
            }
            self.route = passed;
        }
        got
    }
}

proptest! {
    #[test]
    fn every_byte_once_and_in_order(
        first in any::<u32>(),
        steps in proptest::collection::vec((0u8..5, 0usize..20), 1..200),
    ) {
        let mut model = Model {
            route: Route::TCP,
            first,
            tcp: Vec::new(),
            arrived: 0,
            taken: 0,
            ring: VecDeque::new(),
            sent: 0,
            read: 0,
        };
        let (mut sent, mut read) = (0, 0);
        for (what, len) in steps {
            match what {
                0 => {
                    model.write(len);
                    sent += len;
                }
                1 => {
                    let there = model.readable();
                    let got = model.read(len);
                    prop_assert_eq!(got, there.min(len), "what is readable is read");
                    read += got;
                }
                2 => model.promote(),
                3 => model.route = model.route.ended(),
                _ => model.arrived = (model.arrived + len).min(model.tcp.len()),
            }
        }
        // In the end all of it arrives.
        model.arrived = model.tcp.len();
        read += model.read(usize::MAX);
        prop_assert_eq!(read, sent);
        prop_assert_eq!(Route::from_word(model.route.word()), model.route);
    }
}

#[test]
fn the_next_cut_waits_for_the_last() {
    let route = Route::TCP.promoted(7).unwrap();
    assert_eq!(route.head(), Head::Until(7));
    assert!(route.writes_ring() && !route.is_ring());
    assert_eq!(route.promoted(9), None);
    let ended = route.ended();
    assert!(!ended.writes_ring());
    assert_eq!(ended.promoted(9), None);
    // Past TCP's bytes, then past the ring's.
    let ring = ended.passed(7, false);
    assert_eq!(ring.head(), Head::Ring);
    assert_eq!(ring.passed(7, true), Route::TCP);
    // All at once.
    assert_eq!(ended.passed(7, true), Route::TCP);
}

#[test]
fn a_byte_that_tcp_drops_is_none_before_the_ring() {
    // Two urgent bytes after the ring's: the second makes TCP drop the first, which stands at the cut.
    let route = Route::TCP.promoted(u32::MAX).unwrap().ended();
    assert_eq!(route.left(u32::MAX - 3), 3);
    assert_eq!(route.left(0), 0);
    assert_eq!(route.readable(0, 12, 10), [0, 10, 12]);
    assert_eq!(route.passed(0, false).head(), Head::Ring);
    assert_eq!(route.passed(0, true), Route::TCP);
}
