// SPDX-License-Identifier: GPL-2.0
//! Tests of the judgments: a card as it should be, and each fault alone.

use super::super::nldev::Device;
use super::super::Verdict;
use super::*;

fn gid(address: &str, kind: &str) -> Gid {
    Gid {
        index: 0,
        address: address.parse().unwrap(),
        kind: kind.into(),
        interface: "ens1".into(),
    }
}

/// A card as it should be.
fn card() -> facts::Port {
    let text = |text: &str| Some(text.to_string());
    facts::Port {
        device: "mlx5_0".into(),
        port: 1,
        driver: text("mlx5_core"),
        firmware: text("28.39"),
        bus: text("0000:86:00.0"),
        state: text("ACTIVE"),
        physical: text("LinkUp"),
        rate: text("100 Gb/sec"),
        link_layer: text("Ethernet"),
        gids: vec![
            gid("fe80::1", "IB/RoCE v1"),
            gid("::ffff:192.0.2.1", "RoCE v2"),
        ],
        interface: text("ens1"),
        operstate: text("up"),
        mtu: Some(9000),
        nldev: Some(Device {
            name: "mlx5_0".into(),
            protocol: text("roce"),
            fast_registration: Some(true),
        }),
        limits: [
            ("max_qp_wr", "32768".to_string()),
            ("page_size_cap", "0xfffff000".into()),
        ]
        .into(),
        pfc: Some(0b1000),
        counters: vec![("out_of_sequence", 0), ("rp_cnp_handled", 4)],
        ..facts::Port::default()
    }
}

fn verdict(facts: &facts::Port, name: &str) -> Verdict {
    let judged = port(facts);
    judged
        .items
        .iter()
        .find(|item| item.name == name)
        .unwrap()
        .verdict
}

#[test]
fn a_card_as_it_should_be() {
    let judged = port(&card());
    assert!(judged.usable);
    assert!(
        judged.items.iter().all(|item| item.verdict == Verdict::Ok),
        "{judged:?}"
    );
    let found = |name: &str| {
        judged
            .items
            .iter()
            .find(|item| item.name == name)
            .unwrap()
            .found
            .clone()
    };
    assert_eq!(
        found("driver"),
        "mlx5_core, firmware 28.39, at 0000:86:00.0"
    );
    assert_eq!(found("addresses"), "RoCE v2: 192.0.2.1; 1 of another kind");
    assert_eq!(found("pfc"), "on for priority 3");
    assert!(found("losses").ends_with("rp_cnp_handled 4"));
}

/// Each of these alone makes an item worth a look; some of them keep the port from being used.
#[test]
fn each_fault_is_seen() {
    type Change = fn(&mut facts::Port);
    let changes: [(&str, bool, Change); 15] = [
        ("protocol", false, |f| {
            f.nldev.as_mut().unwrap().protocol = Some("iw".into())
        }),
        ("protocol", false, |f| {
            f.nldev.as_mut().unwrap().protocol = Some("ib".into())
        }),
        ("protocol", false, |f| {
            f.nldev = None;
            f.link_layer = Some("InfiniBand".into());
        }),
        ("registration", false, |f| {
            f.nldev.as_mut().unwrap().fast_registration = Some(false)
        }),
        ("state", false, |f| f.state = Some("DOWN".into())),
        ("interface", false, |f| f.interface = None),
        ("interface", false, |f| f.operstate = Some("down".into())),
        ("addresses", false, |f| f.gids.clear()),
        ("addresses", false, |f| drop(f.gids.pop())),
        ("addresses", false, |f| {
            f.gids = vec![gid("fe80::1", "RoCE v2")]
        }),
        ("mtu", true, |f| f.mtu = Some(200)),
        ("limits", true, |f| {
            drop(f.limits.insert("max_qp_wr", "100".into()))
        }),
        ("limits", true, |f| {
            drop(f.limits.insert("page_size_cap", "0xffff0000".into()))
        }),
        ("pfc", true, |f| f.pfc = Some(0)),
        ("losses", true, |f| f.counters[0].1 = 1),
    ];
    for (place, (name, usable, change)) in changes.into_iter().enumerate() {
        let mut facts = card();
        change(&mut facts);
        assert_eq!(verdict(&facts, name), Verdict::Attention, "{place} {name}");
        assert_eq!(port(&facts).usable, usable, "{place} {name}");
        let advice = port(&facts)
            .items
            .into_iter()
            .find(|item| item.name == name)
            .unwrap()
            .advice;
        assert!(advice.is_some(), "{place} {name}");
    }
}

#[test]
fn what_is_not_known_is_said() {
    let mut facts = card();
    facts.nldev = None;
    facts.limits.clear();
    facts.no_limits = Some("ibv_devinfo: not found".into());
    (facts.pfc, facts.mtu) = (None, None);
    facts.counters.clear();
    for name in ["protocol", "registration", "limits", "pfc", "losses", "mtu"] {
        assert_eq!(verdict(&facts, name), Verdict::Unknown, "{name}");
    }
    // Nothing speaks against it.
    assert!(port(&facts).usable);
    facts.driver = None;
    assert!(port(&facts).items.iter().all(|item| item.name != "pfc"));
}

#[test]
fn hosts() {
    let mut seen = facts::Host::default();
    let verdicts = |seen: &facts::Host| {
        host(seen)
            .iter()
            .map(|item| item.verdict)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        verdicts(&seen),
        [Verdict::Ok, Verdict::Attention, Verdict::Attention]
    );
    seen.module = Some(("rsmc", "1".into()));
    seen.shared = Some(false);
    assert_eq!(verdicts(&seen), [Verdict::Ok, Verdict::Ok, Verdict::Ok]);
}
