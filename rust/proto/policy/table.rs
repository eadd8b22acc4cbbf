// SPDX-License-Identifier: GPL-2.0

//! Rules with an index, so that hundreds of them cost little more than one.
//!
//! Each rule stands in the index once, by its most telling condition. A look-up asks for the values that
//! the socket has, and compares only the rules it finds there, and those without such a condition.

use super::{
    pattern::{is_literal, Key},
    rule::{Facts, Match, Rule, Verdict},
};

/// Kinds of keys.
mod kind {
    pub(super) const EXE: u8 = 1;
    pub(super) const CGROUP: u8 = 2;
    pub(super) const COMM: u8 = 3;
    pub(super) const UID: u8 = 4;
    pub(super) const PORT: u8 = 5;
    pub(super) const PEER: u8 = 6;
}

/// Key of rules that no value leads to; the first in the order.
const ANY: u64 = 0;
/// Number of a rule that there is not.
const NONE: u32 = u32::MAX;

/// Words of [`Index::keys`].
const FILTER: usize = 64;

/// A place in the index. Entries are sorted, by key and then by the number of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    key: u64,
    rule: u32,
}

/// The lowest numbers of rules that a look-up cannot find before a fact is known.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// Of all.
    any: u32,
    /// Of those that allow.
    allows: u32,
}

impl Late {
    const NONE: Self = Self {
        any: NONE,
        allows: NONE,
    };

    fn note(&mut self, rule: u32, verdict: Verdict) {
        self.any = self.any.min(rule);
        if verdict.allows() {
            self.allows = self.allows.min(rule);
        }
    }
}

/// What there is to know of the rules as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// A bit for some part of each key: most keys that no rule has are known by it.
    keys: [u64; FILTER],
    /// The lengths of prefixes by which rules are found, a bit each.
    lengths: [u64; 3],
    ports: Late,
    peers: Late,
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// That of no rules.
    pub const fn new() -> Self {
        Self {
            keys: [0; FILTER],
            lengths: [0; 3],
            ports: Late::NONE,
            peers: Late::NONE,
        }
    }

    /// Takes note of rule number `number`, and returns its place. Rules come in their order.
    pub fn add<S: AsRef<[u8]>>(&mut self, number: u32, rule: &Rule<S>) -> Entry {
        let literal =
            |text: &Option<S>| text.as_ref().is_some_and(|text| is_literal(text.as_ref()));
        let bytes = |text: &Option<S>, kind| {
            Key::of(kind)
                .and(text.as_ref().map_or(&[][..], |text| text.as_ref()))
                .number()
        };
        let key = if literal(&rule.exe) {
            bytes(&rule.exe, kind::EXE)
        } else if let Some(cgroup) = &rule.cgroup {
            let path = cgroup.as_ref();
            let path = path.strip_suffix(b"/").unwrap_or(path);
            Key::of(kind::CGROUP).and(path).number()
        } else if literal(&rule.comm) {
            bytes(&rule.comm, kind::COMM)
        } else if let Some(uid) = rule.uid {
            Key::of(kind::UID).and(&uid.to_le_bytes()).number()
        } else if let Some(port) = rule.port.and_then(|port| port.single()) {
            self.ports.note(number, rule.verdict);
            Key::of(kind::PORT).and(&port.to_le_bytes()).number()
        } else if let Some(peer) = rule.peer {
            self.peers.note(number, rule.verdict);
            let (word, bit) = place(peer.length());
            if let Some(word) = self.lengths.get_mut(word) {
                *word |= bit;
            }
            peer_key(peer.length(), &peer.address())
        } else {
            ANY
        };
        let (word, bit) = filter(key);
        if let Some(word) = self.keys.get_mut(word) {
            *word |= bit;
        }
        Entry { key, rule: number }
    }

    /// Returns false only if no rule has this key.
    fn may_have(&self, key: u64) -> bool {
        let (word, bit) = filter(key);
        self.keys.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// The bit of a key in [`Index::keys`].
fn filter(key: u64) -> (usize, u64) {
    ((key >> 58) as usize, 1u64 << ((key >> 52) & 63))
}

/// Sorts the places that [`Index::add`] has given.
///
/// A heap sort: that of `core` brings panics along.
pub fn sort(entries: &mut [Entry]) {
    let mut start = entries.len() / 2;
    let mut end = entries.len();
    while end > 1 {
        if start > 0 {
            start = start.saturating_sub(1);
        } else {
            end = end.saturating_sub(1);
            swap(entries, 0, end);
        }
        sift(entries.get_mut(..end).unwrap_or(&mut []), start);
    }
}

/// Exchanges two entries; does nothing if there are not both.
fn swap(entries: &mut [Entry], a: usize, b: usize) {
    if let (Some(one), Some(other)) = (entries.get(a).copied(), entries.get(b).copied()) {
        if let Some(place) = entries.get_mut(a) {
            *place = other;
        }
        if let Some(place) = entries.get_mut(b) {
            *place = one;
        }
    }
}

/// Lets the entry at `root` sink until none below it is greater.
fn sift(heap: &mut [Entry], mut root: usize) {
    loop {
        let left = root.saturating_mul(2).saturating_add(1);
        let right = left.saturating_add(1);
        let child = if heap.get(left) < heap.get(right) {
            right
        } else {
            left
        };
        if heap.get(root) >= heap.get(child) {
            return;
        }
        swap(heap, root, child);
        root = child;
    }
}

/// The bit of a length in [`Index::lengths`].
fn place(length: u8) -> (usize, u64) {
    (usize::from(length / 64), 1u64 << (length % 64))
}

fn peer_key(length: u8, network: &[u8; 16]) -> u64 {
    Key::of(kind::PEER).with(length).and(network).number()
}

/// A rule that has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its number.
    pub rule: u32,
    /// What it says.
    pub verdict: Verdict,
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The first rule that matches.
    pub hit: Option<Hit>,
    /// Whether a rule before that one may turn out to match.
    pub open: bool,
    /// Whether such a rule allows.
    pub may_allow: bool,
}

/// Rules in their order, with their index.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a, S> {
    /// The rules.
    pub rules: &'a [Rule<S>],
    /// An entry for each, sorted.
    pub entries: &'a [Entry],
    /// What [`Index::add`] has collected.
    pub index: &'a Index,
}

/// State of a look-up.
struct Search {
    hit: Option<Hit>,
    open: Late,
}

impl Search {
    /// The number below which rules still matter.
    fn limit(&self) -> u32 {
        self.hit.map_or(NONE, |hit| hit.rule)
    }
}

impl<S: AsRef<[u8]>> Table<'_, S> {
    /// Looks for the first rule that matches.
    pub fn decide(&self, facts: &Facts<'_>) -> Outcome {
        let mut search = Search {
            hit: None,
            open: Late::NONE,
        };
        self.visit(ANY, facts, &mut search);
        if !facts.exe.is_empty() {
            self.visit(
                Key::of(kind::EXE).and(facts.exe).number(),
                facts,
                &mut search,
            );
        }
        self.visit_cgroups(facts, &mut search);
        self.visit(
            Key::of(kind::COMM).and(facts.comm).number(),
            facts,
            &mut search,
        );
        let uid = Key::of(kind::UID).and(&facts.uid.to_le_bytes());
        self.visit(uid.number(), facts, &mut search);
        match facts.port {
            Some(port) => {
                let port = Key::of(kind::PORT).and(&port.to_le_bytes());
                self.visit(port.number(), facts, &mut search);
            }
            None => postpone(&mut search, self.index.ports),
        }
        match facts.peer {
            Some((address, _)) => self.visit_networks(address, facts, &mut search),
            None => postpone(&mut search, self.index.peers),
        }
        let limit = search.limit();
        Outcome {
            hit: search.hit,
            open: search.open.any < limit,
            may_allow: search.open.allows < limit,
        }
    }

    /// Compares the rules of a key, as far as they come before the one that is found.
    fn visit(&self, key: u64, facts: &Facts<'_>, search: &mut Search) {
        if !self.index.may_have(key) {
            return;
        }
        let first = match key {
            ANY => 0,
            _ => self.entries.partition_point(|entry| entry.key < key),
        };
        let run = self.entries.get(first..).unwrap_or(&[]).iter();
        for entry in run.take_while(|entry| entry.key == key) {
            if entry.rule >= search.limit() {
                return;
            }
            let Some(rule) = self.rules.get(entry.rule as usize) else {
                return;
            };
            match rule.judge(facts) {
                Match::No => (),
                Match::Open => search.open.note(entry.rule, rule.verdict),
                Match::Yes => {
                    search.hit = Some(Hit {
                        rule: entry.rule,
                        verdict: rule.verdict,
                    });
                    return;
                }
            }
        }
    }

    /// Asks for the cgroup and all above it.
    fn visit_cgroups(&self, facts: &Facts<'_>, search: &mut Search) {
        if facts.cgroup.is_empty() {
            return;
        }
        let mut key = Key::of(kind::CGROUP);
        for byte in facts.cgroup {
            if *byte == b'/' {
                self.visit(key.number(), facts, search);
            }
            key = key.with(*byte);
        }
        if !facts.cgroup.ends_with(b"/") {
            self.visit(key.number(), facts, search);
        }
    }

    /// Asks for the networks that an address may be in.
    fn visit_networks(&self, address: [u8; 16], facts: &Facts<'_>, search: &mut Search) {
        for (number, word) in (0u8..).zip(self.index.lengths) {
            let mut left = word;
            while left != 0 {
                let bit = left.trailing_zeros() as u8;
                left &= left.wrapping_sub(1);
                let length = number.wrapping_mul(64).wrapping_add(bit);
                if let Some(network) = super::Network::new(address, length) {
                    self.visit(peer_key(length, &network.address()), facts, search);
                }
            }
        }
    }
}

fn postpone(search: &mut Search, late: Late) {
    search.open.any = search.open.any.min(late.any);
    search.open.allows = search.open.allows.min(late.allows);
}
