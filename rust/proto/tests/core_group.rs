// SPDX-License-Identifier: GPL-2.0

//! Link groups and LLC behaviour: tables, choice of a group, link steps, and the answer to
//! everything a peer may ask.

use proptest::prelude::*;
use smc_proto::group::choice::*;
use smc_proto::group::rtoken::*;
use smc_proto::group::slab::*;
use smc_proto::group::tokens::*;
use smc_proto::group::*;
use smc_proto::llc::link::*;
use smc_proto::llc::requests::*;
use smc_proto::llc::responder::Event;
use smc_proto::llc::*;
use smc_proto::reason::Reason;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::clc::Extensions;
use smc_proto::wire::ids::*;
use smc_proto::wire::immediate::Immediate;
use smc_proto::wire::llc::header::{Version, RKEY_NEGATIVE};
use smc_proto::wire::llc::link::*;
use smc_proto::wire::llc::rkey::*;
use smc_proto::wire::llc::{reply, Body, Frame, Message};

const T0: Instant = Instant(1_000_000_000);

fn rtokens<const L: usize>() -> RtokenTable<[Entry<L>; 255], L> {
    RtokenTable::new([Entry::FREE; 255])
}

fn region(n: u32) -> Region {
    Region {
        rkey: Rkey(n),
        addr: u64::from(n) << 20,
    }
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
    assert!(t.delete(0, Rkey(1)));
    assert!(!t.is_full());
    assert!(!t.delete(0, Rkey(1)));
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
    assert!(t.delete(2, Rkey(5)));
    assert_eq!(t.get(at, 1), None);
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
        let (token, slot) = t.alloc().unwrap();
        assert_eq!(slot, n);
        assert_ne!(token.0, 0);
        assert_eq!(t.slot(token), Some(slot));
        live.push(token);
    }
    assert_eq!(t.alloc(), None);
    let gone = live[254];
    assert!(t.free(gone));
    assert!(!t.free(gone));
    let (token, slot) = t.alloc().unwrap();
    assert_eq!(slot, 254);
    assert_ne!(token, gone);
    assert_eq!(t.slot(gone), None, "a late message finds nobody");
    assert_eq!(t.slot(AlertToken(0)), None);
}

/// A message for an earlier user of a slot must not reach the present one.
#[test]
fn half_a_token_comes_back_late() {
    let mut t = TokenTable::new([0; 255], 0);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..255 * 250 {
        let (token, slot) = t.alloc().unwrap();
        let imm = Immediate::new(token, 1).unwrap();
        assert_eq!(t.slot_by_hint(imm.hint()), Some(slot));
        assert!(seen.insert(imm.hint()), "{token:?}");
        assert!(t.free(token));
        assert_eq!(t.slot_by_hint(imm.hint()), None);
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
            for (token, slot) in &live {
                prop_assert_eq!(t.slot(*token), Some(*slot));
            }
        }
    }

    #[test]
    fn slab_gives_each_index_once(cap in 1u8..=255, ops in prop::collection::vec((0u8..4, any::<u8>()), 0..800)) {
        let mut s = Slab::new(cap).unwrap();
        let mut live: Vec<RmbeIdx> = Vec::new();
        let mut lost = 0;
        for (op, n) in ops {
            if op < 2 {
                match s.alloc() {
                    Some(i) => {
                        prop_assert!(!live.contains(&i) && i.get() >= 1 && i.get() <= cap);
                        live.push(i);
                    }
                    None => prop_assert_eq!(live.len() + lost, usize::from(cap)),
                }
            } else if !live.is_empty() {
                let i = live.swap_remove(usize::from(n) % live.len());
                let reusable = op == 2 || n % 8 != 0;
                lost += usize::from(!reusable);
                prop_assert!(s.free(i, reusable));
            }
            prop_assert_eq!(usize::from(s.in_use()), live.len());
            prop_assert_eq!(usize::from(s.quarantined()), lost);
            prop_assert_eq!(usize::from(s.available()), usize::from(cap) - live.len() - lost);
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

const KEY: Key = Key {
    role: Role::Server,
    version: 2,
    peer_id: PeerId([1; 8]),
    peer_gid: Gid([2; 16]),
    peer_mac: Mac([0; 6]),
    vlan: 0,
};

fn terms(role: Role) -> Terms {
    Terms {
        key: Key { role, ..KEY },
        release: 1,
        max_conns: 16,
        max_links: 1,
        test_idle: TEST_IDLE,
        extensions: Extensions::NONE,
    }
}

const END: LinkEnd = LinkEnd {
    qpn: Qpn::new(5),
    gid: Gid([2; 16]),
    mac: Mac([9; 6]),
};

#[test]
fn server_joins_a_group_with_room() {
    let good = Candidate {
        key: KEY,
        usable: true,
        room: 1,
    };
    assert!(server_joins(&KEY, &good));
    assert!(!server_joins(&KEY, &Candidate { room: 0, ..good }));
    assert!(!server_joins(
        &KEY,
        &Candidate {
            usable: false,
            ..good
        }
    ));
    let other = Key { vlan: 5, ..KEY };
    assert!(!server_joins(&other, &good));
}

#[test]
fn client_follows_the_bit() {
    let links = [None, Some(END)];
    let choose = |first, version, end: LinkEnd, l| client_choice(first, version, &end, l);
    assert_eq!(choose(true, 2, END, None), ClientChoice::FirstContact);
    assert_eq!(
        choose(true, 2, END, Some(&links[..])),
        ClientChoice::FirstContact
    );
    assert_eq!(
        choose(false, 2, END, None),
        ClientChoice::Decline(Reason::SyncError)
    );
    assert_eq!(
        choose(false, 2, END, Some(&links[..])),
        ClientChoice::Join(1)
    );
    let no = ClientChoice::Decline(Reason::NoServerLink);
    let other_qp = LinkEnd {
        qpn: Qpn::new(6),
        ..END
    };
    assert_eq!(choose(false, 2, other_qp, Some(&links[..])), no);
    let other_mac = LinkEnd {
        mac: Mac([8; 6]),
        ..END
    };
    assert_eq!(
        choose(false, 2, other_mac, Some(&links[..])),
        ClientChoice::Join(1)
    );
    assert_eq!(choose(false, 1, other_mac, Some(&links[..])), no);
}

#[test]
fn link_steps_come_in_order() {
    use LinkEvent::*;
    let all = [ToInit, ToRtr, ToRts, Confirmed, Down];
    let order = [
        (LinkState::Reset, ToInit),
        (LinkState::Init, ToRtr),
        (LinkState::Rtr, ToRts),
        (LinkState::Activating, Confirmed),
    ];
    for (state, good) in order {
        for e in all {
            let next = state.next(e);
            assert_eq!(next.is_some(), e == good || e == Down, "{state:?} {e:?}");
        }
    }
    for e in all {
        assert_eq!(LinkState::Inactive.next(e), None);
        let active = LinkState::Active.next(e);
        assert_eq!(active, (e == Down).then_some(LinkState::Inactive));
    }
}

fn active(role: Role) -> Group {
    let mut g = in_state(role, LinkState::Active);
    g.link.number = 1;
    g.link.peer = Some(END);
    g
}

fn in_state(role: Role, state: LinkState) -> Group {
    let mut g = Group::new(terms(role), 7, [Entry::FREE; 255], [0; 255]);
    use LinkEvent::*;
    for e in [ToInit, ToRtr, ToRts, Confirmed] {
        if g.link.state() == state {
            break;
        }
        assert!(g.link.step(e, T0));
    }
    assert_eq!(g.link.state(), state);
    g
}

fn frame(f: impl FnOnce(&mut [u8]) -> Result<usize, smc_proto::error::EmitError>) -> Frame {
    let mut b = [0; 44];
    assert_eq!(f(&mut b), Ok(44));
    b
}

#[test]
fn test_link_is_echoed() {
    let ask = frame(|b| TestLink { data: [7; 16] }.emit(Version::V2, b));
    let (reply, todo) = active(Role::Client).on_llc(&ask, T0);
    assert_eq!(todo, Todo::None);
    let reply = reply.unwrap();
    assert_eq!(reply[3], 0x80);
    assert_eq!(reply[4..], ask[4..]);
}

#[test]
fn add_link_is_rejected() {
    let offer = AddLink {
        qpn: Qpn::new(3),
        mtu: 3,
        ..AddLink::default()
    };
    let ask = frame(|b| offer.emit(Version::V2, &[], b));
    let (reply, _) = active(Role::Client).on_llc(&ask, T0);
    assert_eq!(reply.unwrap()[..4], [0x22, 44, 0, 0xc0]);
    let ask = frame(|b| offer.emit(Version::V1, &[], b));
    let (reply, _) = active(Role::Client).on_llc(&ask, T0);
    assert_eq!(reply.unwrap()[..4], [0x02, 44, 1, 0xc0]);
    // A server is only ever sent suggestions, which need no answer.
    assert_eq!(active(Role::Server).on_llc(&ask, T0), (None, Todo::None));
    let hint = frame(|b| AddLink::default().emit(Version::V1, &[], b));
    assert_eq!(active(Role::Client).on_llc(&hint, T0), (None, Todo::None));
}

#[test]
fn req_add_link_is_acknowledged_empty() {
    let ask = frame(|b| ReqAddLink::emit(&[Gid([9; 16])], b));
    let (reply, _) = active(Role::Server).on_llc(&ask, T0);
    let mut want = [0; 44];
    want[..4].copy_from_slice(&[0x25, 44, 0, 0x80]);
    assert_eq!(reply, Some(want));
    assert_eq!(active(Role::Client).on_llc(&ask, T0).0, None);
}

#[test]
fn rkeys_come_and_go() {
    let mut g = active(Role::Server);
    let say = |n: u32| {
        let k = ConfirmRkey {
            here: KeyOnLink {
                link_num: 0,
                rkey: Rkey(n),
                addr: 64,
            },
            ..ConfirmRkey::default()
        };
        frame(|b| k.emit(Version::V2, b))
    };
    for n in 1..=255 {
        assert_eq!(g.on_llc(&say(n), T0).0.unwrap()[3], 0x80);
    }
    assert_eq!(g.on_llc(&say(256), T0).0.unwrap()[3], 0xa0, "full");
    let del = frame(|b| DeleteRkey::emit(Version::V2, &[Rkey(1), Rkey(999), Rkey(2)], b));
    let reply = g.on_llc(&del, T0).0.unwrap();
    assert_eq!((reply[3], reply[5]), (0xa0, 1), "one was unknown");
    let del = frame(|b| DeleteRkey::emit(Version::V1, &[Rkey(3), Rkey(999)], b));
    let reply = g.on_llc(&del, T0).0.unwrap();
    assert_eq!((reply[3], reply[5]), (0xa0, 0x40), "the second was unknown");
    let del = frame(|b| DeleteRkey::emit(Version::V2, &[Rkey(4)], b));
    assert_eq!(g.on_llc(&del, T0).0.unwrap()[3], 0x80);
    assert_eq!(g.rtokens.len(), 251);
}

#[test]
fn long_delete_rkey_reaches_all_keys() {
    let mut g = active(Role::Server);
    let keys: Vec<Rkey> = (1..=100).map(Rkey).collect();
    for k in &keys {
        g.rtokens.add(0, region(k.0)).unwrap();
    }
    let mut b = [0; 1024];
    let n = DeleteRkey::emit(Version::V2, &keys, &mut b).unwrap();
    let reply = g.on_llc(&b[..n], T0).0.unwrap();
    assert_eq!(reply[3], 0x80);
    assert!(g.rtokens.is_empty());
}

#[test]
fn delete_link_ends_the_group() {
    for (all, number, ends) in [(true, 9, true), (false, 1, true), (false, 2, false)] {
        let m = DeleteLink {
            link_num: number,
            all,
            orderly: true,
            reason: DeleteReason::PROGRAM,
        };
        let ask = frame(|b| m.emit(Version::V2, false, b));
        let mut g = active(Role::Client);
        let (reply, todo) = g.on_llc(&ask, T0);
        let reply = Message::parse(&reply.unwrap()).map(|m| (m.header.response(), m.header.flags));
        assert!(reply.unwrap().0);
        let end = Todo::End {
            reason: EndReason::Peer(DeleteReason::PROGRAM),
            last: None,
        };
        assert_eq!(todo == end, ends);
        assert_eq!(g.has_ended(), ends);
        // Nothing more is answered after the end.
        assert_eq!(g.on_llc(&ask, T0).0.is_some(), !ends);
    }
    let m = DeleteLink {
        link_num: 2,
        ..DeleteLink::default()
    };
    let ask = frame(|b| m.emit(Version::V2, false, b));
    let (reply, _) = active(Role::Server).on_llc(&ask, T0);
    let reply = reply.unwrap();
    let Body::DeleteLink(r) = Message::parse(&reply).unwrap().body else {
        panic!()
    };
    assert_eq!(r.reason, DeleteReason::UNKNOWN_LINK);
}

#[test]
fn confirm_link_reaches_the_handshake_in_the_right_state_only() {
    let ask = frame(|b| ConfirmLink::default().emit(Version::V2, false, b));
    let answer = frame(|b| ConfirmLink::default().emit(Version::V2, true, b));
    for (role, state, msg) in [
        (Role::Client, LinkState::Rtr, &ask),
        (Role::Server, LinkState::Activating, &answer),
    ] {
        let states = [
            LinkState::Init,
            LinkState::Rtr,
            LinkState::Activating,
            LinkState::Active,
        ];
        for n in 0..16 {
            let r = [Role::Client, Role::Server][n % 2];
            let s = states[n / 2 % 4];
            let m = [&ask, &answer][n / 8];
            let (reply, todo) = in_state(r, s).on_llc(m, T0);
            assert_eq!(reply, None);
            let wanted = [
                (Role::Client, LinkState::Rtr, &ask),
                (Role::Server, LinkState::Activating, &answer),
            ]
            .contains(&(r, s, m));
            assert_eq!(matches!(todo, Todo::Handshake(_)), wanted, "{r:?} {s:?}");
        }
        let mut old = *msg;
        old[3] &= 0x80;
        let (_, todo) = in_state(role, state).on_llc(&old, T0);
        let Todo::Handshake(Event::ConfirmLink { no_eyecatcher, .. }) = todo else {
            panic!()
        };
        assert!(!no_eyecatcher);
    }
}

#[test]
fn responses_nobody_waits_for_are_dropped() {
    let mut g = active(Role::Client);
    for kind in 1..=9u8 {
        for version in [0u8, 0x20] {
            let mut m = [0u8; 44];
            m[0] = kind | version;
            m[1] = 44;
            m[3] = 0x80;
            assert_eq!(g.on_llc(&m, T0), (None, Todo::None), "{kind}");
        }
    }
    let mut s = active(Role::Server);
    let mut m = [0u8; 44];
    m[..4].copy_from_slice(&[0x22, 44, 0, 0xc0]);
    let answer = Event::AddLinkAnswer { rejected: true };
    assert_eq!(s.on_llc(&m, T0), (None, Todo::Handshake(answer)));
}

#[test]
fn requests_match_by_key() {
    let mut r = Requests::new();
    assert!(r.start(Ask::Confirm, Rkey(1), T0));
    assert!(!r.start(Ask::Confirm, Rkey(1), T0));
    assert!(r.start(Ask::Confirm, Rkey(2), T0));
    assert!(r.start(Ask::Delete, Rkey(2), T0.after(Span(1))));
    assert!(r.start(Ask::Delete, Rkey(3), T0));
    let answer = |kind: u8, flags: u8, rkey: u32| {
        let mut m = [0u8; 44];
        m[0] = kind;
        m[1] = 44;
        m[3] = 0x80 | flags;
        m[4] = 1;
        let at = if kind & 0xf == 6 { 5 } else { 8 };
        m[at..at + 4].copy_from_slice(&rkey.to_be_bytes());
        m
    };
    let mut on = |m: Frame| {
        let p = Message::parse(&m).unwrap();
        r.on_response(&p.header, &p.body)
            .map(|s| (s.ask, s.rkey.0, s.answer))
    };
    assert_eq!(on(answer(0x26, 0, 5)), None);
    assert_eq!(
        on(answer(0x26, 0x20, 2)),
        Some((Ask::Confirm, 2, Answer::Refused))
    );
    assert_eq!(
        on(answer(0x26, 0x30, 1)),
        Some((Ask::Confirm, 1, Answer::Retry))
    );
    assert_eq!(on(answer(0x26, 0, 1)), None);
    // C clears the keys of its answer: the oldest request is meant.
    assert_eq!(on(answer(0x29, 0, 0)), Some((Ask::Delete, 3, Answer::Done)));
    assert_eq!(
        r.next_deadline(),
        Some(T0.after(Span(1)).after(WAIT_ANSWER))
    );
    assert_eq!(r.on_timer(T0), None);
    let late = r.on_timer(T0.after(WAIT_FIRST)).unwrap();
    assert_eq!((late.rkey, late.answer), (Rkey(2), Answer::TimedOut));
    assert_eq!(r.on_timer(T0.after(WAIT_FIRST)), None);
    for n in 0..MAX_REQUESTS as u32 {
        assert!(r.start(Ask::Confirm, Rkey(n), T0));
    }
    assert!(!r.start(Ask::Confirm, Rkey(99), T0));
}

/// One key at a time: the next once the peer has answered, or has not in time.
#[test]
fn keys_are_withdrawn_one_by_one() {
    for role in [Role::Client, Role::Server] {
        let mut early = in_state(role, LinkState::Rtr);
        assert_eq!(early.forget(Rkey(7), T0), None);
        let mut g = active(role);
        let ask = g.forget(Rkey(7), T0).unwrap();
        let message = Message::parse(&ask).unwrap();
        assert!(!message.header.response());
        let Body::DeleteRkey(keys) = message.body else {
            panic!()
        };
        assert!(keys.keys().eq([Rkey(7)]));
        assert_eq!(g.forget(Rkey(8), T0), None);
        let settled = |rkey, answer| {
            let ask = Ask::Delete;
            Todo::Settled(Settled { ask, rkey, answer })
        };
        let done = settled(Rkey(7), Answer::Done);
        assert_eq!(g.on_llc(&reply(&ask, 0), T0), (None, done));
        assert!(g.forget(Rkey(8), T0).is_some());
        let late = settled(Rkey(8), Answer::TimedOut);
        assert_eq!(g.on_timer(T0.after(WAIT_ANSWER)), late);
        // A peer that has never heard of the key.
        let ask = g.forget(Rkey(8), T0).unwrap();
        let refused = settled(Rkey(8), Answer::Refused);
        let (_, todo) = g.on_llc(&reply(&ask, RKEY_NEGATIVE), T0);
        assert_eq!(todo, refused);
    }
}

#[test]
fn heartbeat() {
    let mut g = active(Role::Client);
    assert_eq!(g.next_deadline(), Some(T0.after(TEST_IDLE)));
    assert_eq!(g.on_timer(T0), Todo::None);
    let t1 = T0.after(Span::from_secs(10));
    g.heard(t1);
    let t2 = t1.after(TEST_IDLE);
    assert_eq!(g.on_timer(T0.after(TEST_IDLE)), Todo::None);
    let Todo::Send(ask) = g.on_timer(t2) else {
        panic!()
    };
    assert_eq!(ask[..4], [0x27, 44, 0, 0]);
    assert_eq!(g.on_timer(t2), Todo::None);
    // An answer in time.
    let answer = smc_proto::wire::llc::reply(&ask, 0);
    let _ = g.on_llc(&answer, t2.after(Span(1)));
    assert_eq!(g.next_deadline(), Some(t2.after(Span(1)).after(TEST_IDLE)));
    // No answer.
    let t3 = t2.after(Span(1)).after(TEST_IDLE);
    assert!(matches!(g.on_timer(t3), Todo::Send(_)));
    let t4 = t3.after(WAIT_ANSWER);
    let dead = Todo::End {
        reason: EndReason::LinkLost,
        last: None,
    };
    assert_eq!(g.on_timer(t4), dead);
    assert_eq!(g.on_timer(t4), Todo::None);
    assert_eq!(g.next_deadline(), None);
    assert_eq!(g.link.state(), LinkState::Inactive);
    // Turned off.
    let mut off = terms(Role::Client);
    off.test_idle = Span::ZERO;
    let mut g = Group::new(off, 0, [Entry::FREE; 255], [0; 255]);
    for e in [
        LinkEvent::ToInit,
        LinkEvent::ToRtr,
        LinkEvent::ToRts,
        LinkEvent::Confirmed,
    ] {
        assert!(g.link.step(e, T0));
    }
    assert_eq!(g.next_deadline(), None);
}

#[test]
fn idle_groups_expire() {
    for (role, span) in [(Role::Server, IDLE_SERVER), (Role::Client, IDLE_CLIENT)] {
        let mut g = active(role);
        g.link = Link::new(Span::ZERO);
        for e in [
            LinkEvent::ToInit,
            LinkEvent::ToRtr,
            LinkEvent::ToRts,
            LinkEvent::Confirmed,
        ] {
            g.link.step(e, T0);
        }
        let (a, _) = g.add_conn().unwrap();
        let (b, _) = g.add_conn().unwrap();
        assert!(g.remove_conn(a, T0));
        assert!(!g.remove_conn(a, T0));
        assert_eq!(g.next_deadline(), None);
        assert!(g.remove_conn(b, T0));
        assert_eq!(g.next_deadline(), Some(T0.after(span)));
        let (c, _) = g.add_conn().unwrap();
        assert_eq!(g.next_deadline(), None);
        let t1 = T0.after(span);
        assert!(g.remove_conn(c, t1));
        assert_eq!(g.on_timer(t1), Todo::None);
        let Todo::End {
            reason: EndReason::Idle,
            last: Some(last),
        } = g.on_timer(t1.after(span))
        else {
            panic!()
        };
        let Body::DeleteLink(d) = Message::parse(&last).unwrap().body else {
            panic!()
        };
        assert!(d.all && d.orderly && d.reason == DeleteReason::PROGRAM);
        assert_eq!(g.add_conn(), None);
    }
}

#[test]
fn only_an_idle_group_is_ended_for_others() {
    let mut g = active(Role::Server);
    assert_eq!(g.idle_since(), None, "before its first connection");
    assert_eq!(g.end_if_idle(T0), Todo::None);
    let (a, _) = g.add_conn().unwrap();
    assert_eq!(g.idle_since(), None);
    assert_eq!(g.end_if_idle(T0), Todo::None);
    let t1 = T0.after(Span::from_secs(3));
    assert!(g.remove_conn(a, t1));
    assert_eq!(g.idle_since(), Some(t1));
    let (b, _) = g.add_conn().unwrap();
    assert_eq!(g.end_if_idle(t1), Todo::None, "it has a connection again");
    assert!(g.remove_conn(b, t1));
    let Todo::End {
        reason: EndReason::Idle,
        ..
    } = g.end_if_idle(t1)
    else {
        panic!()
    };
    assert_eq!(g.idle_since(), None);
    assert_eq!(g.end_if_idle(t1), Todo::None, "once");
}

#[test]
fn a_peer_that_takes_nothing_is_found_out() {
    let time = Span(TEST_IDLE.0 + WAIT_ANSWER.0);
    let lost = |todo| {
        matches!(
            todo,
            Todo::End {
                reason: EndReason::LinkLost,
                ..
            }
        )
    };
    let mut g = active(Role::Server);
    let beat = g.next_deadline().unwrap();
    assert_eq!(g.look(false, 0, T0), Todo::None);
    // The heartbeat comes first, and hears of the peer all the time.
    assert_eq!(g.next_deadline(), Some(beat));
    let mut now = T0.after(time);
    g.heard(now);
    // Something was sent in between, and may take its time.
    assert_eq!(g.look(true, 0, now), Todo::None);
    now = now.after(Span(time.0 - 1));
    g.heard(now);
    assert_eq!(g.look(true, 0, now), Todo::None);
    // One has ended at last, and that is enough for another while.
    now = now.after(Span(1));
    assert_eq!(g.look(true, 1, now), Todo::None);
    let later = now.after(Span(time.0 - 1));
    assert_eq!(g.look(true, 1, later), Todo::None);
    assert_eq!(g.look(false, 1, later), Todo::None, "all was taken");
    let later = now.after(time);
    assert_eq!(g.look(true, 1, later), Todo::None, "and more was sent");
    g.heard(later);
    assert!(lost(g.look(true, 1, later.after(time))));
    assert_eq!(g.look(true, 1, later.after(time)), Todo::None, "once");
    assert_eq!(g.next_deadline(), None);
    // Without a heartbeat there is a time, too.
    let mut off = terms(Role::Client);
    off.test_idle = Span::ZERO;
    let mut g = Group::new(off, 0, [Entry::FREE; 255], [0; 255]);
    assert_eq!(g.look(true, 0, T0), Todo::None);
    assert_eq!(g.next_deadline(), Some(T0.after(progress::STUCK)));
    assert!(lost(g.look(true, 0, T0.after(progress::STUCK))));
}

#[test]
fn a_full_key_table_is_no_room() {
    let mut g = active(Role::Server);
    for n in 0..255 {
        assert!(g.candidate().room > 0);
        assert!(g.rtokens.add(0, region(n)).is_some());
    }
    assert_eq!(g.candidate().room, 0);
    assert!(g.rtokens.delete(0, Rkey(3)));
    assert_eq!(g.candidate().room, 16);
}

#[test]
fn connections_up_to_the_agreed_number() {
    let mut g = active(Role::Server);
    for n in 0..16 {
        assert_eq!(g.candidate().room, 16 - n);
        assert!(g.add_conn().is_some());
    }
    assert_eq!(g.add_conn(), None);
    assert_eq!(g.link_end(), Some(END));
    assert!(matches!(
        g.end(EndReason::Local, T0),
        Todo::End { last: Some(_), .. }
    ));
    assert_eq!(g.end(EndReason::Local, T0), Todo::None);
    assert_eq!((g.link_end(), g.candidate().usable), (None, false));
}

#[test]
fn a_server_names_the_link_before_the_client_has_noted_it() {
    for (role, early) in [(Role::Client, Some(END)), (Role::Server, None)] {
        let mut g = Group::new(terms(role), 0, [Entry::FREE; 255], [0; 255]);
        g.link.peer = Some(END);
        for (event, end) in [
            (LinkEvent::ToInit, None),
            (LinkEvent::ToRtr, None),
            (LinkEvent::ToRts, early),
            (LinkEvent::Confirmed, Some(END)),
        ] {
            assert!(g.link.step(event, T0));
            assert_eq!(g.link_end(), end, "{role:?} {event:?}");
        }
    }
}

proptest! {
    /// Whatever arrives: no panic, at most 255 regions, and only DELETE_LINK ends the group.
    #[test]
    fn any_llc_input(msgs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..60), server: bool) {
        let mut g = active(if server { Role::Server } else { Role::Client });
        for mut m in msgs {
            if m.len() >= 44 {
                m[0] = (m[0] % 10) | if m[1] & 1 != 0 { 0x20 } else { 0 };
                m[1] = 44;
                m[2] = 0;
            }
            let was = g.has_ended();
            let (reply, todo) = g.on_llc(&m, T0);
            if let Some(r) = reply {
                prop_assert!(r[3] & 0x80 != 0);
                prop_assert!(m[3] & 0x80 == 0, "a response is never answered");
            }
            let ended = matches!(todo, Todo::End { .. });
            prop_assert_eq!(ended, !was && g.has_ended());
            prop_assert!(!ended || m[0] & 0xf == 4);
        }
        prop_assert!(g.rtokens.len() <= 255);
    }
}
