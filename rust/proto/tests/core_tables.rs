// SPDX-License-Identifier: GPL-2.0

//! The tables of a group: the peer's memory regions, alert tokens, RMBEs.

mod group_rig;

use group_rig::region;
use proptest::prelude::*;
use smc_proto::group::slab::*;
use smc_proto::group::tokens::*;
use smc_proto::llc::rtoken::*;
use smc_proto::wire::ids::*;
use smc_proto::wire::immediate::Immediate;

fn rtokens<const L: usize>() -> RtokenTable<[Entry<L>; 255], L> {
    RtokenTable::new([Entry::FREE; 255])
}

/// Deletes one key; whether there was one.
fn delete<const L: usize>(
    t: &mut RtokenTable<[Entry<L>; 255], L>,
    link: usize,
    rkey: Rkey,
) -> bool {
    let mut all = vec![];
    t.delete(link, [rkey], |known| all.push(known));
    all == [true]
}

#[test]
fn rtokens_fill_up_and_are_shared() {
    let mut t = rtokens::<1>();
    let first = t.add(0, region(1)).unwrap();
    assert_eq!(t.add(0, region(1)), Some(first), "the same region");
    for n in 2..=255 {
        assert!(t.add(0, region(n)).is_some());
    }
    assert_eq!(t.add(0, region(256)), None);
    assert_eq!(t.len(), 255);
    assert!(t.is_full());
    assert!(delete(&mut t, 0, Rkey(1)));
    assert!(!t.is_full());
    assert!(!delete(&mut t, 0, Rkey(1)));
    assert_eq!(t.get(first, 0), None);
    let again = t.add(0, region(300)).unwrap();
    assert_ne!(
        again, first,
        "a stale reference does not find the new entry"
    );
    assert_eq!(t.get(first, 0), None);
    assert_eq!(t.get(again, 0), Some(region(300)));
    assert_eq!(t.add(1, region(7)), None, "no such link");
}

#[test]
fn rtoken_key_with_another_address_is_a_new_region() {
    let mut t = rtokens::<1>();
    let old = t.add(0, region(1)).unwrap();
    let new = Region {
        rkey: Rkey(1),
        addr: 42,
    };
    let at = t.add(0, new).unwrap();
    assert_eq!((t.get(old, 0), t.get(at, 0)), (None, Some(new)));
    assert_eq!(t.len(), 1);
}

#[test]
fn rtokens_on_three_links() {
    let mut t = rtokens::<3>();
    let at = t.add(1, region(1)).unwrap();
    assert!(t.add_link(at, 2, region(5)));
    assert!(!t.add_link(at, 3, region(5)));
    assert_eq!(t.get(at, 0), None);
    assert_eq!(t.get(at, 2), Some(region(5)));
    assert_eq!(t.find(2, Rkey(5)), Some(at));
    assert_eq!(t.find(1, Rkey(5)), None);
    assert!(delete(&mut t, 2, Rkey(5)));
    assert_eq!(t.get(at, 1), None);
}

#[test]
fn rtokens_are_deleted_in_one_go() {
    let mut t = rtokens::<1>();
    for n in (1..=100).rev() {
        assert!(t.add(0, region(n)).is_some());
    }
    let mut known = vec![];
    let keys = [50, 7, 500, 7, 100, 1].map(Rkey);
    t.delete(0, keys, |is| known.push(is));
    assert_eq!(known, [true, true, false, false, true, true]);
    assert_eq!(t.len(), 96);
    for n in 1..=100 {
        let is = t.find(0, Rkey(n)).is_some();
        assert_eq!(is, ![50, 7, 100, 1].contains(&n), "{n}");
    }
}

/// The shortest time of some tries.
fn shortest(mut one: impl FnMut() -> bool) -> std::time::Duration {
    let one = |_| {
        let begun = std::time::Instant::now();
        assert!(std::hint::black_box(one()));
        begun.elapsed()
    };
    (0..300).map(one).min().unwrap()
}

/// A peer may name 255 unknown keys in a message, and send such messages as fast as it can: nobody walks
/// through all regions for each of them, as this test does for comparison.
#[test]
fn unknown_keys_are_searched() {
    let mut t = rtokens::<1>();
    let mut all = vec![];
    for n in 0..255 {
        assert!(t.add(0, region(2 * n)).is_some());
        all.push(Some(region(2 * n)));
    }
    let unknown = || (0..255).map(|n| std::hint::black_box(Rkey(2 * n + 1)));
    let searched = shortest(|| {
        let mut none = true;
        t.delete(0, unknown(), |known| none &= !known);
        none
    });
    let walked = shortest(|| {
        let has = |key| all.iter().any(|e| e.is_some_and(|r| r.rkey == key));
        !unknown().any(has)
    });
    assert!(searched * 3 < walked, "{searched:?}, {walked:?} for walks");
}

proptest! {
    /// A table against a list of what it should have.
    #[test]
    fn rtokens_are_found_by_their_keys(
        steps in prop::collection::vec((0..4u8, 0..3usize, 0..12u32, 0..3u64), 1..200)
    ) {
        let mut t = rtokens::<3>();
        let mut all: Vec<(RtokenRef, [Option<Region>; 3])> = vec![];
        for (what, link, key, addr) in steps {
            let region = Region { rkey: Rkey(key), addr };
            let place = |all: &[(RtokenRef, [Option<Region>; 3])]| {
                all.iter().position(|e| e.1[link].is_some_and(|r| r.rkey == Rkey(key)))
            };
            match what {
                0 | 1 => {
                    let old = place(&all);
                    if !old.is_some_and(|at| all[at].1[link] == Some(region)) {
                        if let Some(at) = old {
                            all.remove(at);
                        }
                        let at = t.add(link, region).unwrap();
                        let mut on = [None; 3];
                        on[link] = Some(region);
                        all.push((at, on));
                    }
                }
                2 => {
                    // A key is one region's on a link.
                    if let Some(at) = all.len().checked_sub(1).filter(|_| place(&all).is_none()) {
                        prop_assert!(t.add_link(all[at].0, link, region));
                        all[at].1[link] = Some(region);
                    }
                }
                _ => {
                    let old = place(&all);
                    prop_assert_eq!(delete(&mut t, link, Rkey(key)), old.is_some());
                    if let Some(at) = old {
                        all.remove(at);
                    }
                }
            }
            prop_assert_eq!(t.len(), all.len());
            for link in 0..3 {
                for key in 0..12 {
                    let has = |e: &&(RtokenRef, [Option<Region>; 3])| {
                        e.1[link].is_some_and(|r| r.rkey == Rkey(key))
                    };
                    let want = all.iter().find(has).map(|e| e.0);
                    prop_assert_eq!(t.find(link, Rkey(key)), want);
                }
            }
        }
    }
}

#[test]
fn rmbe_offsets() {
    assert_eq!(rmbe_offset(0, 16384), None);
    assert_eq!(rmbe_offset(1, 16384), Some(0));
    assert_eq!(rmbe_offset(255, 1 << 29), Some(254 << 29));
}

#[test]
fn tokens_are_never_zero_nor_repeated_soon() {
    let mut t = TokenTable::new([0u32; 255], u32::MAX - 3);
    let mut live = Vec::new();
    for n in 0..255u8 {
        let (token, index) = t.alloc().unwrap();
        assert_eq!(index, n);
        assert_ne!(token.0, 0);
        assert_eq!(t.index(Name::of(token)), Some(index));
        live.push(token);
    }
    assert_eq!(t.alloc(), None);
    let gone = live[254];
    assert!(t.free(gone));
    assert!(!t.free(gone));
    let (token, index) = t.alloc().unwrap();
    assert_eq!(index, 254);
    assert_ne!(token, gone);
    assert_eq!(t.index(Name::of(gone)), None, "a late message finds nobody");
    assert_eq!(t.index(Name::of(AlertToken(0))), None);
}

/// A message for an earlier user of an index must not reach the present one.
#[test]
fn half_a_token_comes_back_late() {
    let mut t = TokenTable::new([0; 255], 0);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..255 * 250 {
        let (token, index) = t.alloc().unwrap();
        let imm = Immediate::new(token, 1).unwrap();
        assert_eq!(t.index(Name::of_immediate(imm)), Some(index));
        assert!(seen.insert(imm.hint()), "{token:?}");
        assert!(t.free(token));
        assert_eq!(t.index(Name::of_immediate(imm)), None);
    }
}

#[test]
fn token_slots_are_used_in_turn() {
    let mut t = TokenTable::new([0u32; 255], 0);
    let (a, _) = t.alloc().unwrap();
    t.free(a);
    assert_eq!(t.alloc().unwrap().1, 1);
}

proptest! {
    #[test]
    fn token_table_is_a_map(ops in prop::collection::vec((any::<bool>(), 0usize..300), 0..600), seed: u32) {
        let mut t = TokenTable::new([0u32; 255], seed);
        let mut live: Vec<(AlertToken, u8)> = Vec::new();
        for (add, n) in ops {
            if add {
                match t.alloc() {
                    Some(new) => {
                        prop_assert!(live.iter().all(|(x, s)| *x != new.0 && *s != new.1));
                        live.push(new);
                    }
                    None => prop_assert_eq!(live.len(), 255),
                }
            } else if !live.is_empty() {
                let (token, _) = live.swap_remove(n % live.len());
                prop_assert!(t.free(token));
            }
            prop_assert_eq!(t.len(), live.len());
            for (token, index) in &live {
                prop_assert_eq!(t.index(Name::of(*token)), Some(*index));
            }
        }
    }

    #[test]
    fn slab_gives_each_index_once(cap in 1u8..=255, ops in prop::collection::vec((0u8..4, any::<u8>()), 0..800)) {
        let mut s = Slab::new(cap).unwrap();
        let mut live: Vec<RmbeIdx> = Vec::new();
        let mut quarantined = 0;
        for (op, n) in ops {
            if op < 2 {
                match s.alloc() {
                    Some(i) => {
                        prop_assert!(!live.contains(&i) && i.get() >= 1 && i.get() <= cap);
                        live.push(i);
                    }
                    None => prop_assert_eq!(live.len() + quarantined, usize::from(cap)),
                }
            } else if !live.is_empty() {
                let i = live.swap_remove(usize::from(n) % live.len());
                let reusable = op == 2 || n % 8 != 0;
                quarantined += usize::from(!reusable);
                prop_assert!(s.free(i, reusable));
            }
            prop_assert_eq!(usize::from(s.in_use()), live.len());
            prop_assert_eq!(usize::from(s.quarantined()), quarantined);
            prop_assert_eq!(usize::from(s.available()), usize::from(cap) - live.len() - quarantined);
        }
    }
}

#[test]
fn slab_edges() {
    assert!(Slab::new(0).is_none());
    let mut s = Slab::new(255).unwrap();
    for n in 1..=255 {
        assert_eq!(s.alloc().map(RmbeIdx::get), Some(n));
    }
    assert_eq!(s.alloc(), None);
}
