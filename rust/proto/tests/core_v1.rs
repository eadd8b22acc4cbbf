// SPDX-License-Identifier: GPL-2.0

//! Version 1: who falls to it, what is said, and what keeps it away.

#[path = "../sim/mod.rs"]
mod sim;

use proptest::prelude::*;
use sim::handshake::*;
use smc_proto::handshake::*;
use smc_proto::llc::link::Role;
use smc_proto::llc::responder::LlcEvent;
use smc_proto::reason::Reason;
use smc_proto::time::Instant;
use smc_proto::wire::clc::proposal::{Ipv4Prefix, Ipv6Prefix, Prefixes};
use smc_proto::wire::clc::*;
use smc_proto::wire::ids::*;
use smc_proto::wire::llc::link::ConfirmLink;

const T0: Instant = Instant(5);
const ELIGIBLE: Eligibility = Eligibility {
    option: true,
    refuse: None,
};

fn subnet(addr: [u8; 4], len: u8) -> Prefixes {
    Prefixes {
        ipv4: Ipv4Prefix::of(addr, len),
        ..Prefixes::NONE
    }
}

fn offer(me: u8) -> V1Offer {
    let mut gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    gid[15] = me;
    V1Offer {
        gid: Gid(gid),
        prefixes: subnet([10, 0, 0, me], 24),
    }
}

/// Two hosts that have version 1.
fn net(seed: u64) -> Net {
    let mut net = Net::new(seed);
    for me in 0..2 {
        net.host[me].v1 = Some(offer(me as u8 + 1));
    }
    net
}

fn established(r: &Report) -> bool {
    r.outcome == [Outcome::Established; 2]
}

/// The reason of this side, and what the other one has told it.
fn fell_back(r: &Report, me: usize) -> (Reason, Option<Reason>) {
    match r.outcome[me] {
        Outcome::Fallback { reason, peer, .. } => (reason, peer),
        other => panic!("{other:?}"),
    }
}

fn accept_of(r: &Report) -> Agreement {
    Agreement::parse_accept(&r.sent[1][0]).unwrap()
}

fn end_of(a: &Agreement) -> RdmaEnd {
    match a.end {
        End::R(end) => end,
        End::D(_) => panic!(),
    }
}

#[test]
fn two_that_have_version_2_speak_it() {
    let r = net(1).run(&Weather::fine(1));
    assert!(established(&r));
    assert_eq!(accept_of(&r).version, 2);
    let p = Proposal::parse(&r.sent[0][0]).unwrap();
    assert_eq!((p.path_v1, p.path_v2), (Path::R, Path::R));
    assert_eq!(p.gid, offer(1).gid);
    assert_eq!(p.v2().unwrap().roce_gid, Gid::from_ipv4([10, 0, 0, 1]));
    assert_eq!(p.prefixes(), Some(&offer(1).prefixes));
    // Eight bytes more than without version 1.
    assert_eq!(r.sent[0][0].len(), 156 + 8);
}

#[test]
fn first_contact_then_reuse() {
    for (seed, old) in (0..60).zip([0, 1].into_iter().cycle()) {
        let mut net = net(seed);
        net.host[old].policy.clear_eids();
        let r = net.run(&Weather::fine(seed));
        assert!(established(&r), "{r:?}");
        let a = accept_of(&r);
        let c = Confirm::parse(&r.sent[0][1]).unwrap().agreement;
        for a in [a, c] {
            assert!(a.version == 1 && a.first_contact && a.fce.is_none());
        }
        assert_eq!((r.sent[1][0].len(), r.sent[0][1].len()), (68, 68));
        assert_eq!((r.sent[1][0][7], r.sent[0][1][7]), (0x18, 0x18));
        for (me, role) in [Role::Client, Role::Server].into_iter().enumerate() {
            let terms = *net.host[me].group.as_ref().unwrap().terms();
            assert_eq!((terms.key.version, terms.key.role), (1, role));
            assert_eq!(terms.key.peer_mac, Mac([2, 0, 0, 0, 0, 1 - me as u8]));
            assert_eq!(
                (terms.max_conns, terms.max_links, terms.release),
                (255, 2, 0)
            );
            assert_eq!(terms.extensions, Extensions::NONE);
        }
        for n in 2..10 {
            let r = net.run(&Weather::fine(seed + 1000 * n));
            assert!(established(&r), "{r:?}");
            assert!(!accept_of(&r).first_contact);
            assert_eq!((r.sent[1][0].len(), r.sent[0][1].len()), (68, 68));
            assert_eq!(r.sent[1][0][7], 0x10);
            assert_eq!(u64::from(net.host[0].group.as_ref().unwrap().conns()), n);
        }
    }
}

#[test]
fn a_client_of_version_1_alone_offers_what_c_does() {
    let mut net = net(1);
    net.host[0].policy.clear_eids();
    let r = net.run(&Weather::fine(1));
    let p = &r.sent[0][0];
    // 80 bytes, one IPv4 prefix, the trailer.
    assert_eq!((p.len(), p[7]), (92, 0x28));
    assert_eq!(p[38..40], [0, 40]);
    assert_eq!(p[50..52], [0, 0], "no version 2 extension");
    assert_eq!(p[80..88], [10, 0, 0, 0, 24, 0, 0, 0]);
}

#[test]
fn what_keeps_version_1_away() {
    // No subnet in common.
    let mut hosts = net(1);
    hosts.host[0].policy.clear_eids();
    hosts.host[1].v1.as_mut().unwrap().prefixes = subnet([10, 0, 1, 2], 24);
    let r = hosts.run(&Weather::fine(1));
    assert_eq!(fell_back(&r, 1), (Reason::PrefixMismatch, None));
    let told = (Reason::PeerDeclined, Some(Reason::PrefixMismatch));
    assert_eq!(fell_back(&r, 0), told);
    // The decline has the version of the proposal, as C's.
    assert_eq!((r.sent[1][0].len(), r.sent[1][0][7]), (44, 0x20));
    // No RoCE v1 GID at the server.
    let mut hosts = net(1);
    hosts.host[0].policy.clear_eids();
    hosts.host[1].v1 = None;
    let r = hosts.run(&Weather::fine(1));
    assert_eq!(fell_back(&r, 1), (Reason::NoDevice, None));
    // None at the client, and a server without version 2: there is nothing that it could take.
    let mut hosts = net(1);
    hosts.host[0].v1 = None;
    hosts.host[1].policy.clear_eids();
    let r = hosts.run(&Weather::fine(1));
    assert_eq!(fell_back(&r, 1), (Reason::NoUserEid, None));
}

/// The proposal of a host that has version 1 alone.
fn proposal() -> Proposal {
    let mut net = net(1);
    net.host[0].policy.clear_eids();
    let r = net.run(&Weather::fine(1));
    Proposal::parse(&r.sent[0][0]).unwrap()
}

/// The decline of a server that gets this proposal, if it declines.
fn declined(change: impl FnOnce(&mut Proposal)) -> Option<Decline> {
    let mut p = proposal();
    change(&mut p);
    let (mut s, _) = Server::start(&Policy::new(PeerId([9; 8]), b"x"), &ELIGIBLE, T0);
    match s.step(Input::Proposal(&p), T0) {
        Step::Send => {
            let mut b = [0; MAX_LEN];
            let n = s.emit(&mut b).unwrap();
            Some(Decline::parse(&b[..n]).unwrap())
        }
        _ => None,
    }
}

#[test]
fn proposals_that_do_not_fit() {
    assert_eq!(declined(|_| {}), None);
    let reason = |change: fn(&mut Proposal)| declined(change).unwrap().reason;
    assert_eq!(reason(|p| p.gid = Gid::ZERO), Reason::ModeMismatch);
    assert_eq!(reason(|p| p.mac = Mac::ZERO), Reason::ModeMismatch);
    assert_eq!(reason(|p| p.mac = Mac([0xff; 6])), Reason::ModeMismatch);
    assert_eq!(
        reason(|p| p.mac = Mac([1, 0, 0x5e, 0, 0, 1])),
        Reason::ModeMismatch
    );
    assert_eq!(reason(|p| p.path_v1 = Path::D), Reason::NoV2Extension);
    // A message of version 1 gets a decline of version 1.
    let old = declined(|p| {
        p.version = 1;
        p.gid = Gid::ZERO;
    });
    assert_eq!(old.unwrap().version, 1);
}

#[test]
fn accepts_and_confirms_that_do_not_fit() {
    let mut hosts = net(1);
    hosts.host[1].policy.clear_eids();
    let good = hosts.run(&Weather::fine(1));
    let accept = |v1: Option<V1Offer>, change: &dyn Fn(&mut RdmaEnd)| {
        let port = Port {
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            mac: Mac([2; 6]),
            v1,
        };
        let (mut c, _) = Client::start(&Policy::new(PeerId([1; 8]), b"x"), port, &ELIGIBLE);
        let _ = c.step(Input::Sent, T0);
        let mut a = accept_of(&good);
        let mut end = end_of(&a);
        change(&mut end);
        a.end = End::R(end);
        let step = c.step(Input::Accept(&a), T0);
        let mut b = [0; MAX_LEN];
        let n = c.emit(&mut b).unwrap_or(0);
        (step, Decline::parse(&b[..n]).map(|d| d.reason).ok())
    };
    let Step::Acquire(want) = accept(Some(offer(1)), &|_| {}).0 else {
        panic!()
    };
    assert!(want.direct && want.first_contact == Some(true));
    assert_eq!((want.key.version, want.release, want.max_links), (1, 0, 2));
    assert_eq!(want.key.peer_mac, want.link.unwrap().mac);
    // What was not offered cannot be accepted.
    let (step, reason) = accept(None, &|_| {});
    assert_eq!((step, reason), (Step::Send, Some(Reason::ModeMismatch)));
    let broken = Step::Finish(Outcome::Failed(Failure::Protocol));
    for mac in [Mac::ZERO, Mac([0xff; 6]), Mac([1; 6])] {
        assert_eq!(accept(Some(offer(1)), &|e| e.mac = mac).0, broken);
    }
    assert_eq!(accept(Some(offer(1)), &|e| e.rmbe_idx = 0).0, broken);

    let confirm = |change: &dyn Fn(&mut Agreement)| {
        let (mut s, _) = Server::start(&Policy::new(PeerId([9; 8]), b"x"), &ELIGIBLE, T0);
        let _ = s.step(Input::Proposal(&proposal()), T0);
        let own = Acquired {
            end: end_of(&accept_of(&good)),
            first_contact: true,
            direct: true,
        };
        let _ = s.step(Input::Acquired(&own), T0);
        let _ = s.step(Input::Sent, T0);
        let mut c = Confirm::parse(&good.sent[0][1]).unwrap();
        change(&mut c.agreement);
        s.step(Input::Confirm(&c), T0)
    };
    assert!(matches!(confirm(&|_| {}), Step::Adopt { .. }));
    assert_eq!(confirm(&|a| a.version = 2), broken);
    assert_eq!(confirm(&|a| a.first_contact = false), broken);
    let mac = |mac| {
        confirm(&move |a| {
            if let End::R(end) = &mut a.end {
                end.mac = mac;
            }
        })
    };
    assert_eq!(mac(Mac([3; 6])), broken);
}

/// A client of version 1 waits for ADD_LINK; one that cannot be accepted ends its wait at once.
#[test]
fn the_server_says_that_there_is_no_second_link() {
    let (mut s, _) = Server::start(&Policy::new(PeerId([9; 8]), b"x"), &ELIGIBLE, T0);
    let mut net = net(1);
    net.host[0].policy.clear_eids();
    let r = net.run(&Weather::fine(1));
    let _ = s.step(Input::Proposal(&proposal()), T0);
    let own = Acquired {
        end: end_of(&accept_of(&r)),
        first_contact: true,
        direct: true,
    };
    let _ = s.step(Input::Acquired(&own), T0);
    let _ = s.step(Input::Sent, T0);
    let _ = s.step(Input::Confirm(&Confirm::parse(&r.sent[0][1]).unwrap()), T0);
    let Step::SendLlc { frame, full } = s.step(Input::Done, T0) else {
        panic!()
    };
    // CONFIRM_LINK of version 1: type, length, no reason, no eyecatcher; at most two links, as C.
    assert_eq!(frame[..4], [0x01, 44, 0, 0x03]);
    assert_eq!((frame[29], frame[34], full), (server::FIRST_LINK, 2, false));
    let _ = s.step(Input::Done, T0);
    let event = LlcEvent::ConfirmLink {
        message: ConfirmLink::default(),
        no_eyecatcher: true,
    };
    let Step::SendLlc { frame, .. } = s.step(Input::Llc(event), T0) else {
        panic!()
    };
    assert_eq!(frame[..4], [0x02, 44, 0, 0]);
    assert_eq!(frame[32], 0, "ADD_LINK with MTU 0");
    assert!(frame[4..].iter().any(|b| *b != 0));
    let out = s.step(Input::Done, T0);
    assert_eq!(out, Step::Finish(Outcome::Established));
}

#[test]
fn prefixes() {
    let client = subnet([192, 168, 7, 9], 20);
    assert_eq!(client.ipv4.addr, [192, 168, 0, 0]);
    assert!(client.has_v4(Ipv4Prefix::of([192, 168, 15, 1], 20)));
    assert!(!client.has_v4(Ipv4Prefix::of([192, 168, 16, 1], 20)));
    assert!(!client.has_v4(Ipv4Prefix::of([192, 168, 7, 1], 24)));
    assert!(subnet([0; 4], 0).has_v4(Ipv4Prefix::of([9; 4], 0)));
    assert!(subnet([9; 4], 32).has_v4(Ipv4Prefix::of([9; 4], 32)));
    // Bits beyond the length do not count, whoever sends them.
    let sloppy = Prefixes {
        ipv4: Ipv4Prefix {
            addr: [10, 1, 2, 3],
            len: 16,
        },
        ..Prefixes::NONE
    };
    assert!(sloppy.has_v4(Ipv4Prefix::of([10, 1, 9, 9], 16)));
    // A length that no prefix has is that of none of ours.
    let long = Prefixes {
        ipv4: Ipv4Prefix {
            addr: [10, 1, 2, 3],
            len: 200,
        },
        ..Prefixes::NONE
    };
    assert!(!long.has_v4(Ipv4Prefix::of([10, 1, 2, 3], 32)));

    let v6 = |a: u8, len| Ipv6Prefix::of([0xfd, a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4], len);
    let mut client = subnet([10, 0, 0, 1], 24);
    assert!(client.ipv6.push(v6(1, 64)) && client.ipv6.push(v6(2, 128)));
    assert!(client.has_v6(v6(1, 64)) && client.has_v6(v6(2, 128)));
    assert!(!client.has_v6(v6(3, 64)) && !client.has_v6(v6(1, 65)));
    assert!(
        !client.has_v4(Ipv4Prefix::of([10, 0, 0, 1], 24)),
        "it is of IPv6"
    );
    assert!(Ipv6Prefix::of(offer(1).gid.0, 64).is_link_local());
    assert!(!v6(1, 64).is_link_local());
}

fn weather() -> impl Strategy<Value = Weather> {
    let late = proptest::option::of((2..20u64, 1..9u64));
    (any::<u64>(), 0..3000u64, 0..30u64, 0..5u64, 0..3u64, late).prop_map(
        |(seed, slow_ms, fail_one_in, queue_one_in, lose_link_one_in, late_llc)| Weather {
            seed,
            slow_ms,
            fail_one_in,
            queue_one_in,
            lose_link_one_in,
            late_llc,
            narrow: [false; 2],
        },
    )
}

proptest! {
    /// Whatever is slow, fails or is lost: the model's checks hold in version 1, too.
    #[test]
    fn any_weather(all in proptest::collection::vec(weather(), 1..5), old in 0..2usize) {
        let mut net = net(1);
        net.host[old].policy.clear_eids();
        for w in &all {
            let _ = net.run(w);
        }
    }
}
