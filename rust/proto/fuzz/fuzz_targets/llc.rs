// SPDX-License-Identifier: GPL-2.0

//! Any sequence of LLC messages against a group: no panic, answers only to requests, and only
//! DELETE_LINK ends the group.
//!
//! First byte: role and link state. Then messages, each led by a length byte; an odd one asks for
//! type and length to be repaired.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::group::choice::Key;
use smc_proto::group::{Group, Terms, Todo};
use smc_proto::llc::link::{LinkEvent, Role};
use smc_proto::llc::rtoken::Entry;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::clc::Extensions;
use smc_proto::wire::ids::{Gid, Mac, PeerId};
use smc_proto::wire::llc::{Body, Message};

fuzz_target!(|data: &[u8]| {
    let Some((&mode, mut rest)) = data.split_first() else {
        return;
    };
    let mut now = Instant(1);
    let terms = Terms {
        key: Key {
            role: if mode & 1 == 0 {
                Role::Client
            } else {
                Role::Server
            },
            version: 1 + (mode >> 1 & 1),
            peer_id: PeerId([1; 8]),
            peer_gid: Gid([2; 16]),
            peer_mac: Mac([3; 6]),
            vlan: 0,
            classes: Default::default(),
        },
        release: 1,
        max_conns: 255,
        max_links: 2,
        test_idle: Span::from_secs(30),
        extensions: if mode & 0x20 == 0 {
            Extensions::NONE
        } else {
            Extensions::ALL
        },
    };
    let mut group = Group::new(terms, 5, [Entry::FREE; 255], [0; 255]);
    let steps = [
        LinkEvent::ToInit,
        LinkEvent::ToRtr,
        LinkEvent::ToRts,
        LinkEvent::Confirmed,
    ];
    for event in steps.iter().take(usize::from(mode >> 2 & 7)) {
        assert!(group.link.step(*event, now));
    }
    while let Some((&len, tail)) = rest.split_first() {
        let n = usize::from(len).min(tail.len());
        let mut message = tail[..n].to_vec();
        rest = &tail[n..];
        if len & 1 == 1 && n >= 44 {
            message[0] = (message[0] % 10) | (message[0] >> 6 & 1) << 5;
            message[1] = 44;
            message[2] &= 0x0f;
        }
        if let Ok(m) = Message::parse(&message) {
            match m.body {
                Body::AddLink(a) => assert!(a.ext.is_none_or(|e| e.keys().count() <= 255)),
                Body::DeleteRkey(d) => assert_eq!(d.keys().count(), d.count()),
                Body::ReqAddLink(r) => assert!(r.gids().count() <= 255),
                _ => {}
            }
        }
        let was = group.has_ended();
        let (reply, todo) = group.on_llc(&message, now);
        if let Some(r) = reply {
            assert!(!was && message[3] & 0x80 == 0 && r[3] & 0x80 != 0);
            assert_eq!(r[0], message[0]);
        }
        let ended = matches!(todo, Todo::End { .. });
        assert_eq!(ended, group.has_ended() && !was);
        assert!(!ended || message[0] & 0x0f == 4);
        now = now.after(Span::from_secs(u64::from(len)));
        for _ in 0..20 {
            if group.on_timer(now) == Todo::None {
                break;
            }
        }
    }
    assert!(group.rtokens.len() <= 255);
});
