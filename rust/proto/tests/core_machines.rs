// SPDX-License-Identifier: GPL-2.0

//! Client and server machine, each alone against odd peers.

#[path = "../sim/mod.rs"]
mod sim;

use sim::handshake::*;
use smc_proto::error::ReadError;
use smc_proto::handshake::*;
use smc_proto::reason::Reason;
use smc_proto::wire::clc::*;
use smc_proto::wire::ids::*;

const T0: smc_proto::time::Instant = smc_proto::time::Instant(5);

fn accept_of(r: &Report) -> Agreement {
    Agreement::parse_accept(&r.sent[1][0]).unwrap()
}

#[test]
fn a_server_that_never_answers() {
    let policy = Policy::new(PeerId([1; 8]), b"x");
    let port = Port {
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        mac: Mac([2; 6]),
        v1: None,
    };
    let eligibility = Eligibility {
        option: true,
        refuse: None,
    };
    let t0 = smc_proto::time::Instant(5);
    let start = || Client::start(&policy, port, &eligibility);
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

    let (mut s, _) = Server::start(&policy, &eligibility, t0);
    let out = s.step(Input::Broken(ReadError::NotClc), t0);
    assert!(matches!(
        out,
        Step::Finish(Outcome::Fallback { strip: false, .. })
    ));
    let (mut s, _) = Server::start(&policy, &eligibility, t0);
    let out = s.step(Input::Timer, t0);
    assert_eq!(out, Step::Finish(Outcome::Failed(Failure::TimedOut)));
}

/// A client that has sent its proposal, and a good accept for it.
fn waiting_client() -> (Client, Agreement) {
    let policy = Policy::new(PeerId([1; 8]), b"x");
    let port = Port {
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        mac: Mac([2; 6]),
        v1: None,
    };
    let eligibility = Eligibility {
        option: true,
        refuse: None,
    };
    let (mut c, _) = Client::start(&policy, port, &eligibility);
    let _ = c.step(Input::Sent, T0);
    let r = Net::new(1).run(&Weather::fine(1));
    (c, accept_of(&r))
}

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
    let eligibility = Eligibility {
        option: true,
        refuse: None,
    };
    let (mut s, _) = Server::start(&policy, &eligibility, T0);
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
    assert!(matches!(s.step(Input::Done, T0), Step::SendLlc { .. }));
    assert!(matches!(
        s.step(Input::Done, T0),
        Step::Await { llc: true, .. }
    ));
    let event = smc_proto::llc::responder::LlcEvent::ConfirmLink {
        message: Default::default(),
        no_eyecatcher: true,
    };
    let Step::SendLlc { frame, .. } = s.step(Input::Llc(event), T0) else {
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
        let eligibility = Eligibility {
            option: true,
            refuse: None,
        };
        let (mut s, _) = Server::start(&Policy::new(PeerId([9; 8]), b"x"), &eligibility, T0);
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
        let eligibility = Eligibility {
            option: true,
            refuse: None,
        };
        let (mut s, _) = Server::start(&Policy::new(PeerId([9; 8]), b"x"), &eligibility, T0);
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
