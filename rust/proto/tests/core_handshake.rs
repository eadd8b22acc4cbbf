// SPDX-License-Identifier: GPL-2.0

//! The handshake: two hosts in the simulator, and each machine alone against odd peers.

#[path = "../sim/mod.rs"]
mod sim;

use proptest::prelude::*;
use sim::handshake::*;
use smc_proto::error::ReadError;
use smc_proto::handshake::*;
use smc_proto::reason::Reason;
use smc_proto::wire::clc::*;
use smc_proto::wire::ids::*;

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
        let expected: [u8; 8] = if client { *b"RSM\x01\0\0\0\0" } else { [0; 8] };
        assert_eq!(offer, expected);
        let agreed = client && server;
        let vendor = |a: &Agreement| a.fce.unwrap().limits.unwrap().vendor.to_be_bytes();
        let field = if agreed { *b"RSM\x01" } else { [0; 4] };
        assert_eq!(vendor(&accept_of(&r)), field);
        let confirm = Confirm::parse(&r.sent[0][1]).unwrap().agreement;
        assert_eq!(vendor(&confirm), field);
        for host in &net.host {
            let terms = host.group.as_ref().unwrap().terms();
            assert_eq!(terms.extensions.has(Extensions::IMMEDIATE), agreed);
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
fn facts_that_forbid_smc() {
    let mut net = Net::new(1);
    net.host[0].facts.option = false;
    net.host[1].facts.option = false;
    let r = net.run(&Weather::fine(1));
    assert_eq!(reason(r.outcome[0]).0, Reason::PeerNotSmc);
    assert!(r.sent[0].is_empty() && r.sent[1].is_empty());

    let mut net = Net::new(1);
    net.host[0].facts.refuse = Some(Reason::NoDevice);
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
    net.host[1].facts.refuse = Some(Reason::Ipsec);
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

#[test]
fn a_server_that_never_answers() {
    let policy = Policy::new(PeerId([1; 8]), b"x");
    let port = Port {
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        mac: Mac([2; 6]),
    };
    let facts = Facts {
        option: true,
        refuse: None,
    };
    let t0 = smc_proto::time::Instant(5);
    let start = || Client::start(&policy, port, &facts, t0);
    let (mut c, step) = start();
    assert_eq!(step, Step::Send);
    assert!(matches!(c.step(Input::Sent, t0), Step::Await { .. }));
    let out = c.step(Input::Timer, t0.after(WAIT_CLC));
    assert_eq!(out, Step::Finish(Outcome::Failed(Failure::TimedOut)));

    for (input, why) in [
        (Input::Broken(ReadError::Closed), Failure::Tcp),
        (Input::Broken(ReadError::NotClc), Failure::Protocol),
        (Input::TcpError, Failure::Tcp),
        (Input::Cancel, Failure::Cancelled),
        (Input::LinkLost, Failure::Protocol),
    ] {
        let (mut c, _) = start();
        let _ = c.step(Input::Sent, t0);
        assert_eq!(c.step(input, t0), Step::Finish(Outcome::Failed(why)));
        // Nothing follows the end.
        assert!(matches!(c.step(Input::Sent, t0), Step::Finish(_)));
    }

    let (mut s, _) = Server::start(&policy, &facts, t0);
    let out = s.step(Input::Broken(ReadError::NotClc), t0);
    assert!(matches!(
        out,
        Step::Finish(Outcome::Fallback { strip: false, .. })
    ));
    let (mut s, _) = Server::start(&policy, &facts, t0);
    let out = s.step(Input::Timer, t0);
    assert_eq!(out, Step::Finish(Outcome::Failed(Failure::TimedOut)));
}

/// A client that has sent its proposal, and a good accept for it.
fn waiting_client() -> (Client, Agreement) {
    let policy = Policy::new(PeerId([1; 8]), b"x");
    let port = Port {
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        mac: Mac([2; 6]),
    };
    let facts = Facts {
        option: true,
        refuse: None,
    };
    let (mut c, _) = Client::start(&policy, port, &facts, T0);
    let _ = c.step(Input::Sent, T0);
    let r = Net::new(1).run(&Weather::fine(1));
    (c, accept_of(&r))
}

const T0: smc_proto::time::Instant = smc_proto::time::Instant(5);

/// The decline that a client sends for an accept, or how it fails.
fn verdict(change: impl FnOnce(&mut Agreement)) -> Result<Reason, Step> {
    let (mut c, mut a) = waiting_client();
    change(&mut a);
    match c.step(Input::Accept(&a), T0) {
        Step::Send => {
            let mut b = [0; MAX_LEN];
            let n = c.emit(&mut b).unwrap();
            let d = Decline::parse(&b[..n]).unwrap();
            assert!(matches!(
                c.step(Input::Sent, T0),
                Step::Finish(Outcome::Fallback { .. })
            ));
            Ok(d.reason)
        }
        step => Err(step),
    }
}

fn with_end(a: &mut Agreement, f: impl FnOnce(&mut RdmaEnd)) {
    if let End::R(end) = &mut a.end {
        f(end);
    }
}

#[test]
fn accepts_that_do_not_fit() {
    assert!(matches!(verdict(|_| {}), Err(Step::Acquire(_))));
    let broken = Err(Step::Finish(Outcome::Failed(Failure::Protocol)));
    assert_eq!(
        verdict(|a| a.end = End::D(IsmEnd::default())),
        Ok(Reason::ModeMismatch)
    );
    assert_eq!(verdict(|a| a.version = 1), Ok(Reason::ModeMismatch));
    assert_eq!(verdict(|a| a.eid = Eid([b'X'; 32])), Ok(Reason::NoUserEid));
    assert_eq!(verdict(|a| a.fce = None), broken);
    assert_eq!(verdict(|a| with_end(a, |e| e.rmbe_idx = 0)), broken);
    assert_eq!(
        verdict(|a| with_end(a, |e| e.token = AlertToken(0))),
        broken
    );
    assert_eq!(
        verdict(|a| with_end(a, |e| e.mtu = Mtu::from_code(6))),
        broken
    );
    assert_eq!(verdict(|a| with_end(a, |e| e.addr = u64::MAX - 5)), broken);
    let fce = |f: fn(&mut FirstContact)| {
        verdict(move |a| {
            if let Some(fce) = &mut a.fce {
                f(fce);
            }
        })
    };
    assert_eq!(fce(|f| f.release = 2), Ok(Reason::Release));
    assert_eq!(
        fce(|f| f.limits.as_mut().unwrap().max_conns = 15),
        Ok(Reason::MaxConnections)
    );
    assert_eq!(
        fce(|f| f.limits.as_mut().unwrap().max_links = 0),
        Ok(Reason::MaxLinks)
    );
    assert_eq!(
        fce(|f| f.limits.as_mut().unwrap().max_links = 3),
        Ok(Reason::MaxLinks)
    );
    assert_eq!(fce(|f| f.limits = None), broken);
    // A server of release 0.
    let old = fce(|f| {
        f.release = 0;
        f.limits = None;
    });
    let Err(Step::Acquire(want)) = old else {
        panic!("{old:?}")
    };
    assert_eq!((want.release, want.max_conns, want.max_links), (0, 255, 2));
}

#[test]
fn a_release_0_client_is_told_that_there_is_no_second_link() {
    let policy = Policy::new(PeerId([9; 8]), b"x");
    let facts = Facts {
        option: true,
        refuse: None,
    };
    let (mut s, _) = Server::start(&policy, &facts, T0);
    let r = Net::new(1).run(&Weather::fine(1));
    let mut p = Proposal::parse(&r.sent[0][0]).unwrap();
    p.v2_ext.release = 0;
    p.v2_ext.max_conns = 0;
    p.v2_ext.max_links = 0;
    let Step::Acquire(want) = s.step(Input::Proposal(&p), T0) else {
        panic!()
    };
    assert_eq!((want.release, want.max_links), (0, 2));
    let End::R(end) = accept_of(&r).end else {
        panic!()
    };
    let own = Acquired {
        end,
        first_contact: true,
        direct: true,
    };
    assert_eq!(s.step(Input::Acquired(&own), T0), Step::Send);
    let mut b = [0; MAX_LEN];
    let n = s.emit(&mut b).unwrap();
    let accept = Agreement::parse_accept(&b[..n]).unwrap();
    assert_eq!(accept.fce.unwrap().release, 0);
    let _ = s.step(Input::Sent, T0);
    let mut confirm = Confirm::parse(&r.sent[0][1]).unwrap();
    let fce = confirm.agreement.fce.as_mut().unwrap();
    fce.release = 0;
    fce.limits = None;
    assert!(matches!(
        s.step(Input::Confirm(&confirm), T0),
        Step::Adopt { .. }
    ));
    assert!(matches!(s.step(Input::Done, T0), Step::SendLlc(_)));
    assert!(matches!(
        s.step(Input::Done, T0),
        Step::Await { llc: true, .. }
    ));
    let event = smc_proto::llc::responder::Event::ConfirmLink {
        message: Default::default(),
        no_eyecatcher: true,
    };
    let Step::SendLlc(frame) = s.step(Input::Llc(event), T0) else {
        panic!()
    };
    assert_eq!((frame[0], frame[32]), (0x22, 0), "ADD_LINK with MTU 0");
    assert!(frame[4..].iter().any(|b| *b != 0));
    let out = s.step(Input::Done, T0);
    assert_eq!(out, Step::Finish(Outcome::Established));
}

#[test]
fn confirms_that_do_not_fit() {
    let r = Net::new(1).run(&Weather::fine(1));
    let good = Confirm::parse(&r.sent[0][1]).unwrap();
    let proposal = Proposal::parse(&r.sent[0][0]).unwrap();
    let End::R(end) = accept_of(&r).end else {
        panic!()
    };
    let run = |first_contact: bool, change: &dyn Fn(&mut Agreement)| {
        let facts = Facts {
            option: true,
            refuse: None,
        };
        let (mut s, _) = Server::start(&Policy::new(PeerId([9; 8]), b"x"), &facts, T0);
        let _ = s.step(Input::Proposal(&proposal), T0);
        let own = Acquired {
            end,
            first_contact,
            direct: true,
        };
        let _ = s.step(Input::Acquired(&own), T0);
        let _ = s.step(Input::Sent, T0);
        let mut c = good;
        c.agreement.first_contact = first_contact;
        if !first_contact {
            c.agreement.fce = None;
        }
        change(&mut c.agreement);
        let step = s.step(Input::Confirm(&c), T0);
        let mut b = [0; MAX_LEN];
        let n = s.emit(&mut b).unwrap_or(0);
        (step, Decline::parse(&b[..n]).map(|d| d.reason).ok())
    };
    let broken = Step::Finish(Outcome::Failed(Failure::Protocol));
    assert!(matches!(run(true, &|_| {}).0, Step::Adopt { .. }));
    assert!(matches!(run(false, &|_| {}).0, Step::Adopt { .. }));
    assert_eq!(run(true, &|a| a.first_contact = false).0, broken);
    assert_eq!(run(true, &|a| a.end = End::D(IsmEnd::default())).0, broken);
    assert_eq!(run(true, &|a| with_end(a, |e| e.rmbe_idx = 0)).0, broken);
    let fce = |f: fn(&mut FirstContact)| run(true, &move |a| f(a.fce.as_mut().unwrap())).1;
    assert_eq!(fce(|f| f.release = 0), Some(Reason::Release));
    assert_eq!(
        fce(|f| f.limits.as_mut().unwrap().max_conns = 99),
        Some(Reason::MaxConnections)
    );
    assert_eq!(
        fce(|f| f.limits.as_mut().unwrap().max_links = 2),
        Some(Reason::MaxLinks)
    );
}

#[test]
fn proposals_that_do_not_fit() {
    let r = Net::new(1).run(&Weather::fine(1));
    let good = Proposal::parse(&r.sent[0][0]).unwrap();
    let run = |change: &dyn Fn(&mut Proposal)| {
        let facts = Facts {
            option: true,
            refuse: None,
        };
        let (mut s, _) = Server::start(&Policy::new(PeerId([9; 8]), b"x"), &facts, T0);
        let mut p = good;
        change(&mut p);
        match s.step(Input::Proposal(&p), T0) {
            Step::Send => {
                let mut b = [0; MAX_LEN];
                let n = s.emit(&mut b).unwrap();
                Some(Decline::parse(&b[..n]).unwrap().reason)
            }
            _ => None,
        }
    };
    assert_eq!(run(&|_| {}), None);
    assert_eq!(
        run(&|p| p.v2_ext.release = 9),
        None,
        "later releases are tolerated"
    );
    assert_eq!(
        run(&|p| p.path_v2 = Path::None),
        Some(Reason::NoV2Extension)
    );
    assert_eq!(run(&|p| p.path_v2 = Path::D), Some(Reason::ModeMismatch));
    assert_eq!(run(&|p| p.v2_ext.eids.clear()), Some(Reason::NoUserEid));
    assert_eq!(
        run(&|p| p.v2_ext.max_conns = 3),
        Some(Reason::MaxConnections)
    );
    // A C client without version 1 leaves its peer id empty.
    assert_eq!(run(&|p| p.peer_id = PeerId::ZERO), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Any weather, several handshakes in a row between the same hosts.
    #[test]
    fn any_weather(seed: u64, slow in 0u64..4000, fail in 0u64..12, queue in 0u64..4, lose in 0u64..4, late in prop::option::of((1u64..4, 0u64..8)), n in 1u64..4) {
        let mut net = Net::new(seed);
        for i in 0..n {
            net.run(&Weather {
                seed: seed.wrapping_add(i),
                slow_ms: slow,
                fail_one_in: fail,
                queue_one_in: queue,
                lose_link_one_in: lose,
                late_llc: late,
            });
        }
    }
}
