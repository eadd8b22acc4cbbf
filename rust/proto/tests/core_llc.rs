// SPDX-License-Identifier: GPL-2.0

//! LLC: steps of a link, answers to what a peer asks, answers to what we ask.

mod group_rig;

use group_rig::*;
use proptest::prelude::*;
use smc_proto::group::*;
use smc_proto::llc::link::*;
use smc_proto::llc::requests::*;
use smc_proto::llc::responder::LlcEvent;
use smc_proto::llc::*;
use smc_proto::time::Span;
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::header::{Version, RKEY_NEGATIVE};
use smc_proto::wire::llc::link::*;
use smc_proto::wire::llc::rkey::*;
use smc_proto::wire::llc::{reply, Body, Frame, Message};

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
        let Todo::Handshake(LlcEvent::ConfirmLink { no_eyecatcher, .. }) = todo else {
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
}

/// The handshake has one place for what it is told, and may not have looked yet when the next message comes.
#[test]
fn no_message_takes_the_place_of_what_the_handshake_waits_for() {
    const CONFIRM_LINK: u8 = 1;
    for (role, state, response) in [
        (Role::Client, LinkState::Rtr, Some(0)),
        // Here it waits for the end of its answer, of which no message tells.
        (Role::Client, LinkState::Activating, None),
        (Role::Server, LinkState::Activating, Some(0x80)),
    ] {
        for (kind, flags) in (0..=u8::MAX).flat_map(|kind| (0..=u8::MAX).map(move |f| (kind, f))) {
            let mut message = [0u8; 44];
            message[..4].copy_from_slice(&[kind, 44, 0, flags]);
            let (_, todo) = in_state(role, state).on_llc(&message, T0);
            if matches!(todo, Todo::Handshake(_)) {
                let here = (kind & 0xf, flags & 0x80);
                assert_eq!(response.map(|r| (CONFIRM_LINK, r)), Some(here), "{role:?}");
            }
        }
    }
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
    let long = T0.after(Span::from_secs(5));
    let late = r.on_timer(long).unwrap();
    assert_eq!((late.rkey, late.answer), (Rkey(2), Answer::TimedOut));
    assert_eq!(r.on_timer(long), None);
    for n in 0..MAX_REQUESTS as u32 {
        assert!(r.start(Ask::Confirm, Rkey(n), T0));
    }
    assert!(!r.start(Ask::Confirm, Rkey(99), T0));
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
