// SPDX-License-Identifier: GPL-2.0

//! Which tests share a boot, and which boot starts when.
//!
//! Tests of one kernel and topology could share one boot, but a list that
//! takes as long as everything else together would keep one processor busy
//! and the other idle. So a long list is spread over several boots, and the
//! longest of all boots start first.

use super::plan::{Kind, Test};
use super::times::Times;
use crate::guest::cluster::Topology;
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Condvar, Mutex, PoisonError};

/// Tests that share a boot.
pub struct Group {
    /// The kernel.
    pub kind: Kind,
    /// Layout of its guests.
    pub topology: Topology,
    /// The test in which the boot's own checks are reported.
    pub session: String,
    /// In the order of the plan.
    pub tests: Vec<Test>,
    /// That of each of them.
    rank: Rank,
    /// Seconds it will take.
    seconds: f64,
}

impl Group {
    /// A boot for one test, the `number`th of those.
    pub fn alone(kind: Kind, test: &Test, number: usize, times: &Times) -> Group {
        Group {
            kind,
            topology: test.topology,
            session: format!("again.{number}"),
            tests: vec![test.clone()],
            rank: Rank::First,
            seconds: times.of(kind, test),
        }
    }

    /// What the kernel's command line has besides: the same for all tests of a boot.
    pub fn cmdline(&self) -> &[String] {
        self.tests.first().map_or(&[], |test| &test.cmdline)
    }

    /// Tells whether it is a guest of QEMU, of which there is one at a time.
    fn is_qemu(&self) -> bool {
        !matches!(self.kind, Kind::Uml | Kind::UmlDebug)
    }

    /// Processors it keeps busy, in tenths, seen over a whole list. A guest of QEMU counts for more:
    /// its two virtual CPUs spin for each other when one has to wait, so that two such guests on
    /// two processors take a quarter longer than one after the other.
    fn load(&self) -> u32 {
        let one = match self.kind {
            Kind::Uml => 5,
            Kind::UmlDebug => 6,
            // Two of them wait for each other as much as one for its second processor.
            _ => return QEMU,
        };
        match (self.topology, self.kind) {
            (Topology::Netns, _) => one,
            (Topology::Pair, Kind::UmlDebug) => DEBUG_PAIR,
            (Topology::Pair, _) => one * 4 / 3,
        }
    }
}

/// Value of [`Group::load`] for guests of QEMU.
const QEMU: u32 = 18;

/// Value of it for two slow user-mode guests: a processor of their own, for a device that waits a second
/// for its peer's acknowledgement gives up.
const DEBUG_PAIR: u32 = 19;

/// MiB of memory it may come to use.
fn memory(group: &Group) -> u64 {
    let one = match group.kind.like() {
        Kind::Uml | Kind::Debian => 1536,
        _ => 3072,
    };
    match group.topology {
        Topology::Netns => one,
        Topology::Pair => 2 * one,
    }
}

/// MiB of memory this machine has to give.
fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut lines = text.lines();
    let kib = lines
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib / 1024)
}

/// Seconds of tests per boot, if they can be spread. One with kmemleak is searched for leaks at its end
/// for ten seconds. Guests of QEMU run one after the other: more of them are only more boots, which take
/// half a minute on a busy machine.
fn portion(kind: Kind) -> f64 {
    match kind.like() {
        Kind::Uml => 100.0,
        Kind::UmlDebug => 200.0,
        _ => 1200.0,
    }
}

/// What of a list comes first, as what is last may have to be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Of the short list, or there is time for all.
    First,
    /// What only the whole list has.
    Whole,
    /// What it has on kernels that look for mistakes, which repeat what others show.
    Debug,
}

impl Rank {
    const ALL: [Rank; 3] = [Rank::First, Rank::Whole, Rank::Debug];

    /// That of a test, where the time is limited.
    pub fn of(kind: Kind, test: &Test) -> Rank {
        match kind.like() {
            _ if test.is_short_for(kind) => Rank::First,
            Kind::Uml | Kind::Debian => Rank::Whole,
            _ => Rank::Debug,
        }
    }

    /// Ends the name of the test in which such a boot's own checks are reported.
    fn suffix(self) -> &'static str {
        match self {
            Rank::First => "",
            Rank::Whole | Rank::Debug => ".whole",
        }
    }
}

/// Makes groups of what is `wanted`, by rank, and the longest first.
pub fn make(
    tests: &[Test],
    times: &Times,
    wanted: impl Fn(Kind, &Test) -> bool,
    rank: impl Fn(Kind, &Test) -> Rank,
) -> Vec<Group> {
    let boots: BTreeSet<&str> = tests.iter().map(|test| test.boot.as_str()).collect();
    let mut groups = Vec::new();
    for topology in [Topology::Netns, Topology::Pair] {
        for boot in &boots {
            let kinds = Kind::ALL.into_iter();
            for (kind, of) in kinds.flat_map(|kind| Rank::ALL.map(|of| (kind, of))) {
                let belongs = |test: &&Test| {
                    let here = test.topology == topology && test.boot == *boot;
                    here && wanted(kind, test) && rank(kind, test) == of
                };
                let all: Vec<&Test> = tests.iter().filter(belongs).collect();
                let dot = if boot.is_empty() { "" } else { "." };
                let name = format!("session{dot}{boot}{}", of.suffix());
                let shares = spread(&all, kind, times);
                let several = shares.len() > 1;
                for (number, (seconds, tests)) in (1..).zip(shares) {
                    groups.push(Group {
                        kind,
                        topology,
                        session: match several {
                            true => format!("{name}.{number}"),
                            false => name.clone(),
                        },
                        tests,
                        rank: of,
                        seconds,
                    });
                }
            }
        }
    }
    groups.sort_by(|a, b| (a.rank.cmp(&b.rank)).then(b.seconds.total_cmp(&a.seconds)));
    groups
}

/// Spreads a list evenly over as many boots as it deserves.
fn spread(tests: &[&Test], kind: Kind, times: &Times) -> Vec<(f64, Vec<Test>)> {
    let seconds: Vec<f64> = tests.iter().map(|test| times.of(kind, test)).collect();
    let total: f64 = seconds.iter().sum();
    let mut shares = vec![(0.0_f64, Vec::new())];
    while portion(kind) * (shares.len() as f64) < total {
        shares.push((0.0, Vec::new()));
    }
    let mut order: Vec<usize> = (0..tests.len()).collect();
    order.sort_by(|a, b| seconds[*b].total_cmp(&seconds[*a]));
    for index in order {
        let least = shares.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((sum, share)) = least {
            *sum += seconds[index];
            share.push(index);
        }
    }
    let list = |mut share: Vec<usize>| {
        share.sort_unstable();
        share.iter().map(|index| tests[*index].clone()).collect()
    };
    shares
        .into_iter()
        .filter(|(_, share)| !share.is_empty())
        .map(|(sum, share)| (sum, list(share)))
        .collect()
}

/// Load per processor, in tenths: guests wait for each other and for timeouts, so more than one.
const ROOM: u32 = 19;

/// Hands out groups, the first that the machine still has room for.
pub struct Queue<'a> {
    state: Mutex<State<'a>>,
    ended: Condvar,
    limits: Limits,
}

struct Limits {
    /// Load the machine has room for.
    room: u32,
    /// Boots at a time.
    most: usize,
    /// MiB of memory there are.
    memory: u64,
}

struct State<'a> {
    waiting: Vec<&'a Group>,
    running: usize,
    /// Guests of QEMU among them.
    qemu: usize,
    load: u32,
    memory: u64,
}

impl State<'_> {
    /// Which group starts now. The guests of QEMU, one after the other, take longest: the next one
    /// starts as soon as the last has ended, and the others share what is left.
    fn choose(&self, limits: &Limits) -> Option<usize> {
        let free = |group: &Group| {
            self.running == 0
                || (self.running < limits.most && self.memory + memory(group) <= limits.memory)
        };
        let next = self.waiting.iter().position(|group| group.is_qemu());
        let next = next.filter(|_| self.qemu == 0);
        let mut room = limits.room;
        if let Some(at) = next {
            room = room.saturating_sub(QEMU);
            if self.load <= room && free(self.waiting[at]) {
                return Some(at);
            }
        }
        let fits = |group: &&Group| {
            let crowded = group.is_qemu() && self.qemu > 0 && limits.most == usize::MAX;
            let small = self.running == 0 || self.load.saturating_add(group.load()) <= room;
            !crowded && small && free(group)
        };
        self.waiting.iter().position(fits)
    }
}

impl<'a> Queue<'a> {
    /// A queue with a limit, or else one that keeps the processors busy.
    pub fn new(groups: &'a [Group], most: Option<usize>) -> Queue<'a> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let room = u32::try_from(processors).unwrap_or(1).saturating_mul(ROOM);
        Queue {
            state: Mutex::new(State {
                waiting: groups.iter().collect(),
                running: 0,
                qemu: 0,
                load: 0,
                memory: 0,
            }),
            ended: Condvar::new(),
            limits: Limits {
                room: if most.is_some() { u32::MAX } else { room },
                most: most.unwrap_or(usize::MAX).max(1),
                memory: available(),
            },
        }
    }

    /// The next group, once there is room; a group too large for the machine runs alone.
    pub fn next(&self) -> Option<&'a Group> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            if let Some(at) = state.choose(&self.limits) {
                let group = state.waiting.remove(at);
                state.running += 1;
                state.qemu += usize::from(group.is_qemu());
                state.load += group.load();
                state.memory += memory(group);
                return Some(group);
            }
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A group has ended.
    pub fn done(&self, group: &Group) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running -= 1;
        state.qemu -= usize::from(group.is_qemu());
        state.load -= group.load();
        state.memory -= memory(group);
        drop(state);
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    fn groups(plan: &str, times: &str, kind: Kind) -> Vec<Group> {
        let of_kind = |k, _: &Test| k == kind;
        let all = plan::parse(plan).unwrap();
        make(&all, &Times::parse(times), of_kind, |_, _| Rank::First)
    }

    fn plan(names: &[&str]) -> String {
        let entry = |name: &&str| {
            format!(
                "[[test]]\nname = \"{name}\"\nprogram = \"x\"\nkernels = [\"uml\"]\ntimeout = 8\n"
            )
        };
        names.iter().map(entry).collect()
    }

    #[test]
    fn short_lists_stay_together_and_long_ones_are_spread() {
        let all = groups(&plan(&["a", "b"]), "", Kind::Uml);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].session, "session");

        let times = "90 uml.netns/a\n60 uml.netns/b\n30 uml.netns/c\n10 uml.netns/d\n";
        let all = groups(&plan(&["a", "b", "c", "d"]), times, Kind::Uml);
        let names = |group: &Group| -> Vec<String> {
            group.tests.iter().map(|test| test.name.clone()).collect()
        };
        assert_eq!(all.len(), 2);
        assert_eq!(names(&all[0]), ["a", "d"]);
        assert_eq!(names(&all[1]), ["b", "c"]);
        assert_eq!(all[1].session, "session.2");
    }

    #[test]
    fn what_may_be_left_out_comes_last_in_boots_of_its_own() {
        let entry = |name: &str, thorough: &str| {
            format!(
                "[[test]]\nname = \"{name}\"\nprogram = \"x\"\ntimeout = 8\n\
                 kernels = [\"uml\", \"uml-debug\", \"lockdep\"]\nthorough = [{thorough}]\n"
            )
        };
        let text = entry("short", "") + &entry("more", "\"uml\", \"uml-debug\", \"lockdep\"");
        let all = plan::parse(&text).unwrap();
        let times = "90 uml.netns/more\n900 uml-debug.netns/more\n800 lockdep.netns/more\n\
                     7 uml.netns/short\n6 uml-debug.netns/short\n5 lockdep.netns/short\n";
        let listed = |kind, test: &Test| test.is_for(kind) && !kind.on_request();
        let groups = make(&all, &Times::parse(times), listed, Rank::of);
        let shown = |group: &Group| format!("{} {}", group.kind.name(), group.session);
        let shown: Vec<String> = groups.iter().map(shown).collect();
        assert_eq!(
            shown,
            [
                "uml session",
                "uml-debug session",
                "lockdep session",
                "uml session.whole",
                "uml-debug session.whole",
                "lockdep session.whole",
            ]
        );
    }

    #[test]
    fn guests_of_qemu_follow_each_other_and_others_share_the_rest() {
        let group = |kind, seconds| Group {
            kind,
            topology: Topology::Netns,
            session: String::new(),
            tests: Vec::new(),
            rank: Rank::First,
            seconds,
        };
        let groups = [
            group(Kind::Uml, 90.0),
            group(Kind::Debian, 50.0),
            group(Kind::Uml, 40.0),
            group(Kind::Uml, 30.0),
            group(Kind::Uml, 25.0),
            group(Kind::Lockdep, 20.0),
        ];
        let queue = Queue::new(&groups, None);
        let limits = Limits {
            room: 34,
            most: usize::MAX,
            memory: u64::MAX,
        };
        let mut state = queue.state.lock().unwrap();
        let start = |state: &mut State<'_>| {
            let at = state.choose(&limits)?;
            let group = state.waiting.remove(at);
            state.running += 1;
            state.qemu += usize::from(group.is_qemu());
            state.load += group.load();
            Some(group.seconds)
        };
        let first: Vec<_> = std::iter::from_fn(|| start(&mut state)).collect();
        assert_eq!(first, [50.0, 90.0, 40.0, 30.0]);
        // Debian's has ended: the next one of QEMU goes before the fourth of the others.
        state.running -= 1;
        state.qemu -= 1;
        state.load -= QEMU;
        assert_eq!(start(&mut state), Some(20.0));
        assert_eq!(start(&mut state), None);
    }

    #[test]
    fn a_queue_hands_out_the_longest_and_keeps_the_limit() {
        let times = "90 uml.netns/a\n95 uml.netns/b\n";
        let all = groups(&plan(&["a", "b"]), times, Kind::Uml);
        let queue = Queue::new(&all, Some(1));
        let first = queue.next().unwrap();
        assert_eq!(first.tests[0].name, "b");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| queue.next().map(|group| group.seconds));
            queue.done(first);
            assert_eq!(second.join().unwrap(), Some(90.0));
        });
        assert!(queue.next().is_none());
    }
}
