// SPDX-License-Identifier: GPL-2.0

//! A namespace's rules, and what they say about a socket.
//!
//! A change makes new rules beside the old ones and puts them in their place at once. A look-up holds the
//! rules that it has found for as long as it takes.

use kapi::{
    net::{
        netns::Net,
        process::{self, Process, Wanted}, //
    },
    sys::word::Count, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use smc_proto::policy::{self, Entry, Facts, Index, Outcome, Table, Verdict};

/// Most rules of a namespace.
pub(crate) const MOST: usize = 4096;

/// Most steps that the patterns of all rules may take together: connections are judged by a worker, whose time nobody
/// is charged for. About a millisecond.
const STEPS: usize = 1 << 20;

/// Longest text of a condition, in bytes.
pub(crate) const TEXT: usize = 255;

/// A text of a rule.
#[derive(Clone)]
pub(crate) struct Text(Arc<KVec<u8>>);

impl Text {
    /// Copies a text.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self> {
        let mut text = KVec::with_capacity(bytes.len(), GFP_KERNEL_ACCOUNT)?;
        text.extend_from_slice(bytes, GFP_KERNEL_ACCOUNT)?;
        Ok(Self(Arc::new(text, GFP_KERNEL_ACCOUNT)?))
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

pub(crate) type Rule = policy::Rule<Text>;

/// What a rule has beside its conditions.
#[derive(Clone)]
pub(crate) struct Label {
    /// Its number, which no other rule of the namespace ever has.
    pub(crate) id: u32,
    /// Number of decisions that it has made.
    pub(crate) hits: Arc<Atomic<u64>>,
}

/// Rules that do not change.
pub(crate) struct RuleSet {
    rules: KVVec<Rule>,
    labels: KVVec<Label>,
    entries: KVVec<Entry>,
    index: Index,
    wanted: Wanted,
    /// Whether some ask what was learnt.
    pub(crate) learns: bool,
}

impl RuleSet {
    fn new(rules: KVVec<Rule>, labels: KVVec<Label>) -> Result<Self> {
        let steps = rules.iter().map(Rule::cost);
        if steps.fold(0, usize::saturating_add) > STEPS {
            return Err(E2BIG);
        }
        let mut index = Index::new();
        let mut entries = KVVec::with_capacity(rules.len(), GFP_KERNEL_ACCOUNT)?;
        for (number, rule) in (0..).zip(&rules) {
            entries.push(index.add(number, rule), GFP_KERNEL_ACCOUNT)?;
        }
        policy::sort(&mut entries);
        let wanted = Wanted {
            exe: rules.iter().any(|rule| rule.exe.is_some()),
            cgroup: rules.iter().any(|rule| rule.cgroup.is_some()),
        };
        let learns = rules.iter().any(|rule| rule.verdict == Verdict::Auto);
        Ok(Self {
            rules,
            labels,
            entries,
            index,
            wanted,
            learns,
        })
    }

    /// Returns rule number `at` of the order.
    pub(crate) fn at(&self, at: usize) -> Option<(&Rule, &Label)> {
        self.rules.get(at).zip(self.labels.get(at))
    }

    /// Returns the facts about the current task that these rules ask for.
    #[inline]
    pub(crate) fn current(&self, net: &Net) -> Process {
        Process::current(net, self.wanted)
    }

    /// Looks for the first rule that matches.
    pub(crate) fn decide(&self, facts: &Facts<'_>) -> Outcome {
        Table {
            rules: &self.rules,
            entries: &self.entries,
            index: &self.index,
        }
        .decide(facts)
    }

    /// Returns whether a socket with this outcome may be SMC's, and which rule says so; `otherwise` is what
    /// holds without a rule. Counts the decision.
    pub(crate) fn verdict(&self, outcome: &Outcome, otherwise: bool) -> (bool, Option<&Label>) {
        let Some(hit) = outcome.hit else {
            return (otherwise, None);
        };
        let label = self.labels.get(hit.rule as usize);
        if let Some(label) = label {
            label.hits.fetch_add(1, Relaxed);
        }
        let allowed = match hit.verdict {
            Verdict::Allow | Verdict::Auto => true,
            Verdict::Deny => false,
            Verdict::Share(part) => process::random_below(100) < u32::from(part),
        };
        (allowed, label)
    }
}

/// Returns what is known about a socket of a process.
pub(crate) fn facts(process: &Process) -> Facts<'_> {
    Facts {
        exe: process.exe.get(),
        comm: process.comm.get(),
        cgroup: process.cgroup.get(),
        uid: process.uid,
        mptcp: None,
        port: None,
        peer: None,
    }
}

/// The rules of a namespace, in their order.
#[pin_data]
pub(crate) struct Rules {
    #[pin]
    current: SpinLock<Option<Arc<RuleSet>>>,
    /// Number of changes.
    changes: Count,
    /// Held for a change; the number of the next rule.
    #[pin]
    changing: Mutex<u32>,
}

impl Rules {
    /// Creates it, without any rules.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            current <- new_spinlock!(None, "rsmc::Rules::current"),
            changes: Count::new(0),
            changing <- new_mutex!(1, "rsmc::Rules::changing"),
        })
    }

    /// Returns the rules as they are now; `None` without any. Does not sleep.
    pub(crate) fn get(&self) -> Option<Arc<RuleSet>> {
        self.current.lock().clone()
    }

    /// Returns a number that is another one after each change of the rules. What was decided by rules that were read
    /// later than the number holds as long as it does not change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.acquire()
    }

    /// Replaces all rules at once.
    ///
    /// # Errors
    ///
    /// `E2BIG` for more than [`MOST`] of them, or for patterns that take more than [`STEPS`] steps; `ENOMEM`. The rules are as before then.
    pub(crate) fn replace(&self, rules: KVVec<Rule>) -> Result {
        let mut next = self.changing.lock();
        let mut labels = KVVec::with_capacity(rules.len(), GFP_KERNEL_ACCOUNT)?;
        for _ in &rules {
            labels.push(label(&mut next)?, GFP_KERNEL_ACCOUNT)?;
        }
        self.put(rules, labels)
    }

    /// Adds a rule before that number `position` of the order, or at the end.
    ///
    /// # Errors
    ///
    /// As [`Rules::replace`].
    pub(crate) fn add(&self, rule: Rule, position: usize) -> Result {
        let mut next = self.changing.lock();
        let (mut rules, mut labels) = self.copies(1)?;
        let position = position.min(rules.len());
        let label = label(&mut next)?;
        rules.push(rule, GFP_KERNEL_ACCOUNT)?;
        labels.push(label, GFP_KERNEL_ACCOUNT)?;
        if let (Some(rules), Some(labels)) = (rules.get_mut(position..), labels.get_mut(position..))
        {
            rules.rotate_right(1);
            labels.rotate_right(1);
        }
        self.put(rules, labels)
    }

    /// Removes the rule with this number.
    ///
    /// # Errors
    ///
    /// `ENOENT` when there is none; `ENOMEM`.
    pub(crate) fn remove(&self, id: u32) -> Result {
        let _changing = self.changing.lock();
        let (mut rules, mut labels) = self.copies(0)?;
        let at = labels
            .iter()
            .position(|label| label.id == id)
            .ok_or(ENOENT)?;
        rules.remove(at).map_err(|_| EINVAL)?;
        labels.remove(at).map_err(|_| EINVAL)?;
        self.put(rules, labels)
    }

    /// Removes all rules.
    pub(crate) fn flush(&self) {
        let _changing = self.changing.lock();
        self.exchange(None);
    }

    fn exchange(&self, new: Option<Arc<RuleSet>>) {
        let old = core::mem::replace(&mut *self.current.lock(), new);
        // A reader that sees the new number also sees the new rules.
        self.changes.release(self.changes.get().wrapping_add(1));
        // Outside of the lock.
        drop(old);
    }

    /// Returns copies of all rules, with room for `more` new ones.
    fn copies(&self, more: usize) -> Result<(KVVec<Rule>, KVVec<Label>)> {
        let now = self.get();
        let len = now.as_ref().map_or(0, |now| now.rules.len());
        let room = len.saturating_add(more);
        let mut rules = KVVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?;
        let mut labels = KVVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?;
        if let Some(now) = now {
            rules.extend_from_slice(&now.rules, GFP_KERNEL_ACCOUNT)?;
            labels.extend_from_slice(&now.labels, GFP_KERNEL_ACCOUNT)?;
        }
        Ok((rules, labels))
    }

    fn put(&self, rules: KVVec<Rule>, labels: KVVec<Label>) -> Result {
        if rules.len() > MOST {
            return Err(E2BIG);
        }
        let new = match rules.is_empty() {
            true => None,
            false => Some(Arc::new(RuleSet::new(rules, labels)?, GFP_KERNEL_ACCOUNT)?),
        };
        self.exchange(new);
        Ok(())
    }
}

fn label(next: &mut u32) -> Result<Label> {
    let id = *next;
    *next = id.wrapping_add(1).max(1);
    Ok(Label {
        id,
        hits: Arc::new(Atomic::new(0), GFP_KERNEL_ACCOUNT)?,
    })
}
