// SPDX-License-Identifier: GPL-2.0

//! Rules: the first that matches wins, and the index finds no other one than reading them in order.

use proptest::prelude::*;
use smc_proto::policy::{
    glob, sort, Entry, Facts, Hit, Index, Match, Network, Outcome, Range, Rule, Table, Verdict,
};

type Text = Vec<u8>;

const NOBODY: Facts<'static> = Facts {
    exe: b"/usr/bin/redis-server",
    comm: b"redis-server",
    cgroup: b"/system.slice/redis.service",
    uid: 107,
    mptcp: None,
    port: None,
    peer: None,
};

struct Rules {
    rules: Vec<Rule<Text>>,
    entries: Vec<Entry>,
    index: Index,
}

impl Rules {
    fn new(rules: Vec<Rule<Text>>) -> Self {
        let mut index = Index::new();
        let mut entries: Vec<_> = (0..)
            .zip(&rules)
            .map(|(number, rule)| index.add(number, rule))
            .collect();
        sort(&mut entries);
        assert!(entries.is_sorted());
        Self {
            rules,
            entries,
            index,
        }
    }

    fn decide(&self, facts: &Facts<'_>) -> Outcome {
        Table {
            rules: &self.rules,
            entries: &self.entries,
            index: &self.index,
        }
        .decide(facts)
    }

    /// As `decide`, one rule after the other.
    fn in_order(&self, facts: &Facts<'_>) -> Outcome {
        let (mut open, mut may_allow) = (false, false);
        for (number, rule) in (0..).zip(&self.rules) {
            match rule.judge(facts) {
                Match::No => (),
                Match::Open => {
                    open = true;
                    may_allow |= rule.verdict.allows();
                }
                Match::Yes => {
                    let hit = Some(Hit {
                        rule: number,
                        verdict: rule.verdict,
                    });
                    return Outcome {
                        hit,
                        open,
                        may_allow,
                    };
                }
            }
        }
        Outcome {
            hit: None,
            open,
            may_allow,
        }
    }
}

fn rule(verdict: Verdict) -> Rule<Text> {
    Rule::new(verdict)
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

fn verdict(outcome: Outcome) -> Option<Verdict> {
    outcome.hit.map(|hit| hit.verdict)
}

#[test]
fn patterns() {
    for (pattern, text, is) in [
        ("redis*", "redis-server", true),
        ("redis", "redis-server", false),
        ("*", "", true),
        ("?", "", false),
        ("", "", true),
        ("", "x", false),
        ("*server", "redis-server", true),
        ("r?dis*r", "redis-server", true),
        ("*a*a*a*b", "aaaaaaaaaaaaaaaa", false),
        ("**", "abc", true),
        ("a*b*c", "a-c-b-c", true),
        ("/usr/*/java", "/usr/lib/jvm/bin/java", true),
    ] {
        assert_eq!(
            glob(pattern.as_bytes(), text.as_bytes()),
            is,
            "{pattern} {text}"
        );
    }
}

/// What follows a star may begin at each byte of a path, which has 255, or of a name, which has 15.
#[test]
fn costs() {
    for (exe, comm, steps) in [
        ("/usr/bin/nginx", "", 14),
        ("/opt/*", "", 6),
        ("*", "", 1),
        ("", "redis*", 6),
        ("/opt/*/x", "", 8 * 255),
        ("*?", "a*b", 2 * 255 + 3 * 15),
    ] {
        let text = |text: &str| (!text.is_empty()).then(|| Text::from(text));
        let rule = Rule {
            exe: text(exe),
            comm: text(comm),
            ..rule(Verdict::Deny)
        };
        assert_eq!(rule.cost(), steps, "{exe} {comm}");
    }
}

#[test]
fn networks() {
    let ten = Network::new(v4(10, 1, 2, 3), 96 + 8).unwrap();
    assert!(ten.has(v4(10, 255, 0, 1)) && !ten.has(v4(11, 0, 0, 1)));
    assert_eq!(ten.address(), v4(10, 0, 0, 0));
    let all = Network::new([0xff; 16], 0).unwrap();
    assert!(all.has(v4(1, 2, 3, 4)) && all.has([0; 16]));
    let one = Network::new(v4(1, 2, 3, 4), 128).unwrap();
    assert!(one.has(v4(1, 2, 3, 4)) && !one.has(v4(1, 2, 3, 5)));
    assert!(Network::new([0; 16], 129).is_none());
}

#[test]
fn each_condition() {
    let with = |change: fn(&mut Rule<Text>)| {
        let mut rule = rule(Verdict::Allow);
        change(&mut rule);
        rule.judge(&NOBODY)
    };
    assert_eq!(with(|_| ()), Match::Yes);
    assert_eq!(
        with(|r| r.exe = Some(b"/usr/bin/redis-server".to_vec())),
        Match::Yes
    );
    assert_eq!(
        with(|r| r.exe = Some(b"/usr/bin/redis".to_vec())),
        Match::No
    );
    assert_eq!(with(|r| r.comm = Some(b"redis-*".to_vec())), Match::Yes);
    assert_eq!(with(|r| r.comm = Some(b"nginx".to_vec())), Match::No);
    assert_eq!(
        with(|r| r.cgroup = Some(b"/system.slice".to_vec())),
        Match::Yes
    );
    assert_eq!(with(|r| r.cgroup = Some(b"/".to_vec())), Match::Yes);
    assert_eq!(with(|r| r.cgroup = Some(b"/system".to_vec())), Match::No);
    assert_eq!(with(|r| r.uid = Some(107)), Match::Yes);
    assert_eq!(with(|r| r.uid = Some(0)), Match::No);
    let port = Range {
        first: 6379,
        last: 6380,
    };
    assert_eq!(
        with(|r| r.port = Some(Range {
            first: 6379,
            last: 6380
        })),
        Match::Open
    );
    assert!(port.has(6379) && port.has(6380) && !port.has(6381) && !port.has(6378));
    assert_eq!(with(|r| r.peer = Network::new([0; 16], 0)), Match::Open);
    assert_eq!(
        with(|r| r.peer_port = Some(Range { first: 1, last: 1 })),
        Match::Open
    );
}

#[test]
fn what_is_not_known_matches_nothing() {
    let facts = Facts {
        exe: b"",
        cgroup: b"",
        ..NOBODY
    };
    let mut all = rule(Verdict::Allow);
    all.exe = Some(b"*".to_vec());
    assert_eq!(all.judge(&facts), Match::No);
    let mut root = rule(Verdict::Allow);
    root.cgroup = Some(b"/".to_vec());
    assert_eq!(Rules::new(vec![all, root]).decide(&facts).hit, None);
}

#[test]
fn a_socket_is_judged_as_more_becomes_known() {
    let mut port = rule(Verdict::Allow);
    port.port = Some(Range {
        first: 6379,
        last: 6379,
    });
    let mut peer = rule(Verdict::Deny);
    peer.peer = Network::new(v4(10, 0, 0, 0), 104);
    let rules = Rules::new(vec![peer, port]);
    let at = |port, peer| {
        rules.decide(&Facts {
            port,
            peer,
            ..NOBODY
        })
    };
    let created = at(None, None);
    assert!(created.hit.is_none() && created.open && created.may_allow);
    let other = at(Some(80), None);
    assert!(other.hit.is_none() && other.open && !other.may_allow);
    let listening = at(Some(6379), None);
    assert_eq!(
        (verdict(listening), listening.open),
        (Some(Verdict::Allow), true)
    );
    let accepted = at(Some(6379), Some((v4(10, 0, 0, 9), 1234)));
    assert_eq!(
        (verdict(accepted), accepted.open),
        (Some(Verdict::Deny), false)
    );
    let welcome = at(Some(6379), Some((v4(11, 0, 0, 9), 1234)));
    assert_eq!(
        (verdict(welcome), welcome.open),
        (Some(Verdict::Allow), false)
    );
}

fn text() -> impl Strategy<Value = Text> {
    prop_oneof![
        Just("/a"),
        Just("/a/b"),
        Just("/a/b/c"),
        Just("/"),
        Just("b"),
        Just("b*"),
        Just("?")
    ]
    .prop_map(|text| text.as_bytes().to_vec())
}

fn range() -> impl Strategy<Value = Range> {
    (0u16..4, 0u16..3).prop_map(|(first, more)| Range {
        first,
        last: first + more,
    })
}

fn network() -> impl Strategy<Value = Network> {
    (
        0u8..4,
        prop_oneof![Just(0u8), Just(96), Just(126), Just(127), Just(128)],
    )
        .prop_map(|(last, length)| Network::new(v4(10, 0, 0, last), length).unwrap())
}

prop_compose! {
    fn any_rule()(
        verdict in prop_oneof![
            Just(Verdict::Allow), Just(Verdict::Deny), Just(Verdict::Auto), Just(Verdict::Share(0)),
        ],
        exe in prop::option::weighted(0.2, text()),
        comm in prop::option::weighted(0.2, text()),
        cgroup in prop::option::weighted(0.2, text()),
        uid in prop::option::weighted(0.2, 0u32..3),
        port in prop::option::weighted(0.3, range()),
        peer in prop::option::weighted(0.3, network()),
        peer_port in prop::option::weighted(0.1, range()),
        mptcp in prop::bool::weighted(0.1),
    ) -> Rule<Text> {
        Rule { verdict, exe, comm, cgroup, uid, port, peer, peer_port, mptcp }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn the_index_finds_what_reading_finds(
        rules in prop::collection::vec(any_rule(), 0..12),
        exe in text(), comm in text(), cgroup in text(), uid in 0u32..3,
        mptcp in prop::option::of(prop::bool::weighted(0.2)),
        port in prop::option::of(0u16..5),
        peer in prop::option::of((0u8..5, 0u16..4)),
    ) {
        let facts = Facts {
            exe: &exe, comm: &comm, cgroup: &cgroup, uid, mptcp, port,
            peer: peer.map(|(last, port)| (v4(10, 0, 0, last), port)),
        };
        let rules = Rules::new(rules);
        let (found, read) = (rules.decide(&facts), rules.in_order(&facts));
        prop_assert_eq!(found.hit, read.hit);
        // Rules that cannot be found yet count as open whatever else they want.
        prop_assert!(found.open >= read.open && found.may_allow >= read.may_allow);
        if facts.port.is_some() && facts.peer.is_some() {
            prop_assert!(!found.open && !found.may_allow);
        }
    }
}
