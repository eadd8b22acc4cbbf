// SPDX-License-Identifier: GPL-2.0

//! Arithmetic of cursors and rings at full width, beside the exhaustive small cases that live
//! with the code; and the set of connections that want to send.

use proptest::prelude::*;
use smc_proto::cursor::*;
use smc_proto::group::due::DueSet;
use smc_proto::ring::*;
use std::collections::VecDeque;

fn ring() -> impl Strategy<Value = RingSize> {
    (0u32..=30).prop_map(|s| RingSize::new(1 << s).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn cursors_resolve_near_their_position(size in ring(), pos in 0u64..1 << 60, off in any::<u64>(), back: bool) {
        // Anything less than 32768 turns away.
        let off = off % (size.len() * 32767);
        let near = if back { pos.saturating_sub(off) } else { pos + off };
        let wire = Cursor::at(pos, size);
        prop_assert!(wire.count < size.bytes());
        prop_assert_eq!(wire.resolve(size, near), Ok(pos));
    }

    #[test]
    fn any_cursor_is_judged_without_harm(size in ring(), wrap: u16, count: u32, known in 0u64..1 << 60, room: u32) {
        let limit = known + u64::from(room) % (size.len() + 1);
        match judge(Cursor { wrap, count }, size, known, limit) {
            Ok(Step::Ahead { bytes }) => {
                prop_assert!(bytes > 0 && known + bytes <= limit);
                prop_assert_eq!(Cursor::at(known + bytes, size), Cursor { wrap, count });
            }
            Ok(Step::Stale | Step::Beyond) => prop_assert!(count < size.bytes()),
            Err(OutOfRing) => prop_assert!(count >= size.bytes()),
        }
    }

    #[test]
    fn pieces_are_the_span(size in ring(), pos in any::<u64>(), len: u32) {
        let p = Pieces::of(size, pos, len);
        prop_assert_eq!(p.len(), len.min(size.bytes()));
        let [a, b] = p.piece;
        prop_assert_eq!(a.offset, size.offset(pos));
        prop_assert!(u64::from(a.offset) + u64::from(a.len) <= size.len());
        prop_assert!(b.len == 0 || (b.offset == 0 && a.offset + a.len == size.bytes()));
        prop_assert!(b.len <= a.offset);
        prop_assert_eq!(p.is_empty(), p.iter().next().is_none());
    }

    #[test]
    fn plans_cut_at_both_ends(local in ring(), remote in ring(), from in 0u64..1 << 60, to in 0u64..1 << 60, len: u32) {
        let plan = WritePlan::new(local, from, remote, to, len);
        let want = len.min(local.bytes()).min(remote.bytes());
        prop_assert_eq!(plan.len(), want);
        prop_assert!(plan.iter().count() <= 3);
        let mut done = 0u64;
        for w in plan.iter() {
            prop_assert_eq!(w.remote, remote.offset(to + done));
            let p = w.local;
            prop_assert!(u64::from(w.remote) + u64::from(p.len) <= remote.len());
            prop_assert_eq!(p.offset, local.offset(from + done));
            prop_assert!(u64::from(p.offset) + u64::from(p.len) <= local.len());
            done += u64::from(p.len);
        }
        prop_assert_eq!(done, u64::from(want));
    }
}

proptest! {
    #[test]
    fn due_slots_are_taken_in_turn(ops in prop::collection::vec((0u8..4, any::<u8>()), 0..800)) {
        let mut set = DueSet::new();
        let mut model = std::collections::BTreeSet::new();
        let mut turn = 0u8;
        for (op, index) in ops {
            match op {
                0 | 1 => prop_assert_eq!(set.insert(index), model.insert(index)),
                2 => prop_assert_eq!(set.remove(index), model.remove(&index)),
                _ => {
                    let next = model.range(turn..).next().or(model.iter().next()).copied();
                    prop_assert_eq!(set.pop(), next);
                    if let Some(n) = next {
                        model.remove(&n);
                        turn = n.wrapping_add(1);
                    }
                }
            }
            prop_assert_eq!(set.is_empty(), model.is_empty());
        }
    }
}

#[test]
fn nobody_starves() {
    let mut set = DueSet::new();
    let mut waits: VecDeque<u32> = vec![0; 255].into();
    for index in 0..255 {
        set.insert(index);
    }
    for _ in 0..10_000 {
        let index = set.pop().unwrap();
        // Greedy connections ask again at once.
        set.insert(index);
        for (i, w) in waits.iter_mut().enumerate() {
            *w = if i == usize::from(index) { 0 } else { *w + 1 };
            assert!(*w <= 255);
        }
    }
}
