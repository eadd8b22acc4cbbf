// SPDX-License-Identifier: GPL-2.0

//! A group whose peer is the test.

#![allow(dead_code)] // each test file uses a part of it

use smc_proto::group::choice::{Classes, Key};
use smc_proto::group::{Group, Terms};
use smc_proto::llc::link::*;
use smc_proto::llc::rtoken::{Entry, Region};
use smc_proto::time::Instant;
use smc_proto::wire::clc::{Class, Extensions};
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::Frame;

pub const T0: Instant = Instant(1_000_000_000);

pub fn region(n: u32) -> Region {
    Region {
        rkey: Rkey(n),
        addr: u64::from(n) << 20,
    }
}

pub const KEY: Key = Key {
    role: Role::Server,
    version: 2,
    peer_id: PeerId([1; 8]),
    peer_gid: Gid([2; 16]),
    peer_mac: Mac([0; 6]),
    vlan: 0,
    classes: Classes {
        own: Class {
            traffic: 0,
            priority: 0,
        },
        peer: None,
    },
};

pub fn terms(role: Role) -> Terms {
    Terms {
        key: Key { role, ..KEY },
        release: 1,
        max_conns: 16,
        max_links: 1,
        test_idle: TEST_IDLE,
        extensions: Extensions::NONE,
    }
}

pub const END: LinkEnd = LinkEnd {
    qpn: Qpn::new(5),
    gid: Gid([2; 16]),
    mac: Mac([9; 6]),
};

pub fn active(role: Role) -> Group {
    let mut g = in_state(role, LinkState::Active);
    g.link.number = 1;
    g.link.peer = Some(END);
    g
}

pub fn in_state(role: Role, state: LinkState) -> Group {
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

pub fn frame(f: impl FnOnce(&mut [u8]) -> Result<usize, smc_proto::error::EmitError>) -> Frame {
    let mut b = [0; 44];
    assert_eq!(f(&mut b), Ok(44));
    b
}
