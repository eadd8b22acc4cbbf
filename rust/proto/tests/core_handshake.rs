// SPDX-License-Identifier: GPL-2.0

//! The handshake: two hosts in the simulator. Each machine alone is in `core_machines.rs`.

#[path = "../sim/mod.rs"]
mod sim;

use proptest::prelude::*;
use sim::handshake::*;
use smc_proto::handshake::*;
use smc_proto::reason::Reason;
use smc_proto::wire::clc::*;

fn established(r: &Report) -> bool {
    r.outcome == [Outcome::Established; 2]
}

fn reason(o: Outcome) -> (Reason, Option<Reason>) {
    match o {
        Outcome::Fallback { reason, peer, .. } => (reason, peer),
        o => panic!("{o:?}"),
    }
}

fn accept_of(r: &Report) -> Agreement {
    Agreement::parse_accept(&r.sent[1][0]).unwrap()
}

#[test]
fn first_contact_then_reuse() {
    for seed in 0..100 {
        let mut net = Net::new(seed);
        let r = net.run(&Weather::fine(seed));
        assert!(established(&r), "{r:?}");
        assert_eq!((r.sent[0].len(), r.sent[1].len()), (2, 1));
        let a = accept_of(&r);
        assert!(a.first_contact && a.version == 2);
        let mtu = |a: &Agreement| match a.end {
            End::R(end) => end.mtu.code(),
            End::D(_) => 0,
        };
        let c = Confirm::parse(&r.sent[0][1]).unwrap().agreement;
        assert_eq!((mtu(&a), mtu(&c)), (4, 4), "the smaller one in the confirm");
        assert_eq!(c.eid, a.eid);
        let limits = a.fce.unwrap().limits.unwrap();
        assert_eq!((limits.max_conns, limits.max_links), (255, 1));
        // One EID, one GID.
        assert_eq!(r.sent[0][0].len(), 156);
        assert_eq!(r.sent[1][0].len(), 160);
        assert_eq!(r.sent[0][1].len(), 180);
        for n in 2..20 {
            let r = net.run(&Weather::fine(seed + 1000 * n));
            assert!(established(&r), "{r:?}");
            assert!(!accept_of(&r).first_contact);
            assert_eq!((r.sent[1][0].len(), r.sent[0][1].len()), (108, 108));
            assert_eq!(u64::from(net.host[0].group.as_ref().unwrap().conns()), n);
        }
    }
}

#[test]
fn a_full_group_is_followed_by_another() {
    let mut net = Net::new(1);
    net.host[1].policy.max_conns = 16;
    for n in 0..17 {
        let r = net.run(&Weather::fine(n));
        assert!(established(&r));
        assert_eq!(accept_of(&r).first_contact, n == 0 || n == 16);
    }
}

#[test]
fn a_forgotten_group_is_out_of_sync() {
    let mut net = Net::new(1);
    assert!(established(&net.run(&Weather::fine(1))));
    net.host[0].group = None;
    let r = net.run(&Weather::fine(2));
    assert_eq!(reason(r.outcome[0]), (Reason::SyncError, None));
    let o = r.outcome[1];
    assert_eq!(reason(o), (Reason::PeerDeclined, Some(Reason::SyncError)));
    assert!(matches!(
        o,
        Outcome::Fallback {
            out_of_sync: true,
            ..
        }
    ));
    // The server has given the group up, so the next connection starts a new one.
    let r = net.run(&Weather::fine(3));
    assert!(established(&r) && accept_of(&r).first_contact);
}

#[test]
fn eids_decide() {
    let eid = |t: &str| Eid::from_text(t.as_bytes()).unwrap();
    let mut net = Net::new(1);
    net.host[0].policy.set_eids(&[eid("ONE"), eid("TWO")]);
    net.host[1].policy.set_eids(&[eid("TWO"), eid("ONE")]);
    let r = net.run(&Weather::fine(1));
    assert!(established(&r));
    assert_eq!(accept_of(&r).eid, eid("ONE"), "the client's order counts");
    assert_eq!(r.sent[0][0].len(), 124 + 3 * 32);
    // Nothing configured in common: the default one.
    let mut net = Net::new(1);
    net.host[0].policy.set_eids(&[eid("ONE")]);
    let r = net.run(&Weather::fine(1));
    assert_eq!(accept_of(&r).eid, eid("RSMC-DEFAULT"));
    let p = Proposal::parse(&r.sent[0][0]).unwrap();
    assert_eq!(
        p.v2().unwrap().eids.as_slice(),
        [eid("ONE"), eid("RSMC-DEFAULT")]
    );
    // More than fit.
    let many: Vec<Eid> = (0..9).map(|n| eid(&format!("E{n}"))).collect();
    let mut policy = net.host[0].policy;
    policy.set_eids(&many);
    assert_eq!(policy.eids().len(), 8);
    assert!(policy.has_eid(&eid("RSMC-DEFAULT")));
    policy.set_eids(&[eid("RSMC-DEFAULT"), eid("A"), eid("A")]);
    assert_eq!(policy.eids().len(), 2);
}

/// Both must offer an extension, and a peer that does not know the field is not asked for any.
#[test]
fn extensions_are_negotiated() {
    for (client, server) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut net = Net::new(1);
        for (host, has) in [(0, client), (1, server)] {
            if !has {
                net.host[host].policy.extensions = Extensions::NONE;
            }
        }
        let r = net.run(&Weather::fine(1));
        assert!(established(&r));
        let offer = Proposal::parse(&r.sent[0][0]).unwrap().vendor;
        let expected: [u8; 8] = if client { *b"RSM\x1f\0\0\0\0" } else { [0; 8] };
        assert_eq!(offer, expected);
        let agreed = client && server;
        let vendor = |a: &Agreement| a.fce.unwrap().limits.unwrap().vendor.to_be_bytes();
        let field = if agreed { *b"RSM\x1f" } else { [0; 4] };
        assert_eq!(vendor(&accept_of(&r)), field);
        let confirm = Confirm::parse(&r.sent[0][1]).unwrap().agreement;
        assert_eq!(vendor(&confirm), field);
        for host in &net.host {
            let terms = host.group.as_ref().unwrap().terms();
            assert_eq!(terms.extensions.has(Extensions::IMMEDIATE), agreed);
        }
    }
}

/// Both ends take a link for confirmed only if full packets get through in both directions. A peer that does not send such
/// packets is taken at its word.
#[test]
fn full_packets_are_proved() {
    let fell_back = |o| matches!(o, Outcome::Fallback { .. });
    for narrow in [[true, false], [false, true]] {
        for knows in [true, false] {
            let mut net = Net::new(1);
            if !knows {
                net.host[1].policy.extensions = Extensions::IMMEDIATE;
            }
            let mut weather = Weather::fine(1);
            weather.narrow = narrow;
            let r = net.run(&weather);
            let [client, server] = r.outcome.map(fell_back);
            assert_eq!(established(&r), !knows);
            assert_eq!((client, server), (knows, knows));
        }
    }
}

#[test]
fn limits_are_negotiated() {
    let mut net = Net::new(1);
    net.host[0].policy.max_conns = 40;
    net.host[0].policy.max_links = 2;
    net.host[1].policy.max_conns = 50;
    net.host[1].policy.max_links = 2;
    let r = net.run(&Weather::fine(1));
    assert!(established(&r));
    let t = *net.host[0].group.as_ref().unwrap().terms();
    assert_eq!((t.max_conns, t.max_links, t.release), (40, 2, 1));
    let mut net = Net::new(1);
    net.host[0].policy.max_conns = 15;
    let r = net.run(&Weather::fine(1));
    assert_eq!(reason(r.outcome[1]).0, Reason::MaxConnections);
    let mut net = Net::new(1);
    net.host[0].policy.max_links = 0;
    let r = net.run(&Weather::fine(1));
    assert_eq!(reason(r.outcome[1]).0, Reason::MaxLinks);
}

#[test]
fn connections_that_may_not_speak_smc() {
    let mut net = Net::new(1);
    net.host[0].eligibility.option = false;
    net.host[1].eligibility.option = false;
    let r = net.run(&Weather::fine(1));
    assert_eq!(reason(r.outcome[0]).0, Reason::PeerNotSmc);
    assert!(r.sent[0].is_empty() && r.sent[1].is_empty());

    let mut net = Net::new(1);
    net.host[0].eligibility.refuse = Some(Reason::NoDevice);
    let r = net.run(&Weather::fine(1));
    assert_eq!(reason(r.outcome[0]), (Reason::NoDevice, None));
    let peer = Some(Reason::NoDevice);
    assert_eq!(reason(r.outcome[1]), (Reason::PeerDeclined, peer));
    assert_eq!(
        r.sent[0][0].len(),
        28,
        "before an accept a decline is version 1"
    );

    let mut net = Net::new(1);
    net.host[1].eligibility.refuse = Some(Reason::Ipsec);
    let r = net.run(&Weather::fine(1));
    assert_eq!(reason(r.outcome[1]).0, Reason::Ipsec);
    assert_eq!(reason(r.outcome[0]).1, Some(Reason::Ipsec));
    assert_eq!(r.sent[1][0].len(), 44);
}

#[test]
fn failures_at_every_step() {
    let mut seen = [0u32; 3];
    for seed in 0..4000 {
        let mut net = Net::new(seed);
        let w = Weather {
            fail_one_in: 4,
            ..Weather::fine(seed)
        };
        for n in 0..3 {
            let r = net.run(&Weather {
                seed: seed * 3 + n,
                ..w.clone()
            });
            let i = match r.outcome {
                [Outcome::Established, Outcome::Established] => 0,
                [Outcome::Fallback { .. }, Outcome::Fallback { .. }] => 1,
                _ => 2,
            };
            seen[i] += 1;
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

#[test]
fn slow_networks_and_crossing_declines() {
    let (mut smc, mut tcp, mut crossed, mut other) = (0, 0, 0, 0);
    for seed in 0..6000 {
        let mut net = Net::new(seed);
        let r = net.run(&Weather {
            slow_ms: [500, 1500, 3000][seed as usize % 3],
            fail_one_in: [0, 20][seed as usize % 2],
            lose_link_one_in: 5,
            late_llc: Some((2, 1 + seed % 6)),
            ..Weather::fine(seed)
        });
        let declines = r
            .sent
            .iter()
            .filter(|s| s.last().is_some_and(|m| m[4] == 4));
        crossed += usize::from(declines.count() == 2);
        match r.outcome {
            [Outcome::Established, Outcome::Established] => smc += 1,
            [Outcome::Fallback { .. }, Outcome::Fallback { .. }] => tcp += 1,
            _ => other += 1,
        }
    }
    println!("smc {smc}, tcp {tcp}, crossed {crossed}, other {other}");
    assert!(smc > 0 && tcp > 0 && crossed > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Any weather, several handshakes in a row between the same hosts.
    #[test]
    fn any_weather(seed: u64, slow in 0u64..4000, fail in 0u64..12, queue in 0u64..4, lose in 0u64..4, late in prop::option::of((1u64..4, 0u64..8)), narrow: [bool; 2], n in 1u64..4) {
        let mut net = Net::new(seed);
        for i in 0..n {
            net.run(&Weather {
                seed: seed.wrapping_add(i),
                slow_ms: slow,
                fail_one_in: fail,
                queue_one_in: queue,
                lose_link_one_in: lose,
                late_llc: late,
                narrow,
            });
        }
    }
}
