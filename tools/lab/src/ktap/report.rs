// SPDX-License-Identifier: GPL-2.0

//! The merged stream of a run: one top-level test after the other, its points
//! as subtests, and the closing line.

use super::Point;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Points counted at the leaves: a test with subtests counts as those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped.
    pub skipped: usize,
}

impl Counts {
    /// Adds a point and what is below it.
    pub fn add(&mut self, point: &Point) {
        if !point.points.is_empty() {
            let before = self.failed;
            for point in &point.points {
                self.add(point);
            }
            // A test that failed although its subtests did not.
            if !point.ok && self.failed == before {
                self.failed += 1;
            }
        } else if !point.ok {
            self.failed += 1;
        } else if point.skip.is_some() {
            self.skipped += 1;
        } else {
            self.passed += 1;
        }
    }
}

/// Writes the stream.
pub struct Report<W: Write> {
    out: W,
    counts: Counts,
    planned: usize,
    number: usize,
    /// The current test's name until its first subtest is written.
    heading: Option<String>,
    /// Subtests of the current test that are written already.
    streamed: usize,
    /// Failures, each with the end of its diagnostic lines.
    failures: Vec<(String, Vec<String>)>,
    /// Entries that passed only the second time, with remarks, if second runs were tried.
    flaky: Option<Vec<(String, Vec<String>)>>,
}

/// Failures that are listed again at the end.
const FAILURES_SHOWN: usize = 50;

/// Diagnostic lines of each.
const NOTES_SHOWN: usize = 8;

impl<W: Write> Report<W> {
    /// Begins a stream of `planned` tests.
    pub fn new(mut out: W, planned: usize) -> Self {
        let _ = writeln!(out, "KTAP version 1\n1..{planned}");
        Report {
            out,
            counts: Counts::default(),
            planned,
            number: 0,
            heading: None,
            streamed: 0,
            failures: Vec::new(),
            flaky: None,
        }
    }

    /// Announces a test; its points may then be streamed.
    pub fn begin(&mut self, name: &str) {
        self.heading = Some(name.to_owned());
        self.streamed = 0;
    }

    /// Writes a point of the current test as soon as it is known.
    pub fn stream(&mut self, point: &Point) {
        if let Some(name) = self.heading.take() {
            let _ = writeln!(self.out, "  KTAP version 1\n  # Subtest: {name}");
        }
        self.streamed += 1;
        write_point(&mut self.out, point, self.streamed, 2);
        let _ = self.out.flush();
    }

    /// Ends a test. Its first points are those streamed before, in that order.
    pub fn end(&mut self, test: &Point) {
        for point in test.points.iter().skip(self.streamed) {
            self.stream(point);
        }
        if !test.points.is_empty() {
            let _ = writeln!(self.out, "  1..{}", self.streamed);
        }
        self.streamed = 0;
        self.number += 1;
        self.counts.add(test);
        let own = Point {
            points: Vec::new(),
            ..test.clone()
        };
        write_point(&mut self.out, &own, self.number, 0);
        if !test.ok {
            self.failures.extend(failures(test));
        }
        let _ = self.out.flush();
    }

    /// Lists and counts, before the closing line, tests that passed only the second time.
    pub fn flaky(&mut self, entries: Vec<(String, Vec<String>)>) {
        self.flaky = Some(entries);
    }

    /// Ends the stream; tests that were planned and never reported fail it.
    /// The last line is `N passed, N failed, N skipped`.
    pub fn finish(mut self) -> Counts {
        let missing = self.planned.saturating_sub(self.number);
        if missing > 0 {
            let _ = writeln!(self.out, "# {missing} planned tests have no result");
            self.counts.failed += missing;
        }
        for (path, notes) in self.failures.iter().take(FAILURES_SHOWN) {
            let _ = writeln!(self.out, "# failed: {path}");
            for note in notes {
                let _ = writeln!(self.out, "#   {note}");
            }
        }
        if let Some(flaky) = &self.flaky {
            for (text, notes) in flaky {
                let _ = writeln!(self.out, "FLAKY {text}");
                for note in notes {
                    let _ = writeln!(self.out, "#   {note}");
                }
            }
            let _ = writeln!(self.out, "flaky: {} entries", flaky.len());
        }
        let Counts {
            passed,
            failed,
            skipped,
        } = self.counts;
        let _ = writeln!(
            self.out,
            "{passed} passed, {failed} failed, {skipped} skipped"
        );
        let _ = self.out.flush();
        self.counts
    }
}

/// A report several threads write to. Points are streamed if one thread writes
/// alone; otherwise each test appears as a whole when it has ended.
pub struct Shared<W: Write> {
    report: Mutex<Report<W>>,
    /// The tests that have begun and not ended.
    running: Mutex<Vec<(String, Instant)>>,
    live: bool,
}

impl<W: Write> Shared<W> {
    /// Shares a report; `live` if there is only one thread.
    pub fn new(report: Report<W>, live: bool) -> Self {
        Shared {
            report: Mutex::new(report),
            running: Mutex::default(),
            live,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Report<W>> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Vec<(String, Instant)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the progress and the tests under way, as one line.
    pub fn news(&self) -> String {
        let list =
            |(name, start): &(String, Instant)| format!("{name} {} s", start.elapsed().as_secs());
        let running: Vec<String> = self.running().iter().map(list).collect();
        let report = self.lock();
        let (done, all) = (report.number, report.planned);
        format!("{done} of {all} done; now {}", running.join(", "))
    }

    /// As [`Report::begin`].
    pub fn begin(&self, name: &str) {
        self.running().push((name.to_owned(), Instant::now()));
        if self.live {
            self.lock().begin(name);
        }
    }

    /// As [`Report::stream`].
    pub fn stream(&self, point: &Point) {
        if self.live {
            self.lock().stream(point);
        }
    }

    /// As [`Report::end`].
    pub fn end(&self, test: &Point) {
        self.put_aside(&test.name);
        let mut report = self.lock();
        if !self.live {
            report.begin(&test.name);
        }
        report.end(test);
    }

    /// A test has run that is to be ended later.
    pub fn put_aside(&self, name: &str) {
        self.running().retain(|(running, _)| running != name);
    }

    /// The report itself again.
    pub fn into_inner(self) -> Report<W> {
        self.report
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leaves that failed: their full names, and the end of what they said.
pub fn failures(point: &Point) -> Vec<(String, Vec<String>)> {
    let mut inner: Vec<_> = point
        .points
        .iter()
        .filter(|inner| !inner.ok)
        .flat_map(failures)
        .collect();
    for (path, _) in &mut inner {
        *path = format!("{}/{path}", point.name);
    }
    if inner.is_empty() {
        let notes: Vec<&str> = point.notes.iter().flat_map(|note| note.lines()).collect();
        let last = notes.len().saturating_sub(NOTES_SHOWN);
        let notes = notes[last..].iter().map(|note| (*note).to_owned());
        inner.push((point.name.clone(), notes.collect()));
    }
    inner
}

/// A point as it stands in a stream of its own.
pub fn render(point: &Point) -> String {
    let mut text = Vec::new();
    write_point(&mut text, point, 1, 0);
    String::from_utf8_lossy(&text).into_owned()
}

fn write_point(out: &mut impl Write, point: &Point, number: usize, indent: usize) {
    let space = " ".repeat(indent);
    for (index, inner) in point.points.iter().enumerate() {
        write_point(out, inner, index + 1, indent + 2);
    }
    if !point.points.is_empty() {
        let _ = writeln!(out, "{space}  1..{}", point.points.len());
    }
    for note in &point.notes {
        for line in note.lines() {
            let _ = writeln!(out, "{space}# {line}");
        }
    }
    let word = if point.ok { "ok" } else { "not ok" };
    let skip = match &point.skip {
        Some(reason) => format!(" # SKIP {reason}"),
        None => String::new(),
    };
    let _ = writeln!(out, "{space}{word} {number} - {}{skip}", point.name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ktap::parse::Parser;

    #[test]
    fn what_is_written_can_be_read_and_counted() {
        let test = Point::of(
            "t",
            vec![
                Point::pass("a"),
                Point::skip("b", "why"),
                Point::of(
                    "c",
                    vec![Point::pass("x"), Point::fail("y", ["note".to_owned()])],
                ),
            ],
        );
        let mut bytes = Vec::new();
        let mut report = Report::new(&mut bytes, 2);
        report.begin("t");
        report.stream(&test.points[0]);
        report.end(&test);
        report.begin("u");
        report.end(&Point::pass("u"));
        let counts = report.finish();
        assert_eq!(
            counts,
            Counts {
                passed: 3,
                failed: 1,
                skipped: 1
            }
        );

        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().last(), Some("3 passed, 1 failed, 1 skipped"));
        assert!(text.contains("# failed: t/c/y\n#   note\n"));
        let mut parser = Parser::default();
        for line in text.lines() {
            parser.feed(line);
        }
        let points = parser.finish();
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].points.len(), 3);
        assert_eq!(points[0].points[2].points[1].name, "y");
        assert!(points[1].ok);
    }

    #[test]
    fn what_is_under_way_is_told() {
        let shared = Shared::new(Report::new(Vec::new(), 3), false);
        shared.begin("a");
        shared.begin("b");
        shared.end(&Point::pass("a"));
        assert_eq!(shared.news(), "1 of 3 done; now b 0 s");
    }

    #[test]
    fn the_closing_line_follows_what_was_flaky() {
        let mut bytes = Vec::new();
        let mut report = Report::new(&mut bytes, 1);
        report.end(&Point::pass("t"));
        report.flaky(vec![("t: a".to_owned(), vec!["first run: x".to_owned()])]);
        assert_eq!(report.finish().failed, 0);
        let text = String::from_utf8(bytes).unwrap();
        let end =
            "\nFLAKY t: a\n#   first run: x\nflaky: 1 entries\n1 passed, 0 failed, 0 skipped\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn missing_tests_fail_the_run() {
        let report = Report::new(Vec::new(), 3);
        assert_eq!(report.finish().failed, 3);
    }
}
