// SPDX-License-Identifier: GPL-2.0

//! A second run for entries that failed (`lab test --again`): each alone, in a boot of its own. What
//! passes then is flaky: it is named and counted, and does not fail the run. What a second run cannot
//! excuse, a kernel report, a guest that died or a boot that could not be searched to its end, is
//! [`End::Grave`]. `selftests/flaky.md` lists what has been excused once; that is excused no more.

use super::plan::{Kind, Test};
use crate::cache;
use crate::guest::cluster::prune;
use crate::ktap::report::{failures, render};
use crate::ktap::Point;
use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Flaky entries that a run is excused.
const EXCUSED: usize = 2;

/// Entries run again; where more have failed the run has failed whatever the second runs say.
const MOST_AGAIN: usize = 8;

/// Logs kept of this checkout's runs, two of each entry.
const LOGS: usize = 60;

/// Lines of a log shown in the stream.
const LINES_SHOWN: usize = 40;

/// Verdict on a run of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No point failed.
    Passed,
    /// One did.
    Failed,
    /// One did, and not by chance.
    Grave,
}

/// A run of an entry.
pub struct Ended {
    /// Its result.
    pub point: Point,
    /// Verdict on the run.
    pub end: End,
    /// Time that it took.
    pub time: Duration,
    /// Output of its programs.
    pub output: Vec<String>,
    /// Where its guests' consoles are logged.
    pub consoles: Vec<PathBuf>,
}

impl Ended {
    /// Takes failed checks of its boot as its own.
    pub fn of_its_boot(&mut self, wrong: Vec<Point>) {
        if !wrong.is_empty() {
            self.point.ok = false;
            self.point.points.extend(wrong);
            self.end = End::Grave;
        }
    }

    /// A run that did not come about.
    pub fn not_at_all(name: &str, why: String) -> Ended {
        Ended {
            point: Point::fail(name, [why]),
            end: End::Grave,
            time: Duration::ZERO,
            output: Vec::new(),
            consoles: Vec::new(),
        }
    }

    /// Writes all there is to know into a file of its own: where that is.
    fn keep(&self, which: &str) -> String {
        let path = self.write(which);
        path.map_or_else(
            |error| format!("not kept: {error:#}"),
            |path| path.display().to_string(),
        )
    }

    fn write(&self, which: &str) -> Result<PathBuf> {
        let directory = cache::work().join("flaky");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        prune(&directory, LOGS);
        let name = self.point.name.replace('/', "_");
        let path = directory.join(format!("{name}.{}.{which}.log", std::process::id()));
        let mut text = format!("{}# output\n", render(&self.point));
        for line in &self.output {
            let _ = writeln!(text, "{line}");
        }
        for console in &self.consoles {
            let said = fs::read(console).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            let _ = writeln!(text, "# console {}\n{said}", console.display());
        }
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// An entry that failed once.
pub struct Held {
    /// The kernel.
    pub kind: Kind,
    /// The entry.
    pub test: Test,
    first: Ended,
    log: String,
}

/// Entries that wait until all others have run.
#[derive(Default)]
pub struct Waiting(Mutex<Vec<Held>>);

impl Waiting {
    /// Adds one, and keeps its log.
    pub fn push(&self, kind: Kind, test: &Test, mut first: Ended) {
        let log = first.keep("first");
        first.output = Vec::new();
        let held = Held {
            kind,
            test: test.clone(),
            first,
            log,
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(held);
    }

    /// All of them.
    pub fn into_inner(self) -> Vec<Held> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entries that `selftests/flaky.md` lists.
pub fn known() -> Result<BTreeSet<String>> {
    let path = cache::top().join("selftests/flaky.md");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    listed(&text).with_context(|| path.display().to_string())
}

/// The first column of a table, whose names are in backquotes.
fn listed(text: &str) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for row in text
        .lines()
        .filter_map(|line| line.trim().strip_prefix('|'))
    {
        let cell = row.split('|').next().unwrap_or_default().trim();
        let name = cell
            .strip_prefix('`')
            .and_then(|rest| rest.strip_suffix('`'));
        match name {
            Some(name) => drop(names.insert(name.to_owned())),
            None if cell == "entry" || cell.starts_with("---") => {}
            None => bail!("'{cell}': the first column is an entry's full name in backquotes"),
        }
    }
    Ok(names)
}

/// The numbers of those that are run again.
pub fn chosen(held: &[Held], known: &BTreeSet<String>) -> Vec<usize> {
    let names: Vec<&str> = held
        .iter()
        .map(|held| held.first.point.name.as_str())
        .collect();
    choose(&names, known)
}

fn choose(names: &[&str], known: &BTreeSet<String>) -> Vec<usize> {
    if names.len() > MOST_AGAIN {
        return Vec::new();
    }
    let new = |index: &usize| names.get(*index).is_some_and(|name| !known.contains(*name));
    (0..names.len()).filter(new).collect()
}

/// Why each entry has failed in the end; `None` for what is excused. `ends` are the second runs'.
fn judge(names: &[&str], ends: &[Option<End>], known: &BTreeSet<String>) -> Vec<Option<String>> {
    let passed = ends.iter().filter(|end| **end == Some(End::Passed)).count();
    let why = |(name, end): (&&str, &Option<End>)| match end {
        _ if known.contains(*name) => {
            Some("selftests/flaky.md has it: excused once already".into())
        }
        None => Some(format!(
            "not run again: more than {MOST_AGAIN} entries failed"
        )),
        Some(End::Failed) => Some("failed again, alone in a boot of its own".into()),
        Some(End::Grave) => {
            Some("run again, alone in a boot of its own: worse than a failed point".into())
        }
        Some(End::Passed) if passed > EXCUSED => Some(format!(
            "flaky, and so are others: {passed}, more than {EXCUSED}"
        )),
        Some(End::Passed) => None,
    };
    names.iter().zip(ends).map(why).collect()
}

/// Judges a second run in view of the first: a point that failed and is skipped now has not passed.
fn seen(first: &Point, second: &Ended) -> End {
    let failed: BTreeSet<String> = failures(first).into_iter().map(|(name, _)| name).collect();
    let skips = skips(&second.point);
    let skipped = skips.iter().any(|name| failed.contains(name));
    match second.end {
        End::Passed if skipped || second.point.skip.is_some() => End::Failed,
        end => end,
    }
}

/// The full names of what was skipped.
fn skips(point: &Point) -> Vec<String> {
    let mut all: Vec<String> = point
        .points
        .iter()
        .flat_map(skips)
        .map(|name| format!("{}/{name}", point.name))
        .collect();
    if point.skip.is_some() {
        all.push(point.name.clone());
    }
    all
}

/// The points that failed, without the entry's name.
fn names(point: &Point) -> String {
    let short = |(path, _): (String, _)| match path.strip_prefix(&format!("{}/", point.name)) {
        Some(rest) => rest.to_owned(),
        None => path,
    };
    let all: Vec<String> = failures(point).into_iter().map(short).collect();
    all.join(", ")
}

/// Results of the entries after their second runs.
#[derive(Default)]
pub struct Settled {
    /// Their results.
    pub points: Vec<Point>,
    /// Flaky entries, with remarks.
    pub flaky: Vec<(String, Vec<String>)>,
}

/// Judges entries by their second runs, the numbers of which are those of the entries.
pub fn settle(held: Vec<Held>, seconds: Vec<(usize, Ended)>, known: &BTreeSet<String>) -> Settled {
    let mut again: Vec<Option<Ended>> = held.iter().map(|_| None).collect();
    for (index, second) in seconds {
        if let Some(place) = again.get_mut(index) {
            *place = Some(second);
        }
    }
    let all: Vec<&str> = held
        .iter()
        .map(|held| held.first.point.name.as_str())
        .collect();
    let ends = held.iter().zip(&again);
    let ends = ends.map(|(held, again)| Some(seen(&held.first.point, again.as_ref()?)));
    let ends: Vec<Option<End>> = ends.collect();
    let verdicts = judge(&all, &ends, known);
    let mut settled = Settled::default();
    for (((held, again), end), verdict) in held.into_iter().zip(again).zip(ends).zip(verdicts) {
        let mut notes = vec![format!("first run: {}", held.log)];
        if let Some(again) = &again {
            notes.push(format!("second run: {}", again.keep("second")));
        }
        let first = held.first.point;
        if end == Some(End::Passed) {
            let mut notes = notes.clone();
            notes.extend(verdict.clone());
            notes.extend(excerpt(&first));
            settled
                .flaky
                .push((format!("{}: {}", first.name, names(&first)), notes));
        }
        let point = match (verdict, again) {
            (None, Some(again)) => {
                let mut point = again.point;
                point
                    .notes
                    .push(format!("FLAKY {}: {}", first.name, names(&first)));
                point.notes.extend(notes);
                point
            }
            (verdict, again) => {
                let mut point = first;
                if let Some(again) = again.filter(|again| again.end != End::Passed) {
                    point.notes.extend(excerpt(&again.point));
                }
                point.notes.extend(notes);
                point.notes.extend(verdict);
                point
            }
        };
        settled.points.push(point);
    }
    settled
}

/// Returns the failed points of an entry, and the end of their diagnostic lines.
fn excerpt(point: &Point) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, notes) in failures(point) {
        lines.push(format!("failed: {path}"));
        lines.extend(notes.iter().map(|note| format!("  {note}")));
    }
    let own = point.notes.iter().flat_map(|note| note.lines());
    lines.extend(own.map(str::to_owned));
    let before = lines.len().saturating_sub(LINES_SHOWN);
    lines.split_off(before)
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn ended(points: Vec<Point>, end: End) -> Ended {
        Ended {
            point: Point::of("uml.netns/t", points),
            end,
            time: Duration::ZERO,
            output: Vec::new(),
            consoles: Vec::new(),
        }
    }

    fn held(points: Vec<Point>) -> Held {
        let plan = "[[test]]\nname = \"t\"\nprogram = \"x\"\nkernels = [\"uml\"]\ntimeout = 1\n";
        Held {
            kind: Kind::Uml,
            test: plan::parse(plan).unwrap().remove(0),
            first: ended(points, End::Failed),
            log: "LOG".to_owned(),
        }
    }

    fn failed() -> Vec<Point> {
        vec![Point::pass("a"), Point::fail("b", ["why".to_owned()])]
    }

    #[test]
    fn what_fails_runs_again_unless_it_is_known_or_too_much() {
        assert_eq!(choose(&["a", "b", "c"], &set(&["b"])), [0, 2]);
        assert!(choose(&["a"; MOST_AGAIN + 1], &set(&[])).is_empty());
        assert_eq!(choose(&["a"; MOST_AGAIN], &set(&[])).len(), MOST_AGAIN);
    }

    #[test]
    fn two_are_excused_and_three_are_not() {
        let known = set(&["k"]);
        let passed = Some(End::Passed);
        let excused = |names: &[&str], ends: &[Option<End>]| -> Vec<bool> {
            let all = judge(names, ends, &known);
            all.iter().map(Option::is_none).collect()
        };
        assert_eq!(excused(&["a", "b"], &[passed, passed]), [true, true]);
        assert_eq!(excused(&["a", "b", "c"], &[passed; 3]), [false; 3]);
        // One that fails again, one with a kernel report, and one that is known excuse no other, nor harm it.
        let ends = [Some(End::Failed), Some(End::Grave), None, passed];
        assert_eq!(
            excused(&["a", "b", "k", "c"], &ends),
            [false, false, false, true]
        );
        assert_eq!(excused(&["k"], &[passed]), [false]);
        assert_eq!(excused(&["a"], &[None]), [false]);
    }

    #[test]
    fn a_skip_and_what_the_boot_finds_excuse_nothing() {
        let first = Point::of("uml.netns/t", failed());
        let second = |b: Point| ended(vec![Point::pass("a"), b], End::Passed);
        assert_eq!(seen(&first, &second(Point::pass("b"))), End::Passed);
        assert_eq!(seen(&first, &second(Point::skip("b", "x"))), End::Failed);
        let all = ended(vec![Point::skip("c", "x")], End::Passed);
        assert_eq!(seen(&first, &all), End::Failed);

        let mut boot = second(Point::pass("b"));
        boot.of_its_boot(Vec::new());
        assert_eq!(boot.end, End::Passed);
        boot.of_its_boot(vec![Point::fail("kmemleak", Vec::new())]);
        assert_eq!(seen(&first, &boot), End::Grave);
        assert!(!boot.point.ok);
    }

    #[test]
    fn what_is_flaky_passes_and_is_told() {
        let known = set(&[]);
        let good = ended(vec![Point::pass("a"), Point::pass("b")], End::Passed);
        let settled = settle(vec![held(failed())], vec![(0, good)], &known);
        assert!(settled.points[0].ok);
        let told = settled.points[0].notes.iter();
        assert!(told.clone().any(|note| note == "FLAKY uml.netns/t: b"));
        assert_eq!(settled.flaky[0].0, "uml.netns/t: b");
        assert_eq!(settled.flaky[0].1[0], "first run: LOG");
        assert!(settled.flaky[0].1.contains(&"  why".to_owned()));
    }

    #[test]
    fn what_is_known_or_fails_again_keeps_its_first_result() {
        let known = set(&["uml.netns/t"]);
        let settled = settle(vec![held(failed())], Vec::new(), &known);
        assert!(!settled.points[0].ok && settled.flaky.is_empty());
        assert_eq!(settled.points[0].points, failed());

        let bad = ended(failed(), End::Failed);
        let settled = settle(vec![held(failed())], vec![(0, bad)], &set(&[]));
        assert!(!settled.points[0].ok && settled.flaky.is_empty());
    }

    #[test]
    fn three_that_are_flaky_are_told_and_fail() {
        let good = |index| (index, ended(vec![Point::pass("b")], End::Passed));
        let three = vec![held(failed()), held(failed()), held(failed())];
        let settled = settle(three, (0..3).map(good).collect(), &set(&[]));
        assert_eq!(settled.flaky.len(), 3);
        assert!(settled.points.iter().all(|point| !point.ok));
    }

    #[test]
    fn the_table_is_read() {
        let text = "# x\n\n| entry | cause |\n| --- | --- |\n| `uml.netns/a` | b |\n";
        assert_eq!(listed(text).unwrap(), set(&["uml.netns/a"]));
        assert!(listed("| uml.netns/a | b |").is_err());
    }

    #[test]
    fn the_table_of_this_checkout_names_entries_of_the_plan() {
        if !cache::top().join("selftests/flaky.md").exists() {
            return;
        }
        let plan = plan::read().unwrap();
        let names = |test: &Test| Kind::ALL.map(|kind| test.full_name(kind));
        let all: BTreeSet<String> = plan.iter().flat_map(names).collect();
        let unknown: Vec<String> = known().unwrap().difference(&all).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
